"""The demonstration and the local cluster, with every process and the real model."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from shardflow.client import ShardflowClient
from shardflow.cluster import free_ports, running
from shardflow.errors import Unavailable
from shardflow.topology import ROOT, Topology

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(300)]

SHARDFLOW = (str(Path(sys.executable).with_name("shardflow")),)


def descendants() -> list[str]:
    return [" ".join(child.cmdline()) for child in psutil.Process().children(recursive=True)]


def test_the_demo_measures_what_it_promises(tmp_path: Path) -> None:
    file = tmp_path / "demo.json"
    flags = ["--prompts", "raw", "--repetitions", "1", "--tokens", "8", "--modes", "none,linear:4", "--json", str(file)]
    shown = subprocess.run([*SHARDFLOW, "demo", *flags], cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "texts identical in all modes and repetitions" in shown.stdout
    figures = json.loads(file.read_text())
    assert figures["identical"] is True
    assert figures["speedup"] == pytest.approx(figures["tok_s_spec"] / figures["tok_s_plain"])
    assert figures["rtt_ms"] >= 86.0
    assert 0.0 < figures["acceptance"] < 1.0
    assert 1.0 < figures["tokens_per_round"] < 5.0
    assert figures["relay_bytes"] > 3 * 2 * 7 * 576 * 4
    assert {arm["tokens"] for arm in figures["arms"].values()} == {3 * 8}
    assert figures["arms"]["none"]["tokens_per_round"] == 1.0
    for part in ("total", "network", "compute", "draft", "queue", "other", "orchestrator"):
        assert figures["round_ms"][part] >= 0.0
    assert 0.98 <= figures["round_ms"]["network"] / figures["rtt_ms"] <= 1.15  # the links, and nothing of the rest
    assert descendants() == []


async def test_the_relay_is_really_in_the_path(tmp_path: Path) -> None:
    async with (
        running(Topology(delay_ms=5.0), tmp_path) as cluster,
        ShardflowClient(cluster.address) as client,
    ):
        first = await client.complete("The capital of France is", max_tokens=4)
        await cluster.end("relay")
        with pytest.raises(Unavailable):
            await client.complete("The capital of France is", max_tokens=4, timeout=5.0)
        await cluster.restart("relay")
        again = await client.complete("The capital of France is", max_tokens=4, timeout=30.0)
    assert again.text == first.text


def test_a_deployment_that_is_up_ends_with_all_its_processes() -> None:
    port, http_port = map(str, free_ports(2))
    up = subprocess.Popen(
        [*SHARDFLOW, "up", "--delay-ms", "5", "--port", port, "--http-port", http_port],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert up.stdout is not None
    try:
        address = next(line.split()[2].rstrip(";") for line in up.stdout if line.startswith("serving at"))
        asked = subprocess.run(
            [*SHARDFLOW, "generate", "--raw", "The capital of France is", "--max-tokens", "1", "--address", address],
            cwd=ROOT, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert (asked.returncode, asked.stdout) == (0, " Paris\n"), asked.stderr
        children = psutil.Process(up.pid).children(recursive=True)
        assert len(children) == 6
        up.send_signal(signal.SIGTERM)
        assert up.wait(30) == 130
        assert [child for child in children if child.is_running()] == []
    finally:
        if up.poll() is None:
            up.kill()
        up.wait()
        up.stdout.close()
