"""The tree is the best-first one: literal cases, and exhaustive search over random tables."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardflow.engine.drafts import growth
from shardflow.engine.drafts.base import DraftTree, Limits
from shardflow.engine.drafts.growth import Child, Pool, grow

Table = dict[tuple[int, ...], list[Child]]


def children(**probabilities: float) -> list[Child]:
    return [Child(ord(name), math.log(p)) for name, p in probabilities.items()]


def run(table: Table, limits: Limits) -> DraftTree:
    def expand(pool: Pool, nodes: list[int]) -> list[list[Child]]:
        return [table.get(tuple(pool.path(node)), []) for node in nodes]

    return grow(table[()], expand, limits)  # type: ignore[arg-type]


def letters(tree: DraftTree) -> str:
    return "".join(map(chr, tree.tokens))


def test_a_chain_is_as_long_as_its_nodes_allow() -> None:
    table: Table = {(): children(a=0.9)} | {(97,) * n: children(a=0.9) for n in range(1, 9)}
    tree = run(table, Limits(3, 8, 1))
    assert tree.tokens == [97, 97, 97]
    assert tree.parents == [-1, 0, 1]
    assert tree.logprobs == [math.log(0.9)] * 3


def test_a_chain_is_no_deeper_than_asked() -> None:
    table: Table = {(): children(a=0.9)} | {(97,) * n: children(a=0.9) for n in range(1, 9)}
    assert run(table, Limits(8, 2, 1)).parents == [-1, 0]


def test_the_last_node_of_a_chain_is_never_expanded() -> None:
    looked: list[int] = []

    def expand(pool: Pool, nodes: list[int]) -> list[list[Child]]:
        looked.extend(nodes)
        return [children(a=0.5)]

    grow(children(a=0.5), expand, Limits(4, 9, 1))  # type: ignore[arg-type]
    assert looked == [0, 1, 2]


def test_a_likely_path_gets_depth_and_an_unlikely_one_none() -> None:
    table: Table = {
        (): children(a=0.6, b=0.3),
        (97,): children(c=0.7, d=0.2),  # .42, .12
        (98,): children(e=0.5, f=0.4),  # .15, .12
        (97, 99): children(g=0.9, h=0.1),  # .378
    }
    tree = run(table, Limits(4, 3, 2))
    assert letters(tree) == "abcg"
    assert tree.parents == [-1, -1, 0, 2]


def test_equal_paths_keep_the_older_node_and_stay_a_tree() -> None:
    table: Table = {(): children(a=1.0, b=1.0), (97,): children(c=1.0), (98,): children(d=1.0)}
    tree = run(table, Limits(3, 2, 2))
    assert letters(tree) == "abc"
    assert tree.parents == [-1, -1, 0]


def test_growth_stops_before_it_looks_at_too_many_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "MAX_EXPANDED", 2)
    table: Table = {(): children(a=0.9)} | {(97,) * n: children(a=0.9) for n in range(1, 9)}
    assert len(run(table, Limits(8, 8, 1)).tokens) == 3


def test_no_candidates_make_no_tree() -> None:
    assert run({(): []}, Limits(4, 4, 2)).tokens == []


@settings(max_examples=100, derandomize=True, deadline=None)
@given(
    weights=st.lists(st.floats(0.01, 1), min_size=14, max_size=14), nodes=st.integers(1, 14), depth=st.integers(1, 3)
)
def test_no_other_tree_is_more_probable(weights: list[float], nodes: int, depth: int) -> None:
    """All binary trees of depth 3: the result is the `nodes` most probable paths."""
    paths = [(), *((a,) for a in (0, 1)), *((a, b) for a in (0, 1) for b in (0, 1))]
    table = {
        path: [Child(token, math.log(weights[2 * index + token])) for token in (0, 1)]
        for index, path in enumerate(paths)
    }

    def score(path: tuple[int, ...]) -> float:
        return sum(table[path[:level]][token].logprob for level, token in enumerate(path))

    everything = [(*path, token) for path in paths for token in (0, 1) if len(path) < depth]
    best = sorted(everything, key=lambda path: -score(path))[:nodes]
    tree = run(table, Limits(nodes, depth, 2))  # type: ignore[arg-type]
    total = sum(score(path) for path in best)
    found = [tree_path(tree, node) for node in range(len(tree.tokens))]
    assert len(set(found)) == len(best)
    assert sum(score(path) for path in found) == pytest.approx(total)


def tree_path(tree: DraftTree, node: int) -> tuple[int, ...]:
    above = tree_path(tree, tree.parents[node]) if tree.parents[node] >= 0 else ()
    return (*above, tree.tokens[node])
