"""Streamed text: whole characters in every chunk, together the whole answer, in lines that every client can read."""

import json
from pathlib import Path

import pytest

from tests.fakes import FakeDraft
from tests.integration.openai.conftest import answering, http, serving
from tests.integration.orchestrator.conftest import StartDraft

TEXTS = {
    "emoji": "👩‍👩‍👧‍👦🏳️‍🌈🇺🇳",
    "east asian": "吾輩は猫である。名前はまだ無い",
    "combining": "e\u0301a\u0308\u0327 ก็ \u202bעִבְרִית\u202c",  # noqa: RUF001
    "line breaks": "a\nb\r\nc\u0085d\u2028e\u2029f\x0bg\x1eh",
    "like our own format": 'data: [DONE]\n\ndata: {"error": "no"}\n\n',
    "markup": "<script>&amp;\"'\\u0000\\",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
async def test_chunks(model: Path, start_draft: StartDraft, text: str) -> None:
    script = answering(text)
    draft = await start_draft(FakeDraft(lambda ids: script(ids) if len(ids) % 5 else 33))
    async with serving(script) as target, http(model, target, draft) as api:
        whole = (await api.chat()).json()["choices"][0]["message"]["content"]
        streams = [
            await api.chat(stream=True, shardflow={"speculation": mode}) for mode in ("none", "linear:3", "linear:8")
        ]
    assert whole == text
    for stream in streams:
        assert stream.content.isascii()
        lines = [line for line in stream.text.splitlines() if line]  # at every line break that there is
        assert lines.pop() == "data: [DONE]"
        choices = [json.loads(line.removeprefix("data: "))["choices"][0] for line in lines]
        pieces = [choice["delta"].get("content", "") for choice in choices]
        assert "".join(pieces) == text
        assert "\ufffd" not in "".join(pieces)


async def test_a_stop_text_of_several_bytes_over_several_rounds(model: Path, start_draft: StartDraft) -> None:
    script = answering("早い🌊遅い🌋終")
    draft = await start_draft(FakeDraft(lambda ids: script(ids) if len(ids) % 3 else 33))
    async with serving(script) as target, http(model, target, draft) as api:
        texts = [
            (await api.chat(stop=stop, shardflow={"speculation": mode})).json()["choices"][0]["message"]["content"]
            for mode in ("none", "linear:2", "linear:16")
            for stop in (["🌋終"], ["🌊遅いx", "い🌋"], ["い"])
        ]
    assert texts == ["早い🌊遅い", "早い🌊遅", "早"] * 3
