"""Measures the reference regime: every service, the relay and the link as they are, with *emulated* compute.

What two T4s 86 ms apart would see, each with half of a 7B model: stages of 37 and 42 ms up to 32 rows and 1.25 ms for
each row more, 3.3 ms a draft level, and a draft that is right as often as it is told to be. Hidden states are narrow,
so bandwidth is not emulated. Writes `results/reference.json`; exits 1 if a bar fails; goes on where it was interrupted.
Run from the top: `python -m benchmarks.bench_reference`.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.emulation.deployment import emulated, prompt
from benchmarks.emulation.law import Acceptance
from benchmarks.emulation.regime import Regime
from benchmarks.scheduling import real_time
from benchmarks.spec import bars, code, page, plots
from benchmarks.spec.bars import Bars, bar
from benchmarks.spec.figures import Cell, Figures
from benchmarks.spec.questions import Question
from benchmarks.spec.records import Records
from benchmarks.spec.series import Series, take
from benchmarks.spec.statistics import differing, weighted_rate
from shardflow.demo.receipt import receipt
from shardflow.topology import ROOT

RESULT = Path(__file__).resolve().parent / "results" / "reference.json"
PLOT = RESULT.with_suffix(".svg")
KIND = "emulated"
RTT_MS = 86.0
NEED = {0.65: 19.0, 0.78: 27.0, 0.9: 38.0}  # tokens a second, by acceptance
LINEAR = ("linear:4", "linear:8", "linear:12")
ORIGINAL_TOK_S = 18.75  # measured on two T4s: token-weighted, K = 8, acceptance .78, 6 ms a draft level
SLOW = Regime(Acceptance(0.78), level_ms=6.0)
PLAIN_TEXTS = 2  # without speculation every text takes the same time


def main() -> int:
    options = read_options()
    scheduling = real_time()
    conditions = {"texts": options.texts, "max_tokens": options.max_tokens, "rtt_ms": RTT_MS, "compute": "emulated"}
    records = Records(options.records, {**conditions, "code": code.digest()})
    for regime, arms, texts in plan(options.texts):
        asyncio.run(measure(regime, arms, texts, options.max_tokens, records))
    figures = Figures(records.all)
    judged = judge(figures)
    note = "emulated compute; bandwidth is not emulated: hidden states are 64 wide"
    regimes = [asdict(regime) for regime, _, _ in plan(options.texts)]
    result: dict[str, Any] = {
        "note": note,
        "figures": figures.table(),
        "bars": judged,
        "receipt": receipt(**conditions, scheduling=scheduling, regimes=regimes, order="arms of a text side by side"),
    }
    RESULT.write_text(json.dumps(result, indent=2) + "\n")
    title = "Reference regime, emulated compute, 86 ms"
    plots.lines(by_acceptance(figures), "acceptance of the draft's first candidate", title, PLOT)
    block = page.measured(result["receipt"]) + "\n" + page.bar_table(judged) + page.pictures({title: PLOT})
    page.publish("bench-reference", block)
    bars.show(judged)
    return bars.exit_code(judged)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measures the reference regime with emulated compute.")
    parser.add_argument("--texts", type=int, default=16, help="texts that are generated in every arm")
    parser.add_argument("--max-tokens", type=int, default=120, help="tokens of each text")
    parser.add_argument("--records", type=Path, default=ROOT / "results" / "reference.jsonl", help="raw records")
    return parser.parse_args()


def plan(texts: int) -> list[tuple[Regime, tuple[str, ...], int]]:
    """What to measure: each regime with its arms and how many texts."""
    steady = [(Regime(Acceptance(alpha)), (*LINEAR, "tree:31", "auto"), texts) for alpha in NEED]
    varying = [(Regime(Acceptance(alpha, varying=True)), ("auto",), texts) for alpha in NEED]
    return [(SLOW, ("linear:8",), texts), (SLOW, ("none",), min(PLAIN_TEXTS, texts)), *steady, *varying]


def name(regime: Regime) -> str:
    """What a regime is called in records and figures."""
    varying = ", varying" if regime.acceptance.varying else ""
    return f"emulated {regime.acceptance.alpha:g}{varying}, {regime.level_ms:g} ms"


async def measure(regime: Regime, arms: tuple[str, ...], texts: int, max_tokens: int, records: Records) -> None:
    questions = [Question(f"text-{number}", KIND, (tuple(prompt(number)),), chat=False) for number in range(texts)]
    series = Series(name(regime), RTT_MS, arms, (0.0,), questions, repetitions=1, max_tokens=max_tokens)
    with tempfile.TemporaryDirectory() as folder:
        topology = emulated(regime, Path(folder), RTT_MS / 2)
        await take(series, topology, records, deadline=time.monotonic() + 86_400)


def judge(figures: Figures) -> Bars:
    """Each bar of the reference regime with its value; rates are all tokens over all time."""
    judged: Bars = {}
    for alpha, need in NEED.items():
        steady, varying = cell(Regime(Acceptance(alpha))), cell(Regime(Acceptance(alpha, varying=True)))
        best = figures.best(weighted_rate, steady, lambda arm: arm in LINEAR)
        over_best = figures.ratio(weighted_rate, (steady, "auto"), (steady, best or ""))
        judged[f"auto_tok_s_at_{alpha:g}"] = bar(figures.estimate(weighted_rate, steady, "auto"), ">=", need)
        judged[f"auto_over_best_linear_at_{alpha:g}"] = bar(over_best, ">=", 1.35)
        added = figures.ratio(weighted_rate, (varying, "auto"), (steady, "auto"))
        judged[f"varying_confidence_adds_at_{alpha:g}"] = bar(added, ">=", 1.0)
    original = figures.estimate(weighted_rate, cell(SLOW), "linear:8")
    off = None if original is None else abs(original.value / ORIGINAL_TOK_S - 1)
    judged["linear8_off_the_original"] = bar(off, "<=", 0.1)
    judged["texts_that_differ"] = bar(len(differing(figures.records)), "==", 0)
    return judged


def by_acceptance(figures: Figures) -> dict[str, list[tuple[float, dict[str, float]]]]:
    """Tokens a second of each arm over the acceptance."""
    drawn: dict[str, list[tuple[float, dict[str, float]]]] = {}
    for varying, suffix in ((False, ""), (True, ", varying confidence")):
        for arm in (*LINEAR, "tree:31", "auto"):
            rates = {a: figures.estimate(weighted_rate, cell(Regime(Acceptance(a, varying))), arm) for a in NEED}
            points = [(alpha, asdict(rate)) for alpha, rate in rates.items() if rate is not None]
            drawn |= {arm + suffix: points} if points else {}
    return drawn


def cell(regime: Regime) -> Cell:
    """Where a regime's figures are."""
    return name(regime), RTT_MS, 0.0, KIND


if __name__ == "__main__":
    sys.exit(main())
