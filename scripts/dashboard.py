#!/usr/bin/env python3
"""Writes the Grafana dashboard, observability/grafana/dashboards/shardflow.json, from the table of panels below."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TARGET = Path(__file__).resolve().parents[1] / "observability" / "grafana" / "dashboards" / "shardflow.json"
COLUMNS, HEIGHT = 3, 8
WIDTH = 24 // COLUMNS
SOURCE = {"type": "prometheus", "uid": "prometheus"}


@dataclass(frozen=True)
class Panel:
    """One drawing. `queries`: PromQL, and what its lines are called."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    help: str
    stacked: bool = False


def rate(metric: str) -> str:
    """Its increase per second."""
    return f"rate({metric}[$__rate_interval])"


def mean(histogram: str, by: str) -> str:
    """Mean of what was observed."""
    return f"sum by ({by}) ({rate(f'{histogram}_sum')}) / sum by ({by}) ({rate(f'{histogram}_count')})"


def quantile(share: float, histogram: str, by: str = "le") -> str:
    """A quantile of what was observed."""
    return f"histogram_quantile({share}, sum by ({by}) ({rate(f'{histogram}_bucket')}))"


ROWS: dict[str, tuple[Panel, ...]] = {
    "What clients get": (
        Panel(
            "Tokens per second", "short",
            ((f"sum by (source) ({rate('shardflow_output_tokens_total')})", "{{source}}"),),
            "All requests together, by what made the token: a guess that was accepted, the target's correction of one, "
            "the bonus behind accepted ones, or the target alone.",
            stacked=True,
        ),
        Panel(
            "Time to first token", "s",
            ((quantile(0.5, "shardflow_time_to_first_token_seconds"), "median"),
             (quantile(0.95, "shardflow_time_to_first_token_seconds"), "95 %")),
            "From a request's arrival to its first token: queue, prefill and one way through all shards.",
        ),
        Panel(
            "Requests running", "short",
            (("sum(shardflow_active_requests)", "running"),),
            "Requests that the orchestrator serves now.",
        ),
    ),
    "Why a token is slow": (
        Panel(
            "Where a round's time goes", "s",
            ((f"sum by (part, shard) ({rate('shardflow_round_part_seconds_sum')})"
              f" / on () group_left sum({rate('shardflow_round_seconds_count')})", "{{part}} {{shard}}"),),
            "The mean decode round, in its parts: the network, the draft, and each shard's computing and waiting. "
            "Divide its height by the tokens per round for the time of one token.",
            stacked=True,
        ),
        Panel(
            "Tokens per round", "short",
            ((f"sum({rate('shardflow_tokens_per_round_sum')}) / sum({rate('shardflow_tokens_per_round_count')})",
              "tokens"),),
            "What one round trip yields. 1 is no speculation.",
        ),
        Panel(
            "Round trip by link", "s",
            (("shardflow_link_rtt_seconds", "{{link}}"),),
            "Least round trip of the orchestrator's last heartbeats.",
        ),
    ),
    "Speculation": (
        Panel(
            "Acceptance by depth", "percentunit",
            ((f"sum by (depth) ({rate('shardflow_accepted_tokens_total')})"
              " / on () group_left sum(" + rate('shardflow_rounds_total{phase="decode"}') + ")", "depth {{depth}}"),),
            "The share of rounds in which a guess at this depth was right. Depth 1 is the first token of a round.",
        ),
        Panel(
            "Guesses by source", "short",
            ((f"sum by (source) ({rate('shardflow_draft_tokens_total')})", "{{source}} sent"),
             (f"sum by (source) ({rate('shardflow_accepted_tokens_total')})", "{{source}} right")),
            "Guesses per second, by where they came from: the draft, the text itself, or the target's earlier choices.",
        ),
        Panel(
            "Draft's time", "s",
            ((mean("shardflow_draft_compute_seconds", "instance"), "proposal"),
             (mean("shardflow_draft_level_seconds", "instance"), "level")),
            "Model time of one tree, and of one level of it.",
        ),
        Panel(
            "Rounds without what they need", "short",
            ((f"sum({rate('shardflow_draft_failures_total')}) or vector(0)", "draft failed"),
             (f"sum({rate('shardflow_recoveries_total')}) or vector(0)", "session rebuilt")),
            "Rounds per second that ran without a draft, and sessions per second that were filled again after a fault.",
        ),
    ),
    "Shards": (
        Panel(
            "Queue depth", "short",
            (("shardflow_queue_depth", "{{instance}}"),),
            "Slices that wait for a forward pass.",
        ),
        Panel(
            "Forward pass", "s",
            ((mean("shardflow_forward_seconds", "instance"), "{{instance}} computes"),
             (mean("shardflow_queue_seconds", "instance"), "{{instance}} waits")),
            "Mean length of a forward pass, and mean wait before it.",
        ),
        Panel(
            "Rows per forward pass", "short",
            ((mean("shardflow_batch_rows", "instance"), "{{instance}}"),),
            "How much one pass over the weights does: trees, prefill chunks and sessions packed together.",
        ),
        Panel(
            "KV held", "bytes",
            (("shardflow_kv_bytes", "{{instance}}"),),
            "Keys and values of all sessions.",
        ),
        Panel(
            "Sessions", "short",
            (("shardflow_sessions", "{{instance}}"),),
            "Sessions held.",
        ),
        Panel(
            "Peers up", "short",
            (("shardflow_link_up", "{{link}}"),),
            "1 while the orchestrator's stream to a peer is up.",
        ),
    ),
    "Relay": (
        Panel(
            "Bytes per second", "Bps",
            ((f"sum by (direction) ({rate('shardflow_relay_bytes_total')})", "{{direction}}"),),
            "Carried between the sites; up is towards the shards.",
        ),
        Panel(
            "Tunnels open", "short",
            (("shardflow_relay_tunnels_open", "{{route}}"),),
            "Open tunnels by route.",
        ),
        Panel(
            "Round trip of the tunnels", "s",
            (("shardflow_relay_rtt_seconds", "{{route}} {{side}}"),),
            "What the kernel measures to both ends of the open tunnels: which half of the way is slow.",
        ),
    ),
    "Errors": (
        Panel(
            "Requests ended", "short",
            ((f"sum by (outcome) ({rate('shardflow_requests_total')})", "{{outcome}}"),),
            "Per second: a finish reason, cancelled, or a status code.",
            stacked=True,
        ),
        Panel(
            "Slices by result", "short",
            ((f"sum by (result) ({rate('shardflow_slices_total')})", "{{result}}"),
             (f"sum({rate('shardflow_non_finite_total')})", "not finite")),
            "Per second: applied, dropped as old, or a status code; and those with NaN or infinity.",
        ),
        Panel(
            "Relay's refusals", "short",
            ((f"sum by (code) ({rate('shardflow_relay_errors_total')})", "{{code}}"),
             (f"sum({rate('shardflow_relay_accept_errors_total')})", "accept failed")),
            "Per second, by HTTP status: 503 is at capacity, 404 an unknown name, 502 and 504 a shard out of reach.",
        ),
    ),
}  # fmt: skip


def draw(panel: Panel, number: int, x: int, y: int) -> dict[str, Any]:
    """A panel as Grafana wants it."""
    custom = {"drawStyle": "line", "lineWidth": 1, "fillOpacity": 40 if panel.stacked else 0, "showPoints": "never"}
    custom["stacking"] = {"mode": "normal" if panel.stacked else "none", "group": "A"}
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.help,
        "datasource": SOURCE,
        "gridPos": {"x": x, "y": y, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, "custom": custom}, "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom"},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": SOURCE, "expr": query, "legendFormat": legend}
            for index, (query, legend) in enumerate(panel.queries)
        ],
    }


def panels() -> list[dict[str, Any]]:
    """All rows and panels, placed."""
    placed: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS.items():
        header = {"id": len(placed) + 1, "type": "row", "title": title, "collapsed": False, "panels": []}
        placed.append(header | {"gridPos": {"x": 0, "y": y, "w": 24, "h": 1}})
        for index, panel in enumerate(row):
            placed.append(draw(panel, len(placed) + 1, index % COLUMNS * WIDTH, y + 1 + index // COLUMNS * HEIGHT))
        y += 1 + -(-len(row) // COLUMNS) * HEIGHT
    return placed


def render() -> str:
    """The dashboard as text."""
    dashboard = {
        "uid": "shardflow",
        "title": "ShardFlow",
        "description": "Written by scripts/dashboard.py; change it there.",
        "schemaVersion": 39,
        "editable": False,
        "refresh": "5s",
        "time": {"from": "now-15m", "to": "now"},
        "panels": panels(),
    }
    return json.dumps(dashboard, indent=1) + "\n"


if __name__ == "__main__":
    TARGET.write_text(render())
