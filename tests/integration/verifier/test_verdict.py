"""What a verdict says beside the tokens, and what the shard counts."""

import time
from typing import Any

import pytest
import torch

from shardflow.v1 import sampling_pb2, tensor_pb2, verifier_pb2, verifier_pb2_grpc
from tests.integration.verifier.harness import make_setup

PROMPT = [5, 17, 3, 42, 8]


async def test_log_probabilities_top_ids_and_hidden_states(
    chain: Any, orchestrator: Any, plain: Any, greedy_text: Any
) -> None:
    answer = greedy_text(PROMPT, 3)
    rows = [PROMPT[-1], answer[0], (answer[1] + 1) % 89, answer[1]]
    with torch.inference_mode():
        out = plain(torch.tensor([[*PROMPT, *answer]]), output_hidden_states=True)
    law = torch.log_softmax(out.logits[0, 4:7], dim=-1)  # [3, vocab]
    async with chain(2) as shards:
        o = await orchestrator(shards)
        setup = make_setup(want_logprobs=True, top_logprobs=3, want_hidden=True)
        await o.slice("s", tokens=PROMPT[:-1], want_verdict=False, setup=setup)
        verdict = await o.ask("s", round=1, base=4, tokens=rows, parents=[-1, 0, 1, 1], committed_rows=1)
    assert (verdict.session, verdict.epoch, verdict.round, verdict.base) == ("s", 1, 1, 4)
    assert list(verdict.accepted_rows) == [0, 1, 3]
    assert [choice.token_id for choice in verdict.choices] == answer
    assert verdict.next_token == answer[2]
    for row, choice in enumerate(verdict.choices):
        best = law[row].topk(8)
        assert choice.logprob == pytest.approx(float(law[row, answer[row]]), abs=1e-4)
        assert [each.token_id for each in choice.top] == best.indices[:3].tolist()
        assert [each.logprob for each in choice.top] == pytest.approx(best.values[:3].tolist(), abs=1e-4)
        assert list(choice.top_ids) == best.indices.tolist()
    assert (verdict.hidden.dtype, list(verdict.hidden.shape)) == (tensor_pb2.ELEMENT_TYPE_F32, [3, 32])
    hidden = torch.frombuffer(bytearray(verdict.hidden.data), dtype=torch.float32).view(3, 32)
    assert torch.allclose(hidden, out.hidden_states[-1][0, 4:7], atol=1e-4)


async def test_what_was_not_asked_for_does_not_travel(chain: Any, orchestrator: Any) -> None:
    async with chain(1) as shards:
        o = await orchestrator(shards)
        verdict = await o.ask("s", tokens=PROMPT)
    assert not verdict.HasField("hidden")
    assert not verdict.choices[0].HasField("logprob")
    assert len(verdict.choices[0].top) == 0
    assert len(verdict.choices[0].top_ids) == 8


async def test_timings_of_all_stages_fill_the_round(chain: Any, orchestrator: Any) -> None:
    async with chain(3) as shards:
        o = await orchestrator(shards)
        await o.ask("warm", tokens=PROMPT)
        began = time.perf_counter()
        verdict = await o.ask("s", tokens=PROMPT)
        took_ms = (time.perf_counter() - began) * 1000
    assert [stage.shard for stage in verdict.stages] == ["verifier[0:1]", "verifier[1:4]", "verifier[4:6]"]
    assert [stage.batch_rows for stage in verdict.stages] == [5, 5, 5]
    for stage in verdict.stages:
        assert stage.queue_ms > 0
        assert stage.compute_ms > 0
        assert stage.other_ms > 0
    assert sum(stage.queue_ms + stage.compute_ms + stage.other_ms for stage in verdict.stages) < took_ms


async def test_describe(chain: Any, orchestrator: Any) -> None:
    async with chain(2) as shards:
        o = await orchestrator(shards)
        await o.ask("s", tokens=PROMPT)
        told = [
            await verifier_pb2_grpc.VerifierServiceStub(channel).Describe(verifier_pb2.DescribeRequest())
            for channel in o.channels
        ]
    assert [(each.first_layer, each.last_layer, each.num_layers) for each in told] == [(0, 2, 6), (2, 6, 6)]
    assert len({each.model_digest for each in told}) == 1
    assert [(each.hidden_size, each.vocab_size, each.dtype) for each in told] == [(32, 89, 1)] * 2
    assert [(each.max_session_tokens, each.max_sessions, each.max_slice_rows) for each in told] == [(256, 64, 256)] * 2
    assert [each.sessions for each in told] == [1, 1]
    assert [each.kv_bytes_per_token for each in told] == [2 * 2 * 2 * 8 * 4, 2 * 4 * 2 * 8 * 4]
    assert [each.model for each in told] == ["tiny", "tiny"]
    assert [each.kv_tokens for each in told] == [5, 5]
    assert [each.HasField("next") for each in told] == [True, False]
    assert (told[0].next.dialler, told[0].next.connected) == ("verifier[0:2]", True)
    assert told[0].next.address == shards[1].address
    assert all(abs(each.unix_time_ms - time.time() * 1000) < 60_000 for each in told)


async def test_metrics(chain: Any, orchestrator: Any) -> None:
    async with chain(1) as shards:
        o = await orchestrator(shards)
        first = await o.ask("s", tokens=PROMPT)
        await o.ask("s", round=1, base=5, tokens=[first.next_token])
        await o.slice("s", round=1, base=5, tokens=[first.next_token])
        await o.slice("s", round=9, base=5, tokens=[1])
        await o.failure()
        await o.settle()
        registry = shards[0].registry
        value = registry.get_sample_value
        assert value("shardflow_slices_total", {"result": "applied"}) == 2
        assert value("shardflow_slices_total", {"result": "dropped"}) == 1
        assert value("shardflow_slices_total", {"result": "FAILED_PRECONDITION"}) == 1
        assert value("shardflow_rows_total") == 6
        assert value("shardflow_batch_rows_count") == 2
        assert value("shardflow_sessions") == 1
        assert value("shardflow_kv_tokens") == 6
        assert value("shardflow_kv_bytes") == 6 * 768
        await o.release("s")
        await o.settle()
        assert (value("shardflow_sessions"), value("shardflow_kv_tokens")) == (0, 0)


async def test_seeded_choices_do_not_depend_on_company(chain: Any, orchestrator: Any, generate: Any) -> None:
    sampling = sampling_pb2.SamplingParams(temperature=1.0, seed=5)
    other = sampling_pb2.SamplingParams(temperature=1.0, seed=6)
    async with chain(1) as shards:
        o = await orchestrator(shards)
        alone = await generate(o, "a", PROMPT, 12, sampling=sampling)
        await o.ask("b", tokens=[1], setup=make_setup(sampling=other))
        again = await generate(o, "c", PROMPT, 12, sampling=sampling)
        different = await generate(o, "d", PROMPT, 12, sampling=other)
    assert alone.tokens == again.tokens != different.tokens
