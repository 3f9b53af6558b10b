"""The description of the API, and requests made up from it: no request, however odd, may end in a 5xx."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck

from tests.fakes import Target
from tests.integration.openai.conftest import http, serving
from tests.orchestrating import until
from tests.scripts import EOS

SETTINGS = hypothesis.settings(
    max_examples=30, deadline=None, database=None, derandomize=True,
    phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate], suppress_health_check=list(HealthCheck),
)  # fmt: skip


def brief(text: Sequence[int]) -> int:
    """A target that soon ends every text."""
    return EOS if len(text) % 4 == 0 else 97


def statuses(operation: Any, mode: schemathesis.GenerationMode) -> set[int]:
    """What an operation answers to requests that fit its description, or that do not."""
    found = set()

    @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
    @SETTINGS
    def send(case: Any) -> None:
        if isinstance(case.body, dict):
            case.body.pop("model", None)  # any but the one that is served is a 404, and nothing behind that is tried
        response = case.call(timeout=5)
        found.add(response.status_code)
        assert response.status_code < 500, (case.as_curl_command(), response.text)

    send()
    return found


def send_what_is_made_up(url: str) -> dict[str, set[int]]:
    """Statuses of the operations that take anything, by path."""
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    operations = [result.ok() for result in schema.get_all_operations()]
    return {
        operation.path: set.union(*(statuses(operation, mode) for mode in schemathesis.GenerationMode))
        for operation in operations
        if operation.path.startswith("/v1/") and operation.path != "/v1/models"
    }


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
async def test_made_up_requests(model: Path) -> None:
    async with serving(brief) as target, http(model, target) as api:
        found = await asyncio.to_thread(send_what_is_made_up, api.url)
        await until(lambda: not target.last.sessions and not target.shards[0].sessions)
        assert (await api.chat(max_tokens=2)).status_code == 200
    assert found["/v1/chat/completions"] >= {200, 400}
    assert found["/v1/completions"] >= {200, 400}
    assert found["/v1/models/{name}"] >= {404}


async def test_what_is_described(model: Path, target: Target) -> None:
    async with http(model, target) as api:
        description = (await api.client.get("/openapi.json")).json()
    assert sorted(description["paths"]) == [
        "/", "/health", "/metrics", "/v1/chat/completions", "/v1/completions", "/v1/models", "/v1/models/{name}",
    ]  # fmt: skip
    answers = description["paths"]["/v1/chat/completions"]["post"]["responses"]
    assert sorted(answers) == ["200", "4XX", "5XX"]
    assert sorted(answers["200"]["content"]) == ["application/json", "text/event-stream"]
