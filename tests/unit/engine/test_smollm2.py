"""The demo's model answers a chat question word for word as transformers does, however it is sliced."""

from pathlib import Path

import pytest
import torch

from shardflow.engine import greedy
from tests.families import reference
from tests.unit.engine.conftest import Pipeline, Rows

MODEL = Path(__file__).parents[3] / "models" / "smollm2-135m-instruct"
# "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
PROMPT = [1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198, 1, 520, 9531, 198]
COUNT = 24

pytestmark = [pytest.mark.model, pytest.mark.slow]


@pytest.fixture(scope="module")
def plain() -> list[int]:
    """What transformers generates; without the model's own end of text, so that the text is long enough."""
    with torch.inference_mode():
        out = reference(MODEL).generate(
            torch.tensor([PROMPT]), max_new_tokens=COUNT, do_sample=False, eos_token_id=None
        )
    return out[0, len(PROMPT) :].tolist()


@pytest.mark.parametrize("cuts", [(), (15,), (9, 21)])
def test_greedy_chat_answer(plain: list[int], cuts: tuple[int, ...]) -> None:
    pipeline = Pipeline(MODEL, cuts)
    session = pipeline.session()
    (logits,) = pipeline.run(Rows(session, 0, PROMPT))
    text = greedy(logits[-1:])
    while len(text) < COUNT:
        (logits,) = pipeline.run(Rows(session, len(PROMPT) + len(text) - 1, text[-1:]))
        text += greedy(logits)
    assert text == plain


def test_a_tree_over_the_answer(plain: list[int]) -> None:
    """True and false continuations mixed: each row guesses what follows its own path, and the true path is kept."""
    pipeline = Pipeline(MODEL, (15,))
    session = pipeline.session()
    pipeline.run(Rows(session, 0, PROMPT))
    base = len(PROMPT)
    for start in range(0, 20, 4):
        a, b, c = plain[start : start + 3]
        (logits,) = pipeline.run(Rows(session, base, [a, 99, b, 98, 97, c], parents=[-1, 0, 0, 1, 2, 2]))
        assert [greedy(logits)[row] for row in (0, 2, 5)] == plain[start + 1 : start + 4]
        session.keep([0, 2, 5])
        (logits,) = pipeline.run(Rows(session, base + 3, [plain[start + 3]]))
        assert greedy(logits) == [plain[start + 4]]
        base += 4
