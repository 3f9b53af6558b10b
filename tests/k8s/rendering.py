"""Renders the overlays with any components, as `kubectl apply -k` would, without a cluster."""

import itertools
import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

K8S = Path(__file__).parents[2] / "k8s"
OVERLAYS = ("local", "gke-t4/region-a", "gke-t4/region-b", "gke-t4/relay")
CHOICES = ("monitoring-gmp", "monitoring-operator", "network-policies", "spot")
COMBINATIONS = [
    (overlay, chosen)
    for overlay in OVERLAYS
    for size in range(len(CHOICES) + 1)
    for chosen in itertools.combinations(CHOICES, size)
]
WORKLOADS = ("Deployment", "StatefulSet")

Document = dict[str, Any]


@cache
def render(overlay: str, components: tuple[str, ...] = ()) -> list[Document]:
    """All documents of `overlay` with `components`; needs kubectl (its kustomize needs no cluster)."""
    with TemporaryDirectory() as folder:
        tree = shutil.copytree(K8S, Path(folder) / "k8s")
        chosen = tree / "chosen"
        chosen.mkdir()
        kustomization = {
            "resources": [f"../overlays/{overlay}"],
            "components": [f"../components/{name}" for name in components],
        }
        (chosen / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
        done = subprocess.run(["kubectl", "kustomize", str(chosen)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def of_kind(documents: list[Document], *kinds: str) -> list[Document]:
    """The documents of these kinds."""
    return [document for document in documents if document["kind"] in kinds]


def pods(documents: list[Document]) -> list[tuple[str, Document]]:
    """Name and pod template of each workload."""
    return [(each["metadata"]["name"], each["spec"]["template"]) for each in of_kind(documents, *WORKLOADS)]


def containers(template: Document) -> list[Document]:
    """All containers of a pod template, those that run first included."""
    return [*template["spec"].get("initContainers", []), *template["spec"]["containers"]]


def environment(documents: list[Document], container: Document) -> dict[str, str]:
    """The variables that a container gets, as the kubelet puts them together; without those of secrets."""
    maps = {each["metadata"]["name"]: each["data"] for each in of_kind(documents, "ConfigMap")}
    variables: dict[str, str] = {}
    for source in container.get("envFrom", []):
        if "configMapRef" in source:
            variables |= maps[source["configMapRef"]["name"]]
    return variables | {each["name"]: each["value"] for each in container.get("env", [])}
