"""The streams that peers have opened to this shard, by peer name."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from shardflow.errors import ResourceExhausted
from shardflow.v1 import verifier_pb2

logger = logging.getLogger(__name__)

OUTBOX_MESSAGES = 1024
OUTBOX_BYTES = 64 << 20


class Stream:
    """What is to be written to one peer, bounded: a peer that does not read loses its stream, not our memory."""

    def __init__(self) -> None:
        self._outbox: asyncio.Queue[verifier_pb2.ConnectResponse | None] = asyncio.Queue(OUTBOX_MESSAGES)
        self._bytes = 0
        self._ended = False
        self._overflow = asyncio.Event()

    def send(self, message: verifier_pb2.ConnectResponse) -> None:
        """Queues a message; messages keep their order."""
        size = message.ByteSize()
        if self._outbox.full() or self._bytes + size > OUTBOX_BYTES:
            self._overflow.set()
            return
        self._bytes += size
        self._outbox.put_nowait(message)

    async def write_to(self, write: Callable[[verifier_pb2.ConnectResponse], Awaitable[None]]) -> None:
        """Writes what is queued until `end`."""
        while not self._ended:
            message = await self._outbox.get()
            if message is not None:
                await write(message)
                self._bytes -= message.ByteSize()

    def end(self) -> None:
        """Writes no more than what is being written now."""
        self._ended = True
        if self._outbox.empty():
            self._outbox.put_nowait(None)

    async def watch(self) -> None:
        """Raises ResourceExhausted when the peer has left too much unread."""
        await self._overflow.wait()
        raise ResourceExhausted(f"{OUTBOX_MESSAGES} messages were left unread, or {OUTBOX_BYTES} bytes")


class Peers:
    """Where to answer whom. A peer that opens a second stream is answered on the newer one."""

    def __init__(self) -> None:
        self._streams: dict[str, Stream] = {}

    def join(self, name: str, stream: Stream) -> None:
        """The peer said hello on this stream."""
        self._streams[name] = stream

    def leave(self, name: str, stream: Stream) -> bool:
        """The stream ended; returns whether it was the one on which the peer is answered."""
        if self._streams.get(name) is not stream:
            return False
        del self._streams[name]
        return True

    def has(self, name: str) -> bool:
        """Whether the peer has a stream."""
        return name in self._streams

    def send(self, name: str, message: verifier_pb2.ConnectResponse) -> None:
        """Answers a peer; if its stream is gone the answer is lost, and the peer knows that by its own end."""
        stream = self._streams.get(name)
        if stream is None:
            logger.warning("an answer has no stream", extra={"peer": name, "kind": message.WhichOneof("message")})
            return
        stream.send(message)
