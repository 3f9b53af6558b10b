"""What of docs/openai.md needs a deployment of its own, or only a reader; tests/docs runs the rest."""

import re
import shlex
from pathlib import Path

from services.orchestrator.openai.requests import ChatRequest
from tests import processes
from tests.fakes import Target

PAGE = Path(__file__).parents[3] / "docs" / "openai.md"
ADDRESS = "127.0.0.1:8000"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


async def test_the_command_that_serves(model: Path, target: Target) -> None:
    (command,) = [block for block in blocks("sh no-run") if "services.orchestrator" in block]
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
