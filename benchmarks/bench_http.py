"""Measures what the HTTP layer adds to each chunk of a stream, over the gRPC stream of the same orchestrator.

Shards and draft are stand-ins that compute nothing, all in this one process together with both clients, so that what is
left is the cost of the layers and of reading them: an upper bound. One token a round, so every chunk is one token. In
each repetition both are measured, in turns; every figure is a median over repetitions of a difference within one.
Writes `results/http.json`; exits 1 if a bar fails. Run it from the top: `python -m benchmarks.bench_http`.
"""

import asyncio
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import fastapi
import grpc
import uvicorn

from shardflow import __version__
from tests.fakes import Target
from tests.orchestrating import System, ask, system, write_model

ROOT = Path(__file__).resolve().parent.parent
RESULT = Path(__file__).resolve().parent / "results" / "http.json"
REPETITIONS = 30
CHUNKS = 200  # tokens of one stream
PROMPT = "hello"
NEED_MS = 2.0


def main() -> int:
    load_before = os.getloadavg()[0]
    samples = asyncio.run(measure())
    figures = summarise(samples)
    value = figures["added_ms_per_chunk"]
    bars = {"added_ms_per_chunk": {"value": value, "need": NEED_MS, "holds": value <= NEED_MS}}
    RESULT.parent.mkdir(exist_ok=True)
    result = {"figures": figures, "bars": bars, "receipt": receipt(load_before)}
    RESULT.write_text(json.dumps(result, indent=2) + "\n")
    for name, figure in figures.items():
        print(f"{name:28}{figure:8.3f}")
    print(f"need <= {NEED_MS} ms per chunk: {'holds' if value <= NEED_MS else 'FAILS'}")
    return 0 if value <= NEED_MS else 1


async def measure() -> list[dict[str, list[float]]]:
    """One entry for each repetition: wire -> times at which the request was sent and each chunk was read."""
    target = Target()
    await target.start()
    samples = []
    with tempfile.TemporaryDirectory() as folder:
        model = write_model(Path(folder) / "bytes")
        async with system(model, target, http_listen="127.0.0.1:0") as running:
            wires = {"grpc": grpc_times, "http": http_times}
            for turn in range(REPETITIONS + 1):
                order = list(wires) if turn % 2 else list(wires)[::-1]
                samples.append({wire: await wires[wire](running) for wire in order})
    await target.stop()
    return samples[1:]  # the first warms everything up


async def grpc_times(running: System) -> list[float]:
    times = [time.perf_counter()]
    async for _ in running.call(ask(PROMPT, k=0, max_tokens=CHUNKS)):
        times.append(time.perf_counter())
    return times


async def http_times(running: System) -> list[float]:
    assert running.service.http is not None
    host, _, port = running.service.http.address.rpartition(":")
    body = {"prompt": PROMPT, "max_tokens": CHUNKS, "stream": True, "shardflow": {"speculation": "none"}}
    data = json.dumps(body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-type: application/json\r\n"
    reader, writer = await asyncio.open_connection(host, int(port))
    times = [time.perf_counter()]
    writer.write(f"{head}content-length: {len(data)}\r\n\r\n".encode() + data)
    while line := await reader.readline():
        if line.startswith(b"data: {") and json.loads(line[6:])["choices"][0]["text"]:
            times.append(time.perf_counter())
    writer.close()
    return times


def summarise(samples: list[dict[str, list[float]]]) -> dict[str, float]:
    assert all(len(times) == CHUNKS + 1 for sample in samples for times in sample.values())

    def gap_ms(times: list[float]) -> float:
        return 1000 * median(later - earlier for earlier, later in pairwise(times[1:]))

    def mean_ms(times: list[float]) -> float:
        return 1000 * (times[-1] - times[1]) / (CHUNKS - 1)

    def first_ms(times: list[float]) -> float:
        return 1000 * (times[1] - times[0])

    return {
        "grpc_ms_per_chunk": round(median(gap_ms(sample["grpc"]) for sample in samples), 4),
        "http_ms_per_chunk": round(median(gap_ms(sample["http"]) for sample in samples), 4),
        "added_ms_per_chunk": round(median(gap_ms(s["http"]) - gap_ms(s["grpc"]) for s in samples), 4),
        "added_ms_per_chunk_mean": round(median(mean_ms(s["http"]) - mean_ms(s["grpc"]) for s in samples), 4),
        "added_ms_first_chunk": round(median(first_ms(s["http"]) - first_ms(s["grpc"]) for s in samples), 4),
    }


def receipt(load_before: float) -> dict[str, Any]:
    cpu = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--verify", "HEAD"], capture_output=True, text=True)
    return {
        "commit": commit.stdout.strip() if commit.returncode == 0 else "none",
        "versions": {
            "shardflow": __version__,
            "python": platform.python_version(),
            "grpcio": grpc.__version__,
            "fastapi": fastapi.__version__,
            "uvicorn": uvicorn.__version__,
        },
        "machine": {"cpu": cpu[0].split(":", 1)[1].strip() if cpu else "unknown", "cores": os.cpu_count()},
        "conditions": {
            "network": "loopback",
            "processes": "one, with both clients in it",
            "shards": "two stand-ins that compute nothing",
            "chunks": CHUNKS,
            "repetitions": REPETITIONS,
            "order": "both once in each repetition, in turns; medians over repetitions",
            "load_average_before": load_before,
            "load_average_after": os.getloadavg()[0],
            "utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        },
    }


if __name__ == "__main__":
    sys.exit(main())
