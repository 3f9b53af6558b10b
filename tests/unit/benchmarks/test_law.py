"""The law of emulation: literal ids, and frequencies within literal tolerances."""

import itertools

import pytest

from benchmarks.emulation.deployment import prompt
from benchmarks.emulation.law import SLOTS, Acceptance, advance, beginning, next_token

DRAWS = range(20_000)


def text(tokens: int) -> list[int]:
    """What an emulated target of two shards says from nothing on."""
    ids: list[int] = []
    for position in range(tokens):
        ids.append(next_token(advance(beginning(2), ids)[-1], position))
    return ids


def test_the_text_is_the_same_everywhere() -> None:
    assert text(6) == [3, 31, 37, 60, 72, 91]


def test_no_token_occurs_twice() -> None:
    assert len(set(text(200))) == 200


def test_states_tell_texts_apart() -> None:
    assert advance(beginning(2), [1, 2, 3]) == advance(advance(beginning(2), [1, 2]), [3])
    ends = [advance(beginning(2), ids)[-1] for ids in ([], [1], [2], [1, 2], [2, 1], [1, 2, 3])]
    assert len(set(ends)) == 6


def test_prompts_differ() -> None:
    assert prompt(0, 4) == [0, 16, 32, 48]
    assert prompt(18, 4) == [2, 17, 32, 48]
    assert len({tuple(prompt(number)) for number in range(300)}) == 300


@pytest.mark.parametrize("varying", [False, True])
def test_ranks_are_drawn_by_the_acceptance(varying: bool) -> None:
    acceptance = Acceptance(0.65, varying)
    ranks = [acceptance.rank(state) for state in DRAWS]
    shares = [ranks.count(rank) / len(ranks) for rank in [*range(8), None]]
    expected = [0.65, 0.105, 0.0525, 0.0245, 0.0175, 0.014, 0.007, 0.007, 0.1225]
    assert shares == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize(("alpha", "unsure", "share_sure"), [(0.65, 0.35, 0.5), (0.8, 0.45, 0.7), (0.9, 0.45, 0.9)])
def test_a_varying_draft_says_what_it_knows(alpha: float, unsure: float, share_sure: float) -> None:
    acceptance = Acceptance(alpha, varying=True)
    sure = [state for state in DRAWS if acceptance.confidences(state)[0] == 0.95]
    others = [state for state in DRAWS if acceptance.confidences(state)[0] == unsure]
    assert len(sure) + len(others) == 20_000
    assert len(sure) / 20_000 == pytest.approx(share_sure, abs=0.01)
    assert sum(acceptance.rank(state) == 0 for state in sure) / len(sure) == pytest.approx(0.95, abs=0.01)
    assert sum(acceptance.rank(state) == 0 for state in others) / len(others) == pytest.approx(unsure, abs=0.02)


def test_ranks_are_independent_from_position_to_position() -> None:
    acceptance, ids = Acceptance(0.65), list(range(32))
    right = []
    for _ in range(2_000):
        state = advance(beginning(1), ids)[-1]
        right.append(acceptance.rank(state) == 0)
        ids = [next_token(state, len(right)), len(right)]
    pairs = list(itertools.pairwise(right))
    assert sum(after for before, after in pairs if before) / sum(right[:-1]) == pytest.approx(0.65, abs=0.04)


def test_the_target_token_stands_at_its_rank() -> None:
    acceptance = Acceptance(0.65)
    for state in range(500):
        ids = [token for token, _ in acceptance.candidates(state, 7)]
        assert len(set(ids)) == 8 and all(token // SLOTS == 7 for token in ids)
        rank = acceptance.rank(state)
        assert (ids.index(next_token(state, 7)) if rank is not None else None) == rank
        assert (next_token(state, 7) in ids) is (rank is not None)


def test_confidences_are_the_probabilities_of_the_ranks() -> None:
    confidences = [confidence for _, confidence in Acceptance(0.8).candidates(3, 7)]
    assert confidences == pytest.approx([0.8, 0.06, 0.03, 0.014, 0.01, 0.008, 0.004, 0.004])
