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

from shardflow import __version__, logs
from shardflow.config import ServiceSettings, split_address
from shardflow.transport import SERVER_OPTIONS

logger = logging.getLogger(__name__)

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
    if not asyncio.run(_run(settings, service)):
        raise SystemExit(1)


async def _run(settings: ServiceSettings, service: Service) -> bool:
    stopped = _stop_event()
    server, servicer = await _listen(settings, service)
    started = time.monotonic()
    starting = asyncio.create_task(service.start())
    stopping = asyncio.create_task(stopped.wait())
    try:
        await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
        if starting.done() and starting.exception() is not None:
            logger.error("start failed: %s", starting.exception(), exc_info=starting.exception())
            return False
        if starting.done():
            logger.info("ready", extra={"start_s": round(time.monotonic() - started, 2)})
            await _set_health(servicer, service, _SERVING)
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


async def _listen(settings: ServiceSettings, service: Service) -> tuple[grpc.aio.Server, Any]:
    server = grpc.aio.server(options=SERVER_OPTIONS)
    servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    service.register(server)
    reflection.enable_server_reflection([*service.service_names, health.SERVICE_NAME, reflection.SERVICE_NAME], server)
    await _set_health(servicer, service, _NOT_SERVING)
    host, _ = split_address(settings.listen)
    port = server.add_insecure_port(settings.listen)
    await server.start()
    logger.info("listening", extra={"address": f"{host}:{port}", "version": __version__})
    if settings.metrics_listen is not None:
        _serve_metrics(settings.metrics_listen)
    return server, servicer


def _serve_metrics(address: str) -> None:
    host, port = split_address(address)
    http, _ = prometheus_client.start_http_server(port, host)
    logger.info("metrics listening", extra={"address": f"{host}:{http.server_port}"})


async def _set_health(servicer: Any, service: Service, status: int) -> None:
    for name in ("", *service.service_names):
        await servicer.set(name, status)


async def _drain(settings: ServiceSettings, service: Service, servicer: Any) -> None:
    logger.info("draining", extra={"drain_s": settings.drain_seconds})
    await servicer.enter_graceful_shutdown()
    try:
        async with asyncio.timeout(settings.drain_seconds):
            await service.drain()
        logger.info("drained")
    except TimeoutError:
        logger.warning("drain deadline passed: ending what still runs")
