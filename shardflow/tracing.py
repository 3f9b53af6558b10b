"""Traces: the spans of this process, and the W3C trace context that joins them to other processes' spans.

Spans go nowhere, and cost next to nothing, until `use` is given a provider; `exporting` does that for a process whose
environment names an OTLP endpoint.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN, Span, SpanKind, StatusCode, Tracer, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import Attributes

from shardflow import __version__
from shardflow.config import otlp_endpoint

_propagator = TraceContextTextMapPropagator()
_tracer: Tracer | None = None


@contextmanager
def exporting(service: str) -> Iterator[None]:
    """Exports the spans of the block as those of `service`, if the environment says where to."""
    endpoint = otlp_endpoint()
    if endpoint is None:
        yield
        return
    from shardflow.otlp import Export  # brings the SDK in, which nobody else needs

    export = Export(service, endpoint)
    use(export.provider)
    try:
        yield
    finally:
        use(None)
        export.close()


def use(provider: TracerProvider | None) -> None:
    """From now on spans are the provider's; None: there are none."""
    global _tracer
    _tracer = provider.get_tracer("shardflow", __version__) if provider is not None else None


@contextmanager
def span(
    name: str,
    kind: SpanKind = SpanKind.INTERNAL,
    *,
    began: float | None = None,
    attributes: Attributes = None,
) -> Iterator[Span]:
    """Makes a span below the current one, current in the block; an error that leaves the block is told in it.

    `began` is its start on the monotonic clock, in seconds; now if not given.
    """
    if _tracer is None:
        yield INVALID_SPAN
        return
    opened = _tracer.start_span(name, kind=kind, start_time=_unix_ns(began), attributes=attributes)
    before = context.get_current()
    context.attach(trace.set_span_in_context(opened))
    try:
        yield opened
    except (asyncio.CancelledError, GeneratorExit):
        opened.add_event("cancelled")
        raise
    except Exception as error:
        _fail(opened, error)
        raise
    finally:
        opened.end()
        context.attach(before)  # a detach by token would fail where a generator is cleaned up in another context


def record(
    name: str,
    parent: str,
    *,
    began: float,
    attributes: Mapping[str, str | int | float],
    error: Exception | None = None,
) -> None:
    """Makes a span of what began at `began`, in seconds on the monotonic clock, and ends now.

    `parent` is the traceparent that came with the work; there is no span if it is none.
    """
    if _tracer is None:
        return
    above = _propagator.extract({"traceparent": parent}, Context())
    if not trace.get_current_span(above).get_span_context().is_valid:
        return
    made = _tracer.start_span(
        name, above, kind=SpanKind.SERVER, start_time=_unix_ns(began), attributes=dict(attributes)
    )
    if error is not None:
        _fail(made, error)
    made.end()


def event(name: str, **attributes: str | int) -> None:
    """Notes in the current span, unless it has ended, that something happened."""
    current = trace.get_current_span()
    if current.is_recording():
        current.add_event(name, {f"shardflow.{key}": value for key, value in attributes.items()})


def traceparent() -> str:
    """What tells another process to continue the current span; empty if there is none or it is not sampled."""
    if not trace.get_current_span().get_span_context().trace_flags.sampled:
        return ""
    carrier: dict[str, str] = {}
    _propagator.inject(carrier)
    return carrier["traceparent"]


def join(headers: Mapping[str, str]) -> None:
    """Makes the caller's span, if the headers of its request (or gRPC metadata) name one, current in this task."""
    if _tracer is not None:
        context.attach(_propagator.extract(headers))


def _fail(failed: Span, error: Exception) -> None:
    failed.set_attribute("error.type", type(error).__name__)
    failed.set_status(StatusCode.ERROR, str(error))


def _unix_ns(moment: float | None) -> int | None:
    """A time on the monotonic clock, in seconds, as nanoseconds since 1970."""
    return None if moment is None else time.time_ns() - int((time.monotonic() - moment) * 1e9)
