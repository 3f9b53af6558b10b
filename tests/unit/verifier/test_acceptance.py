"""The walk of the target through a tree of guesses."""

from services.verifier.acceptance import path_to, walk

CHAIN = ([10, 11, 12, 13], [-1, 0, 1, 2])
#        row 0: 10 ─┬─ 1: 11 ─┬─ 3: 13
#                   └─ 2: 12  └─ 4: 14 ── 5: 15
TREE = ([10, 11, 12, 13, 14, 15], [-1, 0, 0, 1, 1, 4])


def table(choices: dict[int, int]) -> tuple[list[int], object]:
    """A `choose` that notes at which rows it was asked."""
    asked: list[int] = []

    def choose(row: int) -> int:
        asked.append(row)
        return choices[row]

    return asked, choose


def test_no_guess_is_right() -> None:
    asked, choose = table({0: 99})
    path = walk(*CHAIN, 0, choose)
    assert (path.accepted, path.choices, path.next_token) == ((0,), (99,), 99)
    assert asked == [0]


def test_the_first_wrong_guess_ends_the_walk() -> None:
    asked, choose = table({0: 11, 1: 99, 2: 13})
    path = walk(*CHAIN, 0, choose)
    assert (path.accepted, path.choices, path.next_token) == ((0, 1), (11, 99), 99)
    assert asked == [0, 1]


def test_a_chain_accepted_to_its_end_yields_one_token_more() -> None:
    path = walk(*CHAIN, 0, table({0: 11, 1: 12, 2: 13, 3: 7})[1])
    assert (path.accepted, path.choices, path.next_token) == ((0, 1, 2, 3), (11, 12, 13, 7), 7)


def test_the_walk_turns_into_the_branch_that_was_chosen() -> None:
    path = walk(*TREE, 0, table({0: 11, 1: 14, 4: 15, 5: 16})[1])
    assert (path.accepted, path.choices) == ((0, 1, 4, 5), (11, 14, 15, 16))


def test_a_token_of_another_branch_does_not_count() -> None:
    path = walk(*TREE, 0, table({0: 12, 2: 13})[1])
    assert (path.accepted, path.choices) == ((0, 2), (12, 13))


def test_of_equal_siblings_the_first_counts() -> None:
    path = walk([10, 11, 11, 12], [-1, 0, 0, 2], 0, table({0: 11, 1: 12})[1])
    assert (path.accepted, path.next_token) == ((0, 1), 12)


def test_a_prefill_chunk_is_judged_at_its_last_row_only() -> None:
    asked, choose = table({3: 42})
    path = walk(*CHAIN, 3, choose)
    assert (path.accepted, path.choices) == ((3,), (42,))
    assert asked == [3]


def test_guesses_may_hang_below_a_prefill_chunk() -> None:
    path = walk([10, 11, 12, 13], [-1, 0, 1, 1], 1, table({1: 13, 3: 8})[1])
    assert (path.accepted, path.choices) == ((1, 3), (13, 8))


def test_path_to_a_row() -> None:
    assert path_to(TREE[1], 5) == [0, 1, 4, 5]
    assert path_to(TREE[1], 0) == [0]
