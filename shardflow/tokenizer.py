"""Text to token ids and back with a model directory's own tokenizer and chat template, without transformers."""

import datetime
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer as RustTokenizer
from tokenizers.decoders import DecodeStream

from shardflow.errors import InvalidArgument

_BYTE_FALLBACK = re.compile("<0x[0-9A-F]{2}>")  # how vocabularies that are not byte-level write a single byte


def _byte_alphabet() -> dict[str, int]:
    """The byte behind each character of a byte-level vocabulary: printable ones stand for themselves."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + index): byte for index, byte in enumerate(others)}


_BYTES = _byte_alphabet()


class Tokenizer:
    """The tokenizer of one model directory."""

    def __init__(self, path: Path) -> None:
        """Reads `tokenizer.json`, `tokenizer_config.json`, the chat template and the end-of-sequence ids of `path`."""
        file = path / "tokenizer.json"
        if not file.exists():
            raise InvalidArgument(f"model: {path} has no tokenizer.json")
        self._tokenizer = _read_tokenizer(file)
        # Some files carry the settings of a training run.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._config = _read_json(path / "tokenizer_config.json")
        self._template = _chat_template(path, self._config)
        self._added = self._tokenizer.get_added_tokens_decoder()
        self._longest = max(map(len, self._tokenizer.get_vocab(with_added_tokens=True)), default=1)
        self._is_byte_level = "ByteLevel" in str(self._tokenizer.decoder)
        self.eos_ids = end_of_sequence(path)

    @property
    def has_chat_template(self) -> bool:
        """Whether conversations can be rendered."""
        return self._template is not None

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a raw text, with the special tokens that the tokenizer itself adds."""
        # A batch of one: unlike a single text it lets other threads run.
        return list(self._tokenizer.encode_batch([text], add_special_tokens=add_special_tokens)[0].ids)

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Token ids of a conversation rendered with the model's chat template, ready for the assistant's answer."""
        return self.encode(self.render(messages), add_special_tokens=False)

    def render(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The conversation as text; InvalidArgument if there is no template or it refuses the conversation."""
        if self._template is None:
            raise InvalidArgument("chat: this model has no chat template")
        special = {
            key: _token_text(self._config.get(key)) for key in ("bos_token", "eos_token", "unk_token", "pad_token")
        }
        try:
            return self._template.render(
                messages=list(messages), tools=None, documents=None, add_generation_prompt=True, **special
            )
        except jinja2.TemplateError as error:
            raise InvalidArgument(f"chat: the model's template refuses this conversation: {error}") from error

    def decode(self, ids: Sequence[int]) -> str:
        """Text of `ids`, special tokens left out."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))

    def stream(self) -> "TextStream":
        """A fresh incremental decoder."""
        return TextStream(self._tokenizer)

    def token_text(self, token_id: int) -> str:
        """How an id is written in the vocabulary, for people; incomplete characters as `\\xNN`."""
        raw = self.token_bytes(token_id)
        return raw.decode(errors="backslashreplace") if raw is not None else self._tokenizer.id_to_token(token_id) or ""

    def token_bytes(self, token_id: int) -> bytes | None:
        """The bytes that an id stands for in a text; None for a special token and for an id without a text."""
        added = self._added.get(token_id)
        if added is not None:
            return None if added.special else added.content.encode()
        token = self._tokenizer.id_to_token(token_id)
        if token is None:
            return None
        if self._is_byte_level and _BYTES.keys() >= set(token):
            return bytes(_BYTES[character] for character in token)
        if _BYTE_FALLBACK.fullmatch(token):
            return bytes([int(token[3:5], 16)])
        return token.replace("\u2581", " ").encode()

    @property
    def longest_token(self) -> int:
        """Characters of the longest text that one id can stand for."""
        return self._longest

    @property
    def size(self) -> int:
        """Number of ids that have a text."""
        return int(self._tokenizer.get_vocab_size(with_added_tokens=True))


class TextStream:
    """Decodes ids one at a time; a character whose bytes are incomplete is held back."""

    def __init__(self, tokenizer: RustTokenizer) -> None:
        self._tokenizer = tokenizer
        self._stream = DecodeStream(skip_special_tokens=True)
        self._ids: list[int] = []
        self._released = 0  # characters

    def push(self, token_id: int) -> str:
        """The text that `token_id` completes; may be empty."""
        self._ids.append(token_id)
        text = self._stream.step(self._tokenizer, token_id) or ""
        self._released += len(text)
        return text

    def flush(self) -> str:
        """What is still incomplete when no more will come, as replacement characters."""
        return str(self._tokenizer.decode(self._ids, skip_special_tokens=True))[self._released :]


def vocabulary_digest(path: Path) -> str:
    """SHA-256 over the vocabulary of a directory's tokenizer, sorted by id; empty if it has none."""
    file = path / "tokenizer.json"
    if not file.exists():
        return ""
    vocabulary = _read_tokenizer(file).get_vocab(with_added_tokens=True)
    digest = hashlib.sha256()
    for token, token_id in sorted(vocabulary.items(), key=lambda item: item[1]):
        digest.update(f"{token_id}\t{token}\n".encode())
    return digest.hexdigest()


def _read_tokenizer(file: Path) -> RustTokenizer:
    try:
        return RustTokenizer.from_file(str(file))
    except Exception as error:  # the package has no type of its own
        raise InvalidArgument(f"model: {file} can not be read: {error}") from error


def end_of_sequence(path: Path) -> frozenset[int]:
    """The ids that end a text of the model in directory `path`; none if it names none."""
    for name in ("generation_config.json", "config.json"):
        value = _read_json(path / name).get("eos_token_id")
        if value is not None:
            return frozenset(value if isinstance(value, Iterable) else [value])
    return frozenset()


def _chat_template(path: Path, config: Mapping[str, Any]) -> jinja2.Template | None:
    file = path / "chat_template.jinja"
    source = file.read_text() if file.exists() else config.get("chat_template")
    if isinstance(source, list):  # several, by name
        source = next((entry["template"] for entry in source if entry["name"] == "default"), None)
    if source is None:
        return None
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    environment.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
    return environment.from_string(source)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _token_text(value: Any) -> str:
    return str(value.get("content", "")) if isinstance(value, Mapping) else str(value or "")


def _read_json(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text())) if path.exists() else {}
