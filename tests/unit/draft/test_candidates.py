"""Candidates after a row: those that the target's own choice ranks first, and how sure one may be of each."""

import pytest
import torch

from shardflow.engine import NonFiniteError, SamplingParams, choose, gumbel, process, rank
from shardflow.engine.drafts.candidates import Ranking

TEXT = [5, 6, 7]
SAMPLINGS = {
    "greedy": SamplingParams(),
    "sampled": SamplingParams(temperature=0.8, seed=3),
    "cut": SamplingParams(temperature=1.3, top_k=40, top_p=0.9, min_p=0.02, seed=4),
    "history": SamplingParams(temperature=0.8, repetition_penalty=1.3, presence_penalty=0.2, seed=5),
    "greedy with history": SamplingParams(frequency_penalty=1.5),
    "bias": SamplingParams(temperature=0.5, logit_bias={9: 4.0}, seed=6),
}


def logits(rows: int, vocab: int) -> torch.Tensor:
    return torch.randn(rows, vocab, generator=torch.Generator().manual_seed(1)) * 3


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS.keys())
def test_they_are_what_the_target_would_choose_from_the_same_logits(sampling: SamplingParams) -> None:
    rows, paths = logits(4, 200), [[], [9], [9, 9], [1, 2, 3]]
    found = Ranking(sampling, TEXT, 2, 3).candidates(rows, paths, None, 200)
    for row, path, tokens, logprobs in zip(rows, paths, found.tokens, found.logprobs, strict=True):
        place, said = 3 + len(path), [7, *path]
        assert tokens[0] == choose(row, sampling, place, [5, 6], said)
        assert tokens.tolist() == rank(row, sampling, place, [5, 6], said, n=3)
        sums = process(row, sampling, [5, 6], said)
        if sampling.temperature > 0:
            sums += gumbel(sampling.seed, place, torch.arange(200))
        assert logprobs == pytest.approx(sums.log_softmax(0)[tokens].numpy(), abs=1e-5)


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS.keys())
def test_columns_stand_for_ids(sampling: SamplingParams) -> None:
    rows, ids = logits(2, 4), torch.tensor([3, 9, 40, 41])
    found = Ranking(sampling, TEXT, 2, 4).candidates(rows, [[], [9]], ids, 50)
    assert {int(token) for token in found.tokens[found.logprobs > -torch.inf]} <= {3, 9, 40, 41}
    full = torch.full((2, 50), -torch.inf).index_copy_(1, ids, rows)
    assert found.tokens[0, 0] == choose(full[0], sampling, 3, [5, 6], [7])


def test_noise_lifts_one_of_many_ids_as_often_as_the_law_says() -> None:
    """Of 5,000 ids only some are looked at; over 400 positions the choice is the exact one nearly always."""
    sampling, row = SamplingParams(temperature=1.0, seed=8), 2 * logits(1, 5000)[0]
    ranking = Ranking(sampling, [], 0, 1)
    paths = [[0] * position for position in range(400)]
    tokens = ranking.candidates(row.expand(400, -1), paths, None, 5000).tokens[:, 0].tolist()
    exact = [choose(row, sampling, position) for position in range(400)]
    assert sum(one == other for one, other in zip(tokens, exact, strict=True)) >= 390


def test_fewer_ids_than_children_leave_places_empty() -> None:
    found = Ranking(SamplingParams(temperature=1.0, top_k=2, seed=1), [], 0, 5).candidates(logits(1, 9), [[]], None, 9)
    assert (found.logprobs > -torch.inf).tolist() == [[True, True, False, False, False]]


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS.keys())
@pytest.mark.parametrize("vocab", [16, 600])
def test_numbers_that_are_not_finite_are_an_error(sampling: SamplingParams, vocab: int) -> None:
    rows = logits(3, vocab)
    rows[1, 4] = torch.nan
    with pytest.raises(NonFiniteError):
        Ranking(sampling, TEXT, 2, 3).candidates(rows, [[], [1], [2]], None, vocab)
