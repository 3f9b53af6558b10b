"""Text to ids and back as `transformers` does it, and text that comes as the tokens come."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as RustTokenizer
from tokenizers.processors import TemplateProcessing

from shardflow.errors import InvalidArgument
from shardflow.tokenizer import Tokenizer, vocabulary_digest
from tests.orchestrating import write_model
from tests.scripts import EOS

SMOLLM2 = Path(__file__).parents[3] / "models" / "smollm2-135m-instruct"
TEXTS = [
    "The capital of France is",
    "  two  spaces\tand\ttabs\n\n",
    "na\u00efve caf\u00e9, e\u0301 combining",
    "\u4f60\u597d\u4e16\u754c \u3053\u3093\u306b\u3061\u306f \ud55c\uad6d\uc5b4",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467 family, \U0001f1eb\U0001f1f7 flag",
    "def f(x):\n    return x ** 2  # \u2264 3\n",
    "<|im_start|>user",
    "\u0e01\u0e33\u0e25\u0e31\u0e07 \u0627\u0644\u0639\u0631\u0628\u064a\u0629",
    "1234567890 3.14159",
]
CHATS = [
    [{"role": "user", "content": "Hello!"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "caf\u00e9?\n\nyes"}],
    [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "\U0001f600"},
        {"role": "user", "content": "{{ 1 }}"},
    ],
]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "bytes")


@pytest.fixture(scope="module")
def smollm2() -> Tokenizer:
    return Tokenizer(SMOLLM2)


@pytest.fixture(scope="module")
def reference() -> Any:
    transformers = pytest.importorskip("transformers")
    return transformers.AutoTokenizer.from_pretrained(SMOLLM2)


def streamed(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    """What each id releases, and the end of it."""
    stream = tokenizer.stream()
    return [*(stream.push(token_id) for token_id in ids), stream.flush()]


@pytest.mark.model
@pytest.mark.parametrize("text", TEXTS)
def test_raw_text_as_transformers(smollm2: Tokenizer, reference: Any, text: str) -> None:
    ids = smollm2.encode(text)
    assert ids == reference(text).input_ids
    assert smollm2.decode(ids) == reference.decode(ids, skip_special_tokens=True)
    assert "".join(streamed(smollm2, ids)) == smollm2.decode(ids)


@pytest.mark.model
@pytest.mark.parametrize("conversation", CHATS)
def test_conversations_as_transformers(smollm2: Tokenizer, reference: Any, conversation: list[dict[str, str]]) -> None:
    expected = reference.apply_chat_template(conversation, add_generation_prompt=True, tokenize=False)
    assert smollm2.render(conversation) == expected
    assert smollm2.encode_chat(conversation) == reference(expected, add_special_tokens=False).input_ids


@pytest.mark.model
def test_facts_of_smollm2(smollm2: Tokenizer) -> None:
    assert (smollm2.eos_ids, smollm2.size) == (frozenset({2}), 49152)
    assert smollm2.encode("The capital of France is") == [504, 3575, 282, 4649, 314]


@pytest.mark.model
def test_any_ids_come_whole(smollm2: Tokenizer) -> None:
    @given(st.lists(st.integers(0, 49151), max_size=30))
    def check(ids: list[int]) -> None:
        assert "".join(streamed(smollm2, ids)) == smollm2.decode(ids)

    check()


def test_bytes_come_as_characters(path: Path) -> None:
    ids = list("a\u00e9\u20ac\U0001f600".encode())
    assert streamed(Tokenizer(path), ids) == ["a", "", "\u00e9", "", "", "\u20ac", "", "", "", "\U0001f600", ""]


def test_a_character_that_stays_incomplete(path: Path) -> None:
    assert streamed(Tokenizer(path), [97, 0xE2, 0x82]) == ["a", "", "", "\ufffd"]


def test_bytes_that_are_no_character(path: Path) -> None:
    ids = [97, 0xFF, 98, 0xE2, 99, 0x80, 0x80, 100]
    assert "".join(streamed(Tokenizer(path), ids)) == bytes(ids).decode(errors="replace")


def test_any_bytes_come_whole(path: Path) -> None:
    tokenizer = Tokenizer(path)

    @given(st.lists(st.integers(0, 256), max_size=24))
    def check(ids: list[int]) -> None:
        assert "".join(streamed(tokenizer, ids)) == tokenizer.decode(ids)

    check()


def test_special_tokens_have_no_text(path: Path) -> None:
    assert Tokenizer(path).decode([97, EOS, 98]) == "ab"
    assert streamed(Tokenizer(path), [97, EOS, 98]) == ["a", "", "b", ""]


def test_a_directory_without_a_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument) as caught:
        Tokenizer(tmp_path)
    assert str(caught.value) == f"model: {tmp_path} has no tokenizer.json"
    assert vocabulary_digest(tmp_path) == ""


def test_long_prompts_are_not_cut(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m")
    inner = RustTokenizer.from_file(str(path / "tokenizer.json"))
    inner.enable_truncation(4)
    inner.enable_padding(length=16)
    inner.save(str(path / "tokenizer.json"))
    assert Tokenizer(path).encode("abcdefgh") == list(b"abcdefgh")


def test_a_raw_text_gets_the_tokenizers_own_special_tokens_and_a_conversation_none(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m")
    inner = RustTokenizer.from_file(str(path / "tokenizer.json"))
    inner.post_processor = TemplateProcessing(single="<eos> $A", special_tokens=[("<eos>", EOS)])
    inner.save(str(path / "tokenizer.json"))
    tokenizer = Tokenizer(path)
    assert tokenizer.encode("a") == [EOS, 97]
    assert tokenizer.encode_chat([{"role": "user", "content": "a"}]) == list(b"user: a\n> ")


@pytest.mark.parametrize(
    ("files", "eos_ids"),
    [
        ({"config.json": {"eos_token_id": 3}}, {3}),
        ({"config.json": {"eos_token_id": 3}, "generation_config.json": {"eos_token_id": [4, 5]}}, {4, 5}),
        ({"config.json": {"eos_token_id": 3}, "generation_config.json": {}}, {3}),
        ({"config.json": {}}, set()),
    ],
)
def test_end_of_sequence_ids(tmp_path: Path, files: dict[str, Any], eos_ids: set[int]) -> None:
    path = write_model(tmp_path / "m")
    for name, content in files.items():
        (path / name).write_text(json.dumps(content))
    assert Tokenizer(path).eos_ids == eos_ids


def with_template(path: Path, template: Any) -> Tokenizer:
    config = {"bos_token": {"content": "<s>"}, "eos_token": "</s>", "chat_template": template}
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    return Tokenizer(path)


def test_special_tokens_in_a_template(tmp_path: Path) -> None:
    tokenizer = with_template(write_model(tmp_path / "m"), "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}")
    assert tokenizer.render([{"role": "user", "content": "x"}]) == "<s>x</s>"


def test_a_template_that_refuses(tmp_path: Path) -> None:
    tokenizer = with_template(write_model(tmp_path / "m"), "{{ raise_exception('no system please') }}")
    with pytest.raises(InvalidArgument) as caught:
        tokenizer.render([{"role": "user", "content": "x"}])
    assert str(caught.value) == "chat: the model's template refuses this conversation: no system please"


def test_of_several_templates_the_default_one(tmp_path: Path) -> None:
    named = [{"name": "tool_use", "template": "tool"}, {"name": "default", "template": "plain"}]
    assert with_template(write_model(tmp_path / "m"), named).render([]) == "plain"


def test_a_template_file_comes_first(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m")
    (path / "chat_template.jinja").write_text("file")
    assert Tokenizer(path).render([]) == "file"


def test_no_template(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument) as caught:
        with_template(write_model(tmp_path / "m"), None).render([])
    assert str(caught.value) == "chat: this model has no chat template"


def test_a_template_can_not_reach_the_process(tmp_path: Path) -> None:
    tokenizer = with_template(write_model(tmp_path / "m"), "{{ ''.__class__.__mro__ }}")
    with pytest.raises(InvalidArgument):
        tokenizer.render([])


def test_the_digest_is_of_ids_and_texts(tmp_path: Path) -> None:
    first, second = write_model(tmp_path / "a"), write_model(tmp_path / "b")
    assert vocabulary_digest(first) == vocabulary_digest(second)
    changed = (
        (second / "tokenizer.json").read_text().replace('"a":97', '"\u4e00":97').replace('"a": 97', '"\u4e00": 97')
    )
    (second / "tokenizer.json").write_text(changed)
    assert vocabulary_digest(first) != vocabulary_digest(second)
