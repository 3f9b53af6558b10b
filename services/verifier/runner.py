"""One forward pass over the slices of many sessions, on one thread; a slice that fails costs the others nothing."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from services.verifier.deciding import Decision, Question, decide
from services.verifier.sessions import Session
from services.verifier.slices import Head
from shardflow.engine import CapacityError, KVCache, ModelSlice, NonFiniteError, Segment
from shardflow.errors import NumericError, ResourceExhausted, ShardflowError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Step:
    """A slice that its session has admitted."""

    head: Head
    session: Session[KVCache]
    hidden: Tensor | None  # [rows, hidden_size]; none on the first shard


# Hidden states for the next shard, or the last shard's decision (none if nobody asked for it), or why there is neither.
Result = Tensor | Decision | ShardflowError | None


class Runner:
    """Runs steps through a model slice. Its methods are to be called from one thread."""

    def __init__(self, model: ModelSlice) -> None:
        self._model = model

    def warm_up(self) -> None:
        """Runs one row, so that no session pays for what is set up at the first use."""
        model = self._model
        hidden = None if model.is_first else torch.zeros(1, model.hidden_size, dtype=model.dtype)
        row = model.forward([Segment(model.new_kv(1), base=0, parents=[-1], tokens=[0], hidden=hidden)])
        if model.is_last:
            model.logits(row)

    def run(self, steps: Sequence[Step]) -> list[Result]:
        """Runs the steps packed; if that raises, one by one, so that only those at fault fail."""
        faults = [_gather(step) for step in steps]
        sound = [step for step, fault in zip(steps, faults, strict=True) if fault is None]
        results = iter(self._attempt(sound) if sound else [])
        return [next(results) if fault is None else fault for fault in faults]

    def _attempt(self, steps: Sequence[Step]) -> list[Result]:
        try:
            return self._run(steps)
        except Exception as error:
            if len(steps) > 1:
                return [self._attempt([step])[0] for step in steps]
            return [_typed(error)]

    def _run(self, steps: Sequence[Step]) -> list[Result]:
        hidden = self._model.forward([_segment(step) for step in steps])
        parts = torch.split(hidden, [len(step.head.tokens) for step in steps])  # each [rows, hidden_size]
        return self._decide(steps, parts) if self._model.is_last else list(parts)

    def _decide(self, steps: Sequence[Step], parts: Sequence[Tensor]) -> list[Result]:
        asked = [
            Question(step.head, step.session.setup, step.session.committed, part[step.head.committed_rows - 1 :])
            for step, part in zip(steps, parts, strict=True)
            if step.head.want_verdict
        ]
        if not asked:
            return [None] * len(steps)
        # Only rows that can be reached get logits: the head is as dear as several layers.
        decisions = iter(decide(asked, self._model.logits(torch.cat([question.hidden for question in asked]))))
        return [next(decisions) if step.head.want_verdict else None for step in steps]


def _gather(step: Step) -> ShardflowError | None:
    """Brings the KV to the rows that were kept, once, since a pass may be repeated; returns what went wrong, if so."""
    try:
        if step.head.keep:
            step.session.kv.keep(step.head.keep)
    except Exception as error:
        return _typed(error)
    return None


def _segment(step: Step) -> Segment:
    head = step.head
    return Segment(step.session.kv, base=head.base, parents=head.parents, tokens=head.tokens, hidden=step.hidden)


def _typed(error: Exception) -> ShardflowError:
    if isinstance(error, NonFiniteError):
        return NumericError(str(error))
    if isinstance(error, CapacityError | torch.OutOfMemoryError):
        return ResourceExhausted(str(error))
    logger.error("a forward pass failed", exc_info=error)
    return ShardflowError(f"{type(error).__name__}: {error}")
