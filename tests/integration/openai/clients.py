"""The three OpenAI clients, unmodified, behind one face: each asks for HI and says what it made of the answer."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Protocol

import litellm
from langchain_openai import ChatOpenAI
from openai import AsyncOpenAI

from tests.integration.openai.conftest import HI

KEY = "key"


@dataclass
class Heard:
    """What a client understood."""

    text: str = ""
    finish_reason: str | None = None
    usage: tuple[int, int, int] | None = None  # prompt, completion, total
    logprobs: list[tuple[str, float]] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)


class Client(Protocol):
    """One client library."""

    async def whole(self, url: str, **options: Any) -> Heard:
        """The answer at once."""

    def stream(self, url: str, heard: Heard, **options: Any) -> AsyncIterator[None]:
        """The answer piece by piece, added to `heard`; usage is asked for."""


class OpenAI:
    """openai, and what imitates its objects."""

    async def create(self, url: str, **options: Any) -> Any:
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client:
            return await client.chat.completions.create(model="bytes", messages=HI, **options)  # type: ignore[arg-type]

    async def whole(self, url: str, **options: Any) -> Heard:
        answer = await self.create(url, **options)
        choice = answer.choices[0]
        return Heard(choice.message.content, choice.finish_reason, _usage(answer.usage), _logprobs(choice.logprobs))

    async def stream(self, url: str, heard: Heard, **options: Any) -> AsyncIterator[None]:
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client:
            chunks = await client.chat.completions.create(
                model="bytes", messages=HI, stream=True, stream_options={"include_usage": True}, **options,
            )  # type: ignore[call-overload]  # fmt: skip
            async with chunks:
                async for chunk in chunks:
                    _hear(heard, chunk)
                    yield


class LiteLLM(OpenAI):
    """litellm with its `openai/` provider."""

    async def create(self, url: str, **options: Any) -> Any:
        return await litellm.acompletion(
            model="openai/bytes", messages=HI, api_base=f"{url}/v1", api_key=KEY, max_retries=0, **options
        )

    async def stream(self, url: str, heard: Heard, **options: Any) -> AsyncIterator[None]:
        chunks = await self.create(url, stream=True, stream_options={"include_usage": True}, **options)
        try:
            async for chunk in chunks:
                _hear(heard, chunk)
                yield
        finally:
            await chunks.aclose()


class LangChain:
    """langchain-openai."""

    def _model(self, url: str, options: dict[str, Any]) -> ChatOpenAI:
        return ChatOpenAI(base_url=f"{url}/v1", api_key=KEY, model="bytes", max_retries=0, stream_usage=True, **options)  # type: ignore[arg-type]

    async def whole(self, url: str, **options: Any) -> Heard:
        message = await self._model(url, options).ainvoke("hi")
        return _langchain(Heard(), message)

    async def stream(self, url: str, heard: Heard, **options: Any) -> AsyncIterator[None]:
        async with aclosing(self._model(url, options).astream("hi")) as chunks:  # type: ignore[type-var]
            async for chunk in chunks:
                _langchain(heard, chunk)
                yield


CLIENTS: dict[str, Client] = {"openai": OpenAI(), "litellm": LiteLLM(), "langchain": LangChain()}


async def hear(client: Client, url: str, *, stream: bool, **options: Any) -> Heard:
    """The whole answer, either way."""
    if not stream:
        return await client.whole(url, **options)
    heard = Heard()
    async for _ in client.stream(url, heard, **options):
        pass
    return heard


def _hear(heard: Heard, chunk: Any) -> None:
    usage = getattr(chunk, "usage", None)
    if usage:
        heard.usage = _usage(usage)
    for choice in chunk.choices:
        heard.pieces.append(choice.delta.content or "")
        heard.text += choice.delta.content or ""
        heard.finish_reason = choice.finish_reason or heard.finish_reason
        heard.logprobs += _logprobs(getattr(choice, "logprobs", None))


def _usage(usage: Any) -> tuple[int, int, int]:
    return usage.prompt_tokens, usage.completion_tokens, usage.total_tokens


def _logprobs(logprobs: Any) -> list[tuple[str, float]]:
    entries = logprobs.content if hasattr(logprobs, "content") else (logprobs or {}).get("content")
    return [(e["token"], e["logprob"]) if isinstance(e, dict) else (e.token, e.logprob) for e in entries or []]


def _langchain(heard: Heard, message: Any) -> Heard:
    heard.pieces.append(message.content)
    heard.text += message.content
    heard.finish_reason = message.response_metadata.get("finish_reason") or heard.finish_reason
    heard.logprobs += _logprobs(message.response_metadata.get("logprobs"))
    if message.usage_metadata:
        usage = message.usage_metadata
        heard.usage = (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"])
    return heard
