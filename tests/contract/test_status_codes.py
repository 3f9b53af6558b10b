"""One status code of Generate after the other, as a client meets it: the table in docs/api.md, a test for each row."""

from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from tests.fake_shards import Fault
from tests.fakes import Target
from tests.orchestrating import System, ask, system, until, write_model


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[System]:
    target = Target()
    await target.start()
    async with system(write_model(tmp_path / "bytes"), target, patience_s=0.3, round_timeout_s=0.2) as running:
        yield running
    await target.stop()


async def test_ok(running: System) -> None:
    assert await running.refusal(ask("hello", max_tokens=1)) == (grpc.StatusCode.OK, "")


async def test_invalid_argument(running: System) -> None:
    code, message = await running.refusal(ask("hello", max_tokens=0))
    assert (code, message) == (grpc.StatusCode.INVALID_ARGUMENT, "max_tokens: 0 where at least 1 was expected")


async def test_not_found(running: System) -> None:
    code, message = await running.refusal(ask("hello", model="other"))
    assert (code, message) == (grpc.StatusCode.NOT_FOUND, "model: 'other' is not served here; 'bytes' is")


async def test_resource_exhausted(running: System) -> None:
    running.target.last.faults[0] = Fault.EXHAUSTED
    code, message = await running.refusal(ask("hello", max_tokens=1))
    assert (code, message) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "shard-1: says RESOURCE_EXHAUSTED")


async def test_unavailable(running: System) -> None:
    await running.target.servers[1].stop()
    code, message = await running.refusal(ask("hello", max_tokens=1))
    assert code is grpc.StatusCode.UNAVAILABLE
    assert message.startswith(f"shard 1 at {running.target.peers[1]} can not be reached: ")


async def test_unavailable_when_no_round_works(running: System) -> None:
    running.target.last.faults = dict.fromkeys(range(50), Fault.REFUSE)
    code, message = await running.refusal(ask("hello", max_tokens=1))
    assert (code, message) == (grpc.StatusCode.UNAVAILABLE, "shard-1: says FAILED_PRECONDITION")


async def test_internal_for_numbers_that_are_not_finite(running: System) -> None:
    running.target.last.faults[0] = Fault.NON_FINITE
    code, message = await running.refusal(ask("hello", max_tokens=1))
    assert (code, message) == (grpc.StatusCode.INTERNAL, "shard-1: says INTERNAL")


async def test_internal_for_a_bug(running: System) -> None:
    running.target.last.faults[0] = Fault.GARBLE
    code, _ = await running.refusal(ask("hello", max_tokens=1))
    assert code is grpc.StatusCode.INTERNAL


async def test_unavailable_when_a_shard_came_back_with_other_weights(running: System) -> None:
    await running.target.servers[1].stop()
    running.target.shards[1].description.model_digest = "another"
    await running.target.servers[1].start()
    await until(lambda: running.service.status().problem.startswith("shard 1 has model_digest another"))
    code, message = await running.refusal(ask("hello", max_tokens=1))
    assert code is grpc.StatusCode.UNAVAILABLE
    assert message.startswith("shard 1 has model_digest another where shard 0 has ")


async def test_deadline_exceeded_frees_the_session(running: System) -> None:
    running.target.last.pause()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await running.call(ask("hello", max_tokens=9), timeout=0.05).read()
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await until(lambda: all(shard.released for shard in running.target.shards))


async def test_cancelled_by_the_client_is_no_error_for_the_next(running: System) -> None:
    call = running.call(ask("hello", max_tokens=400))
    await call.read()
    call.cancel()
    assert await running.refusal(ask("hello", max_tokens=1)) == (grpc.StatusCode.OK, "")
