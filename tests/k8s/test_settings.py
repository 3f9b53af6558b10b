"""The processes accept what their manifests tell them, and the parts of a deployment tell the same story."""

import asyncio
import json
import re
from pathlib import Path

import pytest

from services.draft.config import DraftSettings
from services.orchestrator.config import OrchestratorSettings
from services.verifier.config import VerifierSettings
from shardflow.config import ServiceSettings, child_environment, load
from shardflow.topology import relay_binary
from tests.k8s.rendering import OVERLAYS, containers, environment, of_kind, pods, render

SETTINGS: dict[str, type[ServiceSettings]] = {
    "orchestrator": OrchestratorSettings,
    "draft": DraftSettings,
    "verifier": VerifierSettings,
}
DEPLOYMENTS = {"local": ("local",), "gke-t4": ("gke-t4/region-a", "gke-t4/region-b", "gke-t4/relay")}
LAYERS = {"local": 30, "gke-t4": 28}


def main_environments(overlay: str) -> dict[str, tuple[str, dict[str, str]]]:
    """Workload -> name of its container and the variables that it gets."""
    documents = render(overlay)
    found = {}
    for name, template in pods(documents):
        (container,) = template["spec"]["containers"]
        found[name] = (container["name"], environment(documents, container))
    return found


def of_deployment(deployment: str) -> dict[str, dict[str, str]]:
    return {
        name: variables
        for overlay in DEPLOYMENTS[deployment]
        for name, (_, variables) in main_environments(overlay).items()
    }


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_services_accept_their_variables(overlay: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, (kind, variables) in main_environments(overlay).items():
        if kind == "relay":
            continue
        with monkeypatch.context() as patch:
            for variable, value in variables.items():
                # Model directories are looked for: one that exists stands in for them.
                patch.setenv(variable, str(tmp_path) if value.startswith("/models/") else value)
            settings = load(SETTINGS[kind], [], name)
        assert settings.listen == "0.0.0.0:50051"
        assert settings.metrics_listen == "0.0.0.0:9090"


@pytest.mark.parametrize("overlay", ["local", "gke-t4/relay"])
async def test_the_relay_accepts_its_variables(overlay: str) -> None:
    _, variables = main_environments(overlay)["relay"]
    process = await asyncio.create_subprocess_exec(
        str(relay_binary()), "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0",
        stdout=asyncio.subprocess.PIPE, env=child_environment(**variables),
    )  # fmt: skip
    try:
        assert process.stdout is not None
        async with asyncio.timeout(10):
            line = json.loads(await process.stdout.readline())
        assert line["message"] == "listening"
    finally:
        process.terminate()
        await process.wait()


LISTENS = {
    "grpc": "SHARDFLOW_LISTEN",
    "http": "SHARDFLOW_HTTP_LISTEN",
    "metrics": "SHARDFLOW_METRICS_LISTEN",
    "relay": "SHARDFLOW_RELAY_LISTEN",
}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_ports_are_those_that_are_listened_on(overlay: str) -> None:
    documents = render(overlay)
    for name, template in pods(documents):
        (container,) = template["spec"]["containers"]
        variables = environment(documents, container)
        listens = LISTENS | ({"metrics": "SHARDFLOW_RELAY_ADMIN"} if name == "relay" else {})
        for port in container["ports"]:
            assert variables[listens[port["name"]]] == f"0.0.0.0:{port['containerPort']}"


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_the_shards_hold_every_layer_once(deployment: str) -> None:
    variables = of_deployment(deployment)
    shards = [variables[name] for name in sorted(variables) if name.startswith("verifier")]
    ends = [tuple(map(int, each["SHARDFLOW_LAYERS"].split(":"))) for each in shards]
    assert [first for first, _ in ends] == [0, *(end for _, end in ends[:-1])]
    assert ends[-1][1] == LAYERS[deployment]
    assert len({each["SHARDFLOW_MODEL"] for each in shards}) == 1


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_everybody_dials_the_same_shards(deployment: str) -> None:
    variables = of_deployment(deployment)
    dialled = variables["orchestrator"]["SHARDFLOW_SHARDS"].split(",")
    assert variables["verifier-0"]["SHARDFLOW_NEXT"] == dialled[1]
    assert "SHARDFLOW_NEXT" not in variables["verifier-1"]
    name, upstream = variables["relay"]["SHARDFLOW_RELAY_ROUTES"].split("=")
    assert dialled[1].split("@")[0] == name
    services = {each["metadata"]["name"] for each in of_kind(render(DEPLOYMENTS[deployment][0]), "Service")}
    assert dialled[0].split(":")[0] in services
    assert variables["orchestrator"]["SHARDFLOW_DRAFT"].split(":")[0] in services
    assert deployment != "local" or upstream.split(":")[0] in services


def expand(argument: str, variables: dict[str, str]) -> str:
    """`$(NAME)` replaced, as the kubelet does."""
    return re.sub(r"\$\((\w+)\)", lambda match: variables[match[1]], argument)


@pytest.mark.parametrize("overlay", ["gke-t4/region-a", "gke-t4/region-b"])
def test_each_process_brings_the_weights_that_it_uses(overlay: str) -> None:
    documents = render(overlay)
    for name, template in pods(documents):
        first, main = containers(template)
        variables = environment(documents, first)
        arguments = [expand(each, variables) for each in first["args"]]
        given = dict(zip(arguments[1::2], arguments[2::2], strict=True))
        assert arguments[0] == variables["MODEL_REPO"]
        assert re.fullmatch("[0-9a-f]{40}", given["--revision"]), "a branch could change between two shards"
        assert given["--out"] == environment(documents, main)["SHARDFLOW_MODEL"]
        expected = {"orchestrator": "none", "draft": "all"}.get(name) or variables["SHARDFLOW_LAYERS"]
        assert given["--layers"] == expected
