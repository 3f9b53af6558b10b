"""From a draft's logits to the candidates after each row, ranked as the target will choose.

What is left out here to be fast costs acceptance at the most, never the text: the target chooses by its own numbers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from shardflow.engine.drafts.pool import Candidates
from shardflow.engine.errors import NonFiniteError
from shardflow.engine.noise import gumbel
from shardflow.engine.sampling import SamplingParams, confident

CONSIDERED = 256  # most probable ids of a row that the noise may lift to the top; what is behind them hardly ever wins


@dataclass(frozen=True)
class Ranking:
    """How candidates are ranked for one request: its sampling, and its text so far for penalties and noise.

    A candidate's confidence is the softmax, over the ids that may be chosen, of what the target maximises: the
    log-probability, and where the target samples, the noise on top.
    """

    sampling: SamplingParams
    text: Sequence[int]
    prompt_tokens: int
    width: int  # candidates wanted at most

    def candidates(
        self, logits: Tensor, paths: Sequence[Sequence[int]], ids: Tensor | None, vocab_size: int
    ) -> Candidates:
        """The candidates after each row of `logits` `[rows, n]`.

        `paths[r]`: the guesses between the text and row r, itself included. `ids` `[n]`: what the columns stand for, if
        not for themselves. Raises NonFiniteError when a row holds NaN or infinity.
        """
        if self.sampling.reads_history or self.sampling.logit_bias:
            return self._exact(logits if ids is None else _scatter(logits, ids, vocab_size), paths)
        if self.sampling.temperature == 0:
            return _most_probable(logits, ids, self.width)
        positions = [len(self.text) + len(path) for path in paths]
        return _luckiest(logits, ids, self.sampling, positions, self.width)

    def _exact(self, logits: Tensor, paths: Sequence[Sequence[int]]) -> Candidates:
        """Row by row over the whole vocabulary, each with the history of its own path."""
        shape = (len(logits), self.width)
        tokens, logprobs = np.zeros(shape, dtype=np.int64), np.full(shape, -np.inf)
        prompt, said = self.text[: self.prompt_tokens], self.text[self.prompt_tokens :]
        for row, path in enumerate(paths):
            position = len(self.text) + len(path)
            best, sure = confident(logits[row], self.sampling, position, prompt, [*said, *path], n=self.width)
            tokens[row, : len(best)], logprobs[row, : len(best)] = best, sure
        return Candidates(tokens, logprobs)


def _most_probable(logits: Tensor, ids: Tensor | None, width: int) -> Candidates:
    """The ranking where neither noise nor history plays a part."""
    best, columns = _top(logits, width)
    return _on_host(best - logits.logsumexp(dim=-1, keepdim=True), columns, ids)


def _luckiest(
    logits: Tensor, ids: Tensor | None, sampling: SamplingParams, positions: Sequence[int], width: int
) -> Candidates:
    """The ranking where noise plays a part: among the most probable ids of each row, all rows at once."""
    best, columns = _some_best(logits)
    x = (best.double() - best[:, :1]) / sampling.temperature  # [rows, considered], falling, from 0
    if sampling.top_k:
        x[:, sampling.top_k :] = -math.inf
    if sampling.top_p < 1:
        p = x.softmax(dim=1)
        x.masked_fill_(p.cumsum(dim=1) - p >= sampling.top_p, -math.inf)
    if sampling.min_p > 0:
        x.masked_fill_(x < math.log(sampling.min_p), -math.inf)
    sums = x + gumbel(sampling.seed, positions, columns if ids is None else ids[columns])
    luckiest, places = sums.log_softmax(dim=1).topk(min(width, sums.shape[1]))
    return _on_host(luckiest, columns.gather(1, places), ids)


def _top(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` greatest of each row, falling, and their columns. Raises NonFiniteError for NaN or infinity."""
    best, columns = logits.topk(min(count, logits.shape[-1]))
    if not torch.isfinite(best[:, 0]).all():
        raise NonFiniteError("the draft's logits hold NaN or infinity")
    return best, columns


def _some_best(logits: Tensor) -> tuple[Tensor, Tensor]:
    """What `_top` returns for CONSIDERED ids, of which torch's own search on a CPU takes as long as half a level."""
    count = logits.shape[-1] - CONSIDERED
    if count <= 0 or logits.device.type != "cpu":
        return _top(logits, CONSIDERED)
    some = torch.from_numpy(np.argpartition(logits.numpy(), count, axis=1)[:, count:])
    best, places = _top(logits.gather(1, some), CONSIDERED)
    return best, some.gather(1, places)


def _on_host(logprobs: Tensor, columns: Tensor, ids: Tensor | None) -> Candidates:
    """In one copy: fp64 holds every id as it is."""
    tokens = columns if ids is None else ids[columns]
    both = torch.stack([logprobs.double(), tokens.double()]).cpu().numpy()
    return Candidates(both[1].astype(np.int64), both[0])


def _scatter(logits: Tensor, ids: Tensor, vocab_size: int) -> Tensor:
    """`[rows, vocab]`: -inf for ids that the draft can not say."""
    full = torch.full((len(logits), vocab_size), float("-inf"), device=logits.device)
    return full.index_copy_(1, ids, logits)
