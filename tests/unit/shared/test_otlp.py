"""The way of spans to a collector: one that takes them, one that is not there, one that never answers."""

import asyncio
import logging
import signal
import socket
import threading
from collections.abc import AsyncIterator, Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from shardflow import otlp
from shardflow.otlp import Export, TellingOnce
from tests import processes
from tests.spans import Collector, collecting

COMPLAINING = "opentelemetry.exporter.otlp.proto.grpc.exporter"
SUCCESS, FAILURE = SpanExportResult.SUCCESS, SpanExportResult.FAILURE


@pytest.fixture(autouse=True)
def fresh_loggers(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has made no exporter yet."""
    for name in (COMPLAINING, "opentelemetry.sdk._shared_internal"):
        monkeypatch.setattr(logging.getLogger(name), "filters", [])


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    async with collecting() as collector:
        yield collector


async def export_one(endpoint: str) -> None:
    """The life of a process that makes one span."""
    export = Export("idle", endpoint)
    export.provider.get_tracer("test").start_span("a").end()
    await asyncio.to_thread(export.close)


async def test_what_is_left_at_the_end_arrives(collector: Collector) -> None:
    await export_one(collector.endpoint)
    assert [span.name for span in collector.spans] == ["a"]
    (resource,) = collector.resources
    assert (resource["service.name"], resource["service.version"]) == ("shardflow-idle", "0.1.0")
    assert len(resource["service.instance.id"]) == 36


async def test_the_environment_names_the_process(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.instance.id=7,region=a")
    await export_one(collector.endpoint)
    (resource,) = collector.resources
    assert (resource["service.name"], resource["service.instance.id"], resource["region"]) == ("mine", "7", "a")


async def test_a_sampler_of_the_environment(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    await export_one(collector.endpoint)
    assert collector.spans == []


@pytest.mark.parametrize("answers", ["nobody there", "never"])
async def test_a_collector_that_takes_nothing_does_not_hold_up_the_end(
    answers: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(otlp, "FLUSH_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        if answers == "nobody there":
            listener.close()
        await export_one(f"http://{host}:{port}")
    assert "OtelBatchSpanRecordProcessor" not in [thread.name for thread in threading.enumerate()]
    logged = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(logged) == 2
    assert "the last traces are lost: the collector did not take them within 0.2 s" in logged


class Faltering(SpanExporter):
    """Answers as told, and complains each time that it fails."""

    def __init__(self, *results: SpanExportResult) -> None:
        self._results = iter(enumerate(results))

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        number, result = next(self._results)
        if result is FAILURE:
            logging.getLogger(COMPLAINING).error("batch %d was not taken", number)
        return result


def test_complaints_are_logged_once_until_it_works_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    exporter = TellingOnce(Faltering(SUCCESS, FAILURE, FAILURE, FAILURE, SUCCESS, SUCCESS, FAILURE))
    assert [exporter.export([]) for _ in range(7)] == [SUCCESS, FAILURE, FAILURE, FAILURE, SUCCESS, SUCCESS, FAILURE]
    logged = [record.getMessage() for record in caplog.records]
    assert logged == ["batch 1 was not taken", "traces are exported again", "batch 6 was not taken"]


async def test_a_process_exports_what_it_did(collector: Collector) -> None:
    arguments = ("tests.idle_service", "well", "--listen", "127.0.0.1:0")
    async with processes.running(*arguments, OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint) as process:
        await process.line("ready")
        process.process.send_signal(signal.SIGTERM)
        assert await process.end() == 0
    assert [span.name for span in collector.spans] == ["idling"]
    assert [line["event"] for line in process.lines][:2] == ["traces are exported", "listening"]
