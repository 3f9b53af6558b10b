"""A local cluster under load, scraped by a real Prometheus with the project's own configuration."""

import asyncio
import json
import math
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from shardflow.client import ShardflowClient
from shardflow.cluster import Cluster, free_ports, running
from shardflow.topology import Topology
from tests.observability.loading import OBSERVABILITY, prometheus_folder, queries

SCRAPE_S = 1
WINDOW = "30s"
PROMPT = "The three most important inventions of the twentieth century are"


class Prometheus:
    """The running server."""

    def __init__(self, address: str) -> None:
        self.address = address

    def ask(self, path: str, **parameters: str) -> Any:
        """The data of an API call."""
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str, window: str) -> list[dict[str, Any]]:
        """The samples of a dashboard's query now; `window` stands in for Grafana's interval."""
        return list(self.ask("query", query=expression.replace("$__rate_interval", window))["result"])

    async def up(self, targets: int) -> None:
        """Returns when so many targets have been scraped; TimeoutError after 30 s."""
        async with asyncio.timeout(30):
            while True:
                try:
                    samples = await asyncio.to_thread(self.query, "up == 1", "1m")
                except OSError:
                    samples = []
                if len(samples) == targets:
                    return
                await asyncio.sleep(0.2)


@asynccontextmanager
async def monitored(folder: Path) -> AsyncIterator[tuple[Cluster, Prometheus]]:
    """The demo's system and its Prometheus, which has seen every process; nothing runs afterwards."""
    topology = Topology(speculation="linear:2", threads=1)
    async with running(topology, folder / "cluster") as cluster, prometheus(cluster, folder) as server:
        await server.up(len(scraped(cluster)))
        yield cluster, server


@asynccontextmanager
async def prometheus(cluster: Cluster, folder: Path) -> AsyncIterator[Prometheus]:
    """A real Prometheus that scrapes the cluster."""
    config = folder / "prometheus.yml"
    config.write_text(yaml.safe_dump(configuration(cluster)))
    address = f"127.0.0.1:{free_ports(1)[0]}"
    process = await asyncio.create_subprocess_exec(
        prometheus_folder() / "prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}", "--log.level=warn",
    )  # fmt: skip
    try:
        yield Prometheus(address)
    finally:
        process.terminate()
        await process.wait()


def configuration(cluster: Cluster) -> dict[str, Any]:
    """The project's configuration, with the local processes in the place of the containers."""
    config: dict[str, Any] = yaml.safe_load((OBSERVABILITY / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": f"{SCRAPE_S}s", "evaluation_interval": f"{SCRAPE_S}s"}
    config["rule_files"] = [str(OBSERVABILITY / "rules.yml")]
    addresses = scraped(cluster)
    for job in config["scrape_configs"]:
        names = [target.split(":")[0] for target in job["static_configs"][0]["targets"]]
        job["static_configs"] = [{"targets": [addresses[name]], "labels": {"instance": name}} for name in names]
    return config


def scraped(cluster: Cluster) -> dict[str, str]:
    """Where each process serves its metrics, by its name."""
    found = {}
    for command in cluster.plan.commands:
        for flag in ("--metrics-listen", "--admin"):
            if flag in command.argv and not command.name.startswith("wanlink"):
                found[command.name] = command.argv[command.argv.index(flag) + 1]
    return found


async def load(address: str, seconds: float, streams: int = 2) -> None:
    """Keeps so many requests running for a while; ExceptionGroup if one fails."""

    async def one(client: ShardflowClient, seed: int) -> None:
        while True:
            await client.complete(PROMPT, max_tokens=24, temperature=0.7, seed=seed, timeout=60)

    async with ShardflowClient(address) as client:
        with suppress(TimeoutError):  # the end of the while
            async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
                for seed in range(streams):
                    group.create_task(one(client, seed))


async def under_load(server: Prometheus, address: str, within_s: float) -> dict[tuple[str, str], list[float]]:
    """Loads the orchestrator at `address` until every query of the dashboard has a finite value; all values, by query.

    AssertionError with the queries that have none after `within_s`; ExceptionGroup if a request fails.
    """
    answers: dict[tuple[str, str], list[float]] = {}
    missing = queries()
    working = asyncio.create_task(load(address, within_s))
    while missing and not working.done():
        await asyncio.sleep(1)
        for each in missing:
            samples = await asyncio.to_thread(server.query, each[1], WINDOW)
            answers[each] = [float(sample["value"][1]) for sample in samples]
        missing = [each for each in missing if not any(map(math.isfinite, answers[each]))]
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    if not working.cancelled():
        working.result()
    assert missing == []
    return answers
