"""Under which conditions a figure was taken: commit, versions, machine, date."""

import datetime
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from shardflow.topology import ROOT

_PACKAGES = ("shardflow", "grpcio", "protobuf", "tokenizers", "torch", "transformers")


def receipt(**conditions: Any) -> dict[str, Any]:
    """What is needed to judge or repeat a run; `conditions` are its own settings."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in _PACKAGES}},
        "machine": {
            "cores": len(os.sched_getaffinity(0)),
            "model": _cpu_model(),
            "kernel": f"{platform.system()} {platform.release()}",
        },
        "conditions": conditions,
    }


def _commit() -> str | None:
    """The checked-out commit, with `-dirty` if files differ from it; None outside a repository."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())
