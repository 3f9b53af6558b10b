"""The demonstration: in which order it asks, what it measures, what it reports."""

import asyncio
import io
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

from shardflow import paint
from shardflow.client import ShardflowClient, Token
from shardflow.demo import report, series
from shardflow.demo.prompts import CHAT, RAW, Question
from shardflow.demo.receipt import receipt
from shardflow.demo.run import Round, Sample, Schedule, measure
from shardflow.errors import ShardflowError
from shardflow.v1 import orchestrator_pb2 as pb
from shardflow.v1 import verifier_pb2
from tests.fake_orchestrator import FakeOrchestrator, answer, served

A = Question("a", "Say a", chat=False)
B = Question("b", "Say b", chat=True)


def schedule(modes: tuple[str, ...], raw: tuple[Question, ...] = (), chat: tuple[Question, ...] = ()) -> Schedule:
    return Schedule(modes, raw, chat, raw_tokens=60, chat_tokens=24, raw_repetitions=2, chat_repetitions=1)


def each_round(total: float, network: float = 86.0, compute: tuple[float, ...] = (2.0, 3.0)) -> Round:
    return Round(total, network, draft=1.0, orchestrator=0.5, compute=compute, queue=0.25, other=0.125)


def sample(
    question: str = "a",
    mode: str = "none",
    tokens: Sequence[int] = (1, 2, 3),
    decode_s: float = 1.0,
    drafted: int = 0,
    accepted: int = 0,
    rounds: tuple[Round, ...] = (each_round(100.0),),
    text: str = "x",
) -> Sample:
    return Sample(question, mode, 0, text, tuple(tokens), 0.2, decode_s, drafted, accepted, rounds)


def test_the_raw_prompts_are_those_that_others_were_measured_on() -> None:
    assert [question.text for question in RAW] == [
        "The capital of France is",
        "Explain what a database index is.",
        "Write a Python function that reverses a linked list.",
    ]


def test_there_are_twelve_chat_questions_all_different() -> None:
    assert len({question.name for question in CHAT}) == len({question.text for question in CHAT}) == 12


def test_the_modes_of_a_question_stand_side_by_side_and_take_turns_to_be_first() -> None:
    runs = schedule(("none", "linear:4", "auto"), raw=(A,), chat=(B,)).runs()
    assert [(question.name, mode, repetition) for question, mode, repetition in runs] == [
        ("a", "none", 0), ("a", "linear:4", 0), ("a", "auto", 0),
        ("a", "linear:4", 1), ("a", "auto", 1), ("a", "none", 1),
        ("b", "auto", 0), ("b", "none", 0), ("b", "linear:4", 0),
    ]  # fmt: skip


async def test_a_raw_prompt_is_asked_greedily_past_its_end() -> None:
    fake = FakeOrchestrator(answer("x", "y"))
    async with served(fake) as address, ShardflowClient(address) as client:
        await measure(client, A, "linear:8", 0, 60)
    request = fake.requests[0]
    assert (request.text, request.max_tokens, request.ignore_eos, request.speculation.linear.k) == (
        "Say a",
        60,
        True,
        8,
    )
    assert (request.sampling.temperature, request.sampling.seed, request.round_records) == (0.0, 0, True)


async def test_a_chat_question_ends_where_the_model_ends_it() -> None:
    fake = FakeOrchestrator(answer("x", "y"))
    async with served(fake) as address, ShardflowClient(address) as client:
        await measure(client, B, "none", 0, 24)
    request = fake.requests[0]
    assert [message.content for message in request.chat.messages] == ["Say b"]
    assert (request.ignore_eos, request.speculation.WhichOneof("mode")) == (False, "none")


async def test_an_answer_is_measured_from_its_first_token_on() -> None:
    replies = answer("x", "y", "z")
    replies[0].rounds.add(round_ms=500.0, prefill=True)
    stages = [
        verifier_pb2.StageTiming(queue_ms=1.0, compute_ms=10.0, other_ms=0.5),
        verifier_pb2.StageTiming(queue_ms=2.0, compute_ms=20.0, other_ms=0.25),
    ]
    replies[1].rounds.add(round_ms=120.0, network_ms=86.0, draft_ms=3.0, orchestrator_ms=0.125, stages=stages)
    async with served(FakeOrchestrator(replies)) as address, ShardflowClient(address) as client:
        seen: list[Token] = []
        taken = await measure(client, A, "linear:4", 1, 60, seen.append)
    assert (taken.question, taken.mode, taken.repetition) == ("a", "linear:4", 1)
    assert (taken.text, taken.token_ids, taken.drafted, taken.accepted) == ("xyz", (1, 2, 3), 8, 1)
    assert taken.rounds == (Round(120.0, 86.0, 3.0, 0.125, (10.0, 20.0), 3.0, 0.75),)
    assert taken.first_token_s > 0
    assert [token.text for token in seen] == ["x", "y", "z"]


async def test_time_before_the_first_token_does_not_count_as_decoding() -> None:
    class Slow(FakeOrchestrator):
        async def Generate(self, request, context):  # type: ignore[no-untyped-def, override]
            await asyncio.sleep(0.3)
            async for reply in super().Generate(request, context):
                yield reply

    async with served(Slow(answer("x", "y"))) as address, ShardflowClient(address) as client:
        taken = await measure(client, A, "none", 0, 60)
    assert taken.first_token_s >= 0.3
    assert taken.decode_s < 0.3


async def test_an_answer_without_a_token_is_an_error() -> None:
    reply = pb.GenerateResponse(finish_reason=pb.FINISH_REASON_STOP)
    async with served(FakeOrchestrator([reply])) as address, ShardflowClient(address) as client:
        with pytest.raises(ShardflowError, match="no token"):
            await measure(client, A, "none", 0, 60)


def test_a_rate_counts_the_tokens_after_the_first() -> None:
    assert report.tok_s(sample(tokens=range(60), decode_s=5.9)) == pytest.approx(10.0)


def test_an_answer_in_one_piece_has_no_rate() -> None:
    assert report.tok_s(sample(tokens=(1,), decode_s=0.0)) is None


def test_the_rate_of_an_arm_is_the_mean_of_the_questions_medians() -> None:
    samples = [
        sample("a", tokens=range(11), decode_s=1.0),
        sample("a", tokens=range(11), decode_s=2.0),
        sample("a", tokens=range(11), decode_s=10.0),
        sample("b", tokens=range(4), decode_s=1.0),
    ]
    assert report.summarise(samples, 86.0, {})["tok_s_plain"] == pytest.approx((5.0 + 3.0) / 2)


def test_the_weighted_rate_is_all_tokens_over_all_time() -> None:
    samples = [sample("a", tokens=range(11), decode_s=1.0), sample("b", tokens=range(4), decode_s=3.0)]
    assert report.summarise(samples, 86.0, {})["arms"]["none"]["tok_s_token_weighted"] == pytest.approx(13 / 4)


def test_the_speed_up_is_that_of_the_fastest_speculative_arm() -> None:
    samples = [
        sample(mode="none", decode_s=2.0),
        sample(mode="linear:4", decode_s=0.5),
        sample(mode="linear:8", decode_s=1.0),
    ]
    figures = report.summarise(samples, 86.0, {})
    assert (figures["speedup"], figures["spec_arm"], figures["tok_s_plain"], figures["tok_s_spec"]) == (
        pytest.approx(4.0),
        "linear:4",
        pytest.approx(1.0),
        pytest.approx(4.0),
    )


def test_acceptance_and_tokens_per_round_are_over_all_answers_of_the_arm() -> None:
    two = (each_round(100.0), each_round(100.0))
    samples = [
        sample(mode="none"),
        sample(mode="linear:4", tokens=range(7), drafted=8, accepted=4, rounds=two),
        sample("b", mode="linear:4", tokens=range(4), drafted=8, accepted=1, rounds=(each_round(100.0),)),
    ]
    figures = report.summarise(samples, 86.0, {})
    assert (figures["acceptance"], figures["tokens_per_round"]) == (5 / 16, 3.0)


def test_the_parts_of_a_round_are_medians() -> None:
    rounds = (each_round(100.0, 80.0), each_round(200.0, 87.0, (4.0, 3.0)), each_round(120.0, 86.0, (9.0, 1.0)))
    assert report.summarise([sample(rounds=rounds)], 86.0, {})["round_ms"] == {
        "total": 120.0,
        "network": 86.0,
        "compute": 7.0,
        "draft": 1.0,
        "queue": 0.25,
        "other": 0.125,
        "orchestrator": 0.5,
        "compute_by_shard": [4.0, 3.0],
    }


def test_the_parts_are_those_of_the_fastest_speculative_arm() -> None:
    figures = report.summarise([sample(), sample(mode="linear:4", rounds=(each_round(130.0),))], 86.0, {})
    assert figures["round_ms"]["total"] == 130.0


@pytest.mark.parametrize("other", [sample(mode="linear:8", tokens=(1, 2, 4)), sample(mode="linear:8", text="y")])
def test_one_other_token_or_text_is_not_identical(other: Sample) -> None:
    figures = report.summarise([sample(), sample(mode="linear:4"), other, sample("b")], 86.0, {})
    assert (figures["identical"], figures["differing"]) == (False, ["a"])


def test_equal_answers_are_identical() -> None:
    figures = report.summarise([sample(), sample(mode="linear:4"), sample("b", text="z")], 86.0, {})
    assert (figures["identical"], figures["differing"]) == (True, [])


def test_the_relays_bytes_and_the_round_trip_are_reported() -> None:
    figures = report.summarise([sample()], 86.5, {"up": 100, "down": 20})
    assert (figures["relay_bytes"], figures["rtt_ms"]) == (120, 86.5)
    assert figures["relay_bytes_by_direction"] == {"up": 100, "down": 20}


def test_where_the_relay_can_not_be_asked_its_bytes_are_unknown() -> None:
    assert report.summarise([sample()], 86.5, None)["relay_bytes"] is None


def test_without_a_speculative_arm_there_is_no_speed_up() -> None:
    figures = report.summarise([sample()], 86.0, {})
    assert (figures["speedup"], figures["tok_s_spec"], figures["acceptance"], figures["spec_arm"]) == (None,) * 4


def test_without_a_plain_arm_there_is_no_speed_up() -> None:
    figures = report.summarise([sample(mode="linear:4")], 86.0, {})
    assert (figures["speedup"], figures["tok_s_plain"], figures["tok_s_spec"]) == (None, None, pytest.approx(2.0))


def test_the_tables_fit_a_terminal_of_80_columns() -> None:
    samples = [
        sample(decode_s=0.02),
        sample(mode="linear:64", decode_s=0.01, drafted=64, accepted=1, rounds=(each_round(12345.6),)),
    ]
    figures = report.summarise(samples, 86.0, {})
    out = io.StringIO()
    Console(file=out, width=80).print(report.speed_table(figures), report.time_table(figures))
    assert "…" not in out.getvalue()
    assert "linear:64   200.00     200.00       2.00      0.016        2.00        200" in out.getvalue()
    assert "linear:64   12345.6      86.0       5.0     1.0     0.2     0.1    0.5" in out.getvalue()


def test_a_receipt_tells_conditions_and_machine() -> None:
    made = receipt(delay_ms=43.0)
    assert made["conditions"] == {"delay_ms": 43.0}
    assert made["machine"]["cores"] >= 1
    assert made["versions"]["grpcio"].count(".") == 2
    assert made["date"].endswith("+00:00")


def test_every_source_has_its_colour_and_its_mark() -> None:
    tokens = [Token(1, "a", source) for source in ("target", "accepted", "corrected", "bonus")]
    assert [str(paint.token_text(token).style) for token in tokens] == ["default", "green", "yellow", "cyan"]
    assert paint.marks(tokens) == ".+x*"


def test_texts_that_differ_fail_the_demonstration_once_its_figures_are_written(tmp_path: Path) -> None:
    console = Console(file=io.StringIO())
    figures = report.summarise([sample(), sample(mode="linear:4", text="z")], 86.0, {})
    with pytest.raises(ShardflowError, match="texts differ: a"):
        series.present(figures | {"receipt": {}}, console, tmp_path / "demo.json")
    assert json.loads((tmp_path / "demo.json").read_text())["differing"] == ["a"]
    series.present(report.summarise([sample(), sample(mode="linear:4")], 86.0, {}), console, None)
