"""Settings: flags over environment over defaults, parsed once, frozen, all problems reported at once.

The only reader of os.environ.
"""

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NoReturn, TypeVar

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

PREFIX = "SHARDFLOW_"
EXIT_BAD_CONFIG = 64
_ADDRESS = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[\w.-]+):(?P<port>[0-9]{1,5})")


class ServiceSettings(BaseSettings):
    """What every service can be told, as `--flag` or as `SHARDFLOW_FLAG`."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, frozen=True, extra="forbid", cli_kebab_case=True, cli_exit_on_error=False
    )

    listen: str = Field(
        "127.0.0.1:50051", description="Address that the gRPC server binds, host:port; port 0 picks one."
    )
    metrics_listen: str | None = Field(None, description="Address that serves /metrics over HTTP; unset: none.")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        "INFO", description="Least severity that is logged."
    )
    drain_seconds: float = Field(10.0, ge=0, description="Time that running work has to end after SIGTERM, in seconds.")

    @field_validator("listen", "metrics_listen")
    @classmethod
    def _check_address(cls, value: str | None) -> str | None:
        if value is not None:
            split_address(value)
        return value


S = TypeVar("S", bound=ServiceSettings)


def load(settings: type[S], argv: Sequence[str], program: str) -> S:
    """Parses `argv` and the environment into `settings`; prints every problem and exits 64 if there is one."""
    known, unknown = _split_flags(settings, argv)
    problems = [f"{name}: unknown variable" for name in _unknown_variables(settings)]
    problems += [f"{name}: unknown flag" for name in unknown]
    problems += _otlp_problems()
    try:
        loaded = settings(_cli_parse_args=known, _cli_prog_name=program)  # type: ignore[call-arg]
    except ValidationError as error:
        _refuse(program, problems + [_sentence(item["loc"], item["msg"]) for item in error.errors()])
    except SettingsError as error:
        _refuse(program, [*problems, str(error)])
    if problems:
        _refuse(program, problems)
    return loaded


def split_address(address: str) -> tuple[str, int]:
    """Splits `host:port`, an IPv6 host in brackets; ValueError says what is wrong."""
    parts = _ADDRESS.fullmatch(address)
    if parts is None or int(parts["port"]) > 65535:
        raise ValueError(f"{address!r} is not host:port")
    return parts["host"].strip("[]"), int(parts["port"])


def proxy_exclusions() -> list[str]:
    """Host suffixes that the environment keeps away from any proxy; gRPC lets them override a channel's own relay."""
    # Lower case is what gRPC reads.
    value = os.environ.get("no_grpc_proxy") or os.environ.get("no_proxy") or ""  # noqa: SIM112
    return [entry.strip() for entry in value.split(",") if entry.strip()]


def calm_openmp() -> None:
    """Shortens OpenMP's busy waiting, unless the environment says how to wait; to be called before torch is imported.

    Services that take turns on the same cores otherwise steal each other's time: with GNU OpenMP's own choice of up to
    300,000 spins a round on a busy machine took several times as long, with none an idle one took 10 % longer.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "3000")


def otlp_endpoint() -> str | None:
    """Where traces go, by OpenTelemetry's own variables; None if nowhere, which an empty value means too."""
    off = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or os.environ.get("OTEL_TRACES_EXPORTER") == "none"
    endpoint = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    return None if off else endpoint or None


def child_environment(**extra: str) -> dict[str, str]:
    """The environment for a process that we start: ours, without our own settings, with `extra`."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    return {**inherited, **extra}


def _unknown_variables(settings: type[ServiceSettings]) -> list[str]:
    known = {PREFIX + name.upper() for name in settings.model_fields}
    return sorted(name for name in os.environ if name.upper().startswith(PREFIX) and name.upper() not in known)


def _otlp_problems() -> list[str]:
    """What would make an exporter talk to a port that does not understand it."""
    names = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    name = next((name for name in names if os.environ.get(name)), None)
    if name is None or otlp_endpoint() is None or os.environ[name] == "grpc":
        return []
    return [f"{name}: {os.environ[name]!r}, but traces are sent by 'grpc' only"]


def _split_flags(settings: type[ServiceSettings], argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """The arguments of known flags, and the names of unknown ones: the parser would stop at the first of these."""
    names = {"--help", *("--" + name.replace("_", "-") for name in settings.model_fields)}
    known: list[str] = []
    unknown: list[str] = []
    skipping = False  # the value of an unknown flag
    for argument in argv:
        if argument.startswith("--"):
            name = argument.partition("=")[0]
            skipping = name not in names
            unknown += [name] * skipping
        known += [argument] * (not skipping)
    return known, unknown


def _sentence(location: tuple[int | str, ...], message: str) -> str:
    name = str(location[0]) if location else "settings"
    return f"--{name.replace('_', '-')} / {PREFIX}{name.upper()}: {message}"


def _refuse(program: str, problems: list[str]) -> NoReturn:
    for problem in problems:
        sys.stderr.write(f"{program}: {problem}\n")
    raise SystemExit(EXIT_BAD_CONFIG)


@dataclass(frozen=True)
class Peer:
    """Where a peer is dialled: `host:port` directly, or `host:port@relay-host:relay-port` through a relay."""

    address: str
    relay: str | None = None

    @classmethod
    def parse(cls, text: str) -> "Peer":
        """Reads the notation above; ValueError says what is wrong."""
        address, at, relay = text.partition("@")
        split_address(address)
        if at:
            split_address(relay)
        return cls(address, relay or None)

    def __str__(self) -> str:
        return f"{self.address}@{self.relay}" if self.relay else self.address
