"""Grows a tree best-first by the probability of each path, one batched look at the draft per level. Pure."""

from collections.abc import Callable, Sequence

from shardflow.engine.drafts.base import Limits, Proposal
from shardflow.engine.drafts.candidates import Ranking
from shardflow.engine.drafts.pool import Candidates, Nodes, Pool
from shardflow.engine.sampling import SamplingParams


class Growth:
    """What one session has grown below its text, and how it was ranked; whoever changes the text sets `pool`."""

    def __init__(self) -> None:
        self.pool: Pool | None = None
        self._ranked_by: tuple[SamplingParams, int] | None = None

    def propose(
        self,
        limits: Limits,
        ranking: Ranking,
        calibration: Sequence[float] | None,
        roots: Callable[[], Candidates],
        expand: Callable[[Pool, Nodes], Candidates],
    ) -> Proposal:
        """The best of what is there and what grows from there; from `roots`, if what is there was ranked differently.

        `expand` looks at some nodes of the pool and returns their candidates.
        """
        if self.pool is None or self._ranked_by != (ranking.sampling, ranking.width):
            self.pool = None
            self.pool = Pool(roots())
            self._ranked_by = (ranking.sampling, ranking.width)
        pool = self.pool
        pool.calibrate(calibration)
        levels = grow(pool, lambda nodes: expand(pool, nodes), limits)
        return Proposal(pool.tree(limits), levels)


def grow(pool: Pool, expand: Callable[[Nodes], Candidates], limits: Limits) -> int:
    """Lets the pool grow, level by level, as far as the limits want it; the levels that were made.

    Growth ends early, with a smaller search, where MAX_EXPANDED nodes have been looked at.
    """
    levels = limits.max_levels or limits.max_depth
    for level in range(levels):
        frontier, gain = pool.frontier(limits)
        if not len(frontier) or gain < limits.min_gain:
            return level
        pool.add(frontier, expand(frontier))
    return levels
