"""Grows a tree best-first by the probability of each path, one batched look at the draft per level. Pure."""

from collections.abc import Callable

from shardflow.engine.drafts.base import Limits
from shardflow.engine.drafts.pool import Candidates, Nodes, Pool


def grow(pool: Pool, expand: Callable[[Nodes], Candidates], limits: Limits) -> int:
    """Lets the pool grow, level by level, as far as the limits want it; the levels that were made.

    `expand` looks at some nodes and returns their candidates. Growth ends early, with a smaller search, where
    MAX_EXPANDED nodes have been looked at.
    """
    levels = limits.max_levels or limits.max_depth
    for level in range(levels):
        frontier = pool.frontier(limits)
        if not len(frontier) or pool.mass(frontier) < limits.min_gain:
            return level
        pool.add(frontier, expand(frontier))
    return levels
