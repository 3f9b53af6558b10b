"""Many sessions: packed without touching each other, and gone without a trace."""

import asyncio
import gc
import threading
from typing import Any

import psutil
import pytest

from services.verifier import pipeline
from shardflow.v1 import link_pb2

PROMPT = [5, 17, 3, 42, 8]


async def test_sessions_of_two_orchestrators_in_one_pass_accept_different_lengths(
    chain: Any, orchestrator: Any, generate: Any, greedy_text: Any
) -> None:
    """Drafts that are right 0, 1, 3 and 6 times a round, and one prompt in chunks, all at once."""
    prompts = [[number, *PROMPT] for number in range(1, 7)]
    expected = [greedy_text(prompt, 20) for prompt in prompts]

    def draft(number: int) -> Any:
        right = [0, 1, 3, 6, 2, 4][number]

        def guess(text: list[int]) -> tuple[list[int], list[int]]:
            guesses = expected[number][len(text) - 6 :][:right]
            guesses += [(expected[number][-1] + 1) % 89] * (6 - len(guesses))
            return guesses, list(range(-1, 5))

        return guess

    async with chain(2) as shards:
        two = [await orchestrator(shards, "o"), await orchestrator(shards, "p")]
        generated = await asyncio.gather(
            *(
                generate(two[number % 2], f"s{number // 2}", prompts[number], 20, draft=draft(number), chunk=2)
                for number in range(6)
            )
        )
    assert [each.tokens for each in generated] == expected
    assert [each.rounds for each in generated] == [20, 10, 5, 3, 7, 4]
    assert max(stage.batch_rows for each in generated for v in each.verdicts for stage in v.stages) > 7


async def test_a_full_queue_refuses_and_still_answers_heartbeats(
    chain: Any, orchestrator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "QUEUED_SLICES", 8)
    async with chain(1) as shards:
        o = await orchestrator(shards)
        go_on = threading.Event()
        block = asyncio.get_running_loop().run_in_executor(shards[0].service._thread, go_on.wait, 10)
        for number in range(12):
            await o.slice(f"s{number}", tokens=[number])
        refused = [await o.failure() for _ in range(3)]
        assert [failure.session for failure in refused] == ["s9", "s10", "s11"]  # s0 is in the pass that is held up
        assert {failure.code for failure in refused} == {8}
        assert "8 slices wait already" in refused[0].message
        await o.streams[0].send(ping=link_pb2.Ping(sequence=7))
        assert (await o.receive()).pong.sequence == 7
        go_on.set()
        await block
        assert {(await o.verdict()).session for _ in range(9)} == {f"s{number}" for number in range(9)}


async def test_a_pass_that_fails_for_an_unknown_reason_costs_its_session_only(
    chain: Any, orchestrator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with chain(1) as shards:
        o = await orchestrator(shards)
        await o.ask("good", tokens=PROMPT)
        model = shards[0].service.shard._model
        forward = model.forward

        def broken(segments: Any) -> Any:
            if any(13 in segment.tokens for segment in segments):
                raise RuntimeError("out of luck")
            return forward(segments)

        monkeypatch.setattr(model, "forward", broken)
        await o.slice("bad", tokens=[13])
        failure = await o.failure()
        assert (failure.code, failure.message) == (13, "verifier[0:6]: RuntimeError: out of luck")
        assert failure.state.epoch == 0
        assert shards[0].service.shard.table.get(("o", "bad")) is None
        await o.ask("good", round=1, base=5, tokens=[1])
        await o.ask("bad", epoch=2, tokens=[14])


@pytest.mark.slow
async def test_a_thousand_sessions_leave_nothing_behind(chain: Any, orchestrator: Any) -> None:
    async with chain(2) as shards:
        o = await orchestrator(shards)
        resident = []
        for number in range(1000):
            await o.ask(f"s{number}", tokens=PROMPT)
            await o.release(f"s{number}")
            if number in (199, 999):
                await o.settle()
                gc.collect()
                resident.append(psutil.Process().memory_info().rss)
        assert [len(shard.service.shard.table) for shard in shards] == [0, 0]
        assert resident[1] - resident[0] < 4 << 20
