"""Packed attention: one sequence of rows, cut into segments, each reading its own session's KV.

The Hugging Face layers call two things of ours: `PackedCache.update`, which writes the new rows in place, and
`packed_attention`, registered under the name ATTENTION. Both find the layout of the step in the keyword `step`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from shardflow.engine.kv import KVCache

ATTENTION = "shardflow_packed"


@dataclass(eq=False)
class Block:
    """One segment within a step: rows [start, stop) of the packed sequence, KV rows [written, end) of its session.

    Its tree is what the session holds from `base` on: these rows, and before them those of a slice that they grow.
    """

    kv: KVCache
    base: int
    start: int
    stop: int
    depth: NDArray[np.int64]  # [tree], 0 for a child of the committed text
    parents: NDArray[np.int64] | None  # [tree], None for a chain
    masks: dict[tuple[int | None, int], Tensor | None] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return self.stop - self.start

    @property
    def end(self) -> int:
        return self.base + len(self.depth)

    @property
    def written(self) -> int:
        """The first KV row that is new."""
        return self.end - self.rows

    @property
    def positions(self) -> NDArray[np.int64]:
        """[rows]: where each row stands in the text."""
        return self.base + self.depth[-self.rows :]

    def first_column(self, window: int | None) -> int:
        """The first KV row that any row of the block can see."""
        return 0 if window is None else max(0, self.base - window + 1)

    def mask(self, window: int | None, groups: int, like: Tensor) -> Tensor | None:
        """[groups * rows, columns], 0 where a row may look and -inf elsewhere; None when all may see all.

        Built once a step for each window, and shared by the layers. `groups` query heads share a KV head.
        """
        if len(self.depth) == 1:
            return None
        key = (window, groups)
        if key not in self.masks:
            seen = self._visible(window)
            self.masks[key] = None if seen.all() else _additive(np.tile(seen, (groups, 1)), like)
        return self.masks[key]

    def _visible(self, window: int | None) -> NDArray[np.bool_]:
        """[rows, columns]: the committed text and the row's own ancestors, within the window by position."""
        first = self.first_column(window)
        columns = np.concatenate([np.arange(first, self.base), self.base + self.depth])  # position of each KV row
        seen = np.ones((self.rows, len(columns)), dtype=np.bool_)
        seen[:, self.base - first :] = _ancestors(self.parents, len(self.depth), self.rows)
        return seen if window is None else seen & (columns[None, :] > self.positions[:, None] - window)


@dataclass(frozen=True)
class Step:
    """The layout of one forward: which rows belong to which session."""

    blocks: Sequence[Block]


class PackedCache:
    """What the decoder layers take for a cache: writes each block's new rows into its session."""

    def update(
        self, keys: Tensor, values: Tensor, layer: int, kwargs: dict[str, Any] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Takes keys and values `[1, kv_heads, rows, head_dim]` of local layer `layer`; hands them back unread."""
        assert kwargs is not None
        for block in kwargs["step"].blocks:
            block.kv.keys[layer, :, block.written : block.end] = keys[0, :, block.start : block.stop]
            block.kv.values[layer, :, block.written : block.end] = values[0, :, block.start : block.stop]
        return keys, values


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: None,
    *,
    step: Step,
    scaling: float,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention of query `[1, heads, rows, head_dim]` over each block's session; `[1, rows, heads, head_dim]`."""
    layer: int = module.layer_idx  # type: ignore[assignment]
    outputs = [_attend(query[0, :, b.start : b.stop], b, layer, scaling, sliding_window, softcap) for b in step.blocks]
    packed = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1)  # [heads, rows, head_dim]
    return packed.transpose(0, 1).unsqueeze(0), None


def _attend(
    query: Tensor, block: Block, layer: int, scaling: float, window: int | None, softcap: float | None
) -> Tensor:
    """Query heads that share a KV head are laid out as further rows, so that no key is ever repeated in memory."""
    heads, rows, head_dim = query.shape
    first = block.first_column(window)
    keys = block.kv.keys[layer, :, first : block.end]  # [kv_heads, columns, head_dim]
    values = block.kv.values[layer, :, first : block.end]
    groups = heads // keys.shape[0]
    grouped = query.reshape(keys.shape[0], groups * rows, head_dim)
    mask = block.mask(window, groups, query)
    if softcap is None:
        seen = scaled_dot_product_attention(grouped[None], keys[None], values[None], attn_mask=mask, scale=scaling)[0]
    else:
        seen = _softcapped(grouped, keys, values, mask, scaling, softcap)
    return seen.reshape(heads, rows, head_dim)


def _softcapped(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, scaling: float, softcap: float
) -> Tensor:
    scores = torch.tanh(query @ keys.transpose(1, 2) * (scaling / softcap)) * softcap
    if mask is not None:
        scores = scores + mask
    return torch.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype) @ values


def depths(parents: NDArray[np.int64]) -> NDArray[np.int64]:
    """[tree]: how many ancestors each row has among the rows of its own tree."""
    depth = np.zeros(len(parents), dtype=np.int64)
    up = parents
    while (live := up >= 0).any():
        depth += live
        up = np.where(live, parents[up], -1)
    return depth


def _ancestors(parents: NDArray[np.int64] | None, tree: int, rows: int) -> NDArray[np.bool_]:
    """[rows, tree], for the last rows of a tree: True where the column is the row itself or one of its ancestors."""
    if parents is None:
        return np.tri(rows, tree, tree - rows, dtype=np.bool_)
    seen = np.eye(rows, tree, tree - rows, dtype=np.bool_)
    up = parents[-rows:]
    while (live := up >= 0).any():
        seen[np.nonzero(live)[0], up[live]] = True
        up = np.where(live, parents[up], -1)
    return seen


def _additive(seen: NDArray[np.bool_], like: Tensor) -> Tensor:
    mask = torch.zeros(seen.shape, dtype=like.dtype, device=like.device)
    return mask.masked_fill_(torch.from_numpy(~seen).to(like.device), float("-inf"))


ALL_ATTENTION_FUNCTIONS.register(ATTENTION, packed_attention)
