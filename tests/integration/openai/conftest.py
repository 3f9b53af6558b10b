"""The fixtures of the orchestrator's tests, and an orchestrator with an HTTP listener."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.fakes import FakeDraft, Target
from tests.integration.orchestrator.conftest import model, start_draft, target  # noqa: F401
from tests.orchestrating import System, system, until
from tests.scripts import NextToken, saying

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it fetches a price list otherwise

CHAT = "user: hi\n> "  # what the test model's template makes of HI
HI = [{"role": "user", "content": "hi"}]


def answering(text: str, *, ends: bool = True) -> NextToken:
    """A target that answers HI with `text`, byte by byte."""
    return saying(CHAT, [*text.encode(), *([256] if ends else [])])


class Http:
    """A running orchestrator and a plain client for it."""

    def __init__(self, running: System, client: httpx.AsyncClient) -> None:
        self.system = running
        self.client = client

    @property
    def url(self) -> str:
        return str(self.client.base_url)

    async def chat(self, **fields: Any) -> httpx.Response:
        """The answer to HI."""
        return await self.client.post("/v1/chat/completions", json={"messages": HI, "temperature": 0, **fields})

    async def complete(self, prompt: Any, **fields: Any) -> httpx.Response:
        """The continuation of a prompt."""
        return await self.client.post("/v1/completions", json={"prompt": prompt, "temperature": 0, **fields})


@asynccontextmanager
async def http(model: Path, target: Target, draft: FakeDraft | None = None, **settings: Any) -> AsyncIterator[Http]:  # noqa: F811
    """An orchestrator with an HTTP listener on a free port."""
    async with system(model, target, draft, http_listen="127.0.0.1:0", **settings) as running:
        listener = running.service.http
        assert listener is not None
        await until(lambda: not listener.address.endswith(":0"))
        async with httpx.AsyncClient(base_url=f"http://{listener.address}", timeout=10) as client:
            yield Http(running, client)


@asynccontextmanager
async def serving(next_token: NextToken) -> AsyncIterator[Target]:
    """A scripted target that is up."""
    scripted = Target(next_token)
    await scripted.start()
    try:
        yield scripted
        assert scripted.violations == []
    finally:
        await scripted.stop()
