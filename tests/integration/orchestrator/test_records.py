"""What a request leaves in its round records, in the status and in the metrics."""

import asyncio
import time
from pathlib import Path

import pytest

from services.orchestrator.shards import Clock
from shardflow.v1 import link_pb2
from tests.fake_shards import COMPUTE_MS, OTHER_MS, QUEUE_MS
from tests.fakes import FakeDraft, StartDraft, Target
from tests.orchestrating import system, until
from tests.scripts import letters


def often_right(text: list[int]) -> int:
    return letters(text) if len(text) % 3 else 33


async def test_round_records(model: Path, target: Target, start_draft: StartDraft) -> None:
    async with system(model, target, await start_draft(FakeDraft(often_right))) as running:
        answer = await running.generate("hello", k=2, max_tokens=6, round_records=True)
    rounds = answer.rounds
    assert [record.prefill for record in rounds] == [True, False, False, False]
    assert [record.drafted_tokens for record in rounds] == [0, 2, 2, 0]
    assert [record.accepted_tokens for record in rounds] == [0, 0, 2, 0]
    assert [list(record.draft_parents) for record in rounds] == [[], [-1, 0], [-1, 0], []]
    assert rounds[1].draft_tokens[0] == 33
    stages = [(s.shard, s.queue_ms, s.compute_ms, s.other_ms, s.batch_rows) for s in rounds[1].stages]
    assert stages == [(f"shard-{index}", QUEUE_MS, COMPUTE_MS, OTHER_MS, 3) for index in range(2)]


async def test_the_parts_of_a_round_add_up(model: Path, target: Target, start_draft: StartDraft) -> None:
    async with system(model, target, await start_draft(FakeDraft(often_right))) as running:
        answer = await running.generate("hello", k=2, max_tokens=30, round_records=True)
    for record in answer.rounds:
        stages = sum(stage.queue_ms + stage.compute_ms + stage.other_ms for stage in record.stages)
        parts = record.draft_ms + record.network_ms + record.orchestrator_ms + stages
        assert parts == pytest.approx(record.round_ms, abs=1e-6)
        assert min(record.draft_ms, record.network_ms, record.orchestrator_ms) >= 0
    assert [record.draft_ms > 0.05 for record in answer.rounds[:3]] == [False, True, True]


async def test_the_first_round_begins_with_the_arrival_of_the_request(model: Path, target: Target) -> None:
    async with system(model, target, patience_s=5) as running:
        await target.servers[1].stop()
        asking = asyncio.create_task(running.generate("hello", max_tokens=2, round_records=True))
        await asyncio.sleep(0.2)  # the time that the record is to show
        await target.servers[1].start()
        first, second = (await asking).rounds
    assert first.round_ms > 200
    assert first.orchestrator_ms == pytest.approx(first.round_ms, rel=0.2)
    assert second.round_ms < 100


async def test_no_records_unless_asked_for(model: Path, target: Target) -> None:
    async with system(model, target) as running:
        assert (await running.generate("hello", max_tokens=3)).rounds == []


async def test_the_last_message_alone_carries_the_end(model: Path, target: Target) -> None:
    async with system(model, target) as running:
        answer = await running.generate("hello", k=0, max_tokens=3)
    assert [bool(message.finish_reason) for message in answer.messages] == [False, False, True]
    assert [message.HasField("usage") for message in answer.messages] == [False, False, True]
    assert len({message.request_id for message in answer.messages}) == 1
    assert answer.usage == (5, 3, 3, 0, 0)


async def test_status(model: Path, target: Target, start_draft: StartDraft) -> None:
    draft = await start_draft(FakeDraft(often_right))
    async with system(model, target, draft) as running:
        await running.generate("hello", k=2, max_tokens=6)
        status = await running.status()
    assert (status.model, status.num_layers, status.max_session_tokens) == ("bytes", 2, 512)
    assert (status.active_requests, status.default_speculation, status.version) == (0, "auto", "0.1.0")
    assert [(shard.address, shard.connected, shard.relay) for shard in status.shards] == [
        (peer.address, True, "") for peer in target.peers
    ]
    assert [(s.describe.first_layer, s.describe.last_layer) for s in status.shards] == [(0, 1), (1, 2)]
    assert all(0 < shard.rtt_ms < 100 for shard in status.shards)
    assert (status.draft.model, status.draft.connected, status.draft.acceptance) == ("guess", True, 0.5)
    assert (status.output_tokens, status.drafted_tokens, status.accepted_tokens) == (6, 4, 2)
    assert (status.problem, status.draft.problem, status.draft.describe.vocab_size) == ("", "", 257)


async def test_status_asks_the_shards_anew(model: Path, target: Target) -> None:
    async with system(model, target) as running:
        target.last.description.sessions, target.last.description.kv_tokens = 3, 40
        target.last.description.unix_time_ms = (time.time() + 3600) * 1000
        shard = (await running.status()).shards[1]
    assert (shard.describe.sessions, shard.describe.kv_tokens) == (3, 40)
    assert shard.clock_offset_ms == pytest.approx(3_600_000, abs=1000)
    assert 0 < shard.clock_error_ms < 1000


async def test_status_lists_the_links_of_orchestrator_and_shards(
    model: Path, target: Target, start_draft: StartDraft
) -> None:
    target.shards[0].description.next.MergeFrom(link_pb2.LinkStatus(address="v1:1", relay="r:9", rtt_ms=86))
    async with system(model, target, await start_draft(FakeDraft(often_right))) as running:
        status = await running.status()
    links = status.links
    assert status.problem == "shard 0 can not reach shard 1"
    assert [(link.dialler, link.peer, link.relay, link.connected) for link in links] == [
        ("orchestrator", "shard 0", "", True),
        ("orchestrator", "shard 1", "", True),
        ("orchestrator", "draft", "", True),
        ("shard 0", "shard 1", "r:9", False),
    ]


async def test_status_names_a_lost_shard(model: Path, target: Target) -> None:
    async with system(model, target) as running:
        await target.servers[1].stop()
        await until(lambda: not running.service.status().shards[1].connected)
        status = await running.status()
    assert status.problem.startswith(f"shard 1 at {target.peers[1]} can not be reached: ")
    assert status.shards[1].describe.last_layer == 2


def test_a_clock_is_wrong_by_half_a_round_trip_at_most() -> None:
    assert Clock.compare(1000.0, 1250.0, 1100.0) == Clock(offset_ms=200.0, error_ms=50.0)


async def test_metrics(model: Path, target: Target, start_draft: StartDraft) -> None:
    async with system(model, target, await start_draft(FakeDraft(often_right))) as running:
        await running.generate("hello", k=2, max_tokens=6)
        sample = running.sample
        sources = {
            source: sample("shardflow_output_tokens_total", source=source)
            for source in ("target", "accepted", "corrected", "bonus")
        }
        assert sources == {"target": 2, "accepted": 2, "corrected": 1, "bonus": 1}
        assert sample("shardflow_rounds_total", phase="prefill") == 1
        assert sample("shardflow_rounds_total", phase="decode") == 3
        assert [sample("shardflow_draft_tokens_total", depth=depth, source="draft") for depth in "12"] == [2, 2]
        assert [sample("shardflow_accepted_tokens_total", depth=depth, source="draft") for depth in "12"] == [1, 1]
        assert sample("shardflow_tokens_per_round_sum") == 5
        assert sample("shardflow_prompt_tokens_total") == 5
        assert sample("shardflow_requests_total", outcome="length") == 1
        assert sample("shardflow_time_to_first_token_seconds_count") == 1
        assert sample("shardflow_inter_token_seconds_count") == 5
        assert sample("shardflow_request_duration_seconds_count") == 1
        assert sample("shardflow_round_seconds_count") == 3
        assert sample("shardflow_round_part_seconds_sum", part="compute", shard="shard-1") == pytest.approx(6e-5)
        assert [sample("shardflow_link_up", link=link) for link in ("shard 0", "shard 1", "draft")] == [1, 1, 1]
        assert 0 < (sample("shardflow_link_rtt_seconds", link="shard 1") or 0) < 0.1
        assert sample("shardflow_build_info", version="0.1.0") == 1


async def test_the_parts_of_all_rounds_make_their_length(model: Path, target: Target, start_draft: StartDraft) -> None:
    async with system(model, target, await start_draft(FakeDraft(often_right))) as running:
        await running.generate("hello", k=2, max_tokens=30)
        whole = running.sample("shardflow_round_seconds_sum")
        parts = sum(
            sample.value
            for metric in running.registry.collect()
            for sample in metric.samples
            if sample.name == "shardflow_round_part_seconds_sum"
        )
    assert parts == pytest.approx(whole)
