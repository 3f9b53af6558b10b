"""A draft that fails, hangs, leaves or comes back changes the speed and a metric, never the text."""

import asyncio
import time
from pathlib import Path

import pytest

from shardflow.errors import FailedPrecondition
from tests.fakes import FakeDraft, StartDraft, Target
from tests.orchestrating import System, ask, rest, system, until
from tests.scripts import continuation, letters

HELLO_20 = continuation(letters, "hello", 20)


async def restart(draft: FakeDraft, running: System) -> None:
    """The draft dies, which the orchestrator notices, and comes back knowing nothing."""
    await draft.server.stop()
    await until(lambda: not running.service._draft.ready)
    draft.sessions.clear()
    await draft.server.start()


async def test_failing(model: Path, target: Target, start_draft: StartDraft) -> None:
    draft = await start_draft(FakeDraft())
    draft.failing = True
    async with system(model, target, draft) as running:
        answer = await running.generate("hello", k=4, max_tokens=20)
        assert running.sample("shardflow_draft_failures_total") == 18  # not for the first token, nor for the last
    assert answer.text == HELLO_20
    assert len(draft.extends) == 18  # asked once a round: only a gap is worth a second try
    assert answer.usage == (5, 20, 20, 0, 0)


async def test_silent(model: Path, target: Target, start_draft: StartDraft) -> None:
    draft = await start_draft(FakeDraft())
    draft.silent = True
    async with system(model, target, draft, draft_timeout_s=0.2) as running:
        began = time.monotonic()
        answer = await running.generate("hello", k=4, max_tokens=20)
        assert time.monotonic() - began < 1  # waited for once, not in every round
    assert answer.text == HELLO_20
    assert len(draft.extends) == 1


async def test_silent_and_restarted(model: Path, target: Target, start_draft: StartDraft) -> None:
    draft = await start_draft(FakeDraft())
    draft.silent = True
    async with system(model, target, draft, draft_timeout_s=0.3) as running:
        await running.generate("hello", k=4, max_tokens=6)
        draft.silent = False
        await restart(draft, running)
        await until(lambda: running.service._draft.ready)
        assert (await running.generate("hello", k=4, max_tokens=6)).usage == (5, 6, 2, 4, 4)


async def test_gone(model: Path, target: Target, start_draft: StartDraft) -> None:
    draft = await start_draft(FakeDraft())
    async with system(model, target, draft) as running:
        call = running.call(ask("hello", k=4, max_tokens=20))
        text = (await call.read()).text
        await draft.server.stop()
        assert text + (await rest(call)).text == HELLO_20
        status = await running.status()
    assert not status.draft.connected


async def test_restarted(model: Path, target: Target, start_draft: StartDraft) -> None:
    draft = await start_draft(FakeDraft(hidden_size=1))
    async with system(model, target, draft, round_timeout_s=5) as running:
        target.last.pause()
        call = running.call(ask("hello", k=2, max_tokens=12))
        for _ in range(2):  # the prompt, the first round, and no further
            await until(lambda: target.last.waiting)
            target.last.resume()
            target.last.pause()
        await until(lambda: target.last.waiting)
        await restart(draft, running)
        await until(lambda: running.service._draft.ready)
        target.last.resume()
        answer = await rest(call)
    assert answer.text == continuation(letters, "hello", 12)
    assert [extend.base for extend in draft.extends] == [0, 6, 9, 0, 12]  # a gap, and everything once more
    assert answer.usage == (5, 12, 5, 7, 7)


async def test_forgetful(model: Path, target: Target, start_draft: StartDraft) -> None:
    draft = await start_draft(FakeDraft(hidden_size=1))
    async with system(model, target, draft) as running:
        call = running.call(ask("hello", k=4, max_tokens=20))
        text = (await call.read()).text + (await call.read()).text
        draft.sessions.clear()
        answer = await rest(call)
    assert text + answer.text == HELLO_20
    assert answer.usage == (5, 20, 5, 15, 15)


async def test_a_draft_hears_only_what_is_new(model: Path, target: Target, start_draft: StartDraft) -> None:
    draft = await start_draft(FakeDraft(lambda text: 33))
    async with system(model, target, draft) as running:
        await running.generate("hello", k=2, max_tokens=5)
    assert [(extend.base, len(extend.tokens)) for extend in draft.extends] == [(0, 6), (6, 1), (7, 1)]


async def test_a_context_shorter_than_the_targets(model: Path, target: Target, start_draft: StartDraft) -> None:
    draft = FakeDraft()
    draft.description.max_session_tokens = 15
    async with system(model, target, await start_draft(draft)) as running:
        answer = await running.generate("hello", k=4, max_tokens=20)
        assert running.sample("shardflow_draft_failures_total") == 0
    assert answer.text == HELLO_20
    assert [(extend.base + len(extend.tokens), extend.max_nodes) for extend in draft.extends] == [(6, 4), (11, 4)]


async def test_no_draft_is_asked_without_speculation(model: Path, target: Target, start_draft: StartDraft) -> None:
    draft = await start_draft(FakeDraft())
    async with system(model, target, draft) as running:
        await running.generate("hello", k=0, max_tokens=5)
    assert draft.extends == []
    assert not any(piece.setup.want_hidden for piece in target.last.slices)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"vocabulary_digest": "other"}, "the draft guess has another vocabulary than the target"),
        ({"vocab_size": 300}, "the draft guess knows 300 ids, the target 257"),
        ({"hidden_size": 7}, "the draft guess feeds on hidden states 7 wide, not 1"),
    ],
)
async def test_a_draft_that_does_not_fit_is_refused_at_start(
    model: Path, target: Target, start_draft: StartDraft, fields: dict[str, object], message: str
) -> None:
    draft = FakeDraft()
    for name, value in fields.items():
        setattr(draft.description, name, value)
    await start_draft(draft)
    async with system(model, target, draft, ready=False) as running:
        with pytest.raises(FailedPrecondition) as caught:
            async with asyncio.timeout(5):
                await running.starting
    assert str(caught.value) == message


async def test_a_draft_that_fits_no_longer_after_its_restart(
    model: Path, target: Target, start_draft: StartDraft
) -> None:
    draft = await start_draft(FakeDraft())
    async with system(model, target, draft) as running:
        draft.description.vocab_size = 300
        await restart(draft, running)
        await until(lambda: running.service._draft.problem)
        answer = await running.generate("hello", k=4, max_tokens=20)
    assert (answer.text, answer.usage) == (HELLO_20, (5, 20, 20, 0, 0))
