"""How often each kind of candidate turns out right, learned from every verdict. Pure.

A candidate is judged whenever the target reaches the place it stands at, whether or not it was sent.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from services.orchestrator.guessing.lookup import LENGTHS, SUCCESSORS
from shardflow.calibration import CELLS, typical

PRIOR_WEIGHT = 6.0  # trials that the assumption at the outset counts for
MEMORY = 400.0  # trials after which older ones fade
DOUBT = 0.8  # of a draft's confidence that is believed at the outset
LEAST = 1e-6  # share that is taken for none
WORTHS = 3  # classes of what a tree is worth before the draft is asked: about 0, 1, and more tokens

_TEXT = {8: 0.8, 5: 0.65, 3: 0.5, 2: 0.35, 1: 0.15}
_CONFIRMED, _CONTESTED = 1.2, 0.5
_PAIR = (0.4, 0.12, 0.06, 0.04)
_SINGLE = (0.2, 0.08, 0.05, 0.03)


class Table:
    """Shares of hits by kind, each drawn towards an assumption until there is evidence."""

    def __init__(self, assumed: Sequence[float]) -> None:
        self.shares = list(assumed)  # expected, by kind
        self._trials = [PRIOR_WEIGHT] * len(assumed)

    def learn(self, kind: int, hit: bool) -> None:
        """One more trial."""
        self._trials[kind] = min(self._trials[kind] + 1, MEMORY)
        self.shares[kind] += (hit - self.shares[kind]) / self._trials[kind]

    def logs(self) -> list[float]:
        """Natural logarithms of all shares."""
        return [math.log(max(share, LEAST)) for share in self.shares]


@dataclass
class Average:
    """A mean that forgets."""

    value: float
    step: float = 0.1

    def learn(self, value: float) -> None:
        """One more observation."""
        self.value += self.step * (value - self.value)


@dataclass
class Waiting:
    """What waiting for the draft has brought, in expected tokens, and how long it took."""

    gain: Average = field(default_factory=lambda: Average(1.0))
    ms: Average = field(default_factory=lambda: Average(10.0))

    def pays(self, rate: float) -> bool:
        """Whether the tokens are worth the time, at `rate` tokens per ms."""
        return self.gain.value > rate * self.ms.value


class Beliefs:
    """What is known of each source for one class of requests (greedy ones, or those that sample)."""

    def __init__(self) -> None:
        cells = typical()
        self.draft = Table([DOUBT * share for _ in range(CELLS // len(cells)) for share in cells])
        self.text = Table([min(0.95, _TEXT[length] * by) for length in LENGTHS for by in (1, _CONFIRMED, _CONTESTED)])
        self.recycled = Table([*_PAIR[:SUCCESSORS], *_SINGLE[:SUCCESSORS]])
        self.waiting = [[Waiting() for _ in range(WORTHS)] for _ in range(2)]  # see AdaptiveGuesser._waiting
        self.nodes = Average(32.0)  # guesses in a tree, so far
        self.drafted = Average(1.0)  # tokens a round that the draft's guesses were expected to bring
