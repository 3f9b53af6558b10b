"""A long-lived stream to one peer: it says hello, keeps the path warm with heartbeats, and comes back after a fault."""

import asyncio
import logging
import random
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

import grpc.aio

from shardflow.errors import Unavailable
from shardflow.meter import Meter
from shardflow.transport import check_relay, open_channel
from shardflow.v1 import link_pb2

logger = logging.getLogger(__name__)

HEARTBEAT_S = 0.2  # a sender that is idle for longer than its retransmission timeout (>= 0.2 s) starts slowly again
DEAD_AFTER_S = 3.0
_WARM_UP_BYTES = tuple(1 << power for power in range(16, 21))
_WARM_UP_SLOW_S = 0.5
_FLUSH_S = 0.5
_DESCRIBE_TIMEOUT_S = 5.0
_DESCRIBE_RETRY_S = 0.5

Request = TypeVar("Request")
Response = TypeVar("Response")


class Link(Generic[Request, Response]):
    """Keeps one bidirectional stream to a peer open for as long as the link is started.

    `wrap(hello=..)` and `wrap(ping=..)` build the stream's request messages; responses with a `pong` are the link's
    own, all others go to `on_message`. `on_up` and `on_down` run on the event loop when the stream comes up or is lost.
    """

    def __init__(
        self,
        name: str,
        address: str,
        relay: str | None,
        *,
        peer: str,
        open_stream: Callable[[grpc.aio.Channel], Any],
        wrap: Callable[..., Request],
        on_message: Callable[[Response], None],
        on_up: Callable[[], None] = lambda: None,
        on_down: Callable[[str], None] = lambda reason: None,
    ) -> None:
        self.name = name
        self.address = address
        self.relay = relay
        self.last_error = "not tried yet"
        self._peer = peer
        self._open_stream = open_stream
        self._wrap = wrap
        self._on_message = on_message
        self._on_up = on_up
        self._on_down = on_down
        self._outbox: asyncio.Queue[Request] | None = None
        self._pong = asyncio.Event()
        self._up = asyncio.Event()
        self._meter = Meter()  # of the present stream
        self._task: asyncio.Task[None] | None = None
        self.channel: grpc.aio.Channel | None = None

    def start(self) -> None:
        """Begins to connect; returns at once. InvalidArgument if gRPC would not dial through the relay from here."""
        if self.relay is not None:
            check_relay(self.address, self.relay)
        self._task = asyncio.create_task(self._run(), name=f"link {self.name}")

    async def close(self) -> None:
        """Returns when the peer has read what is queued, or after 0.5 s, and the stream has ended for good."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH_S):
                await self._flush()
        self.last_error = "closed"
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    @property
    def connected(self) -> bool:
        """Whether the peer has answered on the present stream."""
        return self._up.is_set()

    def is_up_on(self, channel: grpc.aio.Channel) -> bool:
        """Whether the link is up, and still on the stream that `channel` carries."""
        return self.connected and self.channel is channel

    @property
    def rtt_ms(self) -> float:
        """Least round trip of the last heartbeats, in milliseconds; 0 before the first."""
        return self._meter.rtt_ms

    def status(self, dialler: str, peer: str) -> link_pb2.LinkStatus:
        """How it stands, under the names that the deployment has for its ends."""
        return link_pb2.LinkStatus(
            dialler=dialler, peer=peer, address=self.address, relay=self.relay or "", connected=self.connected,
            rtt_ms=self._meter.rtt_ms, bytes_per_second=self._meter.bytes_per_second,
        )  # fmt: skip

    async def wait_connected(self, timeout_s: float) -> None:
        """Returns when the link is up; Unavailable with the last error if that takes longer than `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._up.wait()
        except TimeoutError:
            raise self.unavailable() from None

    def send(self, message: Request) -> None:
        """Queues a message; Unavailable while the link is down. Messages keep their order."""
        if self._outbox is None or not self.connected:
            raise self.unavailable()
        self._outbox.put_nowait(message)

    def unavailable(self) -> Unavailable:
        """The error that says why this peer can not be used, and where it is dialled."""
        if self.connected:
            return Unavailable(f"{self.name} at {self.address} is still loading")
        way = f" through the relay {self.relay}" if self.relay else ""
        return Unavailable(f"{self.name} at {self.address}{way} can not be reached: {self.last_error}")

    async def _run(self) -> None:
        delay_s = 0.1
        while True:
            was_up = await self._connect_once()
            delay_s = 0.1 if was_up else min(delay_s * 2, 0.5)
            await asyncio.sleep(delay_s * random.uniform(0.5, 1.0))

    async def _connect_once(self) -> bool:
        """Runs one stream to its end; says whether it ever came up."""
        self.channel = open_channel(self.address, relay=self.relay)
        self._outbox = asyncio.Queue()
        self._meter = Meter()
        self._outbox.put_nowait(self._wrap(hello=link_pb2.Hello(peer=self._peer)))
        call = self._open_stream(self.channel)
        senders = [asyncio.create_task(self._write(call, self._outbox)), asyncio.create_task(self._beat(self._outbox))]
        try:
            await self._read(call)
            self.last_error = "the peer ended the stream"
        except grpc.aio.AioRpcError as error:
            self.last_error = f"{error.code().name}: {error.details()}"
        except TimeoutError:
            failed = [sender.exception() for sender in senders if sender.done() and not sender.cancelled()]
            self.last_error = f"no answer for {DEAD_AFTER_S:g} s" + "".join(f" ({error})" for error in failed)
        except Exception as error:  # one message that can not be taken must not end the link for good
            logger.exception("a message of the peer failed", extra={"link": self.name})
            self.last_error = f"{type(error).__name__}: {error}"
        finally:
            for sender in senders:
                sender.cancel()
            call.cancel()
            was_up = self._take_down()
            await asyncio.gather(*senders, return_exceptions=True)
            await self.channel.close()
        return was_up

    def _take_down(self) -> bool:
        was_up = self.connected
        self._up.clear()
        self._outbox = None
        if was_up:
            logger.warning("link lost", extra={"link": self.name, "address": self.address, "reason": self.last_error})
            self._on_down(self.last_error)
        return was_up

    async def _read(self, call: Any) -> None:
        while True:
            async with asyncio.timeout(DEAD_AFTER_S):
                message = await call.read()
            if message is grpc.aio.EOF:
                await self._raise_status(call)
                return
            if message.HasField("pong"):
                self._take_pong(message.pong)
            else:
                self._on_message(message)

    async def _raise_status(self, call: Any) -> None:
        code = await call.code()
        if code is not grpc.StatusCode.OK:
            raise grpc.aio.AioRpcError(
                code, await call.initial_metadata(), await call.trailing_metadata(), details=await call.details()
            )

    def _take_pong(self, pong: link_pb2.Pong) -> None:
        self._meter.pong(pong.sequence, time.monotonic())
        self._pong.set()
        if not self.connected:
            self._up.set()
            logger.info("link up", extra={"link": self.name, "address": self.address, "relay": self.relay})
            self._on_up()

    async def _write(self, call: Any, outbox: asyncio.Queue[Request]) -> None:
        while True:
            message = await outbox.get()
            if message.HasField("ping"):  # type: ignore[attr-defined]
                ping = message.ping  # type: ignore[attr-defined]
                self._meter.ping(ping.sequence, len(ping.padding), time.monotonic())
            await call.write(message)

    async def _beat(self, outbox: asyncio.Queue[Request]) -> None:
        self._ping(outbox)
        await asyncio.sleep(HEARTBEAT_S)
        await self._warm_up(outbox)
        while True:
            self._ping(outbox)
            await asyncio.sleep(HEARTBEAT_S)

    async def _warm_up(self, outbox: asyncio.Queue[Request]) -> None:
        """Grows the congestion window both ways by padded pings, one after the other; stops if the path is slow."""
        for padding in _WARM_UP_BYTES:
            padded = self._ping(outbox, padding)
            began = time.monotonic()
            await asyncio.sleep(HEARTBEAT_S)
            while self._meter.answered < padded:
                if time.monotonic() - began > _WARM_UP_SLOW_S:
                    return
                self._ping(outbox)
                await asyncio.sleep(HEARTBEAT_S)

    def _ping(self, outbox: asyncio.Queue[Request], padding: int = 0) -> int:
        ping = link_pb2.Ping(sequence=self._meter.next(), padding=bytes(padding))
        outbox.put_nowait(self._wrap(ping=ping))
        return ping.sequence

    async def _flush(self) -> None:
        """Returns when the peer has read all that is queued now: it answers pings in their order."""
        if self._outbox is None or not self.connected:
            return
        last = self._ping(self._outbox)
        while self._meter.answered < last:
            self._pong.clear()
            await self._pong.wait()


async def describe(link: Link[Any, Any], method: Callable[[grpc.aio.Channel], Any], request: Any) -> Any | None:
    """What the peer of a link says of itself, asked until it is ready to say; None once this stream is lost."""
    channel = link.channel
    assert channel is not None  # the link has been up
    while link.is_up_on(channel):
        try:
            answer = await method(channel)(request, timeout=_DESCRIBE_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            logger.info("peer is not ready", extra={"link": link.name, "reason": error.details()})
            await asyncio.sleep(_DESCRIBE_RETRY_S)
        else:
            return answer if link.is_up_on(channel) else None
    return None
