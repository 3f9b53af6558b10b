"""Runs a whole deployment as processes of this machine, and ends every one of them whatever happens."""

import asyncio
import re
import signal
import socket
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from shardflow.config import child_environment
from shardflow.errors import InvalidArgument, ShardflowError
from shardflow.topology import ROOT, Command, Plan, Topology, plan, relay_binary
from shardflow.transport import open_channel

START_TIMEOUT_S = 180.0
_STOP_TIMEOUT_S = 5.0
_TAIL_LINES = 15
_RELAY_BYTES = re.compile(r'^shardflow_relay_bytes_total\{.*direction="(up|down)".*\} (\d+)', re.MULTILINE)
_ENVIRONMENT = {
    # Else a machine whose no_proxy covers our made-up names would make gRPC go around the relay.
    "no_grpc_proxy": "localhost",
}

T = TypeVar("T")
OnStep = Callable[[str], None]


class ProcessDied(ShardflowError):
    """A process of the cluster ended by itself; the message holds the end of its log."""


class PortTaken(ProcessDied):
    """A process of the cluster ended because another program was quicker to bind one of its ports."""


class Cluster:
    """The running processes of one plan. Made by `running`."""

    def __init__(self, layout: Plan, run_dir: Path, on_step: OnStep) -> None:
        self.plan = layout
        self.address = layout.orchestrator
        self.playground = f"http://{layout.http}/"
        self.run_dir = run_dir
        self._on_step = on_step
        self._processes: list[tuple[Command, asyncio.subprocess.Process]] = []

    async def start(self) -> None:
        """Starts all processes and returns when each is ready; ProcessDied, PortTaken or TimeoutError if one is not."""
        started = time.monotonic()
        for command in self.plan.commands:
            self._processes.append((command, await self._spawn(command)))
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await self.guard(self._ready(started))
        except TimeoutError as error:
            raise TimeoutError(f"not ready within {START_TIMEOUT_S:g} s; logs: {self.run_dir}") from error

    async def guard(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs `work`; as soon as a process ends by itself, cancels it and raises ProcessDied."""
        working = asyncio.ensure_future(work)
        deaths = {asyncio.ensure_future(process.wait()): command for command, process in self._processes}
        try:
            await asyncio.wait([working, *deaths], return_when=asyncio.FIRST_COMPLETED)
            dead = next((command for death, command in deaths.items() if death.done()), None)
            if dead is not None:
                raise self._obituary(dead)
            return working.result()
        finally:
            for task in (working, *deaths):
                task.cancel()
            await asyncio.gather(working, *deaths, return_exceptions=True)

    async def stop(self) -> None:
        """Ends all processes, last started first: SIGTERM, and SIGKILL for one that does not end in 5 s."""
        try:
            for _, process in reversed(self._processes):
                await _end(process)
        finally:
            for _, process in self._processes:
                if process.returncode is None:
                    process.kill()

    async def end(self, name: str) -> None:
        """Ends one process, as a fault; outside `guard`, which would report it."""
        _, process = self._find(name)
        await _end(process)

    async def restart(self, name: str) -> None:
        """Starts a process that has ended again, on the same ports; returns without waiting until it is ready."""
        entry = self._find(name)
        self._processes[self._processes.index(entry)] = (entry[0], await self._spawn(entry[0]))

    async def relay_bytes(self) -> dict[str, int]:
        """Bytes that the relay has carried so far, `up` (towards the shards) and `down`; zero in direct mode."""
        total = {"up": 0, "down": 0}
        if self.plan.relay_admin is None:
            return total
        text = await asyncio.to_thread(_fetch, f"http://{self.plan.relay_admin}/metrics")
        for direction, value in _RELAY_BYTES.findall(text):
            total[direction] += int(value)
        return total

    def log(self, name: str) -> Path:
        """Where the output of a process goes."""
        return self.run_dir / f"{name}.log"

    async def _spawn(self, command: Command) -> asyncio.subprocess.Process:
        with self.log(command.name).open("ab") as log:
            # A session of its own: Ctrl-C reaches only us, and we end the processes in order.
            return await asyncio.create_subprocess_exec(
                *command.argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=asyncio.subprocess.STDOUT,
                cwd=ROOT,
                env=child_environment(**_ENVIRONMENT),
                start_new_session=True,
            )

    async def _ready(self, started: float) -> None:
        async def one(name: str, address: str) -> None:
            await _until_serving(address)
            self._on_step(f"{name} ready after {time.monotonic() - started:.1f} s")

        async with asyncio.TaskGroup() as group:
            for command in self.plan.commands:
                if command.health is not None:
                    group.create_task(one(command.name, command.health))

    def _find(self, name: str) -> tuple[Command, asyncio.subprocess.Process]:
        return next(entry for entry in self._processes if entry[0].name == name)

    def _obituary(self, command: Command) -> ProcessDied:
        _, process = self._find(command.name)
        log = self.log(command.name)
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-_TAIL_LINES:])
        kind = ProcessDied if all(_can_bind(port) for port in command.ports) else PortTaken
        return kind(f"{command.name} ended with code {process.returncode}; the end of {log}:\n{tail}")


@asynccontextmanager
async def running(topology: Topology, run_dir: Path, on_step: OnStep = lambda step: None) -> AsyncIterator[Cluster]:
    """A cluster that is ready; its logs go to `run_dir`. A start that loses the race for a port is tried once more."""
    cluster = _prepare(topology, run_dir, on_step)
    try:
        try:
            await cluster.start()
        except PortTaken:
            await cluster.stop()
            cluster = _prepare(topology, run_dir, on_step)
            await cluster.start()
        yield cluster
    finally:
        await cluster.stop()


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on at this moment, all different."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


def _prepare(topology: Topology, run_dir: Path, on_step: OnStep) -> Cluster:
    relay = None if topology.delay_ms is None else relay_binary()
    for flag, port in (("port", topology.port), ("http-port", topology.http_port)):
        if port is not None and not _can_bind(port):
            raise InvalidArgument(f"{flag}: {port} is in use")
    run_dir.mkdir(parents=True, exist_ok=True)
    return Cluster(plan(topology, iter(free_ports(8 + 4 * len(topology.layer_ranges()))), relay), run_dir, on_step)


async def _until_serving(address: str) -> None:
    request = health_pb2.HealthCheckRequest()
    async with open_channel(address, relay=None) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        while True:
            try:
                async for answer in stub.Watch(request, wait_for_ready=True):  # type: ignore[attr-defined]
                    if answer.status == health_pb2.HealthCheckResponse.SERVING:
                        return
            except grpc.aio.AioRpcError:
                # The connection broke before the process was up; whether it lives is watched elsewhere.
                continue


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(_STOP_TIMEOUT_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def _can_bind(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _fetch(url: str) -> str:
    # Without the proxies of the environment: this is loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=5) as response:
        return str(response.read().decode())
