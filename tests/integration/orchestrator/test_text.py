"""The text is the target's own, whatever the draft says and however many guesses are made; it ends where it should."""

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from shardflow.v1 import draft_pb2, orchestrator_pb2
from tests.fakes import FakeDraft, StartDraft, Target
from tests.orchestrating import ask, system
from tests.scripts import EOS, VOCAB, NextToken, continuation, letters, saying

STOP, LENGTH = orchestrator_pb2.FINISH_REASON_STOP, orchestrator_pb2.FINISH_REASON_LENGTH


def at_random(text: Sequence[int]) -> int:
    return random.Random(len(text)).randrange(VOCAB)


def often_right(text: Sequence[int]) -> int:
    return letters(text) if len(text) % 3 else 33


DRAFTS: dict[str, NextToken] = {
    "perfect": letters,
    "often right": often_right,
    "random": at_random,
    "constant": lambda text: 97,
    "outside the vocabulary": lambda text: 1_000_000,
    "end of sequence": lambda text: EOS,
}


@pytest.mark.parametrize("guess", DRAFTS.values(), ids=DRAFTS.keys())
async def test_no_draft_changes_the_text(
    model: Path, target: Target, start_draft: StartDraft, guess: NextToken
) -> None:
    draft = await start_draft(FakeDraft(guess))
    async with system(model, target, draft) as running:
        texts = {k: (await running.generate("hello", k=k, max_tokens=21)).text for k in (0, 1, 4, 8, 64)}
    assert set(texts.values()) == {continuation(letters, "hello", 21)}


def too_many_nodes(tree: draft_pb2.Tree) -> None:
    for _ in range(100):
        tree.tokens.append(97)
        tree.parents.append(len(tree.tokens) - 2)


def fewer_parents(tree: draft_pb2.Tree) -> None:
    tree.parents.pop()


def parents_behind(tree: draft_pb2.Tree) -> None:
    tree.parents[0] = 1


def parents_before_the_text(tree: draft_pb2.Tree) -> None:
    tree.parents[0] = -7


def siblings(tree: draft_pb2.Tree) -> None:
    tree.parents[:] = [-1] * len(tree.parents)


def siblings_the_right_one_last(tree: draft_pb2.Tree) -> None:
    first = tree.tokens[0]
    tree.tokens[:] = [33] * (len(tree.tokens) - 1) + [first]
    tree.parents[:] = [-1] * len(tree.parents)


def nothing(tree: draft_pb2.Tree) -> None:
    tree.Clear()


@pytest.mark.parametrize(
    "shape",
    [
        too_many_nodes,
        fewer_parents,
        parents_behind,
        parents_before_the_text,
        siblings,
        siblings_the_right_one_last,
        nothing,
    ],
)
async def test_no_tree_changes_the_text(
    model: Path, target: Target, start_draft: StartDraft, shape: Callable[[draft_pb2.Tree], None]
) -> None:
    draft = FakeDraft(letters)
    draft.shape = shape
    async with system(model, target, await start_draft(draft)) as running:
        answer = await running.generate("hello", k=4, max_tokens=21)
    assert answer.text == continuation(letters, "hello", 21)


@pytest.mark.parametrize("shards", [1, 3])
async def test_number_of_shards(model: Path, shards: int) -> None:
    target = Target(shards=shards)
    await target.start()
    async with system(model, target) as running:
        assert (await running.generate("a", max_tokens=9)).text == continuation(letters, "a", 9)
    await target.stop()
    assert target.violations == []


async def test_a_perfect_draft_brings_k_and_one_tokens_a_round(
    model: Path, target: Target, start_draft: StartDraft
) -> None:
    async with system(model, target, await start_draft(FakeDraft(letters))) as running:
        answer = await running.generate("hello", k=4, max_tokens=16)
    assert [len(message.tokens) for message in answer.messages] == [1, 5, 5, 5]
    assert answer.usage == (5, 16, 4, 12, 12)


async def test_no_more_is_guessed_than_may_still_come(model: Path, target: Target, start_draft: StartDraft) -> None:
    draft = await start_draft(FakeDraft(letters))
    async with system(model, target, draft) as running:
        answer = await running.generate("hello", k=8, max_tokens=4)
    assert [extend.max_nodes for extend in draft.extends] == [2]
    assert answer.usage == (5, 4, 2, 2, 2)


async def test_sources_of_tokens(model: Path, target: Target, start_draft: StartDraft) -> None:
    async with system(model, target, await start_draft(FakeDraft(often_right))) as running:
        answer = await running.generate("hello", k=2, max_tokens=6)
    names = [orchestrator_pb2.TokenSource.Name(token.source).removeprefix("TOKEN_SOURCE_") for token in answer.tokens]
    # Guesses at lengths 6, 9 and 12 of the text are wrong.
    assert names == ["TARGET", "CORRECTED", "ACCEPTED", "ACCEPTED", "BONUS", "TARGET"]


@pytest.mark.parametrize("prompt_tokens", [1, 31, 32, 33, 64, 65, 200])
async def test_prompts_go_in_chunks(model: Path, target: Target, start_draft: StartDraft, prompt_tokens: int) -> None:
    prompt = "x" * prompt_tokens
    async with system(model, target, await start_draft(FakeDraft(letters)), prefill_chunk=32) as running:
        answer = await running.generate(prompt, k=4, max_tokens=8)
    assert answer.text == continuation(letters, prompt, 8)
    assert max(len(piece.tokens) for piece in target.shards[0].slices) <= 32


@pytest.mark.parametrize("room", [1, 2, 3, 4, 5, 9])
async def test_the_contexts_end(model: Path, target: Target, start_draft: StartDraft, room: int) -> None:
    prompt = "x" * (512 - room)
    async with system(model, target, await start_draft(FakeDraft(letters))) as running:
        answer = await running.generate(prompt, k=4)
    assert (answer.text, answer.last.finish_reason) == (continuation(letters, prompt, room), LENGTH)


async def test_a_head_gets_the_state_behind_every_token(model: Path, target: Target, start_draft: StartDraft) -> None:
    draft = await start_draft(FakeDraft(often_right, hidden_size=1))  # it checks them
    async with system(model, target, draft) as running:
        answer = await running.generate("hello", k=4, max_tokens=30)
    assert answer.text == continuation(letters, "hello", 30)
    assert len(draft.extends) > 4


async def test_requests_interleave(model: Path, target: Target, start_draft: StartDraft) -> None:
    async with system(model, target, await start_draft(FakeDraft(often_right))) as running:
        first, second = running.call(ask("one", k=4, max_tokens=40)), running.call(ask("two", k=0, max_tokens=40))
        texts = ["", ""]
        while len(texts[0]) < 40 or len(texts[1]) < 40:
            for index, call in enumerate((first, second)):
                if len(texts[index]) < 40:
                    texts[index] += (await call.read()).text
    assert texts == [continuation(letters, "one", 40), continuation(letters, "two", 40)]
    sessions = [piece.session for piece in target.last.slices]
    assert sessions != sorted(sessions)  # they took turns


@pytest.mark.parametrize("k", [0, 4])
@pytest.mark.parametrize(
    ("eos_at", "guessed"),
    [(0, (1, 0, 0)), (1, (2, 4, 1)), (2, (2, 4, 2)), (3, (2, 4, 3)), (4, (2, 4, 4)), (5, (2, 4, 4)), (6, (3, 8, 5))],
)
async def test_end_of_sequence_at_every_offset(
    model: Path, start_draft: StartDraft, k: int, eos_at: int, guessed: tuple[int, int, int]
) -> None:
    says = saying("q", [*b"abcdefgh"[:eos_at], EOS, *b"never"])
    target = Target(says)
    await target.start()
    async with system(model, target, await start_draft(FakeDraft(says))) as running:
        answer = await running.generate("q", k=k, max_tokens=20)
    await target.stop()
    assert (answer.text, answer.last.finish_reason) == ("abcdefgh"[:eos_at], STOP)
    assert answer.ids == [*b"abcdefgh"[:eos_at], EOS]
    assert answer.usage == (1, eos_at + 1, *(guessed if k else (eos_at + 1, 0, 0)))


@pytest.mark.parametrize("max_tokens", [1, 2, 3, 4, 5, 6, 7])
async def test_max_tokens_at_every_offset(
    model: Path, target: Target, start_draft: StartDraft, max_tokens: int
) -> None:
    async with system(model, target, await start_draft(FakeDraft(letters))) as running:
        answer = await running.generate("hello", k=4, max_tokens=max_tokens)
    assert (answer.text, answer.last.finish_reason) == (continuation(letters, "hello", max_tokens), LENGTH)
    assert (len(answer.ids), answer.usage[1]) == (max_tokens, max_tokens)


@pytest.mark.parametrize("k", [0, 8])
async def test_a_stop_text_inside_an_accepted_block(model: Path, start_draft: StartDraft, k: int) -> None:
    says = saying("q", b"one two three four")
    target = Target(says)
    await target.start()
    async with system(model, target, await start_draft(FakeDraft(says))) as running:
        answer = await running.generate("q", k=k, max_tokens=18, stop=["four", " th"])
    await target.stop()
    assert (answer.text, answer.last.finish_reason) == ("one two", STOP)
    assert bytes(answer.ids) == b"one two th"
    assert answer.usage[1] == 10


async def test_ignored_end_of_sequence(model: Path) -> None:
    target = Target(saying("q", [97, EOS, 98, 99]))
    await target.start()
    async with system(model, target) as running:
        answer = await running.generate("q", max_tokens=4, ignore_eos=True)
    await target.stop()
    assert (answer.text, answer.ids, answer.last.finish_reason) == ("abc", [97, EOS, 98, 99], LENGTH)


async def test_characters_of_several_tokens_come_whole(model: Path) -> None:
    target = Target(saying("q", "aé€".encode()))
    await target.start()
    async with system(model, target) as running:
        answer = await running.generate("q", max_tokens=6)
        cut = await running.generate("q", max_tokens=5)
    await target.stop()
    assert [token.text for token in answer.tokens] == ["a", "", "é", "", "", "€"]
    assert [token.text for token in cut.tokens] == ["a", "", "é", "", "\ufffd"]


async def test_log_probabilities_come_only_if_asked_for(model: Path, target: Target) -> None:
    async with system(model, target) as running:
        plain = await running.generate("q", max_tokens=1)
        asked = await running.generate("q", max_tokens=1, logprobs=True, top_logprobs=2)
    assert not plain.tokens[0].HasField("logprob")
    assert asked.tokens[0].logprob == -0.5
    best = asked.ids[0]
    assert [(entry.token_id, entry.logprob) for entry in asked.tokens[0].top] == [(best, -0.5), (best + 1, -1.5)]


async def test_a_seed_is_drawn_and_told(model: Path, target: Target) -> None:
    async with system(model, target) as running:
        given = await running.generate("q", max_tokens=1, sampling={"seed": 7})
        drawn = [await running.generate("q", max_tokens=1) for _ in range(2)]
    assert given.last.seed == 7
    assert target.shards[0].slices[0].setup.sampling.seed == 7
    assert drawn[0].last.seed != drawn[1].last.seed


async def test_conversations_are_rendered(model: Path) -> None:
    target = Target(saying("user: hi\n> ", b"hello"))
    await target.start()
    async with system(model, target) as running:
        request = orchestrator_pb2.GenerateRequest(max_tokens=5)
        request.chat.messages.add(role="user", content="hi")
        messages = [message async for message in running.call(request)]
    await target.stop()
    assert "".join(message.text for message in messages) == "hello"
