"""The rounds of an answer as they are drawn, counted and written, from what an orchestrator said."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from shardflow import trace
from shardflow.client import ShardflowClient, Token
from shardflow.errors import InternalError
from shardflow.v1 import orchestrator_pb2 as pb
from shardflow.v1 import verifier_pb2
from tests.fake_orchestrator import FakeOrchestrator, answer, served

TOKENS = (Token(10, " sky", "accepted"), Token(11, " is", "accepted"), Token(12, " blue", "corrected"))


def record() -> pb.RoundRecord:
    """Six guesses, of which the first two of a chain are accepted; the draft, the text and old verdicts made them."""
    stages = [
        verifier_pb2.StageTiming(shard="v0", queue_ms=1.0, compute_ms=10.0, other_ms=0.5),
        verifier_pb2.StageTiming(shard="v1", queue_ms=1.0, compute_ms=20.0, other_ms=0.5),
    ]
    return pb.RoundRecord(
        round_ms=120.0, draft_ms=4.0, network_ms=80.0, orchestrator_ms=3.0, stages=stages, drafted_tokens=6,
        accepted_tokens=2, draft_tokens=[10, 11, 12, 13, 20, 21], draft_parents=[-1, 0, 1, 1, -1, 4],
        draft_sources=[1, 1, 2, 3, 1, 2], draft_probabilities=[0.75, 0.5, 0.25, 0.125, 0.125, 0.001],
        accepted_guesses=[0, 1], draft_hidden_ms=12.0,
    )  # fmt: skip


def drawn(round_: trace.Round) -> list[str]:
    out = io.StringIO()
    trace.draw(round_, 4, Console(file=out, width=100), None)
    return out.getvalue().splitlines()


def test_a_round_is_a_tree_and_a_bar() -> None:
    assert [line.rstrip() for line in drawn(trace.Round.of(record(), TOKENS))] == [
        "",
        'round 4: 3 tokens " sky"" is"" blue"',
        '├── ✓" sky" 75% d, ✓" is" 50% d',
        "│   ├── #12 25% t",
        "│   └── #13 12% r",
        "└── #20 12% d, #21 <1% t",
        "─" * 40 + "█████▓▓▓▓▓▓▓▓▓▓▒▒░░░ 120.0 ms",
        "network 80.0, v0 10.0, v1 20.0, draft 4.0, rest 6.0; drafted 12.0 meanwhile",
    ]


def test_the_round_of_the_prompt_has_no_guesses() -> None:
    prefill = pb.RoundRecord(round_ms=50.0, network_ms=50.0, prefill=True)
    assert drawn(trace.Round.of(prefill, [Token(9, "The", "target")])) == [
        "",
        'round 4: the prompt, 1 token "The"',
        "─" * 60 + " 50.0 ms",
        "network 50.0, draft 0.0, rest 0.0",
    ]


def test_the_accepted_path_is_green_and_other_sources_have_colours() -> None:
    out = io.StringIO()
    guesses = trace.Round.of(record(), TOKENS).guesses
    Console(file=out, width=100, force_terminal=True, color_system="standard").print(
        trace.tree(guesses, None, Text("x"))
    )
    assert '\x1b[1;32m✓" sky" 75% d\x1b[0m, \x1b[1;32m✓" is" 50% d\x1b[0m' in out.getvalue()
    assert "\x1b[35m#12 25% t\x1b[0m" in out.getvalue()
    assert "\x1b[34m#13 12% r\x1b[0m" in out.getvalue()


def test_totals_leave_the_prompt_out() -> None:
    prefill = trace.Round.of(pb.RoundRecord(prefill=True, round_ms=900.0), TOKENS[:1])
    once = trace.Round.of(record(), TOKENS)
    plain = trace.Round.of(pb.RoundRecord(round_ms=90.0), TOKENS[:1])
    assert trace.totals([prefill, once, once, plain]) == [
        "7 tokens in 3 rounds, 2.33 a round",
        "4 of 12 guesses accepted, 3.5 expected",
        "drafting: 8 ms waited for, 24 ms in flight (75% hidden)",
    ]
    assert trace.totals([plain]) == ["1 token in 1 round, 1.00 a round"]
    assert trace.totals([prefill]) == ["no round after the prompt's"]


def test_acceptance_is_told_by_source_and_by_depth() -> None:
    out = io.StringIO()
    Console(file=out, width=80).print(trace.acceptance(trace.Round.of(record(), TOKENS).guesses))
    assert [line.split() for line in out.getvalue().splitlines() if line.strip("─ ")] == [
        ["guesses", "sent", "accepted", "share", "expected"],
        ["draft", "3", "2", "67%", "46%"],
        ["text", "2", "0", "0%", "13%"],
        ["recycled", "1", "0", "0%", "12%"],
        ["depth", "1", "2", "1", "50%", "44%"],
        ["depth", "2", "2", "1", "50%", "25%"],
        ["depth", "3", "2", "0", "0%", "19%"],
    ]


def test_a_record_that_does_not_tell_of_all_guesses_is_an_error() -> None:
    short = record()
    del short.draft_probabilities[:]
    with pytest.raises(InternalError, match="not as many: 6, 6, 6, 0"):
        trace.Round.of(short, TOKENS)


async def test_an_answer_is_drawn_round_by_round_and_written(tmp_path: Path) -> None:
    replies = answer("The", " sky")
    replies[0].rounds.add(round_ms=50.0, network_ms=50.0, prefill=True)
    replies[1].rounds.append(record())
    fake = FakeOrchestrator(replies)
    out = io.StringIO()
    async with served(fake) as address, ShardflowClient(address) as client:
        rounds = await trace.trace(client, "Why?", 10.0, {"max_tokens": 5}, Console(file=out, width=120), None)
    assert (fake.requests[0].text, fake.requests[0].max_tokens, fake.requests[0].round_records) == ("Why?", 5, True)
    lines = out.getvalue().splitlines()
    assert trace.LEGEND in lines
    assert [line for line in lines if line.startswith("round ")] == [
        'round 1: the prompt, 1 token "The"',
        'round 2: 1 token " sky"',
    ]
    assert "1 token in 1 round, 1.00 a round" in lines
    trace.write(rounds, tmp_path / "rounds.json")
    written = json.loads((tmp_path / "rounds.json").read_text())["rounds"]
    assert [each["tokens"] for each in written] == [
        [{"id": 1, "text": "The", "source": "target"}],
        [{"id": 2, "text": " sky", "source": "target"}],
    ]
    assert (written[1]["draft_tokens"], written[1]["draft_sources"][2]) == (
        [10, 11, 12, 13, 20, 21],
        "GUESS_SOURCE_TEXT",
    )
    assert (written[0]["draft_hidden_ms"], written[1]["draft_hidden_ms"]) == (0.0, 12.0)
