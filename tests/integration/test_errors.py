"""What a client hears of a bad request, over gRPC, while another client's text goes on as if nothing were."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from services.orchestrator.openai.errors import from_error
from shardflow.errors import ResourceExhausted, Unavailable
from shardflow.tokenizer import Tokenizer
from shardflow.transport import open_channel
from shardflow.v1 import orchestrator_pb2
from tests.fake_shards import MAX_SESSION_TOKENS, Fault
from tests.fakes import Server, Target
from tests.orchestrating import System, ask, system, until, write_model
from tests.scripts import continuation, letters

INVALID_ARGUMENT, NOT_FOUND = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND
Request = orchestrator_pb2.GenerateRequest


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "bytes")


@pytest.fixture
async def target() -> AsyncIterator[Target]:
    target = Target()
    await target.start()
    yield target
    await target.stop()
    assert target.violations == []


@asynccontextmanager
async def beside_another(running: System) -> AsyncIterator[None]:
    """A generation goes on all the while; its text is right in the end, and nothing is left of anybody."""
    call = running.call(ask("witness", max_tokens=40))
    text = (await call.read()).text
    yield
    while (message := await call.read()) is not grpc.aio.EOF:
        text += message.text
    assert text == continuation(letters, "witness", 40)
    await until(lambda: not any(shard.sessions for shard in running.target.shards))
    assert running.sample("shardflow_active_requests") == 0


async def status(call: Any) -> status_pb2.Status:
    """The status of a call that fails, details and all."""
    with pytest.raises(grpc.aio.AioRpcError):
        while await call.read() is not grpc.aio.EOF:
            pass
    told = await rpc_status.aio.from_call(call)
    assert told is not None
    assert (told.code, told.message) == ((await call.code()).value[0], await call.details())
    return told


def unpacked(told: status_pb2.Status, kind: Any) -> Any:
    """Its only detail."""
    (detail,) = told.details
    message = kind()
    assert detail.Unpack(message)
    return message


WRONG: dict[str, tuple[Request, str, str]] = {
    "empty prompt": (ask(""), "text", "makes no token"),
    "no prompt": (Request(), "prompt", "one of text, token_ids and chat is needed"),
    "no token ids": (Request(token_ids={}), "token_ids", "makes no token"),
    "empty conversation": (Request(chat={}), "chat.messages", "empty"),
    "unknown role": (
        Request(chat={"messages": [{"role": "tool"}]}),
        "chat.messages[0].role", "'tool' where one of system, user, assistant was expected",
    ),
    "prompt over the context": (
        ask("x" * MAX_SESSION_TOKENS), "prompt", "512 tokens leave no room for an answer in a context of 512",
    ),
    "prompt far over the context": (
        ask("x" * 3000), "prompt", "3000 characters do not fit into a context of 512 tokens",
    ),
    "ids far over the context": (
        Request(token_ids={"ids": [1] * 600}), "prompt", "600 tokens do not fit into a context of 512",
    ),
    "id outside the vocabulary": (
        Request(token_ids={"ids": [257]}), "token_ids", "id 257 is outside the vocabulary of 257",
    ),
    "no tokens": (ask("x", max_tokens=0), "max_tokens", "0 where at least 1 was expected"),
    "empty stop": (ask("x", stop=[""]), "stop", "empty text"),
    "temperature": (ask("x", sampling={"temperature": 9}), "sampling.temperature", "9 where 0 to 2 was expected"),
    "no number": (
        ask("x", sampling={"top_p": float("nan")}), "sampling.top_p", "nan where 0 to 1 was expected",
    ),
    "chain": (ask("x", k=65), "speculation.linear.k", "65 where 1 to 64 was expected"),
}  # fmt: skip


@pytest.mark.parametrize(("request_", "field", "description"), WRONG.values(), ids=WRONG.keys())
async def test_what_is_wrong_is_named(
    model: Path, target: Target, request_: Request, field: str, description: str
) -> None:
    async with system(model, target) as running, beside_another(running):
        told = await status(running.call(request_))
    assert (told.code, told.message) == (INVALID_ARGUMENT.value[0], f"{field}: {description}")
    (violation,) = unpacked(told, error_details_pb2.BadRequest).field_violations
    assert (violation.field, violation.description) == (field, description)


async def test_an_unknown_model(model: Path, target: Target) -> None:
    async with system(model, target) as running, beside_another(running):
        told = await status(running.call(ask("x", model="other")))
    assert (told.code, told.message) == (NOT_FOUND.value[0], "model: 'other' is not served here; 'bytes' is")


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"\x12\x03a\xffb", "text: UTF-8 was expected; byte 1 is none"),
        (b"\x0a\x01\xff\x12\x01x", "model: UTF-8 was expected; byte 0 is none"),
        (b"\x12\x7fx", "the bytes are no shardflow.v1.GenerateRequest"),
    ],
)
async def test_bytes_that_are_no_request(
    model: Path, target: Target, caplog: pytest.LogCaptureFixture, raw: bytes, message: str
) -> None:
    async with system(model, target) as running, beside_another(running):
        server = Server(running.service.register)
        await server.start()
        async with open_channel(server.peer.address, relay=None) as channel:
            told = await status(channel.unary_stream("/shardflow.v1.OrchestratorService/Generate")(raw, timeout=10))
        await server.stop()
    assert (told.code, told.message) == (INVALID_ARGUMENT.value[0], message)
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("length", [9_000, 20_000, 1_000_000])
async def test_a_long_word_of_the_client_does_not_make_the_answer_unreadable(
    model: Path, target: Target, length: int
) -> None:
    async with system(model, target) as running, beside_another(running):
        told = await status(running.call(ask("x", model="\u00e9" * length)))
        assert told.code == NOT_FOUND.value[0]
        assert told.message.startswith("model: '\u00e9\u00e9")
        assert (await running.generate("hello", max_tokens=3)).text == continuation(letters, "hello", 3)


async def test_a_long_prompt_is_read_beside_the_rounds_of_others(
    model: Path, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    others_are_done = threading.Event()
    encode = Tokenizer.encode

    def waiting(self: Tokenizer, text: str, **options: Any) -> list[int]:
        if len(text) > 10_000:
            assert others_are_done.wait(10)
        return encode(self, text, **options)

    monkeypatch.setattr(Tokenizer, "encode", waiting)
    for shard in target.shards:
        shard.description.max_session_tokens = 20_000
    async with system(model, target) as running:
        long = asyncio.create_task(running.refusal(ask("x" * 20_000, max_tokens=1)))
        assert (await running.generate("hello", max_tokens=3)).text == continuation(letters, "hello", 3)
        others_are_done.set()
        assert (await long)[0] is INVALID_ARGUMENT


async def test_advice_when_a_shard_is_gone(model: Path, target: Target) -> None:
    async with system(model, target, patience_s=0.2) as running:
        await target.servers[1].stop()
        told = await status(running.call(ask("hello", max_tokens=3)))
    assert told.code == grpc.StatusCode.UNAVAILABLE.value[0]
    assert unpacked(told, error_details_pb2.RetryInfo).retry_delay.ToTimedelta().total_seconds() == 1


async def test_advice_when_there_is_no_room(model: Path, target: Target) -> None:
    target.last.faults[0] = Fault.EXHAUSTED
    async with system(model, target) as running:
        told = await status(running.call(ask("hello", max_tokens=3)))
        assert (await running.generate("hello", max_tokens=3)).text == continuation(letters, "hello", 3)
    assert told.code == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
    assert unpacked(told, error_details_pb2.RetryInfo).retry_delay.ToTimedelta().total_seconds() == 1


@pytest.mark.parametrize("kind", [Unavailable, ResourceExhausted])
def test_http_gives_the_same_advice(kind: type[Unavailable | ResourceExhausted]) -> None:
    assert kind.retry_after_s == 1
    assert from_error(kind("x")).headers == {"retry-after": "1"}
