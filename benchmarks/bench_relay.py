"""Measures the relay on loopback against a direct connection and against itself as a plain 64 KiB copy loop.

All three are measured in turn within each repetition, and every bar is a median over repetitions of what was measured
within one, so that whatever else the machine does hits all three alike. Where the system permits, all of them run with
real-time priority for the same reason: the receipt says so, and nothing else runs for those 15 s. Writes `results/relay.json`; exits 1 if a bar fails.
"""

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "relay" / "target" / "release"
RELAY, LOAD = TARGET / "shardflow-relay", TARGET / "examples" / "load"
RESULT = Path(__file__).resolve().parent / "results" / "relay.json"

REPETITIONS = 31
PING_ROUNDS = 400  # round trips of each connection in one repetition
STREAM_MIB = 256  # pushed through each connection in one repetition
MODES = ("direct", "splice", "copy")
# figure: (need, whether a figure this far from it on this side holds)
BARS: dict[str, tuple[float, Callable[[float, float], bool]]] = {
    "added_round_trip_ms": (0.1, float.__le__),
    "throughput_ratio": (1.3, float.__ge__),
    "cpu_ratio": (0.7, float.__le__),
}


def main() -> int:
    build()
    load_before = os.getloadavg()[0]
    scheduling = raise_priority()
    with ExitStack() as stack:
        samples = measure(stack)
    figures = summarise(samples)
    bars = {name: bar(figures[name], *BARS[name]) for name in BARS}
    RESULT.parent.mkdir(exist_ok=True)
    result = {"figures": figures, "bars": bars, "receipt": receipt(load_before, scheduling)}
    RESULT.write_text(json.dumps(result, indent=2) + "\n")
    print_table(figures, bars)
    return 0 if all(entry["holds"] for entry in bars.values()) else 1


def build() -> None:
    manifest = str(ROOT / "relay" / "Cargo.toml")
    common = ["cargo", "build", "--quiet", "--release", "--locked", "--manifest-path", manifest]
    subprocess.run([*common, "--bin", "shardflow-relay", "--example", "load"], check=True)


def raise_priority() -> str:
    """Takes real-time priority for this process and those it starts, if it may; says which it has."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        return "normal"
    return "real-time"


def measure(stack: ExitStack) -> list[dict[str, dict[str, float]]]:
    """One entry for each repetition: mode -> round_trip_us, gb_per_s and, through a relay, cpu_s_per_gb."""
    ends = json.loads(stack.enter_context(process(LOAD, "serve")).stdout.readline())
    relays = {mode: stack.enter_context(relay(mode, ends)) for mode in ("splice", "copy")}
    repetition(relays, ends, MODES)  # warms connections, pipes and the page cache up; not counted
    samples = []
    for turn in range(REPETITIONS):
        order = MODES[turn % 3 :] + MODES[: turn % 3]
        samples.append(repetition(relays, ends, order))
        show_progress(turn + 1)
    return samples


def repetition(
    relays: dict[str, tuple[int, str]], ends: dict[str, str], order: tuple[str, ...]
) -> dict[str, dict[str, float]]:
    targets = [target(mode, "echo", relays, ends) for mode in order]
    pings = run_load("ping", str(PING_ROUNDS), *targets)
    sample = {mode: {"round_trip_us": float(pings[mode])} for mode in order}
    for mode in order:
        before = cpu_s(relays[mode][0]) if mode in relays else 0.0
        sent = run_load("stream", str(STREAM_MIB), target(mode, "sink", relays, ends))
        sample[mode]["gb_per_s"] = sent["bytes"] / sent["seconds"] / 1e9
        if mode in relays:
            sample[mode]["cpu_s_per_gb"] = (cpu_s(relays[mode][0]) - before) / (sent["bytes"] / 1e9)
    return sample


def target(mode: str, end: str, relays: dict[str, tuple[int, str]], ends: dict[str, str]) -> str:
    return f"{mode}={relays[mode][1]},{end}:1" if mode in relays else f"{mode}={ends[end]}"


def run_load(*arguments: str) -> dict[str, float]:
    done = subprocess.run([LOAD, *arguments], check=True, capture_output=True, text=True, timeout=120)
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


@contextmanager
def process(*command: str | Path) -> Iterator[Any]:
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield running
    finally:
        running.kill()
        running.wait()


@contextmanager
def relay(mode: str, ends: dict[str, str]) -> Iterator[tuple[int, str]]:
    """A relay in `mode` to both ends: its process id and its address."""
    routes = [argument for end in ends for argument in ("--route", f"{end}:1={ends[end]}")]
    flags = ["--copy"] if mode == "copy" else []
    with process(RELAY, "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", *routes, *flags) as running:
        line = json.loads(running.stdout.readline())
        yield running.pid, line["address"]


def cpu_s(pid: int) -> float:
    """Seconds of processor time that all threads of `pid` have used."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


def summarise(samples: list[dict[str, dict[str, float]]]) -> dict[str, Any]:
    def paired(figure: Callable[[dict[str, dict[str, float]]], float]) -> float:
        return round(median(figure(sample) for sample in samples), 4)

    modes = {
        mode: {name: paired(lambda sample, m=mode, n=name: sample[m][n]) for name in samples[0][mode]}  # type: ignore[misc]
        for mode in MODES
    }
    return {
        "modes": modes,
        "added_round_trip_ms": paired(lambda s: (s["splice"]["round_trip_us"] - s["direct"]["round_trip_us"]) / 1e3),
        "throughput_ratio": paired(lambda s: s["splice"]["gb_per_s"] / s["copy"]["gb_per_s"]),
        "cpu_ratio": paired(lambda s: s["splice"]["cpu_s_per_gb"] / s["copy"]["cpu_s_per_gb"]),
    }


def bar(value: float, need: float, holds: Callable[[float, float], bool]) -> dict[str, Any]:
    return {"value": value, "need": need, "holds": holds(value, need)}


def receipt(load_before: float, scheduling: str) -> dict[str, Any]:
    cpu = Path("/proc/cpuinfo").read_text()
    model = next(
        (line.split(":", 1)[1].strip() for line in cpu.splitlines() if line.startswith("model name")), "unknown"
    )
    return {
        "commit": output("git", "-C", str(ROOT), "rev-parse", "--verify", "HEAD"),
        "versions": {
            "relay": output(str(RELAY), "--version"),
            "rustc": output("rustc", "--version"),
            "kernel": platform.release(),
            "python": platform.python_version(),
        },
        "machine": {"cpu": model, "cores": os.cpu_count()},
        "conditions": {
            "network": "loopback",
            "scheduling": scheduling,
            "ping_bytes": 64,
            "ping_rounds": PING_ROUNDS,
            "stream_mib": STREAM_MIB,
            "repetitions": REPETITIONS,
            "order": "every mode once in each repetition, rotated; medians over repetitions",
            "load_average_before": load_before,
            "load_average_after": os.getloadavg()[0],
            "utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        },
    }


def output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else "none"


def show_progress(done: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{done}/{REPETITIONS}", end="\n" if done == REPETITIONS else "", file=sys.stderr, flush=True)


def print_table(figures: dict[str, Any], bars: dict[str, dict[str, Any]]) -> None:
    print(f"{'':22}{'round trip us':>14}{'GB/s':>8}{'relay CPU s/GB':>16}")
    for mode, row in figures["modes"].items():
        cpu = f"{row['cpu_s_per_gb']:16.3f}" if "cpu_s_per_gb" in row else f"{'-':>16}"
        print(f"{mode:22}{row['round_trip_us']:14.1f}{row['gb_per_s']:8.2f}{cpu}")
    for name, entry in bars.items():
        sign = "<=" if BARS[name][1] is float.__le__ else ">="
        print(
            f"{name:22}{entry['value']:14.3f}   need {sign} {entry['need']}   {'holds' if entry['holds'] else 'FAILS'}"
        )


if __name__ == "__main__":
    sys.exit(main())
