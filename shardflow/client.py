"""The gRPC client: asks an orchestrator for text, streams it, cancels, and turns status codes into typed errors."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypedDict, Unpack, cast

import grpc.aio

from shardflow.errors import InvalidArgument, ShardflowError, Unavailable, from_rpc_code
from shardflow.speculation import Mode
from shardflow.transport import open_channel
from shardflow.v1 import orchestrator_pb2 as pb
from shardflow.v1 import orchestrator_pb2_grpc as rpc
from shardflow.v1 import sampling_pb2

Prompt = str | Sequence[int] | Sequence[Mapping[str, str]]


class Options(TypedDict, total=False):
    """What a generation can be told; the meaning and range of each is in `sampling.proto` and `orchestrator.proto`."""

    model: str
    max_tokens: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    logit_bias: Mapping[int, float]
    seed: int
    stop: Sequence[str]
    ignore_eos: bool
    logprobs: bool
    top_logprobs: int
    speculation: str
    """A mode, as `shardflow.speculation` reads it; not given: the deployment's default."""
    round_records: bool


@dataclass(frozen=True)
class Token:
    """One generated token."""

    id: int
    text: str
    """What it released; empty while a character or a possible stop text is incomplete."""
    source: str
    """`target`, `accepted`, `corrected` or `bonus`."""
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()
    """[alternatives] id and natural-log probability, best first."""


@dataclass(frozen=True)
class Usage:
    """Tokens and rounds of one request."""

    prompt_tokens: int
    completion_tokens: int
    rounds: int
    drafted_tokens: int
    accepted_tokens: int


@dataclass(frozen=True)
class Chunk:
    """What was committed since the chunk before; only the last one has a finish reason, usage and the seed."""

    request_id: str
    tokens: tuple[Token, ...]
    text: str
    rounds: tuple[pb.RoundRecord, ...] = ()
    finish_reason: str | None = None
    """`stop` or `length`."""
    usage: Usage | None = None
    seed: int | None = None


@dataclass(frozen=True)
class Completion:
    """A whole answer."""

    request_id: str
    text: str
    tokens: tuple[Token, ...]
    rounds: tuple[pb.RoundRecord, ...]
    finish_reason: str
    usage: Usage
    seed: int


class ShardflowClient:
    """A connection to one orchestrator; use it as an async context manager, for any number of calls at once."""

    def __init__(self, address: str) -> None:
        """`address` is host:port; nothing is dialled before the first call."""
        self._address = address
        self._channel = open_channel(address, relay=None)
        self._stub = rpc.OrchestratorServiceStub(self._channel)

    async def __aenter__(self) -> "ShardflowClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Hangs up; calls that still run are cancelled."""
        await self._channel.close()

    async def generate(
        self, prompt: Prompt, *, timeout: float | None = None, **options: Unpack[Options]
    ) -> AsyncGenerator[Chunk, None]:
        """Streams the continuation of a text, of token ids, or of a conversation (`role` and `content` each).

        Closing the generator cancels the request on every machine. Raises the error of `shardflow.errors` that the
        status code stands for, and TimeoutError when `timeout` (seconds, for the whole answer) has passed.
        """
        call = self._stub.Generate(to_request(prompt, **options), timeout=timeout)
        try:
            async for message in call:
                yield _chunk(message)
        except grpc.aio.AioRpcError as error:
            raise self._typed(error) from error
        finally:
            call.cancel()

    async def complete(self, prompt: Prompt, *, timeout: float | None = None, **options: Unpack[Options]) -> Completion:
        """The same as `generate`, gathered to the whole answer."""
        return gather([chunk async for chunk in self.generate(prompt, timeout=timeout, **options)])

    async def status(self, *, timeout: float | None = 10.0) -> pb.GetStatusResponse:
        """What is served, by which shards, over which links; errors as in `generate`."""
        try:
            response: pb.GetStatusResponse = await self._stub.GetStatus(pb.GetStatusRequest(), timeout=timeout)
        except grpc.aio.AioRpcError as error:
            raise self._typed(error) from error
        return response

    def _typed(self, error: grpc.aio.AioRpcError) -> Exception:
        details = error.details() or error.code().name
        if "failed to connect to all addresses" in details:
            return Unavailable(
                f"nothing answers at {self._address}; `shardflow up` starts a deployment here ({details})"
            )
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return TimeoutError(f"{self._address}: {details}")
        return from_rpc_code(error.code().value[0], f"{self._address}: {details}")


def gather(chunks: Sequence[Chunk]) -> Completion:
    """The whole answer from its chunks; ShardflowError if the last one is missing."""
    last = chunks[-1] if chunks else None
    if last is None or last.finish_reason is None or last.usage is None or last.seed is None:
        raise ShardflowError("the stream ended without a finish reason")
    return Completion(
        request_id=last.request_id,
        text="".join(chunk.text for chunk in chunks),
        tokens=tuple(token for chunk in chunks for token in chunk.tokens),
        rounds=tuple(record for chunk in chunks for record in chunk.rounds),
        finish_reason=last.finish_reason,
        usage=last.usage,
        seed=last.seed,
    )


def to_request(prompt: Prompt, **options: Unpack[Options]) -> pb.GenerateRequest:
    """The request that asks for `prompt`; InvalidArgument for what the message can not carry, naming the field."""
    request = pb.GenerateRequest()
    for name, value in options.items():
        try:
            request.MergeFrom(_one_option(name, value))
        except (TypeError, ValueError, AttributeError) as error:
            raise InvalidArgument(f"{name}: {error}") from error
    try:
        _set_prompt(request, prompt)
    except (TypeError, ValueError, KeyError) as error:
        raise InvalidArgument(f"prompt: {error!r}") from error
    return request


_SAMPLING_FIELDS = frozenset(field.name for field in sampling_pb2.SamplingParams.DESCRIPTOR.fields)


def _one_option(name: str, value: Any) -> pb.GenerateRequest:
    if name == "speculation":
        return pb.GenerateRequest(speculation=Mode.parse(value).message())
    if name in _SAMPLING_FIELDS:
        return pb.GenerateRequest(sampling=sampling_pb2.SamplingParams(**{name: value}))
    return pb.GenerateRequest(**{name: value})


def _set_prompt(request: pb.GenerateRequest, prompt: Prompt) -> None:
    if isinstance(prompt, str):
        request.text = prompt
    elif not prompt:
        raise InvalidArgument("prompt: empty")
    elif isinstance(prompt[0], Mapping):
        for message in cast(Sequence[Mapping[str, str]], prompt):
            request.chat.messages.add(role=message["role"], content=message["content"])
    else:
        request.token_ids.ids.extend(cast(Sequence[int], prompt))


def _chunk(message: pb.GenerateResponse) -> Chunk:
    last = message.finish_reason != pb.FINISH_REASON_UNSPECIFIED
    return Chunk(
        request_id=message.request_id,
        tokens=tuple(_token(token) for token in message.tokens),
        text=message.text,
        rounds=tuple(message.rounds),
        finish_reason=_short(pb.FinishReason.Name(message.finish_reason), "FINISH_REASON_") if last else None,
        usage=_usage(message.usage) if last else None,
        seed=message.seed if last else None,
    )


def _token(token: pb.Token) -> Token:
    return Token(
        id=token.id,
        text=token.text,
        source=_short(pb.TokenSource.Name(token.source), "TOKEN_SOURCE_"),
        logprob=token.logprob if token.HasField("logprob") else None,
        top=tuple((entry.token_id, entry.logprob) for entry in token.top),
    )


def _usage(usage: pb.Usage) -> Usage:
    return Usage(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        rounds=usage.rounds,
        drafted_tokens=usage.drafted_tokens,
        accepted_tokens=usage.accepted_tokens,
    )


def _short(name: str, prefix: str) -> str:
    return name.removeprefix(prefix).lower()
