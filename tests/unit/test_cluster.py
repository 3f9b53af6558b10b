"""Processes that are started together end together."""

import asyncio
import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from shardflow import cluster
from shardflow.cluster import Cluster, PortTaken, ProcessDied, free_ports, running
from shardflow.errors import InvalidArgument
from shardflow.topology import Command, Plan, Topology

FAKE = Path(__file__).resolve().parents[1] / "fake_process.py"
DIRECT = Topology(delay_ms=None)


def fake(name: str, port: int, ended: Path, manner: str = "polite") -> Command:
    argv = (sys.executable, str(FAKE), name, str(port), str(ended), manner)
    return Command(name, argv, (port,), f"127.0.0.1:{port}")


def script(name: str, code: str, ports: tuple[int, ...] = ()) -> Command:
    """Runs `code`; never ready."""
    return Command(name, (sys.executable, "-c", code), ports, "127.0.0.1:1")


def layout(*commands: Command, relay_admin: str | None = None) -> Plan:
    return Plan(commands, "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3", relay_admin, ())


def plans(monkeypatch: pytest.MonkeyPatch, *layouts: Plan) -> None:
    """Makes `running` start these plans, one after another, whatever it is asked for."""
    left = iter(layouts)
    monkeypatch.setattr(cluster, "plan", lambda *_: next(left))


def alive(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def pids(running_cluster: Cluster) -> list[int]:
    return [process.pid for _, process in running_cluster._processes]


async def test_processes_end_in_reverse_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ended = tmp_path / "ended"
    ports = free_ports(3)
    plans(monkeypatch, layout(*(fake(name, port, ended) for name, port in zip("abc", ports, strict=True))))
    async with running(DIRECT, tmp_path):
        assert not ended.exists()
    assert ended.read_text() == "c\nb\na\n"


async def test_processes_end_when_the_body_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plans(monkeypatch, layout(fake("a", free_ports(1)[0], tmp_path / "ended")))
    with pytest.raises(ZeroDivisionError):
        async with running(DIRECT, tmp_path) as started:
            left = pids(started)
            raise ZeroDivisionError
    assert not any(alive(pid) for pid in left)


async def test_processes_end_when_the_start_is_cancelled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    started = asyncio.Event()
    never_ready = script("b", "import time; time.sleep(60)")
    plans(monkeypatch, layout(fake("a", free_ports(1)[0], tmp_path / "ended"), never_ready))

    async def start() -> None:
        async with running(DIRECT, tmp_path, lambda step: started.set()):
            pass

    task = asyncio.ensure_future(start())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (tmp_path / "ended").read_text() == "a\n"


async def test_a_process_that_will_not_end_is_killed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cluster, "_STOP_TIMEOUT_S", 0.2)
    ended = tmp_path / "ended"
    plans(monkeypatch, layout(fake("a", free_ports(1)[0], ended, "stubborn")))
    async with running(DIRECT, tmp_path) as started:
        left = pids(started)
    assert ended.read_text() == "a\n"
    assert not any(alive(pid) for pid in left)


async def test_each_process_tells_when_it_is_ready(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    steps: list[str] = []
    plans(monkeypatch, layout(fake("a", free_ports(1)[0], tmp_path / "ended")))
    async with running(DIRECT, tmp_path, steps.append):
        pass
    assert [step.split(" after ")[0] for step in steps] == ["a ready"]


async def test_a_process_that_dies_at_the_start_is_reported_with_its_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ended = tmp_path / "ended"
    dying = script("b", "print('no weights here'); raise SystemExit(3)")
    plans(monkeypatch, layout(fake("a", free_ports(1)[0], ended), dying))
    with pytest.raises(ProcessDied, match="b ended with code 3") as caught:
        async with running(DIRECT, tmp_path):
            pass
    assert "no weights here" in str(caught.value)
    assert type(caught.value) is ProcessDied


async def test_a_process_that_dies_later_stops_the_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plans(monkeypatch, layout(fake("a", free_ports(1)[0], tmp_path / "ended")))
    cancelled = asyncio.Event()

    async def work(pid: int) -> None:
        os.kill(pid, 9)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with running(DIRECT, tmp_path) as started:
        with pytest.raises(ProcessDied, match="a ended with code -9"):
            await started.guard(work(pids(started)[0]))
    assert cancelled.is_set()


async def test_guarded_work_gives_its_result_or_its_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plans(monkeypatch, layout(fake("a", free_ports(1)[0], tmp_path / "ended")))

    async def fail() -> None:
        raise ZeroDivisionError

    async with running(DIRECT, tmp_path) as started:
        assert await started.guard(asyncio.sleep(0, "done")) == "done"
        with pytest.raises(ZeroDivisionError):
            await started.guard(fail())


async def test_a_lost_race_for_a_port_is_tried_once_more(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with socket.socket() as quicker:
        quicker.bind(("127.0.0.1", 0))
        quicker.listen()
        taken = quicker.getsockname()[1]
        loser = layout(script("a", "raise SystemExit(1)", (taken,)))
        plans(monkeypatch, loser, layout(fake("b", free_ports(1)[0], tmp_path / "ended")))
        async with running(DIRECT, tmp_path) as started:
            assert [command.name for command in started.plan.commands] == ["b"]


async def test_a_race_that_is_lost_twice_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with socket.socket() as quicker:
        quicker.bind(("127.0.0.1", 0))
        quicker.listen()
        loser = layout(script("a", "raise SystemExit(1)", (quicker.getsockname()[1],)))
        plans(monkeypatch, loser, loser)
        with pytest.raises(PortTaken):
            async with running(DIRECT, tmp_path):
                pass


async def test_settings_of_ours_do_not_reach_the_processes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SHARDFLOW_DTYPE", "float16")
    show = "import os; print(sorted(name for name in os.environ if name.startswith('SHARDFLOW_'))); raise SystemExit(3)"
    plans(monkeypatch, layout(script("a", show)))
    with pytest.raises(ProcessDied, match=r"\n\[\]$"):
        async with running(DIRECT, tmp_path):
            pass


@pytest.mark.parametrize("flag", ["port", "http-port"])
async def test_a_port_that_is_in_use_is_refused_before_anything_starts(flag: str, tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        topology = replace(DIRECT, **{flag.replace("-", "_"): taken})
        with pytest.raises(InvalidArgument, match=f"^{flag}: {taken} is in use"):
            async with running(topology, tmp_path):
                pass


def test_free_ports_are_all_different() -> None:
    assert len(set(free_ports(50))) == 50


METRICS = """# TYPE shardflow_relay_bytes counter
shardflow_relay_bytes_total{route="a:1",direction="up"} 100
shardflow_relay_bytes_total{route="a:1",direction="down"} 20
shardflow_relay_bytes_total{direction="up",route="b:1"} 3
shardflow_relay_tunnels_total{route="a:1"} 2
# EOF
"""


class _Metrics(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/metrics" else 404)
        self.end_headers()
        self.wfile.write(METRICS.encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def relay_admin() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Metrics)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


async def test_the_relays_bytes_are_summed_over_its_routes(relay_admin: str, tmp_path: Path) -> None:
    started = Cluster(layout(relay_admin=relay_admin), tmp_path, lambda step: None)
    assert await started.relay_bytes() == {"up": 103, "down": 20}


async def test_without_a_relay_no_bytes_are_counted(tmp_path: Path) -> None:
    assert await Cluster(layout(), tmp_path, lambda step: None).relay_bytes() == {"up": 0, "down": 0}
