"""A start that can not succeed: one line that says why, exit code 1, and no traceback."""

import asyncio
import json
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shardflow.config import child_environment
from shardflow.engine.checkpoint import Checkpoint
from shardflow.engine.errors import CheckpointError, LayersError, UnsupportedModelError
from shardflow.errors import FailedPrecondition
from shardflow.serving import _log_failure
from tests.fuzz.deployment import write_models
from tests.orchestrating import write_model


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_models(tmp_path_factory.mktemp("models"))


@pytest.fixture
def taken() -> Iterator[str]:
    """An address that somebody else listens at."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


async def run(module: str, *flags: str) -> tuple[int, list[dict[str, Any]], str]:
    """Exit code, log lines and standard error of a process that ends by itself."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *flags,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=child_environment(GRPC_VERBOSITY="NONE"),
    )  # fmt: skip
    try:
        out, error = await asyncio.wait_for(process.communicate(), 60)
    finally:
        if process.returncode is None:
            process.kill()
    return process.returncode or 0, [json.loads(line) for line in out.splitlines()], error.decode()


async def failure(module: str, *flags: str) -> str:
    """Why a process did not start: its only complaint."""
    code, lines, error = await run(module, *flags)
    complaints = [line for line in lines if line["level"] not in ("debug", "info")]
    assert (code, len(complaints)) == (1, 1), lines
    assert "error" not in complaints[0]
    assert "Traceback" not in error
    return str(complaints[0]["event"])


IDLE = ("tests.idle_service", "well")


async def test_an_address_that_is_taken(taken: str) -> None:
    assert await failure(*IDLE, "--listen", taken) == (
        f"start failed: listen: {taken} can not be bound: in use, or no address of ours"
    )


async def test_an_address_for_metrics_that_is_taken(taken: str) -> None:
    assert await failure(*IDLE, "--listen", "127.0.0.1:0", "--metrics-listen", taken) == (
        f"start failed: metrics_listen: {taken} can not be bound: Address already in use"
    )


ORCHESTRATOR = ("services.orchestrator", "--listen", "127.0.0.1:0", "--shards", "127.0.0.1:1")


async def test_an_address_for_http_that_is_taken(taken: str, models: Path) -> None:
    event = await failure(*ORCHESTRATOR, "--model", str(models / "tokenizer"), "--http-listen", taken)
    assert event.startswith(f"start failed: http_listen: {taken} can not be bound: Address already in use")


async def test_a_missing_tokenizer(tmp_path: Path) -> None:
    assert await failure(*ORCHESTRATOR, "--model", str(tmp_path)) == (
        f"start failed: model: {tmp_path} has no tokenizer.json"
    )


async def test_a_tokenizer_that_can_not_be_read(tmp_path: Path) -> None:
    (write_model(tmp_path / "broken") / "tokenizer.json").write_text("{")
    event = await failure(*ORCHESTRATOR, "--model", str(tmp_path / "broken"))
    assert event.startswith(f"start failed: model: {tmp_path / 'broken'}/tokenizer.json can not be read: ")


@pytest.mark.slow
@pytest.mark.parametrize("module", ["services.verifier", "services.draft"])
async def test_missing_weights(models: Path, tmp_path: Path, module: str) -> None:
    shutil.copytree(models / "target", tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").unlink()
    assert await failure(module, "--listen", "127.0.0.1:0", "--model", str(tmp_path / "model")) == (
        f"start failed: {tmp_path / 'model'} holds neither model.safetensors nor model.safetensors.index.json"
    )


def test_weights_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"<html>not the file that was asked for</html>")
    with pytest.raises(FailedPrecondition) as caught:
        Checkpoint(tmp_path)
    assert str(caught.value) == "model.safetensors is no safetensors file, or ends early"


@pytest.mark.parametrize("kind", [CheckpointError, UnsupportedModelError, LayersError])
def test_what_the_operator_can_mend_is_no_bug(caplog: pytest.LogCaptureFixture, kind: type[Exception]) -> None:
    _log_failure(kind("why"))
    assert [(record.getMessage(), record.exc_info) for record in caplog.records] == [("start failed: why", None)]
