"""One tree out of all candidates: best first, merged by token, of the size that pays."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.orchestrator.guessing.beliefs import Beliefs
from services.orchestrator.guessing.building import Evidence, Price, Room, build
from services.orchestrator.guessing.drafted import Drafted
from services.orchestrator.guessing.lookup import Successors, TextIndex
from services.orchestrator.rounds import GuessSource
from shardflow.calibration import cell

FREE = Price([0.0] * 65)
ROOM = Room(64, 32)


def evidence(
    drafted: Drafted | None = None, text: bytes = b"", recycled: dict[int, list[int]] | None = None
) -> Evidence:
    index, successors = TextIndex(), Successors()
    for token in text:
        index.append(token)
    for token, best in (recycled or {}).items():
        successors.learn((token,), best)
    return Evidence(Beliefs(), index, successors, drafted or Drafted())


def test_nothing_to_go_on() -> None:
    built = build(evidence(), (1,), None, FREE, ROOM)
    assert (built.tree.tokens, built.value) == ([], 0.0)


def test_the_draft_alone() -> None:
    known = evidence(Drafted([7, 8, 9], [-1, -1, 0], [0.6, 0.3, 0.9]))
    share = known.beliefs.draft.shares
    first, second, third = share[cell(1, 0, 0.6)], share[cell(1, 1, 0.3)], share[cell(2, 0, 0.9)]
    built = build(known, (1,), -1, FREE, ROOM)
    assert (built.tree.tokens, built.tree.parents) == ([7, 9, 8], [-1, 0, -1])
    assert built.tree.probabilities == pytest.approx([first, first * third, second])
    assert built.tree.sources == [GuessSource.DRAFT] * 3
    assert built.value == pytest.approx(first + first * third + second)


def test_from_where_the_text_ends_in_the_draft() -> None:
    known = evidence(Drafted([7, 8, 9], [-1, -1, 0], [0.6, 0.3, 0.9]))
    assert build(known, (7,), 0, FREE, ROOM).tree.tokens == [9]
    assert build(known, (9,), 2, FREE, ROOM).tree.tokens == []
    assert build(known, (5,), None, FREE, ROOM).tree.tokens == []


def test_text_goes_on_below_any_guess() -> None:
    known = evidence(Drafted([ord("b")], [-1], [0.9]), b"bcd")
    tree = build(known, (ord("x"),), -1, FREE, ROOM).tree
    assert bytes(tree.tokens) == b"bcd"
    assert tree.sources == [GuessSource.DRAFT, GuessSource.TEXT, GuessSource.TEXT]


def test_sources_that_agree_make_a_guess_more_probable() -> None:
    alone = build(evidence(Drafted([2], [-1], [0.6])), (1,), -1, FREE, ROOM).tree
    both = build(evidence(Drafted([2], [-1], [0.6]), b"\1\2"), (1,), -1, FREE, ROOM).tree
    kinds = Beliefs()
    draft, text = kinds.draft.shares[cell(1, 0, 0.6)], kinds.text.shares[12]
    assert both.tokens == alone.tokens == [2]
    assert alone.probabilities == pytest.approx([draft])
    assert both.probabilities == pytest.approx([1 - (1 - draft) * (1 - text)])


def test_recycled_candidates() -> None:
    tree = build(evidence(recycled={1: [5, 6], 5: [1]}), (1,), None, FREE, Room(4, 2)).tree
    assert (tree.tokens, tree.parents) == ([5, 6, 1], [-1, -1, 0])
    assert tree.sources == [GuessSource.RECYCLED] * 3


def test_siblings_are_never_more_probable_than_certain() -> None:
    drafted = Drafted([2, 3, 4], [-1, -1, -1], [1.0, 1.0, 1.0])
    tree = build(evidence(drafted, b"\1\5"), (1,), -1, FREE, ROOM).tree
    assert sum(tree.probabilities) == pytest.approx(0.98)


@pytest.mark.parametrize(("room", "tokens"), [(Room(2, 32), [7, 9]), (Room(64, 1), [7, 8]), (Room(0, 0), [])])
def test_room(room: Room, tokens: list[int]) -> None:
    known = evidence(Drafted([7, 8, 9], [-1, -1, 0], [0.6, 0.3, 0.9]))
    assert build(known, (1,), -1, FREE, room).tree.tokens == tokens


@pytest.mark.parametrize(
    ("costs", "floors"),
    [
        ([0.0], [1.0]),
        ([0.0, 0.5], [0.5, 1.0]),
        ([0.0, 0.5, 0.6, 1.6], [0.3, 0.1, 1.0, 1.0]),
        ([0.0, 0.0, 9.0], [0.0, 9.0, 1.0]),
    ],
)
def test_floors(costs: list[float], floors: list[float]) -> None:
    assert Price(costs).floors == pytest.approx(floors)


def test_guesses_that_cost_more_than_they_bring_are_left_out() -> None:
    known = evidence(Drafted([7, 8, 9], [-1, -1, 0], [0.6, 0.3, 0.9]))
    worth = build(known, (1,), -1, FREE, ROOM).tree.probabilities
    between = (worth[1] + worth[2]) / 2
    built = build(known, (1,), -1, Price([between * n for n in range(65)]), ROOM)
    assert built.tree.tokens == [7, 9]
    assert built.value == pytest.approx(worth[0] + worth[1] - 2 * between)
    assert build(known, (1,), -1, Price([n * 1.0 for n in range(65)]), ROOM).tree.tokens == []


def test_a_step_in_the_cost_is_climbed_only_if_the_other_side_is_worth_it() -> None:
    flat_behind_a_step = Price([0.0, 0.0, *[0.5] * 63])
    wide = Drafted(list(range(10, 18)), [-1] * 8, [0.06] * 8)
    assert len(build(evidence(wide), (1,), -1, flat_behind_a_step, ROOM).tree.tokens) == 1
    chain = Drafted(list(range(10, 18)), range(-1, 7), [0.99] * 8)
    assert len(build(evidence(chain), (1,), -1, flat_behind_a_step, ROOM).tree.tokens) == 8


TREES = st.lists(st.tuples(st.integers(-1, 7), st.floats(0.01, 0.99)), max_size=8).map(
    lambda nodes: Drafted(
        range(100, 100 + len(nodes)),
        [min(parent, node - 1) for node, (parent, _) in enumerate(nodes)],
        [confidence for _, confidence in nodes],
    )
)
COSTS = st.lists(st.floats(0, 0.4), min_size=8, max_size=8).map(lambda steps: [0.0, *itertools.accumulate(steps)])


@given(TREES, COSTS)
def test_no_other_tree_is_worth_more(drafted: Drafted, costs: list[float]) -> None:
    known = evidence(drafted)
    everything = build(known, (1,), -1, Price([0.0] * 9), ROOM).tree
    built = build(known, (1,), -1, Price(costs), ROOM)
    values = [
        sum(everything.probabilities[node] for node in chosen) - costs[len(chosen)]
        for count in range(len(everything.tokens) + 1)
        for chosen in itertools.combinations(range(len(everything.tokens)), count)
    ]
    assert built.value == pytest.approx(max(values))
    assert all(parent < node for node, parent in enumerate(built.tree.parents))
