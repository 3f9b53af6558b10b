"""The head while it learns: the arithmetic of shardflow.engine.drafts.head over whole answers, unrolled.

Step 1 sees the target's features. Step j sees, at each token, what step j - 1 predicted for it, and attends to true
entries up to j - 1 tokens back and to its own guesses after that: what the draft will meet j tokens deep in a tree.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu

from shardflow.engine.drafts.head import HeadConfig, head_shapes, rotary_tables, rotate

Pair = tuple[Tensor, Tensor]  # keys and values, [answers, heads, length, head_dim]


@dataclass(frozen=True)
class Answers:
    """A batch of answers, padded on the right. Features stand with the tokens that they produced."""

    tokens: Tensor  # [answers, length]
    real: Tensor  # [answers, length], False at padding
    features: Tensor  # [answers, length, hidden], normalised


class Student(nn.Module):
    """A head's trainable weights, and the frozen tables that it shares with its target."""

    def __init__(self, config: HeadConfig, frozen: Mapping[str, Tensor], embedding: Tensor) -> None:
        """`frozen`: the statistics of embedding and features (`*_mean`, `*_std`), each `[hidden]`."""
        super().__init__()
        self.config = config
        self.embedding = embedding  # [vocab, hidden]
        self.frozen = dict(frozen)
        self.weights = nn.ParameterDict()  # by the names of a head's file, whose dots a parameter may not have
        for name, shape in head_shapes(config).items():
            if name.endswith(".weight"):
                start = torch.ones(shape) if len(shape) == 1 else torch.randn(shape) * (0.5 / shape[1] ** 0.5)
                self.weights[name.removesuffix(".weight")] = nn.Parameter(start.to(embedding.device))

    def unrolled(self, answers: Answers, steps: int) -> list[Tensor]:
        """Predicted features `[answers, length, hidden]` of each step; entry s predicts the feature of token s + 1.

        Step j has no meaning at the first j - 1 tokens: what it feeds on starts with step 1 at the first one.
        """
        embedded = (self.embedding[answers.tokens] - self.frozen["embed_mean"]) / self.frozen["embed_std"]
        features, seen, outputs = answers.features, list[Pair](), list[Tensor]()
        for _ in range(steps):
            x = linear(torch.cat([embedded, features], dim=-1), self.weights["fc"])
            outputs.append(self._layer(x, seen))
            features = _later(outputs[-1], 1, dim=1)
        return outputs

    def _layer(self, x: Tensor, seen: list[Pair]) -> Tensor:
        w = self.weights
        query = self._turned(self._normed_heads(x, "q"))
        groups = self.config.num_attention_heads // self.config.num_key_value_heads
        key, value = self._turned(self._normed_heads(x, "k")), self._normed_heads(x, "v")
        seen.append((key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)))
        x = x + linear(_attend(query, seen), w["o_proj"])
        z = self._norm(x, "post_attention_norm")
        return x + linear(silu(linear(z, w["gate_proj"])) * linear(z, w["up_proj"]), w["down_proj"])

    def _norm(self, x: Tensor, name: str) -> Tensor:
        return rms_norm(x, (x.shape[-1],), self.weights[name], self.config.rms_norm_eps)

    def _normed_heads(self, x: Tensor, name: str) -> Tensor:
        """`[answers, heads, length, head_dim]` of queries, keys or values."""
        projected = linear(self._norm(x, "input_norm"), self.weights[f"{name}_proj"])
        return projected.view(*projected.shape[:-1], -1, self.config.head_dim).transpose(1, 2)

    def _turned(self, x: Tensor) -> Tensor:
        cos, sin = rotary_tables(self.config, x.shape[2])
        return rotate(x, cos.to(x.device), sin.to(x.device))


def _attend(query: Tensor, seen: list[Pair]) -> Tensor:
    """`[answers, length, heads * head_dim]`: over the true entries of step 1, and one entry of each later step."""
    if len(seen) == 1:
        return scaled_dot_product_attention(query, *seen[0], is_causal=True).transpose(1, 2).flatten(2)
    (keys, values), *guessed = seen
    length, query = query.shape[2], query * query.shape[-1] ** -0.5
    ahead = torch.ones(length, length, dtype=torch.bool, device=query.device).triu(1 - len(guessed))
    scores = [(query @ keys.transpose(-1, -2)).masked_fill(ahead, float("-inf"))]
    # Of a later step a token sees one entry only: the one on its own path.
    paths = [(_later(k, len(guessed) - i), _later(v, len(guessed) - i)) for i, (k, v) in enumerate(guessed, 1)]
    scores += [(query * k).sum(-1, keepdim=True) for k, _ in paths]
    weights = torch.cat(scores, dim=-1).softmax(dim=-1)
    mixed = weights[..., :length] @ values
    for column, (_, v) in enumerate(paths, length):
        mixed = mixed + weights[..., column, None] * v
    return mixed.transpose(1, 2).flatten(2)


def _later(x: Tensor, by: int, dim: int = 2) -> Tensor:
    """x, moved `by` tokens on along `dim`; zeros come in."""
    if by == 0:
        return x
    return torch.cat([torch.zeros_like(x.narrow(dim, 0, by)), x.narrow(dim, 0, x.shape[dim] - by)], dim=dim)
