"""Measures the relay on loopback against a direct connection and against itself as a plain 64 KiB copy loop.

All three are measured in turn within each repetition, and every bar is a median over repetitions of what was measured
within one, so that whatever else the machine does hits all three alike. For the streams the relay has one processor and
the load the others: it is the relay's speed that counts, not how three busy processes share two processors. For the
round trips the system places everything. Writes `results/relay.json`; exits 1 if a bar fails.
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

ALL_CPUS = os.sched_getaffinity(0)
RELAY_CPUS = {max(ALL_CPUS)}
LOAD_CPUS = ALL_CPUS - RELAY_CPUS or ALL_CPUS  # with a single processor both share it
REPETITIONS = 31
PING_ROUNDS = 400  # round trips of each connection in one repetition
STREAM_MIB = 128  # pushed through each connection in one repetition
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
    with ExitStack() as stack:
        samples = measure(stack)
    figures = summarise(samples)
    bars = {name: bar(figures[name], *BARS[name]) for name in BARS}
    RESULT.parent.mkdir(exist_ok=True)
    result = {"figures": figures, "bars": bars, "receipt": receipt(load_before)}
    RESULT.write_text(json.dumps(result, indent=2) + "\n")
    print_table(figures, bars)
    return 0 if all(entry["holds"] for entry in bars.values()) else 1


def build() -> None:
    manifest = str(ROOT / "relay" / "Cargo.toml")
    common = ["cargo", "build", "--quiet", "--release", "--locked", "--manifest-path", manifest]
    subprocess.run([*common, "--bin", "shardflow-relay", "--example", "load"], check=True)


def measure(stack: ExitStack) -> list[dict[str, dict[str, float]]]:
    """One entry for each repetition: mode -> round_trip_us, gb_per_s and, through a relay, cpu_s_per_gb."""
    serving = stack.enter_context(process(LOAD, "serve"))
    ends = json.loads(serving.stdout.readline())
    os.sched_setaffinity(serving.pid, LOAD_CPUS)  # its main thread, which starts a thread for each stream
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
    place(relays, ALL_CPUS, ALL_CPUS)
    targets = [target(mode, "echo", relays, ends) for mode in order]
    pings = run_load("ping", str(PING_ROUNDS), *targets)
    sample = {mode: {"round_trip_us": float(pings[mode])} for mode in order}
    place(relays, RELAY_CPUS, LOAD_CPUS)
    for mode in order:
        before = cpu_s(relays[mode][0]) if mode in relays else 0.0
        sent = run_load("stream", str(STREAM_MIB), target(mode, "sink", relays, ends))
        sample[mode]["gb_per_s"] = sent["bytes"] / sent["seconds"] / 1e9
        if mode in relays:
            sample[mode]["cpu_s_per_gb"] = (cpu_s(relays[mode][0]) - before) / (sent["bytes"] / 1e9)
    return sample


def place(relays: dict[str, tuple[int, str]], relay_cpus: set[int], load_cpus: set[int]) -> None:
    """Binds the relays, and this process with the load that it starts from now on, to processors."""
    for pid, _ in relays.values():
        os.sched_setaffinity(pid, relay_cpus)
    os.sched_setaffinity(0, load_cpus)


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


def receipt(load_before: float) -> dict[str, Any]:
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
            "stream_processors": {"relay": sorted(RELAY_CPUS), "load": sorted(LOAD_CPUS)},
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
