"""Measures the containers: from `up` to the first streamed token, lost parts, what the images add, and the texts.

Each part is killed under a request: how long until the request ends with an error, and from the part's restart to the
next request's token; of the draft, to a request that it guessed for. Each repetition starts from the built images and
nothing else: the volume with the model is made anew. The texts are the demonstration's three raw prompts, with and
without speculation, asked in the containers and of local processes over the same emulated link. Writes
`results/up.json`; exits 1 if a bar fails. Needs the images (`make images`). Run from the top:
`python -m benchmarks.bench_up`.
"""

import asyncio
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from shardflow.client import ShardflowClient
from shardflow.cluster import running
from shardflow.demo.prompts import RAW
from shardflow.demo.receipt import receipt
from shardflow.demo.report import differing
from shardflow.demo.run import Sample, measure
from shardflow.topology import Topology
from tests import containers
from tests.containers import Outage

RESULT = Path(__file__).resolve().parent / "results" / "up.json"
REPETITIONS = 3
TOKENS = 40
MODES = ("none", "linear:2")
FIRST_TOKEN_S = 60
PARTS = ("relay", "verifier-0", "verifier-1")
TOLD_S, BACK_S = 5, 10
IMAGE = re.compile(r"^shardflow-(\w+) +(\d+) of +(\d+) MB", re.MULTILINE)


def main() -> int:
    load_before = os.getloadavg()[0]
    ups: list[float] = []
    contained: list[Sample] = []
    draft_back: list[float] = []
    outages: dict[str, list[Outage]] = {part: [] for part in PARTS}
    for repetition in range(REPETITIONS):
        with containers.stack(f"shardflow-bench-{os.getpid()}") as stack:
            asyncio.run(stack.up())
            ups.append(stack.first_token_s)
            print(f"first token {stack.first_token_s:.1f} s after up", flush=True)
            for part, seen in outages.items():
                seen.append(asyncio.run(stack.outage(part)))
                print(
                    f"{part} lost: told after {seen[-1].told_s:.1f} s, back after {seen[-1].back_s:.1f} s", flush=True
                )
            draft_back.append(asyncio.run(stack.draft_back()))
            print(f"draft lost: back in {draft_back[-1]:.1f} s", flush=True)
            if repetition == REPETITIONS - 1:
                contained = asyncio.run(answers(stack.grpc))
    differ = differing([*contained, *asyncio.run(local_answers())])
    sizes = {image: (int(added), int(budget)) for image, added, budget in IMAGE.findall(image_sizes())}
    bars = judge(ups, outages, draft_back, sizes, differ)
    figures = {
        "first_token_s": [round(up, 1) for up in ups],
        "told_s": {part: [round(outage.told_s, 2) for outage in seen] for part, seen in outages.items()},
        "back_s": {part: [round(outage.back_s, 1) for outage in seen] for part, seen in outages.items()},
        "draft_back_s": [round(back, 1) for back in draft_back],
        "image_mb_over_base": {image: added for image, (added, _) in sizes.items()},
        "texts_compared": len(contained),
        "texts_that_differ": differ,
    }
    result = {"figures": figures, "bars": bars, "receipt": receipt(**conditions(load_before))}
    RESULT.write_text(json.dumps(result, indent=2) + "\n")
    for name, bar in bars.items():
        print(f"{name:36}{bar['value']:>10.1f}   need {bar['need']:<10}{'holds' if bar['holds'] else 'FAILS'}")
    return 0 if all(bar["holds"] for bar in bars.values()) else 1


async def answers(address: str) -> list[Sample]:
    """Every raw prompt in every mode, in order."""
    async with ShardflowClient(address) as client:
        return [await measure(client, question, mode, 0, TOKENS) for question in RAW for mode in MODES]


async def local_answers() -> list[Sample]:
    """The same of `make demo`'s deployment."""
    with tempfile.TemporaryDirectory() as folder:
        async with running(Topology(), Path(folder)) as cluster:
            return await answers(cluster.address)


def image_sizes() -> str:
    """What scripts/image-sizes.sh prints; AssertionError if an image is missing or over its budget."""
    return containers.run("scripts/image-sizes.sh")


def judge(
    ups: list[float],
    outages: dict[str, list[Outage]],
    draft_back: list[float],
    sizes: dict[str, tuple[int, int]],
    differ: list[str],
) -> dict[str, dict[str, Any]]:
    """Each bar with its value; of repeated figures the slowest."""
    bars = {"first_token_s": (max(ups), f"<= {FIRST_TOKEN_S}", max(ups) <= FIRST_TOKEN_S)}
    for part, seen in outages.items():
        told, back = max(outage.told_s for outage in seen), max(outage.back_s for outage in seen)
        bars[f"{part}_told_s"] = (told, f"<= {TOLD_S}", told <= TOLD_S)
        bars[f"{part}_back_s"] = (back, f"<= {BACK_S}", back <= BACK_S)
    bars["draft_back_s"] = (max(draft_back), f"<= {BACK_S}", max(draft_back) <= BACK_S)
    for image, (added, budget) in sizes.items():
        bars[f"{image}_mb_over_base"] = (added, f"<= {budget}", added <= budget)
    bars["texts_that_differ"] = (len(differ), "== 0", not differ)
    return {name: {"value": value, "need": need, "holds": holds} for name, (value, need, holds) in bars.items()}


def conditions(load_before: float) -> dict[str, Any]:
    docker = containers.run("docker", "version", "--format", "{{.Server.Version}}")
    return {
        "docker": docker,
        "compose": containers.run(*containers.compose_command(), "version", "--short"),
        "storage_driver": containers.run("docker", "info", "--format", "{{.Driver}}"),
        "repetitions": REPETITIONS,
        "start": "images built, no volume; up --detach until a client has a token",
        "tokens": TOKENS,
        "modes": MODES,
        "prompts": [question.text for question in RAW],
        "load_average_before": load_before,
        "load_average_after": os.getloadavg()[0],
    }


if __name__ == "__main__":
    sys.exit(main())
