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

HIDDEN_SIZE = 64
_HALF = 1 << 24  # integers below are exact in fp32


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
        hidden = torch.cat([self._rows(segment) for segment in segments])
        self._finish(emulated)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """`[n, VOCAB_SIZE]` of what comes after each row."""
        logits = torch.empty(len(hidden), VOCAB_SIZE)
        for row, (high, low, position) in zip(logits, hidden[:, :3].long().tolist(), strict=True):
            self._say(high * _HALF + low, position + 1, row)
        return logits

    def _finish(self, emulated: Pass) -> None:
        emulated.end()

    def _say(self, state: int, position: int, logits: Tensor) -> None:
        """Fills the `[VOCAB_SIZE]` logits of what comes at `position`, after a text of this state."""
        raise NotImplementedError

    def _rows(self, segment: Segment) -> Tensor:
        segment.kv.truncate(segment.base)
        segment.kv.check(segment.base, len(segment.parents))
        held = segment.kv.keys[:, 0, :, 0]  # [layers, max_len] states
        above = held[:, segment.base - 1].tolist() if segment.base else [0] * len(held)
        rows: list[tuple[int, ...]] = []  # [rows][layers] states
        positions: list[int] = []
        for value, parent in zip(self._values(segment), segment.parents, strict=True):
            rows.append(advance(rows[parent] if parent >= 0 else tuple(above), [value]))
            positions.append(positions[parent] + 1 if parent >= 0 else segment.base)
        held[:, segment.base : segment.base + len(rows)] = torch.tensor(rows).t()
        segment.kv.extend(segment.parents)
        hidden = torch.zeros(len(rows), HIDDEN_SIZE)
        hidden[:, :3] = torch.tensor([(*divmod(row[-1], _HALF), at) for row, at in zip(rows, positions, strict=True)])
        return hidden

    def _values(self, segment: Segment) -> list[int]:
        """What each row brings: its token into the first layer, the state of the shard before into others."""
        if self.is_first:
            return list(segment.tokens or ())
        assert segment.hidden is not None
        return [high * _HALF + low for high, low in segment.hidden[:, :2].long().tolist()]
