"""One answer, round by round: the guesses as a tree, what the target took of it, and where the time went."""

import itertools
import json
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from shardflow import paint
from shardflow.client import Options, Prompt, ShardflowClient, Token
from shardflow.errors import InternalError
from shardflow.tokenizer import Tokenizer
from shardflow.v1 import orchestrator_pb2 as pb

_SOURCES = ("draft", "text", "recycled")
_MARKS = {"draft": "d", "text": "t", "recycled": "r"}
_STYLES = {"draft": "default", "text": "magenta", "recycled": "blue"}
LEGEND = "✓ accepted; %: how likely the target was to get there; d guessed by the draft, t from the text, r recycled"

_BAR = 60  # characters
_SHARDS = (("█", "cyan"), ("▓", "green"))


@dataclass(frozen=True)
class Guess:
    """One guess of a round."""

    id: int
    parent: int
    """Index among the guesses of the round; -1 below the committed text."""
    depth: int
    """From 1."""
    source: str
    """`draft`, `text` or `recycled`."""
    probability: float
    """That the target would reach it, as it was expected when it was sent."""
    accepted: bool
    text: str
    """What it is in the answer; empty if it is not accepted, or completes no character."""


@dataclass(frozen=True)
class Round:
    """What one round sent and brought."""

    record: pb.RoundRecord
    guesses: tuple[Guess, ...]
    tokens: tuple[Token, ...]

    @classmethod
    def of(cls, record: pb.RoundRecord, tokens: Sequence[Token]) -> "Round":
        """InternalError if the record does not tell of every guess where it came from."""
        columns = (record.draft_tokens, record.draft_parents, record.draft_sources, record.draft_probabilities)
        if len({len(column) for column in columns}) > 1:
            lengths = ", ".join(str(len(column)) for column in columns)
            raise InternalError(f"a round's tokens, parents, sources and probabilities are not as many: {lengths}")
        texts = dict(zip(record.accepted_guesses, (token.text for token in tokens), strict=False))  # then the target's
        guesses: list[Guess] = []
        for index, (token, parent, source, probability) in enumerate(zip(*columns, strict=True)):
            depth = 1 if parent < 0 else guesses[parent].depth + 1
            name = pb.GuessSource.Name(source).removeprefix("GUESS_SOURCE_").lower()
            guesses.append(Guess(token, parent, depth, name, probability, index in texts, texts.get(index, "")))
        return cls(record, tuple(guesses), tuple(tokens))


async def trace(
    client: ShardflowClient,
    prompt: Prompt,
    timeout_s: float,
    options: Options,
    console: Console,
    tokenizer: Tokenizer | None,
) -> list[Round]:
    """Asks, draws each round as it ends and the totals behind them; errors are those of the client.

    Guesses come without text: those that are not accepted are shown as ids, unless there is a `tokenizer`.
    """
    rounds: list[Round] = []
    options = {**options, "round_records": True}
    async with aclosing(client.generate(prompt, timeout=timeout_s, **options)) as chunks:
        async for chunk in chunks:
            for record in chunk.rounds:  # one a message
                rounds.append(Round.of(record, chunk.tokens))
                draw(rounds[-1], len(rounds), console, tokenizer)
    for line in ("", LEGEND, "", *totals(rounds)):
        paint.say(console, line)
    console.print(acceptance([guess for each in rounds for guess in each.guesses]))
    return rounds


def write(rounds: Sequence[Round], file: Path) -> None:
    """Writes the records as JSON, in the names of `orchestrator.proto`, each with its tokens."""
    written = [{**_record(each.record), "tokens": [_token(token) for token in each.tokens]} for each in rounds]
    file.write_text(json.dumps({"rounds": written}, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def draw(round_: Round, number: int, console: Console, tokenizer: Tokenizer | None) -> None:
    """What it brought, the guesses with the accepted path in green, and the parts of its time."""
    console.print()
    console.print(tree(round_.guesses, tokenizer, _heading(round_, number)))
    console.print(bar(round_.record), soft_wrap=True)


def tree(guesses: Sequence[Guess], tokenizer: Tokenizer | None, root: Text) -> Tree:
    """Below `root`, a line for each run of guesses without a fork."""
    children: dict[int, list[int]] = {}
    for index, guess in enumerate(guesses):
        children.setdefault(guess.parent, []).append(index)

    def grow(branch: Tree, start: int) -> None:
        run = [start]
        while len(following := children.get(run[-1], [])) == 1:
            run += following
        below = branch.add(Text(", ").join(_label(guesses[index], tokenizer) for index in run))
        for child in children.get(run[-1], []):
            grow(below, child)

    trunk = Tree(root)
    for first in children.get(-1, []):
        grow(trunk, first)
    return trunk


def bar(record: pb.RoundRecord) -> Text:
    """The shares of a round's time, and on a second line what they are in milliseconds."""
    parts = _parts(record)
    ends = [0.0, *itertools.accumulate(max(0.0, ms) for _, ms, _, _ in parts)]
    scale = _BAR / (ends[-1] or 1.0)
    line = Text()
    for (_, _, character, style), (start, end) in zip(parts, itertools.pairwise(ends), strict=True):
        line.append(character * (round(scale * end) - round(scale * start)), style)
    line.append(f" {record.round_ms:.1f} ms\n")
    line.append_text(Text(", ").join(Text(f"{part} {ms:.1f}", style) for part, ms, _, style in parts))
    if record.draft_hidden_ms:
        line.append(f"; drafted {record.draft_hidden_ms:.1f} meanwhile")
    return line


def totals(rounds: Sequence[Round]) -> list[str]:
    """How it went, in up to three lines; the round that carried the prompt does not count."""
    decoded = [each for each in rounds if not each.record.prefill]
    if not decoded:
        return ["no round after the prompt's"]
    tokens = sum(len(each.tokens) for each in decoded)
    lines = [f"{_count(tokens, 'token')} in {_count(len(decoded), 'round')}, {tokens / len(decoded):.2f} a round"]
    guesses = [guess for each in decoded for guess in each.guesses]
    if guesses:
        accepted, expected = _accepted(guesses), sum(guess.probability for guess in guesses)
        lines.append(f"{accepted} of {len(guesses)} guesses accepted, {expected:.1f} expected")
    waited = sum(each.record.draft_ms for each in decoded)
    hidden = sum(each.record.draft_hidden_ms for each in decoded)
    if waited + hidden > 0:
        share = hidden / (waited + hidden)
        lines.append(f"drafting: {waited:.0f} ms waited for, {hidden:.0f} ms in flight ({share:.0%} hidden)")
    return lines


def acceptance(guesses: Sequence[Guess]) -> Table:
    """Guesses by source and by depth: how many, how many accepted, and which share that is and was expected to be."""
    grid = Table(box=box.SIMPLE_HEAD)
    for heading in ("guesses", "sent", "accepted", "share", "expected"):
        grid.add_column(heading, justify="left" if heading == "guesses" else "right", no_wrap=True)
    by_source = [(source, [guess for guess in guesses if guess.source == source]) for source in _SOURCES]
    depths = sorted({guess.depth for guess in guesses})
    by_depth = [(f"depth {depth}", [guess for guess in guesses if guess.depth == depth]) for depth in depths]
    for label, some in [*by_source, *by_depth]:
        if some:
            shares = (_accepted(some) / len(some), sum(guess.probability for guess in some) / len(some))
            grid.add_row(label, str(len(some)), str(_accepted(some)), *(f"{share:.0%}" for share in shares))
    return grid


def _heading(round_: Round, number: int) -> Text:
    line = Text(f"round {number}: ", style="bold")
    line.append("the prompt, " if round_.record.prefill else "")
    line.append(f"{_count(len(round_.tokens), 'token')} ")
    for token in round_.tokens:
        line.append(_quoted(token.text), paint.STYLES[token.source])
    return line


def _label(guess: Guess, tokenizer: Tokenizer | None) -> Text:
    text = tokenizer.token_text(guess.id) if tokenizer is not None else guess.text
    name = _quoted(text) if text else f"#{guess.id}"
    mark = "✓" if guess.accepted else ""
    return Text(
        f"{mark}{name} {_percent(guess.probability)} {_MARKS[guess.source]}",
        style="bold green" if guess.accepted else _STYLES[guess.source],
    )


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.005 else "<1%"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _quoted(text: str) -> str:
    """On one line, and so that spaces can be seen."""
    return json.dumps(text, ensure_ascii=False)


def _parts(record: pb.RoundRecord) -> list[tuple[str, float, str, str]]:
    """(name, milliseconds, character of the bar, style) of each part."""
    shards = itertools.cycle(_SHARDS)
    compute = [(stage.shard, stage.compute_ms, *next(shards)) for stage in record.stages]
    rest = record.orchestrator_ms + sum(stage.queue_ms + stage.other_ms for stage in record.stages)
    return [
        ("network", record.network_ms, "─", "blue"),
        *compute,
        ("draft", record.draft_ms, "▒", "yellow"),
        ("rest", rest, "░", "default"),
    ]


def _accepted(guesses: Sequence[Guess]) -> int:
    return sum(guess.accepted for guess in guesses)


def _record(record: pb.RoundRecord) -> dict[str, Any]:
    return MessageToDict(record, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)


def _token(token: Token) -> dict[str, Any]:
    return {"id": token.id, "text": token.text, "source": token.source}
