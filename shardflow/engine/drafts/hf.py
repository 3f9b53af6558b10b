"""The draft that is a causal language model of its own: all layers in one slice, one session's rows at a time."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from shardflow.engine.drafts.base import MAX_EXPANDED, NOTHING, DraftRequestError, Limits, Proposal, agreement, splice
from shardflow.engine.drafts.candidates import Ranking
from shardflow.engine.drafts.growth import grow
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
    """See `DraftSession`. The KV holds the text and the guesses that were fed, so that right ones are not fed again."""

    def __init__(self, model: ModelSlice, max_tokens: int) -> None:
        self._model = model
        self._max_tokens = max_tokens
        self._kv = model.new_kv(max_tokens + MAX_EXPANDED)
        self._text: list[int] = []
        self._prompt_tokens = 0
        self._fed: list[int] = []  # ids by KV row: a prefix of the text, then the guesses of a chain
        self._tree: list[int] = []  # ids of the KV rows behind those; the KV knows their parents
        self._end: Tensor | None = None  # [1, hidden] at the text's last token
        self._pool: Pool | None = None  # what was grown below the text
        self._grown_by: tuple[SamplingParams, int] | None = None

    @property
    def known_tokens(self) -> int:
        return len(self._text)

    def extend(self, base: int, tokens: Sequence[int], *, prompt_tokens: int, hidden: Tensor | None) -> None:
        if hidden is not None:
            raise DraftRequestError("hidden: this draft feeds on no hidden states")
        if not tokens and (base, prompt_tokens) == (len(self._text), self._prompt_tokens):
            return
        same = agreement(self._fed, base, tokens)
        splice(self._text, base, tokens, prompt_tokens, self._model.vocab_size)
        self._prompt_tokens = prompt_tokens
        self._pool = self._end = None
        if len(self._text) <= self._max_tokens:
            self._adopt_guesses(same)
            self._end = self._feed_text()

    def propose(self, limits: Limits, sampling: SamplingParams, calibration: Sequence[float] | None = None) -> Proposal:
        depth = min(limits.max_depth, self._max_tokens - len(self._text) + 1)
        if self._end is None or not limits.max_nodes:
            return NOTHING
        limits = replace(limits, max_depth=depth)
        ranking = Ranking(sampling, self._text, self._prompt_tokens, limits.width)
        pool = self._pool_for(ranking, self._end)
        pool.calibrate(calibration)
        levels = grow(pool, lambda nodes: self._expand(pool, ranking, nodes), limits)
        return Proposal(pool.tree(limits), levels)

    def _pool_for(self, ranking: Ranking, end: Tensor) -> Pool:
        """What has been grown for the text, if it was ranked alike; else a new beginning."""
        if self._pool is None or self._grown_by != (ranking.sampling, ranking.width):
            del self._fed[len(self._text) :]
            self._tree = []
            self._pool = Pool(self._candidates(ranking, end, [[]]))
            self._grown_by = (ranking.sampling, ranking.width)
        return self._pool

    def _expand(self, pool: Pool, ranking: Ranking, nodes: Nodes) -> Candidates:
        chain = pool.width == 1
        hidden = self._feed(pool.tokens(nodes)) if chain else self._feed_tree(pool, nodes)[-len(nodes) :]
        return self._candidates(ranking, hidden, pool.paths(nodes))

    def _candidates(self, ranking: Ranking, hidden: Tensor, paths: Sequence[Sequence[int]]) -> Candidates:
        return ranking.candidates(self._model.logits(hidden), paths, None, self._model.vocab_size)

    def _adopt_guesses(self, same: int) -> None:
        """Cuts what was fed to what the text has in common with it: `same` rows, then a path of the tree."""
        path: list[int] = []
        if same == len(self._fed):
            for token in self._text[same:]:
                above = path[-1] if path else -1
                rows = range(len(self._tree))
                found = [row for row in rows if self._kv.parents[row] == above and self._tree[row] == token]
                if not found:
                    break
                path += found
            if self._tree:
                self._kv.keep(path)
        self._fed = [*self._fed[:same], *(self._tree[row] for row in path)]
        self._tree = []

    def _feed_text(self) -> Tensor:
        """Feeds what the KV lacks of the text, its last token in any case; hidden `[1, hidden_size]` at that one."""
        del self._fed[len(self._text) - 1 :]
        hidden = torch.empty(0)
        while len(self._fed) < len(self._text):
            hidden = self._feed(self._text[len(self._fed) : len(self._fed) + CHUNK])
        return hidden[-1:]

    def _feed(self, tokens: Sequence[int]) -> Tensor:
        """Appends a chain; hidden `[rows, hidden_size]`."""
        segment = Segment(self._kv, len(self._fed), range(-1, len(tokens) - 1), tokens)
        hidden = self._model.forward([segment])
        self._fed += tokens
        return hidden

    def _feed_tree(self, pool: Pool, nodes: Nodes) -> Tensor:
        """Feeds all of the tree so far: the engine's rows see the text and ancestors in their own slice, no others."""
        rows = np.concatenate([pool.expanded, nodes])
        place = {node: row for row, node in enumerate(rows.tolist())} | {-1: -1}
        parents = [place[node] for node in pool.parents(rows).tolist()]
        self._tree = pool.tokens(rows)
        return self._model.forward([Segment(self._kv, len(self._fed), parents, self._tree)])
