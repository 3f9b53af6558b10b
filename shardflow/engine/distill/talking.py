"""Where the talks of a distillation come from: the target's own answers, or the log of a running system."""

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import torch

from shardflow.engine.distill.generate import Request, generate, teacher_force
from shardflow.engine.distill.prompts import Prompter, alternating, repeated
from shardflow.engine.distill.talks import Talk
from shardflow.engine.model import ModelSlice
from shardflow.errors import InvalidArgument
from shardflow.roundlog import read_texts
from shardflow.tokenizer import end_of_sequence

SEATS, MAX_PROMPT, MAX_ANSWER = 64, 512, 128
HELD_OUT, HELD_ANSWER = 24, 64  # talks for evaluation, and tokens; of a file of seeds the last ones, a quarter at most
LOGGED = 8  # texts of one forward


class Source:
    """The talks of one target, from seeds, from a log, or from nothing but itself."""

    def __init__(self, path: Path, target: ModelSlice, seed: int, seeds_file: Path | None, log: Path | None) -> None:
        """`path`: the target's directory. Raises InvalidArgument for a file without a usable line."""
        self._target = target
        self._seed = seed
        self._log = log
        self._eos = end_of_sequence(path)
        self._prompter = Prompter(path, target.vocab_size)
        seeds = self._prompter.read(seeds_file) if seeds_file else None
        if seeds is not None and len(seeds) < 4:
            raise InvalidArgument("seeds-file: at least 4 prompts are needed, as some are held out")
        kept = min(HELD_OUT, len(seeds) // 4) if seeds else 0
        self._seeds = seeds[:-kept] if seeds else None
        self._held_seeds = seeds[-kept:] if seeds else None

    def held_out(self) -> Iterator[Talk]:
        """Greedy talks for evaluation, whose prompts no other talk has."""
        prompts = self._held_seeds or islice(self._prompter.write(self._target, self._eos, -1 - self._seed), HELD_OUT)
        return self._answers((Request(prompt, 0.0) for prompt in prompts), 0, HELD_ANSWER)

    def talks(self, part: int) -> Iterator[Talk]:
        """Talks to train on; without a log they do not end. `part` tells apart the runs of one distillation."""
        if self._log is not None:
            return self._logged(self._log, part)
        seed = self._seed + part
        prompts = repeated(self._seeds) if self._seeds else self._prompter.write(self._target, self._eos, seed)
        return self._answers(alternating(prompts), seed, MAX_ANSWER)

    def _answers(self, requests: Iterable[Request], seed: int, longest: int) -> Iterator[Talk]:
        return generate(
            self._target, requests, seats=SEATS, max_prompt=MAX_PROMPT, max_answer=longest, eos_ids=self._eos,
            random=torch.Generator(self._target.device).manual_seed(seed),
        )  # fmt: skip

    def _logged(self, log: Path, skip: int) -> Iterator[Talk]:
        """The logged texts behind the first `skip`: the log holds ids, the features are computed again."""
        texts = ((text.prompt, text.answer) for text in read_texts(log) if text.prompt and text.answer)
        waiting = islice(texts, skip, None)
        while group := list(islice(waiting, LOGGED)):
            yield from teacher_force(self._target, group)
