"""Faults of shards: the text stays as it is, or the request ends with the right status within its patience."""

import asyncio
import time
from pathlib import Path

import grpc
import pytest

from shardflow.v1 import draft_pb2, verifier_pb2
from tests.fake_shards import Fault
from tests.fakes import FakeDraft, StartDraft, Target
from tests.orchestrating import ask, rest, system, until
from tests.scripts import continuation, letters

HARMLESS = [Fault.LOSE, Fault.DUPLICATE, Fault.DELAY, Fault.REFUSE, Fault.FORGET, Fault.DROP_STREAM]


def often_right(text: list[int]) -> int:
    return letters(text) if len(text) % 3 else 33


@pytest.mark.parametrize("number", [0, 1, 3])
@pytest.mark.parametrize("fault", HARMLESS)
async def test_a_fault_of_the_last_shard(
    model: Path, target: Target, start_draft: StartDraft, fault: Fault, number: int
) -> None:
    target.last.faults[number] = fault
    draft = await start_draft(FakeDraft(often_right, hidden_size=1))
    async with system(model, target, draft) as running:
        answer = await running.generate("hello", k=4, max_tokens=20)
    assert answer.text == continuation(letters, "hello", 20)
    assert answer.usage[1] == 20


@pytest.mark.parametrize("fault", [Fault.REFUSE, Fault.FORGET, Fault.DROP_STREAM])
async def test_a_fault_of_the_first_shard(model: Path, target: Target, fault: Fault) -> None:
    target.shards[0].faults[2] = fault
    async with system(model, target) as running:
        assert (await running.generate("hello", max_tokens=9)).text == continuation(letters, "hello", 9)


async def test_a_fault_after_a_round_whose_rows_must_be_gathered(
    model: Path, target: Target, start_draft: StartDraft
) -> None:
    def wrong_and_right(tree: draft_pb2.Tree) -> None:
        tree.tokens[:] = [33, tree.tokens[0]]
        tree.parents[:] = [-1, -1]
        tree.logprobs[:] = [-0.5, -1.0]

    draft = await start_draft(FakeDraft(letters))
    draft.shape = wrong_and_right
    target.last.faults[2] = Fault.REFUSE
    async with system(model, target, draft) as running:
        answer = await running.generate("hello", k=4, max_tokens=20)
    assert answer.text == continuation(letters, "hello", 20)
    assert list(target.last.slices[2].keep) == [0, 2]
    assert list(target.last.slices[3].keep) == []


async def test_every_slice_fails_once(model: Path, target: Target) -> None:
    target.last.faults = {number: HARMLESS[number % 6] for number in range(0, 40, 2)}
    async with system(model, target, round_timeout_s=0.1) as running:
        assert (await running.generate("hello", max_tokens=9)).text == continuation(letters, "hello", 9)


@pytest.mark.parametrize("index", [0, 1])
async def test_a_shard_restarts_while_text_flows(
    model: Path, target: Target, start_draft: StartDraft, index: int
) -> None:
    async with system(model, target, await start_draft(FakeDraft(often_right))) as running:
        call = running.call(ask("hello", k=4, max_tokens=20))
        text = (await call.read()).text
        await target.restart(index)
        text += (await rest(call)).text
        assert text == continuation(letters, "hello", 20)
        assert running.sample("shardflow_recoveries_total", cause="unavailable")


async def test_long_prompts_are_filled_in_again_in_chunks(model: Path, target: Target) -> None:
    async with system(model, target, prefill_chunk=32) as running:
        call = running.call(ask("x" * 100, max_tokens=5))
        text = (await call.read()).text
        await target.restart(1)
        text += (await rest(call)).text
    assert text == continuation(letters, "x" * 100, 5)


async def test_a_session_goes_on_from_what_all_shards_hold(model: Path, target: Target) -> None:
    target.last.faults[4] = Fault.REFUSE
    async with system(model, target) as running:
        await running.generate("hello", max_tokens=8)
    resumed = target.shards[0].slices[5]
    assert (resumed.epoch, resumed.round, resumed.base, bytes(resumed.tokens)) == (
        2, 0, 7, continuation(letters, "hello", 8)[2:4].encode(),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fault", "status", "message"),
    [
        (Fault.NON_FINITE, grpc.StatusCode.INTERNAL, "shard-1: says INTERNAL"),
        (Fault.EXHAUSTED, grpc.StatusCode.RESOURCE_EXHAUSTED, "shard-1: says RESOURCE_EXHAUSTED"),
        (Fault.GARBLE, grpc.StatusCode.INTERNAL, "list index out of range"),
    ],
)
async def test_a_fault_that_ends_the_request(
    model: Path, target: Target, fault: Fault, status: grpc.StatusCode, message: str
) -> None:
    target.last.faults[1] = fault
    async with system(model, target) as running:
        assert await running.refusal(ask("hello", max_tokens=9)) == (status, message)
        assert (await running.generate("hello", max_tokens=3)).text == continuation(letters, "hello", 3)
    await until(lambda: not target.last.sessions)


@pytest.mark.parametrize("index", [0, 1])
async def test_a_lost_shard_ends_the_request_within_the_patience(model: Path, target: Target, index: int) -> None:
    async with system(model, target, patience_s=0.6) as running:
        call = running.call(ask("hello", max_tokens=400))
        await call.read()
        await target.servers[index].stop()
        began = time.monotonic()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await rest(call)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert f"shard {index} at 127.0.0.1:{target.servers[index].port}" in caught.value.details()
        assert 0.3 < time.monotonic() - began < 1.6


async def test_a_lost_shard_refuses_requests_and_its_return_takes_them(model: Path, target: Target) -> None:
    async with system(model, target, patience_s=0.2) as running:
        await target.servers[1].stop()
        code, message = await running.refusal(ask("hello", max_tokens=3))
        assert code is grpc.StatusCode.UNAVAILABLE
        assert "shard 1 at" in message
        await target.restart(1)
        await until(lambda: running.sample("shardflow_link_up", link="shard 1"))
        assert (await running.generate("hello", max_tokens=3)).text == continuation(letters, "hello", 3)


async def test_a_shard_that_never_answers(model: Path, target: Target) -> None:
    target.shards[1].deaf = True
    async with system(model, target, patience_s=0.5, round_timeout_s=0.2) as running:
        began = time.monotonic()
        code, message = await running.refusal(ask("hello", max_tokens=3))
        assert (code, message) == (grpc.StatusCode.UNAVAILABLE, "shard 1 does not answer")
        assert time.monotonic() - began < 3.5


async def test_a_shard_that_leaves_while_it_is_asked_for_its_state(model: Path, target: Target) -> None:
    target.shards[1].deaf = True
    async with system(model, target, patience_s=0.4, round_timeout_s=0.1) as running:
        asking = asyncio.create_task(running.refusal(ask("hello", max_tokens=3)))
        await until(lambda: running.service._shards._queries)
        began = time.monotonic()
        await target.servers[1].stop()
        code, message = await asking
        assert code is grpc.StatusCode.UNAVAILABLE
        assert "shard 1 at" in message
        assert time.monotonic() - began < 1.5


async def test_a_shard_that_is_still_loading_after_its_restart(model: Path, target: Target) -> None:
    async with system(model, target, patience_s=5) as running:
        call = running.call(ask("hello", max_tokens=9))
        text = (await call.read()).text
        await target.servers[1].stop()
        await until(lambda: not running.sample("shardflow_link_up", link="shard 1"))
        target.shards[1].loading = True
        target.shards[1].sessions.clear()
        await target.servers[1].start()
        await until(lambda: running.sample("shardflow_link_up", link="shard 1"))
        target.shards[1].loading = False
        text += (await rest(call)).text
    assert text == continuation(letters, "hello", 9)


async def test_a_shard_that_comes_back_as_another_model(model: Path, target: Target) -> None:
    async with system(model, target, patience_s=0.3) as running:
        await target.servers[1].stop()
        target.shards[1].description.model_digest = "e"
        await target.servers[1].start()
        await until(lambda: running.service._shards.problem)
        status = await running.refusal(ask("hello", max_tokens=3))
    assert status == (grpc.StatusCode.UNAVAILABLE, "shard 1 has model_digest e where shard 0 has d")


async def test_a_late_verdict_of_an_old_epoch_is_ignored(model: Path, target: Target) -> None:
    target.last.faults[2] = Fault.DELAY
    async with system(model, target, round_timeout_s=0.1) as running:
        answer = await running.generate("hello", max_tokens=6)
    assert answer.text == continuation(letters, "hello", 6)
    assert {piece.epoch for piece in target.last.slices} >= {1, 2}


async def test_an_answer_to_another_round_is_ignored(model: Path, target: Target) -> None:
    shard = target.last
    async with system(model, target, round_timeout_s=5) as running:
        call = running.call(ask("hello", max_tokens=5))
        text = (await call.read()).text
        shard.pause()
        await until(lambda: shard.waiting)
        for epoch, number in ((1, 0), (1, 99), (2, 1), (0, 1)):
            verdict = verifier_pb2.Verdict(session=shard.slices[0].session, epoch=epoch, round=number, next_token=33)
            shard._say(shard.slices[0].origin, verifier_pb2.ConnectResponse(verdict=verdict))
        failure = verifier_pb2.Failure(session=shard.slices[0].session, epoch=0, round=1, code=13)
        shard._say(shard.slices[0].origin, verifier_pb2.ConnectResponse(failure=failure))
        shard.resume()
        text += (await rest(call)).text
    assert text == continuation(letters, "hello", 5)
