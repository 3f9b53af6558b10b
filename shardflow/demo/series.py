"""A measured series: a warm-up, then every answer of a schedule, with progress shown; then the figures of it all."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from shardflow import paint
from shardflow.client import ShardflowClient
from shardflow.demo import report
from shardflow.demo.prompts import LIVE_QUESTION
from shardflow.demo.receipt import receipt
from shardflow.demo.run import SEED, Sample, Schedule, measure
from shardflow.errors import ShardflowError
from shardflow.v1.orchestrator_pb2 import GetStatusResponse

_WARM_UP_TOKENS = 8


async def warm_up(client: ShardflowClient, schedule: Schedule) -> None:
    """One short answer per mode, not counted."""
    for mode in schedule.modes:
        await measure(client, LIVE_QUESTION, mode, 0, _WARM_UP_TOKENS)


async def take(client: ShardflowClient, schedule: Schedule, console: Console) -> list[Sample]:
    """Every answer of the schedule; a bar shows progress in a terminal, a line per answer elsewhere."""
    runs = schedule.runs()
    samples = []
    with _progress(console) as progress:
        task = progress.add_task("measuring", total=len(runs), last="")
        for question, mode, repetition in runs:
            sample = await measure(client, question, mode, repetition, schedule.tokens(question))
            samples.append(sample)
            rate = report.tok_s(sample)
            last = f"{question.name} {mode}" + (f" {rate:.1f} tok/s" if rate is not None else "")
            progress.update(task, advance=1, last=last)
            if not console.is_terminal:
                paint.say(console, f"{len(samples)}/{len(runs)} {last}")
    return samples


def evaluate(
    samples: list[Sample],
    status: GetStatusResponse,
    schedule: Schedule,
    relay_bytes: dict[str, int] | None,
    **conditions: Any,
) -> dict[str, Any]:
    """What is written to JSON: the figures, the conditions under which they were taken, and every answer."""
    common = {
        "temperature": 0.0,
        "seeds": [SEED],
        "warm_up": f"one answer of {_WARM_UP_TOKENS} tokens per mode, not counted",
        "schedule": asdict(schedule),
    }
    rtt_ms = max(link.rtt_ms for link in status.links)
    return {
        **report.summarise(samples, rtt_ms, relay_bytes),
        "receipt": receipt(**conditions, **common),
        "samples": [_brief(sample) for sample in samples],
    }


def present(figures: dict[str, Any], console: Console, json_file: Path | None) -> None:
    """Prints the tables and what they come to, and writes the figures to `json_file`, if there is one.

    Raises ShardflowError when the texts differ, which no mode of speculation may bring about.
    """
    console.print(report.speed_table(figures), report.time_table(figures))
    carried = figures["relay_bytes"]
    paint.say(console, f"longest round trip of a link {figures['rtt_ms']:.1f} ms")
    if carried is not None:
        paint.say(console, f"through the relay: {carried:,} bytes")
    if figures["speedup"] is not None:
        best = f"{figures['speedup']:.2f} with {figures['spec_arm']}"
        paint.say(console, f"speed-up {best}, the fastest mode of this run")
    if json_file is not None:
        json_file.write_text(json.dumps(figures, indent=2, ensure_ascii=False) + "\n")
        paint.say(console, f"figures written to {json_file}")
    if not figures["identical"]:
        raise ShardflowError(f"texts differ: {', '.join(figures['differing'])}")
    console.print(Text("texts identical in all modes and repetitions", style="bold green"))


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    trailing = (TimeRemainingColumn(), TextColumn("{task.fields[last]}"))
    return Progress(*columns, *trailing, console=console, disable=not console.is_terminal)


def _brief(sample: Sample) -> dict[str, Any]:
    return {
        "question": sample.question,
        "mode": sample.mode,
        "repetition": sample.repetition,
        "tokens": len(sample.token_ids),
        "tok_s": report.tok_s(sample),
        "first_token_ms": sample.first_token_s * 1000,
        "drafted": sample.drafted,
        "accepted": sample.accepted,
        "text": sample.text,
    }
