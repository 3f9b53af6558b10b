"""Every mode of speculation gives one text, through whatever the draft says, and leaves nothing behind."""

import asyncio
import random
from pathlib import Path

import pytest

from shardflow.speculation import Mode
from shardflow.v1 import draft_pb2
from tests.fakes import FakeDraft, StartDraft, Target
from tests.orchestrating import Answer, System, ask, system, until
from tests.scripts import continuation, letters

MODES = ("none", "linear:3", "tree:7", "lookup", "auto")
HELLO_40 = continuation(letters, "hello", 40)


async def generate(running: System, mode: str, tokens: int) -> Answer:
    request = ask("hello", max_tokens=tokens)
    request.speculation.CopyFrom(Mode.parse(mode).message())
    request.round_records = True
    return Answer([message async for message in running.stub.Generate(request)])


def shaped(seed: int) -> FakeDraft:
    """A draft whose trees have another shape each time, with some right guesses in them."""
    draft, law = FakeDraft(letters), random.Random(seed)

    def shape(tree: draft_pb2.Tree) -> None:
        for node in range(1, len(tree.tokens)):
            if law.random() < 0.5:
                tree.parents[node] = law.randrange(-1, node)
            if law.random() < 0.3:
                tree.tokens[node] = law.randrange(97, 123)
            tree.logprobs[node] = -2 * law.random()

    draft.shape = shape
    return draft


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(4))
async def test_one_text_whatever_the_trees(
    model: Path, target: Target, start_draft: StartDraft, mode: str, seed: int
) -> None:
    draft = await start_draft(shaped(seed))
    async with system(model, target, draft) as running:
        for tokens in (1, 2, 17, 40):
            answer = await generate(running, mode, tokens)
            assert answer.text == HELLO_40[:tokens]
            assert answer.last.usage.completion_tokens == tokens
    assert target.violations == [] and draft.violations == []


async def test_records_tell_where_guesses_came_from(model: Path, target: Target, start_draft: StartDraft) -> None:
    draft = await start_draft(FakeDraft(letters))
    async with system(model, target, draft) as running:
        answer = await generate(running, "auto", 40)
    rounds = [record for message in answer.messages for record in message.rounds]
    for record in rounds:
        count = record.drafted_tokens
        lists = (record.draft_tokens, record.draft_parents, record.draft_sources, record.draft_probabilities)
        assert [len(each) for each in lists] == [count] * 4
        assert len(record.accepted_guesses) == record.accepted_tokens
        above = [-1, *record.accepted_guesses]
        assert [record.draft_parents[node] for node in record.accepted_guesses] == above[:-1]
        assert all(0 < p <= 1 for p in record.draft_probabilities)
    assert sum(record.accepted_tokens + 1 for record in rounds) == 40
    assert len(rounds) < 15


@pytest.mark.parametrize("mode", MODES)
async def test_cancelled_at_any_moment_nothing_is_left(
    model: Path, target: Target, start_draft: StartDraft, mode: str
) -> None:
    draft, law = await start_draft(FakeDraft(letters)), random.Random(3)
    async with system(model, target, draft) as running:

        async def one() -> None:
            task = asyncio.create_task(generate(running, mode, 40))
            await asyncio.sleep(law.random() * 0.1)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        for _ in range(10):
            await asyncio.gather(*(one() for _ in range(20)))
        assert (await generate(running, mode, 40)).text == HELLO_40
        await until(lambda: not draft.sessions and not running.service._learned.costs.active)
        await until(lambda: not any("_grow" in repr(task.get_coro()) for task in asyncio.all_tasks()))
