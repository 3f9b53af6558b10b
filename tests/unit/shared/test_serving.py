"""The life of a service process: told by a service that does nothing."""

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests import processes

MODULE = "tests.idle_service"


@asynccontextmanager
async def service(mode: str, *flags: str) -> AsyncIterator[processes.Process]:
    async with processes.running(MODULE, mode, "--listen", "127.0.0.1:0", *flags) as process:
        yield process


def events(process: processes.Process) -> list[str]:
    return [line["event"] for line in process.lines]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_whole_life(number: signal.Signals) -> None:
    async with service("well") as process:
        await process.line("ready")
        process.process.send_signal(number)
        assert await process.end() == 0
    assert events(process) == ["listening", "started", "ready", "draining", "drain", "drained", "close"]


async def test_a_start_that_fails() -> None:
    async with service("fails") as process:
        assert await process.end() == 1
    assert events(process) == ["listening", "start failed: no weights", "close"]
    assert process.lines[1]["error"].endswith("RuntimeError: no weights")


async def test_a_drain_that_does_not_end() -> None:
    async with service("hangs", "--drain-seconds", "0.1") as process:
        await process.line("ready")
        process.process.send_signal(signal.SIGTERM)
        assert await process.end() == 0
    assert events(process)[-2:] == ["drain deadline passed: ending what still runs", "close"]


async def test_bad_settings() -> None:
    async with service("well", "--drain-seconds", "soon", "--what", "1") as process:
        assert await process.end() == 64
    assert process.lines == []


async def test_every_line_is_json_and_names_the_service() -> None:
    async with service("well", "--log-level", "DEBUG", "--metrics-listen", "127.0.0.1:0") as process:
        await process.line("ready")
        process.process.send_signal(signal.SIGTERM)
        await process.end()
    assert {line["service"] for line in process.lines} == {"idle"}


async def test_a_port_that_is_taken() -> None:
    async with service("well") as first:
        address = (await first.line("listening"))["address"]
        async with processes.running(MODULE, "well", "--listen", address) as second:
            assert await second.end() == 1
