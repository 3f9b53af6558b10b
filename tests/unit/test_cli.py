"""The command line, against an orchestrator that says what a test wrote down."""

import asyncio
import io
import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from shardflow import cli, flags
from shardflow.bench import read_questions
from shardflow.client import ShardflowClient
from shardflow.demo.prompts import Question
from shardflow.status import Reading, picture, watch
from shardflow.v1 import orchestrator_pb2 as pb
from tests import deployments
from tests.fake_orchestrator import FakeOrchestrator, answer, served
from tests.orchestrating import until, write_model

Serve = Callable[[FakeOrchestrator], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serves an orchestrator in a thread of its own, because the command line runs its own event loop."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    contexts = []

    def start(orchestrator: FakeOrchestrator) -> str:
        contexts.append(served(orchestrator))
        return asyncio.run_coroutine_threadsafe(contexts[-1].__aenter__(), loop).result(10)

    yield start
    for context in contexts:
        asyncio.run_coroutine_threadsafe(context.__aexit__(None, None, None), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def run(*arguments: str, input: str | None = None) -> Result:
    return CliRunner().invoke(cli.app, arguments, input=input)


def test_an_answer_that_is_piped_is_the_text_alone(serve: Serve) -> None:
    address = serve(FakeOrchestrator(answer("Paris", " is", " [big].")))
    result = run("generate", "Hello", "--address", address)
    assert (result.exit_code, result.stdout) == (0, "Paris is [big].\n")


def test_a_long_line_is_not_wrapped(serve: Serve) -> None:
    address = serve(FakeOrchestrator(answer("word " * 60)))
    assert run("generate", "Hello", "--address", address).stdout == "word " * 60 + "\n"


def test_a_prompt_is_a_chat_message_unless_raw(serve: Serve) -> None:
    fake = FakeOrchestrator(answer("x"))
    address = serve(fake)
    run("generate", "Hello", "--address", address)
    run("generate", "Hello", "--address", address, "--raw")
    assert [(message.role, message.content) for message in fake.requests[0].chat.messages] == [("user", "Hello")]
    assert fake.requests[1].text == "Hello"


def test_options_reach_the_request(serve: Serve) -> None:
    fake = FakeOrchestrator(answer("x"))
    sampling = ("--max-tokens", "5", "--temperature", "0.5", "--top-p", "0.75", "--seed", "9")
    others = ("--stop", "a", "--stop", "b", "--speculation", "linear:4")
    run("generate", "Hello", "--address", serve(fake), *sampling, *others)
    request = fake.requests[0]
    assert (request.max_tokens, list(request.stop), request.speculation.linear.k) == (5, ["a", "b"], 4)
    assert (request.sampling.temperature, request.sampling.top_p, request.sampling.seed) == (0.5, 0.75, 9)


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """A terminal with colours in the place of standard output."""
    file = io.StringIO()
    terminal = Console(file=file, force_terminal=True, color_system="standard", width=100, no_color=False)
    monkeypatch.setattr(cli, "console", terminal)
    return file


def test_a_terminal_shows_sources_in_colour_with_a_legend(serve: Serve, screen: io.StringIO) -> None:
    replies = answer("yes", source=pb.TOKEN_SOURCE_ACCEPTED)
    replies[0].tokens.add(id=2, text=" but", source=pb.TOKEN_SOURCE_CORRECTED)
    assert run("generate", "Hello", "--address", serve(FakeOrchestrator(replies))).exit_code == 0
    assert screen.getvalue().startswith("\x1b[32myes\x1b[0m\x1b[33m but\x1b[0m\n")
    assert "corrected: guessed wrong" in screen.getvalue()
    assert "1 of 8 guesses accepted" in screen.getvalue()


def test_a_failure_is_one_message_and_exit_code_1(serve: Serve) -> None:
    address = serve(FakeOrchestrator(failure=(grpc.StatusCode.UNAVAILABLE, "shard 1 can not be reached")))
    result = run("generate", "Hello", "--address", address)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"error: {address}: shard 1 can not be reached\n"


def test_a_deadline_is_one_message_and_exit_code_1(serve: Serve) -> None:
    address = serve(FakeOrchestrator(hang=True))
    result = run("generate", "Hello", "--address", address, "--timeout", "0.2")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {address}: ")


def test_status_shows_each_shard_its_links_and_the_draft(serve: Serve) -> None:
    result = run("status", "--address", serve(FakeOrchestrator(state=deployments.healthy())))
    assert result.exit_code == 0
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert [line for line in lines if line.strip("─ ")] == [
        "tiny, 30 layers, sessions of up to 4096 tokens",
        "speculation linear:2; version 0.1.0",
        "1 running; 900 tokens since start",
        "draft head: 120 of 400 guesses accepted since start (0.300)",
        "shard layers state sessions KV tokens KV MB KV used",
        "0 0:15 up 2/64 2622 60.4 1.0%",
        "1 15:30 up 2/64 2622 60.4 1.0%",
        "link state RTT ms Mbit/s ≥ way",
        "orchestrator → shard 0 up 0.5 8000 direct",
        "orchestrator → shard 1 up 86.2 100 relay r:9000",
        "orchestrator → draft up 0.4 ? direct",
        "shard 0 → shard 1 up 86.4 98 relay r:9000",
    ]


def test_status_says_what_is_wrong_first(serve: Serve) -> None:
    state = deployments.healthy()
    state.problem = "shard 1 at v1:50051 can not be reached: refused"
    state.shards[1].connected = False
    state.shards[1].ClearField("describe")
    lines = run("status", "--address", serve(FakeOrchestrator(state=state))).stdout.splitlines()
    assert lines[0] == "shard 1 at v1:50051 can not be reached: refused"
    assert ["1", "?", "down"] in [line.split() for line in lines]


def test_status_of_a_deployment_that_is_starting(serve: Serve) -> None:
    state = pb.GetStatusResponse(model="tiny", problem="starting", shards=[pb.ShardStatus(address="v0:50051")])
    lines = run("status", "--address", serve(FakeOrchestrator(state=state))).stdout.splitlines()
    assert lines[:2] == ["starting", "tiny, not all shards have been seen yet"]


def test_a_second_reading_tells_the_rate_in_between() -> None:
    before, now = deployments.healthy(), deployments.healthy()
    now.output_tokens += 30
    out = io.StringIO()
    Console(file=out, width=100).print(picture(Reading(now, 12.0), Reading(before, 10.0)))
    assert "1 running; 930 tokens since start; 15.0 tok/s" in out.getvalue()


def test_an_orchestrator_that_was_started_anew_has_no_negative_rate() -> None:
    before, now = deployments.healthy(), deployments.healthy()
    now.output_tokens = 0
    out = io.StringIO()
    Console(file=out, width=100).print(picture(Reading(now, 12.0), Reading(before, 10.0)))
    assert "; 0.0 tok/s" in out.getvalue()


async def test_watching_goes_on_while_the_orchestrator_is_away() -> None:
    out = io.StringIO()
    screen = Console(file=out, width=100, force_terminal=True)
    fake = FakeOrchestrator(state=deployments.healthy())
    async with ShardflowClient("127.0.0.1:1") as nobody:
        task = asyncio.create_task(watch(nobody, screen, 0.01))
        await until(lambda: out.getvalue().count("error: nothing answers at 127.0.0.1:1") >= 2)
        task.cancel()
    async with served(fake) as address, ShardflowClient(address) as client:
        task = asyncio.create_task(watch(client, screen, 0.01))
        await until(lambda: "tokens since start; 0.0 tok/s" in out.getvalue())
        task.cancel()


def test_trace_draws_guesses_as_text_and_writes_its_rounds(serve: Serve, tmp_path: Path) -> None:
    replies = answer("a", "b")
    replies[1].rounds.add(
        round_ms=9.0, network_ms=9.0, draft_tokens=[ord("x"), 10], draft_parents=[-1, 0],
        draft_sources=[pb.GUESS_SOURCE_DRAFT, pb.GUESS_SOURCE_TEXT], draft_probabilities=[0.5, 0.25],
    )  # fmt: skip
    fake = FakeOrchestrator(replies)
    options = ("--model", str(write_model(tmp_path / "model")), "--speculation", "tree:8", "--max-tokens", "2")
    result = run("trace", "Hi", "--address", serve(fake), *options, "--json", str(tmp_path / "t.json"))
    assert result.exit_code == 0, result.stderr
    assert '└── "x" 50% d, "\\n" 25% t' in result.stdout
    assert [message.content for message in fake.requests[0].chat.messages] == ["Hi"]
    assert (fake.requests[0].speculation.tree.nodes, fake.requests[0].round_records) == (8, True)
    (round_,) = json.loads((tmp_path / "t.json").read_text())["rounds"]
    assert (round_["round_ms"], round_["draft_sources"]) == (9.0, ["GUESS_SOURCE_DRAFT", "GUESS_SOURCE_TEXT"])


def test_a_conversation_is_sent_as_a_whole_until_it_is_reset(serve: Serve) -> None:
    fake = FakeOrchestrator(answer("Yes", "."))
    result = run(
        "chat", "--address", serve(fake), "--system", "Be brief.", input="One?\n\nTwo?\n/halp\n/reset\nThree?\n/quit\n"
    )
    said = [[(message.role, message.content) for message in request.chat.messages] for request in fake.requests]
    system, yes = ("system", "Be brief."), ("assistant", "Yes.")
    assert said == [
        [system, ("user", "One?")],
        [system, ("user", "One?"), yes, ("user", "Two?")],
        [system, ("user", "Three?")],
    ]
    assert result.exit_code == 0
    assert result.stdout.count("Yes.\n2 tokens in 2 rounds, ") == 3
    assert "1 of 8 guesses accepted" in result.stdout


def test_the_end_of_the_input_ends_a_conversation(serve: Serve) -> None:
    assert run("chat", "--address", serve(FakeOrchestrator(answer("Yes"))), input="One?\n").exit_code == 0


def test_a_question_that_fails_is_not_remembered(serve: Serve) -> None:
    fake = FakeOrchestrator(failure=(grpc.StatusCode.RESOURCE_EXHAUSTED, "no room"))
    result = run("chat", "--address", serve(fake), input="One?\nTwo?\n")
    assert [len(request.chat.messages) for request in fake.requests] == [1, 1]
    assert (result.exit_code, result.stderr.count(": no room\n")) == (0, 2)


def test_chat_shows_sources_in_colour(serve: Serve, screen: io.StringIO) -> None:
    replies = answer("yes", source=pb.TOKEN_SOURCE_ACCEPTED)
    run("chat", "--address", serve(FakeOrchestrator(replies)), input="Really?\n")
    assert "\x1b[32myes\x1b[0m\n" in screen.getvalue()
    assert "/reset forgets the conversation" in screen.getvalue()


def test_ctrl_c_stops_an_answer_and_not_the_conversation(serve: Serve) -> None:
    fake = FakeOrchestrator(answer("Yes")[:0], hang=True)
    lines = iter(["One?", "/quit"])

    def interrupted(prompt: str) -> str:
        line = next(lines)
        if line == "One?":
            threading.Thread(target=interrupt_once_asked, args=(fake,)).start()
        return line

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("builtins.input", interrupted)
        result = run("chat", "--address", serve(fake))
    assert result.exit_code == 0
    assert "stopped; neither question nor answer is remembered" in result.stderr
    assert list(lines) == []


def interrupt_once_asked(fake: FakeOrchestrator) -> None:
    deadline = time.monotonic() + 10
    while not fake.requests and time.monotonic() < deadline:
        time.sleep(0.005)
    os.kill(os.getpid(), signal.SIGINT)


def test_doctor_has_a_line_per_finding_and_exit_code_0(serve: Serve) -> None:
    result = run("doctor", serve(FakeOrchestrator(answer("x"), state=deployments.healthy())))
    assert result.exit_code == 0, result.stdout
    assert {line[:6] for line in result.stdout.splitlines()[:-1]} == {"ok    "}
    assert result.stdout.splitlines()[-1] == "13 findings, no fault"


def test_doctor_ends_with_1_if_anything_is_wrong(serve: Serve) -> None:
    state = deployments.healthy()
    state.links[1].connected = False
    result = run("doctor", serve(FakeOrchestrator(answer("x"), state=state)))
    assert result.exit_code == 1
    faults = [line for line in result.stdout.splitlines() if line.startswith("FAULT ")]
    assert faults == ["FAULT link orchestrator → shard 1 (v1:50051, through the relay r:9000) is down"]
    assert result.stdout.splitlines()[-1] == "13 findings, 1 fault"


def test_bench_compares_modes_and_writes_its_figures(serve: Serve, tmp_path: Path) -> None:
    fake = FakeOrchestrator(answer("x", "y"), state=deployments.healthy())
    prompts, file = tmp_path / "prompts.txt", tmp_path / "bench.json"
    prompts.write_text("Say a\nSay b\nSay c\n")
    flags = ("--modes", "none,linear:4", "--max-tokens", "5", "--limit", "2", "--json", str(file))
    result = run("bench", serve(fake), "--prompts", str(prompts), *flags)
    assert result.exit_code == 0, result.stderr
    asked = [(request.chat.messages[0].content, request.speculation.linear.k) for request in fake.requests[2:]]
    assert asked == [("Say a", 0), ("Say a", 4), ("Say b", 4), ("Say b", 0)]
    figures = json.loads(file.read_text())
    assert (figures["identical"], figures["rtt_ms"], figures["relay_bytes"]) == (True, pytest.approx(86.4), None)
    assert list(figures["arms"]) == ["none", "linear:4"]
    assert (figures["receipt"]["conditions"]["model"], figures["receipt"]["conditions"]["prompts"]) == (
        "tiny",
        "prompts.txt",
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "prompts: .* has no line"),
        ('{"question_id": 1}', "prompts: line 1 is no Spec-Bench entry"),
    ],
)
def test_bench_says_what_it_can_not_read(content: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "prompts"
    file.write_text(content)
    result = run("bench", "--prompts", str(file))
    assert result.exit_code == 1
    assert re.match(f"error: {message}", result.stderr)


def test_the_first_turns_of_spec_bench_are_the_prompts(tmp_path: Path) -> None:
    file = tmp_path / "question.jsonl"
    file.write_text('{"question_id": 81, "category": "writing", "turns": ["Write.", "Rewrite."]}\n')
    assert read_questions(file, chat=True, limit=None) == (Question("writing-81", "Write.", chat=True),)


@pytest.mark.parametrize("value", ["", "none,", "fast", "none,linear:65", "none;auto"])
def test_a_list_of_modes_that_is_none_is_refused(value: str) -> None:
    for command in (["demo"], ["bench", "--prompts", "prompts.txt"]):
        result = run(*command, f"--modes={value}")
        assert result.exit_code == 2
        assert "--modes" in result.stderr


def test_a_mode_that_is_none_is_refused_before_anything_starts() -> None:
    result = run("up", "--speculation", "fast")
    assert result.exit_code == 2
    assert "'fast' is none of" in result.stderr


def test_an_unknown_set_of_prompts_is_refused() -> None:
    result = run("demo", "--prompts", "some")
    assert result.exit_code == 2
    assert "--prompts" in result.stderr


@pytest.mark.parametrize("mode", ["linear:4", "tree:8"])
def test_a_mode_of_the_draft_alone_is_refused_without_a_draft(mode: str) -> None:
    result = run("demo", "--draft", "none", "--modes", f"none,{mode}")
    assert result.exit_code == 2
    assert "without a draft" in result.stderr


def test_a_missing_model_says_how_to_get_one(tmp_path: Path) -> None:
    result = run("demo", "--model", str(tmp_path))
    assert result.exit_code == 1
    assert "make setup" in result.stderr


def test_repeated_modes_count_once() -> None:
    assert flags.modes("none, linear:4,linear:04,auto") == ("none", "linear:4", "auto")
