"""From a draft's logits to the candidates after each row, ranked as the target will choose."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from shardflow.engine.drafts.pool import Candidates
from shardflow.engine.errors import NonFiniteError
from shardflow.engine.sampling import SamplingParams, rank


@dataclass(frozen=True)
class Ranking:
    """How candidates are ranked for one request: its sampling, and its text so far for penalties and noise."""

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
        if self.sampling.temperature == 0 and not self.sampling.reads_history and not self.sampling.logit_bias:
            return _most_probable(logits, ids, self.width)
        full = logits if ids is None else _scatter(logits, ids, vocab_size)
        return self._ranked(full, paths)

    def _ranked(self, logits: Tensor, paths: Sequence[Sequence[int]]) -> Candidates:
        """Row by row, each with the history of its own path."""
        found = Candidates(
            np.zeros((len(logits), self.width), dtype=np.int64), np.full((len(logits), self.width), -np.inf)
        )
        for index, (row, path) in enumerate(zip(logits, paths, strict=True)):
            prompt, output = self.text[: self.prompt_tokens], [*self.text[self.prompt_tokens :], *path]
            best = rank(row, self.sampling, len(self.text) + len(path), prompt, output, n=self.width)
            found.tokens[index, : len(best)] = best
            found.logprobs[index, : len(best)] = (row[best] - row.logsumexp(0)).numpy()
        return found


def _most_probable(logits: Tensor, ids: Tensor | None, width: int) -> Candidates:
    """The ranking where neither noise nor history plays a part: all rows at once."""
    best, columns = logits.topk(min(width, logits.shape[-1]))
    values = best - logits.logsumexp(dim=-1, keepdim=True)
    if not torch.isfinite(values[:, 0]).all():
        raise NonFiniteError("the draft's logits hold NaN or infinity")
    tokens = columns if ids is None else ids[columns]
    return Candidates(tokens.cpu().numpy(), values.double().cpu().numpy())


def _scatter(logits: Tensor, ids: Tensor, vocab_size: int) -> Tensor:
    """`[rows, vocab]`: -inf for ids that the draft can not say."""
    full = torch.full((len(logits), vocab_size), float("-inf"), device=logits.device)
    return full.index_copy_(1, ids, logits)
