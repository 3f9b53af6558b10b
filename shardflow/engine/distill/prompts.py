"""Prompts to train on: from a file of seeds, or written by the target itself."""

import itertools
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from shardflow.engine.distill.generate import Request, generate
from shardflow.engine.model import ModelSlice
from shardflow.errors import InvalidArgument
from shardflow.tokenizer import Tokenizer

MARK = "@seed@"
LONGEST_OPENING = 64  # tokens of a prompt that the target writes
AT_ONCE = 64  # prompts that it writes together
WARM, COLD = 0.8, 0.0  # temperatures of the answers, by turns


class Prompter:
    """The prompts of one target, in its own chat format where it has one."""

    def __init__(self, target: Path, vocab_size: int) -> None:
        """A directory without a tokenizer gets prompts that go on from a random id."""
        self._tokenizer = Tokenizer(target) if (target / "tokenizer.json").exists() else None
        self._vocab_size = vocab_size

    def read(self, file: Path) -> list[list[int]]:
        """One prompt a line of `file`. Raises InvalidArgument when there is none, or no tokenizer to read it by."""
        if self._tokenizer is None:
            raise InvalidArgument("seeds-file: the target has no tokenizer")
        lines = [line.strip() for line in file.read_text().splitlines() if line.strip()]
        if not lines:
            raise InvalidArgument(f"seeds-file: {file} holds no prompt")
        return [self._encode(self._tokenizer, line) for line in lines]

    def write(self, target: ModelSlice, eos_ids: frozenset[int], seed: int) -> Iterator[list[int]]:
        """Prompts without end: what the target says in the user's place, or one random id if it knows no such place."""
        chance, noise = random.Random(seed), torch.Generator(target.device).manual_seed(seed)
        if self._tokenizer is None or not self._tokenizer.has_chat_template:
            while True:
                yield [chance.randrange(self._vocab_size)]
        frame = self._tokenizer.render([{"role": "user", "content": MARK}]).split(MARK)
        before, after = (self._tokenizer.encode(part, add_special_tokens=False) for part in frame)
        while True:
            for talk in generate(
                target, [Request(before, 1.0)] * AT_ONCE, seats=AT_ONCE, max_prompt=len(before),
                max_answer=LONGEST_OPENING, eos_ids=eos_ids, random=noise,
            ):  # fmt: skip
                if said := [token for token in talk.answer if token not in eos_ids]:
                    yield [*before, *said, *after]

    @staticmethod
    def _encode(tokenizer: Tokenizer, line: str) -> list[int]:
        if tokenizer.has_chat_template:
            return tokenizer.encode_chat([{"role": "user", "content": line}])
        return tokenizer.encode(line)


def alternating(prompts: Iterator[Sequence[int]]) -> Iterator[Request]:
    """Every prompt once: greedy and sampled by turns, since a draft serves both."""
    for prompt, temperature in zip(prompts, itertools.cycle((COLD, WARM)), strict=False):
        yield Request(prompt, temperature)


def repeated(prompts: Sequence[Sequence[int]]) -> Iterator[Sequence[int]]:
    """The prompts again and again; an odd number of them, so that each comes greedy and sampled."""
    return itertools.cycle([*prompts, *prompts[: 1 - len(prompts) % 2]])
