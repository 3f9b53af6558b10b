"""Runs one service as a process and reads its log, which is JSON lines on standard output."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from shardflow.config import child_environment


class Process:
    """A running `python -m MODULE`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[dict[str, Any]] = []

    async def line(self, event: str) -> dict[str, Any]:
        """The next log line with this event."""
        assert self.process.stdout is not None
        async with asyncio.timeout(20):
            while raw := await self.process.stdout.readline():
                self.lines.append(json.loads(raw))
                if self.lines[-1]["event"] == event:
                    return self.lines[-1]
        raise AssertionError(f"no {event!r} among {[line['event'] for line in self.lines]}")

    async def end(self) -> int:
        """Reads the log to its end; the exit status."""
        assert self.process.stdout is not None
        async with asyncio.timeout(20):
            while raw := await self.process.stdout.readline():
                self.lines.append(json.loads(raw))
            return await self.process.wait()


@asynccontextmanager
async def running(module: str, *flags: str, **variables: str) -> AsyncIterator[Process]:
    """The process, killed at the end if it still runs; `variables` are added to its environment."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *flags, stdout=asyncio.subprocess.PIPE, env=child_environment(**variables)
    )
    try:
        yield Process(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
