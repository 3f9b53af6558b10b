"""Log-probabilities in both of OpenAI's shapes."""

from collections.abc import Iterable

from services.orchestrator.openai.answers import ChatLogprobs, CompletionLogprobs, Logprob
from shardflow.tokenizer import Tokenizer
from shardflow.v1 import orchestrator_pb2

_LEAST = -9999.0  # OpenAI's own stand-in for minus infinity, which JSON can not write


def chat_logprobs(tokenizer: Tokenizer, tokens: Iterable[orchestrator_pb2.Token]) -> ChatLogprobs:
    """One entry per token."""
    content = [
        {
            **_logprob(tokenizer, token.id, token.logprob),
            "top_logprobs": [_logprob(tokenizer, other.token_id, other.logprob) for other in token.top],
        }
        for token in tokens
    ]
    return {"content": content, "refusal": None}  # type: ignore[typeddict-item]


def completion_logprobs(
    tokenizer: Tokenizer, tokens: Iterable[orchestrator_pb2.Token], offset: int, top: int
) -> CompletionLogprobs:
    """One entry per token in each list; `offset` is the length of the text before them, `top` the alternatives."""
    shape = CompletionLogprobs(tokens=[], token_logprobs=[], top_logprobs=[] if top else None, text_offset=[])
    for token in tokens:
        shape["tokens"].append(tokenizer.token_text(token.id))
        shape["token_logprobs"].append(max(token.logprob, _LEAST))
        shape["text_offset"].append(offset)
        offset += len(token.text)
        if shape["top_logprobs"] is not None:
            shape["top_logprobs"].append(
                {tokenizer.token_text(other.token_id): max(other.logprob, _LEAST) for other in token.top}
            )
    return shape


def _logprob(tokenizer: Tokenizer, token_id: int, logprob: float) -> Logprob:
    raw = tokenizer.token_bytes(token_id)
    return {
        "token": tokenizer.token_text(token_id),
        "logprob": max(logprob, _LEAST),
        "bytes": None if raw is None else list(raw),
    }
