#!/usr/bin/env python3
"""Draws docs/dashboard.png: the Grafana dashboard's own queries, answered by a real Prometheus that watched a local
cluster for two minutes. Needs matplotlib, which nothing else here does.

What happens meanwhile: one stream, then three; the draft is stopped and started again; the link gets twice as long.
"""

import asyncio
import math
import sys
import time
import urllib.request
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import matplotlib

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from shardflow.cluster import Cluster  # noqa: E402
from tests.observability.loading import panels  # noqa: E402
from tests.observability.monitored import Prometheus, load, monitored  # noqa: E402

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

TARGET = ROOT / "docs" / "dashboard.png"
WINDOW = "10s"
COLUMNS = 3
UNITS = {"short": "", "s": " (s)", "percentunit": "", "bytes": " (bytes)", "Bps": " (bytes per second)"}


async def play(cluster: Cluster) -> None:
    """What the picture shows."""
    await load(cluster.address, 25, streams=1)
    await load(cluster.address, 25, streams=3)
    busy = asyncio.create_task(load(cluster.address, 60, streams=1))
    await asyncio.sleep(10)
    await cluster.end("draft")
    await asyncio.sleep(12)
    await cluster.restart("draft")
    await asyncio.sleep(15)
    request = urllib.request.Request(f"http://{cluster.plan.link_admins[0]}/link?delay_ms=86", method="POST")
    await asyncio.to_thread(urllib.request.urlopen, request)
    await busy


def draw(axes: Any, panel: dict[str, Any], prometheus: Prometheus, start: float, end: float) -> None:
    """One panel, from Prometheus's answers."""
    lines: list[tuple[str, list[float], list[float]]] = []
    for target in panel["targets"]:
        query = target["expr"].replace("$__rate_interval", WINDOW)
        found = prometheus.ask("query_range", query=query, start=str(start), end=str(end), step="1")
        for series in found["result"]:
            name = target["legendFormat"]
            for label, value in series["metric"].items():
                name = name.replace("{{" + label + "}}", value)
            times = [float(at) - start for at, _ in series["values"]]
            values = [float(value) for _, value in series["values"]]
            lines.append((name.replace("{{shard}}", "").strip(), times, values))
    if panel["fieldConfig"]["defaults"]["custom"]["stacking"]["mode"] == "normal":
        grid = [float(second) for second in range(int(end - start) + 1)]
        heights = [[dict(zip(map(round, times), values, strict=True)).get(round(at), 0.0) for at in grid]
                   for _, times, values in lines]  # fmt: skip
        finite = [[value if math.isfinite(value) else 0.0 for value in row] for row in heights]
        axes.stackplot(grid, finite, labels=[name for name, _, _ in lines], alpha=0.7)
    else:
        for name, times, values in lines:
            axes.plot(times, values, label=name, linewidth=1.2)
    unit = UNITS[panel["fieldConfig"]["defaults"]["unit"]]
    axes.set_title(panel["title"] + unit, fontsize=11, loc="left")
    axes.tick_params(labelsize=8)
    axes.set_ylim(bottom=0)
    axes.set_xlim(0, end - start)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7, ncols=2, loc="best", framealpha=0.6)


async def main() -> None:
    with TemporaryDirectory() as folder:
        async with monitored(Path(folder)) as (cluster, prometheus):
            start = time.time()
            await play(cluster)
            figure, grid = pyplot.subplots(-(-len(panels()) // COLUMNS), COLUMNS, figsize=(16, 20))
            for axes, panel in zip(grid.flat, panels(), strict=False):
                draw(axes, panel, prometheus, start, time.time())
    figure.tight_layout()
    figure.savefig(TARGET, dpi=75)


if __name__ == "__main__":
    asyncio.run(main())
