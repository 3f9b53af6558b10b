"""From JSON bodies to the generations that they ask for; what is not offered is refused by name."""

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from services.orchestrator.openai.errors import Refusal, not_offered, wrong
from services.orchestrator.openai.requests import (
    MAX_CHOICES,
    ChatRequest,
    CompletionRequest,
    Extras,
    Message,
    Part,
    Sampled,
)
from shardflow.speculation import Mode
from shardflow.v1 import orchestrator_pb2, sampling_pb2

_COMPLETION_TOKENS = 16  # what /v1/completions gives who does not say
_LEAST_TOP_P = 1e-6  # leaves the most probable token; 0 on our wire means unset
_ROLES = {"developer": "system"}


@dataclass(frozen=True)
class Asked:
    """One HTTP request, as the generations to run."""

    generations: Sequence[orchestrator_pb2.GenerateRequest]  # [prompts * n], one choice each
    n: int
    seed: int
    stream: bool
    include_usage: bool
    extras: Extras | None


def read_chat(body: ChatRequest) -> Asked:
    """The generations of a chat request; Refusal if it asks for what is not offered."""
    if isinstance(body.tool_choice, dict) or body.tool_choice == "required":
        raise not_offered("tool_choice", "tools are not offered, so none can be required")
    if isinstance(body.function_call, dict):
        raise not_offered("function_call", "functions are not offered, so none can be required")
    if set(body.modalities or ["text"]) != {"text"}:
        raise not_offered("modalities", "only text is offered")
    messages = [_message(index, message) for index, message in enumerate(body.messages)]
    prompt = orchestrator_pb2.GenerateRequest(
        chat=orchestrator_pb2.Chat(messages=messages), logprobs=bool(body.logprobs), top_logprobs=body.top_logprobs or 0
    )
    return _read(body, [prompt], body.max_completion_tokens or body.max_tokens)


def read_completion(body: CompletionRequest) -> Asked:
    """The generations of a text completion request; Refusal if it asks for what is not offered."""
    if body.echo:
        raise not_offered("echo", "only the continuation is returned")
    if body.suffix:
        raise not_offered("suffix", "text can not be inserted, only continued")
    if (body.best_of or 1) > (body.n or 1):
        raise not_offered("best_of", "answers are not ranked; ask for them with n")
    prompts = _prompts(body)
    for prompt in prompts:
        prompt.logprobs, prompt.top_logprobs = body.logprobs is not None, body.logprobs or 0
    return _read(body, prompts, body.max_tokens or _COMPLETION_TOKENS)


def _read(body: Sampled, prompts: Sequence[orchestrator_pb2.GenerateRequest], max_tokens: int | None) -> Asked:
    if (body.response_format or {}).get("type", "text") != "text":
        raise not_offered("response_format", "only text is offered")
    n = body.n or 1
    if len(prompts) * n > MAX_CHOICES:
        raise wrong("n", f"{len(prompts)} prompts of {n} answers each where {MAX_CHOICES} in all were expected at most")
    # 53 bits: every client can read the number back, even one that knows no integers.
    seed = secrets.randbits(53) if body.seed is None else body.seed
    common = orchestrator_pb2.GenerateRequest(
        model=body.model or "",
        sampling=_sampling(body),
        max_tokens=max_tokens,
        stop=[body.stop] if isinstance(body.stop, str) else body.stop,
        ignore_eos=bool(body.ignore_eos),
        speculation=_speculation(body.shardflow),
        round_records=bool(body.shardflow and body.shardflow.rounds),
    )
    return Asked(
        generations=[_generation(prompt, common, _seed(seed, index)) for prompt in prompts for index in range(n)],
        n=n,
        seed=seed,
        stream=bool(body.stream),
        include_usage=bool(body.stream_options and body.stream_options.include_usage),
        extras=body.shardflow,
    )


def _generation(
    prompt: orchestrator_pb2.GenerateRequest, common: orchestrator_pb2.GenerateRequest, seed: int
) -> orchestrator_pb2.GenerateRequest:
    request = orchestrator_pb2.GenerateRequest()
    request.CopyFrom(prompt)
    request.MergeFrom(common)
    request.sampling.seed = seed
    return request


def _seed(seed: int, index: int) -> int:
    """The seed of answer `index`: answer 0 is the one that n = 1 gives."""
    if index == 0:
        return seed % 2**64
    return int.from_bytes(hashlib.sha256(f"{seed}/{index}".encode()).digest()[:8], "little")


def _sampling(body: Sampled) -> sampling_pb2.SamplingParams:
    return sampling_pb2.SamplingParams(
        temperature=1.0 if body.temperature is None else body.temperature,
        top_p=1.0 if body.top_p is None else body.top_p or _LEAST_TOP_P,
        top_k=max(0, body.top_k or 0),  # -1 is a usual way to say: all
        min_p=body.min_p or 0.0,
        repetition_penalty=body.repetition_penalty or 0.0,
        presence_penalty=body.presence_penalty or 0.0,
        frequency_penalty=body.frequency_penalty or 0.0,
        logit_bias={int(key): bias for key, bias in (body.logit_bias or {}).items()},
    )


def _speculation(extras: Extras | None) -> orchestrator_pb2.Speculation:
    if extras is None or extras.speculation is None:
        return orchestrator_pb2.Speculation()
    try:
        return Mode.parse(extras.speculation).message()
    except ValueError as error:
        raise wrong("shardflow.speculation", str(error)) from error


def _message(index: int, message: Message) -> orchestrator_pb2.ChatMessage:
    place = f"messages[{index}]"
    if message.role in ("tool", "function") or message.tool_calls or message.function_call:
        raise not_offered(place, "tools are not offered, so there are no calls and no results of any")
    return orchestrator_pb2.ChatMessage(
        role=_ROLES.get(message.role, message.role), content=_content(f"{place}.content", message)
    )


def _content(place: str, message: Message) -> str:
    if isinstance(message.content, list):
        return "\n".join(_part(f"{place}[{index}]", part) for index, part in enumerate(message.content))
    if message.content is None and message.role != "assistant":
        raise wrong(place, "null where a text was expected")
    return message.content or ""


def _part(place: str, part: Part) -> str:
    text = {"text": part.text, "refusal": part.refusal}.get(part.type)
    if part.type not in ("text", "refusal"):
        raise not_offered(f"{place}.type", f"{part.type!r} where `text` was expected; other kinds are not offered")
    if text is None:
        raise wrong(f"{place}.{part.type}", "null where a text was expected")
    return text


def _prompts(body: CompletionRequest) -> list[orchestrator_pb2.GenerateRequest]:
    prompt = body.prompt
    if isinstance(prompt, str):
        return [orchestrator_pb2.GenerateRequest(text=prompt)]
    if not prompt:
        raise Refusal(400, "prompt: an empty list", param="prompt")
    texts = [each for each in prompt if isinstance(each, str)]
    if texts:
        return [orchestrator_pb2.GenerateRequest(text=text) for text in texts]
    rows = [each for each in prompt if isinstance(each, list)] or [[each for each in prompt if isinstance(each, int)]]
    return [orchestrator_pb2.GenerateRequest(token_ids=orchestrator_pb2.TokenIds(ids=row)) for row in rows]
