"""openai, litellm and langchain-openai, unmodified, against a real listener: each must understand what we say."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.fake_shards import Fault
from tests.fakes import Target
from tests.integration.openai.clients import CLIENTS, KEY, Client, Heard, hear
from tests.integration.openai.conftest import HI, answering, http, serving
from tests.orchestrating import until

# What the libraries' own code warns of is not ours to mend.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

TEXT = "Ein Fluß, 河川 🌊\u2028e\u0301nd"


@pytest.fixture(params=CLIENTS.values(), ids=CLIENTS.keys())
def client(request: pytest.FixtureRequest) -> Client:
    found: Client = request.param
    return found


@pytest.fixture(params=[False, True], ids=["whole", "stream"])
def stream(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
async def answered() -> AsyncIterator[Target]:
    async with serving(answering(TEXT)) as target:
        yield target


async def test_text_finish_and_usage(model: Path, answered: Target, client: Client, stream: bool) -> None:
    async with http(model, answered) as api:
        heard = await hear(client, api.url, stream=stream, temperature=0)
    tokens = len(TEXT.encode()) + 1
    assert (heard.text, heard.finish_reason) == (TEXT, "stop")
    assert heard.usage == (11, tokens, 11 + tokens)
    assert "\ufffd" not in "".join(heard.pieces)


async def test_limit(model: Path, answered: Target, client: Client, stream: bool) -> None:
    async with http(model, answered) as api:
        heard = await hear(client, api.url, stream=stream, max_tokens=3)
    assert (heard.text, heard.finish_reason, heard.usage) == ("Ein", "length", (11, 3, 14))


async def test_stop(model: Path, answered: Target, client: Client, stream: bool) -> None:
    async with http(model, answered) as api:
        heard = await hear(client, api.url, stream=stream, stop=["川 🌊", "never"])
    assert (heard.text, heard.finish_reason) == ("Ein Fluß, 河", "stop")


async def test_log_probabilities(model: Path, answered: Target, client: Client, stream: bool) -> None:
    async with http(model, answered) as api:
        heard = await hear(client, api.url, stream=stream, max_tokens=3, logprobs=True, top_logprobs=2)
    assert heard.logprobs == [("E", -0.5), ("i", -0.5), ("n", -0.5)]


async def test_errors_keep_their_message(model: Path, target: Target, client: Client, stream: bool) -> None:
    async with http(model, target) as api:
        with pytest.raises(openai.BadRequestError) as raised:
            await hear(client, api.url, stream=stream, temperature=3)
    assert "temperature: Input should be less than or equal to 2" in str(raised.value)


async def test_a_failure_in_mid_stream_is_raised(model: Path, answered: Target, client: Client) -> None:
    answered.last.faults[4] = Fault.NON_FINITE
    heard = Heard()
    async with http(model, answered) as api:
        with pytest.raises(openai.APIError) as raised:
            async for _ in client.stream(api.url, heard):
                pass
    assert heard.text == "Ein "
    assert "says INTERNAL" in str(raised.value)


async def test_leaving_a_stream_frees_the_session(model: Path, target: Target, client: Client) -> None:
    async with http(model, target) as api:
        stream = client.stream(api.url, Heard(), max_tokens=400)
        for _ in range(4):
            await anext(stream)
        assert len(target.last.sessions) == 1
        await stream.aclose()  # type: ignore[attr-defined]
        await until(lambda: not target.last.sessions and not target.shards[0].sessions)
        assert api.system.sample("shardflow_requests_total", outcome="cancelled") == 1


async def test_cancelling_a_call_frees_the_session(model: Path, target: Target, client: Client) -> None:
    target.last.faults[2] = Fault.LOSE
    async with http(model, target, round_timeout_s=10) as api:
        call = asyncio.create_task(client.whole(api.url, max_tokens=400))
        await until(lambda: len(target.last.slices) == 3)
        call.cancel()
        await until(lambda: not target.last.sessions and not target.shards[0].sessions)


class TestOpenAI:
    """What only this client has."""

    @pytest.fixture
    async def client(self) -> AsyncIterator[Any]:
        yield lambda url, max_retries=0: openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=max_retries)

    async def test_models(self, model: Path, target: Target, client: Any) -> None:
        async with http(model, target) as api, client(api.url) as ours:
            assert [each.id async for each in ours.models.list()] == ["bytes"]
            assert (await ours.models.retrieve("bytes")).owned_by == "shardflow"
            with pytest.raises(openai.NotFoundError) as raised:
                await ours.models.retrieve("gpt-4")
        assert raised.value.code == "model_not_found"

    async def test_text_completions(self, model: Path, target: Target, client: Any) -> None:
        async with http(model, target) as api, client(api.url) as ours:
            whole = await ours.completions.create(model="bytes", prompt="hello", logprobs=1)
            chunks = await ours.completions.create(model="bytes", prompt="hello", stream=True)
            text = "".join([chunk.choices[0].text async for chunk in chunks])
        assert whole.choices[0].text == text
        assert len(text) == len(whole.choices[0].logprobs.tokens) == whole.usage.completion_tokens == 16

    async def test_keys(self, model: Path, target: Target, client: Any) -> None:
        async with http(model, target, http_api_keys="other") as api, client(api.url) as ours:
            with pytest.raises(openai.AuthenticationError) as raised:
                await ours.models.list()
        assert raised.value.code == "invalid_api_key"

    async def test_context_length(self, model: Path, target: Target, client: Any) -> None:
        async with http(model, target) as api, client(api.url) as ours:
            with pytest.raises(openai.BadRequestError) as raised:
                await ours.chat.completions.create(
                    model="bytes", messages=[{"role": "user", "content": "x" * 600}], stream=True
                )
        assert (raised.value.code, raised.value.param) == ("context_length_exceeded", "messages")

    async def test_a_server_that_is_not_ready_is_tried_again(self, model: Path, target: Target, client: Any) -> None:
        await target.servers[1].stop()
        async with http(model, target, ready=False) as api, client(api.url, max_retries=5) as ours:
            asking = asyncio.create_task(ours.chat.completions.create(model="bytes", messages=HI, max_tokens=2))
            await asyncio.sleep(0.2)
            await target.servers[1].start()
            assert (await asking).usage.completion_tokens == 2

    async def test_the_extras(self, model: Path, target: Target, client: Any) -> None:
        async with http(model, target) as api, client(api.url) as ours:
            answer = await ours.chat.completions.create(
                model="bytes", messages=HI, seed=3, max_tokens=2, extra_body={"shardflow": {"rounds": True}}
            )
        assert answer.shardflow["seed"] == 3
        assert [each["prefill"] for each in answer.shardflow["rounds"]] == [True, False]
        assert answer.system_fingerprint == "fp_083e358174"
