"""One answer on its way to one client: a body or a stream of events, given up when the client leaves."""

import asyncio
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from services.orchestrator.openai.choices import Choices, Reply
from services.orchestrator.openai.errors import from_error
from services.orchestrator.openai.writing import KEEP_ALIVE, Writer, event

_STREAM_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
}


class Exchange(Response):
    """Answers with what `choices` bring, as `writer` writes it."""

    def __init__(self, choices: Choices, writer: Writer, *, stream: bool, keep_alive_s: float, request_id: str) -> None:
        """A stream that is silent for `keep_alive_s` gets a comment."""
        super().__init__()
        self._request_id = request_id
        self._choices = choices
        self._writer = writer
        self._is_stream = stream
        self._keep_alive_s = keep_alive_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Returns when everything is sent or nobody listens any more; an error before the first byte is raised."""
        answer = self._stream(send) if self._is_stream else self._body(scope, receive, send)
        tasks = [asyncio.create_task(answer), asyncio.create_task(_left(receive))]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if tasks[0].done():
                await tasks[0]
        finally:
            self._choices.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _body(self, scope: Scope, receive: Receive, send: Send) -> None:
        while (reply := await self._choices.next()) is not None:
            self._writer.add(*reply)
        await JSONResponse(self._writer.body(), headers={"x-request-id": self._request_id})(scope, receive, send)

    async def _stream(self, send: Send) -> None:
        # The status waits for the first reply, so that what fails at once fails with a status of its own.
        reply, alive = await self._next()
        headers = {**_STREAM_HEADERS, "x-request-id": self._request_id}
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": raw})
        await _send(send, self._writer.opening() + alive)
        try:
            while reply is not None or alive:
                if reply is not None:
                    await _send(send, self._writer.chunks(*reply))
                reply, alive = await self._next()
                await _send(send, alive)
            await _send(send, self._writer.closing())
        except Exception as error:
            # No [DONE] after it: the stream did not end, it broke, and clients raise what the event says.
            await _send(send, event(from_error(error).body))
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _next(self) -> tuple[Reply | None, bytes]:
        """The next reply, or None and what keeps the connection alive without one; nothing at the end."""
        try:
            return await self._choices.next(self._keep_alive_s), b""
        except TimeoutError:
            return None, KEEP_ALIVE


async def _send(send: Send, body: bytes) -> None:
    if body:
        await send({"type": "http.response.body", "body": body, "more_body": True})


async def _left(receive: Receive) -> Any:
    """Returns when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
