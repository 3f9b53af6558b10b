"""The tree is the best-first one: literal cases, and exhaustive search over random tables."""

import math
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardflow.calibration import CELLS, cell
from shardflow.engine.drafts import Limits, pool
from shardflow.engine.drafts.base import DraftTree
from shardflow.engine.drafts.growth import grow
from shardflow.engine.drafts.pool import Candidates, Nodes, Pool

Table = Mapping[str, Mapping[str, float]]  # after the letters of a path: the probability of each next letter

AS_IT_IS = [0.0] * CELLS


def candidates(table: Table, paths: list[list[int]], width: int) -> Candidates:
    tokens, logprobs = np.zeros((len(paths), width), dtype=np.int64), np.full((len(paths), width), -np.inf)
    for row, path in enumerate(paths):
        for rank, (letter, p) in enumerate(table.get("".join(map(chr, path)), {}).items()):
            tokens[row, rank], logprobs[row, rank] = ord(letter), math.log(p)
    return Candidates(tokens, logprobs)


class Run:
    """A pool over a table, and what was looked at."""

    def __init__(self, table: Table, width: int, calibration: list[float] | None = None) -> None:
        self.table = table
        self.pool = Pool(candidates(table, [[]], width), calibration)
        self.looked: list[list[str]] = []  # the paths of each level

    def grow(self, limits: Limits) -> int:
        return grow(self.pool, self._expand, limits)

    def _expand(self, nodes: Nodes) -> Candidates:
        paths = self.pool.paths(nodes)
        self.looked.append(["".join(map(chr, path)) for path in paths])
        return candidates(self.table, paths, self.pool.width)


def run(table: Table, limits: Limits) -> DraftTree:
    growing = Run(table, limits.width)
    growing.grow(limits)
    return growing.pool.tree(limits)


def letters(tree: DraftTree) -> str:
    return "".join(map(chr, tree.tokens))


SURE = {"a" * n: {"a": 0.9} for n in range(9)}
FORKED = {
    "": {"a": 0.6, "b": 0.3},
    "a": {"c": 0.7, "d": 0.2},  # .42, .12
    "b": {"e": 0.5, "f": 0.4},  # .15, .12
    "ac": {"g": 0.9, "h": 0.1},  # .378
}


def test_a_chain_is_as_long_as_its_nodes_allow() -> None:
    tree = run(SURE, Limits(3, 8, 1))
    assert tree.tokens == [97, 97, 97]
    assert tree.parents == [-1, 0, 1]
    assert tree.logprobs == [math.log(0.9)] * 3


def test_a_chain_is_no_deeper_than_asked() -> None:
    assert run(SURE, Limits(8, 2, 1)).parents == [-1, 0]


def test_the_last_node_of_a_chain_is_never_looked_at() -> None:
    growing = Run(SURE, 1)
    assert growing.grow(Limits(4, 9, 1)) == 3
    assert growing.looked == [["a"], ["aa"], ["aaa"]]


def test_a_likely_path_gets_depth_and_an_unlikely_one_none() -> None:
    tree = run(FORKED, Limits(4, 3, 2))
    assert letters(tree) == "abcg"
    assert tree.parents == [-1, -1, 0, 2]


def test_equal_paths_keep_the_older_node_and_stay_a_tree() -> None:
    tree = run({"": {"a": 1.0, "b": 1.0}, "a": {"c": 1.0}, "b": {"d": 1.0}}, Limits(3, 2, 2))
    assert letters(tree) == "abc"
    assert tree.parents == [-1, -1, 0]


def test_growth_stops_before_it_looks_at_too_many_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "MAX_EXPANDED", 2)
    assert len(run(SURE, Limits(8, 8, 1)).tokens) == 3


def test_a_level_looks_at_the_best_nodes_first_and_not_at_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "ROWS", 2)
    wide = {"": {"a": 0.4, "b": 0.3, "c": 0.2}, "a": {"d": 0.9}, "b": {"e": 0.1}}
    growing = Run(wide, 3)
    assert growing.grow(Limits(8, 2, 3)) == 2
    assert growing.looked == [["a", "b"], ["c"]]


def test_no_candidates_make_no_tree() -> None:
    assert run({}, Limits(4, 4, 2)).tokens == []


def test_growth_goes_on_from_where_it_was() -> None:
    at_once, in_steps = Run(FORKED, 2), Run(FORKED, 2)
    assert at_once.grow(Limits(4, 3, 2, max_levels=2)) == 2
    assert [in_steps.grow(Limits(4, 3, 2, max_levels=1)) for _ in range(3)] == [1, 1, 0]
    assert in_steps.looked == at_once.looked == [["a", "b"], ["ac"]]
    assert in_steps.pool.tree(Limits(4, 3, 2)) == at_once.pool.tree(Limits(4, 3, 2))


def test_a_smaller_tree_of_a_larger_pool_is_what_it_would_have_been() -> None:
    growing = Run(FORKED, 2)
    growing.grow(Limits(8, 3, 2))
    assert letters(growing.pool.tree(Limits(4, 3, 2))) == "abcg"
    assert letters(growing.pool.tree(Limits(8, 1, 2))) == "ab"


def test_growth_ends_where_a_level_gains_too_little() -> None:
    assert Run(FORKED, 2).grow(Limits(9, 9, 2, min_gain=0.53)) == 1  # (.6 + .3) * .6, then .81 * (.6 + .7 + .5) / 3
    assert Run(FORKED, 2).grow(Limits(9, 9, 2, min_gain=0.55)) == 0


def test_what_a_full_tree_loses_is_no_gain() -> None:
    growing = Run(FORKED, 2)
    assert growing.grow(Limits(2, 9, 2, min_gain=0.07)) == 0  # .6 * .6 in the place of .3
    assert growing.grow(Limits(2, 9, 2, min_gain=0.05)) == 1
    assert growing.looked == [["a"]]  # nothing below b, .3, is more probable than what is there


def test_what_is_too_improbable_is_neither_looked_at_nor_returned() -> None:
    growing = Run(FORKED, 2)
    limits = Limits(9, 9, 2, min_probability=0.4)
    growing.grow(limits)
    assert growing.looked == [["a"], ["ac"]]
    assert letters(growing.pool.tree(limits)) == "ac"


def reached(grown: pool.Pool, nodes: pool.Nodes) -> float:
    """The sum of the nodes' probabilities of being reached."""
    return float(np.exp(grown._scores.ravel()[nodes]).sum())


def calibrated(**by_rank: float) -> list[float]:
    """A calibration that believes a probability for each rank at depth 1, and the one at rank 0 for all below."""
    table = [math.log(by_rank["first"])] * CELLS
    for confidence in np.linspace(0, 1, 500):
        table[cell(1, 1, float(confidence))] = math.log(by_rank["second"])
    return table


def test_a_calibration_stands_in_for_the_confidence() -> None:
    growing = Run(FORKED, 2, calibrated(first=0.5, second=0.3))
    growing.grow(Limits(4, 3, 2))  # a .5, b .3, ac .25, ad .25
    tree = growing.pool.tree(Limits(4, 3, 2))
    assert letters(tree) == "abcd"
    assert tree.logprobs == [math.log(0.6), math.log(0.3), math.log(0.7), math.log(0.2)]  # the draft's own
    assert reached(growing.pool, np.array([0, 1, 2])) == pytest.approx(0.5 + 0.3 + 0.25)


def test_another_calibration_scores_what_is_there_anew() -> None:
    growing = Run(FORKED, 2)
    growing.grow(Limits(6, 3, 2))
    growing.pool.calibrate(calibrated(first=0.5, second=0.3))
    assert reached(growing.pool, np.array([0, 1, 2, 6])) == pytest.approx(0.5 + 0.3 + 0.25 + 0.125)
    growing.pool.calibrate(None)
    assert reached(growing.pool, np.array([0, 1, 2, 6])) == pytest.approx(0.6 + 0.3 + 0.42 + 0.378)


def test_no_sibling_is_believed_more_than_an_earlier_one() -> None:
    growing = Run(FORKED, 2, calibrated(first=0.2, second=0.7))
    assert reached(growing.pool, np.array([1])) == pytest.approx(0.2)
    assert letters(growing.pool.tree(Limits(1, 1, 2))) == "a"


def test_cells_are_those_of_the_contract() -> None:
    confidences = np.array([[1.0, 0.97, 0.969, 0.5], [0.2, 0.005, 0.004, 1e-9], [0.9, 0.1, 0.02, 0.0]])
    found = pool._cells(np.array([1, 2, 7]), np.log(np.maximum(confidences, 1e-300)))
    rows = zip((1, 2, 7), confidences.tolist(), strict=True)
    assert found.tolist() == [[cell(depth, rank, p) for rank, p in enumerate(row)] for depth, row in rows]


def test_the_tree_below_a_path_is_what_would_have_grown_there() -> None:
    table = FORKED | {"ad": {"i": 0.6, "j": 0.4}, "ada": {}}
    growing = Run(table, 2)
    growing.grow(Limits(12, 3, 2))
    path = growing.pool.walk([ord("a")])
    below, places = growing.pool.below(path)
    looked = [path for level in growing.looked for path in level]
    assert [looked[place] for place in places] == ["ac", "ad"]
    tree = below.tree(Limits(12, 9, 2))
    assert (letters(tree), tree.parents) == ("cdghij", [-1, -1, 0, 0, 1, 1])
    assert reached(below, np.arange(2)) == pytest.approx(0.7 + 0.2)
    assert below.paths(below.expanded) == [[ord("c")], [ord("d")]]


def test_a_walk_ends_where_nothing_was_looked_at() -> None:
    growing = Run(FORKED, 2)
    growing.grow(Limits(4, 3, 2))
    assert growing.looked == [["a", "b"], ["ac"]]
    for word, length in (("acg", 2), ("ad", 1), ("x", 0), ("", 0), ("be", 1)):
        assert len(growing.pool.walk([ord(letter) for letter in word])) == length


def test_ancestry_is_a_nodes_own_path() -> None:
    growing = Run(FORKED, 2)
    growing.grow(Limits(4, 3, 2))  # rows a, b, ac
    nodes = np.array([3, 4])  # ad, be
    assert growing.pool.paths(nodes) == [[ord("a"), ord("d")], [ord("b"), ord("e")]]
    assert growing.pool.ancestry(nodes).astype(int).tolist() == [[1, 0, 0, 1, 0], [0, 1, 0, 0, 1]]


@settings(max_examples=100, derandomize=True, deadline=None)
@given(
    weights=st.lists(st.floats(0.01, 1), min_size=14, max_size=14),
    nodes=st.integers(1, 14),
    depth=st.integers(1, 3),
    seed=st.none() | st.integers(0, 99),
)
def test_no_other_tree_is_more_probable(weights: list[float], nodes: int, depth: int, seed: int | None) -> None:
    """All binary trees of depth 3: the result is the `nodes` most probable paths, by any calibration or by none."""
    calibration = None if seed is None else (-3 * np.random.default_rng(seed).random(CELLS)).tolist()
    paths = ["", "a", "b", "aa", "ab", "ba", "bb"]
    table = {
        path: dict(zip("ab", sorted(weights[2 * index : 2 * index + 2], reverse=True), strict=True))
        for index, path in enumerate(paths)
    }

    def believed(path: str) -> float:
        rank, p = "ab".index(path[-1]), table[path[:-1]][path[-1]]
        own = math.log(p) if calibration is None else calibration[cell(len(path), rank, p)]
        return own if rank == 0 else min(own, believed(path[:-1] + "a"))

    def score(path: str) -> float:
        return sum(believed(path[:length]) for length in range(1, len(path) + 1))

    everything = [path + letter for path in paths for letter in "ab" if len(path) < depth]
    best = sorted(everything, key=lambda path: -score(path))[:nodes]
    growing = Run(table, 2, calibration)
    growing.grow(Limits(nodes, depth, 2))
    tree = growing.pool.tree(Limits(nodes, depth, 2))
    found = [tree_path(tree, node) for node in range(len(tree.tokens))]
    assert len(set(found)) == len(best)
    assert sum(map(score, found)) == pytest.approx(sum(map(score, best)))
    assert all(path[:-1] + "a" in found for path in found)  # siblings are the first ones by rank


def tree_path(tree: DraftTree, node: int) -> str:
    above = tree_path(tree, tree.parents[node]) if tree.parents[node] >= 0 else ""
    return above + chr(tree.tokens[node])
