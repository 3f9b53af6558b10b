"""The draft that is a head on the target: it reads the target's own hidden states, and only the answer's tokens."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from shardflow.engine.drafts.base import (
    MAX_EXPANDED,
    NOTHING,
    DraftGapError,
    DraftRequestError,
    Limits,
    Proposal,
    agreement,
    splice,
)
from shardflow.engine.drafts.candidates import Ranking
from shardflow.engine.drafts.growth import Growth
from shardflow.engine.drafts.head import EagleHead, HeadCache
from shardflow.engine.drafts.pool import Candidates, Nodes, Pool
from shardflow.engine.errors import NonFiniteError
from shardflow.engine.sampling import SamplingParams

CHUNK = 512  # entries of one forward


class EagleDrafter:
    """An EAGLE-style head; see `Drafter`. A session's context counts the answer's tokens only."""

    def __init__(self, path: Path, target: Path, max_tokens: int, device: torch.device) -> None:
        """Reads the head from `path`, the embedding from `target`; at most `max_tokens` answer tokens a session."""
        self.head = EagleHead(path, target, max_tokens, device)
        self.vocab_size = self.head.config.vocab_size
        self.hidden_size = self.head.config.hidden_size
        self.max_tokens = max_tokens

    def new_session(self) -> "EagleSession":
        return EagleSession(self.head, self.max_tokens)


class EagleSession:
    """See `DraftSession`. Rows [0, entries) of the cache come from true features; what is behind them is scratch."""

    def __init__(self, head: EagleHead, max_tokens: int) -> None:
        self._head = head
        self._max_tokens = max_tokens
        self._cache = HeadCache(head.config, max_tokens + MAX_EXPANDED, head.device)
        self._text: list[int] = []
        self._prompt_tokens = 0
        self._entries = 0
        self._growth = Growth()

    @property
    def known_tokens(self) -> int:
        return len(self._text)

    @torch.inference_mode()
    def extend(self, base: int, tokens: Sequence[int], *, prompt_tokens: int, hidden: Tensor | None) -> None:
        features = self._features(hidden, len(tokens))
        if not tokens and (base, prompt_tokens) == (len(self._text), self._prompt_tokens):
            return
        same = agreement(self._text, base, tokens)
        splice(self._text, base, tokens, prompt_tokens, self._head.config.vocab_size)
        self._growth.pool = None
        self._entries = max(0, min(self._entries, same - prompt_tokens)) if prompt_tokens == self._prompt_tokens else 0
        self._prompt_tokens = prompt_tokens
        if len(self._text) - prompt_tokens > self._max_tokens:
            return
        first = prompt_tokens + self._entries  # the first token that needs its feature
        if len(self._text) - len(features) > first:
            del self._text[first:]
            raise DraftGapError(f"no hidden state for the token at {first}", first)
        self._feed(features[len(features) - (len(self._text) - first) :])

    @torch.inference_mode()
    def propose(self, limits: Limits, sampling: SamplingParams, calibration: Sequence[float] | None = None) -> Proposal:
        answer = len(self._text) - self._prompt_tokens
        depth = min(limits.max_depth, self._max_tokens - answer + 1)
        if not answer or depth < 1 or not limits.max_nodes:
            return NOTHING
        limits = replace(limits, max_depth=depth)
        ranking = Ranking(sampling, self._text, self._prompt_tokens, limits.width)

        def roots() -> Candidates:
            return self._candidates(ranking, self._cache.outputs[self._entries - 1 : self._entries], [[]])

        def expand(pool: Pool, nodes: Nodes) -> Candidates:
            return self._candidates(ranking, self._feed_nodes(pool, nodes), pool.paths(nodes))

        return self._growth.propose(limits, ranking, calibration, roots, expand)

    def _candidates(self, ranking: Ranking, outputs: Tensor, paths: Sequence[Sequence[int]]) -> Candidates:
        head = self._head
        return ranking.candidates(head.logits(outputs), paths, head.draft_vocab, head.config.vocab_size)

    def _features(self, hidden: Tensor | None, tokens: int) -> Tensor:
        width = self._head.config.hidden_size
        if hidden is None:
            return torch.empty(0, width, device=self._head.device)
        if hidden.dim() != 2 or hidden.shape[1] != width or len(hidden) > tokens:
            raise DraftRequestError(f"hidden: shape {list(hidden.shape)}, but [at most {tokens}, {width}] is due")
        if not torch.isfinite(hidden).all():
            raise NonFiniteError("hidden: the target's hidden states hold NaN or infinity")
        return self._head.normalised(hidden.to(self._head.device, torch.float32))

    def _feed(self, features: Tensor) -> None:
        """Appends the entries of the last tokens of the text, from their true features `[n, hidden]`."""
        for done in range(0, len(features), CHUNK):
            chunk = features[done : done + CHUNK]
            start, end = self._entries, self._entries + len(chunk)
            tokens = self._text[self._prompt_tokens + start : self._prompt_tokens + end]
            seen = None if len(chunk) == 1 else torch.arange(end) <= torch.arange(start, end)[:, None]
            self._head.forward(tokens, chunk, range(start, end), self._cache, start, seen)
            self._entries = end

    def _feed_nodes(self, pool: Pool, nodes: Nodes) -> Tensor:
        """Outputs `[nodes, hidden]`; row entries + i of the cache is the i-th node that was expanded."""
        above = self._entries + pool.places(pool.parents(nodes))
        start = self._entries + len(pool.expanded)
        return self._head.forward(
            pool.tokens(nodes),
            self._cache.outputs[torch.from_numpy(above)],
            self._entries - 1 + pool.depths(nodes),
            self._cache,
            start,
            self._seen(pool, nodes),
        )

    def _seen(self, pool: Pool, nodes: Nodes) -> Tensor | None:
        """`[nodes, cache rows]`, True for the committed text and a node's own path; None when that is everything."""
        seen = np.ones((len(nodes), self._entries + len(pool.expanded) + len(nodes)), dtype=np.bool_)
        seen[:, self._entries :] = pool.ancestry(nodes)
        return None if seen.all() else torch.from_numpy(seen)
