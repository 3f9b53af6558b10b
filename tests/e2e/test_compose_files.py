"""The compose files, without running them: each combination is valid, and names only what there is."""

import re
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml

from services.draft.config import DraftSettings
from services.orchestrator.config import OrchestratorSettings
from services.verifier.config import VerifierSettings
from shardflow.topology import ROOT
from tests.containers import compose_command, run

pytestmark = pytest.mark.compose

FILES = sorted(ROOT.glob("compose*.yaml"))
COMBINATIONS = [(), ("gpu",), ("observability",), ("gpu", "observability")]
SETTINGS = {
    "orchestrator": OrchestratorSettings,
    "draft": DraftSettings,
    "verifier-0": VerifierSettings,
    "verifier-1": VerifierSettings,
}


@pytest.fixture(params=COMBINATIONS, ids="+".join)
def services(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What compose makes of the base file and some overlays."""
    files = [ROOT / "compose.yaml", *(ROOT / f"compose.{overlay}.yaml" for overlay in request.param)]
    flags = chain.from_iterable(("--file", str(file)) for file in files)
    return dict(yaml.safe_load(run(*compose_command(), *flags, "config"))["services"])


def test_services_are_told_only_what_they_know(services: dict[str, Any]) -> None:
    for name, settings in SETTINGS.items():
        variables = services[name]["environment"].keys() - {"OTEL_EXPORTER_OTLP_ENDPOINT"}
        told = {variable.removeprefix("SHARDFLOW_").lower() for variable in variables}
        assert told <= set(settings.model_fields), name


def test_only_what_watches_mounts_files_of_the_repository(services: dict[str, Any]) -> None:
    mounts = [(name, mount) for name, service in services.items() for mount in service.get("volumes", [])]
    sources = [(name, mount["source"] if isinstance(mount, dict) else mount.split(":")[0]) for name, mount in mounts]
    paths = {Path(source): name for name, source in sources if source.startswith("/")}
    assert set(paths.values()) == services.keys() & {"prometheus", "grafana"}
    assert [path for path in paths if not path.exists()] == []


def test_every_container_is_confined(services: dict[str, Any]) -> None:
    for name, service in services.items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert "mem_limit" in service, name


def test_every_image_is_ours_or_pinned(services: dict[str, Any]) -> None:
    for name, service in services.items():
        image, _, tag = service["image"].partition(":")
        assert image.startswith("shardflow-") or re.fullmatch(r"v?\d+\.\d+\.\d+", tag), name


def test_an_image_is_built_before_another_service_needs_it(services: dict[str, Any]) -> None:
    """Else docker-compose 1.29 looks for it in a registry."""

    def builds(name: str, image: str) -> bool:
        service = services[name]
        built = "build" in service and service["image"] == image
        return built or any(builds(other, image) for other in service.get("depends_on", {}))

    for name, service in services.items():
        if service["image"].startswith("shardflow-"):
            assert builds(name, service["image"]), name


def test_every_process_that_computes_has_a_gpu_of_its_own(services: dict[str, Any]) -> None:
    with_gpu = {
        name: device["device_ids"]
        for name, service in services.items()
        for device in service.get("deploy", {}).get("resources", {}).get("reservations", {}).get("devices", [])
    }
    assert with_gpu in ({}, {"verifier-0": ["0"], "verifier-1": ["1"], "draft": ["2"]})
    assert bool(with_gpu) is ("draft-model" in services)


def test_env_example_lists_every_variable_with_its_default() -> None:
    used = dict(chain.from_iterable(re.findall(r"\$\{(\w+):-([^}]*)\}", file.read_text()) for file in FILES))
    listed = dict(re.findall(r"^#? ?([A-Z_]+)=(.*)$", (ROOT / ".env.example").read_text(), re.MULTILINE))
    assert listed == used
