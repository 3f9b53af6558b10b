"""Faults: numbers that are not finite, shards that go away or do not fit, slices that are late."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from shardflow.errors import FailedPrecondition, InvalidArgument
from shardflow.v1 import verifier_pb2, verifier_pb2_grpc
from tests.integration.verifier.harness import listen, serve, until

INTERNAL, UNAVAILABLE = 13, 14
PROMPT = [5, 17, 3, 42, 8]
POISON = 7  # a token whose embedding is not finite


@pytest.fixture
def poisoned(model_dir: Path, tmp_path: Path, plain: Any) -> Path:
    """The tiny model, with one embedding of NaN."""
    state = {name: value.clone() for name, value in plain.state_dict().items()}
    state["model.embed_tokens.weight"][POISON] = float("nan")
    plain.save_pretrained(tmp_path / "poisoned", state_dict=state)
    return tmp_path / "poisoned"


async def test_non_finite_numbers_fail_their_own_session_by_the_shards_name(
    poisoned: Path, orchestrator: Any, generate: Any, greedy_text: Any
) -> None:
    last = await serve(poisoned, (2, 6), None)
    first = await serve(poisoned, (0, 2), last.address)
    try:
        o = await orchestrator([first, last])
        healthy = asyncio.create_task(generate(await orchestrator([first, last], "p"), "good", PROMPT, 20, chunk=2))
        for number in range(10):
            await o.slice(f"bad{number}", tokens=[1, POISON, 2])
            failure = await o.failure()
            assert failure.code == INTERNAL
            assert failure.message == "verifier[0:2]: layers [0, 2) of 6: the output is not finite"
        assert (await healthy).tokens == greedy_text(PROMPT, 20)
        assert (await generate(o, "next", PROMPT, 5)).tokens == greedy_text(PROMPT, 5)
    finally:
        await first.stop()
        await last.stop()


async def test_a_failing_slice_in_a_shared_pass_costs_the_others_nothing(
    poisoned: Path, orchestrator: Any, greedy_text: Any
) -> None:
    shard = await serve(poisoned, (0, 6), None)
    try:
        o = await orchestrator([shard])
        await o.ask("warm", tokens=PROMPT, parents=[-1, 0, 1, 1, 3], committed_rows=2)
        block = asyncio.create_task(_occupy(shard))
        await o.slice("before", tokens=[1])  # waits for the thread; the next three wait for a pass of their own
        await o.slice("warm", round=1, base=4, keep=[0, 1, 3, 4], tokens=[9])
        await o.slice("bad", tokens=[POISON])
        await o.slice("good", tokens=PROMPT)
        await block
        answers = [await o.receive() for _ in range(4)]
        verdicts = {a.verdict.session: a.verdict for a in answers if a.HasField("verdict")}
        assert [a.failure.session for a in answers if a.HasField("failure")] == ["bad"]
        assert verdicts["good"].next_token == greedy_text(PROMPT, 1)[0]
        assert verdicts["good"].stages[0].batch_rows == 7
        assert verdicts["warm"].stages[0].batch_rows == 7
        assert verdicts["warm"].next_token == greedy_text([5, 17, 42, 8, 9], 1)[0]
    finally:
        await shard.stop()


async def _occupy(shard: Any) -> None:
    """Holds the shard's model thread for a moment."""
    await asyncio.get_running_loop().run_in_executor(shard.service._thread, lambda: __import__("time").sleep(0.3))


async def test_after_a_failure_a_new_epoch_goes_on_from_the_committed_text(
    poisoned: Path, orchestrator: Any, greedy_text: Any
) -> None:
    shard = await serve(poisoned, (0, 6), None)
    try:
        o = await orchestrator([shard])
        await o.ask("s", tokens=PROMPT)
        await o.slice("s", round=1, base=5, tokens=[POISON])
        assert (await o.failure()).state == verifier_pb2.SessionState(session="s", epoch=1, round=1, base=5)
        verdict = await o.ask("s", epoch=2, base=5, tokens=[9])
        assert verdict.next_token == greedy_text([*PROMPT, 9], 1)[0]
    finally:
        await shard.stop()


async def test_release_frees_every_shard_at_once_and_a_late_slice_does_not_come_back(
    chain: Any, orchestrator: Any
) -> None:
    async with chain(3) as shards:
        o = await orchestrator(shards)
        await o.ask("s", tokens=PROMPT)
        assert [len(shard.service.shard.table) for shard in shards] == [1, 1, 1]
        await o.release("s", "unknown")
        await o.settle()
        assert [len(shard.service.shard.table) for shard in shards] == [0, 0, 0]
        for late in ({"round": 1, "base": 5}, {"epoch": 2}):
            await o.slice("s", tokens=[1], **late)
        await o.slice("unknown", tokens=[1])
        await o.settle()
        await o.ask("next", tokens=[1])  # and nothing came for those before
        assert [len(shard.service.shard.table) for shard in shards] == [1, 1, 1]


async def test_release_while_the_slice_is_being_run(chain: Any, orchestrator: Any) -> None:
    async with chain(2) as shards:
        o = await orchestrator(shards)
        block = asyncio.create_task(_occupy(shards[0]))
        await o.slice("s", tokens=PROMPT)
        await o.slice("s", round=1, base=5, tokens=[1])
        await o.release("s")
        await o.settle()
        assert [len(shard.service.shard.table) for shard in shards] == [0, 0]
        await block
        await o.ask("next", tokens=[1])
        assert [len(shard.service.shard.table) for shard in shards] == [1, 1]


async def test_repeated_slices_are_answered_once(chain: Any, orchestrator: Any) -> None:
    async with chain(2) as shards:
        o = await orchestrator(shards)
        for _ in range(3):
            await o.slice("s", tokens=PROMPT)
        first = await o.verdict()
        second = await o.ask("s", round=1, base=5, tokens=[first.next_token])
        assert (first.round, second.round) == (0, 1)


async def test_a_newer_epoch_overtakes_what_waits(chain: Any, orchestrator: Any, greedy_text: Any) -> None:
    async with chain(1) as shards:
        o = await orchestrator(shards)
        block = asyncio.create_task(_occupy(shards[0]))
        await o.slice("other", tokens=[1])  # is being run, or waits for the thread
        for number in range(5):
            await o.slice("s", round=number, base=number, tokens=[PROMPT[number]])
        await o.slice("s", epoch=2, tokens=PROMPT)
        await block
        assert (await o.verdict()).session == "other"
        verdict = await o.verdict()
        assert (verdict.epoch, verdict.next_token) == (2, greedy_text(PROMPT, 1)[0])


async def test_a_shard_that_can_not_reach_the_next_says_so_at_once(
    model_dir: Path, orchestrator: Any, generate: Any, greedy_text: Any
) -> None:
    last = await serve(model_dir, (2, 6), None)
    first = await serve(model_dir, (0, 2), last.address)
    port = int(last.address.rpartition(":")[2])
    try:
        o = await orchestrator([first])
        await o.slice("waiting", tokens=PROMPT, want_verdict=False)
        await o.settle()
        await last.stop()
        failure = await o.failure()  # the slice that was on its way, or passed on, may have been lost
        assert (failure.code, failure.session, failure.round) == (UNAVAILABLE, "waiting", 0)
        await o.slice("s", tokens=PROMPT)
        failure = await o.failure()
        assert failure.code == UNAVAILABLE
        assert failure.message.startswith(f"verifier[0:2]: the next shard at {last.address} can not be reached")
        last = await serve(model_dir, (2, 6), None, port)
        await o.dial(last.address)
        await until(lambda: first.service.shard._next._checked.is_set())
        assert (await generate(o, "next", PROMPT, 5)).tokens == greedy_text(PROMPT, 5)
        verdict = await o.ask("s", epoch=2, base=0, tokens=PROMPT)
        assert verdict.next_token == greedy_text(PROMPT, 1)[0]
    finally:
        await first.stop()
        await last.stop()


async def test_shards_may_start_in_any_order(model_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    last = await listen(model_dir, (2, 6), None)
    first = await listen(model_dir, (0, 2), last.address)
    try:
        starting = asyncio.create_task(first.service.start())
        await asyncio.sleep(0.5)
        assert not starting.done()
        await last.service.start()
        await asyncio.wait_for(starting, 20)
    finally:
        await first.stop()
        await last.stop()


@pytest.mark.parametrize(
    ("layers", "settings", "message"),
    [
        ((3, 6), {}, r"the next shard holds layers \[3, 6\), ours end at 2"),
        ((2, 6), {"dtype": "bfloat16"}, "the next shard has dtype"),
    ],
)
async def test_a_next_shard_that_does_not_fit_is_refused(
    model_dir: Path, layers: tuple[int, int], settings: dict[str, Any], message: str
) -> None:
    last = await serve(model_dir, layers, None, **settings)
    first = await listen(model_dir, (0, 2), last.address)
    try:
        with pytest.raises(FailedPrecondition, match=message):
            await asyncio.wait_for(first.service.start(), 20)
    finally:
        await first.stop()
        await last.stop()


async def test_a_next_shard_of_another_model_is_refused(model_dir: Path, poisoned: Path) -> None:
    (poisoned / "config.json").write_text((poisoned / "config.json").read_text() + " ")
    last = await serve(poisoned, (2, 6), None)
    first = await listen(model_dir, (0, 2), last.address)
    try:
        with pytest.raises(FailedPrecondition, match="the next shard has model_digest"):
            await asyncio.wait_for(first.service.start(), 20)
    finally:
        await first.stop()
        await last.stop()


@pytest.mark.parametrize(("layers", "following"), [((0, 6), "127.0.0.1:1"), ((0, 2), None)])
async def test_the_chain_must_end_at_the_last_layer(
    model_dir: Path, layers: tuple[int, int], following: str | None
) -> None:
    shard = await listen(model_dir, layers, following)
    try:
        with pytest.raises(InvalidArgument, match=r"^next: "):
            await shard.service.start()
    finally:
        await shard.stop()


async def test_before_the_weights_are_there_nothing_is_served(model_dir: Path, orchestrator: Any) -> None:
    shard = await listen(model_dir, (0, 6), None)
    try:
        o = await orchestrator([])
        call = await o.raw(shard.address)
        assert await asyncio.wait_for(call.code(), 10) is grpc.StatusCode.UNAVAILABLE
        with pytest.raises(grpc.aio.AioRpcError, match="the weights are being loaded"):
            await verifier_pb2_grpc.VerifierServiceStub(o.channels[0]).Describe(verifier_pb2.DescribeRequest())
    finally:
        await shard.stop()


async def test_a_peer_that_does_not_read_loses_its_stream(
    chain: Any, orchestrator: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with chain(1) as shards:
        o = await orchestrator(shards)
        stream = shards[0].service.shard.peers._streams["o"]
        for _ in range(1025):
            stream.send(verifier_pb2.ConnectResponse())
        assert await asyncio.wait_for(o.streams[0].call.code(), 10) is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_sessions_of_a_lost_orchestrator_are_freed(chain: Any, orchestrator: Any) -> None:
    async with chain(1, origin_grace_seconds=0.0) as shards:
        o, p = await orchestrator(shards), await orchestrator(shards, "p")
        await o.ask("s", tokens=[1])
        await p.ask("s", tokens=[1])
        await o.close()
        await until(lambda: len(shards[0].service.shard.table) == 1)
        assert shards[0].service.shard.table.get(("p", "s")) is not None


async def test_the_state_of_a_session_is_told(chain: Any, orchestrator: Any) -> None:
    async with chain(1) as shards:
        o = await orchestrator(shards)
        first = await o.ask("s", tokens=PROMPT)
        await o.ask("s", round=1, base=5, tokens=[first.next_token])
        await o.streams[0].send(query=verifier_pb2.Query(session="s"))
        assert (await o.receive()).session_state == verifier_pb2.SessionState(session="s", epoch=1, round=1, base=5)
        await o.streams[0].send(query=verifier_pb2.Query(session="t"))
        assert (await o.receive()).session_state == verifier_pb2.SessionState(session="t")


async def test_logits_that_are_not_finite_are_an_error(
    model_dir: Path, tmp_path: Path, plain: Any, orchestrator: Any
) -> None:
    state = {name: value.clone() for name, value in plain.state_dict().items()}
    state["lm_head.weight"][11] = float("nan")
    plain.save_pretrained(tmp_path / "head", state_dict=state)
    shard = await serve(tmp_path / "head", (0, 6), None)
    try:
        o = await orchestrator([shard])
        await o.slice("s", tokens=PROMPT)
        assert (await o.failure()).message == "verifier[0:6]: the logits hold NaN or infinity"
    finally:
        await shard.stop()
