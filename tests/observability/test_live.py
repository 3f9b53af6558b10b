"""A real Prometheus scrapes a real cluster under load: every query of the dashboard has an answer."""

import asyncio
import math
from pathlib import Path

import pytest

from tests.observability.monitored import monitored, under_load

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(180)]


async def test_no_panel_is_empty_and_no_alert_fires_under_load(tmp_path: Path) -> None:
    async with monitored(tmp_path) as (cluster, prometheus):
        answers = await under_load(prometheus, cluster.address, within_s=50)
        alerts = await asyncio.to_thread(prometheus.ask, "alerts")
    assert [alert for alert in alerts["alerts"] if alert["state"] == "firing"] == []
    for (title, expression), values in answers.items():
        assert all(value >= 0 for value in values if not math.isnan(value)), (title, expression)


async def test_a_lost_shard_is_an_alert(tmp_path: Path) -> None:
    async with monitored(tmp_path) as (cluster, prometheus):
        await cluster.end("verifier-1")
        async with asyncio.timeout(40):
            while True:
                alerts = (await asyncio.to_thread(prometheus.ask, "alerts"))["alerts"]
                firing = [each["labels"] for each in alerts if each["state"] == "firing"]
                if [(each["alertname"], each.get("link")) for each in firing] == [("ShardLost", "shard 1")]:
                    return
                await asyncio.sleep(0.5)
