"""The alert rules: valid, tested by promtool, each with its section in the run-book, the same in Kubernetes."""

import re
import subprocess

import pytest
import yaml

from tests.observability.loading import OBSERVABILITY, ROOT, prometheus_folder, script

RULES = yaml.safe_load((OBSERVABILITY / "rules.yml").read_text())["groups"][0]["rules"]
WANTED = {
    "OrchestratorGone", "ShardLost", "DraftLost", "AcceptanceCollapsed", "RoundTripUp", "RelaySaturated",
    "QueueGrowing", "NonFiniteOutput",
}  # fmt: skip


def promtool(*arguments: str) -> str:
    done = subprocess.run(
        [prometheus_folder() / "promtool", *arguments], cwd=OBSERVABILITY, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_alerts_fire_when_they_should() -> None:
    assert "SUCCESS" in promtool("test", "rules", "rules_test.yml")


def test_the_configuration_is_valid() -> None:
    assert "8 rules found" in promtool("check", "config", "prometheus.yml")


def test_every_alert_is_tested_both_ways() -> None:
    tests = yaml.safe_load((OBSERVABILITY / "rules_test.yml").read_text())["tests"]
    cases = [case for test in tests for case in test["alert_rule_test"]]
    assert {case["alertname"] for case in cases if case.get("exp_alerts")} == WANTED
    assert {case["alertname"] for case in cases if not case.get("exp_alerts")} == WANTED


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_every_alert_leads_to_its_section(rule: dict) -> None:
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    headings = re.findall(r"^#+ (.+)$", (ROOT / page).read_text(), re.MULTILINE)
    assert anchor == rule["alert"].lower()
    assert anchor in [heading.lower() for heading in headings]


@pytest.mark.parametrize("component", ["monitoring-gmp", "monitoring-operator"])
def test_kubernetes_has_the_same_rules(component: str) -> None:
    path = ROOT / "k8s" / "components" / component / "rules.yaml"
    assert path.read_text() == script("k8s-rules").render(component), "run scripts/k8s-rules.py"
