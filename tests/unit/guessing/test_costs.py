"""What rows cost: learned curves, the price of a guess, and the load of others."""

import pytest

from services.orchestrator.guessing.costs import Costs, Curve
from services.orchestrator.rounds import Stage, Timing


def timing(compute_ms: float, *, rows: int = 1, round_ms: float = 100.0, flight_ms: float = 90.0) -> Timing:
    return Timing(round_ms, 0.0, flight_ms, [Stage("a", 0.0, compute_ms, 0.0, rows)])


def test_nothing_is_known_at_first() -> None:
    assert Curve(0.5).at(9) == 0.0


def test_one_observation_scales_the_assumed_shape() -> None:
    curve = Curve(0.5)
    curve.learn(1, 10.0)
    assert [curve.at(rows) for rows in (1, 3, 9)] == pytest.approx([10.0, 20.0, 50.0])


def test_observations_between_knots_count_for_both() -> None:
    curve = Curve(0.0)
    for _ in range(300):
        curve.learn(1, 10.0)
        curve.learn(14, 24.0)  # half-way from 12 to 16
    assert curve.at(1) == pytest.approx(10.0, abs=0.1)
    assert curve.at(14) == pytest.approx(24.0, abs=0.1)


def test_an_outlier_counts_in_part() -> None:
    curve = Curve(0.0)
    curve.learn(1, 10.0)
    curve.learn(1, 1000.0)
    assert curve.at(1) == pytest.approx(12.0)  # a tenth of the way to 30


def test_a_step_in_the_cost_is_found() -> None:
    """As on a GPU whose passes cost the same up to 32 rows."""
    costs = Costs()
    for _ in range(50):
        for rows in (1, 32, 36, 40):
            costs.learn_pass(timing(40.0 + 2.5 * max(0, rows - 32), rows=rows), rows, 0.0)
    assert [round(costs.flight_ms(rows), 1) for rows in (1, 32, 36, 40)] == [40.0, 40.0, 50.0, 60.0]


def test_the_price_is_what_other_rounds_bring_in_the_time() -> None:
    costs = Costs()
    for _ in range(200):
        costs.learn_pass(timing(10.0), 1, 0.0)
        costs.learn_pass(timing(30.0, rows=2), 2, 0.0)
        costs.learn_round(timing(10.0, flight_ms=60.0), 1, 2)
    assert costs.rate == pytest.approx(0.02)
    assert costs.price(1, 1) == pytest.approx([0.0, 0.4], rel=0.01)


def test_the_price_never_falls() -> None:
    costs = Costs()
    costs.learn_pass(timing(30.0), 1, 0.0)
    costs.learn_pass(timing(10.0, rows=2), 2, 0.0)
    prices = costs.price(1, 8)
    assert prices == sorted(prices)
    assert prices[:2] == [0.0, 0.0]


def test_time_of_a_busy_shard_is_missed_by_all() -> None:
    costs = Costs()
    for second in range(1, 60):  # one-row passes of 50 ms, 20 a second: always busy
        for step in range(20):
            costs.learn_pass(timing(50.0), 1, second + step / 20)
    costs.learn_round(timing(50.0, flight_ms=100.0), 1, 1)
    costs.active = 1
    alone = costs.price(1, 8)[8]
    costs.active = 5
    assert costs.price(1, 8)[8] == pytest.approx(5 * alone, rel=0.1)


def test_others_do_not_matter_while_the_shards_are_idle() -> None:
    costs = Costs()
    for second in range(1, 60):  # one pass of 50 ms a second
        costs.learn_pass(timing(50.0), 1, second)
    costs.learn_round(timing(50.0, flight_ms=100.0), 1, 1)
    costs.active = 1
    alone = costs.price(1, 8)[8]
    costs.active = 5
    assert costs.price(1, 8)[8] < 1.3 * alone
