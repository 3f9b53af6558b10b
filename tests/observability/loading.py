"""What several of these tests read: scripts as modules, Prometheus's folder, the dashboard's queries."""

import importlib.util
import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[2]
OBSERVABILITY = ROOT / "observability"
DASHBOARD = OBSERVABILITY / "grafana" / "dashboards" / "shardflow.json"


@cache
def script(name: str) -> ModuleType:
    """`scripts/NAME.py`, imported."""
    spec = importlib.util.spec_from_file_location(name.replace("-", "_"), ROOT / "scripts" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@cache
def prometheus_folder() -> Path:
    """Where `prometheus` and `promtool` are."""
    done = subprocess.run([ROOT / "scripts" / "prometheus.sh"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


def panels() -> list[dict[str, Any]]:
    """The dashboard's panels, rows left out."""
    return [panel for panel in json.loads(DASHBOARD.read_text())["panels"] if panel["type"] != "row"]


def queries() -> list[tuple[str, str]]:
    """Title and PromQL of every query of the dashboard."""
    return [(panel["title"], target["expr"]) for panel in panels() for target in panel["targets"]]
