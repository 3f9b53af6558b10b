"""The command line, against an orchestrator that says what a test wrote down."""

import asyncio
import io
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from shardflow import cli
from shardflow.v1 import orchestrator_pb2 as pb
from shardflow.v1 import verifier_pb2
from tests.fake_orchestrator import FakeOrchestrator, answer, served

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


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli.app, arguments)


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


def test_a_terminal_shows_sources_in_colour_with_a_legend(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(
        cli, "console", Console(file=screen, force_terminal=True, color_system="standard", width=100, no_color=False)
    )
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


def test_status_shows_each_shard_and_the_draft(serve: Serve) -> None:
    holds = verifier_pb2.DescribeResponse(
        first_layer=15, last_layer=30, sessions=2, max_sessions=64, kv_bytes_per_token=23040
    )
    shard = pb.ShardStatus(address="v1:50051", relay="r:9000", connected=True, rtt_ms=86.24, describe=holds)
    draft = pb.DraftStatus(address="d:1", connected=False, model="head", acceptance=0.25)
    state = pb.GetStatusResponse(
        model="tiny", num_layers=30, max_session_tokens=4096, shards=[shard], draft=draft,
        active_requests=1, version="0.1.0", default_speculation="linear:8",
    )  # fmt: skip
    result = run("status", "--address", serve(FakeOrchestrator(state=state)))
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert result.exit_code == 0
    assert lines[0] == "tiny, 30 layers, sessions of up to 4096 tokens; 1 running; speculation linear:8; version 0.1.0"
    assert "0 15:30 up 86.2 2/64 23040 v1:50051@r:9000" in lines
    assert lines[-1] == "draft head at d:1: down, acceptance 0.250"


@pytest.mark.parametrize("value", ["", "x", "0,65", "-1", "0;4"])
def test_a_list_of_k_that_is_none_is_refused(value: str) -> None:
    result = run("demo", f"--k={value}")
    assert result.exit_code == 2
    assert "--k" in result.stderr


def test_an_unknown_set_of_prompts_is_refused() -> None:
    result = run("demo", "--prompts", "some")
    assert result.exit_code == 2
    assert "--prompts" in result.stderr


def test_speculation_without_a_draft_is_refused() -> None:
    result = run("demo", "--draft", "none")
    assert result.exit_code == 2
    assert "without a draft" in result.stderr


def test_a_missing_model_says_how_to_get_one(tmp_path: Path) -> None:
    result = run("demo", "--model", str(tmp_path))
    assert result.exit_code == 1
    assert "make setup" in result.stderr


def test_repeated_k_count_once() -> None:
    assert cli._parse_ks("0, 4,4,8") == (0, 4, 8)
