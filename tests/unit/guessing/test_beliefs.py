"""Shares of hits: an assumption at the outset, drawn to what is seen, with older evidence fading."""

import math

import pytest

from services.orchestrator.guessing.beliefs import Average, Beliefs, Table, Waiting
from services.orchestrator.guessing.lookup import RECYCLED_KINDS, TEXT_KINDS
from shardflow.calibration import CELLS, cell


def test_an_assumption_counts_for_six_trials() -> None:
    table = Table([0.5, 0.5])
    table.learn(0, hit=True)
    table.learn(0, hit=True)
    assert table.shares == pytest.approx([(3 + 2) / 8, 0.5])


def test_shares_converge_to_what_is_seen() -> None:
    table = Table([0.9])
    for trial in range(4000):
        table.learn(0, hit=trial % 4 == 0)
    assert table.shares[0] == pytest.approx(0.25, abs=0.01)
    for _ in range(2000):
        table.learn(0, hit=True)
    assert table.shares[0] > 0.99  # what was seen before has faded


def test_logarithms_are_finite() -> None:
    table = Table([0.5, 0.0])
    assert table.logs() == pytest.approx([math.log(0.5), math.log(1e-6)])


def test_at_the_outset() -> None:
    beliefs = Beliefs()
    assert (len(beliefs.draft.shares), len(beliefs.text.shares)) == (CELLS, TEXT_KINDS)
    assert len(beliefs.recycled.shares) == RECYCLED_KINDS
    shares = [*beliefs.draft.shares, *beliefs.text.shares, *beliefs.recycled.shares]
    assert all(0 < share < 1 for share in shares)
    assert beliefs.draft.shares[cell(1, 0, 0.99)] > beliefs.draft.shares[cell(1, 0, 0.5)]


def test_an_average_moves_by_a_tenth() -> None:
    average = Average(10.0)
    average.learn(20.0)
    assert average.value == pytest.approx(11.0)


def test_waiting_pays_when_its_tokens_take_longer_otherwise() -> None:
    waiting = Waiting(gain=Average(0.5), ms=Average(10.0))
    assert waiting.pays(rate=0.049)
    assert not waiting.pays(rate=0.051)
