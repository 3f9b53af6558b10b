"""What rounds, rows and draft levels cost in this deployment, learned from every round. Pure: times are passed in."""

import bisect
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from services.orchestrator.guessing.beliefs import Average
from services.orchestrator.rounds import Timing

KNOTS = (1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 28, 32, 36, 40, 48, 56, 64, 96, 128, 192, 256, 384, 512)
"""Rows at which a cost is remembered."""
STEP = 0.1  # weight of one observation
OUTLIER = 3.0  # times what was expected
FADING = 0.97  # of what was seen a round before, in the rate of tokens
FIRST_RATE = 0.01  # tokens per ms, until rounds have been seen
ROW_SHARE = 1 / 100  # of a one-row pass that each further row is taken to cost: little, so that larger passes are tried
WINDOW_MS = 5000.0  # over which utilisation is averaged


class Curve:
    """A time that depends on the number of rows: a shape that is assumed, times a factor learned at each knot."""

    def __init__(self, row_share: float) -> None:
        """`row_share`: what each row beyond the first is assumed to add, as a share of the time of one."""
        self._row_share = row_share
        self._factors: dict[int, float] = {}  # by knot, those that have been seen

    def learn(self, rows: int, ms: float) -> None:
        """One pass of `rows` rows took `ms` milliseconds; of what takes far longer than expected, a part counts."""
        if self._factors:
            ms = min(ms, OUTLIER * self.at(rows))
        left, right, share = _neighbours(rows)
        factor, expected = ms / self._shape(rows), self._factor(rows)
        for knot, weight in ((left, 1 - share), (right, share)):
            if weight >= 0.5 and knot not in self._factors:
                self._factors[knot] = factor
            elif knot in self._factors:
                self._factors[knot] += STEP * weight * (factor - expected)

    def at(self, rows: int) -> float:
        """Expected milliseconds of a pass of `rows` rows; 0 before anything has been seen."""
        return self._factor(rows) * self._shape(rows)

    def _factor(self, rows: int) -> float:
        left, right, share = _neighbours(rows)
        return (1 - share) * self._known(left) + share * self._known(right)

    def _known(self, knot: int) -> float:
        """The factor at the knot, or at the nearest one that has been seen."""
        if not self._factors:
            return 0.0
        return self._factors[min(self._factors, key=lambda other: (abs(other - knot), other))]

    def _shape(self, rows: int) -> float:
        return 1 + (rows - 1) * self._row_share


def _neighbours(rows: int) -> tuple[int, int, float]:
    """The knots around `rows`, and how far it is on the way from the left one to the right one, 0 to 1."""
    right = min(bisect.bisect_left(KNOTS, rows), len(KNOTS) - 1)
    left = max(0, right - 1)
    low, high = KNOTS[left], KNOTS[right]
    return low, high, 1.0 if low == high else min(1.0, (rows - low) / (high - low))


@dataclass
class Costs:
    """What this orchestrator has seen of its shards, links and draft."""

    network: Curve = field(default_factory=lambda: Curve(0.0))
    stages: dict[str, Curve] = field(default_factory=dict)
    level_ms: Average = field(default_factory=lambda: Average(3.0))  # one forward pass of the draft
    active: int = 0  # requests running now
    _tokens: float = 0.0
    _ms: float = 0.0
    _busy: dict[str, float] = field(default_factory=dict)  # share of the time, by shard
    _seen_at: float = 0.0

    def learn_pass(self, timing: Timing, rows: int, now: float) -> None:
        """What the shards did for `rows` rows of one session; `now` in seconds."""
        elapsed_ms = max(0.0, now - self._seen_at) * 1000
        self._seen_at = now
        keep = max(0.0, 1 - elapsed_ms / WINDOW_MS)
        for stage in timing.stages:
            self.stages.setdefault(stage.shard, Curve(ROW_SHARE)).learn(stage.batch_rows, stage.compute_ms)
            share = stage.compute_ms * rows / stage.batch_rows / WINDOW_MS
            self._busy[stage.shard] = min(1.0, self._busy.get(stage.shard, 0.0) * keep + share)

    def learn_round(self, timing: Timing, rows: int, tokens: int) -> None:
        """A round of `rows` rows that brought `tokens` tokens."""
        self.network.learn(rows, max(0.0, timing.network_ms))
        self._tokens = FADING * self._tokens + tokens
        self._ms = FADING * self._ms + timing.round_ms

    @property
    def rate(self) -> float:
        """Tokens per millisecond of one session."""
        return self._tokens / self._ms if self._ms else FIRST_RATE

    def flight_ms(self, rows: int) -> float:
        """Expected time from sending a slice to its verdict."""
        return self.network.at(rows) + sum(curve.at(rows) for curve in self.stages.values())

    def price(self, committed: int, nodes: int) -> list[float]:
        """For n = 0 ... `nodes` guesses beside `committed` rows: tokens that the time of n further rows is worth.

        Time of a busy shard is missed by every session, that of an idle one by this session alone.
        """
        load = max(self._busy.values(), default=0.0)
        worth = self.rate * (1 + load * max(0, self.active - 1))
        times = [self.flight_ms(committed + n) for n in range(nodes + 1)]
        rising: Sequence[float] = list(itertools.accumulate(times, max))
        return [worth * (ms - rising[0]) for ms in rising]
