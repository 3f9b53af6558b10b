"""The overlay with Prometheus: it reads every container over their networks, and no panel of the dashboard stays empty.

Needs the images (`make images`). Debian's Prometheus stands in the place of the public image, with the very
configuration, networks and restrictions that compose.observability.yaml gives that one. Grafana is left out.
"""

import asyncio
import json
import os
import shutil
from collections.abc import Iterator

import pytest

from shardflow.topology import ROOT
from tests import containers
from tests.containers import Stack
from tests.observability.loading import prometheus_folder
from tests.observability.monitored import Prometheus, under_load

pytestmark = [pytest.mark.compose, pytest.mark.timeout(300)]

IMAGE = "shardflow-test-prometheus"
DOCKERFILE = """
FROM debian:bookworm-slim
RUN install --directory --owner=65534 --group=65534 /prometheus
USER 65534
ENTRYPOINT ["prometheus"]
COPY prometheus /usr/local/bin/
"""
STAND_IN = {"services": {"prometheus": {"image": IMAGE, "healthcheck": {"test": ["CMD", "true"]}}}}  # it has no wget
SCRAPED = {"orchestrator:9090", "draft:9090", "verifier-0:9090", "verifier-1:9090", "relay:9001"}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    context = tmp_path_factory.mktemp("prometheus")
    (context / "Dockerfile").write_text(DOCKERFILE)
    shutil.copy(prometheus_folder() / "prometheus", context)
    containers.run("docker", "build", "--tag", IMAGE, str(context))
    overlay = context / "compose.json"
    overlay.write_text(json.dumps(STAND_IN))
    files = (ROOT / "compose.yaml", ROOT / "compose.observability.yaml", overlay)
    with containers.stack(f"shardflow-test-{os.getpid()}-observed", *files) as made:
        asyncio.run(made.up("orchestrator", "prometheus"))
        yield made


async def test_no_panel_is_empty_under_load(stack: Stack) -> None:
    prometheus = Prometheus(f"{stack.addresses('prometheus')[0]}:9090")
    await prometheus.up(len(SCRAPED))
    assert {sample["metric"]["instance"] for sample in prometheus.query("up == 1", "")} == SCRAPED
    await under_load(prometheus, stack.grpc, within_s=120)
