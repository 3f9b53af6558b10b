"""Channels go directly or through the relay, as they are told, and never around it."""

import asyncio
import socket
from collections.abc import AsyncIterator

import grpc.aio
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from shardflow.errors import InvalidArgument
from shardflow.transport import open_channel
from tests.fakes import Server

NAME = "verifier-1.shardflow.internal:50051"


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "grpc_proxy", "no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server(
        lambda grpc_server: health_pb2_grpc.add_HealthServicer_to_server(health.aio.HealthServicer(), grpc_server)
    )
    await server.start()
    yield server
    await server.stop()


class Proxy:
    """A relay that leads every name to one port."""

    def __init__(self, port: int, delay_s: float = 0) -> None:
        self.asked: list[str] = []
        self.address = ""
        self._port = port
        self._delay_s = delay_s
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = "127.0.0.1:{1}".format(*self._server.sockets[0].getsockname())

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.asked.append(head.split()[1].decode())
        await asyncio.sleep(self._delay_s)  # of TCP and CONNECT
        upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        self._tasks += [
            asyncio.create_task(copy(reader, upstream_writer, self._delay_s / 2)),
            asyncio.create_task(copy(upstream_reader, writer, self._delay_s / 2)),
        ]  # fmt: skip


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    try:
        while data := await reader.read(65536):
            await asyncio.sleep(delay_s)
            writer.write(data)
    finally:
        writer.close()


async def check(channel: grpc.aio.Channel) -> int:
    async with channel:
        response = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=3)
    return int(response.status)


async def test_direct(server: Server) -> None:
    assert await check(open_channel(server.peer.address, relay=None)) == health_pb2.HealthCheckResponse.SERVING


async def test_direct_ignores_the_environments_proxy(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for name in ("http_proxy", "https_proxy", "grpc_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{taken.getsockname()[1]}")
        assert await check(open_channel(server.peer.address, relay=None)) == health_pb2.HealthCheckResponse.SERVING


async def test_through_the_relay(server: Server) -> None:
    proxy = Proxy(server.port)
    await proxy.start()
    assert await check(open_channel(NAME, relay=proxy.address)) == health_pb2.HealthCheckResponse.SERVING
    assert proxy.asked == [NAME]
    await proxy.stop()


async def test_a_relay_that_is_far_away(server: Server) -> None:
    proxy = Proxy(server.port, delay_s=0.3)
    await proxy.start()
    assert await check(open_channel(NAME, relay=proxy.address)) == health_pb2.HealthCheckResponse.SERVING
    await proxy.stop()


async def test_a_relay_that_is_gone(server: Server) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        relay = f"127.0.0.1:{closed.getsockname()[1]}"
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await check(open_channel(NAME, relay=relay))
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("relay", ["https://127.0.0.1:1", "http://127.0.0.1:1", "127.0.0.1", ""])
def test_a_relay_that_is_no_address(relay: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        open_channel(NAME, relay=relay)
    assert str(caught.value) == (
        f"relay: {relay!r} is not host:port (a relay is dialled as host:port, without a scheme)"
    )


@pytest.mark.parametrize(
    "excluded", ["shardflow.internal", ".shardflow.internal", "verifier-1.shardflow.internal", "x, internal"]
)
@pytest.mark.parametrize("variable", ["no_proxy", "no_grpc_proxy"])
def test_a_name_that_the_environment_keeps_from_proxies(
    monkeypatch: pytest.MonkeyPatch, variable: str, excluded: str
) -> None:
    monkeypatch.setenv(variable, excluded)
    with pytest.raises(InvalidArgument, match=r"gRPC would bypass the relay 127\.0\.0\.1:1"):
        open_channel(NAME, relay="127.0.0.1:1")


async def test_exclusions_of_other_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "localhost,127.0.0.1,.example.com")
    async with open_channel(NAME, relay="127.0.0.1:1"):
        pass
