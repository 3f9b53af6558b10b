"""The orchestrator as a process with an HTTP listener: start, signals, a port that is taken, bad settings."""

import asyncio
import json
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from tests import processes
from tests.fakes import Target
from tests.integration.openai.conftest import HI
from tests.orchestrating import until
from tests.processes import Process


@asynccontextmanager
async def orchestrator(
    model: Path, target: Target, *flags: str, http_listen: str = "127.0.0.1:0", **variables: str
) -> AsyncIterator[Process]:
    shards = ",".join(str(peer) for peer in target.peers)
    arguments = ("--model", str(model), "--shards", shards, "--listen", "127.0.0.1:0", "--http-listen", http_listen)
    async with processes.running("services.orchestrator", *arguments, *flags, **variables) as process:
        yield process


@asynccontextmanager
async def client(process: Process) -> AsyncIterator[httpx.AsyncClient]:
    address = (await process.line("http listening"))["address"]
    await process.line("ready")
    async with httpx.AsyncClient(base_url=f"http://{address}", timeout=10) as http:
        yield http


async def test_what_runs_at_a_signal_ends_in_peace(model: Path, target: Target) -> None:
    async with orchestrator(model, target) as process, client(process) as http:
        target.last.pause()
        running = asyncio.create_task(http.post("/v1/chat/completions", json={"messages": HI, "max_tokens": 9}))
        await until(lambda: target.last.waiting)
        process.process.send_signal(signal.SIGTERM)
        await process.line("draining")
        assert (await http.get("/health")).status_code == 503
        target.last.resume()
        assert (await running).json()["usage"]["completion_tokens"] == 9
        assert await process.end() == 0


async def test_what_outlasts_the_drain_is_told(model: Path, target: Target) -> None:
    flags = ("--drain-seconds", "0.1", "--round-timeout-s", "30")
    async with orchestrator(model, target, *flags) as process, client(process) as http:
        request = http.stream("POST", "/v1/chat/completions", json={"messages": HI, "stream": True})
        async with request as response:
            lines = response.aiter_lines()
            while '"content":""' not in await anext(lines):
                pass
            target.last.pause()
            await until(lambda: target.last.waiting)
            process.process.send_signal(signal.SIGTERM)
            last = [line async for line in lines if line][-1]
        assert json.loads(last.removeprefix("data: "))["error"]["message"] == "the server is shutting down"
        assert await process.end() == 0
    await until(lambda: all(shard.released for shard in target.shards))


async def test_a_port_that_is_taken_ends_the_start(model: Path, target: Target) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        async with orchestrator(model, target, http_listen=address) as process:
            assert await process.end() == 1
    (line,) = [line for line in process.lines if line["event"].startswith("start failed")]
    assert line["event"].startswith(f"start failed: http_listen: {address} can not be bound: Address already in use")


async def test_keys_from_the_environment_are_not_logged(model: Path, target: Target) -> None:
    async with orchestrator(model, target, SHARDFLOW_HTTP_API_KEYS="hush-1,hush-2") as process:
        async with client(process) as http:
            keys = ("wrong", "hush-1", "hush-2")
            answers = [await http.get("/v1/models", headers={"authorization": f"Bearer {key}"}) for key in keys]
        process.process.send_signal(signal.SIGTERM)
        await process.end()
    assert [answer.status_code for answer in answers] == [401, 200, 200]
    assert "hush" not in json.dumps(process.lines)


async def test_an_address_that_is_none_is_refused(
    model: Path, target: Target, capfd: pytest.CaptureFixture[str]
) -> None:
    async with orchestrator(model, target, http_listen="8080") as process:
        assert await process.end() == 64
    assert "--http-listen / SHARDFLOW_HTTP_LISTEN" in capfd.readouterr().err
