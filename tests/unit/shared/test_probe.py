"""The health check of the containers, as they run it."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc.aio
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

STATUS = health_pb2.HealthCheckResponse


@asynccontextmanager
async def server(status: "STATUS.ServingStatus") -> AsyncIterator[str]:
    """Address of a gRPC server that says `status` of itself."""
    serving = grpc.aio.server()
    servicer = health.aio.HealthServicer()
    await servicer.set("", status)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, serving)
    port = serving.add_insecure_port("127.0.0.1:0")
    await serving.start()
    yield f"127.0.0.1:{port}"
    await serving.stop(None)


async def probe(*arguments: str) -> tuple[int | None, str]:
    """Exit status and standard error of the command."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "shardflow.probe", *arguments, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(20):
        _, errors = await process.communicate()
    return process.returncode, errors.decode()


async def test_a_server_that_serves_is_0() -> None:
    async with server(STATUS.SERVING) as address:
        assert await probe(address) == (0, "")


async def test_a_server_that_does_not_serve_yet_is_1() -> None:
    async with server(STATUS.NOT_SERVING) as address:
        assert await probe(address) == (1, f"{address}: NOT_SERVING\n")


async def test_a_proxy_of_the_environment_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    async with server(STATUS.SERVING) as address:
        assert await probe(address) == (0, "")


async def test_nobody_there_is_1() -> None:
    status, errors = await probe("127.0.0.1:1")
    assert status == 1
    assert errors.startswith("127.0.0.1:1: UNAVAILABLE: ")


async def test_a_wrong_command_line_is_64() -> None:
    assert await probe() == (64, "usage: python -m shardflow.probe HOST:PORT\n")
