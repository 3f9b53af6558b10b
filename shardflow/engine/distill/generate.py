"""The target talks: answers to many prompts at once, each with the features that produced its tokens."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from shardflow.engine.distill.talks import Talk
from shardflow.engine.kv import KVCache
from shardflow.engine.model import ModelSlice, Segment

PREFILL_ROWS = 2048  # of prompts that join in one step


@dataclass(frozen=True)
class Request:
    """A prompt to answer; temperature 0 takes the most likely token."""

    prompt: Sequence[int]
    temperature: float


@dataclass
class _Seat:
    kv: KVCache
    request: Request
    answer: list[int] = field(default_factory=list)
    features: list[Tensor] = field(default_factory=list)

    def segment(self) -> Segment:
        """The prompt at first, then the newest token."""
        tokens = self.answer[-1:] or self.request.prompt
        base = len(self.request.prompt) + len(self.answer) - 1 if self.answer else 0
        return Segment(self.kv, base, range(-1, len(tokens) - 1), tokens)

    def talk(self) -> Talk:
        return Talk(self.request.prompt, self.answer, torch.stack(self.features).half())


def generate(
    target: ModelSlice,
    requests: Iterable[Request],
    *,
    seats: int,
    max_prompt: int,
    max_answer: int,
    eos_ids: frozenset[int],
    random: torch.Generator,
) -> Iterator[Talk]:
    """Answers of at most `max_answer` tokens, as they end; `seats` conversations are under way at a time.

    Prompts longer than `max_prompt` are passed over. One that ends makes room for the next at once, so the batch stays
    full until the requests run out.
    """
    waiting = (request for request in requests if len(request.prompt) <= max_prompt)
    free = [target.new_kv(max_prompt + max_answer) for _ in range(seats)]
    taken: list[_Seat] = []
    while True:
        rows = 0
        while free and rows < PREFILL_ROWS and (request := next(waiting, None)):
            taken.append(_Seat(free.pop(), request))
            rows += len(request.prompt)
        if not taken:
            return
        _step(target, taken, random)
        done = [seat for seat in taken if seat.answer[-1] in eos_ids or len(seat.answer) == max_answer]
        for seat in done:
            taken.remove(seat)
            free.append(seat.kv)
            yield seat.talk()


@torch.inference_mode()
def _step(target: ModelSlice, seats: Sequence[_Seat], random: torch.Generator) -> None:
    """One more token for every seat."""
    segments = [seat.segment() for seat in seats]
    ends = torch.tensor([len(segment.parents) for segment in segments]).cumsum(0) - 1
    hidden = target.forward(segments)[ends.to(target.device)]  # [seats, hidden]
    logits = target.logits(hidden)
    temperature = torch.tensor([seat.request.temperature for seat in seats], device=logits.device)
    noise = torch.empty_like(logits).exponential_(generator=random).log_().neg_()  # Gumbel
    tokens = (logits + noise * temperature[:, None]).argmax(dim=1)
    for seat, token, feature in zip(seats, tokens.tolist(), hidden.cpu(), strict=True):
        seat.answer.append(token)
        seat.features.append(feature)


@torch.inference_mode()
def teacher_force(target: ModelSlice, texts: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[Talk]:
    """Features of given (prompt, answer) pairs, in one forward; the sum of their lengths is its number of rows."""
    segments = []
    for prompt, answer in texts:
        tokens = [*prompt, *answer[:-1]]  # the last token produced nothing
        segments.append(Segment(target.new_kv(len(tokens)), 0, range(-1, len(tokens) - 1), tokens))
    hidden = torch.split(target.forward(segments).half().cpu(), [len(segment.parents) for segment in segments])
    return [Talk(prompt, answer, rows[len(prompt) - 1 :]) for (prompt, answer), rows in zip(texts, hidden, strict=True)]
