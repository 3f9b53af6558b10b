"""The generations of one HTTP request, side by side: their replies in the order in which they come."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

from services.orchestrator.openai.core import Core
from services.orchestrator.openai.errors import from_error
from shardflow.v1 import orchestrator_pb2

Reply = tuple[int, orchestrator_pb2.GenerateResponse]


class Choices:
    """Runs each generation in a task of its own, so that one that is cancelled cleans up after itself."""

    def __init__(self, core: Core, requests: Sequence[orchestrator_pb2.GenerateRequest], request_id: str) -> None:
        """Starts all of them; the core knows them as `request_id`, `request_id.1` and so on."""
        # One reply at most waits, so that a client that does not read stops the rounds.
        self._queue: asyncio.Queue[Reply | Exception] = asyncio.Queue(maxsize=1)
        self._running = len(requests)
        self._tasks = [
            asyncio.create_task(self._run(core, index, request, f"{request_id}.{index}" if index else request_id))
            for index, request in enumerate(requests)
        ]

    async def next(self, timeout_s: float | None = None) -> Reply | None:
        """The next reply, with the index of its choice; None when all have ended.

        Raises TimeoutError after `timeout_s` (nothing is lost), and a Refusal for the first choice that failed.
        """
        if not self._running:
            return None
        async with asyncio.timeout(timeout_s):
            event = await self._queue.get()
        if isinstance(event, Exception):
            raise event
        if event[1].finish_reason:
            self._running -= 1
        return event

    def fail(self, error: Exception) -> None:
        """Ends all of them; who waits for the next reply gets `error`."""
        self.cancel()
        while not self._queue.empty():
            self._queue.get_nowait()
        self._queue.put_nowait(error)

    def cancel(self) -> None:
        """Ends all of them, which frees their sessions everywhere."""
        for task in self._tasks:
            task.cancel()

    async def _run(self, core: Core, index: int, request: orchestrator_pb2.GenerateRequest, request_id: str) -> None:
        try:
            async with aclosing(core.generate(request, request_id)) as replies:
                async for reply in replies:
                    await self._queue.put((index, reply))
        except Exception as error:
            await self._queue.put(from_error(error, "messages" if request.HasField("chat") else "prompt"))
