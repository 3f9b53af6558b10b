"""Spans of one process: their tree, what errors leave in them, and what comes from and goes to other processes."""

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from shardflow import tracing
from shardflow.errors import Unavailable
from tests.spans import CALLER, SAMPLED, TRACE, UNSAMPLED, in_memory, tree


@pytest.fixture
def kept() -> Iterator[InMemorySpanExporter]:
    with in_memory() as kept:
        yield kept


def test_a_tree(kept: InMemorySpanExporter) -> None:
    with tracing.span("a"):
        with tracing.span("b"):
            tracing.event("seen", number=3)
        with tracing.span("c", SpanKind.CLIENT, attributes={"x": 1}):
            pass
    spans = kept.get_finished_spans()
    assert tree(spans) == ["a", "  b", "  c"]
    b, c, _ = spans
    assert [(event.name, dict(event.attributes or {})) for event in b.events] == [("seen", {"shardflow.number": 3})]
    assert (c.kind, dict(c.attributes or {})) == (SpanKind.CLIENT, {"x": 1})


def test_a_span_that_began_before(kept: InMemorySpanExporter) -> None:
    with tracing.span("a", began=time.monotonic() - 60):
        pass
    (span,) = kept.get_finished_spans()
    assert span.start_time is not None and span.end_time is not None
    assert 60e9 <= span.end_time - span.start_time < 70e9


def test_an_error(kept: InMemorySpanExporter) -> None:
    with pytest.raises(Unavailable), tracing.span("a"):
        raise Unavailable("shard 1 is gone")
    (span,) = kept.get_finished_spans()
    assert (span.status.is_ok, span.status.description) == (False, "shard 1 is gone")
    assert dict(span.attributes or {}) == {"error.type": "Unavailable"}


def test_what_is_cancelled_is_no_error(kept: InMemorySpanExporter) -> None:
    with pytest.raises(asyncio.CancelledError), tracing.span("a"):
        raise asyncio.CancelledError
    (span,) = kept.get_finished_spans()
    assert (span.status.is_ok, [event.name for event in span.events]) == (True, ["cancelled"])


async def test_a_generator_that_another_task_closes(kept: InMemorySpanExporter) -> None:
    async def answers() -> AsyncGenerator[int, None]:
        with tracing.span("a"):
            yield 1

    running = answers()
    assert await anext(running) == 1
    await asyncio.create_task(running.aclose())
    assert tree(kept.get_finished_spans()) == ["a"]


async def test_a_caller_is_joined(kept: InMemorySpanExporter) -> None:
    async def serve() -> str:
        tracing.join({"traceparent": SAMPLED})
        with tracing.span("a"):
            return tracing.traceparent()

    sent = await asyncio.create_task(serve())
    (span,) = kept.get_finished_spans()
    assert span.parent is not None
    assert (f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, CALLER)
    assert sent == f"00-{TRACE}-{span.context.span_id:016x}-01"


async def test_a_caller_that_is_not_sampled(kept: InMemorySpanExporter) -> None:
    async def serve() -> str:
        tracing.join({"traceparent": UNSAMPLED})
        with tracing.span("a"):
            return tracing.traceparent()

    assert await asyncio.create_task(serve()) == ""
    assert kept.get_finished_spans() == ()


def test_work_for_another_process(kept: InMemorySpanExporter) -> None:
    with tracing.span("our own affair"):
        tracing.record("stage", SAMPLED, began=time.monotonic() - 60, attributes={"rows": 3}, error=Unavailable("gone"))
    span, _ = kept.get_finished_spans()
    assert span.parent is not None and span.start_time is not None and span.end_time is not None
    assert (f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, CALLER)
    assert 60e9 <= span.end_time - span.start_time < 70e9
    assert dict(span.attributes or {}) == {"rows": 3, "error.type": "Unavailable"}


@pytest.mark.parametrize("parent", ["", UNSAMPLED, "00-zz", SAMPLED[:-1], "x" * 10_000])
def test_work_that_nobody_traces(kept: InMemorySpanExporter, parent: str) -> None:
    tracing.record("stage", parent, began=time.monotonic(), attributes={})
    assert kept.get_finished_spans() == ()


async def test_without_a_provider_nothing_is_made_and_nothing_is_sent() -> None:
    async def serve() -> str:
        tracing.join({"traceparent": SAMPLED})
        with tracing.span("a") as span:
            span.set_attribute("x", 1)
            tracing.event("seen")
            tracing.record("b", SAMPLED, began=0.0, attributes={})
            assert trace.get_current_span() is trace.INVALID_SPAN
            return tracing.traceparent()

    assert await asyncio.create_task(serve()) == ""
