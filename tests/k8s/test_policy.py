"""What every pod of every combination must keep to: least privilege, no secret, probes, an orderly end."""

import re

import pytest

from tests.k8s.rendering import COMBINATIONS, OVERLAYS, containers, environment, of_kind, pods, render

SECRET = re.compile(r"(?i)(token|password|secret|api_?keys?|credential)")


@pytest.fixture(params=COMBINATIONS, ids=lambda each: "+".join((each[0], *each[1])))
def documents(request: pytest.FixtureRequest) -> list[dict]:
    return render(*request.param)


def test_every_container_is_confined(documents: list[dict]) -> None:
    for name, template in pods(documents):
        for container in containers(template):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, (name, container["name"])


def test_every_pod_is_restricted(documents: list[dict]) -> None:
    for name, template in pods(documents):
        spec = template["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["runAsUser"] == 10001
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is False
        assert spec["enableServiceLinks"] is False
        assert not spec.keys() & {"hostNetwork", "hostPID", "hostIPC"}
        assert all(volume.keys() & {"emptyDir"} for volume in spec.get("volumes", []))
        assert all("hostPort" not in port for each in containers(template) for port in each.get("ports", []))


def test_the_namespace_refuses_less(documents: list[dict]) -> None:
    (namespace,) = of_kind(documents, "Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_memory_is_bounded_and_pods_can_be_placed(documents: list[dict]) -> None:
    for _, template in pods(documents):
        for container in containers(template):
            resources = container["resources"]
            assert resources["limits"]["memory"] == resources["requests"]["memory"]
            assert "cpu" in resources["requests"]
            assert "cpu" not in resources["limits"]  # throttling would make every round wait
            gpu = "nvidia.com/gpu"
            assert resources["limits"].get(gpu) == resources["requests"].get(gpu)


def test_no_secret(documents: list[dict]) -> None:
    assert of_kind(documents, "Secret") == []
    for _, template in pods(documents):
        for container in containers(template):
            assert [name for name in environment(documents, container) if SECRET.search(name)] == []


def test_probes(documents: list[dict]) -> None:
    for name, template in pods(documents):
        (container,) = template["spec"]["containers"]
        start, live, ready = (container[f"{kind}Probe"] for kind in ("startup", "liveness", "readiness"))
        if name == "relay":
            assert start["httpGet"]["path"] == live["httpGet"]["path"] == "/live"
            assert ready["httpGet"]["path"] == "/ready"
        else:
            assert start["grpc"] == live["grpc"] == {"port": 50051, "service": "liveness"}
            assert ready["grpc"] == {"port": 50051}


def test_the_drain_ends_before_the_grace_does(documents: list[dict]) -> None:
    for _, template in pods(documents):
        (container,) = template["spec"]["containers"]
        variables = environment(documents, container)
        drain = float(variables.get("SHARDFLOW_DRAIN_SECONDS") or variables["SHARDFLOW_RELAY_DRAIN_SECONDS"])
        waits = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        assert waits + drain + 5 <= template["spec"]["terminationGracePeriodSeconds"]


def test_no_service_whose_variables_would_look_like_settings(documents: list[dict]) -> None:
    names = [each["metadata"]["name"] for each in of_kind(documents, "Service")]
    assert [name for name in names if name.startswith("shardflow")] == []


def test_every_image_has_a_version_and_none_is_always_pulled(documents: list[dict]) -> None:
    for _, template in pods(documents):
        for container in containers(template):
            assert re.search(r"shardflow[-/](orchestrator|draft|verifier|relay|model):[\w.-]+$", container["image"])
            assert container["imagePullPolicy"] == "IfNotPresent"


@pytest.mark.parametrize("overlay", OVERLAYS[1:])
def test_in_the_cloud_the_version_is_pinned(overlay: str) -> None:
    for _, template in pods(render(overlay)):
        assert all(container["image"].endswith(":0.1.0") for container in containers(template))


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_one_process_is_evicted_at_a_time(overlay: str) -> None:
    documents = render(overlay)
    (budget,) = of_kind(documents, "PodDisruptionBudget")
    assert budget["spec"]["maxUnavailable"] == 1
    chosen = budget["spec"]["selector"]["matchLabels"].items()
    assert all(chosen <= template["metadata"]["labels"].items() for _, template in pods(documents))


@pytest.mark.parametrize("overlay", OVERLAYS[1:])
def test_what_the_sites_dial_is_not_public(overlay: str) -> None:
    balancers = [each for each in of_kind(render(overlay), "Service") if each["spec"].get("type") == "LoadBalancer"]
    for service in balancers:
        assert service["metadata"]["annotations"]["networking.gke.io/load-balancer-type"] == "Internal"
        assert service["spec"]["loadBalancerSourceRanges"] == ["10.0.0.0/8"]
        assert "metrics" not in [port["targetPort"] for port in service["spec"]["ports"]]
    assert len(balancers) == (0 if overlay.endswith("region-a") else 1)
