"""What shards and draft say to a peer that breaks the rules, while a request that keeps them gets its text."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from services.verifier.peers import Stream
from shardflow.errors import ResourceExhausted
from shardflow.transport import open_channel
from shardflow.v1 import draft_pb2, link_pb2, tensor_pb2, verifier_pb2
from tests.fuzz.deployment import CONTEXT, Deployment, deployed, write_models
from tests.integration.verifier.harness import Orchestrator, make_setup, make_slice
from tests.orchestrating import until

INVALID_ARGUMENT, FAILED_PRECONDITION = 3, 9
Shard, Draft = verifier_pb2.ConnectRequest, draft_pb2.ProposeRequest
HELLO = Shard(hello=link_pb2.Hello(peer="stranger"))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def expected(models: Path) -> str:
    """What the tiny target says."""

    async def alone() -> str:
        async with deployed(models) as deployment:
            return (await deployment.generate("witness", k=0, max_tokens=60)).text

    return asyncio.run(alone())


@asynccontextmanager
async def beside_another(models: Path, expected: str) -> AsyncIterator[Deployment]:
    """A request runs all the while, through the same shards and draft."""
    async with deployed(models) as deployment:
        witness = asyncio.create_task(deployment.generate("witness", k=4, max_tokens=60))
        yield deployment
        assert (await witness).text == expected
        assert (await deployment.generate("witness", k=4, max_tokens=60)).text == expected
        await until(lambda: not any(deployment.held().values()))


def tensor(rows: int, size: int) -> tensor_pb2.Tensor:
    return tensor_pb2.Tensor(dtype=tensor_pb2.ELEMENT_TYPE_F32, shape=[rows, 32], data=bytes(size))


SLICES: dict[str, tuple[int, dict[str, Any], int, str]] = {
    "unknown session": (
        0, {"round": 1, "base": 3}, FAILED_PRECONDITION,
        "unknown session: it must begin with round 0 and base 0, not epoch 1, round 1, base 3",
    ),
    "session longer than the cache": (
        0, {"setup": make_setup(max_tokens=CONTEXT + 1)}, INVALID_ARGUMENT,
        f"setup.max_tokens: {CONTEXT + 1}, a session holds 1 to {CONTEXT}",
    ),
    "id outside the vocabulary": (0, {"tokens": [257]}, INVALID_ARGUMENT, "tokens: 257 is not below 257"),
    "too many rows": (0, {"tokens": [1] * 300}, INVALID_ARGUMENT, "tokens: 300 rows, 1 to 256 fit a slice"),
    "too many parents": (0, {"parents": [-1] * 300}, INVALID_ARGUMENT, "parents: 300 rows, 1 to 256 fit a slice"),
    "parent that points forward": (
        0, {"tokens": [1, 2], "parents": [-1, 1], "committed_rows": 1}, INVALID_ARGUMENT,
        "parents: a guess hangs below none of the rows from the last committed one to itself",
    ),
    "too few bytes for the shape": (
        1, {"hidden": tensor(1, 127)}, INVALID_ARGUMENT, "hidden: 127 bytes where shape and dtype make 128",
    ),
    "shape of other rows": (
        1, {"hidden": tensor(2, 256)}, INVALID_ARGUMENT, "hidden: shape [2, 32] where [1, 32] was expected",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("shard", "fields", "code", "message"), SLICES.values(), ids=SLICES.keys())
async def test_a_slice_that_is_wrong(
    models: Path, expected: str, shard: int, fields: dict[str, Any], code: int, message: str
) -> None:
    async with beside_another(models, expected) as deployment:
        stranger = Orchestrator("stranger")
        stream = await stranger.dial(deployment.shards[shard].address)
        await stream.send(slice=make_slice("s", "stranger", **{"tokens": [1], **fields}))
        failure = await stranger.failure()
        await stranger.close()
    assert (failure.code, failure.message) == (code, f"verifier[{shard}:{shard + 1}]: {message}")


BREACHES: dict[str, tuple[Any, str]] = {
    "name of a peer": (
        Shard(hello=link_pb2.Hello(peer="p" * 257)), "hello.peer: 257 characters where at most 256 were expected",
    ),
    "session of a slice": (
        Shard(slice=make_slice("s" * 257, "stranger", tokens=[1])),
        "slice.session: 257 characters where at most 256 were expected",
    ),
    "origin of a slice": (
        Shard(slice=make_slice("s", "o" * 257, tokens=[1])),
        "slice.origin: 257 characters where at most 256 were expected",
    ),
    "session to forget": (
        Shard(release=verifier_pb2.Release(sessions=["s" * 257])),
        "release.sessions: 257 characters where at most 256 were expected",
    ),
    "sessions to forget": (
        Shard(release=verifier_pb2.Release(sessions=[""] * 4097)),
        "release.sessions: 4097 where at most 4096 were expected",
    ),
    "session of a query": (
        Shard(query=verifier_pb2.Query(session="s" * 257)),
        "query.session: 257 characters where at most 256 were expected",
    ),
    "padding": (
        Shard(ping=link_pb2.Ping(padding=bytes((1 << 20) + 1))),
        "ping.padding: 1048577 bytes where at most 1048576 were expected",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("message", "details"), BREACHES.values(), ids=BREACHES.keys())
async def test_what_would_fill_a_shards_memory(models: Path, expected: str, message: Any, details: str) -> None:
    async with beside_another(models, expected) as deployment:
        said = [message] if message.HasField("hello") else [HELLO, message]
        status = await last_words(deployment.shards[0].address, "VerifierService/Connect", said)
    assert status == (grpc.StatusCode.INVALID_ARGUMENT, details)


async def test_what_would_fill_a_drafts_memory(models: Path, expected: str) -> None:
    async with beside_another(models, expected) as deployment:
        for message, details in (
            (Draft(session="s" * 257), "session: 257 characters where at most 256 were expected"),
            (
                Draft(ping=link_pb2.Ping(padding=bytes((1 << 20) + 1))),
                "ping.padding: 1048577 bytes where at most 1048576 were expected",
            ),
        ):
            hello = Draft(hello=link_pb2.Hello(peer="stranger"))
            status = await last_words(deployment.draft.address, "DraftService/Propose", [hello, message])
            assert status == (grpc.StatusCode.INVALID_ARGUMENT, details)


@pytest.mark.parametrize(
    ("method", "raw"),
    [("VerifierService/Connect", b"\x0a\x03\x0a\x01\xff"), ("DraftService/Propose", b"*\x03\x0a\x01\xff")],
)
async def test_bytes_that_are_no_message_end_their_stream_and_no_other(
    models: Path, expected: str, caplog: pytest.LogCaptureFixture, method: str, raw: bytes
) -> None:
    async with beside_another(models, expected) as deployment:
        host = deployment.draft if method.startswith("Draft") else deployment.shards[0]
        status = await last_words(host.address, method, [raw])
    assert status == (grpc.StatusCode.INVALID_ARGUMENT, "hello.peer: UTF-8 was expected; byte 0 is none")
    assert "Traceback" not in caplog.text


async def test_a_stream_ends_no_sooner_than_what_is_being_written_to_it() -> None:
    # Else gRPC can not send its status, and the peer waits for ever.
    writing, gate = asyncio.Event(), asyncio.Event()
    written: list[verifier_pb2.ConnectResponse] = []

    async def write(message: verifier_pb2.ConnectResponse) -> None:
        writing.set()
        await gate.wait()
        written.append(message)

    stream = Stream()
    for _ in range(2):
        stream.send(verifier_pb2.ConnectResponse())
    writer = asyncio.create_task(stream.write_to(write))
    await writing.wait()
    stream.end()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not writer.done()
    gate.set()
    await writer
    assert written == [verifier_pb2.ConnectResponse()]


async def test_a_peer_that_leaves_too_many_bytes_unread_loses_its_stream() -> None:
    stream = Stream()
    for _ in range(65):
        stream.send(verifier_pb2.ConnectResponse(pong=link_pb2.Pong(padding=bytes(1 << 20))))
    with pytest.raises(ResourceExhausted):
        async with asyncio.timeout(1):
            await stream.watch()


async def test_a_peer_that_leaves_takes_its_drafts_sessions_along(models: Path, expected: str) -> None:
    async with beside_another(models, expected) as deployment:
        async with open_channel(deployment.draft.address, relay=None) as channel:
            call = channel.stream_stream(
                "/shardflow.v1.DraftService/Propose",
                request_serializer=Draft.SerializeToString,
                response_deserializer=draft_pb2.ProposeResponse.FromString,
            )(timeout=10)
            await call.write(Draft(hello=link_pb2.Hello(peer="stranger")))
            extend = draft_pb2.Extend(tokens=[1, 2], max_nodes=1, max_depth=1, max_children=1, prompt_tokens=1)
            await call.write(Draft(session="s", extend=extend))
            assert (await call.read()).HasField("tree")
            assert "s" in deployment.draft.service._worker._sessions._held
            call.cancel()
        await until(lambda: "s" not in deployment.draft.service._worker._sessions._held)


async def last_words(address: str, method: str, messages: list[Any]) -> tuple[grpc.StatusCode, str]:
    """What a stream ends with on which these messages are said, one upon the other."""
    raw = [message if isinstance(message, bytes) else message.SerializeToString() for message in messages]
    async with open_channel(address, relay=None) as channel:
        call = channel.stream_stream(f"/shardflow.v1.{method}")(timeout=5)
        with suppress(grpc.aio.AioRpcError):
            for message in raw:
                await call.write(message)
            while await call.read() is not grpc.aio.EOF:
                pass
        return await call.code(), await call.details()
