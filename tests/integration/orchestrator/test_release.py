"""A session that is over leaves nothing behind, on shards and draft, however it ended."""

from pathlib import Path

import grpc
import pytest

from tests.fake_shards import Fault
from tests.fakes import FakeDraft, StartDraft, Target
from tests.orchestrating import ask, rest, system, until
from tests.scripts import letters


def held(target: Target, draft: FakeDraft) -> list[int]:
    """Sessions that each shard and the draft hold."""
    return [*(len(shard.sessions) for shard in target.shards), len(draft.sessions)]


async def test_end(model: Path, target: Target, start_draft: StartDraft) -> None:
    draft = await start_draft(FakeDraft(letters))
    async with system(model, target, draft) as running:
        answer = await running.generate("hello", k=4, max_tokens=9)
        await until(lambda: held(target, draft) == [0, 0, 0])
        assert [shard.released for shard in target.shards] == [[answer.last.request_id]] * 2
        assert running.sample("shardflow_active_requests") == 0


async def test_cancel(model: Path, target: Target, start_draft: StartDraft) -> None:
    draft = await start_draft(FakeDraft(letters))
    async with system(model, target, draft) as running:
        call = running.call(ask("hello", k=2, max_tokens=400))
        for _ in range(3):
            await call.read()
        assert held(target, draft) == [1, 1, 1]
        call.cancel()
        await until(lambda: held(target, draft) == [0, 0, 0])
        await until(lambda: running.sample("shardflow_requests_total", outcome="cancelled") == 1)


async def test_cancel_while_a_round_is_in_flight(model: Path, target: Target) -> None:
    target.last.faults[1] = Fault.LOSE
    async with system(model, target, round_timeout_s=10) as running:
        call = running.call(ask("hello", max_tokens=400))
        await call.read()
        await until(lambda: len(target.last.slices) == 2)
        call.cancel()
        await until(lambda: not target.last.sessions and not target.shards[0].sessions)


async def test_a_client_that_does_not_read_and_leaves(model: Path, target: Target) -> None:
    async with system(model, target) as running:
        call = running.call(ask("hello", max_tokens=400))
        await until(lambda: len(target.last.slices) > 5)
        call.cancel()
        await until(lambda: not target.last.sessions and not target.shards[0].sessions)


async def test_deadline(model: Path, target: Target) -> None:
    target.last.faults[3] = Fault.LOSE
    async with system(model, target, round_timeout_s=10) as running:
        call = running.call(ask("hello", max_tokens=400), timeout=0.3)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await rest(call)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await until(lambda: not target.last.sessions and not target.shards[0].sessions)


async def test_error(model: Path, target: Target, start_draft: StartDraft) -> None:
    target.last.faults[2] = Fault.NON_FINITE
    draft = await start_draft(FakeDraft(letters))
    async with system(model, target, draft) as running:
        await running.refusal(ask("hello", k=2, max_tokens=20))
        await until(lambda: held(target, draft) == [0, 0, 0])


async def test_a_shard_that_was_away_hears_of_it_on_its_return(model: Path, target: Target) -> None:
    async with system(model, target, patience_s=0.2) as running:
        call = running.call(ask("hello", max_tokens=400))
        first = await call.read()
        await target.servers[1].stop()  # its process lives on, with its sessions
        with pytest.raises(grpc.aio.AioRpcError):
            await rest(call)
        assert len(target.last.sessions) == 1
        await target.servers[1].start()
        await until(lambda: not target.last.sessions)
        assert target.last.released == [first.request_id]


async def test_many_cancelled_sessions_leave_nothing(model: Path, target: Target) -> None:
    async with system(model, target) as running:
        for _ in range(200):
            call = running.call(ask("hello", max_tokens=400))
            await call.read()
            call.cancel()
        await until(lambda: not target.last.sessions and not target.shards[0].sessions)
        await until(lambda: running.sample("shardflow_active_requests") == 0)
    assert not running.service._shards._pending
    assert not running.service._shards._queries
