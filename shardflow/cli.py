"""The command line: ask a deployment, look at it, measure it, start one here, and show what it does."""

import asyncio
import signal
import tempfile
from collections.abc import Coroutine
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from shardflow import doctor as doctors
from shardflow import flags, paint
from shardflow import status as statuses
from shardflow import trace as traces
from shardflow.answering import show
from shardflow.bench import Bench
from shardflow.chat import chat as converse
from shardflow.client import Options, Prompt, ShardflowClient
from shardflow.cluster import running
from shardflow.demo.play import Show
from shardflow.demo.prompts import CHAT, RAW
from shardflow.demo.run import Schedule
from shardflow.distilling import distill
from shardflow.errors import ShardflowError
from shardflow.speculation import Mode
from shardflow.tokenizer import Tokenizer
from shardflow.topology import DEFAULT_DRAFT, DEFAULT_MODEL, Topology

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.command()(distill)
console = Console()
errors = Console(stderr=True)

_ADDRESS = "127.0.0.1:50051"


@app.command()
def generate(
    prompt: Annotated[str, typer.Argument(help="What to say.")],
    address: flags.Address = _ADDRESS,
    raw: flags.Raw = False,
    max_tokens: flags.MaxTokens = 256,
    temperature: flags.Temperature = 0.0,
    top_p: flags.TopP = 1.0,
    seed: flags.Seed = None,
    stop: Annotated[list[str] | None, typer.Option(help="End before this text; may be repeated.")] = None,
    speculation: flags.Speculation = None,
    timeout: flags.Timeout = 300.0,
) -> None:
    """Ask for one answer and stream it; in a terminal, colours tell accepted from corrected tokens."""
    options = flags.options(max_tokens, temperature, top_p, seed, speculation)
    options["stop"] = stop or []
    _run(_generate(address, flags.prompt(prompt, raw), timeout, options))


async def _generate(address: str, prompt: Prompt, timeout: float, options: Options) -> None:
    async with (
        ShardflowClient(address) as client,
        aclosing(client.generate(prompt, timeout=timeout, **options)) as chunks,
    ):
        shown = await show(chunks, console)
    if console.is_terminal:
        console.print(paint.legend())
        _say(shown.summary())


@app.command()
def trace(
    prompt: Annotated[str, typer.Argument(help="What to say.")],
    address: flags.Address = _ADDRESS,
    raw: flags.Raw = False,
    max_tokens: flags.MaxTokens = 32,
    temperature: flags.Temperature = 0.0,
    top_p: flags.TopP = 1.0,
    seed: flags.Seed = None,
    speculation: flags.Speculation = None,
    model: Annotated[Path | None, typer.Option(help="Directory whose tokenizer shows guesses as text.")] = None,
    timeout: flags.Timeout = 300.0,
    json_file: flags.JsonFile = None,
) -> None:
    """Ask for one answer and draw each round: the tree of guesses, what was accepted, where the time went."""
    options = flags.options(max_tokens, temperature, top_p, seed, speculation)
    _run(_trace(address, flags.prompt(prompt, raw), timeout, options, model, json_file))


async def _trace(
    address: str, prompt: Prompt, timeout: float, options: Options, model: Path | None, json_file: Path | None
) -> None:
    tokenizer = None if model is None else Tokenizer(model)
    async with ShardflowClient(address) as client:
        rounds = await traces.trace(client, prompt, timeout, options, console, tokenizer)
    if json_file is not None:
        traces.write(rounds, json_file)


@app.command()
def chat(
    address: flags.Address = _ADDRESS,
    system: Annotated[str, typer.Option(help="What the model is told before all else.")] = "",
    max_tokens: flags.MaxTokens = 512,
    temperature: flags.Temperature = 0.0,
    top_p: flags.TopP = 1.0,
    seed: flags.Seed = None,
    speculation: flags.Speculation = None,
    timeout: flags.Timeout = 300.0,
) -> None:
    """Talk: each line is a question; /reset forgets the conversation, /quit ends it, Ctrl-C stops an answer."""
    converse(
        address, system, timeout, flags.options(max_tokens, temperature, top_p, seed, speculation), console, errors
    )


@app.command()
def status(
    address: flags.Address = _ADDRESS,
    watch: Annotated[bool, typer.Option("--watch", help="Go on, with rates, until Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 1.0,
) -> None:
    """Show what a deployment serves, by which shards, over which links, and how fast."""
    _run(_status(address, interval if watch else None))


async def _status(address: str, interval_s: float | None) -> None:
    async with ShardflowClient(address) as client:
        if interval_s is None:
            console.print(statuses.picture(await statuses.read(client)))
        else:
            await statuses.watch(client, console, interval_s)


@app.command()
def doctor(address: flags.Where = _ADDRESS) -> None:
    """Examine a deployment from the outside, one line per finding; exit code 1 if anything is wrong."""
    if _run(doctors.report(address, console)):
        raise typer.Exit(1)


@app.command()
def bench(
    prompts: Annotated[Path, typer.Option(help="Spec-Bench's JSON lines (first turns), or one prompt a line.")],
    address: flags.Where = _ADDRESS,
    modes: flags.Modes = "none,auto",
    max_tokens: flags.MaxTokens = 64,
    repetitions: Annotated[int, typer.Option(min=1, help="Of each prompt, per mode.")] = 1,
    limit: Annotated[int | None, typer.Option(min=1, help="Use only the first prompts of the file.")] = None,
    raw: flags.Raw = False,
    json_file: flags.JsonFile = None,
) -> None:
    """Measure a deployment on a file of prompts, all modes side by side; greedy, so that the texts must be the same."""
    work = Bench(address, prompts, flags.modes(modes), max_tokens, repetitions, limit, raw, json_file)
    _run(work.run(console))


@app.command()
def up(
    model: flags.Model = DEFAULT_MODEL,
    draft: flags.DraftOption = str(DEFAULT_DRAFT),
    shards: Annotated[int, typer.Option(min=1, help="Verifier shards; all but the first stand behind the relay.")] = 2,
    delay_ms: flags.Delay = 43.0,
    direct: Annotated[bool, typer.Option("--direct", help="Without relay and emulated links.")] = False,
    speculation: flags.DefaultSpeculation = "auto",
    port: flags.Port = 50051,
    http_port: flags.HttpPort = 8000,
) -> None:
    """Start a whole deployment on this machine and keep it until Ctrl-C."""
    topology = Topology(
        model=model,
        draft=_draft(draft),
        shards=shards,
        delay_ms=None if direct else delay_ms,
        speculation=speculation,
        port=port,
        http_port=http_port,
    )
    _run(_up(topology, _run_dir()))


async def _up(topology: Topology, run_dir: Path) -> None:
    _say(f"starting a deployment; logs: {run_dir}")
    async with running(topology, run_dir, _say) as cluster:
        _say(f"serving at {cluster.address}; metrics at http://{cluster.plan.orchestrator_metrics}/metrics")
        _say(f"OpenAI API at {cluster.playground}v1, playground at {cluster.playground}")
        _say(f"try: shardflow chat --address {cluster.address}")
        await cluster.guard(asyncio.Event().wait())


@app.command()
def demo(
    json_file: flags.JsonFile = None,
    delay_ms: flags.Delay = 43.0,
    prompts: Annotated[str, typer.Option(help="`raw`, `chat` or `all`.")] = "all",
    repetitions: Annotated[int, typer.Option(min=1, help="Of each raw prompt, per mode.")] = 3,
    chat_repetitions: Annotated[int, typer.Option(min=1, help="Of each chat question, per mode.")] = 1,
    modes: flags.Modes = "none,linear:4,auto",
    tokens: Annotated[int, typer.Option(min=2, help="Tokens of each raw answer.")] = 60,
    chat_tokens: Annotated[int, typer.Option(min=2, help="Tokens of a chat answer at most.")] = 16,
    model: flags.Model = DEFAULT_MODEL,
    draft: flags.DraftOption = str(DEFAULT_DRAFT),
) -> None:
    """Start a deployment across an emulated ocean, and measure it with and without speculation."""
    if prompts not in ("raw", "chat", "all"):
        raise typer.BadParameter(f"{prompts!r} is none of raw, chat, all", param_hint="--prompts")
    schedule = Schedule(
        modes=flags.modes(modes),
        raw=RAW if prompts != "chat" else (),
        chat=CHAT if prompts != "raw" else (),
        raw_tokens=tokens,
        chat_tokens=chat_tokens,
        raw_repetitions=repetitions,
        chat_repetitions=chat_repetitions,
    )
    topology = Topology(model, _draft(draft), delay_ms=delay_ms)
    if topology.draft is None and any(Mode.parse(mode).kind in ("linear", "tree") for mode in schedule.modes):
        raise typer.BadParameter("without a draft neither `linear:K` nor `tree:N` can be run", param_hint="--modes")
    _run(Show(topology, schedule, console, _run_dir(), json_file).play())


def _say(line: str) -> None:
    paint.say(console, line)


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
