"""The text does not depend on how many shards there are, on the draft, or on how the prompt was cut."""

import random
from typing import Any

import pytest

from shardflow.v1 import sampling_pb2

PROMPT = [5, 17, 3, 42, 8, 61, 2, 30, 9, 77, 1, 12, 55]
SEEDED = sampling_pb2.SamplingParams(
    temperature=0.8, top_p=0.9, repetition_penalty=1.3, presence_penalty=0.4, frequency_penalty=0.3, seed=11
)


def random_tree(text: list[int]) -> tuple[list[int], list[int]]:
    """Seven guesses below the text, seeded by its length."""
    rng = random.Random(len(text))
    return [rng.randrange(89) for _ in range(7)], [rng.randrange(-1, row) for row in range(7)]


def knowing_tree(answer: list[int], prompt: int) -> Any:
    """A draft that hides the right tokens in a tree, at rows that differ from round to round."""

    def draft(text: list[int]) -> tuple[list[int], list[int]]:
        rng = random.Random(len(text))
        right = answer[len(text) - prompt :][: rng.randrange(5)]
        tokens, parents, above = [], [], -1
        for token in right:
            for _ in range(rng.randrange(3)):
                tokens.append((token + 1 + rng.randrange(80)) % 89)
                parents.append(above)
            tokens.append(token)
            parents.append(above)
            above = len(tokens) - 1
        return tokens, parents

    return draft


@pytest.mark.parametrize("shards", [1, 2, 3])
@pytest.mark.parametrize("chunk", [1, 4, 64])
async def test_greedy_text_equals_transformers(
    shards: int, chunk: int, chain: Any, orchestrator: Any, generate: Any, greedy_text: Any
) -> None:
    expected = greedy_text(PROMPT, 24)
    async with chain(shards) as running:
        o = await orchestrator(running)
        none = await generate(o, "none", PROMPT, 24, chunk=chunk)
        rand = await generate(o, "random", PROMPT, 24, chunk=chunk, draft=random_tree)
        good = await generate(o, "good", PROMPT, 24, chunk=chunk, draft=knowing_tree(expected, len(PROMPT)))
        chained = await generate(
            o, "chain", PROMPT, 24, chunk=chunk,
            draft=lambda text: (expected[len(text) - len(PROMPT) :][:4], [-1, 0, 1, 2][: 24 + 13 - len(text)]),
        )  # fmt: skip
    assert none.tokens == rand.tokens == good.tokens == chained.tokens == expected
    assert none.rounds == 24
    assert good.rounds < 15
    assert chained.rounds == 5  # 4 guesses and one more token a round


async def test_seeded_text_with_penalties_is_one_text(chain: Any, orchestrator: Any, generate: Any) -> None:
    texts = []
    for shards in (1, 2, 3):
        async with chain(shards) as running:
            o = await orchestrator(running)
            none = await generate(o, "none", PROMPT, 30, sampling=SEEDED)
            good = await generate(o, "good", PROMPT, 30, sampling=SEEDED, draft=knowing_tree(none.tokens, len(PROMPT)))
            rand = await generate(o, "rand", PROMPT, 30, sampling=SEEDED, draft=random_tree, chunk=3)
            assert good.rounds < 20
            texts += [none.tokens, good.tokens, rand.tokens]
    assert all(text == texts[0] for text in texts)
    assert len(set(texts[0])) > 15
