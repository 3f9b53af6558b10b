"""The head in models/smollm2-eagle, against the check vectors that were written when it was trained."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from shardflow.engine import GREEDY
from shardflow.engine.drafts import Limits, load_drafter
from shardflow.engine.drafts.eagle import EagleDrafter

MODELS = Path(__file__).parents[3] / "models"
pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def drafter() -> EagleDrafter:
    drafter = load_drafter(MODELS / "smollm2-eagle", MODELS / "smollm2-135m-instruct", max_tokens=256)
    assert isinstance(drafter, EagleDrafter)
    return drafter


def test_the_check_vectors_come_out(drafter: EagleDrafter) -> None:
    check = load_file(MODELS / "smollm2-eagle" / "check.safetensors")
    prompt, answer = check["prompt"].tolist(), check["answer"].tolist()
    session = drafter.new_session()
    session.extend(0, prompt + answer[:1], prompt_tokens=len(prompt), hidden=check["features"][:1])
    for at in range(1, 24):  # one token a round, with another four guesses in between
        assert session.propose(Limits(4, 1, 4), GREEDY).tree.tokens == check["top4_depth1"][at - 1].tolist()
        session.propose(Limits(4, 4, 1), GREEDY)
        session.extend(len(prompt) + at, [answer[at]], prompt_tokens=len(prompt), hidden=check["features"][at : at + 1])
    assert session.propose(Limits(4, 4, 1), GREEDY).tree.tokens == [14654, 282, 260, 8685]
    logits = drafter.head.logits(session._cache.outputs[23:24])[0]
    assert torch.allclose(logits, check["logits_last"], atol=1e-3)
    assert check["chain4_after_last"].tolist() == [14654, 282, 260, 8685]


def test_all_at_once_is_the_same(drafter: EagleDrafter) -> None:
    check = load_file(MODELS / "smollm2-eagle" / "check.safetensors")
    prompt, answer = check["prompt"].tolist(), check["answer"].tolist()
    session = drafter.new_session()
    session.extend(0, prompt + answer, prompt_tokens=len(prompt), hidden=check["features"])
    logits = drafter.head.logits(session._cache.outputs[:24])  # [24, draft_vocab]
    assert torch.equal(drafter.head.draft_vocab[logits.topk(4).indices].int(), check["top4_depth1"])
    assert torch.allclose(logits[23], check["logits_last"], atol=1e-3)
