"""Settings: flags over environment over defaults; every problem is reported at once, and the process ends with 64."""

import os
from typing import Literal

import pytest

from services.orchestrator.config import OrchestratorSettings
from shardflow.config import (
    Peer,
    ServiceSettings,
    calm_openmp,
    child_environment,
    load,
    otlp_endpoint,
    proxy_exclusions,
    split_address,
)
from shardflow.speculation import Mode


class Settings(ServiceSettings):
    """For these tests."""

    size: int
    colour: Literal["red", "blue"] = "red"


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in child_environment().keys() & {"no_proxy", "no_grpc_proxy"}:
        monkeypatch.delenv(name)


def refusal(capsys: pytest.CaptureFixture[str], *flags: str) -> list[str]:
    """The lines on standard error of a process that ends with 64."""
    with pytest.raises(SystemExit) as caught:
        load(Settings, flags, "prog")
    assert caught.value.code == 64
    return capsys.readouterr().err.splitlines()


def test_defaults() -> None:
    settings = load(Settings, ["--size", "3"], "prog")
    assert (settings.listen, settings.metrics_listen, settings.log_level) == ("127.0.0.1:50051", None, "INFO")
    assert (settings.size, settings.colour, settings.drain_seconds) == (3, "red", 10.0)


def test_flags_over_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDFLOW_SIZE", "4")
    monkeypatch.setenv("SHARDFLOW_COLOUR", "blue")
    settings = load(Settings, ["--size", "3"], "prog")
    assert (settings.size, settings.colour) == (3, "blue")


def test_settings_are_frozen() -> None:
    settings = load(Settings, ["--size=3"], "prog")
    with pytest.raises(ValueError, match="frozen"):
        settings.size = 4  # type: ignore[misc]


def test_unknown_variable(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDFLOW_SIZ", "4")
    assert refusal(capsys, "--size", "3") == ["prog: SHARDFLOW_SIZ: unknown variable"]


def test_unknown_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert refusal(capsys, "--size", "3", "--siz", "4") == ["prog: --siz: unknown flag"]


def test_missing_value(capsys: pytest.CaptureFixture[str]) -> None:
    assert refusal(capsys) == ["prog: --size / SHARDFLOW_SIZE: Field required"]


def test_all_problems_at_once(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDFLOW_OTHER", "1")
    monkeypatch.setenv("SHARDFLOW_LOG_LEVEL", "LOUD")
    lines = refusal(capsys, "--size", "x", "--drain-seconds=-1", "--listen", "here", "--what", "1")
    assert [line.split(": ")[1] for line in lines] == [
        "SHARDFLOW_OTHER",
        "--what",
        "--listen / SHARDFLOW_LISTEN",
        "--log-level / SHARDFLOW_LOG_LEVEL",
        "--drain-seconds / SHARDFLOW_DRAIN_SECONDS",
        "--size / SHARDFLOW_SIZE",
    ]


@pytest.mark.parametrize("address", ["here", "127.0.0.1", ":1", "h:65536", "h:x", "https://h:1", "h:1@r:2"])
def test_addresses_that_are_none(capsys: pytest.CaptureFixture[str], address: str) -> None:
    (line,) = refusal(capsys, "--size", "1", "--metrics-listen", address)
    assert f"{address!r} is not host:port" in line


@pytest.mark.parametrize(
    ("address", "parts"),
    [("h:0", ("h", 0)), ("a-b.c:65535", ("a-b.c", 65535)), ("127.0.0.1:1", ("127.0.0.1", 1)), ("[::1]:2", ("::1", 2))],
)
def test_split_address(address: str, parts: tuple[str, int]) -> None:
    assert split_address(address) == parts


@pytest.mark.parametrize(
    ("text", "peer"), [("h:1", Peer("h:1")), ("h.internal:1@127.0.0.1:2", Peer("h.internal:1", "127.0.0.1:2"))]
)
def test_peers(text: str, peer: Peer) -> None:
    assert Peer.parse(text) == peer
    assert str(peer) == text


@pytest.mark.parametrize("text", ["h", "h:1@", "h:1@r", "@r:1", "h:1@https://r:1", "h:1@r:1@s:1"])
def test_what_is_no_peer(text: str) -> None:
    with pytest.raises(ValueError, match="is not host:port"):
        Peer.parse(text)


def test_settings_of_the_orchestrator() -> None:
    flags = ["--model", "m", "--shards", "a:1, b.internal:2@r:3", "--draft", "d:4", "--speculation", "linear:4"]
    settings = load(OrchestratorSettings, flags, "prog")
    assert settings.shards == (Peer("a:1"), Peer("b.internal:2", "r:3"))
    assert (settings.draft, settings.speculation) == (Peer("d:4"), Mode("linear", 4))


def test_settings_of_the_orchestrator_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"MODEL": "m", "SHARDS": "a:1,b:2", "DRAFT": "d:4", "SPECULATION": "none"}.items():
        monkeypatch.setenv(f"SHARDFLOW_{name}", value)
    settings = load(OrchestratorSettings, [], "prog")
    assert settings.shards == (Peer("a:1"), Peer("b:2"))
    assert (settings.draft, settings.speculation) == (Peer("d:4"), Mode("none"))


def test_problems_of_the_orchestrators_settings(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        load(OrchestratorSettings, ["--model=m", "--shards=a:1,b", "--draft=d", "--speculation=linear:99"], "prog")
    assert capsys.readouterr().err.splitlines() == [
        "prog: --shards / SHARDFLOW_SHARDS: Value error, 'b' is not host:port",
        "prog: --draft / SHARDFLOW_DRAFT: Value error, 'd' is not host:port",
        "prog: --speculation / SHARDFLOW_SPECULATION: Value error, "
        "'linear:99' is none of `none`, `linear:K`, `tree:N`, `lookup` or `auto`, with K and N from 1 to 64",
    ]


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, []),
        ({"no_proxy": "a, .b ,"}, ["a", ".b"]),
        ({"no_proxy": "a", "no_grpc_proxy": "c"}, ["c"]),
    ],
)
def test_proxy_exclusions(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: list[str]) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert proxy_exclusions() == expected


def test_the_environment_of_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDFLOW_SIZE", "4")
    monkeypatch.setenv("OTHER", "kept")
    environment = child_environment(EXTRA="1")
    assert (environment["OTHER"], environment["EXTRA"]) == ("kept", "1")
    assert "SHARDFLOW_SIZE" not in environment


@pytest.mark.parametrize(
    ("before", "after"),
    [({}, "3000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "ACTIVE"}, None)],
)
def test_openmp_is_calmed_unless_told_how_to_wait(
    monkeypatch: pytest.MonkeyPatch, before: dict[str, str], after: str | None
) -> None:
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in before.items():
        monkeypatch.setenv(name, value)
    calm_openmp()
    assert os.environ.get("GOMP_SPINCOUNT") == after


@pytest.mark.parametrize(
    ("variables", "endpoint"),
    [
        ({}, None),
        ({"ENDPOINT": ""}, None),
        ({"ENDPOINT": "http://a:1"}, "http://a:1"),
        ({"TRACES_ENDPOINT": "http://b:1", "ENDPOINT": "http://a:1"}, "http://b:1"),
        ({"TRACES_ENDPOINT": "", "ENDPOINT": "http://a:1"}, "http://a:1"),
    ],
)
def test_where_traces_go(variables: dict[str, str], endpoint: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{name}", value)
    assert otlp_endpoint() == endpoint


@pytest.mark.parametrize(("name", "value"), [("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_EXPORTER", "none")])
def test_traces_that_are_turned_off(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:1")
    monkeypatch.setenv(name, value)
    assert otlp_endpoint() is None


def test_a_protocol_that_traces_do_not_speak(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    assert load(Settings, ["--size", "3"], "prog").size == 3  # without an endpoint it is nobody's affair
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:1")
    assert refusal(capsys, "--size", "3") == [
        "prog: OTEL_EXPORTER_OTLP_PROTOCOL: 'http/protobuf', but traces are sent by 'grpc' only"
    ]
