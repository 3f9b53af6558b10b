"""From message to message: what is refused, with which code, and what the session is worth afterwards."""

import time
from pathlib import Path

import pytest

from services.draft.proposing import Outcome, propose
from services.draft.sessions import Held
from shardflow.engine.drafts import Drafter, DraftSession, load_drafter
from shardflow.v1 import draft_pb2, sampling_pb2, tensor_pb2

INVALID_ARGUMENT, FAILED_PRECONDITION, INTERNAL, CANCELLED = 3, 9, 13, 1


@pytest.fixture(scope="module")
def model(target_path: Path) -> Drafter:
    return load_drafter(target_path, None, max_tokens=256)


@pytest.fixture(scope="module")
def head(head_path: Path, target_path: Path) -> Drafter:
    return load_drafter(head_path, target_path, max_tokens=64)


def rows(count: int, data: bytes | None = None) -> tensor_pb2.Tensor:
    data = bytes(count * 128) if data is None else data
    return tensor_pb2.Tensor(dtype=tensor_pb2.ELEMENT_TYPE_F32, shape=[count, 32], data=data)


def extend(**changes: object) -> draft_pb2.Extend:
    fields = {"tokens": [3, 1, 4], "max_nodes": 3, "max_depth": 3, "max_children": 1, "prompt_tokens": 3}
    return draft_pb2.Extend(**(fields | changes))  # type: ignore[arg-type]


def ask(drafter: Drafter, held: Held[DraftSession], message: draft_pb2.Extend) -> Outcome:
    request = draft_pb2.ProposeRequest(request_id=5, session="s", extend=message)
    return propose(drafter, held, request, time.monotonic() - 0.25)


def test_a_tree_answers_with_ids_and_times(model: Drafter) -> None:
    outcome = ask(model, Held(model.new_session()), extend())
    assert (outcome.answer.request_id, outcome.answer.session, outcome.usable) == (5, "s", True)
    assert list(outcome.answer.tree.parents) == [-1, 0, 1]
    assert len(outcome.answer.tree.tokens) == len(outcome.answer.tree.logprobs) == 3
    assert outcome.answer.queue_ms >= 250
    assert outcome.answer.compute_ms > 0


WRONG = {
    "no tokens": ({"tokens": []}, "tokens"),
    "an id outside the vocabulary": ({"tokens": [3, 1, 97]}, "tokens"),
    "a prompt longer than the text": ({"prompt_tokens": 4}, "prompt_tokens"),
    "no depth": ({"max_depth": 0}, "max_depth"),
    "no children": ({"max_children": 0}, "max_children"),
    "too many nodes": ({"max_nodes": 1025}, "max_nodes"),
    "a negative temperature": ({"sampling": sampling_pb2.SamplingParams(temperature=-1)}, "sampling"),
    "a bias outside the vocabulary": ({"sampling": sampling_pb2.SamplingParams(logit_bias={97: 1})}, "logit_bias"),
    "hidden states for a model": ({"hidden": rows(1)}, "hidden"),
}


@pytest.mark.parametrize(("changes", "named"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_request_is_refused_and_changes_nothing(model: Drafter, changes: dict[str, object], named: str) -> None:
    held = Held(model.new_session())
    ask(model, held, extend(tokens=[3, 1], prompt_tokens=2))
    outcome = ask(model, held, extend(**changes))
    assert outcome.answer.failure.code == INVALID_ARGUMENT
    assert named in outcome.answer.failure.message
    assert outcome.answer.failure.known_tokens == 2
    assert outcome.usable


HIDDEN = {
    "too few bytes": rows(1, bytes(127)),
    "another width": tensor_pb2.Tensor(dtype=tensor_pb2.ELEMENT_TYPE_F32, shape=[1, 31], data=bytes(124)),
    "no dtype": tensor_pb2.Tensor(shape=[1, 32], data=bytes(128)),
    "no shape": tensor_pb2.Tensor(dtype=tensor_pb2.ELEMENT_TYPE_F32),
    "more rows than tokens": rows(4),
}


@pytest.mark.parametrize("hidden", HIDDEN.values(), ids=HIDDEN.keys())
def test_hidden_states_that_do_not_fit_are_refused(head: Drafter, hidden: tensor_pb2.Tensor) -> None:
    outcome = ask(head, Held(head.new_session()), extend(hidden=hidden, prompt_tokens=2))
    assert outcome.answer.failure.code == INVALID_ARGUMENT
    assert "hidden" in outcome.answer.failure.message


def test_a_gap_says_what_is_known(model: Drafter) -> None:
    held = Held(model.new_session())
    ask(model, held, extend())
    outcome = ask(model, held, extend(base=4, tokens=[1]))
    assert (outcome.answer.failure.code, outcome.answer.failure.known_tokens) == (FAILED_PRECONDITION, 3)


def test_a_missing_feature_says_from_where_to_send_again(head: Drafter) -> None:
    held = Held(head.new_session())
    outcome = ask(head, held, extend(tokens=[3, 1, 4, 1], hidden=rows(1), prompt_tokens=2))
    assert (outcome.answer.failure.code, outcome.answer.failure.known_tokens) == (FAILED_PRECONDITION, 2)
    outcome = ask(head, held, extend(base=2, tokens=[4, 1], hidden=rows(2), prompt_tokens=2))
    assert len(outcome.answer.tree.tokens) == 3


def test_numbers_that_are_not_finite_cost_the_session(head: Drafter) -> None:
    nan = rows(1, b"\x00\x00\xc0\x7f" * 32)
    outcome = ask(head, Held(head.new_session()), extend(hidden=nan, prompt_tokens=2))
    assert (outcome.answer.failure.code, outcome.answer.failure.known_tokens) == (INTERNAL, 0)
    assert "NaN" in outcome.answer.failure.message
    assert not outcome.usable


def test_a_bug_is_an_answer_too(model: Drafter, monkeypatch: pytest.MonkeyPatch) -> None:
    session = model.new_session()
    monkeypatch.setattr(session, "propose", lambda limits, sampling, calibration: 1 / 0)
    outcome = ask(model, Held(session), extend())
    assert outcome.answer.failure.code == INTERNAL
    assert "ZeroDivisionError" in outcome.answer.failure.message
    assert not outcome.usable


def test_work_for_a_forgotten_session_is_not_done(model: Drafter) -> None:
    session = model.new_session()
    outcome = ask(model, Held(session, forgotten=True), extend())
    assert outcome.answer.failure.code == CANCELLED
    assert session.known_tokens == 0
