"""Runs one service: gRPC server with health and reflection, /metrics, signals, and a drain with a deadline."""

import asyncio
import logging
import signal
import time
from collections.abc import Sequence
from typing import Any, Protocol

import grpc.aio
import prometheus_client
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from shardflow import __version__, logs, tracing
from shardflow.config import ServiceSettings, split_address
from shardflow.errors import FailedPrecondition, ShardflowError
from shardflow.refusals import Decoding
from shardflow.transport import SERVER_OPTIONS

logger = logging.getLogger(__name__)

LIVENESS = "liveness"
"""The name under which health says that the process's loop runs: serving until it ends, whatever its peers do."""

_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class Service(Protocol):
    """What a process must provide to be run by `main`."""

    @property
    def name(self) -> str:
        """Name of the service in logs."""

    @property
    def service_names(self) -> Sequence[str]:
        """Full names of the proto services it serves."""

    def register(self, server: grpc.aio.Server) -> None:
        """Adds the servicers; called before the server starts."""

    async def start(self) -> None:
        """Loads models and dials peers; when it returns the service is ready. If it raises, the process ends with 1."""

    async def drain(self) -> None:
        """Refuses new work and returns when the running work has ended; cancelled at the drain deadline."""

    async def close(self) -> None:
        """Lets go of everything."""


def main(settings: ServiceSettings, service: Service) -> None:
    """Runs `service` until SIGTERM or SIGINT, drains it, and returns; a failed start ends the process with code 1."""
    logs.setup(service.name, settings.log_level)
    with tracing.exporting(service.name):
        ended_well = asyncio.run(_run(settings, service))
    if not ended_well:
        raise SystemExit(1)


def create_server() -> grpc.aio.Server:
    """A gRPC server that no service has been added to."""
    return grpc.aio.server(options=SERVER_OPTIONS, interceptors=[Decoding()])


async def _run(settings: ServiceSettings, service: Service) -> bool:
    stopped = _stop_event()
    server, servicer = create_server(), health.aio.HealthServicer()
    starting = asyncio.create_task(_start(settings, service, server, servicer))
    stopping = asyncio.create_task(stopped.wait())
    try:
        await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
        if starting.done() and (error := starting.exception()) is not None:
            _log_failure(error)
            return False
        if starting.done():
            await stopped.wait()
            await _drain(settings, service, servicer)
        return True
    finally:
        for task in (starting, stopping):
            task.cancel()
        await asyncio.gather(starting, stopping, return_exceptions=True)
        await server.stop(grace=0.5)  # first: what it cancels still has something to tell its peers
        await service.close()


def _stop_event() -> asyncio.Event:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    return stopped


def _log_failure(error: BaseException) -> None:
    """What the operator can mend is told in a line; only for a bug the way to it counts."""
    expected = isinstance(error, ShardflowError | OSError)
    logger.error("start failed: %s", error, exc_info=None if expected else error)


async def _start(settings: ServiceSettings, service: Service, server: grpc.aio.Server, servicer: Any) -> None:
    await _listen(settings, service, server, servicer)
    listening = time.monotonic()
    await service.start()
    logger.info("ready", extra={"start_s": round(time.monotonic() - listening, 2)})
    await _set_health(servicer, service, _SERVING)


async def _listen(settings: ServiceSettings, service: Service, server: grpc.aio.Server, servicer: Any) -> None:
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    service.register(server)
    reflection.enable_server_reflection([*service.service_names, health.SERVICE_NAME, reflection.SERVICE_NAME], server)
    await _set_health(servicer, service, _NOT_SERVING)
    await servicer.set(LIVENESS, _SERVING)
    host, _ = split_address(settings.listen)
    try:
        port = server.add_insecure_port(settings.listen)
    except RuntimeError as error:  # which does not tell why
        raise FailedPrecondition(
            f"listen: {settings.listen} can not be bound: in use, or no address of ours"
        ) from error
    await server.start()
    logger.info("listening", extra={"address": f"{host}:{port}", "version": __version__})
    if settings.metrics_listen is not None:
        _serve_metrics(settings.metrics_listen)


def _serve_metrics(address: str) -> None:
    host, port = split_address(address)
    try:
        http, _ = prometheus_client.start_http_server(port, host)
    except OSError as error:
        raise FailedPrecondition(f"metrics_listen: {address} can not be bound: {error.strerror}") from error
    logger.info("metrics listening", extra={"address": f"{host}:{http.server_port}"})


async def _set_health(servicer: Any, service: Service, status: int) -> None:
    for name in ("", *service.service_names):
        await servicer.set(name, status)


async def _drain(settings: ServiceSettings, service: Service, servicer: Any) -> None:
    logger.info("draining", extra={"drain_s": settings.drain_seconds})
    await _set_health(servicer, service, _NOT_SERVING)
    try:
        async with asyncio.timeout(settings.drain_seconds):
            await service.drain()
        logger.info("drained")
    except TimeoutError:
        logger.warning("drain deadline passed: ending what still runs")
