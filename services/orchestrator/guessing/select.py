"""The guesser that a request's mode stands for."""

from collections.abc import Sequence

from services.orchestrator.drafting import DraftClient, DraftSession
from services.orchestrator.guessing.adaptive import AdaptiveGuesser
from services.orchestrator.guessing.guesser import DraftPart, FixedGuesser, Guesser, Learned, Unguessed
from shardflow.metrics import OrchestratorMetrics
from shardflow.speculation import Mode


def select(
    mode: Mode,
    client: DraftClient | None,
    session: DraftSession,
    text: Sequence[int],
    learned: Learned,
    metrics: OrchestratorMetrics,
) -> Guesser:
    """Without a draft, `auto` makes do with the text, and the fixed modes with nothing."""
    beliefs = learned.beliefs(session.sampling)
    draft = DraftPart(client, session, text, metrics) if client is not None and mode.drafts else None
    if mode.kind in ("auto", "lookup"):
        return AdaptiveGuesser(text, draft, beliefs, learned.costs)
    if mode.kind == "none" or draft is None:
        return Unguessed()
    return FixedGuesser(mode, draft, text, beliefs)
