"""The draft that is a causal language model of its own: all layers in one slice, one session's rows at a time."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from shardflow.engine.drafts.base import MAX_EXPANDED, NOTHING, DraftRequestError, Limits, Proposal, agreement, splice
from shardflow.engine.drafts.candidates import Ranking
from shardflow.engine.drafts.growth import Growth
from shardflow.engine.drafts.pool import Candidates, Nodes, Pool
from shardflow.engine.loader import load_slice
from shardflow.engine.model import ModelSlice, Segment
from shardflow.engine.sampling import SamplingParams

CHUNK = 512  # rows of one forward


class ModelDrafter:
    """Any causal language model that the engine loads; see `Drafter`."""

    hidden_size = 0

    def __init__(self, path: Path, max_tokens: int, dtype: torch.dtype, device: torch.device) -> None:
        """Loads directory `path`; texts longer than `max_tokens` get no guesses."""
        self._model = load_slice(path, None, dtype=dtype, device=device)
        self.vocab_size = self._model.vocab_size
        self.max_tokens = max_tokens

    def new_session(self) -> "ModelSession":
        return ModelSession(self._model, self.max_tokens)


class ModelSession:
    """See `DraftSession`. The KV holds the text, and behind it every node of the pool that was expanded, in order.

    When the text goes on along the tree, the rows of the path become rows of the text, and what is below stays: a key
    depends on its position and its path alone, and neither has changed.
    """

    def __init__(self, model: ModelSlice, max_tokens: int) -> None:
        self._model = model
        self._max_tokens = max_tokens
        self._kv = model.new_kv(max_tokens + MAX_EXPANDED)
        self._text: list[int] = []
        self._prompt_tokens = 0
        self._held = 0  # tokens of the text that the KV holds
        self._end: Tensor | None = None  # [1, hidden] at the text's last token, if that was fed last
        self._growth = Growth()

    @property
    def known_tokens(self) -> int:
        return len(self._text)

    def extend(self, base: int, tokens: Sequence[int], *, prompt_tokens: int, hidden: Tensor | None) -> None:
        if hidden is not None:
            raise DraftRequestError("hidden: this draft feeds on no hidden states")
        if not tokens and (base, prompt_tokens) == (len(self._text), self._prompt_tokens):
            return
        known, same = len(self._text), agreement(self._text, base, tokens)
        splice(self._text, base, tokens, prompt_tokens, self._model.vocab_size)
        pool = self._growth.pool if same == known and prompt_tokens == self._prompt_tokens else None
        self._prompt_tokens = prompt_tokens
        self._end = None
        self._held = min(self._held, same)
        self._growth.pool = None if pool is None else self._descend(pool, self._text[known:])
        if self._growth.pool is None and len(self._text) <= self._max_tokens:
            self._end = self._feed_text()

    @torch.inference_mode()
    def propose(self, limits: Limits, sampling: SamplingParams, calibration: Sequence[float] | None = None) -> Proposal:
        depth = self._max_tokens - len(self._text) + 1
        if min(depth, len(self._text), limits.max_nodes) < 1:
            return NOTHING
        limits = replace(limits, max_depth=min(limits.max_depth, depth))
        ranking = Ranking(sampling, self._text, self._prompt_tokens, limits.width)

        def roots() -> Candidates:
            end = self._feed_text() if self._end is None else self._end
            return ranking.candidates(self._model.logits(end), [[]], None, self._model.vocab_size)

        def expand(pool: Pool, nodes: Nodes) -> Candidates:
            logits = self._model.logits(self._feed_nodes(pool, nodes))
            return ranking.candidates(logits, pool.paths(nodes), None, self._model.vocab_size)

        return self._growth.propose(limits, ranking, calibration, roots, expand)

    def _descend(self, pool: Pool, tokens: Sequence[int]) -> Pool | None:
        """Follows `tokens`, new at the end of the text, down the tree; what is below them, if it has been there."""
        path = pool.walk(tokens)
        below, tree = pool.below(path) if len(path) == len(tokens) else (None, [])
        if len(pool.expanded):
            self._kv.keep(pool.places(path).tolist(), tree)
        self._held += len(path)
        return below

    def _feed_text(self) -> Tensor:
        """Feeds what the KV lacks of the text, its last token in any case; hidden `[1, hidden_size]` at that one."""
        self._held = min(self._held, len(self._text) - 1)
        hidden = torch.empty(0)
        while self._held < len(self._text):
            tokens = self._text[self._held : self._held + CHUNK]
            hidden = self._model.forward([Segment(self._kv, self._held, range(-1, len(tokens) - 1), tokens)])
            self._held += len(tokens)
        return hidden[-1:]

    def _feed_nodes(self, pool: Pool, nodes: Nodes) -> Tensor:
        """Feeds nodes behind those that were expanded before them; hidden `[nodes, hidden_size]`."""
        above = pool.places(pool.parents(nodes)).tolist()
        grows = len(pool.expanded) > 0
        return self._model.forward([Segment(self._kv, self._held, above, pool.tokens(nodes), grows=grows)])
