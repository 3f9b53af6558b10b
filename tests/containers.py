"""The system in containers, for tests: one compose project of its own, and looks into what runs in it."""

import asyncio
import subprocess
import time
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import NamedTuple

from shardflow.client import ShardflowClient
from shardflow.cluster import free_ports
from shardflow.config import child_environment
from shardflow.errors import ShardflowError, Unavailable
from shardflow.topology import ROOT

REACH = """
import socket, sys
from concurrent.futures import ThreadPoolExecutor
def reached(address):
    host, port = address.split(":")
    try:
        socket.create_connection((host, int(port)), 2).close()
    except OSError:
        return False
    return True
with ThreadPoolExecutor(16) as pool:
    for address, yes in zip(sys.argv[1:], pool.map(reached, sys.argv[1:])):
        print(address * yes)
"""
FETCH = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=5).read().decode())"
PROMPT = "The three most important inventions of the twentieth century are"
_COMMAND_TIMEOUT_S = 300
_WAIT_S = 120


class Outage(NamedTuple):
    """How a running request ended when a part was killed, and the seconds from the part's restart to the next token."""

    error: ShardflowError
    told_s: float
    back_s: float


def run(*command: str, **variables: str) -> str:
    """Standard output of a command, which must succeed; `variables` are added to its environment."""
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=child_environment(**variables),
        capture_output=True,
        text=True,
        timeout=_COMMAND_TIMEOUT_S,
    )
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout.strip()


def compose_command() -> tuple[str, ...]:
    """Compose v2 where it is installed, else docker-compose."""
    v2 = subprocess.run(["docker", "compose", "version"], capture_output=True)
    return ("docker", "compose") if v2.returncode == 0 else ("docker-compose",)


class Stack:
    """A project that is up, with ports of its own; `files` are compose files, each laid over those before."""

    def __init__(self, project: str, *files: Path) -> None:
        self.project = project
        http, grpc = free_ports(2)
        self.http, self.grpc = f"127.0.0.1:{http}", f"127.0.0.1:{grpc}"
        self._variables = {"COMPOSE_PROJECT_NAME": project, "HTTP_PORT": str(http), "GRPC_PORT": str(grpc)}
        self._command = [*compose_command()]
        for file in files:
            self._command += ["--file", str(file)]
        self.first_token_s = 0.0

    async def up(self, *services: str) -> None:
        """Starts these services, or all, and returns when a request has been answered, `first_token_s` later."""
        began = time.monotonic()
        self.compose("up", "--detach", *services)
        await self.first_token()
        self.first_token_s = time.monotonic() - began

    async def outage(self, service: str) -> Outage:
        """Kills the service's container under a request, starts it again and returns when the next one is answered."""
        async with ShardflowClient(self.grpc) as client:
            error, told_s = await self._cut(client, service)
            run("docker", "start", self.container(service))
            restarted = time.monotonic()
            await self.first_token()
        return Outage(error, told_s, time.monotonic() - restarted)

    async def draft_back(self) -> float:
        """Kills the draft, starts it again; the seconds from its restart to a request that it guessed for."""
        run("docker", "kill", self.container("draft"))
        run("docker", "start", self.container("draft"))
        restarted = time.monotonic()
        async with ShardflowClient(self.grpc) as client, asyncio.timeout(_WAIT_S):
            while not (await client.complete(PROMPT, speculation="linear:2", max_tokens=3)).usage.drafted_tokens:
                pass
        return time.monotonic() - restarted

    async def _cut(self, client: ShardflowClient, service: str) -> tuple[ShardflowError, float]:
        killed = time.monotonic()
        try:
            async with aclosing(client.generate(PROMPT, max_tokens=500, ignore_eos=True, timeout=_WAIT_S)) as chunks:
                await anext(chunks)
                run("docker", "kill", self.container(service))
                killed = time.monotonic()
                async for _ in chunks:
                    pass
        except ShardflowError as error:
            return error, time.monotonic() - killed
        raise AssertionError(f"a request went on without {service}")

    def compose(self, *arguments: str) -> str:
        """Standard output of a compose command on this project."""
        return run(*self._command, *arguments, **self._variables)

    def container(self, service: str) -> str:
        """Id of a service's container, running or not."""
        return run("docker", "ps", "-aq", *self._mine(), "--filter", f"label=com.docker.compose.service={service}")

    def inspect(self, service: str, template: str) -> str:
        """What `docker inspect` says of a service's container."""
        return run("docker", "inspect", "--format", template, self.container(service))

    def addresses(self, service: str) -> list[str]:
        """IP addresses of a service, one per network."""
        return self.inspect(service, "{{range .NetworkSettings.Networks}}{{.IPAddress}} {{end}}").split()

    def python(self, service: str, code: str, *arguments: str) -> str:
        """What a Python program prints that runs inside a service's container."""
        return run("docker", "exec", self.container(service), "python", "-c", code, *arguments)

    def reached(self, service: str, *addresses: str) -> set[str]:
        """Those of the addresses, host:port each, that a service's container can connect to."""
        return set(self.python(service, REACH, *addresses).split())

    def left(self) -> list[str]:
        """Ids of the project's containers, networks and volumes."""
        kinds = (("ps", "-aq"), ("network", "ls", "-q"), ("volume", "ls", "-q"))
        return [found for kind in kinds for found in run("docker", *kind, *self._mine()).split()]

    async def first_token(self) -> None:
        """Returns when a request is answered with a token; AssertionError if that takes two minutes."""
        deadline = time.monotonic() + _WAIT_S
        async with ShardflowClient(self.grpc) as client:
            while (left := deadline - time.monotonic()) > 0:
                try:
                    await client.complete("The capital of France is", max_tokens=1, timeout=left)
                    return
                except (Unavailable, TimeoutError):
                    await asyncio.sleep(0.1)
        raise AssertionError(f"no token within {_WAIT_S} s:\n{self.compose('logs', '--tail=20')}")

    def _mine(self) -> tuple[str, str]:
        return "--filter", f"label=com.docker.compose.project={self.project}"


@contextmanager
def stack(project: str, *files: Path) -> Iterator[Stack]:
    """A project of that name; whatever there is of it at the end is removed."""
    made = Stack(project, *files)
    try:
        yield made
    finally:
        made.compose("down", "--volumes", "--timeout", "5")
