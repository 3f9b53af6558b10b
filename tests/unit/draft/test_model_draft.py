"""A causal model as draft: what it proposes depends on the text alone, and no right guess is fed twice."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shardflow.engine import GREEDY, ModelSlice, NonFiniteError, SamplingParams, Segment, choose
from shardflow.engine.drafts import DraftGapError, DraftRequestError, DraftTree, Limits, load_drafter
from shardflow.engine.drafts.hf import ModelDrafter, ModelSession

SAMPLED = SamplingParams(
    temperature=0.8, top_p=0.9, repetition_penalty=1.2, presence_penalty=0.3, frequency_penalty=0.4, seed=7,
    logit_bias={5: 2.0},
)  # fmt: skip
PLAIN = SamplingParams(temperature=0.8, top_k=30, top_p=0.9, min_p=0.01, seed=7)  # no history: all rows at once
PROMPT = [3, 1, 4, 1, 5, 9]


@pytest.fixture(scope="module")
def drafter(target_path: Path) -> ModelDrafter:
    drafter = load_drafter(target_path, None, max_tokens=2048)
    assert isinstance(drafter, ModelDrafter)
    return drafter


@pytest.fixture
def fed(drafter: ModelDrafter, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[int]]]:
    """The tokens of every forward pass."""
    calls: list[list[int]] = []
    forward = ModelSlice.forward

    def recording(self: ModelSlice, segments: list[Segment]) -> torch.Tensor:
        calls.extend(list(segment.tokens or ()) for segment in segments)
        return forward(self, segments)

    monkeypatch.setattr(ModelSlice, "forward", recording)
    yield calls


def told(drafter: ModelDrafter, text: list[int]) -> ModelSession:
    """A fresh session that knows `text`."""
    session = drafter.new_session()
    session.extend(0, text, prompt_tokens=len(PROMPT), hidden=None)
    return session


def say(session: ModelSession, base: int, tokens: list[int]) -> None:
    session.extend(base, tokens, prompt_tokens=len(PROMPT), hidden=None)


def continuation(target: ModelSlice, text: list[int], count: int, sampling: SamplingParams = GREEDY) -> list[int]:
    """What the target says after `text`: one token at a time, no cache kept between them."""
    text, start = list(text), len(text)
    for _ in range(count):
        kv = target.new_kv(len(text))
        hidden = target.forward([Segment(kv, 0, range(-1, len(text) - 1), text)])
        logits = target.logits(hidden[-1:])[0]
        text.append(choose(logits, sampling, len(text), text[: len(PROMPT)], text[len(PROMPT) :]))
    return text[start:]


def same(one: DraftTree, other: DraftTree) -> bool:
    return (
        one.tokens == other.tokens
        and one.parents == other.parents
        and one.logprobs == pytest.approx(other.logprobs, abs=1e-4)
    )


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED, PLAIN], ids=["greedy", "history", "plain"])
@pytest.mark.parametrize("length", [6, 7, 8, 9, 10, 30, 31, 32, 33, 34, 126, 127, 128, 129, 130])
def test_a_draft_that_is_the_target_guesses_all_it_says(
    drafter: ModelDrafter, target: ModelSlice, length: int, sampling: SamplingParams
) -> None:
    text = (PROMPT * 30)[:length]
    said = continuation(target, text, 14, sampling)
    session = told(drafter, text)
    first = session.propose(Limits(6, 6, 1), sampling).tree
    assert first.tokens == said[:6]
    assert first.parents == [-1, 0, 1, 2, 3, 4]
    say(session, length, said[:7])  # all accepted, and the target's own token behind them
    assert session.propose(Limits(6, 6, 1), sampling).tree.tokens == said[7:13]


def test_after_all_were_accepted_only_the_last_guess_and_the_bonus_are_fed(
    drafter: ModelDrafter, fed: list[list[int]]
) -> None:
    session = told(drafter, PROMPT)
    guesses = session.propose(Limits(4, 4, 1), GREEDY).tree.tokens
    fed.clear()
    say(session, len(PROMPT), [*guesses, 8])
    assert fed == [[guesses[3], 8]]


def test_after_a_correction_only_the_correction_is_fed(drafter: ModelDrafter, fed: list[list[int]]) -> None:
    session = told(drafter, PROMPT)
    guesses = session.propose(Limits(4, 4, 1), GREEDY).tree.tokens
    fed.clear()
    wrong = (guesses[2] + 1) % 97
    say(session, len(PROMPT), [*guesses[:2], wrong])
    assert fed == [[wrong]]


def test_a_right_path_of_a_tree_is_not_fed_again(drafter: ModelDrafter, fed: list[list[int]]) -> None:
    session = told(drafter, PROMPT)
    tree = session.propose(Limits(12, 3, 3), GREEDY).tree
    second = max(node for node in range(12) if tree.parents[node] == -1 and node in tree.parents)
    child = tree.parents.index(second)
    assert second > 0  # not the most probable one, so its row is not where it will stand
    fed.clear()
    text = [tree.tokens[second], tree.tokens[child], 8]
    say(session, len(PROMPT), text)
    assert sum(map(len, fed)) < 3
    fresh = told(drafter, PROMPT + text)
    assert same(session.propose(Limits(5, 5, 1), GREEDY).tree, fresh.propose(Limits(5, 5, 1), GREEDY).tree)


def test_a_level_feeds_its_own_nodes_alone(drafter: ModelDrafter, fed: list[list[int]]) -> None:
    session = told(drafter, PROMPT)
    fed.clear()
    tree = session.propose(Limits(12, 3, 3), GREEDY).tree
    assert [len(tokens) for tokens in fed] == [3, 8]  # all three roots, then all but one of their nine children
    assert same(tree, told(drafter, PROMPT).propose(Limits(12, 3, 3), GREEDY).tree)


def test_what_was_grown_ahead_of_the_text_costs_nothing(drafter: ModelDrafter, fed: list[list[int]]) -> None:
    session = told(drafter, PROMPT)
    session.propose(Limits(40, 4, 3), GREEDY)
    tree = session.propose(Limits(12, 3, 3), GREEDY).tree
    child = next(node for node in range(12) if tree.parents[node] > 0)
    text = [tree.tokens[tree.parents[child]], tree.tokens[child]]
    fed.clear()
    say(session, len(PROMPT), text)
    assert len(session.propose(Limits(3, 1, 3), GREEDY).tree.tokens) == 3
    assert fed == []
    grown = session.propose(Limits(12, 3, 3), GREEDY).tree
    assert 0 < sum(map(len, fed)) < 11  # a fresh one feeds 3 + 8
    assert same(grown, told(drafter, PROMPT + text).propose(Limits(12, 3, 3), GREEDY).tree)


def test_growth_in_steps_is_growth_at_once(drafter: ModelDrafter, fed: list[list[int]]) -> None:
    at_once = told(drafter, PROMPT).propose(Limits(20, 6, 3, max_levels=3), SAMPLED)
    session = told(drafter, PROMPT)
    fed.clear()
    for _ in range(3):
        session.extend(len(PROMPT), [], prompt_tokens=len(PROMPT), hidden=None)
        step = session.propose(Limits(20, 6, 3, max_levels=1), SAMPLED)
    assert same(step.tree, at_once.tree)
    assert (len(fed), step.levels, at_once.levels) == (3, 1, 3)


@pytest.mark.parametrize("again", [GREEDY, SAMPLED], ids=["other children", "other sampling"])
def test_another_ranking_begins_a_new_tree(drafter: ModelDrafter, again: SamplingParams) -> None:
    session = told(drafter, PROMPT)
    tree = session.propose(Limits(12, 3, 3), GREEDY).tree
    say(session, len(PROMPT), tree.tokens[:1])
    fresh = told(drafter, [*PROMPT, tree.tokens[0]])
    assert same(session.propose(Limits(8, 4, 2), again).tree, fresh.propose(Limits(8, 4, 2), again).tree)


def test_another_prompt_is_another_text(drafter: ModelDrafter) -> None:
    session = told(drafter, PROMPT)
    tree = session.propose(Limits(12, 3, 3), SAMPLED).tree
    text = [*PROMPT, tree.tokens[0]]
    session.extend(6, text[6:], prompt_tokens=3, hidden=None)
    fresh = drafter.new_session()
    fresh.extend(0, text, prompt_tokens=3, hidden=None)
    assert same(session.propose(Limits(8, 4, 2), SAMPLED).tree, fresh.propose(Limits(8, 4, 2), SAMPLED).tree)


def test_no_nodes_asked_for_feeds_the_text_alone(drafter: ModelDrafter, fed: list[list[int]]) -> None:
    assert told(drafter, PROMPT).propose(Limits(0, 0, 0), GREEDY).tree.tokens == []
    assert fed == [PROMPT]


def test_a_long_text_is_fed_in_pieces(drafter: ModelDrafter, fed: list[list[int]]) -> None:
    told(drafter, (PROMPT * 200)[:1100])
    assert [len(tokens) for tokens in fed] == [512, 512, 76]


@settings(max_examples=25, derandomize=True, deadline=None)
@given(data=st.data(), sampled=st.booleans())
def test_whatever_was_accepted_the_guesses_are_those_of_a_fresh_session(
    drafter: ModelDrafter, data: st.DataObject, sampled: bool
) -> None:
    sampling = SAMPLED if sampled else GREEDY
    session, text = told(drafter, PROMPT), list(PROMPT)
    for _ in range(data.draw(st.integers(1, 3), "rounds")):
        limits = data.draw(st.sampled_from([Limits(4, 4, 1), Limits(1, 1, 1), Limits(9, 4, 3)]), "limits")
        tree = session.propose(limits, sampling).tree
        assert same(tree, told(drafter, text).propose(limits, sampling).tree)
        base = data.draw(st.integers(max(len(PROMPT), len(text) - 3), len(text)), "base")
        accepted = draw_path(data, tree) if base == len(text) else []
        text = text[:base] + accepted + data.draw(st.lists(st.integers(0, 96), min_size=1, max_size=3), "target's own")
        say(session, base, text[base:])


def draw_path(data: st.DataObject, tree: DraftTree) -> list[int]:
    """Tokens of some path from the text down the tree."""
    path: list[int] = []
    at = -1
    while below := [node for node, parent in enumerate(tree.parents) if parent == at]:
        pick = data.draw(st.sampled_from([None, *below]), "accept")
        if pick is None:
            break
        path.append(tree.tokens[pick])
        at = pick
    return path


def test_guesses_end_where_the_drafts_own_context_ends(other_path: Path) -> None:
    drafter = load_drafter(other_path, None, max_tokens=2048)
    assert drafter.max_tokens == 40
    text = (PROMPT * 10)[:41]
    sizes = []
    session = drafter.new_session()
    session.extend(0, text[:36], prompt_tokens=6, hidden=None)
    for length in range(37, 42):
        session.extend(length - 1, [text[length - 1]], prompt_tokens=6, hidden=None)
        sizes.append(len(session.propose(Limits(8, 8, 1), GREEDY).tree.tokens))
    assert sizes == [4, 3, 2, 1, 0]
    session.extend(30, [7], prompt_tokens=6, hidden=None)  # back within the context
    assert len(session.propose(Limits(8, 8, 1), GREEDY).tree.tokens) == 8


def test_a_gap_is_answered_with_what_is_known(drafter: ModelDrafter) -> None:
    session = told(drafter, PROMPT)
    with pytest.raises(DraftGapError) as error:
        say(session, 7, [1])
    assert error.value.known_tokens == session.known_tokens == 6


def test_hidden_states_are_refused(drafter: ModelDrafter) -> None:
    with pytest.raises(DraftRequestError, match="feeds on no hidden states"):
        drafter.new_session().extend(0, PROMPT, prompt_tokens=6, hidden=torch.zeros(1, 32))


def test_an_id_outside_the_vocabulary_is_refused(drafter: ModelDrafter) -> None:
    with pytest.raises(DraftRequestError, match=r"within \[0, 97\)"):
        told(drafter, [*PROMPT, 97])


def test_numbers_that_are_not_finite_are_an_error(drafter: ModelDrafter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ModelSlice, "logits", lambda self, hidden: torch.full((len(hidden), 97), float("nan")))
    for sampling in (GREEDY, SAMPLED):
        with pytest.raises(NonFiniteError):
            told(drafter, PROMPT).propose(Limits(2, 2, 1), sampling)
