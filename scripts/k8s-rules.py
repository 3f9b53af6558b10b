#!/usr/bin/env python3
"""Writes the alert rules of observability/rules.yml as the custom resources of both monitoring components."""

from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
KINDS = {
    "monitoring-gmp": ("monitoring.googleapis.com/v1", "Rules"),
    "monitoring-operator": ("monitoring.coreos.com/v1", "PrometheusRule"),
}
HEAD = "# Written by scripts/k8s-rules.py from observability/rules.yml.\n"


def render(component: str) -> str:
    """The file `rules.yaml` of a component."""
    version, kind = KINDS[component]
    spec = yaml.safe_load((ROOT / "observability" / "rules.yml").read_text())
    document = {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": "shardflow", "namespace": "shardflow"},
        "spec": spec,
    }
    return HEAD + str(yaml.safe_dump(document, sort_keys=False, width=120))


def main() -> None:
    for component in KINDS:
        (ROOT / "k8s" / "components" / component / "rules.yaml").write_text(render(component))


if __name__ == "__main__":
    main()
