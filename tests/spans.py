"""Spans as tests see them: kept in memory, or taken by an OTLP collector on a port; as a tree of names."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import DEFAULT_ON

from shardflow import tracing
from tests.fakes import Server

TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = "b7ad6b7169203331"
SAMPLED, UNSAMPLED = f"00-{TRACE}-{CALLER}-01", f"00-{TRACE}-{CALLER}-00"


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Takes what exporters send, with the resource that each span came from."""

    def __init__(self) -> None:
        self.server = Server(lambda server: trace_service_pb2_grpc.add_TraceServiceServicer_to_server(self, server))
        self.resources: list[dict[str, str]] = []
        self.spans: list[trace_pb2.Span] = []

    @property
    def endpoint(self) -> str:
        return f"http://{self.server.peer}"

    async def Export(self, request: Any, context: Any) -> Any:
        for batch in request.resource_spans:
            attributes = {each.key: each.value.string_value for each in batch.resource.attributes}
            for scope in batch.scope_spans:
                self.spans += scope.spans
                self.resources += [attributes] * len(scope.spans)
        return trace_service_pb2.ExportTraceServiceResponse()


@asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    """A collector that runs."""
    collector = Collector()
    await collector.server.start()
    yield collector
    await collector.server.stop()


@contextmanager
def in_memory() -> Iterator[InMemorySpanExporter]:
    """Keeps the spans of the block."""
    kept = InMemorySpanExporter()
    provider = TracerProvider(sampler=DEFAULT_ON, shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(kept))
    tracing.use(provider)
    try:
        yield kept
    finally:
        tracing.use(None)


def tree(spans: Sequence[ReadableSpan]) -> list[str]:
    """A line for each span, in the order of their starts, indented below its parent."""
    lines: list[str] = []

    def add(parent: int | None, depth: int) -> None:
        below = [span for span in spans if (span.parent.span_id if span.parent else None) == parent]
        for span in sorted(below, key=lambda span: span.start_time or 0):
            lines.append("  " * depth + span.name)
            add(span.context.span_id, depth + 1)

    known = {span.context.span_id for span in spans}
    for root in {span.parent.span_id if span.parent else None for span in spans} - known:
        add(root, 0)
    return lines
