"""How often the target chooses a candidate of the draft: the cells that such a calibration has. Pure.

A calibration is a table of probabilities by depth, rank among siblings and the draft's own confidence; the orchestrator
learns it, the draft grows its trees by it.
"""

import bisect
import itertools
from collections.abc import Sequence

# Each bound is the least value of its cell; below the last one is one cell more.
DEPTHS = 3  # 1, 2, and deeper
RANKS = (0, 1, 2, 4)  # first rank of each cell, counted from 0
CONFIDENCES = (0.97, 0.9, 0.8, 0.65, 0.5, 0.35, 0.2, 0.1, 0.05, 0.02, 0.005)
CELLS = DEPTHS * len(RANKS) * (len(CONFIDENCES) + 1)

_FALLING = [-bound for bound in CONFIDENCES]


def cell(depth: int, rank: int, confidence: float) -> int:
    """The cell of a candidate at `depth` (from 1) below the text it was drafted for, `rank` (from 0) among siblings."""
    level = min(depth, DEPTHS) - 1
    place = bisect.bisect_right(RANKS, rank) - 1
    return (level * len(RANKS) + place) * (len(CONFIDENCES) + 1) + bisect.bisect_left(_FALLING, -confidence)


def typical(confidences: Sequence[float] = CONFIDENCES) -> list[float]:
    """A confidence in the middle of each cell, highest first: what a candidate of the cell may expect at the outset."""
    bounds = [1.0, *confidences, confidences[-1] / 4]
    return [(high * low) ** 0.5 for high, low in itertools.pairwise(bounds)]
