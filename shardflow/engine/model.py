"""A slice of a model: some of its layers, run over the packed rows of many sessions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from shardflow.engine.attention import Block, PackedCache, Step, depths
from shardflow.engine.errors import NonFiniteError
from shardflow.engine.kv import KVCache


@dataclass(frozen=True)
class Segment:
    """The rows that one session adds in one step.

    Row r stands at position `base` + its depth, and sees the KV rows [0, base) and its own ancestors. `parents[r]` is
    an earlier row of the same segment, or -1 for a child of the committed text; a chain has `parents[r] == r - 1`.
    The first slice reads `tokens`, later ones `hidden`, `[rows, hidden_size]`. A segment that `grows` adds rows to the
    tree that the last one began, whose rows stay behind `base`: parents count from the first of those.
    """

    kv: KVCache
    base: int
    parents: Sequence[int]
    tokens: Sequence[int] | None = None
    hidden: Tensor | None = None
    grows: bool = False


@dataclass(frozen=True)
class Parts:
    """The modules of a slice, as the loader cut them out of the Hugging Face model."""

    layers: nn.ModuleList
    rotary: nn.Module
    rotary_types: Sequence[str] | None  # the layers' types, when the rotary table depends on them
    embed: nn.Module | None
    norm: nn.Module | None
    head: nn.Module | None


class ModelSlice:
    """Layers [start, stop) of a model, with the embedding on the first slice, norm and LM head on the last.

    Its methods are to be called from one thread at a time.
    """

    def __init__(
        self, config: Any, parts: Parts, start: int, dtype: torch.dtype, device: torch.device, digest: str
    ) -> None:
        self.start = start
        self.stop = start + len(parts.layers)
        self.num_layers: int = config.num_hidden_layers
        self.hidden_size: int = config.hidden_size
        self.vocab_size: int = config.vocab_size
        self.dtype = dtype
        self.device = device
        self.digest = digest
        self._parts = parts
        self._softcap: float | None = getattr(config, "final_logit_softcapping", None)
        self._kv_heads: int = config.num_key_value_heads
        self._head_dim: int = parts.layers[0].self_attn.head_dim  # type: ignore[assignment, union-attr]

    @property
    def is_first(self) -> bool:
        return self._parts.embed is not None

    @property
    def is_last(self) -> bool:
        return self._parts.head is not None

    @property
    def name(self) -> str:
        return f"layers [{self.start}, {self.stop}) of {self.num_layers}"

    @property
    def bytes_per_token(self) -> int:
        """Bytes that one row of a session's cache takes on this slice."""
        return self.new_kv(1).bytes_per_token

    def new_kv(self, max_len: int) -> KVCache:
        """An empty cache for a session of at most `max_len` rows."""
        layers = len(self._parts.layers)
        return KVCache(layers, self._kv_heads, self._head_dim, max_len, self.dtype, self.device)

    @torch.inference_mode()
    def forward(self, segments: Sequence[Segment]) -> Tensor:
        """Run the rows of all segments, packed in order; `[rows_total, hidden_size]`, normed on the last slice.

        Rewinds each cache to its segment's base, unless that grows, and appends the segment's rows. When it raises, no
        cache has grown: CapacityError or CacheStateError before anything is written, NonFiniteError when the numbers
        have left the finite (the other segments may then be run again as they are).
        """
        blocks = _layout(segments)
        hidden = self._inputs(segments)
        for block, segment in zip(blocks, segments, strict=True):
            if not segment.grows:
                block.kv.truncate(block.base)
        hidden = self._run(hidden, Step(blocks))
        self._check_finite(hidden, blocks)
        for block, segment in zip(blocks, segments, strict=True):
            block.kv.extend(segment.parents, grows=segment.grows)
        return hidden

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """`[n, vocab]` in fp32 from `[n, hidden_size]` that the last slice's `forward` returned."""
        if self._parts.head is None:
            raise ValueError(f"{self.name} has no LM head")
        logits: Tensor = self._parts.head(hidden)
        if self._softcap is not None:
            logits = torch.tanh(logits / self._softcap) * self._softcap
        return logits.float()

    def _inputs(self, segments: Sequence[Segment]) -> Tensor:
        """`[rows_total, hidden_size]`: embedded tokens on the first slice, what the slice before returned on others."""
        if self._parts.embed is None:
            return self._hidden_inputs(segments)
        if any(len(s.tokens or ()) != len(s.parents) for s in segments):
            raise ValueError(f"{self.name} needs one token for each row")
        ids = [token for s in segments for token in s.tokens or ()]
        if not all(0 <= token < self.vocab_size for token in ids):
            raise ValueError(f"a token id lies outside the vocabulary of {self.vocab_size}")
        embedded: Tensor = self._parts.embed(torch.tensor(ids, device=self.device))
        return embedded

    def _hidden_inputs(self, segments: Sequence[Segment]) -> Tensor:
        rows = [
            s.hidden for s in segments if s.hidden is not None and s.hidden.shape == (len(s.parents), self.hidden_size)
        ]
        if len(rows) != len(segments):
            raise ValueError(f"{self.name} needs hidden states [rows, {self.hidden_size}] for each segment")
        return torch.cat(rows).to(self.device, self.dtype)

    def _run(self, hidden: Tensor, step: Step) -> Tensor:
        positions = np.concatenate([block.positions for block in step.blocks])
        hidden = hidden[None]  # [1, rows, hidden]
        rotary = self._rotary(hidden, torch.from_numpy(positions).to(self.device)[None])
        cache = PackedCache()
        for index, layer in enumerate(self._parts.layers):
            hidden = layer(
                hidden, attention_mask=None, position_embeddings=rotary[index], cache=cache, use_cache=True, step=step
            )
        return (hidden if self._parts.norm is None else self._parts.norm(hidden))[0]

    def _rotary(self, hidden: Tensor, positions: Tensor) -> list[tuple[Tensor, Tensor]]:
        """cos and sin `[1, rows, head_dim]` for each layer, computed once for each kind of layer."""
        kinds = self._parts.rotary_types
        if kinds is None:
            return [self._parts.rotary(hidden, positions)] * len(self._parts.layers)
        tables = {kind: self._parts.rotary(hidden, positions, kind) for kind in set(kinds)}
        return [tables[kind] for kind in kinds]

    def _check_finite(self, hidden: Tensor, blocks: Sequence[Block]) -> None:
        finite = torch.isfinite(hidden).all(dim=1)
        if not finite.all():
            bad = [i for i, block in enumerate(blocks) if not finite[block.start : block.stop].all()]
            raise NonFiniteError(f"{self.name}: the output is not finite", bad)


def _layout(segments: Sequence[Segment]) -> list[Block]:
    """Place the segments one behind the other; raises before any cache is changed."""
    if len({id(s.kv) for s in segments}) != len(segments):
        raise ValueError("two segments share one cache")
    blocks: list[Block] = []
    start = 0
    for segment in segments:
        rows = len(segment.parents)
        held = segment.kv.parents if segment.grows else ()
        parents = np.asarray([*held, *segment.parents], dtype=np.int64)
        order = np.arange(len(parents))
        if rows == 0 or (parents < -1).any() or (parents >= order).any():
            raise ValueError("a segment needs rows, and every parent must be an earlier row or -1")
        segment.kv.check(segment.base, rows, grows=segment.grows)
        chain = bool((parents == order - 1).all())
        depth = order if chain else depths(parents)
        blocks.append(Block(segment.kv, segment.base, start, start + rows, depth, None if chain else parents))
        start += rows
    return blocks
