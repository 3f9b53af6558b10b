"""Sends spans to an OTLP collector over gRPC, in batches from a thread of its own; alone knows the SDK."""

import logging
import threading
import uuid
from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from shardflow import __version__

logger = logging.getLogger(__name__)

FLUSH_S = 2.0
# That of the exporter complains of every attempt, that of the batches of spans that find the queue full.
_COMPLAINING = ("opentelemetry.exporter.otlp.proto.grpc.exporter", "opentelemetry.sdk._shared_internal")


class Export:
    """The way of a process's spans to a collector. Whoever makes spans never waits for it: it rather loses them."""

    def __init__(self, service: str, endpoint: str) -> None:
        """`service` names the process unless the environment does; `endpoint` is a URL, http or https."""
        # As everywhere else, proxy variables play no part.
        channel_options = (("grpc.enable_http_proxy", 0),)
        exporter = OTLPSpanExporter(endpoint=endpoint, channel_options=channel_options)  # type: ignore[arg-type]
        self._exporter = TellingOnce(exporter)
        self.provider = TracerProvider(resource=_resource(service), shutdown_on_exit=False)
        self.provider.add_span_processor(BatchSpanProcessor(self._exporter))
        logger.info("traces are exported", extra={"endpoint": endpoint})

    def close(self) -> None:
        """Sends what is left; a collector that does not take it holds this up for 2 s, 4 s at most."""
        ending = threading.Thread(target=self.provider.shutdown, daemon=True)
        ending.start()
        ending.join(FLUSH_S)
        if ending.is_alive():
            logger.warning("the last traces are lost: the collector did not take them within %g s", FLUSH_S)
            self._exporter.shutdown()  # ends the call that the thread waits for
            ending.join(FLUSH_S)


class TellingOnce(SpanExporter):
    """An exporter whose complaints are logged once, until it works again."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._told = False
        for name in _COMPLAINING:
            logging.getLogger(name).addFilter(self._is_first)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """See SpanExporter."""
        result = self._exporter.export(spans)
        if self._told and result is SpanExportResult.SUCCESS:
            self._told = False
            logger.info("traces are exported again")
        return result

    def shutdown(self) -> None:
        """See SpanExporter."""
        self._exporter.shutdown()

    def _is_first(self, record: logging.LogRecord) -> bool:
        told, self._told = self._told, True
        return not told


def _resource(service: str) -> Resource:
    ours = {
        "service.name": f"shardflow-{service}",
        "service.version": __version__,
        "service.instance.id": str(uuid.uuid4()),
    }
    return Resource.create({**ours, **OTELResourceDetector().detect().attributes})
