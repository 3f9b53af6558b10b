"""Draws follow the processed law: exactly counted over seeds, with the faults that the count must notice."""

import math
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from shardflow.engine import SamplingParams, choose, process, sampling

DRAWS = 5000
# Of chi-squared, the 1 - 10^-6 quantile: a right sampler fails once in a million seeds' choices, and these are fixed.
QUANTILE = {2: 27.63, 3: 30.66, 4: 33.38, 15: 56.49}

# Next-token law of a toy model after each last token, and its seeded sampling at temperature 0.8.
TABLE = torch.tensor([[0.5, 0.3, 0.15, 0.05], [0.1, 0.6, 0.1, 0.2], [0.25] * 4, [0.7, 0.1, 0.1, 0.1]]).log()


def surprise(counts: Counter[tuple[int, ...]], law: dict[tuple[int, ...], float]) -> float:
    """The G statistic of the draws against `law`; infinite when something impossible was drawn."""
    if any(law.get(outcome, 0) == 0 for outcome in counts):
        return math.inf
    total = counts.total()
    return 2 * sum(n * math.log(n / (total * law[outcome])) for outcome, n in counts.items())


def single(x: Tensor, seeds: int, history: Sequence[int] = (), **fields: float) -> Counter[tuple[int, ...]]:
    make: Callable[[int], SamplingParams] = lambda seed: SamplingParams(seed=seed, **fields)  # type: ignore[arg-type]  # noqa: E731
    return Counter((choose(x, make(seed), 5, [], history),) for seed in range(seeds))


def law_of(x: Tensor, history: Sequence[int] = (), **fields: float) -> dict[tuple[int, ...], float]:
    law = process(x, SamplingParams(**fields), [], history).exp().tolist()  # type: ignore[arg-type]
    return {(i,): p for i, p in enumerate(law)}


@pytest.mark.parametrize(
    ("fields", "freedom"),
    [
        ({"temperature": 1.0}, 4),
        ({"temperature": 0.8, "top_p": 0.9}, 3),
        ({"temperature": 1.5, "top_k": 3}, 2),
        ({"temperature": 0.7, "frequency_penalty": 0.9, "repetition_penalty": 1.3}, 4),
    ],
)
def test_draws_over_seeds_follow_the_law(fields: dict[str, float], freedom: int) -> None:
    x, history = torch.tensor([1.2, 0.7, 0.0, -0.4, 1.0]), [0, 4, 4]
    counts = single(x, DRAWS, history, **fields)
    assert len(counts) == freedom + 1
    assert surprise(counts, law_of(x, history, **fields)) < QUANTILE[freedom]


def sequences(seeds: int, draw: Callable[[Tensor, SamplingParams, int], int]) -> Counter[tuple[int, ...]]:
    """Two tokens after token 0, at positions 10 and 11."""
    counts: Counter[tuple[int, ...]] = Counter()
    for seed in range(seeds):
        params = SamplingParams(temperature=0.8, seed=seed)
        one = draw(TABLE[0], params, 10)
        counts[one, draw(TABLE[one], params, 11)] += 1
    return counts


def sequence_law() -> dict[tuple[int, ...], float]:
    """By enumeration of all 16 texts."""
    step = [process(row, SamplingParams(temperature=0.8)).exp().tolist() for row in TABLE]
    return {(a, b): step[0][a] * step[a][b] for a in range(4) for b in range(4)}


def test_whole_texts_follow_the_law() -> None:
    assert sum(sequence_law().values()) == pytest.approx(1)
    assert surprise(sequences(DRAWS, choose), sequence_law()) < QUANTILE[15]


def test_a_noise_that_forgets_the_position_is_noticed() -> None:
    assert surprise(sequences(DRAWS, lambda x, params, _: choose(x, params, 0)), sequence_law()) > 10 * QUANTILE[15]


def test_a_noise_of_another_law_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    gumbel = sampling.gumbel
    monkeypatch.setattr(sampling, "gumbel", lambda *a: 0.8 * gumbel(*a))
    assert surprise(sequences(DRAWS, choose), sequence_law()) > 2 * QUANTILE[15]


def test_a_law_without_its_cut_is_noticed() -> None:
    x = torch.tensor([1.2, 0.7, 0.0, -0.4, 1.0])
    assert surprise(single(x, 3000, temperature=0.8), law_of(x, temperature=0.8, top_p=0.9)) == math.inf


def test_the_seed_alone_decides() -> None:
    params = [SamplingParams(temperature=1.0, seed=seed) for seed in (4, 4, 5)]
    texts = [[choose(TABLE[2], each, position) for position in range(200)] for each in params]
    assert texts[0] == texts[1] != texts[2]
