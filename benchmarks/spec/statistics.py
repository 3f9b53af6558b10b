"""From records to figures: rates by arm, ratios between arms, with confidence intervals paired by question. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from benchmarks.spec.records import Record

RESAMPLES = 1000
_SEED = 0

Array = np.ndarray


@dataclass(frozen=True)
class Estimate:
    """A figure with the 95 % confidence interval over questions."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Totals:
    """What each question comes to in one arm; one entry a question, in the order of `questions`."""

    questions: tuple[str, ...]
    rate: Array  # tokens a second: the median of the repetitions
    tokens: Array  # of all repetitions
    rounds: Array
    seconds: Array


def totals(records: Iterable[Record]) -> Totals:
    """The records of one arm by question; those of one token, which have no duration, do not count."""
    by_question: dict[str, list[Record]] = {}
    for record in records:
        if record.tokens and record.seconds:
            by_question.setdefault(record.key.question, []).append(record)
    groups = [by_question[name] for name in sorted(by_question)]
    return Totals(
        tuple(sorted(by_question)),
        np.array([median(each.tokens / each.seconds for each in group) for group in groups]),
        np.array([sum(each.tokens for each in group) for group in groups], dtype=float),
        np.array([sum(each.rounds for each in group) for group in groups], dtype=float),
        np.array([sum(each.seconds for each in group) for group in groups]),
    )


def common(arms: Mapping[str, Totals]) -> dict[str, Totals]:
    """The arms cut to the questions that all of them have."""
    shared = set.intersection(*(set(arm.questions) for arm in arms.values())) if arms else set()
    return {name: _only(arm, shared) for name, arm in arms.items()}


def mean_rate(arm: Totals, chosen: Array) -> float:
    """Mean of the questions' tokens a second."""
    return float(arm.rate[chosen].mean())


def weighted_rate(arm: Totals, chosen: Array) -> float:
    """All tokens over all time."""
    return float(arm.tokens[chosen].sum() / arm.seconds[chosen].sum())


def tokens_per_round(arm: Totals, chosen: Array) -> float:
    """All tokens over all rounds."""
    return float(arm.tokens[chosen].sum() / arm.rounds[chosen].sum())


Figure = Callable[[Totals, Array], float]


def estimate(figure: Figure, arm: Totals) -> Estimate:
    """A figure of one arm, which must have a question."""
    return _bootstrap(lambda chosen: figure(arm, chosen), len(arm.questions))


def ratio(figure: Figure, above: Totals, below: Totals) -> Estimate:
    """A figure of one arm over that of another, both of the same questions, resampled together."""
    if above.questions != below.questions:
        raise ValueError("the arms are not of the same questions")
    return _bootstrap(lambda chosen: figure(above, chosen) / figure(below, chosen), len(above.questions))


def _bootstrap(figure: Callable[[Array], float], questions: int) -> Estimate:
    random = np.random.default_rng(_SEED)
    resampled = [figure(random.integers(questions, size=questions)) for _ in range(RESAMPLES)]
    low, high = np.percentile(resampled, [2.5, 97.5])
    return Estimate(figure(np.arange(questions)), float(low), float(high))


def _only(arm: Totals, questions: set[str]) -> Totals:
    places: Sequence[int] = [place for place, name in enumerate(arm.questions) if name in questions]
    kept = tuple(arm.questions[place] for place in places)
    chosen = np.array(places, dtype=int)
    return Totals(kept, arm.rate[chosen], arm.tokens[chosen], arm.rounds[chosen], arm.seconds[chosen])


def differing(records: Iterable[Record]) -> list[str]:
    """Questions that were answered in more than one way at one temperature, whatever the arm, draft and distance."""
    answers: dict[tuple[str, float], set[str]] = {}
    for record in records:
        answers.setdefault((record.key.question, record.key.temperature), set()).add(record.answer)
    return sorted({question for (question, _), seen in answers.items() if len(seen) > 1})


def hidden_share(records: Iterable[Record]) -> float | None:
    """Share of the draft's work for which nobody waited; None if it did no work."""
    chosen = list(records)
    hidden, waited = sum(record.hidden_ms for record in chosen), sum(record.draft_ms for record in chosen)
    return hidden / (hidden + waited) if hidden + waited else None
