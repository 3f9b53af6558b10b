"""Every example of docs/openai.md is run as it stands, but for the address and the directories."""

import asyncio
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from services.orchestrator.openai.requests import ChatRequest
from shardflow.config import child_environment
from tests import processes
from tests.fakes import Target
from tests.integration.openai.conftest import http

PAGE = Path(__file__).parents[3] / "docs" / "openai.md"
ADDRESS = "127.0.0.1:8080"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


async def output(command: Sequence[str]) -> str:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, env=child_environment(NO_PROXY="127.0.0.1")
    )
    async with asyncio.timeout(30):
        out, _ = await process.communicate()
    assert process.returncode == 0
    return out.decode()


async def test_python(model: Path, target: Target) -> None:
    (code,) = blocks("python")
    async with http(model, target) as api:
        said = await output([sys.executable, "-c", code.replace(f"http://{ADDRESS}", api.url)])
    assert re.fullmatch("[a-z]{60}", said)


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl")
async def test_curl(model: Path, target: Target) -> None:
    (command,) = [block for block in blocks("sh") if block.startswith("curl ")]
    async with http(model, target) as api:
        said = await output(shlex.split(command.replace(f"http://{ADDRESS}", api.url)))
    assert '"finish_reason":"length"' in said


async def test_the_command_that_serves(model: Path, target: Target) -> None:
    (command,) = [block for block in blocks("sh") if "services.orchestrator" in block]
    shards = ",".join(str(peer) for peer in target.peers)
    words = (
        command.replace("HOST:PORT,HOST:PORT", shards).replace("--draft HOST:PORT", "").replace(ADDRESS, "127.0.0.1:0")
    )
    _, _, module, *flags = shlex.split(words.replace("DIR", str(model)))
    async with processes.running(module, *flags, "--listen", "127.0.0.1:0") as process:
        await process.line("http listening")
        await process.line("ready")


def test_the_extras_are_those_that_are_read() -> None:
    (example,) = blocks("json")
    body = ChatRequest.model_validate_json(example[:-2] + ', "messages": []}')
    assert body.shardflow is not None and body.shardflow.speculation == "linear:4" and body.shardflow.rounds
