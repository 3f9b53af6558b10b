"""What plain HTTP clients meet: bodies, events, headers, statuses."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from services.orchestrator.openai import server
from tests.fake_shards import Fault
from tests.fakes import FakeDraft, Target
from tests.integration.openai.conftest import HI, answering, http, serving
from tests.integration.orchestrator.conftest import StartDraft
from tests.orchestrating import until
from tests.scripts import saying


def events(response: httpx.Response) -> list[Any]:
    """The data of a stream's events, parsed where it is JSON; comments as they are."""
    blocks = response.text.removesuffix("\n\n").split("\n\n")
    data = [block.removeprefix("data: ") for block in blocks]
    return [json.loads(each) if each.startswith("{") else each for each in data]


def error(response: httpx.Response) -> tuple[int, Any]:
    return response.status_code, response.json()["error"]


async def test_a_whole_chat_answer(model: Path) -> None:
    async with serving(answering("ok")) as target, http(model, target) as api:
        response = await api.chat(seed=7)
    body = response.json()
    assert response.headers["content-type"] == "application/json"
    assert body.pop("id") == "chatcmpl-" + response.headers["x-request-id"]
    assert body.pop("created") > 1_700_000_000
    assert body == {
        "object": "chat.completion",
        "model": "bytes",
        "system_fingerprint": "fp_083e358174",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "ok", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14},
    }


async def test_a_streamed_chat_answer(model: Path) -> None:
    async with serving(answering("ok")) as target, http(model, target) as api:
        response = await api.chat(stream=True, stream_options={"include_usage": True})
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert (response.headers["cache-control"], response.headers["x-accel-buffering"]) == ("no-cache", "no")
    *chunks, done = events(response)
    assert done == "[DONE]"
    heads = {(c["id"], c["object"], c["created"], c["model"], c["system_fingerprint"]) for c in chunks}
    assert len(heads) == 1
    assert heads.pop()[:2] == ("chatcmpl-" + response.headers["x-request-id"], "chat.completion.chunk")
    assert [chunk["choices"] for chunk in chunks] == [
        [{"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}],
        [{"index": 0, "delta": {"content": "o"}, "logprobs": None, "finish_reason": None}],
        [{"index": 0, "delta": {"content": "k"}, "logprobs": None, "finish_reason": None}],
        [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}],
        [],
    ]
    usage = {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14}
    assert [chunk["usage"] for chunk in chunks] == [None, None, None, None, usage]


async def test_usage_is_not_sent_unasked(model: Path) -> None:
    async with serving(answering("ok")) as target, http(model, target) as api:
        chunks = events(await api.chat(stream=True))[:-1]
    assert all(chunk["choices"] and "usage" not in chunk and "shardflow" not in chunk for chunk in chunks)


async def test_a_text_completion(model: Path, target: Target) -> None:
    async with http(model, target) as api:
        body = (await api.complete("hello", max_tokens=3)).json()
        chunks = events(await api.complete("hello", max_tokens=3, stream=True))
    text = body["choices"][0]["text"]
    assert (body["object"], body["id"][:5]) == ("text_completion", "cmpl-")
    assert body["choices"] == [{"index": 0, "text": text, "logprobs": None, "finish_reason": "length"}]
    assert [chunk["choices"][0] for chunk in chunks[:-1]] == [
        *({"index": 0, "text": letter, "logprobs": None, "finish_reason": None} for letter in text),
        {"index": 0, "text": "", "logprobs": None, "finish_reason": "length"},
    ]


async def test_token_ids_are_a_prompt_too(model: Path, target: Target) -> None:
    async with http(model, target) as api:
        bodies = [(await api.complete(prompt)).json() for prompt in ("hello", list(b"hello"), [list(b"hello")])]
    assert len({body["choices"][0]["text"] for body in bodies}) == 1


async def test_several_prompts_with_several_answers(model: Path, target: Target) -> None:
    async with http(model, target) as api:
        body = (await api.complete(["one", "two"], n=2, max_tokens=4)).json()
        alone = [(await api.complete(text, max_tokens=4)).json()["choices"][0]["text"] for text in ("one", "two")]
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2, 3]
    assert [choice["text"] for choice in body["choices"]] == [alone[0]] * 2 + [alone[1]] * 2
    assert body["usage"] == {"prompt_tokens": 6, "completion_tokens": 16, "total_tokens": 22}


async def test_the_streams_of_several_answers_mix_and_each_is_whole(model: Path) -> None:
    async with serving(answering("many words")) as target, http(model, target) as api:
        chunks = events(await api.chat(n=3, stream=True))[:-1]
    for index in range(3):
        choices = [chunk["choices"][0] for chunk in chunks if chunk["choices"][0]["index"] == index]
        assert "".join(choice["delta"].get("content", "") for choice in choices) == "many words"
        assert [choice["finish_reason"] for choice in choices[-2:]] == [None, "stop"]


async def test_seeds_reach_the_shards(model: Path, target: Target) -> None:
    async with http(model, target) as api:
        await api.chat(n=2, seed=9, max_tokens=1)
        await api.chat(seed=9, max_tokens=1)
    seeds = [piece.setup.sampling.seed for piece in target.last.slices]
    assert len(seeds) == 3
    assert (seeds[0] == seeds[2] == 9) and seeds[1] != 9


async def test_log_probabilities_of_a_chat(model: Path) -> None:
    async with serving(answering("é")) as target, http(model, target) as api:
        whole = (await api.chat(logprobs=True, top_logprobs=1)).json()["choices"][0]["logprobs"]
        chunks = events(await api.chat(logprobs=True, top_logprobs=1, stream=True))[:-1]
    expected = [
        {"token": text, "logprob": -0.5, "bytes": raw, "top_logprobs": [{"token": text, "logprob": -0.5, "bytes": raw}]}
        for text, raw in [("\\xc3", [0xC3]), ("\\xa9", [0xA9]), ("<eos>", None)]
    ]
    assert whole == {"content": expected, "refusal": None}
    pieces = [chunk["choices"][0] for chunk in chunks]
    assert [entry for each in pieces if each["logprobs"] for entry in each["logprobs"]["content"]] == expected
    assert [each["delta"].get("content") for each in pieces] == ["", "", "é", "", None]


async def test_log_probabilities_of_a_completion(model: Path) -> None:
    async with serving(saying("x", [*"aé".encode(), 98])) as target, http(model, target) as api:
        whole = (await api.complete("x", logprobs=2, max_tokens=4)).json()["choices"][0]["logprobs"]
        none = (await api.complete("x", logprobs=0, max_tokens=1)).json()["choices"][0]["logprobs"]
        chunks = events(await api.complete("x", logprobs=0, max_tokens=4, stream=True))[:-2]
    assert whole == {
        "tokens": ["a", "\\xc3", "\\xa9", "b"],
        "token_logprobs": [-0.5, -0.5, -0.5, -0.5],
        "top_logprobs": [
            {"a": -0.5, "b": -1.5},
            {"\\xc3": -0.5, "\\xc4": -1.5},
            {"\\xa9": -0.5, "\\xaa": -1.5},
            {"b": -0.5, "c": -1.5},
        ],
        "text_offset": [0, 1, 1, 2],
    }  # fmt: skip
    assert none["top_logprobs"] is None
    assert [chunk["choices"][0]["logprobs"]["text_offset"] for chunk in chunks] == [[0], [1], [1], [2]]


async def test_the_extras(model: Path, start_draft: StartDraft) -> None:
    script = answering("abcdefgh", ends=False)
    draft = await start_draft(FakeDraft(lambda text: script(text) if len(text) != 13 else 33))
    async with serving(script) as target, http(model, target, draft) as api:
        extras = {"speculation": "linear:2", "rounds": True}
        body = (await api.chat(max_tokens=7, seed=1, shardflow=extras)).json()["shardflow"]
        chunks = events(await api.chat(max_tokens=7, seed=1, shardflow=extras, stream=True))[:-1]
        short = (await api.chat(max_tokens=7, seed=1, shardflow={"speculation": "none"})).json()["shardflow"]
    assert short == {"seed": 1, "num_rounds": 7, "drafted_tokens": 0, "accepted_tokens": 0}
    rounds = body.pop("rounds")
    assert body == {"seed": 1, "num_rounds": 4, "drafted_tokens": 4, "accepted_tokens": 3}
    assert [[(token["text"], token["source"]) for token in each["tokens"]] for each in rounds] == [
        [("a", "target")],
        [("b", "accepted"), ("c", "corrected")],
        [("d", "accepted"), ("e", "accepted"), ("f", "bonus")],
        [("g", "target")],
    ]
    guesses = rounds[1]["guesses"]
    assert all(0 < guess.pop("probability") < 1 for guess in guesses)
    assert guesses == [
        {"id": ord("b"), "parent": -1, "source": "draft", "accepted": True},
        {"id": 33, "parent": 0, "source": "draft", "accepted": False},
    ]
    live = [chunk["shardflow"]["round"] for chunk in chunks if "round" in chunk.get("shardflow", {})]
    assert [each["tokens"] for each in live] == [each["tokens"] for each in rounds]
    last = chunks[-1]["shardflow"]
    assert (last["num_rounds"], [each["tokens"] for each in last["rounds"]]) == (4, [each["tokens"] for each in rounds])
    first = rounds[0]
    assert (first["choice"], first["prefill"], first["drafted_tokens"], first["guesses"]) == (0, True, 0, [])
    assert first["draft_hidden_ms"] == 0.0
    assert [stage["shard"] for stage in first["stages"]] == ["shard-0", "shard-1"]
    stays = sum(stage["queue_ms"] + stage["compute_ms"] + stage["other_ms"] for stage in first["stages"])
    parts = first["draft_ms"] + first["network_ms"] + first["orchestrator_ms"] + stays
    assert first["round_ms"] == pytest.approx(parts, abs=0.01)


async def test_models(model: Path, target: Target) -> None:
    async with http(model, target) as api:
        listed = (await api.client.get("/v1/models")).json()
        one = (await api.client.get("/v1/models/bytes")).json()
        other = await api.client.get("/v1/models/a/b")
    assert one.pop("created") > 1_700_000_000
    assert one == {
        "id": "bytes",
        "object": "model",
        "owned_by": "shardflow",
        "context_tokens": 512,
        "default_speculation": "auto",
    }
    assert (listed["object"], [each["id"] for each in listed["data"]]) == ("list", ["bytes"])
    assert (other.status_code, other.json()["error"]["code"]) == (404, "model_not_found")


@pytest.mark.parametrize("stream", [False, True])
async def test_refusals_have_their_status_even_for_a_stream(model: Path, target: Target, stream: bool) -> None:
    async with http(model, target) as api:
        for fields, status, code, param in [
            ({"model": "gpt-4"}, 404, "model_not_found", "model"),
            ({"messages": [{"role": "user", "content": "x" * 600}]}, 400, "context_length_exceeded", "messages"),
            ({"messages": []}, 400, None, "messages"),
            ({"temperature": 2.5}, 400, None, "temperature"),
            ({"top_logprobs": 2}, 400, None, "top_logprobs"),
            ({"logit_bias": {"999": 1}}, 400, None, "logit_bias"),
            ({"stop": ""}, 400, None, "stop"),
            ({"tool_choice": "required"}, 400, "unsupported_parameter", "tool_choice"),
        ]:
            response = await api.chat(**fields, stream=stream)
            found = response.json()["error"]
            assert (response.status_code, found["code"], found["param"]) == (status, code, param)
            assert found["type"] == "invalid_request_error"


async def test_bodies_that_can_not_be_read(model: Path, target: Target) -> None:
    object_wanted = "the body: a JSON object with content-type application/json was expected"
    async with http(model, target) as api:
        for content, kind, message in [
            (b"{", "application/json", "the body is not JSON: Expecting property name enclosed in double quotes"),
            (b"[1]", "application/json", object_wanted),
            (b"{}", "text/plain", object_wanted),
            (b"", "application/json", object_wanted),
            (b"\xff", "application/json", "There was an error parsing the body"),
            (b"[" * 100_000, "application/json", "There was an error parsing the body"),
        ]:
            response = await api.client.post("/v1/completions", content=content, headers={"content-type": kind})
            assert (response.status_code, response.json()["error"]["message"]) == (400, message)


async def test_a_body_that_is_too_long(model: Path, target: Target) -> None:
    async def pieces() -> Any:
        for _ in range(5):
            yield b" " * 2**20

    async with http(model, target) as api:
        declared = await api.client.post("/v1/completions", content=b" " * (4 * 2**20 + 1))
        sent = await api.client.post("/v1/completions", content=pieces(), headers={"content-type": "application/json"})
    assert (declared.status_code, sent.status_code) == (413, 413)
    assert declared.json()["error"]["message"] == "the body is longer than 4194304 bytes"


async def test_paths_and_methods_that_do_not_exist(model: Path, target: Target) -> None:
    async with http(model, target) as api:
        assert error(await api.client.get("/v1/nothing"))[0] == 404
        assert error(await api.client.get("/v1/completions"))[0] == 405


async def test_keys(model: Path, target: Target) -> None:
    async with http(model, target, http_api_keys="one, two") as api:
        given = {
            key: (await api.client.get("/v1/models", headers={b"authorization": key.encode()})).status_code
            for key in ("", "Bearer one", "bearer two", "Bearer three", "Basic one", "Bearer", "Bearer ün")
        }
        refused = await api.client.get("/metrics")
        open_to_all = [(await api.client.get(path)).status_code for path in ("/", "/health", "/openapi.json")]
    assert given == {
        "": 401, "Bearer one": 200, "bearer two": 200, "Bearer three": 401, "Basic one": 401, "Bearer": 401,
        "Bearer ün": 401,
    }  # fmt: skip
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    assert refused.json()["error"]["code"] == "invalid_api_key"
    assert open_to_all == [200, 200, 200]


async def test_metrics(model: Path, target: Target) -> None:
    async with http(model, target) as api:
        await api.chat(max_tokens=3, shardflow={"speculation": "none"})
        text = (await api.client.get("/metrics")).text
    assert 'shardflow_output_tokens_total{source="target"} 3.0' in text


async def test_a_comment_keeps_a_silent_stream_alive(
    model: Path, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "KEEP_ALIVE_S", 0.05)
    target.last.faults[0] = Fault.LOSE  # the prefill is silent until the round times out and is tried again
    async with http(model, target, round_timeout_s=0.3) as api:
        found = events(await api.chat(stream=True, max_tokens=1))
    assert found.count(": keep-alive") >= 3
    assert found.index(": keep-alive") == 1  # behind the role
    assert found[-1] == "[DONE]"


async def test_health_and_requests_while_a_shard_is_missing(model: Path, target: Target) -> None:
    await target.servers[1].stop()
    async with http(model, target, ready=False) as api:
        health = await api.client.get("/health")
        refused = await api.chat(stream=True)
        await target.servers[1].start()
        await api.system.starting
        ready = await api.client.get("/health")
    assert error(health) == (503, {
        "message": "starting: not all shards are up", "type": "server_error", "param": None, "code": "unavailable",
    })  # fmt: skip
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert (ready.status_code, ready.json()) == (200, {"status": "ready"})


async def test_a_shard_that_is_lost_before_the_first_token_is_a_503(model: Path, target: Target) -> None:
    async with http(model, target, patience_s=0.2) as api:
        await target.servers[1].stop()
        response = await api.chat(stream=True)
        await target.servers[1].start()
    assert error(response)[0] == 503


async def test_draining_finishes_what_runs_and_refuses_the_rest(model: Path, target: Target) -> None:
    async with http(model, target) as api:
        running = asyncio.create_task(api.chat(max_tokens=50))
        await until(lambda: len(target.last.slices) > 3)
        draining = asyncio.create_task(api.system.service.drain())
        await asyncio.sleep(0)
        refused, health = await api.chat(), await api.client.get("/health")
        assert (refused.status_code, health.status_code) == (503, 503)
        assert (await running).status_code == 200
        await draining


async def test_closing_tells_running_streams(model: Path, target: Target) -> None:
    async with http(model, target) as api:
        running = asyncio.create_task(api.chat(max_tokens=400, stream=True))
        await until(lambda: len(target.last.slices) > 3)
        assert api.system.service.http is not None
        await api.system.service.http.close()
        *_, last = events(await running)
    assert last == {
        "error": {
            "message": "the server is shutting down", "type": "server_error", "param": None, "code": "unavailable",
        }
    }  # fmt: skip


async def test_no_answer_leaves_anything_on_the_shards(model: Path, target: Target) -> None:
    async with http(model, target) as api:
        await api.chat(n=2, max_tokens=3)
        await api.chat(stream=True, max_tokens=3)
        await until(lambda: not target.last.sessions and not target.shards[0].sessions)
        assert len(target.last.released) == 3


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("fault_at", [0, 2], ids=["in prefill", "later"])
async def test_a_client_that_leaves_frees_the_session(model: Path, target: Target, stream: bool, fault_at: int) -> None:
    target.last.faults[fault_at] = Fault.LOSE
    async with http(model, target, round_timeout_s=10) as api:
        running = asyncio.create_task(api.chat(max_tokens=400, stream=stream))
        await until(lambda: len(target.last.slices) == fault_at + 1)
        running.cancel()
        await until(lambda: not target.last.sessions and not target.shards[0].sessions)
        assert api.system.sample("shardflow_requests_total", outcome="cancelled") == 1


async def test_a_client_that_does_not_read_stops_the_rounds(model: Path, target: Target) -> None:
    body = json.dumps({"messages": HI, "stream": True, "n": 8, "logprobs": True, "top_logprobs": 20}).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: "
    async with http(model, target) as api:
        host, _, port = api.url.removeprefix("http://").rpartition(":")
        _, writer = await asyncio.open_connection(host, int(port), limit=1)
        writer.write(f"{head}{len(body)}\r\n\r\n".encode() + body)
        seen = -1
        while seen != len(target.last.slices):  # until they stand still
            seen = len(target.last.slices)
            await asyncio.sleep(0.3)
        assert 8 < seen < 8 * 500  # of 501 each, were they read
        writer.close()
        await until(lambda: not target.last.sessions and not target.shards[0].sessions)


async def test_one_of_several_answers_fails(model: Path, target: Target) -> None:
    target.last.faults[5] = Fault.NON_FINITE
    async with http(model, target) as api:
        response = await api.chat(n=3, max_tokens=20)
        await until(lambda: not target.last.sessions and not target.shards[0].sessions)
    assert error(response)[0] == 500
