"""The head as draft: held against a slow evaluation of its arithmetic that keeps nothing between calls."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

from shardflow.engine import (
    GREEDY,
    CheckpointError,
    NonFiniteError,
    SamplingParams,
    UnsupportedModelError,
    gumbel,
    process,
    rank,
)
from shardflow.engine.drafts import DraftGapError, DraftRequestError, DraftTree, Limits, load_drafter
from shardflow.engine.drafts.eagle import EagleDrafter, EagleSession
from shardflow.engine.drafts.growth import grow
from shardflow.engine.drafts.pool import Candidates, Pool

PROMPT = [3, 1, 4, 1, 5]
SAMPLED = SamplingParams(temperature=0.8, top_k=20, repetition_penalty=1.3, seed=11, logit_bias={7: 1.5})
PLAIN = SamplingParams(temperature=0.8, top_k=20, top_p=0.95, min_p=0.02, seed=11)  # no history: all rows at once


@pytest.fixture(scope="module")
def drafter(head_path: Path, target_path: Path) -> EagleDrafter:
    drafter = load_drafter(head_path, target_path, max_tokens=64)
    assert isinstance(drafter, EagleDrafter)
    return drafter


@pytest.fixture(scope="module")
def naive(head_path: Path, target_path: Path) -> "Naive":
    return Naive(head_path, target_path)


class Naive:
    """The README's formulas, entry by entry in fp64, from the very first one at every call."""

    def __init__(self, head: Path, target: Path) -> None:
        self.w = {name: value.double() for name, value in load_file(head / "head.safetensors").items()}
        self.c = json.loads((head / "config.json").read_text())
        self.e = load_file(target / "model.safetensors")["model.embed_tokens.weight"].double()
        self.output = load_file(target / "model.safetensors")["lm_head.weight"].double()

    def logits(self, answer: list[int], hidden: Tensor, guesses: list[int]) -> Tensor:
        """`[vocab]` for the token after `answer` + `guesses`; -inf for ids that the head can not say."""
        w, g, keys, values = self.w, torch.empty(0), [], []
        features = list((hidden.double() - w["feature_mean"]) / w["feature_std"])
        for s, token in enumerate(answer + guesses):
            feature = features[s] if s < len(answer) else g
            embedded = (self.e[token] - w["embed_mean"]) / w["embed_std"]
            x = w["fc.weight"] @ torch.cat([embedded, feature])
            z = self.norm(x) * w["input_norm.weight"]
            query = self.turn((w["q_proj.weight"] @ z).view(4, 8), s)
            keys.append(self.turn((w["k_proj.weight"] @ z).view(2, 8), s))
            values.append((w["v_proj.weight"] @ z).view(2, 8))
            heads = []
            for head in range(4):
                scores = torch.stack([query[head] @ key[head // 2] for key in keys]) / math.sqrt(8)
                heads.append(torch.softmax(scores, 0) @ torch.stack([value[head // 2] for value in values]))
            x = x + w["o_proj.weight"] @ torch.cat(heads)
            z = self.norm(x) * w["post_attention_norm.weight"]
            gate = torch.nn.functional.silu(w["gate_proj.weight"] @ z)
            g = x + w["down_proj.weight"] @ (gate * (w["up_proj.weight"] @ z))
        spoken = w["draft_vocab"].long()
        full = torch.full((97,), -math.inf, dtype=torch.float64)
        full[spoken] = self.output[spoken] @ (g * w["feature_std"] + w["feature_mean"]) / self.c["temperature"]
        return full

    def norm(self, x: Tensor) -> Tensor:
        return x / torch.sqrt((x * x).mean() + self.c["rms_norm_eps"])

    def turn(self, x: Tensor, position: int) -> Tensor:
        angle = position * self.c["rope_theta"] ** (-torch.arange(4).double() / 4)
        first, second = x[:, :4], x[:, 4:]
        cos, sin = angle.cos(), angle.sin()
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=1)

    def propose(self, answer: list[int], hidden: Tensor, limits: Limits, sampling: SamplingParams) -> DraftTree:
        def candidates(paths: list[list[int]]) -> Candidates:
            width = limits.max_children
            found = Candidates(np.zeros((len(paths), width), dtype=np.int64), np.full((len(paths), width), -np.inf))
            for row, path in enumerate(paths):
                ids, values = ranked(path)
                found.tokens[row, : len(ids)], found.logprobs[row, : len(ids)] = ids, values
            return found

        def ranked(path: list[int]) -> tuple[list[int], list[float]]:
            logits = self.logits(answer, hidden, path).float()
            position = len(PROMPT) + len(answer) + len(path)
            ids = rank(logits, sampling, position, PROMPT, answer + path, n=limits.max_children)
            sums = process(logits, sampling, PROMPT, answer + path)
            if sampling.temperature > 0:
                sums += gumbel(sampling.seed, position, torch.arange(97))
            return ids, torch.log_softmax(sums, 0)[ids].tolist()

        pool = Pool(candidates([[]]))
        grow(pool, lambda nodes: candidates(pool.paths(nodes)), limits)
        return pool.tree(limits)


def features(count: int, seed: int = 0) -> Tensor:
    return torch.randn(count, 32, generator=torch.Generator().manual_seed(seed))


def told(drafter: EagleDrafter, answer: list[int], hidden: Tensor) -> EagleSession:
    session = drafter.new_session()
    session.extend(0, PROMPT + answer, prompt_tokens=len(PROMPT), hidden=hidden[: len(answer)])
    return session


def same(one: DraftTree, other: DraftTree) -> bool:
    return (
        one.tokens == other.tokens
        and one.parents == other.parents
        and one.logprobs == pytest.approx(other.logprobs, abs=1e-3)
    )


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED, PLAIN], ids=["greedy", "history", "plain"])
@pytest.mark.parametrize("limits", [Limits(5, 5, 1), Limits(12, 4, 3), Limits(3, 1, 3)], ids=["chain", "tree", "flat"])
def test_guesses_are_those_of_the_formulas(
    drafter: EagleDrafter, naive: Naive, limits: Limits, sampling: SamplingParams
) -> None:
    answer, hidden = [9, 2, 6, 5, 3], features(5)
    assert same(
        told(drafter, answer, hidden).propose(limits, sampling).tree, naive.propose(answer, hidden, limits, sampling)
    )


@settings(max_examples=25, derandomize=True, deadline=None)
@given(data=st.data(), sampled=st.booleans())
def test_whatever_was_accepted_the_guesses_are_those_of_a_fresh_session(
    drafter: EagleDrafter, data: st.DataObject, sampled: bool
) -> None:
    sampling = SAMPLED if sampled else GREEDY
    pool = features(64, seed=data.draw(st.integers(0, 9), "features"))
    answer: list[int] = [8]
    session = told(drafter, answer, pool)
    for _ in range(data.draw(st.integers(1, 4), "rounds")):
        limits = data.draw(st.sampled_from([Limits(4, 4, 1), Limits(9, 4, 3)]), "limits")
        tree = session.propose(limits, sampling).tree
        assert same(tree, told(drafter, answer, pool).propose(limits, sampling).tree)
        accepted = tree.tokens[: data.draw(st.integers(0, 4), "accepted")] if limits.max_children == 1 else []
        keep = data.draw(st.integers(max(0, len(answer) - 2), len(answer)), "keep")
        answer = [*answer[:keep], *accepted, data.draw(st.integers(0, 96), "next")]
        # A repeated or an early base says the same again.
        base = data.draw(st.integers(0, keep), "base")
        session.extend(len(PROMPT) + base, answer[base:], prompt_tokens=len(PROMPT), hidden=pool[base : len(answer)])


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_a_tree_grows_on_where_it_was(drafter: EagleDrafter, sampling: SamplingParams) -> None:
    answer, hidden = [9, 2, 6, 5, 3], features(5)
    whole = told(drafter, answer, hidden).propose(Limits(20, 6, 3, max_levels=3), sampling)
    session, steps = told(drafter, answer, hidden), []
    for _ in range(3):
        steps.append(session.propose(Limits(20, 6, 3, max_levels=1), sampling))
        session.extend(10, [], prompt_tokens=5, hidden=None)
    assert [step.levels for step in steps] == [1, 1, 1]
    assert same(steps[2].tree, whole.tree)
    assert not same(steps[1].tree, whole.tree)


def test_other_sampling_begins_a_new_tree(drafter: EagleDrafter) -> None:
    answer, hidden = [9, 2, 6, 5, 3], features(5)
    session = told(drafter, answer, hidden)
    session.propose(Limits(20, 6, 3, max_levels=2), GREEDY)
    fresh = told(drafter, answer, hidden)
    assert same(session.propose(Limits(9, 4, 3), SAMPLED).tree, fresh.propose(Limits(9, 4, 3), SAMPLED).tree)


def test_no_tokens_go_only_behind_all_that_is_known(drafter: EagleDrafter) -> None:
    session = told(drafter, [9, 2], features(2))
    with pytest.raises(DraftGapError) as error:
        session.extend(8, [], prompt_tokens=5, hidden=None)
    assert error.value.known_tokens == 7
    for base, prompt_tokens in ((6, 5), (7, 4)):
        with pytest.raises(DraftRequestError, match="at least one"):
            session.extend(base, [], prompt_tokens=prompt_tokens, hidden=None)
    with pytest.raises(DraftRequestError, match="at most 0"):
        session.extend(7, [], prompt_tokens=5, hidden=features(1))


def test_a_prompt_alone_gets_no_guesses(drafter: EagleDrafter) -> None:
    session = told(drafter, [], features(0))
    assert session.propose(Limits(4, 4, 1), GREEDY).tree.tokens == []
    assert session.known_tokens == 5


def test_a_token_without_its_feature_is_asked_for_again(drafter: EagleDrafter) -> None:
    hidden = features(6)
    session = told(drafter, [9, 2], hidden)
    with pytest.raises(DraftGapError, match="no hidden state for the token at 7") as error:
        session.extend(7, [6, 5, 3], prompt_tokens=5, hidden=hidden[3:5])
    assert error.value.known_tokens == session.known_tokens == 7
    session.extend(7, [6, 5, 3], prompt_tokens=5, hidden=hidden[2:5])
    fresh = told(drafter, [9, 2, 6, 5, 3], hidden)
    assert same(session.propose(Limits(4, 4, 1), GREEDY).tree, fresh.propose(Limits(4, 4, 1), GREEDY).tree)


def test_a_restarted_draft_keeps_the_prompt_and_asks_for_the_answer(drafter: EagleDrafter) -> None:
    session = drafter.new_session()
    with pytest.raises(DraftGapError):
        session.extend(5, [9], prompt_tokens=5, hidden=features(1))
    with pytest.raises(DraftGapError) as error:
        session.extend(0, [*PROMPT, 9, 2], prompt_tokens=5, hidden=None)
    assert error.value.known_tokens == 5
    session.extend(5, [9, 2], prompt_tokens=5, hidden=features(2))
    assert len(session.propose(Limits(4, 4, 1), GREEDY).tree.tokens) == 4


def test_other_prompt_tokens_make_another_text(drafter: EagleDrafter) -> None:
    session, hidden = told(drafter, [9, 2], features(2)), features(3)
    session.extend(4, [5, 9, 2], prompt_tokens=4, hidden=hidden)
    other = drafter.new_session()
    other.extend(0, [*PROMPT, 9, 2], prompt_tokens=4, hidden=hidden)
    assert same(session.propose(Limits(4, 4, 1), GREEDY).tree, other.propose(Limits(4, 4, 1), GREEDY).tree)


def test_guesses_end_where_the_heads_own_context_ends(drafter: EagleDrafter) -> None:
    session, sizes = drafter.new_session(), []
    answer, hidden = [9, 2, 6, 5] * 17, features(68)
    session.extend(0, PROMPT + answer[:61], prompt_tokens=5, hidden=hidden[:61])
    for length in range(62, 67):
        session.extend(4 + length, [answer[length - 1]], prompt_tokens=5, hidden=hidden[length - 1 : length])
        sizes.append(len(session.propose(Limits(8, 8, 1), GREEDY).tree.tokens))
    assert sizes == [3, 2, 1, 0, 0]


@pytest.mark.parametrize("shape", [(2, 31), (3, 32), (32,)])
def test_hidden_states_of_another_shape_are_refused(drafter: EagleDrafter, shape: tuple[int, ...]) -> None:
    session = told(drafter, [], features(0))
    with pytest.raises(DraftRequestError, match=r"\[at most 2, 32\] is due"):
        session.extend(5, [9, 2], prompt_tokens=5, hidden=torch.zeros(shape))
    assert session.known_tokens == 5


def test_hidden_states_that_are_not_finite_are_an_error(drafter: EagleDrafter) -> None:
    with pytest.raises(NonFiniteError, match="hidden"):
        told(drafter, [9], torch.full((1, 32), float("inf")))


def test_weights_that_are_not_finite_are_an_error(head_path: Path, target_path: Path, tmp_path: Path) -> None:
    tensors = load_file(head_path / "head.safetensors")
    tensors["down_proj.weight"][3, 3] = float("nan")
    save_file(tensors, tmp_path / "head.safetensors")
    (tmp_path / "config.json").symlink_to(head_path / "config.json")
    drafter = load_drafter(tmp_path, target_path, max_tokens=64)
    assert isinstance(drafter, EagleDrafter)
    for sampling in (GREEDY, SAMPLED):
        with pytest.raises(NonFiniteError):
            told(drafter, [9], features(1)).propose(Limits(2, 2, 1), sampling)


def test_a_head_needs_its_target(head_path: Path) -> None:
    with pytest.raises(CheckpointError, match="needs the directory of its target"):
        load_drafter(head_path, None, max_tokens=64)


def test_a_head_has_one_dtype(head_path: Path, target_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="float32"):
        load_drafter(head_path, target_path, max_tokens=64, dtype=torch.bfloat16)


def test_a_target_of_another_width_is_refused(head_path: Path, target_path: Path, tmp_path: Path) -> None:
    config = json.loads((head_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"vocab_size": 98}))
    (tmp_path / "head.safetensors").symlink_to(head_path / "head.safetensors")
    with pytest.raises(CheckpointError, match="embed_tokens"):
        load_drafter(tmp_path, target_path, max_tokens=64)


def test_a_head_whose_tensors_do_not_fit_its_configuration_is_refused(
    head_path: Path, target_path: Path, tmp_path: Path
) -> None:
    config = json.loads((head_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"intermediate_size": 64}))
    (tmp_path / "head.safetensors").symlink_to(head_path / "head.safetensors")
    with pytest.raises(CheckpointError, match="gate_proj"):
        load_drafter(tmp_path, target_path, max_tokens=64)
