"""What a client reads of an error: the status with its details, and the field at fault in bytes that are no message."""

import pytest
from google.rpc import error_details_pb2, status_pb2

from shardflow import errors
from shardflow.errors import InvalidArgument, split_field
from shardflow.refusals import decoded, status_of
from shardflow.v1 import orchestrator_pb2


def details(status: status_pb2.Status) -> list[tuple[str, str]]:
    """Type and text of each detail."""
    found = []
    for detail in status.details:
        message = getattr(error_details_pb2, detail.type_url.rpartition(".")[2])()
        assert detail.Unpack(message)
        found.append((type(message).__name__, str(message).replace("\n", " ").strip()))
    return found


def test_a_field_at_fault_is_named() -> None:
    status = status_of(InvalidArgument("chat.messages[1].role: user was expected"))
    assert (status.code, status.message) == (3, "chat.messages[1].role: user was expected")
    ((kind, text),) = details(status)
    assert kind == "BadRequest"
    assert 'field: "chat.messages[1].role"' in text
    assert 'description: "user was expected"' in text


def test_no_field_no_violation() -> None:
    assert details(status_of(InvalidArgument("verifier[0:2]: tokens: 300 rows"))) == []


@pytest.mark.parametrize("kind", [errors.Unavailable, errors.ResourceExhausted])
def test_what_may_work_later_says_when(kind: type[errors.ShardflowError]) -> None:
    assert details(status_of(kind("gone"))) == [("RetryInfo", "retry_delay {   seconds: 1 }")]


@pytest.mark.parametrize(
    "kind", [errors.InvalidArgument, errors.NotFound, errors.FailedPrecondition, errors.InternalError, ValueError]
)
def test_what_does_not_work_later_says_nothing(kind: type[Exception]) -> None:
    assert details(status_of(kind("no"))) == []


@pytest.mark.parametrize("message", ["m" * 20_000, "\U0001f600" * 5_000])
def test_a_message_is_cut_to_what_clients_take(message: str) -> None:
    status = status_of(InvalidArgument(f"model: {message}"))
    assert status.message.startswith("model: ")
    assert status.message.endswith(" ...")
    assert len(status.message.encode()) <= 1004
    percent_encoded = 3 * len(status.message.encode())
    assert percent_encoded + len(status.SerializeToString()) * 4 / 3 < 7_000


def test_an_error_without_words_is_named() -> None:
    assert status_of(KeyError()).message == "KeyError"


GOOD = orchestrator_pb2.GenerateRequest(model="mmm", chat={"messages": [{"role": "user"}, {"role": "rrr"}]})


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"\xff", "the bytes are no shardflow.v1.GenerateRequest"),
        (GOOD.SerializeToString()[:-1], "the bytes are no shardflow.v1.GenerateRequest"),
        (GOOD.SerializeToString().replace(b"mmm", b"m\xffm"), "model: UTF-8 was expected; byte 1 is none"),
        (
            GOOD.SerializeToString().replace(b"rrr", b"rr\xff"),
            "chat.messages[1].role: UTF-8 was expected; byte 2 is none",
        ),
        (b'"\x01\n', "chat: the bytes are no shardflow.v1.Chat"),
        (b"*\x0aA\x02\x08", "the bytes are no shardflow.v1.GenerateRequest"),
    ],
)
def test_bytes_that_are_no_message(raw: bytes, message: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        decoded(orchestrator_pb2.GenerateRequest, raw)
    assert str(caught.value) == message


def test_bytes_that_are_one() -> None:
    assert decoded(orchestrator_pb2.GenerateRequest, GOOD.SerializeToString()) == GOOD


@pytest.mark.parametrize(
    ("message", "parts"),
    [
        ("stop: empty text", ("stop", "empty text")),
        ("a.b[0].c: x: y", ("a.b[0].c", "x: y")),
        ("shard 1: x", (None, "shard 1: x")),
        ("nothing", (None, "nothing")),
    ],
)
def test_the_field_of_a_message(message: str, parts: tuple[str | None, str]) -> None:
    assert split_field(message) == parts
