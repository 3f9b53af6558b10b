"""The arithmetic of an EAGLE-style head: one decoder layer over (token, hidden state) pairs of the answer, fp32.

Entry s stands for answer token y[s] and the target's feature h[s] that produced it; its output predicts the next
feature, whose logits are those of y[s + 1]. Where no true feature exists yet, the output before stands in for it.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load
from torch import Tensor
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu

from shardflow.engine.checkpoint import Checkpoint
from shardflow.engine.errors import CheckpointError
from shardflow.engine.linear import PackedLinear, packs
from shardflow.engine.loader import read_config

KIND = "eagle_head"
EMBEDDING = "model.embed_tokens.weight"
LM_HEAD = "lm_head.weight"


@dataclass(frozen=True)
class HeadConfig:
    """The head's sizes, as its config.json gives them."""

    hidden_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    rms_norm_eps: float
    rope_theta: float
    vocab_size: int
    draft_vocab_size: int
    temperature: float  # what its logits are divided by, so that its confidence means what it says

    @classmethod
    def read(cls, path: Path) -> "HeadConfig":
        """From directory `path`. Raises CheckpointError for a missing size or another kind of model."""
        config: dict[str, Any] = json.loads((path / "config.json").read_text())
        if config.get("kind") != KIND:
            raise CheckpointError(f"{path} holds no {KIND}")
        names = list(cls.__dataclass_fields__)
        if missing := [name for name in names if name not in config]:
            raise CheckpointError(f"{path / 'config.json'} lacks {', '.join(missing)}")
        return cls(**{name: config[name] for name in names})


class HeadCache:
    """What one session's entries left behind: keys, values and outputs. Memory is not touched before it is written."""

    def __init__(self, config: HeadConfig, rows: int, device: torch.device) -> None:
        shape = (config.num_key_value_heads, rows, config.head_dim)
        self.keys = torch.empty(shape, device=device)
        self.values = torch.empty(shape, device=device)
        self.outputs = torch.empty(rows, config.hidden_size, device=device)  # predicted features


class EagleHead:
    """The loaded head, with what it needs of its target: the embedding, and the LM head where that is another one."""

    def __init__(self, path: Path, target: Path, max_len: int, device: torch.device) -> None:
        """Reads the head from `path` and the tables from the target's directory.

        Entries stand at positions below `max_len`. Raises CheckpointError when something is missing or does not fit.
        """
        self.config = config = HeadConfig.read(path)
        self.device = device
        weights = {name: value.to(device) for name, value in _load(path / "head.safetensors", config).items()}
        self.draft_vocab = weights.pop("draft_vocab").long()  # [draft_vocab] ids of the target
        weights = {name: value.float() for name, value in weights.items()}
        self.embedding, output = read_tables(target, config.vocab_size, config.hidden_size, device)
        self._weights = weights
        self._qkv = _product(torch.cat([weights.pop(f"{name}_proj.weight") for name in "qkv"]))
        self._gate_up = _product(torch.cat([weights.pop(f"{name}_proj.weight") for name in ("gate", "up")]))
        self._fc, self._o, self._down = (
            _product(weights.pop(f"{name}.weight")) for name in ("fc", "o_proj", "down_proj")
        )
        # Outputs are normalised features, the target's LM head knows plain ones: scale and shift are folded in once.
        spoken = output[self.draft_vocab] / config.temperature
        self._vocab = _product(spoken * weights["feature_std"], spoken @ weights["feature_mean"])
        self._cos, self._sin = (table.to(device) for table in rotary_tables(config, max_len))

    def normalised(self, hidden: Tensor) -> Tensor:
        """Features `[n, hidden]` from the target's final hidden states `[n, hidden]`."""
        return (hidden - self._weights["feature_mean"]) / self._weights["feature_std"]

    def forward(
        self,
        tokens: Sequence[int],
        features: Tensor,
        positions: Sequence[int] | NDArray[np.int64],
        cache: HeadCache,
        start: int,
        seen: Tensor | None,
    ) -> Tensor:
        """Writes n entries to rows [start, start + n) of `cache`, and returns their outputs `[n, hidden]`.

        features: `[n, hidden]`, one per token and position; seen: `[n, start + n]`, True where an entry may look, or
        None when all may look everywhere.
        """
        w, config, n = self._weights, self.config, len(tokens)
        embedded = (self.embedding[self._ids(tokens)] - w["embed_mean"]) / w["embed_std"]
        x = self._fc(torch.cat([embedded, features], dim=1))  # [n, hidden]
        qkv = self._qkv(self._norm(x, "input_norm")).view(n, -1, config.head_dim).transpose(0, 1)
        x = x + self._o(self._attend(qkv, self._ids(positions), cache, start, seen))
        gate, up = self._gate_up(self._norm(x, "post_attention_norm")).chunk(2, dim=1)
        x = x + self._down(silu(gate) * up)
        cache.outputs[start : start + n] = x
        return x

    def logits(self, outputs: Tensor) -> Tensor:
        """`[n, draft_vocab]` for the token after each entry, from outputs `[n, hidden]`."""
        return self._vocab(outputs)

    def _ids(self, values: Sequence[int] | NDArray[np.int64]) -> Tensor:
        return torch.tensor(values, device=self.device)

    def _norm(self, x: Tensor, name: str) -> Tensor:
        return rms_norm(x, (x.shape[-1],), self._weights[f"{name}.weight"], self.config.rms_norm_eps)

    def _attend(self, qkv: Tensor, positions: Tensor, cache: HeadCache, start: int, seen: Tensor | None) -> Tensor:
        """`[n, heads * head_dim]` from qkv `[all heads, n, head_dim]`. Queries of one KV head become rows of it."""
        heads, kv_heads, n = self.config.num_attention_heads, self.config.num_key_value_heads, len(positions)
        query, key, value = qkv[:heads], qkv[heads : heads + kv_heads], qkv[heads + kv_heads :]
        cos, sin = self._cos[positions], self._sin[positions]  # [n, head_dim]
        end = start + n
        cache.keys[:, start:end] = rotate(key, cos, sin)
        cache.values[:, start:end] = value
        grouped = rotate(query, cos, sin).reshape(1, kv_heads, -1, self.config.head_dim)
        mask = None if seen is None else seen.to(self.device).repeat(heads // kv_heads, 1)
        mixed = scaled_dot_product_attention(
            grouped, cache.keys[None, :, :end], cache.values[None, :, :end], attn_mask=mask
        )
        return mixed.view(heads, n, -1).transpose(0, 1).reshape(n, -1)


def _product(weight: Tensor, bias: Tensor | None = None) -> Callable[[Tensor], Tensor]:
    """What multiplies rows `[n, in]` by `weight` `[out, in]`; packed where that is faster for few rows."""
    if packs(weight.dtype, weight.device):
        return PackedLinear(weight, bias)
    return partial(linear, weight=weight, bias=bias)


def read_tables(target: Path, vocab: int, hidden: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Embedding and LM head of directory `target`, `[vocab, hidden]` in fp32; one and the same where they are tied."""
    checkpoint = Checkpoint(target)
    embedding = torch.empty(vocab, hidden, device=device)
    checkpoint.copy_into(EMBEDDING, embedding)
    if read_config(target).tie_word_embeddings:
        return embedding, embedding
    output = torch.empty_like(embedding)
    checkpoint.copy_into(LM_HEAD, output)
    return embedding, output


def head_shapes(config: HeadConfig) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a head's tensors."""
    hidden, wide = config.hidden_size, config.intermediate_size
    query, kv = config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (hidden, 2 * hidden),
        "q_proj.weight": (query, hidden),
        "k_proj.weight": (kv, hidden),
        "v_proj.weight": (kv, hidden),
        "o_proj.weight": (hidden, query),
        "gate_proj.weight": (wide, hidden),
        "up_proj.weight": (wide, hidden),
        "down_proj.weight": (hidden, wide),
        "draft_vocab": (config.draft_vocab_size,),
    } | {f"{name}.weight": (hidden,) for name in ("input_norm", "post_attention_norm")}
    return shapes | {f"{kind}_{part}": (hidden,) for kind in ("embed", "feature") for part in ("mean", "std")}


def _load(file: Path, config: HeadConfig) -> dict[str, Tensor]:
    """The head's tensors. Raises CheckpointError for a missing one or another shape than the configuration says."""
    shapes = head_shapes(config)
    tensors = load(file.read_bytes())  # not mapped: a new head may be written over the one that serves
    if wrong := [name for name, shape in shapes.items() if name not in tensors or tensors[name].shape != shape]:
        raise CheckpointError(f"{file}: missing, or not of the shape in config.json: {', '.join(wrong)}")
    if not 0 <= int(tensors["draft_vocab"].min()) <= int(tensors["draft_vocab"].max()) < config.vocab_size:
        raise CheckpointError(f"{file}: draft_vocab holds ids outside the vocabulary")
    return {name: tensors[name] for name in shapes}


def rotary_tables(config: HeadConfig, length: int) -> tuple[Tensor, Tensor]:
    """cos and signed sin `[length, head_dim]`; the sign is that of the half-split rotation."""
    frequency = config.rope_theta ** -(torch.arange(0, config.head_dim, 2).double() / config.head_dim)
    angle = torch.arange(length).double()[:, None] * frequency  # [length, head_dim / 2]
    cos, sin = angle.cos().float(), angle.sin().float()
    return torch.cat([cos, cos], dim=1), torch.cat([-sin, sin], dim=1)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x `[heads, n, head_dim]`, turned by each row's own angle."""
    return x * cos + x.roll(x.shape[-1] // 2, dims=-1) * sin
