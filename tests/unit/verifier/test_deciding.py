"""What the target chooses at the rows of a slice, from logits written down by hand."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from services.verifier.deciding import Question, decide
from services.verifier.slices import Head, Setup
from shardflow.engine import NonFiniteError, SamplingParams, choose

Make = Callable[..., Head]
MakeSetup = Callable[..., Setup]

VOCAB = 12


def logits(*best: int) -> Any:
    """[rows, 12]: at row r the ids fall off from best[r] on: 6, 5, 4, ..."""
    rows = torch.full((len(best), VOCAB), -9.0)
    for row, first in enumerate(best):
        for rank in range(6):
            rows[row, (first + rank) % VOCAB] = 6.0 - rank
    return rows


def question(head: Head, setup: Setup, committed: list[int] | None = None) -> Question:
    rows = len(head.tokens) - head.committed_rows + 1
    hidden = torch.arange(rows * 2, dtype=torch.float32).view(rows, 2)
    return Question(head, setup, committed or [], hidden)


def test_greedy_follows_the_tree(head: Make, setup: MakeSetup) -> None:
    tree = head(tokens=(3, 1, 2, 5), parents=(-1, 0, 0, 2), committed_rows=1)
    [decision] = decide([question(tree, setup())], logits(2, 7, 5, 9))
    assert decision.walk.accepted == (0, 2, 3)
    assert decision.walk.choices == (2, 5, 9)
    assert [ids[:3] for ids in decision.top_ids] == [[2, 3, 4], [5, 6, 7], [9, 10, 11]]
    assert [len(ids) for ids in decision.top_ids] == [8, 8, 8]
    assert decision.hidden.tolist() == [[0, 1], [4, 5], [6, 7]]
    assert decision.laws is None


def test_ties_go_to_the_lowest_id(head: Make, setup: MakeSetup) -> None:
    [decision] = decide([question(head(tokens=(3,)), setup())], torch.zeros(1, VOCAB))
    assert decision.walk.choices == (0,)


def test_several_sessions_share_the_logits_in_order(head: Make, setup: MakeSetup) -> None:
    chunk = head(tokens=(3, 4, 5))
    chain = head(tokens=(1, 7, 8), committed_rows=1)
    seeded = head(tokens=(2,))
    params = SamplingParams(temperature=0.7, seed=5)
    table = logits(4, 7, 9, 0, 6)
    decisions = decide(
        [question(chunk, setup()), question(chain, setup()), question(seeded, setup(sampling=params))], table
    )
    assert [d.walk.accepted for d in decisions] == [(2,), (0, 1), (0,)]
    assert [d.walk.choices for d in decisions] == [(4,), (7, 9), (choose(table[4], params, 1),)]


def test_sampling_is_keyed_by_the_position_behind_the_row(head: Make, setup: MakeSetup) -> None:
    params = SamplingParams(temperature=2.0, seed=3)
    flat = torch.zeros(1, VOCAB)
    expected = [choose(flat[0], params, position) for position in range(1, 9)]
    rows: list[int] = []
    for base in range(8):
        asked = question(head(base=base, tokens=(0,)), setup(sampling=params), [0] * base)
        rows += decide([asked], flat)[0].walk.choices
    assert rows == expected
    assert len(set(rows)) > 3


def test_a_guess_that_was_sampled_is_accepted(head: Make, setup: MakeSetup) -> None:
    params = SamplingParams(temperature=2.0, seed=3)
    flat = torch.zeros(4, VOCAB)
    text = [choose(flat[0], params, position) for position in range(5, 9)]
    chain = head(base=4, tokens=(0, *text[:3]), committed_rows=1)
    [decision] = decide([question(chain, setup(sampling=params), [0] * 4)], flat)
    assert decision.walk.accepted == (0, 1, 2, 3)
    assert list(decision.walk.choices) == text


def test_penalties_see_the_path_and_not_its_siblings(head: Make, setup: MakeSetup) -> None:
    """Prompt 3, output 1 and then the path: 2 was put out on the way to row 2, so 3 wins there; not so at row 1."""
    params = SamplingParams(presence_penalty=1.5)
    tree = head(base=1, tokens=(1, 4, 2), parents=(-1, 0, 0), committed_rows=1)
    table = logits(2, 2, 2)
    [decision] = decide([question(tree, setup(prompt_tokens=1, sampling=params), [3])], table)
    assert decision.walk.accepted == (0, 2)
    assert decision.walk.choices == (2, 3)


def test_the_prompt_does_not_count_as_output(head: Make, setup: MakeSetup) -> None:
    params = SamplingParams(frequency_penalty=1.5)
    [as_prompt] = decide([question(head(tokens=(2,), base=1), setup(prompt_tokens=2, sampling=params), [2])], logits(2))
    [as_output] = decide([question(head(tokens=(2,), base=1), setup(prompt_tokens=1, sampling=params), [2])], logits(2))
    assert (as_prompt.walk.next_token, as_output.walk.next_token) == (2, 3)


def test_a_bias_moves_the_greedy_choice(head: Make, setup: MakeSetup) -> None:
    params = SamplingParams(logit_bias={2: -100.0})
    [decision] = decide([question(head(tokens=(3,)), setup(sampling=params))], logits(2))
    assert decision.walk.next_token == 3


def test_log_probabilities_belong_to_the_accepted_rows(head: Make, setup: MakeSetup) -> None:
    chain = head(tokens=(3, 2, 9), committed_rows=1)
    table = torch.full((3, VOCAB), -math.inf)
    table[0, [2, 4]] = torch.tensor([3.0, 1.0]).log()
    table[1, [7, 5]] = torch.tensor([0.9, 0.1]).log()
    table[2, 1] = 0.0
    asked = setup(want_logprobs=True, top_logprobs=2, sampling=SamplingParams(temperature=0.0))
    [decision] = decide([question(chain, asked)], table)
    assert decision.walk.choices == (2, 7)
    assert decision.laws is not None
    assert [math.exp(law.chosen) for law in decision.laws] == pytest.approx([0.75, 0.9])
    assert [[token for token, _ in law.top] for law in decision.laws] == [[2, 4], [7, 5]]
    assert [math.exp(value) for _, value in decision.laws[0].top] == pytest.approx([0.75, 0.25])


def test_log_probabilities_are_those_before_temperature_and_truncation(head: Make, setup: MakeSetup) -> None:
    table = torch.full((1, VOCAB), -math.inf)
    table[0, [2, 4]] = torch.tensor([3.0, 1.0]).log()
    params = SamplingParams(temperature=0.1, top_k=1, seed=1)
    [decision] = decide([question(head(tokens=(3,)), setup(want_logprobs=True, sampling=params))], table)
    assert decision.laws is not None
    assert math.exp(decision.laws[0].chosen) == pytest.approx(0.75)
    assert decision.laws[0].top == []


@pytest.mark.parametrize("params", [SamplingParams(), SamplingParams(temperature=1.0), SamplingParams(top_k=1)])
def test_not_a_number_is_an_error_at_a_row_that_counts(head: Make, setup: MakeSetup, params: SamplingParams) -> None:
    table = logits(2)
    table[0, 5] = math.nan
    with pytest.raises(NonFiniteError):
        decide([question(head(tokens=(3,)), dataclasses.replace(setup(), sampling=params))], table)
