"""Health under the name `liveness` says that the process runs, while readiness comes and goes."""

import signal

import grpc.aio
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from shardflow import serving
from shardflow.config import ServiceSettings
from shardflow.transport import open_channel
from tests import processes
from tests.idle_service import IdleService

SERVING, NOT_SERVING = "SERVING", "NOT_SERVING"


async def statuses(address: str) -> tuple[str, str]:
    """Of `liveness` and of the whole server."""
    async with open_channel(address, relay=None) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        answers = [
            await stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=5, wait_for_ready=True)
            for name in ("liveness", "")
        ]
    live, ready = (health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status) for answer in answers)
    return live, ready


async def test_alive_before_it_is_ready(caplog: pytest.LogCaptureFixture) -> None:
    server = grpc.aio.server()
    settings = ServiceSettings(listen="127.0.0.1:0")
    with caplog.at_level("INFO", "shardflow.serving"):
        await serving._listen(settings, IdleService("well"), server, health.aio.HealthServicer())
    try:
        (listening,) = (vars(record) for record in caplog.records if record.getMessage() == "listening")
        assert await statuses(listening["address"]) == (SERVING, NOT_SERVING)
    finally:
        await server.stop(None)


async def test_alive_when_ready_and_while_draining() -> None:
    flags = ("hangs", "--listen", "127.0.0.1:0", "--drain-seconds", "15")
    async with processes.running("tests.idle_service", *flags) as process:
        address = (await process.line("listening"))["address"]
        await process.line("ready")
        assert await statuses(address) == (SERVING, SERVING)
        process.process.send_signal(signal.SIGTERM)
        await process.line("drain")
        assert await statuses(address) == (SERVING, NOT_SERVING)
