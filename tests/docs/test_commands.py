"""Every command and program in the documentation that can be run here is run, in order, against one deployment."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from shardflow.cluster import free_ports
from tests.docs.pages import ROOT, Block, blocks

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.slow]

BIN = Path(sys.executable).parent
# The commands' own default address is that of a deployment that may be running here already.
PRELUDE = """
shardflow() {
    case "$1" in
    generate | trace | chat | status) command shardflow "$@" --address 127.0.0.1:50051 ;;
    doctor | bench) command shardflow "$1" 127.0.0.1:50051 "${@:2}" ;;
    *) command shardflow "$@" ;;
    esac
}
"""


@dataclass(frozen=True)
class Deployment:
    """Where the documented deployment really is, and a directory in which to run the blocks."""

    port: int
    http_port: int
    directory: Path

    def run(self, block: Block) -> subprocess.CompletedProcess[str]:
        text = PRELUDE + block.text if block.language == "sh" else block.text
        text = text.replace("127.0.0.1:50051", f"127.0.0.1:{self.port}")
        text = text.replace("127.0.0.1:8000", f"127.0.0.1:{self.http_port}")
        argv = ["bash", "-euo", "pipefail", "-c"] if block.language == "sh" else [sys.executable, "-c"]
        environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
        return subprocess.run(
            [*argv, text],
            cwd=self.directory,
            env=environment,
            input="Hello\n",
            capture_output=True,
            text=True,
            timeout=60,
        )


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """What the page's own `shardflow up` starts, on free ports and over a shorter link."""
    (up,) = [block for block in blocks() if block.mark == "up"]
    directory = tmp_path_factory.mktemp("docs")
    for name in ("proto", "models"):
        (directory / name).symlink_to(ROOT / name)
    port, http_port = free_ports(2)
    argv = [*shlex.split(up.text), "--delay-ms", "5", "--port", str(port), "--http-port", str(http_port)]
    argv[0] = str(BIN / argv[0])
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert any(line.startswith("OpenAI API at ") for line in process.stdout), "it did not start"
        yield Deployment(port, http_port, directory)
    finally:
        process.terminate()
        process.communicate(timeout=30)


@pytest.mark.parametrize("block", [block for block in blocks() if block.runs], ids=lambda block: block.place)
def test_it_runs(block: Block, deployment: Deployment) -> None:
    if "curl " in block.text and shutil.which("curl") is None:
        pytest.skip("curl is not here")
    done = deployment.run(block)
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"error"' not in done.stdout  # curl ends with 0 whatever the server says
    assert done.stdout.strip() or "grpc_tools.protoc" in block.text
