"""Measures speculation: modes against each other by kind of task, distance and temperature, SmolLM2 over two shards.

Every question in every arm, interleaved; the shipped head as draft, and beside it a draft that knows nothing and one
that knows all. Raw records go to `results/spec.jsonl`, so that a run may be interrupted and goes on where it was.
Writes `benchmarks/results/spec.json`, its plots, and the tables of `docs/speculation.md`; exits 1 if a bar fails.
Run from the top: `python -m benchmarks.bench_spec`.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.scheduling import real_time
from benchmarks.spec import bars, code, page
from benchmarks.spec.asking import SEED
from benchmarks.spec.bars import Bars, bar
from benchmarks.spec.drafts import random_draft
from benchmarks.spec.figures import ALL, Cell, Figures
from benchmarks.spec.questions import DEFAULT, KINDS, RAW_KIND, Question, raw, read
from benchmarks.spec.records import Records
from benchmarks.spec.series import Series, take
from benchmarks.spec.statistics import Estimate, differing, mean_rate, tokens_per_round
from shardflow.demo.receipt import receipt
from shardflow.topology import DEFAULT_DRAFT, DEFAULT_MODEL, ROOT, Topology

RESULT = Path(__file__).resolve().parent / "results" / "spec.json"
ARMS = ("none", "linear:2", "linear:4", "linear:8", "tree:31", "auto")
HOME_MS = 86.0  # the distance of the bars
DISTANCES_MS = (86.0, 0.0, 20.0, 150.0, 300.0)
TEMPERATURES = (0.0, 0.8)
HEAD, RANDOM, OWN = "head", "random", "target"  # the drafts


def main() -> int:
    options = read_options()
    scheduling = real_time()
    conditions = {"questions": options.questions.name, "max_tokens": options.max_tokens, "draft": options.draft.name}
    records = Records(options.records, {**conditions, "code": code.digest()})
    complete = asyncio.run(measure(options, records))
    figures = Figures(records.all)
    judged = judge(figures)
    asked = {name: str(value) for name, value in vars(options).items() if name != "records"}
    result = {
        "complete": complete,
        "figures": figures.table(),
        "bars": judged,
        "receipt": receipt(**conditions, scheduling=scheduling, seed=SEED, options=asked, order="arms side by side"),
    }
    RESULT.write_text(json.dumps(result, indent=2) + "\n")
    page.write(result, RESULT.parent)
    bars.show(judged)
    return bars.exit_code(judged)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measures modes of speculation on SmolLM2 over two shards.")
    parser.add_argument("--questions", type=Path, default=DEFAULT, help="JSON lines in Spec-Bench's form")
    parser.add_argument("--draft", type=Path, default=DEFAULT_DRAFT, help="directory of the draft")
    parser.add_argument("--arms", type=_texts, default=ARMS, help="modes, separated by commas")
    parser.add_argument("--kinds", type=_texts, default=KINDS, help="kinds of task, separated by commas")
    parser.add_argument("--rtt", type=_numbers, default=DISTANCES_MS, help="round trips in ms, separated by commas")
    parser.add_argument("--temperatures", type=_numbers, default=TEMPERATURES, help="separated by commas")
    parser.add_argument("--limit", type=int, help="questions of each kind at 86 ms")
    parser.add_argument("--far-limit", type=int, default=2, help="questions of each kind at other distances")
    parser.add_argument("--max-tokens", type=int, default=64, help="tokens of an answer at most")
    parser.add_argument("--repetitions", type=int, default=3, help="answers to each question in each arm")
    parser.add_argument("--hours", type=float, default=24.0, help="begin no answer after so long")
    parser.add_argument("--records", type=Path, default=ROOT / "results" / "spec.jsonl", help="raw records")
    return parser.parse_args()


async def measure(options: argparse.Namespace, records: Records) -> bool:
    """Takes what is missing, the bars' part first; whether all of it is there."""
    deadline = time.monotonic() + options.hours * 3600
    with tempfile.TemporaryDirectory() as folder:
        drafts = {HEAD: options.draft, OWN: DEFAULT_MODEL, RANDOM: random_draft(DEFAULT_MODEL, Path(folder))}
        complete = True
        for series in plan(options):
            topology = Topology(draft=drafts[series.draft], delay_ms=series.rtt_ms / 2)
            complete = await take(series, topology, records, deadline) and complete
    return complete


def plan(options: argparse.Namespace) -> Iterator[Series]:
    """What to measure: at home everything; far away, and with other drafts, a part."""
    few = read(options.questions, options.kinds, options.far_limit)
    near = [*read(options.questions, options.kinds, options.limit), *raw()]
    for rtt_ms in options.rtt:
        asked = near if rtt_ms == HOME_MS else few
        yield _series(options, HEAD, rtt_ms, options.arms, options.temperatures, asked)
        if rtt_ms == HOME_MS:
            yield _series(options, RANDOM, rtt_ms, ("none", "auto"), (0.0,), few)
            yield _series(options, OWN, rtt_ms, ("none", "linear:8", "auto"), (0.0,), raw())


def _series(
    options: argparse.Namespace,
    draft: str,
    rtt_ms: float,
    arms: tuple[str, ...],
    temperatures: tuple[float, ...],
    questions: list[Question],
) -> Series:
    return Series(draft, rtt_ms, arms, temperatures, questions, options.repetitions, options.max_tokens)


def judge(figures: Figures) -> Bars:
    """Each bar with its value: at 86 ms, greedy, on the benchmark questions where nothing else is said."""
    home: Cell = (HEAD, HOME_MS, 0.0, ALL)
    best = figures.best(mean_rate, home, lambda arm: arm.startswith("linear:")) or ""
    sampled: Cell = (HEAD, HOME_MS, 0.8, ALL)
    unknowing: Cell = (RANDOM, HOME_MS, 0.0, ALL)
    worst = _worst_kind(figures)
    return {
        "auto_over_best_linear": bar(figures.ratio(mean_rate, (home, "auto"), (home, best)), ">=", 1.15),
        "auto_over_none_on_the_worst_kind": bar(worst, ">=", 0.97),
        "auto_over_none_with_a_random_draft": bar(
            figures.ratio(mean_rate, (unknowing, "auto"), (unknowing, "none")), ">=", 0.97
        ),
        "tokens_per_round_auto_over_linear8": bar(
            figures.ratio(tokens_per_round, (home, "auto"), (home, "linear:8")), ">=", 1.3
        ),
        "sampled_over_greedy": bar(figures.ratio(mean_rate, (sampled, "auto"), (home, "auto")), ">=", 0.85),
        "tok_s_target_as_own_draft": bar(
            figures.estimate(mean_rate, (OWN, HOME_MS, 0.0, RAW_KIND), "auto"), ">=", 24.0
        ),
        "drafting_hidden": bar(figures.hidden_share(home, "auto"), ">=", 0.7),
        "texts_that_differ": bar(len(differing(figures.records)), "==", 0),
    }


def _worst_kind(figures: Figures) -> Estimate | None:
    """`auto` over `none` on the kind of task where that is least."""
    cells: list[Cell] = [(HEAD, HOME_MS, 0.0, kind) for kind in (*KINDS, RAW_KIND)]
    found = [ratio for cell in cells if (ratio := figures.ratio(mean_rate, (cell, "auto"), (cell, "none"))) is not None]
    return min(found, key=lambda ratio: ratio.value, default=None)


def _texts(value: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.split(","))


def _numbers(value: str) -> tuple[float, ...]:
    return tuple(float(part) for part in value.split(","))


if __name__ == "__main__":
    sys.exit(main())
