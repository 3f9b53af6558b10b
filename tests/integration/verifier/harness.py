"""Shards in this process, over real gRPC, and an orchestrator that speaks their protocol by hand."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc.aio
from prometheus_client import CollectorRegistry

from services.verifier.config import VerifierSettings
from services.verifier.server import VerifierService
from shardflow.metrics import VerifierMetrics
from shardflow.transport import SERVER_OPTIONS, open_channel
from shardflow.v1 import link_pb2, verifier_pb2, verifier_pb2_grpc


@dataclass
class Running:
    """A service that serves on `address`."""

    service: VerifierService
    server: grpc.aio.Server
    address: str
    registry: CollectorRegistry

    async def stop(self) -> None:
        await self.server.stop(None)
        await self.service.close()


async def serve(model: Path, layers: tuple[int, int], following: str | None, port: int = 0, **settings: Any) -> Running:
    """Starts one shard and returns when it is ready."""
    running = await listen(model, layers, following, port, **settings)
    await running.service.start()
    return running


async def listen(
    model: Path, layers: tuple[int, int], following: str | None, port: int = 0, **settings: Any
) -> Running:
    """Starts the server of one shard that has not loaded anything yet."""
    loaded = VerifierSettings(
        model=model, layers="{}:{}".format(*layers), next=following, threads=1, max_session_tokens=256, **settings
    )
    registry = CollectorRegistry()
    service = VerifierService(loaded, VerifierMetrics(registry))
    server = grpc.aio.server(options=SERVER_OPTIONS)
    service.register(server)
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    return Running(service, server, f"127.0.0.1:{port}", registry)


@dataclass
class Stream:
    """One stream of an orchestrator to a shard."""

    call: Any
    inbox: asyncio.Queue[verifier_pb2.ConnectResponse]
    reader: asyncio.Task[None]
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def send(self, **message: Any) -> None:
        async with self.lock:  # gRPC takes one write at a time
            await self.call.write(verifier_pb2.ConnectRequest(**message))


@dataclass
class Orchestrator:
    """Streams to all shards; what they answer arrives in one inbox."""

    name: str
    inbox: asyncio.Queue[verifier_pb2.ConnectResponse] = field(default_factory=asyncio.Queue)
    asked: dict[str, asyncio.Future[verifier_pb2.ConnectResponse]] = field(default_factory=dict)
    streams: list[Stream] = field(default_factory=list)
    channels: list[grpc.aio.Channel] = field(default_factory=list)

    async def dial(self, address: str) -> Stream:
        channel = open_channel(address, relay=None)
        call = verifier_pb2_grpc.VerifierServiceStub(channel).Connect()
        stream = Stream(call, self.inbox, asyncio.create_task(self._read(call)))
        await stream.send(hello=link_pb2.Hello(peer=self.name))
        await stream.send(ping=link_pb2.Ping(sequence=1))
        assert (await self.receive()).pong.sequence == 1
        self.streams.append(stream)
        self.channels.append(channel)
        return stream

    async def raw(self, address: str) -> Any:
        """A stream on which nothing has been said."""
        self.channels.append(open_channel(address, relay=None))
        return verifier_pb2_grpc.VerifierServiceStub(self.channels[-1]).Connect()

    async def _read(self, call: Any) -> None:
        while (message := await call.read()) is not grpc.aio.EOF:
            answer = getattr(message, message.WhichOneof("message"))
            asked = self.asked.pop(getattr(answer, "session", ""), None)
            if asked is None:
                self.inbox.put_nowait(message)
            else:
                asked.set_result(message)

    async def receive(self) -> verifier_pb2.ConnectResponse:
        return await asyncio.wait_for(self.inbox.get(), 10)

    async def verdict(self) -> verifier_pb2.Verdict:
        message = await self.receive()
        assert message.WhichOneof("message") == "verdict", message
        return message.verdict

    async def failure(self) -> verifier_pb2.Failure:
        message = await self.receive()
        assert message.WhichOneof("message") == "failure", message
        return message.failure

    async def slice(self, session: str, **fields: Any) -> None:
        """Sends a slice to the first shard; what is not given takes the values of a one-row round 0."""
        await self.streams[0].send(slice=make_slice(session, self.name, **fields))

    async def ask(self, session: str, **fields: Any) -> verifier_pb2.Verdict:
        """Sends a slice and returns its verdict; any number of sessions may ask at the same time."""
        self.asked[session] = asyncio.get_running_loop().create_future()
        answer = self.asked[session]
        await self.slice(session, **fields)
        message = await asyncio.wait_for(answer, 10)
        assert message.WhichOneof("message") == "verdict", message
        return message.verdict

    async def release(self, *sessions: str) -> None:
        for stream in self.streams:
            await stream.send(release=verifier_pb2.Release(sessions=sessions))

    async def settle(self) -> None:
        """Returns when every shard has read all that was sent to it."""
        for stream in self.streams:
            await stream.send(ping=link_pb2.Ping(sequence=99))
            assert (await self.receive()).pong.sequence == 99

    async def close(self) -> None:
        for stream in self.streams:
            stream.call.cancel()
            stream.reader.cancel()
        await asyncio.gather(*(stream.reader for stream in self.streams), return_exceptions=True)
        for channel in self.channels:
            await channel.close()


def make_slice(session: str, origin: str, *, round: int = 0, setup: Any = None, **fields: Any) -> verifier_pb2.Slice:
    """A slice with sensible defaults: committed rows are all rows, a verdict is wanted, round 0 has a setup."""
    fields.setdefault("committed_rows", len(fields.get("tokens", ())))
    fields.setdefault("epoch", 1)
    fields.setdefault("want_verdict", True)
    if setup is None and round == 0:
        setup = make_setup()
    return verifier_pb2.Slice(session=session, origin=origin, round=round, setup=setup, **fields)


def make_setup(**fields: Any) -> verifier_pb2.SessionSetup:
    """A setup with sensible defaults."""
    return verifier_pb2.SessionSetup(**{"max_tokens": 128, "prompt_tokens": 1, **fields})


Draft = Callable[[list[int]], tuple[list[int], list[int]]]  # committed text -> tokens and parents among the guesses


@dataclass
class Generated:
    """What `generate` brought."""

    tokens: list[int]
    rounds: int
    verdicts: list[verifier_pb2.Verdict]


async def until(holds: Callable[[], bool], seconds: float = 15.0) -> None:
    """Returns once `holds()`; TimeoutError after `seconds`."""
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
