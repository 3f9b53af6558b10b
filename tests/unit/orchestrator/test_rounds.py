"""One round on paper, with literal rows, verdicts and times."""

import pytest

from services.orchestrator.rounds import Rows, Source, Stage, Timing, Tree, next_base, plan, sources

NO_TREE = Tree()
CHAIN = Tree([70, 71], [-1, 0])
BUSH = Tree([70, 80, 71, 81], [-1, -1, 0, 1])


def listed(rows: Rows) -> tuple[int, list[int], list[int], int]:
    return rows.base, list(rows.tokens), list(rows.parents), rows.committed


def test_a_prompt_in_one_slice() -> None:
    assert [listed(rows) for rows in plan([1, 2, 3], 0, NO_TREE, chunk=4)] == [(0, [1, 2, 3], [-1, 0, 1], 3)]


def test_a_prompt_of_exactly_one_chunk() -> None:
    assert len(plan([1, 2, 3, 4], 0, NO_TREE, chunk=4)) == 1


def test_a_prompt_in_three_chunks_with_the_tree_on_the_last() -> None:
    assert [listed(rows) for rows in plan([1, 2, 3, 4, 5], 0, CHAIN, chunk=2)] == [
        (0, [1, 2], [-1, 0], 2),
        (2, [3, 4], [-1, 0], 2),
        (4, [5, 70, 71], [-1, 0, 1], 1),
    ]


def test_one_new_token_and_a_tree() -> None:
    assert [listed(rows) for rows in plan([1, 2, 3], 2, BUSH, chunk=9)] == [
        (2, [3, 70, 80, 71, 81], [-1, 0, 0, 1, 2], 1)
    ]


def test_two_committed_rows_and_a_tree() -> None:
    assert [listed(rows) for rows in plan([1, 2, 3], 1, BUSH, chunk=9)] == [
        (1, [2, 3, 70, 80, 71, 81], [-1, 0, 1, 1, 2, 3], 2)
    ]


@pytest.mark.parametrize(
    ("tree", "accepted", "expected"),
    [
        (NO_TREE, [0], (11, [])),
        (CHAIN, [0], (11, [])),
        (CHAIN, [0, 1], (12, [])),
        (CHAIN, [0, 1, 2], (13, [])),
        (BUSH, [0, 1], (12, [])),
        (BUSH, [0, 2], (12, [0, 2])),
        (BUSH, [0, 1, 3], (13, [0, 1, 3])),
    ],
)
def test_next_base(tree: Tree, accepted: list[int], expected: tuple[int, list[int]]) -> None:
    (rows,) = plan(list(range(11)), 10, tree, chunk=9)
    assert next_base(rows, accepted) == expected


def test_next_base_after_a_prompt() -> None:
    (rows,) = plan([1, 2, 3], 0, NO_TREE, chunk=9)
    assert next_base(rows, [2]) == (3, [])


def test_next_base_keeps_all_committed_rows() -> None:
    (rows,) = plan([1, 2, 3], 1, BUSH, chunk=9)
    assert next_base(rows, [1, 3]) == (4, [0, 1, 3])


@pytest.mark.parametrize(
    ("tree", "accepted", "expected"),
    [
        (NO_TREE, [0], [Source.TARGET]),
        (CHAIN, [0], [Source.CORRECTED]),
        (CHAIN, [0, 1], [Source.ACCEPTED, Source.CORRECTED]),
        (CHAIN, [0, 1, 2], [Source.ACCEPTED, Source.ACCEPTED, Source.BONUS]),
        (BUSH, [0, 2, 4], [Source.ACCEPTED, Source.ACCEPTED, Source.BONUS]),
    ],
)
def test_sources(tree: Tree, accepted: list[int], expected: list[Source]) -> None:
    (rows,) = plan([1], 0, tree, chunk=9)
    assert sources(rows, accepted) == expected


def test_depths() -> None:
    assert BUSH.depths() == [1, 1, 2, 2]


def test_path_of_the_first_of_equal_siblings() -> None:
    assert Tree([70, 80, 70, 71, 81], [-1, -1, -1, 0, 1]).path([70, 71]) == [0, 3]
    assert BUSH.path([80, 81]) == [1, 3]
    assert BUSH.path([]) == []


def test_timing() -> None:
    stages = [Stage("a", queue_ms=1, compute_ms=10, other_ms=2, batch_rows=3), Stage("b", 0.5, 20, 1.5, 3)]
    timing = Timing(round_ms=150, draft_ms=8, flight_ms=130, stages=stages)
    assert [stage.stay_ms for stage in stages] == [13, 22]
    assert (timing.network_ms, timing.orchestrator_ms) == (95, 12)
    assert timing.draft_ms + timing.network_ms + timing.orchestrator_ms + 13 + 22 == timing.round_ms
