"""Metrics have the prefix, a help text and a unit in their names, and no two services disagree about one."""

import pytest
from prometheus_client import CollectorRegistry

from shardflow.metrics import DraftMetrics, OrchestratorMetrics, VerifierMetrics

KINDS = [OrchestratorMetrics, VerifierMetrics, DraftMetrics]
UNITS = ("_seconds", "_bytes", "_tokens", "_rows", "_sessions")
COUNTS = {  # what has no unit, because it counts what its name says
    "shardflow_build", "shardflow_requests", "shardflow_active_requests", "shardflow_rounds",
    "shardflow_tokens_per_round", "shardflow_link_up", "shardflow_recoveries", "shardflow_draft_failures",
    "shardflow_slices", "shardflow_queue_depth", "shardflow_non_finite", "shardflow_draft_proposals",
    "shardflow_draft_nodes",
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_names(kind: type) -> None:
    registry = CollectorRegistry()
    kind(registry)
    for metric in registry.collect():
        assert metric.name.startswith("shardflow_")
        assert metric.documentation.endswith(".")
        assert metric.name.endswith(UNITS) or metric.name in COUNTS, metric.name


def test_all_fit_one_registry_but_for_the_build() -> None:
    names: list[str] = []
    for kind in KINDS:
        registry = CollectorRegistry()
        kind(registry)
        names += [metric.name for metric in registry.collect() if metric.name != "shardflow_build"]
    assert len(names) == len(set(names))
