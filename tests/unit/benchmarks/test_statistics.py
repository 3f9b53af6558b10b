"""Rates, ratios and intervals of made-up records, with literal values."""

import numpy as np
import pytest

from benchmarks.spec.statistics import (
    common,
    differing,
    estimate,
    hidden_share,
    mean_rate,
    ratio,
    tokens_per_round,
    totals,
    weighted_rate,
)
from tests.unit.benchmarks.records import record


def test_the_rate_of_a_question_is_the_median_of_its_repetitions() -> None:
    taken = totals([record("none", "a", rate=rate, repetition=n) for n, rate in enumerate((8.0, 2.0, 9.0))])
    assert taken.questions == ("a",)
    assert taken.rate.tolist() == [8.0]
    assert taken.tokens.tolist() == [120.0]


def test_mean_and_weighted_rate_differ_by_the_questions_lengths() -> None:
    taken = totals([record("none", "a", rate=10.0, tokens=100), record("none", "b", rate=20.0, tokens=20)])
    assert estimate(mean_rate, taken).value == 15.0
    assert estimate(weighted_rate, taken).value == pytest.approx(120 / 11)


def test_tokens_a_round_are_all_tokens_over_all_rounds() -> None:
    taken = totals([record("auto", "a", tokens=30, rounds=10), record("auto", "b", tokens=10, rounds=10)])
    assert estimate(tokens_per_round, taken).value == 2.0


def test_an_answer_of_one_token_has_no_rate() -> None:
    assert totals([record("none", "a", tokens=0), record("none", "b")]).questions == ("b",)


def test_a_ratio_is_sure_when_every_question_says_the_same() -> None:
    plain = totals([record("none", name, rate=rate) for name, rate in zip("abcd", (2.0, 4.0, 8.0, 16.0), strict=True)])
    fast = totals([record("auto", name, rate=rate) for name, rate in zip("abcd", (3.0, 6.0, 12.0, 24.0), strict=True)])
    found = ratio(mean_rate, fast, plain)
    assert (found.value, found.low, found.high) == pytest.approx((1.5, 1.5, 1.5))
    assert estimate(mean_rate, plain).low < 4.0 < 7.5 < 11.0 < estimate(mean_rate, plain).high


def test_an_interval_covers_the_truth_as_often_as_it_says() -> None:
    random = np.random.default_rng(5)
    covered = 0
    for _ in range(60):
        rates = random.normal(10.0, 2.0, size=30)
        found = estimate(mean_rate, totals([record("none", f"q{n}", rate=rate) for n, rate in enumerate(rates)]))
        covered += found.low <= 10.0 <= found.high
    assert 53 <= covered <= 60


def test_a_ratio_needs_the_same_questions() -> None:
    with pytest.raises(ValueError, match="same questions"):
        ratio(mean_rate, totals([record("auto", "a")]), totals([record("none", "b")]))


def test_arms_are_cut_to_what_they_share() -> None:
    arms = {
        "auto": totals([record("auto", "a", rate=1.0), record("auto", "b", rate=2.0)]),
        "none": totals([record("none", "b", rate=3.0), record("none", "c", rate=4.0)]),
    }
    cut = common(arms)
    assert {name: (arm.questions, arm.rate.tolist()) for name, arm in cut.items()} == {
        "auto": (("b",), [2.0]), "none": (("b",), [3.0]),
    }  # fmt: skip


def test_texts_are_compared_over_arms_and_drafts_but_not_over_temperatures() -> None:
    records = [
        record("none", "a", answer="x"),
        record("auto", "a", answer="x", draft="random"),
        record("auto", "a", answer="y", temperature=0.8),
        record("none", "b", answer="x"),
        record("auto", "b", answer="z", repetition=1),
    ]
    assert differing(records) == ["b"]


def test_the_hidden_share_is_of_all_drafting() -> None:
    assert (
        hidden_share([record("auto", "a", draft_ms=10.0, hidden_ms=20.0), record("auto", "b", hidden_ms=10.0)]) == 0.75
    )
    assert hidden_share([record("none", "a")]) is None
