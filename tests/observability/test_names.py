"""Dashboard, rules and docs name only metrics, and labels of them, that exist; what is generated is fresh."""

import re
from typing import Any

import pytest
import yaml

from tests.observability.loading import DASHBOARD, OBSERVABILITY, ROOT, panels, queries, script

TARGET_LABELS = {"instance", "job"}  # what Prometheus adds itself
METRIC = re.compile(r"shardflow_\w+")
GROUPED = re.compile(r"(?:by|on|without|ignoring) \(([\w, ]*)\)")
MATCHED = re.compile(r"(shardflow_\w+)\{([^}]*)\}")
SHOWN = re.compile(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}")


@pytest.fixture(scope="module")
def labels() -> dict[str, set[str]]:
    """Every series' name and its own labels."""
    rows = [row for rows in script("metrics-doc").sections().values() for row in rows]
    return {name: {*row.labels, "le"} for row in rows for name in row.series()}


def expressions() -> list[tuple[str, str]]:
    """Who asks, and PromQL, of the dashboard and the rules."""
    rules = yaml.safe_load((OBSERVABILITY / "rules.yml").read_text())["groups"][0]["rules"]
    return queries() + [(rule["alert"], rule["expr"]) for rule in rules]


@pytest.mark.parametrize(("title", "expression"), expressions())
def test_only_what_exists(title: str, expression: str, labels: dict[str, set[str]]) -> None:
    names = METRIC.findall(expression)
    assert names
    assert [name for name in names if name not in labels] == []
    own = set.union(*(labels[name] for name in names)) | TARGET_LABELS
    for group in GROUPED.findall(expression):
        assert {label.strip() for label in group.split(",") if label.strip()} <= own
    for name, matchers in MATCHED.findall(expression):
        assert {matcher.split("=")[0].strip("~! ") for matcher in matchers.split(",")} <= labels[name] | TARGET_LABELS


@pytest.mark.parametrize(("title", "expression"), queries())
def test_a_legend_names_only_what_the_query_leaves(title: str, expression: str) -> None:
    legends = {(title, target["expr"]): target["legendFormat"] for title, target in targets()}
    shown = set(SHOWN.findall(legends[title, expression]))
    grouped = [{label.strip() for label in group.split(",")} for group in GROUPED.findall(expression)]
    if "sum" in expression:
        assert shown <= set().union(*grouped)


def targets() -> list[tuple[str, dict[str, Any]]]:
    return [(panel["title"], target) for panel in panels() for target in panel["targets"]]


def test_the_dashboard_is_fresh() -> None:
    assert DASHBOARD.read_text() == script("dashboard").render(), "run scripts/dashboard.py"


def test_the_metrics_page_is_fresh() -> None:
    assert (ROOT / "docs" / "metrics.md").read_text() == script("metrics-doc").render(), "run scripts/metrics-doc.py"


def test_every_metric_of_a_service_is_in_the_page(labels: dict[str, set[str]]) -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    for metric in ("shardflow_output_tokens_total", "shardflow_non_finite_total", "shardflow_draft_nodes_total"):
        assert f"| `{metric}` | counter |" in page
        assert metric in labels
    assert "| `shardflow_relay_rtt_seconds` | gauge | `route`, `side` |" in page
    assert "shardflow_round_part_seconds_bucket" in labels


def test_grafana_finds_what_it_is_given() -> None:
    source = yaml.safe_load((OBSERVABILITY / "grafana/provisioning/datasources/prometheus.yml").read_text())
    (prometheus,) = source["datasources"]
    used = {target["datasource"]["uid"] for _, target in targets()}
    assert used == {prometheus["uid"]}


def test_prometheus_scrapes_services_of_compose() -> None:
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    jobs = yaml.safe_load((OBSERVABILITY / "prometheus.yml").read_text())["scrape_configs"]
    addresses = [target for job in jobs for config in job["static_configs"] for target in config["targets"]]
    assert {address.split(":")[0] for address in addresses} == services.keys() - {"model", "wanlink"}
    for address in addresses:
        name, port = address.split(":")
        variables = services[name]["environment"]
        listen = variables.get("SHARDFLOW_METRICS_LISTEN") or variables["SHARDFLOW_RELAY_ADMIN"]
        assert listen == f"0.0.0.0:{port}"
