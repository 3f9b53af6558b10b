#!/usr/bin/env python3
"""Writes docs/metrics.md from shardflow/metrics.py and from what the built relay exports."""

import json
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.parser import text_string_to_metric_families

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from shardflow.metrics import DraftMetrics, OrchestratorMetrics, VerifierMetrics  # noqa: E402
from shardflow.topology import relay_binary  # noqa: E402

TARGET = ROOT / "docs" / "metrics.md"
SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "info": ("_info",), "gauge": ("",)}
HEAD = """# Metrics

Written by `scripts/metrics-doc.py` from `shardflow/metrics.py` and from the relay; change them there.

Python services serve these at `/metrics` of `--metrics-listen`, the relay at `/metrics` of `--admin`. All times are in
seconds, sizes in bytes, ratios from 0 to 1. A histogram has `_bucket`, `_sum` and `_count`. Rates are left to the
reader: tokens per second is `sum(rate(shardflow_output_tokens_total[1m]))`, acceptance by depth is
`rate(shardflow_accepted_tokens_total[1m]) / rate(shardflow_draft_tokens_total[1m])`.
"""


@dataclass(frozen=True)
class Row:
    """One metric. `name` as it is queried, without a histogram's suffixes."""

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str

    def series(self) -> set[str]:
        """Every name under which Prometheus knows it."""
        base = self.name.removesuffix("_total").removesuffix("_info")
        return {base + suffix for suffix in SUFFIXES[self.kind]}


def python_rows(kind: type) -> list[Row]:
    """What a service's class registers, by name."""
    registry = CollectorRegistry()
    metrics = kind(registry)
    labels = {each._name: tuple(each._labelnames) for each in vars(metrics).values() if hasattr(each, "_labelnames")}
    rows = []
    for family in registry.collect():
        suffix = SUFFIXES[family.type][0] if family.type in ("counter", "info") else ""
        names = labels.get(family.name, ("version",))  # only the build's information is no attribute
        rows.append(Row(family.name + suffix, family.type, names, family.documentation))
    return sorted(rows, key=lambda row: row.name)


def relay_rows() -> list[Row]:
    """What the relay exports while a tunnel is open."""
    rows = []
    for family in text_string_to_metric_families(relay_page()):
        suffix = SUFFIXES[family.type][0] if family.type in ("counter", "info") else ""
        labels = tuple(name for name in family.samples[0].labels if name != "le")
        rows.append(Row(family.name + suffix, family.type, labels, family.documentation.rstrip(".") + "."))
    return sorted(rows, key=lambda row: row.name)


def relay_page() -> str:
    """The metrics page of the built relay, read while one tunnel is open."""
    name = "upstream.shardflow.internal:1"
    with (
        socket.create_server(("127.0.0.1", 0)) as upstream,
        relay(f"{name}={address(upstream)}") as ports,
        socket.create_connection(("127.0.0.1", ports["relay"])) as client,
    ):
        client.sendall(f"CONNECT {name} HTTP/1.1\r\n\r\n".encode())
        if not client.recv(1024).startswith(b"HTTP/1.1 200"):
            raise RuntimeError("the relay opens no tunnel")
        with urllib.request.urlopen(f"http://127.0.0.1:{ports['admin']}/metrics", timeout=5) as page:
            return str(page.read().decode())


def address(listener: socket.socket) -> str:
    return f"127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def relay(route: str) -> Iterator[dict[str, int]]:
    """A running relay; its ports by role, as its log tells them."""
    command = [str(relay_binary()), "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--route", route]
    with subprocess.Popen([*command, "--drain-seconds", "0"], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            lines = [json.loads(process.stdout.readline()) for _ in range(2)]
            yield {line["role"]: line["port"] for line in lines}
        finally:
            process.terminate()
            process.wait()


def sections() -> dict[str, list[Row]]:
    """All metrics by who exports them."""
    services = {"Orchestrator": OrchestratorMetrics, "Verifier shard": VerifierMetrics, "Draft": DraftMetrics}
    return {title: python_rows(kind) for title, kind in services.items()} | {"Relay": relay_rows()}


def render() -> str:
    """The page."""
    lines = [HEAD]
    for title, rows in sections().items():
        lines += [f"## {title}", "", "| metric | type | labels | meaning |", "|---|---|---|---|"]
        for row in rows:
            labels = ", ".join(f"`{label}`" for label in row.labels)
            lines.append(f"| `{row.name}` | {row.kind} | {labels} | {row.help} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    TARGET.write_text(render())
