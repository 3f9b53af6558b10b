"""Writes one answer: as one body, or as chunks that grow with every reply of the core."""

import json
from collections.abc import Mapping
from typing import Any

from services.orchestrator.openai.answers import Head
from services.orchestrator.openai.gathering import Gathered, statistics, usage
from services.orchestrator.openai.shapes import Shape
from services.orchestrator.openai.translate import Asked
from shardflow.v1 import orchestrator_pb2

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"


def event(data: Any) -> bytes:
    """One server-sent event. ASCII only: some clients split lines at U+2028 and the like too."""
    return f"data: {json.dumps(data, separators=(',', ':'))}\n\n".encode()


class Writer:
    """One answer as it grows."""

    def __init__(self, shape: Shape, asked: Asked, head: Head) -> None:
        """`head` is that of the whole body; chunks have the same with another `object`."""
        self._shape = shape
        self._asked = asked
        self._head = head
        self._choices = [Gathered(index) for index in range(len(asked.generations))]

    def add(self, index: int, reply: orchestrator_pb2.GenerateResponse) -> None:
        """Takes a reply without writing it."""
        self._choices[index].add(reply)

    def opening(self) -> bytes:
        """The events before any text."""
        openings = [self._shape.opening(choice.index) for choice in self._choices]
        return b"".join(self._chunk(opening) for opening in openings if opening is not None)

    def chunks(self, index: int, reply: orchestrator_pb2.GenerateResponse) -> bytes:
        """The events that a reply makes; none if it says nothing that a client can see."""
        choice = self._choices[index]
        piece = self._shape.piece(choice, reply)
        choice.add(reply)
        round_ = {"shardflow": {"round": choice.rounds[-1]}} if reply.rounds else {}
        says_something = reply.text or piece["logprobs"] or round_
        events = self._chunk(piece, **round_) if says_something else b""
        if choice.finish_reason is not None:
            events += self._chunk(self._shape.closing(index, choice.finish_reason), **self._account())
        return events

    def closing(self) -> bytes:
        """The events after all text."""
        if not self._asked.include_usage:
            return DONE
        counted = {**self._chunk_head(), "choices": [], "usage": usage(self._choices, self._asked.n)}
        return event(counted) + DONE

    def body(self) -> Mapping[str, Any]:
        """The whole answer, once all choices have ended."""
        return {
            **self._head,
            "choices": [self._shape.whole(choice) for choice in self._choices],
            "usage": usage(self._choices, self._asked.n),
            **self._account(),
        }

    def _account(self) -> Mapping[str, Any]:
        """The statistics, where they were asked for, at the end of the last choice."""
        is_over = all(choice.finish_reason for choice in self._choices)
        return {"shardflow": statistics(self._choices, self._asked)} if is_over and self._asked.extras else {}

    def _chunk(self, choice: Any, **more: Any) -> bytes:
        counted = {"usage": None} if self._asked.include_usage else {}
        return event({**self._chunk_head(), "choices": [choice], **counted, **more})

    def _chunk_head(self) -> Head:
        return {**self._head, "object": self._shape.chunk_object}
