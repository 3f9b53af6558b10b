"""A cache is rewound by its length, gathers only along a path, and refuses what it does not hold."""

import pytest
import torch

from shardflow.engine import CacheStateError, CapacityError, KVCache


def cache(rows: int, parents: list[int]) -> KVCache:
    """`rows` rows, numbered by their content, of which the last ones are a slice with `parents`."""
    kv = KVCache(layers=2, kv_heads=1, head_dim=4, max_len=10, dtype=torch.float32, device=torch.device("cpu"))
    kv.keys[:] = torch.arange(10.0)[:, None]
    kv.values[:] = torch.arange(10.0)[:, None] + 100
    kv.extend([-1] * (rows - len(parents)))
    kv.parents = ()
    kv.extend(parents)
    return kv


def contents(kv: KVCache) -> list[float]:
    assert torch.equal(kv.values[1, 0, :, 3], kv.keys[0, 0, :, 0] + 100)
    return kv.keys[0, 0, : kv.length, 0].tolist()


def test_a_new_cache_holds_nothing() -> None:
    assert cache(0, []).length == 0


def test_bytes_of_a_row_over_all_layers() -> None:
    assert cache(0, []).bytes_per_token == 2 * 2 * 1 * 4 * 4


def test_kept_rows_move_up_behind_the_text() -> None:
    kv = cache(8, [-1, 0, 0, 2, 2])
    kv.keep([0, 2, 4])
    assert contents(kv) == [0, 1, 2, 3, 5, 7]


def test_keeping_nothing_leaves_the_text() -> None:
    kv = cache(8, [-1, 0, 0, 2, 2])
    kv.keep([])
    assert contents(kv) == [0, 1, 2]


def test_a_tree_below_the_kept_path_stays_the_last_slice() -> None:
    kv = cache(9, [-1, 0, 0, 2, 2, 3])
    kv.keep([0, 2], [3, 4, 5])
    assert contents(kv) == [0, 1, 2, 3, 5, 6, 7, 8]
    assert kv.parents == (-1, -1, 0)


def test_a_whole_tree_stays_where_it_is() -> None:
    kv = cache(8, [-1, 0, 0, 2, 2])
    kv.keep([], [0, 1, 2, 3, 4])
    assert contents(kv) == [0, 1, 2, 3, 4, 5, 6, 7]
    assert kv.parents == (-1, 0, 0, 2, 2)


@pytest.mark.parametrize("tree", [[1, 2], [4, 3], [5], [-1], [0, 3], [2, 3]])
def test_rows_that_are_no_tree_below_the_path_are_refused_unchanged(tree: list[int]) -> None:
    kv = cache(8, [-1, 0, 0, 2, 3])
    with pytest.raises(CacheStateError, match="no tree below rows"):
        kv.keep([0, 2], tree)
    assert contents(kv) == [0, 1, 2, 3, 4, 5, 6, 7]


def test_a_slice_grows_behind_itself_alone() -> None:
    kv = cache(8, [-1, 0, 0, 2, 2])
    kv.check(3, 2, grows=True)
    with pytest.raises(CacheStateError, match="the last slice starts at 3, not at 4"):
        kv.check(4, 1, grows=True)
    with pytest.raises(CapacityError, match=r"8 \+ 3 rows"):
        kv.check(3, 3, grows=True)
    kv.extend([3, 5], grows=True)
    assert (kv.length, kv.parents) == (10, (-1, 0, 0, 2, 2, 3, 5))


@pytest.mark.parametrize("rows", [[2], [0, 3], [0, 1, 2], [0, 5], [-1], [0, 0], [2, 0]])
def test_rows_that_are_no_path_are_refused_unchanged(rows: list[int]) -> None:
    kv = cache(8, [-1, 0, 0, 2, 2])
    with pytest.raises(CacheStateError, match="no path in the last slice of 5 rows"):
        kv.keep(rows)
    assert contents(kv) == [0, 1, 2, 3, 4, 5, 6, 7]


def test_rows_can_be_kept_once() -> None:
    kv = cache(8, [-1, 0, 0, 2, 2])
    kv.keep([0])
    with pytest.raises(CacheStateError):
        kv.keep([0])


def test_a_chain_is_cut_anywhere() -> None:
    kv = cache(8, [-1, 0, 1])
    kv.truncate(7)
    kv.truncate(2)
    assert contents(kv) == [0, 1]


def test_a_tree_is_not_taken_for_a_chain() -> None:
    kv = cache(8, [-1, 0, 0, 2, 2])
    with pytest.raises(CacheStateError, match="first 3 rows of the last slice are no chain"):
        kv.truncate(6)
    with pytest.raises(CacheStateError, match="first 5 rows"):
        kv.truncate(8)
    kv.truncate(5)
    assert contents(kv) == [0, 1, 2, 3, 4]


def test_rows_that_are_not_held_can_not_be_rewound_to() -> None:
    with pytest.raises(CacheStateError, match="rows from 9 on were asked for, but 8 are held"):
        cache(8, []).truncate(9)


def test_capacity_is_checked_to_the_row() -> None:
    kv = cache(8, [])
    kv.check(8, 2)
    with pytest.raises(CapacityError, match=r"8 \+ 3 rows do not fit into a cache of 10"):
        kv.check(8, 3)
