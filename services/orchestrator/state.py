"""How the deployment stands, as GetStatus tells it: shards, draft, links, totals, and what is wrong."""

from dataclasses import dataclass

from services.orchestrator.drafting import DraftClient
from services.orchestrator.generation import Round
from services.orchestrator.requests import Served
from services.orchestrator.shards import Shard, ShardPool
from shardflow import __version__
from shardflow.v1 import link_pb2, orchestrator_pb2

_NAME = "orchestrator"


@dataclass
class Totals:
    """Tokens since start."""

    output: int = 0
    drafted: int = 0
    accepted: int = 0

    def add(self, done: Round) -> None:
        """Counts one round."""
        self.output += len(done.tokens)
        self.drafted += len(done.tree.tokens)
        self.accepted += len(done.accepted)


def status(shards: ShardPool, draft: DraftClient | None, totals: Totals) -> orchestrator_pb2.GetStatusResponse:
    """The state of shards, draft and links as clients see it."""
    target = shards.deployment
    return orchestrator_pb2.GetStatusResponse(
        num_layers=target.num_layers if target else 0,
        max_session_tokens=target.max_session_tokens if target else 0,
        shards=map(_shard_status, shards.shards),
        draft=_draft_status(draft, totals) if draft else None,
        links=_links(shards, draft),
        version=__version__,
        output_tokens=totals.output,
        drafted_tokens=totals.drafted,
        accepted_tokens=totals.accepted,
    )


def problem(shards: ShardPool, draft: DraftClient | None, served: Served | None) -> str:
    """Why requests are refused, in one sentence; empty if they are not."""
    if shards.problem is not None:
        return str(shards.problem)
    for shard in shards.shards:
        if not shard.ready:
            return str(shard.link.unavailable())
        if shard.describe is not None and shard.describe.HasField("next") and not shard.describe.next.connected:
            return f"shard {shard.index} can not reach shard {shard.index + 1}"
    if served is None:
        return f"starting: {draft.trouble}" if draft and draft.trouble else "starting"
    return ""


def _shard_status(shard: Shard) -> orchestrator_pb2.ShardStatus:
    return orchestrator_pb2.ShardStatus(
        address=shard.link.address,
        connected=shard.ready,
        relay=shard.link.relay or "",
        rtt_ms=shard.link.rtt_ms,
        describe=shard.describe,
        clock_offset_ms=shard.clock.offset_ms if shard.clock else None,
        clock_error_ms=shard.clock.error_ms if shard.clock else 0.0,
    )


def _draft_status(draft: DraftClient, totals: Totals) -> orchestrator_pb2.DraftStatus:
    return orchestrator_pb2.DraftStatus(
        address=draft.link.address,
        connected=draft.ready,
        model=draft.describe.model if draft.describe else "",
        acceptance=totals.accepted / totals.drafted if totals.drafted else 0.0,
        describe=draft.describe,
        problem=draft.trouble,
    )


def _links(shards: ShardPool, draft: DraftClient | None) -> list[link_pb2.LinkStatus]:
    """The orchestrator's own, and those between shards as the shards see them."""
    links = [shard.link.status(_NAME, f"shard {shard.index}") for shard in shards.shards]
    if draft is not None:
        links.append(draft.link.status(_NAME, "draft"))
    for shard in shards.shards:
        if shard.describe is not None and shard.describe.HasField("next"):
            link = link_pb2.LinkStatus()
            link.CopyFrom(shard.describe.next)
            link.dialler, link.peer = f"shard {shard.index}", f"shard {shard.index + 1}"
            links.append(link)
    return links
