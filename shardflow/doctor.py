"""Examines a deployment from the outside: what it says of itself, whether its parts fit, and whether it answers."""

import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass

import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from rich.console import Console

from shardflow import __version__, paint
from shardflow.client import ShardflowClient
from shardflow.errors import InvalidArgument, ShardflowError
from shardflow.status import megabits
from shardflow.transport import check_relay, open_channel
from shardflow.v1.link_pb2 import LinkStatus
from shardflow.v1.orchestrator_pb2 import GetStatusResponse, ShardStatus
from shardflow.v1.tensor_pb2 import ElementType
from shardflow.v1.verifier_pb2 import DescribeResponse

_TIMEOUT_S = 10.0
_ANSWER_TIMEOUT_S = 60.0
_RTT_TRIES = 3
_MAX_CLOCK_MS = 1000.0


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    ok: bool
    text: str


async def examine(address: str) -> AsyncIterator[Finding]:
    """Everything there is to say about the deployment behind the orchestrator at `address`, as it is found out."""
    reached, where = await _reach(address)
    yield where
    if not reached:
        return
    async with ShardflowClient(address) as client:
        try:
            state = await client.status(timeout=_TIMEOUT_S)
        except (ShardflowError, TimeoutError) as error:
            yield Finding(False, f"status: {error}")
            return
        for finding in read(state):
            yield finding
        yield await _answer(client)


async def report(address: str, console: Console) -> int:
    """Prints every finding in a line of its own; returns how many are faults."""
    found = []
    async for finding in examine(address):
        found.append(finding)
        console.print("ok   " if finding.ok else "FAULT", style="green" if finding.ok else "bold red", end=" ")
        paint.say(console, finding.text)
    faults = sum(not finding.ok for finding in found)
    paint.say(console, f"{len(found)} finding{'s' * (len(found) > 1)}, {faults or 'no'} fault{'s' * (faults > 1)}")
    return faults


def read(state: GetStatusResponse) -> Iterator[Finding]:
    """What the state of a deployment tells."""
    described = {index: shard.describe for index, shard in enumerate(state.shards) if shard.HasField("describe")}
    if state.problem:
        yield Finding(False, f"requests are refused: {state.problem}")
    for link in state.links:
        yield _link(link)
    for index in range(len(state.shards)):
        if index not in described:
            yield Finding(False, f"shard {index} has not said what it holds")
    if len(described) == len(state.shards):
        yield _layers(list(described.values()))
    if described:
        yield _weights(described)
        yield _versions(state, described)
    yield _draft(state)
    for index, shard in enumerate(state.shards):
        if shard.HasField("clock_offset_ms"):
            yield _clock(index, shard)
    yield from _proxies(state)


async def _reach(address: str) -> tuple[bool, Finding]:
    """Whether it can be talked to, and how far away it is."""
    best_ms = float("inf")
    async with open_channel(address, relay=None) as channel:
        check = health_pb2_grpc.HealthStub(channel).Check  # type: ignore[attr-defined]
        try:
            for _ in range(_RTT_TRIES):
                started = time.perf_counter()
                health = await check(health_pb2.HealthCheckRequest(), timeout=_TIMEOUT_S)
                best_ms = min(best_ms, (time.perf_counter() - started) * 1000)
        except grpc.aio.AioRpcError as error:
            return False, Finding(False, f"orchestrator {address} can not be reached: {error.details()}")
    if health.status != health_pb2.HealthCheckResponse.SERVING:
        return True, Finding(False, f"orchestrator {address} is not ready")
    return True, Finding(True, f"orchestrator {address} is ready, {best_ms:.1f} ms from here")


def _link(link: LinkStatus) -> Finding:
    way = f"through the relay {link.relay}" if link.relay else "direct"
    name = f"link {link.dialler} → {link.peer} ({link.address}, {way})"
    if not link.connected:
        return Finding(False, f"{name} is down")
    bandwidth = f"at least {megabits(link)} Mbit/s" if link.bytes_per_second else "bandwidth not measured yet"
    return Finding(True, f"{name}: round trip {link.rtt_ms:.1f} ms, {bandwidth}")


def _layers(shards: Sequence[DescribeResponse]) -> Finding:
    """Whether the shards hold every layer once, in order."""
    ranges = ", ".join(f"{shard.first_layer}:{shard.last_layer}" for shard in shards)
    ends = [0, *(shard.last_layer for shard in shards)]
    starts = [*(shard.first_layer for shard in shards), shards[0].num_layers]
    fit = ends == starts
    return Finding(fit, f"layers {ranges} of {shards[0].num_layers}" + ("" if fit else ": gaps or overlaps"))


def _weights(shards: dict[int, DescribeResponse]) -> Finding:
    """Whether all shards were cut from one checkpoint and compute in one element type."""
    kinds = {index: (shard.model_digest[:12], ElementType.Name(shard.dtype)) for index, shard in shards.items()}
    if len(set(kinds.values())) == 1:
        digest, dtype = next(iter(kinds.values()))
        return Finding(True, f"weights: digest {digest}, {_short(dtype)} on all shards")
    differing = ", ".join(f"shard {index} {digest} {_short(dtype)}" for index, (digest, dtype) in kinds.items())
    return Finding(False, f"weights differ: {differing}")


def _versions(state: GetStatusResponse, shards: dict[int, DescribeResponse]) -> Finding:
    versions = {"this command": __version__, "orchestrator": state.version}
    versions |= {f"shard {index}": shard.version for index, shard in shards.items()}
    if state.draft.HasField("describe"):
        versions["draft"] = state.draft.describe.version
    if len(set(versions.values())) == 1:
        return Finding(True, f"versions: {state.version} everywhere")
    return Finding(False, "versions differ: " + ", ".join(f"{part} {version}" for part, version in versions.items()))


def _draft(state: GetStatusResponse) -> Finding:
    if not state.HasField("draft"):
        return Finding(True, "draft: none, every token takes a round trip")
    if state.draft.problem:
        return Finding(False, f"draft is not used: {state.draft.problem}")
    return Finding(True, f"draft {state.draft.model} fits; {state.draft.acceptance:.3f} of its guesses were accepted")


def _clock(index: int, shard: ShardStatus) -> Finding:
    """A wrong clock breaks nothing but the order of logs; less than the measurement's own error is no finding."""
    off, error = shard.clock_offset_ms, shard.clock_error_ms
    ok = abs(off) - error <= _MAX_CLOCK_MS
    return Finding(ok, f"clock of shard {index}: {off:+.0f} ms against the orchestrator's, ±{error:.0f} ms")


def _proxies(state: GetStatusResponse) -> Iterator[Finding]:
    """Whether this environment's proxy variables would lead a service that is started in it around the relay."""
    relayed = {(link.address, link.relay) for link in state.links if link.relay}
    faults = []
    for address, relay in sorted(relayed):
        try:
            check_relay(address, relay)
        except InvalidArgument as error:
            faults.append(Finding(False, f"proxy variables of this environment: {error}"))
    yield from faults
    if relayed and not faults:
        yield Finding(True, "proxy variables of this environment: none would bypass the relay")


async def _answer(client: ShardflowClient) -> Finding:
    """Asks for one token, which takes every shard."""
    started = time.perf_counter()
    try:
        await client.complete("Hello", max_tokens=1, temperature=0.0, timeout=_ANSWER_TIMEOUT_S)
    except (ShardflowError, TimeoutError) as error:
        return Finding(False, f"a request for one token fails: {error}")
    return Finding(True, f"a request for one token is answered after {(time.perf_counter() - started) * 1000:.0f} ms")


def _short(dtype: str) -> str:
    return dtype.removeprefix("ELEMENT_TYPE_")
