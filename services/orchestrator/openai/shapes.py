"""The two shapes of an answer: how a chat and how a text completion writes its choices, whole or in chunks."""

from collections.abc import Sequence
from typing import Any, Protocol

from services.orchestrator.openai.answers import ChatChoice, ChatChunkChoice, CompletionChoice, FinishReason
from services.orchestrator.openai.gathering import Gathered
from services.orchestrator.openai.logprobs import chat_logprobs, completion_logprobs
from shardflow.tokenizer import Tokenizer
from shardflow.v1 import orchestrator_pb2


class Shape(Protocol):
    """How choices are written."""

    prefix: str
    whole_object: str
    chunk_object: str

    def opening(self, index: int) -> Any:
        """The choice of a first chunk, before any text; None if there is none."""

    def piece(self, so_far: Gathered, reply: orchestrator_pb2.GenerateResponse) -> Any:
        """The choice of a chunk that carries `reply`; `so_far` is what came before it."""

    def closing(self, index: int, reason: FinishReason) -> Any:
        """The choice of the last chunk."""

    def whole(self, choice: Gathered) -> Any:
        """The choice of a body, once it has ended."""


class ChatShape:
    """`/v1/chat/completions`."""

    prefix = "chatcmpl-"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def __init__(self, tokenizer: Tokenizer, logprobs: bool) -> None:
        self._tokenizer = tokenizer
        self._logprobs = logprobs

    def opening(self, index: int) -> ChatChunkChoice:
        """The role."""
        return {
            "index": index, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None,
        }  # fmt: skip

    def piece(self, so_far: Gathered, reply: orchestrator_pb2.GenerateResponse) -> ChatChunkChoice:
        """More content."""
        logprobs = chat_logprobs(self._tokenizer, reply.tokens) if self._logprobs else None
        return {
            "index": so_far.index, "delta": {"content": reply.text}, "logprobs": logprobs, "finish_reason": None,
        }  # fmt: skip

    def closing(self, index: int, reason: FinishReason) -> ChatChunkChoice:
        """Nothing but the reason."""
        return {"index": index, "delta": {}, "logprobs": None, "finish_reason": reason}

    def whole(self, choice: Gathered) -> ChatChoice:
        """The message."""
        return {
            "index": choice.index,
            "message": {"role": "assistant", "content": choice.text, "refusal": None},
            "logprobs": chat_logprobs(self._tokenizer, choice.tokens) if self._logprobs else None,
            "finish_reason": choice.finish_reason,
        }


class CompletionShape:
    """`/v1/completions`."""

    prefix = "cmpl-"
    whole_object = "text_completion"
    chunk_object = "text_completion"

    def __init__(self, tokenizer: Tokenizer, top_logprobs: int | None) -> None:
        """`top_logprobs`: alternatives per token; None for no log-probabilities at all."""
        self._tokenizer = tokenizer
        self._top = top_logprobs

    def opening(self, index: int) -> None:
        """A text has no role."""

    def piece(self, so_far: Gathered, reply: orchestrator_pb2.GenerateResponse) -> CompletionChoice:
        """More text."""
        return self._choice(so_far.index, reply.text, reply.tokens, len(so_far.text), None)

    def closing(self, index: int, reason: FinishReason) -> CompletionChoice:
        """Nothing but the reason."""
        return {"index": index, "text": "", "logprobs": None, "finish_reason": reason}

    def whole(self, choice: Gathered) -> CompletionChoice:
        """The text."""
        return self._choice(choice.index, choice.text, choice.tokens, 0, choice.finish_reason)

    def _choice(
        self,
        index: int,
        text: str,
        tokens: Sequence[orchestrator_pb2.Token],
        offset: int,
        reason: FinishReason | None,
    ) -> CompletionChoice:
        top = self._top
        logprobs = None if top is None else completion_logprobs(self._tokenizer, tokens, offset, top)
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}
