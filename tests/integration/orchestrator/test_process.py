"""The orchestrator as a process: start, health, reflection, metrics, logs, drain."""

import asyncio
import signal
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from shardflow.transport import open_channel
from shardflow.v1 import orchestrator_pb2, orchestrator_pb2_grpc
from tests import processes
from tests.fakes import Target
from tests.orchestrating import ask, until
from tests.processes import Process
from tests.scripts import continuation, letters

SERVICE = "shardflow.v1.OrchestratorService"
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


@asynccontextmanager
async def orchestrator(model: Path, target: Target, *flags: str) -> AsyncIterator[tuple[Process, grpc.aio.Channel]]:
    shards = ",".join(str(peer) for peer in target.peers)
    arguments = ("--model", str(model), "--shards", shards, "--listen", "127.0.0.1:0", *flags)
    async with processes.running("services.orchestrator", *arguments) as process:
        address = (await process.line("listening"))["address"]
        async with open_channel(address, relay=None) as channel:
            yield process, channel


async def health(channel: grpc.aio.Channel, service: str) -> Any:
    request = health_pb2.HealthCheckRequest(service=service)
    return (await health_pb2_grpc.HealthStub(channel).Check(request)).status


def stub(channel: grpc.aio.Channel) -> Any:
    return orchestrator_pb2_grpc.OrchestratorServiceStub(channel)


async def test_it_serves_when_all_shards_are_up_and_not_before(model: Path, target: Target) -> None:
    target.last.loading = True
    async with orchestrator(model, target) as (process, channel):
        assert [await health(channel, name) for name in ("", SERVICE)] == [NOT_SERVING, NOT_SERVING]
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub(channel).Generate(ask("q")).read()
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert caught.value.details() == "starting: not all shards are up"
        await process.line("peer is not ready")
        status = await stub(channel).GetStatus(orchestrator_pb2.GetStatusRequest())
        while not status.shards[0].connected:  # whose line may be the first
            status = await stub(channel).GetStatus(orchestrator_pb2.GetStatusRequest())
        assert status.problem == f"shard 1 at {target.peers[1]} is still loading"
        assert [shard.connected for shard in status.shards] == [True, False]
        target.last.loading = False
        await process.line("ready")
        await until_serving(channel)
        answer = [message async for message in stub(channel).Generate(ask("hello", k=0, max_tokens=5))]
    assert "".join(message.text for message in answer) == continuation(letters, "hello", 5)


async def until_serving(channel: grpc.aio.Channel) -> None:
    async for response in health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=SERVICE)):
        if response.status == SERVING:
            return


async def test_shards_that_do_not_fit_end_the_process(model: Path, target: Target) -> None:
    target.last.description.first_layer = 0
    async with orchestrator(model, target) as (process, _):
        line = await process.line("start failed: shard 1 begins at layer 0, not at 1")
        assert line["level"] == "error"
        assert await process.end() == 1


async def test_reflection(model: Path, target: Target) -> None:
    async with orchestrator(model, target) as (_, channel):
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(iter([request]))
        names = {service.name for service in (await call.read()).list_services_response.service}
        call.cancel()
    assert names == {SERVICE, "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}


async def test_metrics_over_http(model: Path, target: Target) -> None:
    async with orchestrator(model, target, "--metrics-listen", "127.0.0.1:0") as (process, channel):
        address = (await process.line("metrics listening"))["address"]
        await process.line("ready")
        async for _ in stub(channel).Generate(ask("hello", k=0, max_tokens=5)):
            pass
        text = await asyncio.to_thread(lambda: urllib.request.urlopen(f"http://{address}/metrics").read().decode())
    assert 'shardflow_output_tokens_total{source="target"} 5.0' in text.splitlines()


async def test_running_requests_end_before_the_process_does(model: Path, target: Target) -> None:
    target.last.pause()
    async with orchestrator(model, target) as (process, channel):
        await process.line("ready")
        call = stub(channel).Generate(ask("hello", max_tokens=9))
        await until(lambda: target.last.waiting)
        text = ""
        process.process.send_signal(signal.SIGTERM)
        await process.line("draining")
        assert [await health(channel, name) for name in ("", SERVICE)] == [NOT_SERVING, NOT_SERVING]
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub(channel).Generate(ask("hello", k=0, max_tokens=5)).read()
        assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.UNAVAILABLE, "draining")
        target.last.resume()
        while (message := await call.read()) is not grpc.aio.EOF:
            text += message.text
        assert text == continuation(letters, "hello", 9)
        assert await process.end() == 0
        assert "drained" in [line["event"] for line in process.lines]


async def test_the_drain_deadline_ends_what_runs_and_frees_it(model: Path, target: Target) -> None:
    async with orchestrator(model, target, "--drain-seconds", "0.1", "--round-timeout-s", "30") as (process, channel):
        await process.line("ready")
        target.last.pause()
        call = stub(channel).Generate(ask("hello", max_tokens=400))
        await until(lambda: target.last.waiting)
        process.process.send_signal(signal.SIGTERM)
        with pytest.raises(grpc.aio.AioRpcError):
            while await call.read() is not grpc.aio.EOF:
                pass
        assert await process.end() == 0
    await until(lambda: all(shard.released for shard in target.shards))


async def test_a_stop_during_the_start(model: Path, target: Target) -> None:
    target.last.loading = True
    async with orchestrator(model, target) as (process, _):
        process.process.send_signal(signal.SIGTERM)
        assert await process.end() == 0


async def test_log_lines_of_a_request_carry_its_id(model: Path, target: Target) -> None:
    async with orchestrator(model, target) as (process, channel):
        await process.line("ready")
        answer = [message async for message in stub(channel).Generate(ask("hello", max_tokens=2))]
        line = await process.line("request ended")
    assert (line["request_id"], line["outcome"], line["service"]) == (answer[0].request_id, "length", "orchestrator")
    assert {"time", "level", "event"} <= line.keys()


def test_no_torch_in_the_process() -> None:
    code = (
        "import sys, services.orchestrator.__main__, shardflow.client;"
        "print([name for name in ('torch', 'transformers', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]"
