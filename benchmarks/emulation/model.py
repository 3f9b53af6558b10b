"""The emulated model: stands in for layers of one, with real KV caches and hidden states and a given time a pass.

Each layer keeps its state of the text (see `law`) in the KV cache, one number a row, and passes it on in hidden states.
A row that is lost, misplaced or seen by the wrong descendant, on any shard, therefore changes what the model says.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from benchmarks.emulation.law import VOCAB_SIZE, advance
from benchmarks.emulation.waiting import Pass
from shardflow.engine import KVCache, ModelSlice, Segment
from shardflow.engine.attention import Block, Step

HIDDEN_SIZE = 64
_HALF = 1 << 24


class EmulatedModel(ModelSlice):
    """Layers [start, stop) of `num_layers`; a pass of n rows takes `pass_ms(n)` milliseconds."""

    def __init__(self, start: int, stop: int, num_layers: int, digest: str, pass_ms: Callable[[int], float]) -> None:
        self.start, self.stop, self.num_layers = start, stop, num_layers
        self.hidden_size, self.vocab_size = HIDDEN_SIZE, VOCAB_SIZE
        self.dtype, self.device = torch.float32, torch.device("cpu")
        self.digest = digest
        self._pass_ms = pass_ms

    @property
    def is_first(self) -> bool:
        return self.start == 0

    @property
    def is_last(self) -> bool:
        return self.stop == self.num_layers

    def new_kv(self, max_len: int) -> KVCache:
        return KVCache(self.stop - self.start, 1, 1, max_len, torch.int64, self.device)

    def forward(self, segments: Sequence[Segment]) -> Tensor:
        """`[rows_total, HIDDEN_SIZE]`: the last layer's state and the position of each row."""
        emulated = Pass(self._pass_ms(sum(len(segment.parents) for segment in segments)))
        hidden = super().forward(segments)
        self._finish(emulated)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """`[n, VOCAB_SIZE]` of what comes after each row."""
        logits = torch.empty(len(hidden), VOCAB_SIZE)
        for row, (state, position) in zip(logits, _decode(hidden), strict=True):
            self._say(state, position + 1, row)
        return logits

    def _finish(self, emulated: Pass) -> None:
        emulated.end()

    def _say(self, state: int, position: int, logits: Tensor) -> None:
        """Fills the `[VOCAB_SIZE]` logits of what comes at `position`, after a text of this state."""
        raise NotImplementedError

    def _inputs(self, segments: Sequence[Segment]) -> Tensor:
        """What each row brings: its token into the first layer, the state of the shard before into others."""
        if not self.is_first:
            return self._hidden_inputs(segments)
        return _encode([(token, 0) for segment in segments for token in segment.tokens or ()])

    def _run(self, hidden: Tensor, step: Step) -> Tensor:
        values = [value for value, _ in _decode(hidden)]
        return torch.cat([self._follow(block, values[block.start : block.stop]) for block in step.blocks])

    def _follow(self, block: Block, values: Sequence[int]) -> Tensor:
        """Brings the states of a block's new rows about, which are the last ones of its tree."""
        held = block.kv.keys[:, 0, :, 0].numpy()  # [layers, max_len] states
        first = block.base + len(block.depth) - len(values)  # KV row of the first new row
        parents = range(-1, len(block.depth) - 1) if block.parents is None else block.parents.tolist()
        for row, (value, parent) in enumerate(zip(values, parents[first - block.base :], strict=True), start=first):
            above = block.base + parent  # the last row of the text for a child of it
            before = held[:, above].tolist() if above >= 0 else [0] * len(held)
            held[:, row] = advance(tuple(before), [value])
        states = held[-1, first : first + len(values)].tolist()
        return _encode(list(zip(states, (block.base + block.depth[-len(values) :]).tolist(), strict=True)))


def _encode(rows: Sequence[tuple[int, int]]) -> Tensor:
    """`[rows, HIDDEN_SIZE]`: a number of 48 bits and a position each, in integers that fp32 holds exactly."""
    hidden = torch.zeros(len(rows), HIDDEN_SIZE)
    hidden[:, :3] = torch.tensor([(*divmod(value, _HALF), position) for value, position in rows])
    return hidden


def _decode(hidden: Tensor) -> list[tuple[int, int]]:
    """What `_encode` was told."""
    return [(high * _HALF + low, position) for high, low, position in hidden[:, :3].long().tolist()]
