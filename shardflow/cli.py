"""The command line: ask a deployment, look at it, start one here, and show what it does."""

import asyncio
import signal
import tempfile
from collections.abc import Coroutine
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from shardflow import paint
from shardflow.client import Options, ShardflowClient, Usage
from shardflow.cluster import running
from shardflow.demo.play import Show
from shardflow.demo.prompts import CHAT, RAW
from shardflow.demo.run import Schedule
from shardflow.errors import ShardflowError
from shardflow.topology import DEFAULT_DRAFT, DEFAULT_MODEL, Topology
from shardflow.v1.orchestrator_pb2 import GetStatusResponse, ShardStatus

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
console = Console()
errors = Console(stderr=True)

Address = Annotated[str, typer.Option(help="Address of the orchestrator, host:port.")]
Model = Annotated[Path, typer.Option(help="Directory of the target model.")]
DraftOption = Annotated[str, typer.Option("--draft", help="Directory of the draft, or `none`.")]
Delay = Annotated[float, typer.Option(min=0, help="Emulated one-way delay between the two regions, in milliseconds.")]


@app.command()
def generate(
    prompt: Annotated[str, typer.Argument(help="What to say.")],
    address: Address = "127.0.0.1:50051",
    raw: Annotated[bool, typer.Option("--raw", help="Continue the text as it is, without the chat template.")] = False,
    max_tokens: Annotated[int, typer.Option(min=1, help="Tokens to generate at most.")] = 256,
    temperature: Annotated[float, typer.Option(min=0, max=2, help="0 is greedy.")] = 0.0,
    top_p: Annotated[float, typer.Option(min=0, max=1, help="Keep the likeliest tokens up to this probability.")] = 1.0,
    seed: Annotated[int | None, typer.Option(min=0, help="The same seed gives the same text.")] = None,
    stop: Annotated[list[str] | None, typer.Option(help="End before this text; may be repeated.")] = None,
    speculation: Annotated[str | None, typer.Option(help="`none` or `linear:K`; else the deployment's own.")] = None,
    timeout: Annotated[float, typer.Option(help="Seconds for the whole answer.")] = 300.0,
) -> None:
    """Ask for one answer and stream it; in a terminal, colours tell accepted from corrected tokens."""
    options = Options(max_tokens=max_tokens, temperature=temperature, top_p=top_p, stop=stop or [])
    if seed is not None:
        options["seed"] = seed
    if speculation is not None:
        options["speculation"] = speculation
    _run(_generate(address, prompt if raw else [{"role": "user", "content": prompt}], timeout, options))


async def _generate(address: str, prompt: str | list[dict[str, str]], timeout: float, options: Options) -> None:
    async with (
        ShardflowClient(address) as client,
        aclosing(client.generate(prompt, timeout=timeout, **options)) as chunks,
    ):
        async for chunk in chunks:
            for token in chunk.tokens:
                console.print(paint.token_text(token), end="", soft_wrap=True)
            usage = chunk.usage
    console.print()
    if console.is_terminal and usage is not None:
        console.print(paint.legend())
        _say(_usage_line(usage))


def _usage_line(usage: Usage) -> str:
    return (
        f"{usage.completion_tokens} tokens in {usage.rounds} rounds; "
        f"{usage.accepted_tokens} of {usage.drafted_tokens} guesses accepted"
    )


@app.command()
def status(address: Address = "127.0.0.1:50051") -> None:
    """Show what a deployment serves, by which shards, over which links."""
    _show_status(_run(_status(address)))


async def _status(address: str) -> GetStatusResponse:
    async with ShardflowClient(address) as client:
        return await client.status()


def _show_status(state: GetStatusResponse) -> None:
    _say(
        f"{state.model}, {state.num_layers} layers, sessions of up to {state.max_session_tokens} tokens; "
        f"{state.active_requests} running; speculation {state.default_speculation}; version {state.version}"
    )
    grid = Table("shard", "layers", "link", "RTT ms", "sessions", "KV B/token", box=box.SIMPLE_HEAD)
    grid.add_column("dialled", overflow="fold")
    for index, shard in enumerate(state.shards):
        grid.add_row(*_shard_row(index, shard))
    console.print(grid)
    if state.HasField("draft"):
        draft, link = state.draft, _up_or_down(state.draft.connected)
        _say(f"draft {draft.model} at {draft.address}: {link}, acceptance {draft.acceptance:.3f}")
    else:
        _say("no draft")


def _shard_row(index: int, shard: ShardStatus) -> tuple[str, ...]:
    holds = shard.describe
    return (
        str(index),
        f"{holds.first_layer}:{holds.last_layer}",
        _up_or_down(shard.connected),
        f"{shard.rtt_ms:.1f}",
        f"{holds.sessions}/{holds.max_sessions}",
        str(holds.kv_bytes_per_token),
        f"{shard.address}@{shard.relay}" if shard.relay else shard.address,
    )


def _up_or_down(connected: bool) -> str:
    return "up" if connected else "down"


@app.command()
def up(
    model: Model = DEFAULT_MODEL,
    draft: DraftOption = str(DEFAULT_DRAFT),
    shards: Annotated[int, typer.Option(min=1, help="Verifier shards; all but the first stand behind the relay.")] = 2,
    delay_ms: Delay = 43.0,
    direct: Annotated[bool, typer.Option("--direct", help="Without relay and emulated links.")] = False,
    speculation: Annotated[str, typer.Option(help="Default mode, `none` or `linear:K`.")] = "linear:8",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port at which clients meet it.")] = 50051,
) -> None:
    """Start a whole deployment on this machine and keep it until Ctrl-C."""
    topology = Topology(
        model=model,
        draft=_draft(draft),
        shards=shards,
        delay_ms=None if direct else delay_ms,
        speculation=speculation,
        port=port,
    )
    _run(_up(topology, _run_dir()))


async def _up(topology: Topology, run_dir: Path) -> None:
    _say(f"logs: {run_dir}")
    async with running(topology, run_dir, _say) as cluster:
        _say(f"serving at {cluster.address}; metrics at http://{cluster.plan.orchestrator_metrics}/metrics")
        _say(f"try: shardflow generate --address {cluster.address} 'Why is the sky blue?'")
        await cluster.guard(asyncio.Event().wait())


@app.command()
def demo(
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures to this file.")] = None,
    delay_ms: Delay = 43.0,
    prompts: Annotated[str, typer.Option(help="`raw`, `chat` or `all`.")] = "all",
    repetitions: Annotated[int, typer.Option(min=1, help="Of each raw prompt, per mode.")] = 3,
    chat_repetitions: Annotated[int, typer.Option(min=1, help="Of each chat question, per mode.")] = 1,
    k: Annotated[
        str, typer.Option(help="Guesses a round to compare, 0 for no speculation, separated by commas.")
    ] = "0,4,8",
    tokens: Annotated[int, typer.Option(min=2, help="Tokens of each raw answer.")] = 60,
    chat_tokens: Annotated[int, typer.Option(min=2, help="Tokens of a chat answer at most.")] = 16,
    model: Model = DEFAULT_MODEL,
    draft: DraftOption = str(DEFAULT_DRAFT),
) -> None:
    """Start a deployment across an emulated ocean, and measure it with and without speculation."""
    if prompts not in ("raw", "chat", "all"):
        raise typer.BadParameter(f"{prompts!r} is none of raw, chat, all", param_hint="--prompts")
    schedule = Schedule(
        ks=_parse_ks(k),
        raw=RAW if prompts != "chat" else (),
        chat=CHAT if prompts != "raw" else (),
        raw_tokens=tokens,
        chat_tokens=chat_tokens,
        raw_repetitions=repetitions,
        chat_repetitions=chat_repetitions,
    )
    topology = Topology(model, _draft(draft), delay_ms=delay_ms)
    if topology.draft is None and any(schedule.ks):
        raise typer.BadParameter("without a draft only K = 0 can be run", param_hint="--k")
    _run(Show(topology, schedule, console, _run_dir(), json_file).play())


def _say(line: str) -> None:
    console.print(line, highlight=False, markup=False, soft_wrap=True)


def _parse_ks(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and int(part) <= 64 for part in parts):
        raise typer.BadParameter(f"{text!r} is no list of numbers from 0 to 64", param_hint="--k")
    return tuple(dict.fromkeys(int(part) for part in parts))


def _draft(value: str) -> Path | None:
    return None if value == "none" else Path(value)


def _run_dir() -> Path:
    return Path(tempfile.mkdtemp(prefix="shardflow-"))


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    """Runs `work` to its end; an error of ours becomes one message and exit code 1, Ctrl-C and SIGTERM 130."""
    try:
        return asyncio.run(_ended_by_signals(work))
    except (ShardflowError, TimeoutError) as error:
        errors.print(f"error: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
        raise typer.Exit(1) from error
    except (KeyboardInterrupt, asyncio.CancelledError) as error:
        raise typer.Exit(130) from error


async def _ended_by_signals(work: Coroutine[Any, Any, Any]) -> Any:
    task = asyncio.ensure_future(work)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    return await task
