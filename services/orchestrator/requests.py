"""Reads a client's request: checks every field, fills in defaults, renders the prompt. Errors name the field."""

import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from shardflow.errors import InvalidArgument, NotFound, PromptTooLong
from shardflow.speculation import Mode
from shardflow.tokenizer import Tokenizer
from shardflow.v1 import orchestrator_pb2, sampling_pb2

_ROLES = ("system", "user", "assistant")
_MAX_STOPS = 16
_MAX_TOP_LOGPROBS = 20
_RANGES = {
    "temperature": (0.0, 2.0),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (0.0, 10.0),
    "presence_penalty": (-2.0, 2.0),
    "frequency_penalty": (-2.0, 2.0),
}


@dataclass(frozen=True)
class Served:
    """What a request is checked against."""

    model: str
    model_digest: str
    tokenizer: Tokenizer
    vocab_size: int
    max_session_tokens: int
    default_mode: Mode


@dataclass(frozen=True)
class Request:
    """A checked request."""

    prompt: Sequence[int]
    max_tokens: int
    eos_ids: frozenset[int]
    stops: Sequence[str]
    sampling: sampling_pb2.SamplingParams
    mode: Mode
    logprobs: bool
    top_logprobs: int
    round_records: bool


def read_request(message: orchestrator_pb2.GenerateRequest, served: Served) -> Request:
    """The checked request; InvalidArgument or NotFound if a field is wrong."""
    if message.model not in ("", served.model):
        raise NotFound(f"model: {message.model!r} is not served here; {served.model!r} is")
    prompt = _prompt(message, served)
    room = served.max_session_tokens - len(prompt)
    if room < 1:
        raise PromptTooLong(
            f"prompt: {len(prompt)} tokens leave no room for an answer in a context of {served.max_session_tokens}"
        )
    if message.HasField("max_tokens") and message.max_tokens < 1:
        raise InvalidArgument("max_tokens: 0 where at least 1 was expected")
    if message.top_logprobs > _MAX_TOP_LOGPROBS or (message.top_logprobs and not message.logprobs):
        raise InvalidArgument(
            f"top_logprobs: {message.top_logprobs} where 0 to {_MAX_TOP_LOGPROBS} was expected, and only with logprobs"
        )
    return Request(
        prompt=prompt,
        max_tokens=min(message.max_tokens, room) if message.HasField("max_tokens") else room,
        eos_ids=frozenset() if message.ignore_eos else served.tokenizer.eos_ids,
        stops=_stops(message.stop),
        sampling=_sampling(message.sampling, served.vocab_size),
        mode=_mode(message.speculation, served.default_mode),
        logprobs=message.logprobs,
        top_logprobs=message.top_logprobs,
        round_records=message.round_records,
    )


def _prompt(message: orchestrator_pb2.GenerateRequest, served: Served) -> list[int]:
    kind = message.WhichOneof("prompt")
    _check_length(message, served)
    if kind == "text":
        ids = served.tokenizer.encode(message.text)
    elif kind == "token_ids":
        ids = list(message.token_ids.ids)
    elif kind == "chat":
        ids = served.tokenizer.encode_chat(_conversation(message.chat))
    else:
        raise InvalidArgument("prompt: one of text, token_ids and chat is needed")
    if not ids:
        raise InvalidArgument(f"{kind}: makes no token")
    if max(ids) >= served.vocab_size:
        raise InvalidArgument(f"{kind}: id {max(ids)} is outside the vocabulary of {served.vocab_size}")
    return ids


def _check_length(message: orchestrator_pb2.GenerateRequest, served: Served) -> None:
    """Refuses what can not fit before time is spent on it."""
    if len(message.token_ids.ids) > served.max_session_tokens:
        raise PromptTooLong(
            f"prompt: {len(message.token_ids.ids)} tokens do not fit into a context of {served.max_session_tokens}"
        )
    characters = len(message.text) + sum(len(each.content) for each in message.chat.messages)
    if characters > served.max_session_tokens * served.tokenizer.longest_token:
        raise PromptTooLong(
            f"prompt: {characters} characters do not fit into a context of {served.max_session_tokens} tokens"
        )


def _conversation(chat: orchestrator_pb2.Chat) -> list[dict[str, str]]:
    if not chat.messages:
        raise InvalidArgument("chat.messages: empty")
    for index, message in enumerate(chat.messages):
        if message.role not in _ROLES:
            raise InvalidArgument(
                f"chat.messages[{index}].role: {message.role!r} where one of {', '.join(_ROLES)} was expected"
            )
    return [{"role": message.role, "content": message.content} for message in chat.messages]


def _stops(stops: Sequence[str]) -> Sequence[str]:
    if len(stops) > _MAX_STOPS:
        raise InvalidArgument(f"stop: {len(stops)} texts where at most {_MAX_STOPS} were expected")
    if not all(stops):
        raise InvalidArgument("stop: empty text")
    return tuple(stops)


def _sampling(message: sampling_pb2.SamplingParams, vocab_size: int) -> sampling_pb2.SamplingParams:
    for name, (low, high) in _RANGES.items():
        value = getattr(message, name)
        if not low <= value <= high:  # NaN is in no range
            raise InvalidArgument(f"sampling.{name}: {value:g} where {low:g} to {high:g} was expected")
    for token_id, bias in message.logit_bias.items():
        if token_id >= vocab_size:
            raise InvalidArgument(f"sampling.logit_bias: id {token_id} is outside the vocabulary of {vocab_size}")
        if not math.isfinite(bias) or abs(bias) > 100:
            raise InvalidArgument(f"sampling.logit_bias: {bias:g} where -100 to 100 was expected")
    checked = sampling_pb2.SamplingParams()
    checked.CopyFrom(message)
    if not message.HasField("seed"):
        checked.seed = secrets.randbits(64)
    return checked


def _mode(message: orchestrator_pb2.Speculation, default: Mode) -> Mode:
    try:
        return Mode.read(message) or default
    except ValueError as error:
        raise InvalidArgument(str(error)) from error
