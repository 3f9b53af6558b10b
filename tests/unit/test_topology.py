"""Which processes a deployment on one machine consists of."""

import itertools
import json
import sys
from pathlib import Path

import pytest

from shardflow.errors import InvalidArgument
from shardflow.topology import Command, Topology, num_layers, plan, split_layers

RELAY = Path("/bin/shardflow-relay")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = tmp_path / "model"
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps({"num_hidden_layers": 5}))
    return directory


def flags(command: Command) -> str:
    """The arguments behind the module's or the relay's name, as one line."""
    return " ".join(command.argv[3:] if command.argv[0] == sys.executable else command.argv[1:])


@pytest.mark.parametrize(
    ("layers", "shards", "ranges"),
    [
        (30, 2, ((0, 15), (15, 30))),
        (30, 1, ((0, 30),)),
        (5, 2, ((0, 3), (3, 5))),
        (7, 3, ((0, 3), (3, 5), (5, 7))),
        (3, 3, ((0, 1), (1, 2), (2, 3))),
    ],
)
def test_layers_are_split_evenly(layers: int, shards: int, ranges: tuple[tuple[int, int], ...]) -> None:
    assert split_layers(layers, shards) == ranges


@pytest.mark.parametrize("shards", [0, 4])
def test_a_split_that_leaves_a_shard_empty_is_refused(shards: int) -> None:
    with pytest.raises(InvalidArgument, match="3 layers"):
        split_layers(3, shards)


def test_a_directory_without_a_config_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="make setup"):
        num_layers(tmp_path)


def test_the_second_shard_stands_behind_relay_and_link(model: Path) -> None:
    draft = Path("/draft")
    layout = plan(Topology(model, draft, delay_ms=43.0, threads=1), itertools.count(1), RELAY)
    assert [(command.name, flags(command)) for command in layout.commands] == [
        (
            "relay",
            "serve --listen 127.0.0.1:3 --admin 127.0.0.1:4 "
            "--route verifier-1.shardflow.internal:50051=127.0.0.1:5 --drain-seconds 2",
        ),
        ("wanlink-1", "wanlink --listen 127.0.0.1:5 --to 127.0.0.1:2 --admin 127.0.0.1:6 --delay-ms 43"),
        (
            "verifier-0",
            "--listen 127.0.0.1:1 --metrics-listen 127.0.0.1:7 --drain-seconds 2 "
            f"--model {model} --layers 0:3 --dtype float32 "
            "--next verifier-1.shardflow.internal:50051@127.0.0.1:3 --threads 1",
        ),
        (
            "verifier-1",
            "--listen 127.0.0.1:2 --metrics-listen 127.0.0.1:8 --drain-seconds 2 "
            f"--model {model} --layers 3:5 --dtype float32 --threads 1",
        ),
        (
            "draft",
            "--listen 127.0.0.1:9 --metrics-listen 127.0.0.1:10 --drain-seconds 2 "
            f"--model /draft --target {model} --threads 1",
        ),
        (
            "orchestrator",
            "--listen 127.0.0.1:11 --metrics-listen 127.0.0.1:12 --drain-seconds 2 --http-listen 127.0.0.1:13 "
            f"--model {model} --shards 127.0.0.1:1,verifier-1.shardflow.internal:50051@127.0.0.1:3 "
            "--draft 127.0.0.1:9 --speculation auto",
        ),
    ]
    assert (layout.orchestrator, layout.orchestrator_metrics) == ("127.0.0.1:11", "127.0.0.1:12")
    assert (layout.http, layout.commands[-1].ports) == ("127.0.0.1:13", (11, 12, 13))
    assert (layout.relay_admin, layout.link_admins) == ("127.0.0.1:4", ("127.0.0.1:6",))


def test_direct_mode_has_neither_relay_nor_links(model: Path) -> None:
    layout = plan(Topology(model, None, delay_ms=None), itertools.count(1), None)
    assert [command.name for command in layout.commands] == ["verifier-0", "verifier-1", "orchestrator"]
    assert "--next 127.0.0.1:2" in flags(layout.commands[0])
    assert "--shards 127.0.0.1:1,127.0.0.1:2" in flags(layout.commands[2])
    assert (layout.relay_admin, layout.link_admins) == (None, ())


def test_without_a_draft_the_mode_stays(model: Path) -> None:
    layout = plan(Topology(model, None, delay_ms=None), itertools.count(1), None)
    assert flags(layout.commands[-1]).endswith("--speculation auto")
    assert "--draft" not in flags(layout.commands[-1])


def test_every_remote_shard_has_a_link_of_its_own(model: Path) -> None:
    layout = plan(Topology(model, None, shards=3), itertools.count(1), RELAY)
    assert [command.name for command in layout.commands] == [
        "relay", "wanlink-1", "wanlink-2", "verifier-0", "verifier-1", "verifier-2", "orchestrator",
    ]  # fmt: skip
    assert flags(layout.commands[0]).count("--route") == 2
    assert "--next verifier-2.shardflow.internal:50051@127.0.0.1:4" in flags(layout.commands[4])


def test_given_layers_stand_before_an_even_split(model: Path) -> None:
    layout = plan(Topology(model, None, layers=((0, 1), (1, 5)), delay_ms=None), itertools.count(1), None)
    assert "--layers 0:1 " in flags(layout.commands[0])
    assert "--layers 1:5 " in flags(layout.commands[1])


def test_clients_meet_the_orchestrator_at_the_given_ports(model: Path) -> None:
    layout = plan(Topology(model, None, delay_ms=None, port=50051, http_port=8000), itertools.count(1), None)
    assert layout.orchestrator == layout.commands[-1].health == "127.0.0.1:50051"
    assert layout.http == "127.0.0.1:8000"
    assert "--http-listen 127.0.0.1:8000" in flags(layout.commands[-1])


def test_one_shard_needs_no_link(model: Path) -> None:
    layout = plan(Topology(model, None, shards=1), itertools.count(1), RELAY)
    assert [command.name for command in layout.commands] == ["verifier-0", "orchestrator"]


def test_services_are_ready_when_healthy_at_their_own_address(model: Path) -> None:
    layout = plan(Topology(model, None), itertools.count(1), RELAY)
    assert {command.name: command.health for command in layout.commands} == {
        "relay": None,
        "wanlink-1": None,
        "verifier-0": "127.0.0.1:1",
        "verifier-1": "127.0.0.1:2",
        "orchestrator": "127.0.0.1:9",
    }
