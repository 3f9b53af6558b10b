"""What a shard refuses, and that a refusal costs nobody else anything."""

import asyncio
from typing import Any

import grpc
import pytest

from shardflow.v1 import link_pb2, sampling_pb2, tensor_pb2, verifier_pb2
from tests.integration.verifier.harness import make_setup, make_slice

INVALID_ARGUMENT, RESOURCE_EXHAUSTED, FAILED_PRECONDITION = 3, 8, 9


def tensor(rows: int, width: int = 32, dtype: int = tensor_pb2.ELEMENT_TYPE_F32, size: int | None = None) -> Any:
    return tensor_pb2.Tensor(dtype=dtype, shape=[rows, width], data=bytes(rows * width * 4 if size is None else size))


@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        ({"round": 3}, FAILED_PRECONDITION, "a gap: epoch 1, round 3, base 0 after epoch 1, round 0, base 0, 3 rows"),
        ({"round": 1, "base": 4}, FAILED_PRECONDITION, "base 4 is beyond the chain that is held"),
        ({"round": 1, "base": 2, "keep": [0, 2]}, FAILED_PRECONDITION, "keep: [0, 2] is no path"),
        ({"round": 1, "base": 3, "tokens": [1] * 126}, INVALID_ARGUMENT, "beyond setup.max_tokens 128"),
        ({"round": 1, "base": 3, "tokens": [1] * 300}, INVALID_ARGUMENT, "tokens: 300 rows, 1 to 256"),
        ({"round": 1, "base": 3, "tokens": [89]}, INVALID_ARGUMENT, "tokens: 89 is not below 89"),
        (
            {"round": 1, "base": 3, "parents": [-1, 1], "tokens": [1, 2], "committed_rows": 1},
            INVALID_ARGUMENT,
            "parents",
        ),
        ({"round": 1, "base": 3, "hidden": tensor(1)}, INVALID_ARGUMENT, "hidden: the first shard takes tokens only"),
        (
            {"epoch": 2, "setup": make_setup(sampling=sampling_pb2.SamplingParams(top_p=1.5))},
            INVALID_ARGUMENT,
            "sampling: out of range: top_p",
        ),
        (
            {"epoch": 2, "setup": make_setup(sampling=sampling_pb2.SamplingParams(logit_bias={89: 1.0}))},
            INVALID_ARGUMENT,
            "sampling.logit_bias: an id is not below the vocabulary size 89",
        ),
    ],
)
async def test_a_slice_is_refused_and_the_session_goes_on(
    chain: Any, orchestrator: Any, fields: dict[str, Any], code: int, message: str
) -> None:
    async with chain(1) as shards:
        o = await orchestrator(shards)
        first = await o.ask("s", tokens=[1, 2, 3])
        await o.slice("s", **{"tokens": [4], **fields})
        failure = await o.failure()
        assert failure.code == code
        assert failure.message.startswith("verifier[0:6]: ")
        assert message in failure.message
        assert (failure.session, failure.epoch, failure.round) == ("s", fields.get("epoch", 1), fields.get("round", 0))
        assert failure.state == verifier_pb2.SessionState(session="s", epoch=1, round=0, base=0)
        again = await o.ask("s", round=1, base=0, tokens=[1, 2, 3])
        assert again.next_token == first.next_token


@pytest.mark.parametrize(
    ("hidden", "message"),
    [
        (None, "hidden: missing, and this is not the first shard"),
        (tensor(2), "hidden: shape [2, 32] where [1, 32] was expected"),
        (tensor(1, width=31), "hidden: shape [1, 31] where [1, 32] was expected"),
        (tensor(1, size=127), "hidden: 127 bytes where shape and dtype make 128"),
        (tensor(1, dtype=tensor_pb2.ELEMENT_TYPE_F16, size=64), "hidden: torch.float16 came where"),
        (tensor(1, dtype=tensor_pb2.ELEMENT_TYPE_UNSPECIFIED), "hidden: dtype 0 is not one that travels"),
    ],
)
async def test_hidden_states_that_do_not_fit_are_refused(
    chain: Any, orchestrator: Any, hidden: Any, message: str
) -> None:
    async with chain(2) as shards:
        o = await orchestrator(shards)
        await o.streams[1].send(slice=make_slice("s", "o", tokens=[1], hidden=hidden))
        failure = await o.failure()
        assert (failure.code, failure.message[:15]) == (INVALID_ARGUMENT, "verifier[2:6]: ")
        assert message in failure.message
        assert failure.state == verifier_pb2.SessionState(session="s")


async def test_sessions_are_limited(chain: Any, orchestrator: Any) -> None:
    async with chain(1, max_sessions=1) as shards:
        o = await orchestrator(shards)
        await o.ask("a", tokens=[1])
        await o.slice("b", tokens=[1])
        failure = await o.failure()
        assert (failure.code, failure.message) == (
            RESOURCE_EXHAUSTED, "verifier[0:6]: all 1 sessions are taken",
        )  # fmt: skip
        await o.release("a")
        await o.ask("c", tokens=[1])


async def test_a_session_longer_than_the_shard_holds_is_refused(chain: Any, orchestrator: Any) -> None:
    async with chain(1) as shards:
        o = await orchestrator(shards)
        await o.slice("s", tokens=[1], setup=make_setup(max_tokens=257))
        assert "setup.max_tokens: 257, a session holds 1 to 256" in (await o.failure()).message


@pytest.mark.parametrize(
    "message",
    [
        {"ping": link_pb2.Ping(sequence=1)},
        {"slice": make_slice("s", "o", tokens=[1])},
        {"hello": link_pb2.Hello(peer="")},
        {},
    ],
)
async def test_a_stream_begins_with_hello(chain: Any, orchestrator: Any, message: dict[str, Any]) -> None:
    async with chain(1) as shards:
        o = await orchestrator(shards)
        call = await o.raw(shards[0].address)
        await call.write(verifier_pb2.ConnectRequest(**message))
        assert await asyncio.wait_for(call.code(), 10) is grpc.StatusCode.INVALID_ARGUMENT
        assert "must be a Hello" in await call.details()
        await o.ask("s", tokens=[1])  # other streams do not notice


@pytest.mark.parametrize("message", [{"hello": link_pb2.Hello(peer="again")}, {}])
async def test_a_message_that_has_no_place_ends_the_stream(
    chain: Any, orchestrator: Any, message: dict[str, Any]
) -> None:
    async with chain(1) as shards:
        o = await orchestrator(shards)
        call = await o.raw(shards[0].address)
        await call.write(verifier_pb2.ConnectRequest(hello=link_pb2.Hello(peer="p")))
        await call.write(verifier_pb2.ConnectRequest(**message))
        assert await asyncio.wait_for(call.code(), 10) is grpc.StatusCode.INVALID_ARGUMENT
        await o.ask("s", tokens=[1])


async def test_a_draining_shard_serves_its_sessions_and_takes_no_others(chain: Any, orchestrator: Any) -> None:
    async with chain(1) as shards:
        o = await orchestrator(shards)
        await o.ask("s", tokens=[1])
        draining = asyncio.create_task(shards[0].service.drain())
        await asyncio.sleep(0)
        await o.slice("t", tokens=[1])
        assert "draining" in (await o.failure()).message
        await o.ask("s", round=1, base=1, tokens=[2])
        assert not draining.done()
        await o.release("s")
        await asyncio.wait_for(draining, 10)
