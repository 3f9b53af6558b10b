"""SmolLM2 over two shards answers chat questions as plain transformers does, with its own head, at every K."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from shardflow.demo.prompts import CHAT
from shardflow.topology import DEFAULT_DRAFT, DEFAULT_MODEL
from shardflow.v1 import sampling_pb2
from tests.integration.exactness.deployment import Deployment, deployed

TOKENS = 32
pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def plain() -> list[list[int]]:
    """The first three chat questions answered by transformers alone, greedily, end-of-sequence included."""
    tokenizer = AutoTokenizer.from_pretrained(DEFAULT_MODEL)
    model = AutoModelForCausalLM.from_pretrained(DEFAULT_MODEL, dtype=torch.float32).eval()
    answers = []
    for question in questions():
        ids = tokenizer.apply_chat_template(question, add_generation_prompt=True, return_tensors="pt")["input_ids"]
        with torch.inference_mode():
            whole = model.generate(ids, max_new_tokens=TOKENS, do_sample=False, pad_token_id=0)
        answers.append(whole[0, ids.shape[1] :].tolist())
    return answers


MODES = ("none", "tree:16", "lookup", "auto")


def questions() -> list[list[dict[str, str]]]:
    return [[{"role": "user", "content": prompt.text}] for prompt in CHAT[::4]]


@pytest.fixture
async def deployment() -> AsyncIterator[Deployment]:
    torch.set_num_threads(2)
    async with deployed(
        Path(DEFAULT_MODEL), Path(DEFAULT_MODEL), layers=30, shards=2, draft=Path(DEFAULT_DRAFT)
    ) as running:
        yield running


async def test_greedy_is_what_transformers_generates(deployment: Deployment, plain: list[list[int]]) -> None:
    assert len(plain) == 3
    for question, expected in zip(questions(), plain, strict=True):
        for mode in MODES:
            answer = await deployment.generate(question, mode=mode, tokens=TOKENS)
            assert answer.ids == expected, mode


async def test_a_seed_gives_one_text_in_every_mode(deployment: Deployment) -> None:
    sampling = sampling_pb2.SamplingParams(temperature=0.8, top_p=0.9, frequency_penalty=0.3, seed=5)
    texts = set()
    for mode in MODES:
        answer = await deployment.generate(questions()[0], mode=mode, tokens=TOKENS, sampling=sampling)
        texts.add(tuple(answer.ids))
    assert len(texts) == 1
