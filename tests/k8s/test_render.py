"""Every overlay with every choice of components is valid, strictly, for two versions of Kubernetes."""

import json
from functools import cache
from pathlib import Path

import jsonschema
import pytest
import yaml
from jsonschema import Draft202012Validator
from kubernetes_validate.utils import schema_contents
from referencing import Registry, Resource

from tests.k8s.custom_resources import SCHEMAS
from tests.k8s.rendering import COMBINATIONS, K8S, OVERLAYS, Document, of_kind, render

VERSIONS = ("1.31", "1.34")


@cache
def registry(version: str) -> Registry:
    """The bundled definitions of a version, indexed once; the package itself would for each document."""
    definitions = schema_contents(f"kubernetes-json-schema/v{version}.0-local-strict/_definitions.json", version)
    return (Resource.from_contents(definitions) @ Registry()).crawl()


@cache
def validate(document: str, version: str) -> None:
    """Once for each different document: most are the same in many combinations."""
    data = json.loads(document)
    group, _, number = data["apiVersion"].rpartition("/")
    name = "-".join([data["kind"].lower(), *([group.split(".")[0]] if group else []), number])
    schema = schema_contents(f"kubernetes-json-schema/v{version}.0-local-strict/{name}.json", version)
    Draft202012Validator(schema, registry=registry(version)).validate(data)


def check(document: Document, version: str) -> None:
    schema = SCHEMAS.get((document["apiVersion"], document["kind"]))
    if schema is not None:
        jsonschema.validate(document, schema)
    else:
        validate(json.dumps(document), version)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("overlay", "components"), COMBINATIONS)
def test_valid(overlay: str, components: tuple[str, ...], version: str) -> None:
    for document in render(overlay, components):
        check(document, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_misspelt_field_is_found(version: str) -> None:
    document = json.loads(json.dumps(of_kind(render("local"), "StatefulSet")[0]))
    document["spec"]["template"]["spec"]["containers"][0]["readinesProbe"] = {}
    with pytest.raises(jsonschema.ValidationError, match="readinesProbe"):
        check(document, version)


def test_every_component_is_used_or_offered() -> None:
    known = {path.parent.name for path in K8S.glob("components/*/kustomization.yaml")}
    offered = {name for _, components in COMBINATIONS for name in components}
    files = [yaml.safe_load(path.read_text()) for path in K8S.glob("overlays/**/kustomization.yaml")]
    used = {Path(each).name for file in files for each in file.get("components", [])}
    assert known == offered | used


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_names_meet(overlay: str) -> None:
    """What a document refers to by name is there."""
    documents = render(overlay)
    names = {(each["kind"], each["metadata"]["name"]) for each in documents}
    for workload in of_kind(documents, "StatefulSet", "Deployment"):
        spec = workload["spec"]["template"]["spec"]
        assert ("ServiceAccount", spec["serviceAccountName"]) in names
        if workload["kind"] == "StatefulSet":
            assert ("Service", workload["spec"]["serviceName"]) in names
        volumes = {each["name"] for each in spec["volumes"]} if "volumes" in spec else set()
        volumes |= {each["metadata"]["name"] for each in workload["spec"].get("volumeClaimTemplates", [])}
        for container in [*spec.get("initContainers", []), *spec["containers"]]:
            assert {each["name"] for each in container.get("volumeMounts", [])} <= volumes


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_each_service_has_exactly_one_workload_and_its_ports(overlay: str) -> None:
    documents = render(overlay)
    for service in of_kind(documents, "Service"):
        selector = service["spec"]["selector"].items()
        chosen = [
            each["spec"]["template"]
            for each in of_kind(documents, "StatefulSet", "Deployment")
            if selector <= each["spec"]["template"]["metadata"]["labels"].items()
        ]
        assert len(chosen) == 1, service["metadata"]["name"]
        ports = {port["name"] for port in chosen[0]["spec"]["containers"][0]["ports"]}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
