"""From measured answers to figures, and from figures to a table. Pure; no figure is written here by hand."""

from collections.abc import Iterable, Sequence
from statistics import fmean, median
from typing import Any

from rich import box
from rich.table import Table

from shardflow.demo.run import Round, Sample

PARTS = ("network", "compute", "draft", "queue", "other", "orchestrator")


def summarise(samples: Sequence[Sample], rtt_ms: float, relay_bytes: dict[str, int] | None) -> dict[str, Any]:
    """The figures of a run, as written to JSON; times in milliseconds, rates in tokens per second.

    `speedup`, `tok_s_spec`, `acceptance`, `tokens_per_round` and `round_ms` are those of the fastest speculative arm,
    which `spec_arm` names; they are None where there is no such arm, or no plain one to compare with. `relay_bytes`:
    what the relay has carried meanwhile, by direction, if known.
    """
    modes = list(dict.fromkeys(sample.mode for sample in samples))
    arms = {mode: _arm([sample for sample in samples if sample.mode == mode]) for mode in modes}
    plain = arms.get("none")
    fastest = max((mode for mode in arms if mode != "none"), key=lambda mode: arms[mode]["tok_s"] or 0.0, default=None)
    best = arms[fastest] if fastest is not None else None
    different = differing(samples)
    return {
        "identical": not different,
        "differing": different,
        "speedup": _ratio(best["tok_s"], plain["tok_s"]) if best and plain else None,
        "speedup_token_weighted": (
            _ratio(best["tok_s_token_weighted"], plain["tok_s_token_weighted"]) if best and plain else None
        ),
        "spec_arm": fastest,
        "tok_s_plain": plain["tok_s"] if plain else None,
        "tok_s_spec": best["tok_s"] if best else None,
        "acceptance": best["acceptance"] if best else None,
        "tokens_per_round": best["tokens_per_round"] if best else None,
        "rtt_ms": rtt_ms,
        "round_ms": (best or plain or {}).get("round_ms"),
        "relay_bytes": None if relay_bytes is None else sum(relay_bytes.values()),
        "relay_bytes_by_direction": relay_bytes,
        "arms": arms,
    }


def differing(samples: Iterable[Sample]) -> list[str]:
    """Questions whose answers are not token for token the same in all arms and repetitions."""
    answers: dict[str, set[tuple[tuple[int, ...], str]]] = {}
    for sample in samples:
        answers.setdefault(sample.question, set()).add((sample.token_ids, sample.text))
    return sorted(question for question, seen in answers.items() if len(seen) > 1)


def tok_s(sample: Sample) -> float | None:
    """(tokens - 1) / time after the first token; None for an answer that came in one piece."""
    return _ratio(len(sample.token_ids) - 1, sample.decode_s)


def speed_table(figures: dict[str, Any]) -> Table:
    """One line per arm: how fast, and why."""
    plain = figures["arms"].get("none")
    grid = _grid("Speed", "mode", "tok/s", "weighted", "speed-up", "accepted", "tok/round", "first ms")
    for mode, arm in figures["arms"].items():
        speedup = _ratio(arm["tok_s"], plain["tok_s"]) if plain else None
        grid.add_row(
            mode, _figure(arm["tok_s"], 2), _figure(arm["tok_s_token_weighted"], 2), _figure(speedup, 2),
            _figure(arm["acceptance"], 3), _figure(arm["tokens_per_round"], 2), _figure(arm["first_token_ms"], 0),
        )  # fmt: skip
    grid.caption = "tok/s: mean of the questions' medians; weighted: all tokens over all time, both after the first"
    return grid


def time_table(figures: dict[str, Any]) -> Table:
    """One line per arm: the median of each part of a round."""
    grid = _grid("Where a round's milliseconds go (medians)", "mode", "round", *PARTS[:-1], "rest")
    for mode, arm in figures["arms"].items():
        grid.add_row(mode, *(_figure(arm["round_ms"][part], 1) for part in ("total", *PARTS)))
    return grid


def _arm(samples: Sequence[Sample]) -> dict[str, Any]:
    rounds = [each for sample in samples for each in sample.rounds]
    later_tokens = sum(len(sample.token_ids) - 1 for sample in samples)
    return {
        "tok_s": _mean_of_questions(samples),
        "tok_s_token_weighted": _ratio(later_tokens, sum(sample.decode_s for sample in samples)),
        "acceptance": _ratio(sum(s.accepted for s in samples), sum(s.drafted for s in samples)),
        "tokens_per_round": _ratio(later_tokens, len(rounds)),
        "first_token_ms": median(sample.first_token_s for sample in samples) * 1000,
        "answers": len(samples),
        "tokens": sum(len(sample.token_ids) for sample in samples),
        "rounds": len(rounds),
        "round_ms": _round_parts(rounds),
    }


def _mean_of_questions(samples: Sequence[Sample]) -> float | None:
    rates: dict[str, list[float]] = {}
    for sample in samples:
        rate = tok_s(sample)
        if rate is not None:
            rates.setdefault(sample.question, []).append(rate)
    return fmean(median(each) for each in rates.values()) if rates else None


def _round_parts(rounds: Sequence[Round]) -> dict[str, Any]:
    """Medians of the parts; they need not add up to the median of the whole, each is one of its own."""
    if not rounds:
        return dict.fromkeys(("total", *PARTS, "compute_by_shard"))
    return {
        "total": median(each.total for each in rounds),
        "network": median(each.network for each in rounds),
        "compute": median(sum(each.compute) for each in rounds),
        "draft": median(each.draft for each in rounds),
        "queue": median(each.queue for each in rounds),
        "other": median(each.other for each in rounds),
        "orchestrator": median(each.orchestrator for each in rounds),
        "compute_by_shard": [median(column) for column in zip(*(each.compute for each in rounds), strict=True)],
    }


def _ratio(above: float | None, below: float | None) -> float | None:
    return None if above is None or not below else above / below


def _figure(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _grid(title: str, *headings: str) -> Table:
    grid = Table(title=title, box=box.SIMPLE_HEAD)
    for heading in headings:
        grid.add_column(heading, justify="left" if heading == "mode" else "right", no_wrap=True)
    return grid
