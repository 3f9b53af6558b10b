"""How a deployment stands, as a picture in a terminal: shards, KV, links, acceptance, tokens per second."""

import asyncio
import time
from dataclasses import dataclass

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from shardflow.client import ShardflowClient
from shardflow.errors import ShardflowError
from shardflow.v1.link_pb2 import LinkStatus
from shardflow.v1.orchestrator_pb2 import GetStatusResponse, ShardStatus

_MEGABIT = 125_000


@dataclass(frozen=True)
class Reading:
    """What the orchestrator said, and when (seconds on the monotonic clock)."""

    state: GetStatusResponse
    at: float


async def read(client: ShardflowClient) -> Reading:
    """Asks once; errors are those of the client."""
    return Reading(await client.status(), time.monotonic())


async def watch(client: ShardflowClient, console: Console, interval_s: float) -> None:
    """Draws the state again and again until it is cancelled; an orchestrator that is away may come back."""
    before: Reading | None = None
    with Live(console=console, auto_refresh=False) as live:
        while True:
            try:
                now = await read(client)
                live.update(picture(now, before), refresh=True)
                before = now
            except (ShardflowError, TimeoutError) as error:
                before = None
                live.update(Text(f"error: {error}", style="red"), refresh=True)
            await asyncio.sleep(interval_s)


def picture(now: Reading, before: Reading | None = None) -> Group:
    """The state; with a reading before it, what happened in between as rates."""
    state = now.state
    lines = (*_served(state), _work(now, before), _draft(state))
    parts = [Text(line) for line in lines]
    if state.problem:
        parts.insert(0, Text(state.problem, style="red"))
    return Group(*parts, _shards(state), _links(state))


def _served(state: GetStatusResponse) -> tuple[str, str]:
    size = f"{state.num_layers} layers, sessions of up to {state.max_session_tokens} tokens"
    return (
        f"{state.model}, {size if state.num_layers else 'not all shards have been seen yet'}",
        f"speculation {state.default_speculation}; version {state.version}",
    )


def _work(now: Reading, before: Reading | None) -> str:
    state = now.state
    line = f"{state.active_requests} running; {state.output_tokens} tokens since start"
    if before is None:
        return line
    rate = (state.output_tokens - before.state.output_tokens) / (now.at - before.at)
    return f"{line}; {max(0.0, rate):.1f} tok/s"  # less than nothing: it was started anew in between


def _draft(state: GetStatusResponse) -> str:
    if not state.HasField("draft"):
        return "no draft"
    draft = state.draft
    if not draft.connected:
        return f"draft {draft.model or draft.address}: {draft.problem}"
    return (
        f"draft {draft.model}: {state.accepted_tokens} of {state.drafted_tokens} guesses accepted since start "
        f"({draft.acceptance:.3f})"
    )


def _shards(state: GetStatusResponse) -> Table:
    grid = Table("shard", "layers", "state", "sessions", "KV tokens", "KV MB", "KV used", box=box.SIMPLE_HEAD)
    for index, shard in enumerate(state.shards):
        grid.add_row(str(index), *_shard_row(shard))
    return grid


def _shard_row(shard: ShardStatus) -> tuple[str, ...]:
    holds = shard.describe
    up = "up" if shard.connected else "down"
    if not shard.HasField("describe"):
        return ("?", up, "", "", "", "")
    room = holds.max_sessions * holds.max_session_tokens
    return (
        f"{holds.first_layer}:{holds.last_layer}",
        up,
        f"{holds.sessions}/{holds.max_sessions}",
        str(holds.kv_tokens),
        f"{holds.kv_tokens * holds.kv_bytes_per_token / 1e6:.1f}",
        f"{holds.kv_tokens / room:.1%}",
    )


def _links(state: GetStatusResponse) -> Table:
    grid = Table("link", "state", "RTT ms", "Mbit/s ≥", "way", box=box.SIMPLE_HEAD)
    for link in state.links:
        up = "up" if link.connected else "down"
        way = f"relay {link.relay}" if link.relay else "direct"
        grid.add_row(f"{link.dialler} → {link.peer}", up, f"{link.rtt_ms:.1f}", megabits(link), way)
    return grid


def megabits(link: LinkStatus) -> str:
    """The bandwidth that a link surely has, in Mbit/s; `?` before it was measured."""
    return f"{link.bytes_per_second / _MEGABIT:.0f}" if link.bytes_per_second else "?"
