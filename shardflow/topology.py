"""A deployment on one machine, as data: which processes with which flags. Pure but for a look at the model's config."""

import itertools
import json
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from shardflow.errors import InvalidArgument

ROOT = Path(__file__).resolve().parents[1]
DEFAULT_MODEL = ROOT / "models" / "smollm2-135m-instruct"
DEFAULT_DRAFT = ROOT / "models" / "smollm2-eagle"
_RELAY_BINARY = ROOT / "relay" / "target" / "release" / "shardflow-relay"
# A local process has nothing to lose; what still runs after this is ended.
_DRAIN_FLAGS = ("--drain-seconds", "2")


@dataclass(frozen=True)
class Topology:
    """What to start. All shards but the first stand in another region, behind the relay and an emulated link each."""

    model: Path = DEFAULT_MODEL
    draft: Path | None = DEFAULT_DRAFT
    shards: int = 2
    layers: tuple[tuple[int, int], ...] | None = None
    """[shards] layers of each shard, end excluded; None: an even split."""
    delay_ms: float | None = 43.0
    """One-way delay of each link between regions; None: no relay and no links, processes dial each other directly."""
    speculation: str = "linear:2"
    dtype: str = "float32"
    threads: int | None = None
    """Threads of each process that computes; None: its own default."""
    port: int | None = None
    """Port of the orchestrator's gRPC API; None: a free one."""
    http_port: int | None = None
    """Port of the OpenAI API and the playground; None: a free one."""
    modules: Mapping[str, str] = field(default_factory=dict)
    """Modules to run in place of a service's own, by service; for stand-ins."""

    def layer_ranges(self) -> tuple[tuple[int, int], ...]:
        """[shards] first and end layer of each shard."""
        return self.layers or split_layers(num_layers(self.model), self.shards)


@dataclass(frozen=True)
class Command:
    """One process: what to run, the ports it binds, and the gRPC address whose health says that it is ready."""

    name: str
    argv: tuple[str, ...]
    ports: tuple[int, ...]
    health: str | None = None


@dataclass(frozen=True)
class Plan:
    """The processes in the order in which to start them, and where to talk to them."""

    commands: tuple[Command, ...]
    orchestrator: str
    http: str
    orchestrator_metrics: str
    relay_admin: str | None
    link_admins: tuple[str, ...]


def num_layers(model: Path) -> int:
    """Layers of a model directory; InvalidArgument if there is no usable `config.json`."""
    try:
        return int(json.loads((model / "config.json").read_text())["num_hidden_layers"])
    except (OSError, ValueError, KeyError) as error:
        raise InvalidArgument(f"model: {model} is no model directory ({error!r}); `make setup` makes one") from error


def split_layers(layers: int, shards: int) -> tuple[tuple[int, int], ...]:
    """Splits `layers` as evenly as possible; earlier shards hold the odd ones."""
    if not 1 <= shards <= layers:
        raise InvalidArgument(f"shards: {layers} layers can not be split over {shards}")
    ends = [-(-layers * index // shards) for index in range(shards + 1)]
    return tuple(itertools.pairwise(ends))


def relay_binary() -> Path:
    """The relay built in this checkout, or the one on PATH; InvalidArgument if there is none."""
    found = _RELAY_BINARY if _RELAY_BINARY.exists() else shutil.which("shardflow-relay")
    if found is None:
        raise InvalidArgument(f"relay: neither {_RELAY_BINARY} nor shardflow-relay on PATH; `make setup` builds it")
    return Path(found)


def plan(topology: Topology, ports: Iterator[int], relay: Path | None) -> Plan:
    """The processes of `topology`, bound to `ports`; `relay` is the binary, unused in direct mode."""
    ranges = topology.layer_ranges()
    shard_ports = [next(ports) for _ in ranges]
    dialled = [_local(port) for port in shard_ports]
    commands: list[Command] = []
    relay_admin: str | None = None
    link_admins: tuple[str, ...] = ()
    if topology.delay_ms is not None and len(ranges) > 1:
        network, dialled, relay_admin, link_admins = _network(topology.delay_ms, shard_ports, ports, str(relay))
        commands += network
    for index in range(len(ranges)):
        following = dialled[index + 1] if index + 1 < len(ranges) else None
        commands.append(_verifier(topology, index, ranges[index], (shard_ports[index], next(ports)), following))
    if topology.draft is not None:
        commands.append(_draft(topology, topology.draft, (next(ports), next(ports))))
    draft = commands[-1].health if topology.draft is not None else None
    listen, metrics, http = topology.port or next(ports), next(ports), topology.http_port or next(ports)
    commands.append(_orchestrator(topology, dialled, draft, (listen, metrics, http)))
    return Plan(tuple(commands), _local(listen), _local(http), _local(metrics), relay_admin, link_admins)


def _network(
    delay_ms: float, shard_ports: list[int], ports: Iterator[int], relay: str
) -> tuple[list[Command], list[str], str, tuple[str, ...]]:
    """The relay and its links; also how each shard is dialled then, and the admin addresses of relay and links."""
    listen, admin = next(ports), next(ports)
    dialled, routes, links, link_admins = [_local(shard_ports[0])], [], [], []
    for index, shard_port in enumerate(shard_ports[1:], start=1):
        link_port, link_admin = next(ports), next(ports)
        name = f"verifier-{index}.shardflow.internal:50051"
        dialled.append(f"{name}@{_local(listen)}")
        routes += ["--route", f"{name}={_local(link_port)}"]
        link_admins.append(_local(link_admin))
        ends = ("--listen", _local(link_port), "--to", _local(shard_port), "--admin", _local(link_admin))
        argv = (relay, "wanlink", *ends, "--delay-ms", f"{delay_ms:g}")
        links.append(Command(f"wanlink-{index}", argv, (link_port, link_admin)))
    serve = (relay, "serve", "--listen", _local(listen), "--admin", _local(admin), *routes, *_DRAIN_FLAGS)
    return [Command("relay", serve, (listen, admin)), *links], dialled, _local(admin), tuple(link_admins)


def _verifier(
    topology: Topology, index: int, layers: tuple[int, int], ports: tuple[int, int], following: str | None
) -> Command:
    flags = ["--model", str(topology.model), "--layers", f"{layers[0]}:{layers[1]}", "--dtype", topology.dtype]
    if following is not None:
        flags += ["--next", following]
    return _service(topology, "verifier", f"verifier-{index}", ports, [*flags, *_threads(topology)])


def _draft(topology: Topology, draft: Path, ports: tuple[int, int]) -> Command:
    flags = ["--model", str(draft), "--target", str(topology.model), *_threads(topology)]
    return _service(topology, "draft", "draft", ports, flags)


def _orchestrator(topology: Topology, dialled: list[str], draft: str | None, ports: tuple[int, int, int]) -> Command:
    flags = ["--http-listen", _local(ports[2]), "--model", str(topology.model), "--shards", ",".join(dialled)]
    if draft is not None:
        flags += ["--draft", draft]
    mode = topology.speculation if draft is not None else "none"
    return _service(topology, "orchestrator", "orchestrator", ports, [*flags, "--speculation", mode])


def _service(topology: Topology, service: str, name: str, ports: tuple[int, ...], flags: list[str]) -> Command:
    module = topology.modules.get(service, f"services.{service}")
    listen = ("--listen", _local(ports[0]), "--metrics-listen", _local(ports[1]))
    argv = (sys.executable, "-m", module, *listen, *_DRAIN_FLAGS, *flags)
    return Command(name, argv, ports, _local(ports[0]))


def _threads(topology: Topology) -> list[str]:
    return [] if topology.threads is None else ["--threads", str(topology.threads)]


def _local(port: int) -> str:
    return f"127.0.0.1:{port}"
