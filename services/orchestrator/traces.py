"""What the spans of a request tell: how it was asked and ended, and where the time of each round went."""

from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from opentelemetry.trace import Span, SpanKind

from shardflow import tracing
from shardflow.v1 import orchestrator_pb2

if TYPE_CHECKING:
    from services.orchestrator.generation import Round

_UNSET_IF_ZERO = ("top_k", "top_p", "frequency_penalty", "presence_penalty")


@contextmanager
def request(message: orchestrator_pb2.GenerateRequest, request_id: str, model: str) -> Iterator[Span]:
    """The span of one request to `model`, with the attributes of OpenTelemetry's conventions for generative models."""
    with tracing.span("request", SpanKind.SERVER) as span:
        if span.is_recording():
            span.set_attributes(_asked(message) | {"gen_ai.request.model": model, "gen_ai.response.id": request_id})
        yield span


def answered(span: Span, last: orchestrator_pb2.GenerateResponse) -> None:
    """Notes how a request ended that was answered to the end."""
    if not span.is_recording():
        return
    usage = last.usage
    finish = orchestrator_pb2.FinishReason.Name(last.finish_reason).removeprefix("FINISH_REASON_").lower()
    span.set_attribute("gen_ai.response.finish_reasons", [finish])
    span.set_attribute("gen_ai.usage.input_tokens", usage.prompt_tokens)
    span.set_attribute("gen_ai.usage.output_tokens", usage.completion_tokens)
    span.set_attribute("shardflow.rounds", usage.rounds)
    span.set_attribute("shardflow.drafted_tokens", usage.drafted_tokens)
    span.set_attribute("shardflow.accepted_tokens", usage.accepted_tokens)


async def run_round(number: int, began: float, running: Awaitable["Round"]) -> "Round":
    """Awaits a round in a span of its own; `began`: the commit of the one before, in seconds on the monotonic clock."""
    with tracing.span("round", SpanKind.CLIENT, began=began, attributes={"shardflow.round": number}) as span:
        done = await running
        if span.is_recording():
            timing = done.timing
            span.set_attribute("shardflow.prefill", done.prefill)
            span.set_attribute("shardflow.tokens", len(done.tokens))
            span.set_attribute("shardflow.drafted_tokens", len(done.tree.tokens))
            span.set_attribute("shardflow.accepted_tokens", len(done.accepted))
            span.set_attribute("shardflow.draft_ms", timing.draft_ms)
            span.set_attribute("shardflow.network_ms", timing.network_ms)
            span.set_attribute("shardflow.orchestration_ms", timing.orchestrator_ms)
        return done


def _asked(message: orchestrator_pb2.GenerateRequest) -> dict[str, str | int | float | list[str]]:
    """What the client chose; never what it wrote."""
    asked: dict[str, str | int | float | list[str]] = {
        "gen_ai.operation.name": "chat" if message.HasField("chat") else "text_completion",
        "gen_ai.provider.name": "shardflow",
        "gen_ai.request.temperature": message.sampling.temperature,
    }
    if message.HasField("max_tokens"):
        asked["gen_ai.request.max_tokens"] = message.max_tokens
    for name in _UNSET_IF_ZERO:
        if value := getattr(message.sampling, name):
            asked[f"gen_ai.request.{name}"] = value
    return asked
