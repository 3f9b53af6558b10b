"""From a draft's logits to the candidates after each row, ranked as the target will choose."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from shardflow.engine.drafts.growth import Child
from shardflow.engine.errors import NonFiniteError
from shardflow.engine.sampling import SamplingParams, rank


@dataclass(frozen=True)
class Ranking:
    """How candidates are ranked for one request: its sampling, and its text so far for penalties and noise."""

    sampling: SamplingParams
    text: Sequence[int]
    prompt_tokens: int
    width: int  # candidates wanted at most

    def children(
        self, logits: Tensor, paths: Sequence[Sequence[int]], ids: Tensor | None, vocab_size: int
    ) -> list[list[Child]]:
        """The candidates after each row of `logits` `[rows, n]`, best first.

        `paths[r]`: the guesses between the text and row r, itself included. `ids` `[n]`: what the columns stand for, if
        not for themselves. Raises NonFiniteError when a row holds NaN or infinity.
        """
        if self.sampling.temperature == 0 and not self.sampling.reads_history and not self.sampling.logit_bias:
            return _most_probable(logits, ids, self.width)
        full = logits if ids is None else _scatter(logits, ids, vocab_size)
        return [self._ranked(row, path) for row, path in zip(full, paths, strict=True)]

    def _ranked(self, logits: Tensor, path: Sequence[int]) -> list[Child]:
        prompt, output = self.text[: self.prompt_tokens], [*self.text[self.prompt_tokens :], *path]
        best = rank(logits, self.sampling, len(self.text) + len(path), prompt, output, n=self.width)
        logprobs = logits[best] - logits.logsumexp(0)
        return [Child(token, logprob) for token, logprob in zip(best, logprobs.tolist(), strict=True)]


def _most_probable(logits: Tensor, ids: Tensor | None, width: int) -> list[list[Child]]:
    """The ranking where neither noise nor history plays a part: all rows at once, one copy to the host."""
    best, columns = logits.topk(min(width, logits.shape[-1]))
    values = best - logits.logsumexp(dim=-1, keepdim=True)
    if not torch.isfinite(values[:, 0]).all():
        raise NonFiniteError("the draft's logits hold NaN or infinity")
    tokens = columns if ids is None else ids[columns]
    return [
        [Child(token, value) for token, value in zip(*row, strict=True)]
        for row in zip(tokens.tolist(), values.tolist(), strict=True)
    ]


def _scatter(logits: Tensor, ids: Tensor, vocab_size: int) -> Tensor:
    """`[rows, vocab]`: -inf for ids that the draft can not say."""
    full = torch.full((len(logits), vocab_size), float("-inf"), device=logits.device)
    return full.index_copy_(1, ids, logits)
