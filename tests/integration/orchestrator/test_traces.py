"""The spans that the orchestrator makes of a request, and what it sends of them to shards and draft."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from shardflow import otlp, tracing
from shardflow.v1 import sampling_pb2
from tests.fake_shards import Fault
from tests.fakes import FakeDraft, StartDraft, Target
from tests.orchestrating import System, ask, system, until
from tests.scripts import continuation, letters
from tests.spans import CALLER, SAMPLED, TRACE, UNSAMPLED, in_memory, tree


@pytest.fixture
def kept() -> Iterator[InMemorySpanExporter]:
    with in_memory() as kept:
        yield kept


def often_right(text: list[int]) -> int:
    return letters(text) if len(text) % 3 else 33


def named(kept: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in kept.get_finished_spans() if span.name == name]


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


async def traced(running: System, kept: InMemorySpanExporter, *, header: str = "", **fields: Any) -> None:
    """Asks for the continuation of "hello" and waits for the span of the whole request."""
    metadata = (("traceparent", header),) if header else ()
    async for _ in running.stub.Generate(ask("hello", **fields), timeout=10, metadata=metadata):
        pass
    await until(lambda: named(kept, "request"))


async def test_a_request(model: Path, target: Target, start_draft: StartDraft, kept: InMemorySpanExporter) -> None:
    draft = await start_draft(FakeDraft(often_right))
    async with system(model, target, draft) as running:
        sampling = sampling_pb2.SamplingParams(temperature=0.5, top_k=4)
        await traced(running, kept, k=2, max_tokens=6, sampling=sampling)
    assert tree(kept.get_finished_spans()) == [
        "request", "  round", "  round", "    draft", "  round", "    draft", "  round",
    ]  # fmt: skip
    (request,) = named(kept, "request")
    assert {key: value for key, value in attributes(request).items() if key != "gen_ai.response.id"} == {
        "gen_ai.operation.name": "text_completion",
        "gen_ai.provider.name": "shardflow",
        "gen_ai.request.model": "bytes",
        "gen_ai.request.max_tokens": 6,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_k": 4,
        "gen_ai.response.finish_reasons": ("length",),
        "gen_ai.usage.input_tokens": 5,
        "gen_ai.usage.output_tokens": 6,
        "shardflow.rounds": 4,
        "shardflow.drafted_tokens": 4,
        "shardflow.accepted_tokens": 2,
    }
    rounds = [attributes(span) for span in named(kept, "round")]
    parts = [{key: each.pop(f"shardflow.{key}_ms") for key in ("draft", "network", "orchestration")} for each in rounds]
    assert all(value >= 0 for each in parts for value in each.values())
    keys = ("round", "prefill", "tokens", "drafted_tokens", "accepted_tokens")
    assert rounds == [
        {f"shardflow.{key}": value for key, value in zip(keys, values, strict=True)}
        for values in [(1, True, 1, 0, 0), (2, False, 1, 2, 0), (3, False, 3, 2, 2), (4, False, 1, 0, 0)]
    ]


async def test_shards_and_draft_are_told_what_to_continue(
    model: Path, target: Target, start_draft: StartDraft, kept: InMemorySpanExporter
) -> None:
    draft = await start_draft(FakeDraft(often_right))
    async with system(model, target, draft) as running:
        await traced(running, kept, header=SAMPLED, k=2, max_tokens=6)
    (request,) = named(kept, "request")
    assert request.parent is not None and f"{request.parent.span_id:016x}" == CALLER
    rounds, drafts = (
        [f"00-{TRACE}-{span.context.span_id:016x}-01" for span in named(kept, name)] for name in ("round", "draft")
    )
    assert [piece.traceparent for piece in target.last.slices] == rounds
    assert [extend.traceparent for extend in draft.extends] == drafts


async def test_a_request_that_is_not_sampled_adds_no_byte(
    model: Path, target: Target, start_draft: StartDraft, kept: InMemorySpanExporter
) -> None:
    draft = await start_draft(FakeDraft(often_right))
    async with system(model, target, draft) as running:
        call = running.stub.Generate(ask("hello", k=2, max_tokens=6), metadata=(("traceparent", UNSAMPLED),))
        assert len([message async for message in call]) == 4
    assert {piece.traceparent for piece in target.last.slices} == {""}
    assert {extend.traceparent for extend in draft.extends} == {""}
    assert kept.get_finished_spans() == ()


async def test_faults_are_events_of_the_round(
    model: Path, target: Target, start_draft: StartDraft, kept: InMemorySpanExporter
) -> None:
    draft = await start_draft(FakeDraft(often_right))
    draft.failing = True
    target.last.faults = {1: Fault.REFUSE}
    async with system(model, target, draft) as running:
        await traced(running, kept, k=2, max_tokens=3)
    assert [[(event.name, dict(event.attributes or {})) for event in span.events] for span in named(kept, "round")] == [
        [],
        [
            (
                "fault",
                {"shardflow.cause": "failedprecondition", "shardflow.reason": "shard-1: says FAILED_PRECONDITION"},
            ),
            ("recovered", {"shardflow.epoch": 2, "shardflow.base": 0}),
        ],
        [],
    ]
    assert [(span.status.is_ok, attributes(span)) for span in named(kept, "draft")] == [
        (False, {"shardflow.background": False, "error.type": "InternalError"})
    ]


async def test_a_request_that_fails(model: Path, target: Target, kept: InMemorySpanExporter) -> None:
    target.last.faults = {0: Fault.NON_FINITE}
    async with system(model, target) as running:
        await running.refusal(ask("hello", max_tokens=3))
        await until(lambda: named(kept, "request"))
    assert tree(kept.get_finished_spans()) == ["request", "  round"]
    for span in kept.get_finished_spans():
        assert (span.status.is_ok, span.status.description) == (False, "shard-1: says INTERNAL")


async def test_a_request_that_its_client_leaves(model: Path, target: Target, kept: InMemorySpanExporter) -> None:
    async with system(model, target) as running:
        call = running.call(ask("hello", max_tokens=400))
        await call.read()
        call.cancel()
        await until(lambda: named(kept, "request"))
    (request,) = named(kept, "request")
    assert (request.status.is_ok, [event.name for event in request.events]) == (True, ["cancelled"])


async def test_over_http(model: Path, target: Target, kept: InMemorySpanExporter) -> None:
    async with system(model, target, http_listen="127.0.0.1:0") as running:
        assert running.service.http is not None
        async with httpx.AsyncClient(base_url=f"http://{running.service.http.address}") as client:
            body = {"model": "bytes", "prompt": "hello", "max_tokens": 2, "n": 2}
            await client.post("/v1/completions", json=body, headers={"traceparent": SAMPLED})
        await until(lambda: len(named(kept, "request")) == 2)
    assert tree(kept.get_finished_spans()) == ["request", "  round", "  round"] * 2
    assert {f"{span.context.trace_id:032x}" for span in kept.get_finished_spans()} == {TRACE}
    assert {f"{span.parent.span_id:016x}" for span in named(kept, "request") if span.parent} == {CALLER}


async def test_a_collector_that_is_not_there_costs_no_request(
    model: Path, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "FLUSH_S", 0.1)
    export = otlp.Export("orchestrator", "http://127.0.0.1:9")  # discard: nobody listens
    tracing.use(export.provider)
    try:
        async with system(model, target) as running:
            answers = [await running.generate("hello", max_tokens=20) for _ in range(3)]
    finally:
        tracing.use(None)
        await asyncio.to_thread(export.close)
    assert [answer.text for answer in answers] == [continuation(letters, "hello", 20)] * 3
