"""The text never depends on the arrangement: shards, K and draft change the speed alone. All services are real.

The expected text is the one of plain transformers in one process, every token from a forward over the whole text.
"""

from collections.abc import AsyncIterator
from functools import cache
from pathlib import Path

import pytest
import torch

from shardflow.engine.sampling import SamplingParams, choose
from shardflow.v1 import sampling_pb2
from tests.families import FAMILIES, LAYERS, VOCAB, plain_greedy, plain_logits, tiny_model
from tests.integration.exactness.deployment import Deployment, deployed, perturbed
from tests.orchestrating import write_model
from tests.unit.draft.tiny import save_head

PROMPT = [17, 3, 150, 88, 42, 9, 120, 61, 5, 77, 190]
TOKENS = 24
MODES = ("linear:8", "tree:12", "auto")
DRAFTS = ("good", "random", "equal", "head", "none")
SAMPLING = sampling_pb2.SamplingParams(
    temperature=0.8, top_p=0.9, repetition_penalty=1.2, presence_penalty=0.3, frequency_penalty=0.2, seed=11
)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    path = tmp_path_factory.mktemp("exactness")
    write_model(path / "tokenizer")
    for family in FAMILIES:
        tiny_model(family, path / family, tied=FAMILIES.index(family) % 2 == 0)
        perturbed(path / family, path / f"{family}-good", 0.01)
        tiny_model(family, path / f"{family}-random", tied=FAMILIES.index(family) % 2 == 1)
    save_head(path / "head", seed=5, hidden=48, vocab=VOCAB)
    return path


def draft_of(models: Path, family: str, draft: str) -> Path | None:
    return {"none": None, "head": models / "head", "equal": models / family}.get(draft, models / f"{family}-{draft}")


@cache
def greedy(path: Path) -> list[int]:
    return plain_greedy(path, PROMPT, TOKENS)


@cache
def sampled(path: Path) -> list[int]:
    """The sampled text with the sampler of the verifier, but one plain forward over the whole text per token."""
    params = SamplingParams(
        temperature=SAMPLING.temperature,
        top_p=SAMPLING.top_p,
        repetition_penalty=SAMPLING.repetition_penalty,
        presence_penalty=SAMPLING.presence_penalty,
        frequency_penalty=SAMPLING.frequency_penalty,
        seed=SAMPLING.seed,
    )
    output: list[int] = []
    for _ in range(TOKENS):
        logits = plain_logits(path, PROMPT + output)[-1]
        output.append(choose(logits, params, len(PROMPT) + len(output), PROMPT, output))
    return output


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("shards", [1, 2, 3])
async def test_every_arrangement(models: Path, shards: int, draft: str) -> None:
    target = models / "llama"
    async with deployed(
        target, models / "tokenizer", layers=LAYERS, shards=shards, draft=draft_of(models, "llama", draft)
    ) as deployment:
        for mode in MODES:
            answer = await deployment.generate(PROMPT, mode=mode, tokens=TOKENS, ignore_eos=True)
            assert answer.ids == greedy(target), f"greedy, {mode}"
            answer = await deployment.generate(PROMPT, mode=mode, tokens=TOKENS, ignore_eos=True, sampling=SAMPLING)
            assert answer.ids == sampled(target), f"sampled, {mode}"


@pytest.mark.parametrize(("shards", "draft"), [(1, "none"), (2, "good"), (2, "head"), (3, "equal"), (3, "random")])
@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "llama"])
async def test_every_family(models: Path, family: str, shards: int, draft: str) -> None:
    target = models / family
    async with deployed(
        target, models / "tokenizer", layers=LAYERS, shards=shards, draft=draft_of(models, family, draft)
    ) as deployment:
        for mode in ("linear:4", "auto"):
            answer = await deployment.generate(PROMPT, mode=mode, tokens=TOKENS, ignore_eos=True)
            assert answer.ids == greedy(target), f"greedy, {mode}"
        answer = await deployment.generate(PROMPT, mode="tree:12", tokens=TOKENS, ignore_eos=True, sampling=SAMPLING)
        assert answer.ids == sampled(target), "sampled"


async def test_the_drafts_differ_as_they_should(models: Path) -> None:
    """Else the tests above would compare one arrangement with itself."""
    acceptance = {}
    for draft in ("good", "random", "equal", "head"):
        async with deployed(
            models / "llama", models / "tokenizer", layers=LAYERS, shards=1, draft=draft_of(models, "llama", draft)
        ) as deployment:
            usage = (await deployment.generate(PROMPT, mode="linear:4", tokens=TOKENS, ignore_eos=True)).last.usage
            acceptance[draft] = usage.accepted_tokens / usage.drafted_tokens
    assert acceptance["equal"] == 1
    assert 0.2 < acceptance["good"] < 1
    assert acceptance["random"] < 0.2
    assert acceptance["head"] < 0.2


@pytest.fixture
async def equal(models: Path) -> AsyncIterator[Deployment]:
    async with deployed(
        models / "llama", models / "tokenizer", layers=LAYERS, shards=2, draft=models / "llama"
    ) as deployment:
        yield deployment


@pytest.mark.parametrize(
    "length", [14, 15, 16, 17, 18, 30, 31, 32, 33, 34, 62, 63, 64, 65, 66, 126, 127, 128, 129, 130]
)
async def test_a_draft_equal_to_its_target_is_always_right(equal: Deployment, length: int) -> None:
    prompt = [(7 * i + length) % VOCAB for i in range(length)]
    for k in (1, 4, 8):
        answer = await equal.generate(prompt, mode=f"linear:{k}", tokens=3 * (k + 1) + 1, ignore_eos=True)
        assert answer.last.usage.accepted_tokens == answer.last.usage.drafted_tokens == 3 * k
        assert [len(message.tokens) for message in answer.messages] == [1, k + 1, k + 1, k + 1]
