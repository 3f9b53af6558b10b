"""From logits to a token: a pure function of the logits, the parameters, the token's own prefix and its position.

The token at absolute position t is argmax over ids of log p(id) + gumbel(seed, t, id), which is a draw from p. A draft
that ranks by the same sum guesses the same noise, so a seed gives the same text with any draft or none.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from shardflow.engine.errors import NonFiniteError
from shardflow.engine.noise import gumbel

NUCLEUS_GUESS = 512  # candidates sorted at first, in search of the nucleus


@dataclass(frozen=True)
class SamplingParams:
    """How a request wants its tokens chosen. Raises ValueError for a value out of range.

    `repetition_penalty` divides or multiplies the logit of every id in prompt or output (the Hugging Face convention);
    `presence_penalty` and `frequency_penalty` are subtracted for ids in the output, once and for each occurrence.
    """

    temperature: float = 0.0  # 0 takes the most likely token
    top_k: int = 0  # 0 is off
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        numbers = (self.presence_penalty, self.frequency_penalty, *self.logit_bias.values())
        ranges = {
            "temperature": self.temperature >= 0 and math.isfinite(self.temperature),
            "top_k": self.top_k >= 0,
            "top_p": 0 < self.top_p <= 1,
            "min_p": 0 <= self.min_p <= 1,
            "repetition_penalty": self.repetition_penalty > 0 and math.isfinite(self.repetition_penalty),
            "penalties and logit_bias": all(math.isfinite(x) for x in numbers),
        }
        if wrong := [name for name, fine in ranges.items() if not fine]:
            raise ValueError(f"out of range: {', '.join(wrong)}")

    @property
    def reads_history(self) -> bool:
        """Whether the choice depends on earlier tokens other than through the logits."""
        return self.repetition_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0


GREEDY = SamplingParams()


def choose(
    logits: Tensor,
    params: SamplingParams,
    position: int,
    prompt_ids: Sequence[int] = (),
    output_ids: Sequence[int] = (),
) -> int:
    """The token at absolute `position` after a prefix of `prompt_ids` + `output_ids`; ties go to the lowest id.

    `logits`: `[vocab]` fp32. Raises NonFiniteError when they hold NaN or +inf, or nothing but -inf.
    """
    return rank(logits, params, position, prompt_ids, output_ids, n=1)[0]


def rank(
    logits: Tensor,
    params: SamplingParams,
    position: int,
    prompt_ids: Sequence[int] = (),
    output_ids: Sequence[int] = (),
    *,
    n: int,
) -> list[int]:
    """The `n` best ids by the sum that `choose` maximises, best first; fewer when top-k, top-p or min-p leave fewer."""
    ids, sums = _sums(logits, params, position, prompt_ids, output_ids)
    best = _best(sums, n)
    return (best if ids is None else ids[best]).tolist()


def confident(
    logits: Tensor,
    params: SamplingParams,
    position: int,
    prompt_ids: Sequence[int],
    output_ids: Sequence[int],
    *,
    n: int,
) -> tuple[list[int], list[float]]:
    """What `rank` returns, and how sure one may be of each: the log-softmax of the sums over all ids."""
    ids, sums = _sums(logits, params, position, prompt_ids, output_ids)
    best = _best(sums, n)
    return (best if ids is None else ids[best]).tolist(), (sums[best] - sums.logsumexp(0)).tolist()


def greedy(logits: Tensor) -> list[int]:
    """The most likely id of each row of `[rows, vocab]`, the lowest of equals. Raises NonFiniteError like `choose`."""
    best, ids = logits.max(dim=-1)
    _check(best)
    return ids.tolist()


def process(
    logits: Tensor, params: SamplingParams, prompt_ids: Sequence[int] = (), output_ids: Sequence[int] = ()
) -> Tensor:
    """Log-probabilities `[vocab]`, fp64, that a token is drawn from; -inf for ids that are cut off.

    In order: penalties, bias, temperature, top-k, top-p, min-p; each cut sees the distribution the one before left.
    Temperature 0 gives the law at temperature 1 without cuts, for reporting: `choose` takes its maximum.
    """
    ids, log_p = _law(logits, params, prompt_ids, output_ids)
    everything = torch.full(logits.shape, -math.inf, dtype=torch.float64, device=logits.device)
    everything[ids] = log_p
    return everything


def _sums(
    logits: Tensor, params: SamplingParams, position: int, prompt_ids: Sequence[int], output_ids: Sequence[int]
) -> tuple[Tensor | None, Tensor]:
    """The ids that may be chosen, None for all, and what `choose` maximises over them."""
    if params.temperature == 0:
        return None, _adjusted(logits, params, prompt_ids, output_ids)
    ids, log_p = _law(logits, params, prompt_ids, output_ids)
    return ids, log_p + gumbel(params.seed, position, ids)


def _law(
    logits: Tensor, params: SamplingParams, prompt_ids: Sequence[int], output_ids: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """The ids that survive all cuts, ascending, and their log-probabilities."""
    x = _adjusted(logits, params, prompt_ids, output_ids)
    ids = torch.arange(len(x), device=x.device)
    if params.temperature > 0:
        x = (x - x.max()) / params.temperature  # the maximum first, so that no temperature overflows
        if 0 < params.top_k < len(ids):
            ids = _best(x, params.top_k)
        if params.top_p < 1:
            ids = ids[_nucleus(x[ids], params.top_p)]
        if params.min_p > 0:
            ids = ids[x[ids] >= x[ids].max() + math.log(params.min_p)]
        ids = ids.sort().values if len(ids) < len(x) else ids
    return ids, torch.log_softmax(x[ids], dim=0)


def _adjusted(logits: Tensor, params: SamplingParams, prompt_ids: Sequence[int], output_ids: Sequence[int]) -> Tensor:
    """Logits after penalties and bias, fp64."""
    _check(logits.max())
    x = logits.to(torch.float64, copy=True)
    if params.repetition_penalty != 1:
        seen = _ids([*prompt_ids, *output_ids], x).unique()  # type: ignore[no-untyped-call]
        x[seen] = torch.where(x[seen] < 0, x[seen] * params.repetition_penalty, x[seen] / params.repetition_penalty)
    if output_ids and (params.presence_penalty or params.frequency_penalty):
        seen, counts = _ids(output_ids, x).unique(return_counts=True)  # type: ignore[no-untyped-call]
        x[seen] -= params.presence_penalty + params.frequency_penalty * counts
    if params.logit_bias:
        bias = torch.tensor(list(params.logit_bias.values()), dtype=x.dtype, device=x.device)
        x[_ids(list(params.logit_bias), x)] += bias
    return x


def _best(x: Tensor, n: int) -> Tensor:
    """Indices of the `n` greatest finite entries, greatest first and the lower index first among equals."""
    n = min(n, len(x))
    candidates = (x >= x.topk(n).values[-1]).nonzero().squeeze(1)  # more than n when equals straddle the edge
    candidates = candidates[x[candidates] > -math.inf]
    return candidates[x[candidates].argsort(descending=True, stable=True)][:n]


def _nucleus(x: Tensor, top_p: float) -> Tensor:
    """Indices of the smallest set of best entries whose probability reaches `top_p`, best first."""
    total = x.logsumexp(0)
    guess = min(NUCLEUS_GUESS, len(x))
    while True:
        best = _best(x, guess)
        p = torch.exp(x[best] - total)
        reached = p.cumsum(0)
        if reached[-1] >= top_p or guess == len(x):
            return best[reached - p < top_p]
        guess = min(8 * guess, len(x))


def _ids(ids: Sequence[int], x: Tensor) -> Tensor:
    if not all(0 <= each < len(x) for each in ids):
        raise ValueError(f"a token id lies outside the vocabulary of {len(x)}")
    return torch.tensor(ids, dtype=torch.int64, device=x.device)


def _check(best: Tensor) -> None:
    """A maximum is NaN when any entry is, so it tells for all."""
    if not torch.isfinite(best).all():
        raise NonFiniteError("the logits hold NaN or infinity")
