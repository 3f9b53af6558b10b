"""One orchestrator's stream: pings are echoed at once, requests are queued in order, answers leave as they come."""

import asyncio
from collections.abc import AsyncIterator

from services.draft.worker import Worker
from shardflow.errors import InvalidArgument
from shardflow.streams import check_name, pong
from shardflow.v1 import draft_pb2

UNANSWERED = 1024  # messages of one stream that wait for an answer; beyond it the peer is no longer read


class Stream:
    """Belongs to the event loop; `answers` is to be read to its end."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._outbox: asyncio.Queue[draft_pb2.ProposeResponse | None] = asyncio.Queue()
        self._room = asyncio.Semaphore(UNANSWERED)
        self._running: set[asyncio.Future[draft_pb2.ProposeResponse]] = set()

    async def answers(
        self, requests: AsyncIterator[draft_pb2.ProposeRequest]
    ) -> AsyncIterator[draft_pb2.ProposeResponse]:
        """Every answer to `requests`; when they end, their sessions are forgotten.

        Raises InvalidArgument for a message that can not be understood.
        """
        reader = asyncio.create_task(self._read(requests))
        reader.add_done_callback(lambda _: self._outbox.put_nowait(None))
        try:
            while (answer := await self._outbox.get()) is not None:
                yield answer
                self._room.release()
            await reader
        finally:
            reader.cancel()
            self._worker.leave(self)

    async def _read(self, requests: AsyncIterator[draft_pb2.ProposeRequest]) -> None:
        """Returns when the stream has ended and every answer is in the outbox."""
        greeted = False
        async for request in requests:
            action = request.WhichOneof("action")
            if not greeted and action != "hello":
                raise InvalidArgument("the first message of a stream must be a hello")
            greeted = True
            check_name("session", request.session)
            await self._take(request, action)
        while self._running:
            await asyncio.wait(self._running)

    async def _take(self, request: draft_pb2.ProposeRequest, action: str | None) -> None:
        match action:
            case "hello":
                return
            case "ping":
                await self._room.acquire()
                self._outbox.put_nowait(draft_pb2.ProposeResponse(pong=pong(request.ping)))
            case "extend":
                await self._room.acquire()
                task = self._worker.submit(request, self)
                self._running.add(task)
                task.add_done_callback(self._answered)
            case "forget":
                self._worker.forget(request.session)
            case _:
                raise InvalidArgument("a message of the stream has no action that is known")

    def _answered(self, task: asyncio.Future[draft_pb2.ProposeResponse]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            self._outbox.put_nowait(task.result())
