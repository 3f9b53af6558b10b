"""The processed law, cut by cut, against literal values and against transformers; and what is refused."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers.generation import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from shardflow.engine import GREEDY, NonFiniteError, SamplingParams, choose, greedy, gumbel, process, rank

INF = math.inf


def logits(*probabilities: float) -> Tensor:
    return torch.tensor(probabilities).log()


def probabilities(x: Tensor, params: SamplingParams, prompt: list[int] = [], output: list[int] = []) -> list[float]:  # noqa: B006
    return process(x, params, prompt, output).exp().tolist()


def sampled(**fields: float) -> SamplingParams:
    return SamplingParams(**{"temperature": 1.0, **fields})  # type: ignore[arg-type]


def near(values: list[float]) -> list[float]:
    return pytest.approx(values, abs=1e-6)  # type: ignore[return-value]


def test_plain() -> None:
    assert probabilities(logits(0.5, 0.3, 0.2), sampled()) == near([0.5, 0.3, 0.2])


def test_temperature_is_a_power_of_the_law() -> None:
    assert probabilities(logits(0.6, 0.4), sampled(temperature=0.5)) == near([0.36 / 0.52, 0.16 / 0.52])


def test_top_k_keeps_the_best() -> None:
    assert probabilities(logits(0.2, 0.5, 0.3), sampled(top_k=2)) == near([0, 0.625, 0.375])


def test_top_k_beyond_the_vocabulary_keeps_all() -> None:
    assert probabilities(logits(0.2, 0.5, 0.3), sampled(top_k=9)) == near([0.2, 0.5, 0.3])


def test_top_k_takes_the_lower_id_of_equals() -> None:
    assert probabilities(logits(0.2, 0.3, 0.2, 0.3), sampled(top_k=3)) == near([0.25, 0.375, 0, 0.375])


@pytest.mark.parametrize(("top_p", "kept"), [(0.49, 1), (0.51, 2), (0.79, 2), (0.81, 3), (1.0, 3), (1e-9, 1)])
def test_top_p_keeps_the_fewest_that_reach_it(top_p: float, kept: int) -> None:
    assert sum(p > 0 for p in probabilities(logits(0.2, 0.5, 0.3), sampled(top_p=top_p))) == kept


def test_top_p_takes_the_lower_id_of_equals() -> None:
    assert probabilities(logits(0.25, 0.25, 0.25, 0.25), sampled(top_p=0.5)) == near([0.5, 0.5, 0, 0])


def test_top_p_sees_what_top_k_left() -> None:
    """0.5 of the whole, but 0.625 of the best two: one token reaches 0.6 of those."""
    assert probabilities(logits(0.2, 0.5, 0.3), sampled(top_k=2, top_p=0.6)) == near([0, 1, 0])


def test_min_p_is_relative_to_the_best() -> None:
    assert probabilities(logits(0.1, 0.5, 0.4), sampled(min_p=0.5)) == near([0, 0.5 / 0.9, 0.4 / 0.9])


def test_min_p_sees_the_temperature() -> None:
    assert probabilities(logits(0.2, 0.8), sampled(min_p=0.3)) == near([0, 1])
    assert probabilities(logits(0.2, 0.8), sampled(min_p=0.3, temperature=2)) == near([1 / 3, 2 / 3])


def test_repetition_penalty_counts_prompt_and_output_once() -> None:
    x = torch.tensor([2.0, -2.0, 1.0, 0.5])
    expected = torch.log_softmax(torch.tensor([1.0, -4.0, 1.0, 0.5], dtype=torch.float64), 0)
    law = process(x, sampled(repetition_penalty=2.0), [0, 0], [1])
    torch.testing.assert_close(law, expected)


def test_presence_and_frequency_count_the_output_alone() -> None:
    x = torch.tensor([2.0, 2.0, 2.0])
    expected = torch.log_softmax(torch.tensor([2.0, 0.9, 0.4], dtype=torch.float64), 0)
    law = process(x, sampled(presence_penalty=0.6, frequency_penalty=0.5), [0], [1, 2, 2])
    torch.testing.assert_close(law, expected)


def test_bias_comes_after_the_penalties_and_before_the_temperature() -> None:
    x = torch.tensor([2.0, 0.0])
    params = SamplingParams(temperature=2.0, repetition_penalty=2.0, logit_bias={0: 3.0})
    expected = torch.log_softmax(torch.tensor([(2.0 / 2 + 3) / 2, 0.0], dtype=torch.float64), 0)
    torch.testing.assert_close(process(x, params, [0]), expected)


def test_a_biased_out_token_is_never_chosen() -> None:
    params = [SamplingParams(temperature=1.0, seed=seed, logit_bias={1: -100.0}) for seed in range(300)]
    assert 1 not in {choose(logits(0.3, 0.4, 0.3), each, 0) for each in params}
    assert choose(logits(0.3, 0.4, 0.3), SamplingParams(logit_bias={1: -100.0}), 0) == 0


def test_the_logits_are_not_changed() -> None:
    x = torch.tensor([2.0, 1.0], dtype=torch.float64)
    process(x, SamplingParams(repetition_penalty=3.0, logit_bias={0: 1.0}), [0, 1])
    assert x.tolist() == [2.0, 1.0]


@given(
    values=st.lists(st.integers(-400, 400), min_size=20, max_size=60, unique=True),
    temperature=st.floats(0.2, 3),
    top_k=st.integers(0, 30),
    top_p=st.floats(0.05, 1),
    min_p=st.floats(0, 0.5),
    penalty=st.floats(0.5, 2),
    history=st.lists(st.integers(0, 19), max_size=9),
)
@settings(deadline=None)
def test_all_cuts_together_are_those_of_transformers(
    values: list[int], temperature: float, top_k: int, top_p: float, min_p: float, penalty: float, history: list[int]
) -> None:
    x = torch.tensor(values, dtype=torch.float64) / 100
    chain = LogitsProcessorList([RepetitionPenaltyLogitsProcessor(penalty), TemperatureLogitsWarper(temperature)])
    if top_k:
        chain.append(TopKLogitsWarper(top_k))
    chain.append(TopPLogitsWarper(top_p - 1e-12))  # transformers keeps one more token when the sum is top_p exactly
    chain.append(MinPLogitsWarper(min_p))
    expected = chain(torch.tensor([history], dtype=torch.int64), x[None].clone())[0].log_softmax(0)
    params = SamplingParams(temperature, top_k, top_p, min_p, repetition_penalty=penalty)
    law = process(x, params, history[:4], history[4:])
    torch.testing.assert_close(law, expected, atol=1e-9, rtol=1e-9)


def test_a_nucleus_wider_than_the_first_guess_is_whole() -> None:
    """5000 equal tokens: the first 4500 make up 0.9."""
    law = process(torch.zeros(5000), sampled(top_p=0.9 - 1e-9))
    assert torch.isfinite(law).nonzero().squeeze(1).tolist() == list(range(4500))


@pytest.mark.parametrize("temperature", [1e-310, 1e-30, 1e30])
def test_no_temperature_overflows(temperature: float) -> None:
    law = process(torch.tensor([1e4, -1e4, 0.0]), sampled(temperature=temperature))
    assert law.exp().sum().item() == pytest.approx(1)


def test_greedy_takes_the_lowest_id_of_equals() -> None:
    x = torch.tensor([[0.0, 3.0, 3.0], [5.0, 5.0, 5.0], [1.0, 2.0, 9.0]])
    assert greedy(x) == [1, 0, 2]
    assert [choose(row, GREEDY, 0) for row in x] == [1, 0, 2]


def test_greedy_heeds_the_penalties_of_the_prefix() -> None:
    params = SamplingParams(frequency_penalty=1.0)
    x = torch.tensor([3.0, 2.5])
    assert [choose(x, params, 0, [], output) for output in ([], [0], [0, 1], [0, 1, 1])] == [0, 1, 0, 0]


def test_rank_is_the_order_that_choose_takes_the_first_of() -> None:
    x, params = torch.randn(50, generator=torch.Generator().manual_seed(1)), sampled(seed=11)
    score = process(x, params) + gumbel(11, 4, torch.arange(50))
    assert rank(x, params, 4, n=6) == score.argsort(descending=True)[:6].tolist()
    assert rank(x, params, 4, n=6)[0] == choose(x, params, 4)


def test_rank_at_temperature_0_is_by_logit_then_id() -> None:
    assert rank(torch.tensor([1.0, 3.0, 2.0, 3.0]), GREEDY, 0, n=3) == [1, 3, 2]


def test_rank_gives_no_token_that_was_cut() -> None:
    assert sorted(rank(logits(0.4, 0.3, 0.2, 0.1), sampled(top_k=2), 0, n=4)) == [0, 1]
    assert len(rank(logits(0.4, 0.6), GREEDY, 0, n=9)) == 2


@pytest.mark.parametrize("bad", [[0.0, math.nan], [math.nan, 0.0], [0.0, INF], [-INF, -INF]])
@pytest.mark.parametrize("params", [GREEDY, sampled()])
def test_what_is_no_number_is_no_token(bad: list[float], params: SamplingParams) -> None:
    for act in (choose, lambda *a: rank(*a, n=1), lambda x, p, _: process(x, p), lambda x, *_: greedy(x[None])):
        with pytest.raises(NonFiniteError):
            act(torch.tensor(bad), params, 0)


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": -0.1},
        {"temperature": math.nan},
        {"temperature": INF},
        {"top_k": -1},
        {"top_p": 0.0},
        {"top_p": 1.01},
        {"top_p": math.nan},
        {"min_p": -0.1},
        {"min_p": 1.1},
        {"repetition_penalty": 0.0},
        {"presence_penalty": math.nan},
        {"frequency_penalty": INF},
        {"logit_bias": {1: -INF}},
    ],
)
def test_a_value_out_of_range_is_refused_by_name(fields: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(fields)) if "penalty" not in next(iter(fields)) else "penalt"):
        SamplingParams(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("token", [-1, 3])
def test_a_bias_outside_the_vocabulary_is_refused(token: int) -> None:
    with pytest.raises(ValueError, match="outside the vocabulary of 3"):
        process(logits(0.5, 0.3, 0.2), SamplingParams(logit_bias={token: 1.0}))
