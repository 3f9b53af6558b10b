"""The JSON bodies of requests. A null is the same as leaving the field out; fields that are not here are ignored."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from shardflow.speculation import MODES, PATTERN

MAX_CHOICES = 8


def _check_unicode(text: str) -> str:
    """JSON can write halves of surrogate pairs, which no text has."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise PydanticCustomError("half_surrogate", "half of a surrogate pair") from None
    return text


Text = Annotated[str, AfterValidator(_check_unicode)]
Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
TokenId = Annotated[int, Field(ge=0, le=2**31 - 1)]
IdText = Annotated[str, Field(pattern="^[0-9]{1,9}$")]
Bias = Annotated[float, Field(ge=-100, le=100)]


class _Body(BaseModel):
    # Strict: "0.7" is a mistake of the client's, not a number.
    model_config = ConfigDict(strict=True, extra="ignore")


class StreamOptions(_Body):
    """What a stream carries beside the text."""

    include_usage: bool | None = None


class Extras(_Body):
    """What only ShardFlow offers. Being there, even empty, asks for the statistics of the request."""

    model_config = ConfigDict(strict=True, extra="forbid")

    speculation: str | None = Field(
        None,
        description=f"{MODES}, with K and N from 1 to 64.",
        json_schema_extra={"pattern": PATTERN},  # the core reads it, and says better what is wrong
    )
    rounds: bool | None = Field(None, description="Whether to report the times and tokens of each round.")


class Sampled(_Body):
    """What both kinds of request share."""

    model: Text | None = None
    temperature: float | None = Field(None, ge=0, le=2, description="0 is greedy; 1 if left out.")
    top_p: float | None = Field(None, ge=0, le=1)
    top_k: int | None = Field(None, ge=-1, le=2**31 - 1)
    min_p: float | None = Field(None, ge=0, le=1)
    repetition_penalty: float | None = Field(None, ge=0, le=10)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    logit_bias: dict[IdText, Bias] | None = Field(None, description="What is added to the logits of single token ids.")
    seed: Annotated[int, Field(ge=-(2**63), le=2**64 - 1)] | None = None
    stop: Text | list[Text] | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    max_tokens: Count | None = None
    ignore_eos: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    response_format: dict[str, Any] | None = None
    shardflow: Extras | None = None


class Part(_Body):
    """One part of a message; only `text` (and a model's own `refusal`) can be read."""

    type: str
    text: Text | None = None
    refusal: Text | None = None


class Message(_Body):
    """One message of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Text | list[Part] | None = None
    tool_calls: list[Any] | None = None
    function_call: dict[str, Any] | None = None


class ChatRequest(Sampled):
    """Body of `POST /v1/chat/completions`."""

    messages: list[Message]
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    tool_choice: str | dict[str, Any] | None = None
    function_call: str | dict[str, Any] | None = None
    modalities: list[str] | None = None


class CompletionRequest(Sampled):
    """Body of `POST /v1/completions`."""

    prompt: Text | list[Text] | list[TokenId] | list[list[TokenId]]
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    best_of: int | None = None
    echo: bool | None = None
    suffix: str | None = None
