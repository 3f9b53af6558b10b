"""A shard as a process: settings, readiness, and its end."""

import signal
from pathlib import Path

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from shardflow.transport import open_channel
from tests.processes import running

pytestmark = pytest.mark.slow


async def test_it_becomes_ready_and_ends_on_sigterm(model_dir: Path) -> None:
    async with running("services.verifier", "--model", str(model_dir), "--listen", "127.0.0.1:0") as shard:
        address = (await shard.line("listening"))["address"]
        loaded = await shard.line("loaded")
        assert loaded["slice"] == "layers [0, 6) of 6"
        await shard.line("ready")
        async with open_channel(address, relay=None) as channel:
            answer = await health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(service="shardflow.v1.VerifierService")
            )
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        shard.process.send_signal(signal.SIGTERM)
        assert await shard.end() == 0
        assert "drained" in [line["event"] for line in shard.lines]


async def test_bad_settings_end_it_at_once() -> None:
    async with running("services.verifier", "--model", "nowhere", "--layers", "3:3", "--next", "x") as shard:
        assert await shard.end() == 64


async def test_layers_that_the_model_does_not_have_end_it(model_dir: Path) -> None:
    flags = ("--model", str(model_dir), "--layers", "4:9", "--listen", "127.0.0.1:0")
    async with running("services.verifier", *flags) as shard:
        failed = await shard.line("start failed: [4, 9) is no range of the model's 6 layers")
        assert failed["level"] == "error"
        assert await shard.end() == 1
