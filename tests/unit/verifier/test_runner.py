"""One pass for several sessions: what goes wrong with one leaves the others as they were, kept rows included."""

from pathlib import Path
from typing import Any

import pytest
import torch

from services.verifier.runner import Runner, Step
from services.verifier.sessions import Apply, SessionTable
from services.verifier.slices import Head, Limits, Setup
from shardflow.engine import GREEDY, KVCache, ModelSlice, load_slice
from shardflow.errors import NumericError
from tests.families import VOCAB, plain_greedy, tiny_model

POISON = 150
SETUP = Setup(
    max_tokens=64, prompt_tokens=1, top_logprobs=0, want_logprobs=False, want_hidden=False, sampling=GREEDY
)  # fmt: skip


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return tiny_model("llama", tmp_path_factory.mktemp("models") / "llama", tied=False)


@pytest.fixture
def model(path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelSlice:
    """A whole model whose logits, not its hidden states, are NaN in a pass that has the poisoned token."""
    model = load_slice(path, None)
    forward, logits = model.forward, model.logits
    poisoned: list[bool] = []

    def watch(segments: Any) -> torch.Tensor:
        poisoned[:] = [any(POISON in segment.tokens for segment in segments)]
        return forward(segments)

    monkeypatch.setattr(model, "forward", watch)
    monkeypatch.setattr(model, "logits", lambda hidden: logits(hidden) * (float("nan") if poisoned[0] else 1.0))
    return model


def test_rows_are_gathered_once_when_a_pass_is_repeated(model: ModelSlice, path: Path) -> None:
    table: SessionTable[KVCache] = SessionTable(
        Limits(vocab_size=VOCAB, max_sessions=4, max_session_tokens=64, max_slice_rows=32),
        model.new_kv, idle_s=60, grace_s=60,
    )  # fmt: skip
    runner = Runner(model)

    def step(session: str, **fields: Any) -> Step:
        head = make_head(session, **fields)
        outcome = table.admit(head, 0.0)
        assert isinstance(outcome, Apply), outcome
        return Step(head, outcome.session, None)

    prompt = [5, 17, 3]
    first, second = plain_greedy(path, prompt, 2)
    wrong = (first + 1) % VOCAB
    # Two guesses below the last row: a wrong one first, so that the right one has to be gathered.
    tree = step("a", tokens=[*prompt, wrong, first], parents=[-1, 0, 1, 2, 2], committed=3)
    (decision,) = runner.run([tree])
    assert (decision.walk.accepted, decision.walk.next_token) == ((2, 4), second)  # type: ignore[union-attr]

    again = step("a", round=1, base=4, keep=[0, 1, 2, 4], tokens=[second], parents=[-1], committed=1)
    bad = step("b", tokens=[POISON], parents=[-1], committed=1)
    kept, failed = runner.run([again, bad])
    assert isinstance(failed, NumericError)
    assert kept.walk.next_token == plain_greedy(path, [*prompt, first, second], 1)[0]  # type: ignore[union-attr]


def make_head(session: str, **fields: Any) -> Head:
    values: dict[str, Any] = {"round": 0, "base": 0, "keep": [], **fields}
    return Head(
        origin="o", session=session, epoch=1, want_verdict=True, committed_rows=values.pop("committed"),
        setup=SETUP if values["round"] == 0 else None, **{name: values[name] for name in ("round", "base")},
        **{name: tuple(values[name]) for name in ("keep", "tokens", "parents")},
    )  # fmt: skip
