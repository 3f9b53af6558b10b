"""Every field of a request is checked; a refusal names the field and says what was expected."""

from typing import Any

import pytest

from services.orchestrator.requests import Served, read_request
from shardflow.errors import InvalidArgument, NotFound
from shardflow.speculation import Mode
from shardflow.tokenizer import Tokenizer
from shardflow.v1 import orchestrator_pb2
from tests.orchestrating import write_model
from tests.scripts import EOS

ROOM = 100


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Served:
    path = write_model(tmp_path_factory.mktemp("models") / "bytes")
    return Served("bytes", "d", Tokenizer(path), vocab_size=257, max_session_tokens=ROOM, default_mode=Mode("auto"))


def message(**fields: Any) -> orchestrator_pb2.GenerateRequest:
    prompt = {} if {"text", "token_ids", "chat"} & fields.keys() else {"text": "hello"}
    return orchestrator_pb2.GenerateRequest(**prompt, **fields)


def chat(*messages: tuple[str, str]) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": content} for role, content in messages]}


def test_defaults(served: Served) -> None:
    request = read_request(message(), served)
    assert list(request.prompt) == list(b"hello")
    assert (request.max_tokens, request.eos_ids, list(request.stops)) == (95, {EOS}, [])
    assert (request.mode, request.logprobs, request.top_logprobs, request.round_records) == (
        Mode("auto"),
        False,
        0,
        False,
    )
    assert request.sampling.temperature == 0


def test_an_unset_seed_is_drawn(served: Served) -> None:
    seeds = {read_request(message(), served).sampling.seed for _ in range(4)}
    assert len(seeds) == 4


@pytest.mark.parametrize("seed", [0, 1, 2**64 - 1])
def test_a_seed_is_kept(served: Served, seed: int) -> None:
    assert read_request(message(sampling={"seed": seed}), served).sampling.seed == seed


def test_max_tokens_end_with_the_context(served: Served) -> None:
    assert read_request(message(max_tokens=1000), served).max_tokens == 95
    assert read_request(message(max_tokens=95), served).max_tokens == 95
    assert read_request(message(max_tokens=1), served).max_tokens == 1


def test_the_longest_prompt(served: Served) -> None:
    assert read_request(message(text="x" * (ROOM - 1)), served).max_tokens == 1


def test_prompts(served: Served) -> None:
    assert read_request(message(token_ids={"ids": [5, 256]}), served).prompt == [5, 256]
    conversation = read_request(message(chat=chat(("system", "be"), ("user", "hi"), ("assistant", "ok"))), served)
    assert bytes(conversation.prompt) == b"system: be\nuser: hi\nassistant: ok\n> "


def test_ignored_end_of_sequence(served: Served) -> None:
    assert read_request(message(ignore_eos=True), served).eos_ids == frozenset()


@pytest.mark.parametrize(
    ("speculation", "mode"),
    [
        ({}, Mode("auto")),
        ({"none": {}}, Mode("none")),
        ({"linear": {"k": 64}}, Mode("linear", 64)),
        ({"lookup": {}}, Mode("lookup")),
    ],
)
def test_speculation(served: Served, speculation: dict[str, Any], mode: Mode) -> None:
    assert read_request(message(speculation=speculation), served).mode == mode


def test_a_model_that_is_not_served(served: Served) -> None:
    with pytest.raises(NotFound) as caught:
        read_request(message(model="other"), served)
    assert str(caught.value) == "model: 'other' is not served here; 'bytes' is"


REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"text": ""}, "text: makes no token"),
    ({"token_ids": {}}, "token_ids: makes no token"),
    ({"token_ids": {"ids": [1, 257]}}, "token_ids: id 257 is outside the vocabulary of 257"),
    ({"chat": {}}, "chat.messages: empty"),
    (
        {"chat": chat(("user", "a"), ("tool", "b"))},
        "chat.messages[1].role: 'tool' where one of system, user, assistant was expected",
    ),
    ({"text": "x" * ROOM}, "prompt: 100 tokens leave no room for an answer in a context of 100"),
    ({"max_tokens": 0}, "max_tokens: 0 where at least 1 was expected"),
    ({"stop": ["a"] * 17}, "stop: 17 texts where at most 16 were expected"),
    ({"stop": ["a", ""]}, "stop: empty text"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs: 21 where 0 to 20 was expected, and only with logprobs"),
    ({"top_logprobs": 1}, "top_logprobs: 1 where 0 to 20 was expected, and only with logprobs"),
    ({"speculation": {"linear": {}}}, "speculation.linear.k: 0 where 1 to 64 was expected"),
    ({"speculation": {"linear": {"k": 65}}}, "speculation.linear.k: 65 where 1 to 64 was expected"),
    ({"sampling": {"temperature": 2.5}}, "sampling.temperature: 2.5 where 0 to 2 was expected"),
    ({"sampling": {"temperature": -1}}, "sampling.temperature: -1 where 0 to 2 was expected"),
    ({"sampling": {"temperature": float("nan")}}, "sampling.temperature: nan where 0 to 2 was expected"),
    ({"sampling": {"temperature": float("inf")}}, "sampling.temperature: inf where 0 to 2 was expected"),
    ({"sampling": {"top_p": 1.5}}, "sampling.top_p: 1.5 where 0 to 1 was expected"),
    ({"sampling": {"min_p": -0.5}}, "sampling.min_p: -0.5 where 0 to 1 was expected"),
    ({"sampling": {"repetition_penalty": -1}}, "sampling.repetition_penalty: -1 where 0 to 10 was expected"),
    ({"sampling": {"presence_penalty": 3}}, "sampling.presence_penalty: 3 where -2 to 2 was expected"),
    ({"sampling": {"frequency_penalty": -3}}, "sampling.frequency_penalty: -3 where -2 to 2 was expected"),
    ({"sampling": {"logit_bias": {257: 1}}}, "sampling.logit_bias: id 257 is outside the vocabulary of 257"),
    ({"sampling": {"logit_bias": {1: 101}}}, "sampling.logit_bias: 101 where -100 to 100 was expected"),
    ({"sampling": {"logit_bias": {1: float("nan")}}}, "sampling.logit_bias: nan where -100 to 100 was expected"),
]


@pytest.mark.parametrize(("fields", "refusal"), REFUSALS, ids=[refusal for _, refusal in REFUSALS])
def test_refusals(served: Served, fields: dict[str, Any], refusal: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        read_request(message(**fields), served)
    assert str(caught.value) == refusal


def test_no_prompt(served: Served) -> None:
    with pytest.raises(InvalidArgument) as caught:
        read_request(orchestrator_pb2.GenerateRequest(), served)
    assert str(caught.value) == "prompt: one of text, token_ids and chat is needed"


@pytest.mark.parametrize(
    "fields",
    [
        {"stop": ["a"] * 16},
        {"logprobs": True, "top_logprobs": 20},
        {"sampling": {"temperature": 2, "top_p": 1, "min_p": 1, "top_k": 2**32 - 1}},
        {"sampling": {"presence_penalty": -2, "frequency_penalty": 2, "logit_bias": {256: -100}}},
    ],
)
def test_limits_are_within(served: Served, fields: dict[str, Any]) -> None:
    read_request(message(**fields), served)
