"""Who decides about the guesses of one request, round after round: by a fixed mode, or by what pays.

Life of a round: `tree` gives the guesses, `ahead` is called when their slice is sent, `learn` when the verdict is in.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from opentelemetry.trace import SpanKind

from services.orchestrator.drafting import Ask, DraftClient, DraftSession, Proposal
from services.orchestrator.guessing.beliefs import Beliefs
from services.orchestrator.guessing.building import Room
from services.orchestrator.guessing.costs import Costs
from services.orchestrator.guessing.drafted import Drafted
from services.orchestrator.rounds import GuessSource, Tree
from shardflow import tracing
from shardflow.errors import ShardflowError
from shardflow.metrics import OrchestratorMetrics
from shardflow.speculation import Mode
from shardflow.v1 import sampling_pb2

logger = logging.getLogger(__name__)


@dataclass
class Learned:
    """What all requests of a deployment have taught."""

    greedy: Beliefs = field(default_factory=Beliefs)
    sampled: Beliefs = field(default_factory=Beliefs)
    costs: Costs = field(default_factory=Costs)

    def beliefs(self, sampling: sampling_pb2.SamplingParams) -> Beliefs:
        """Those of the class that a request belongs to."""
        return self.sampled if sampling.temperature > 0 else self.greedy


class Guesser(Protocol):
    """Guesses for one request."""

    hidden_ms: float
    """Model time of the draft for which nobody waited, since this was last set to 0."""

    async def tree(self, room: Room) -> Tree:
        """The guesses of the next round below the text as it is now. Never raises for a draft's sake."""

    def ahead(self) -> None:
        """The round's slice is under way."""

    def learn(self, start: int, top_ids: Sequence[Sequence[int]]) -> None:
        """The text has grown since token `start`; `top_ids`: the target's best where each new token was chosen."""

    def close(self) -> None:
        """The request is over."""


class Unguessed:
    """No guesses."""

    hidden_ms = 0.0

    async def tree(self, room: Room) -> Tree:
        return Tree()

    def ahead(self) -> None:
        return

    def learn(self, start: int, top_ids: Sequence[Sequence[int]]) -> None:
        return

    def close(self) -> None:
        return


class DraftPart:
    """The draft as one request sees it: what it was told, what it has grown, and where in that the text ends."""

    def __init__(
        self, client: DraftClient, session: DraftSession, text: Sequence[int], metrics: OrchestratorMetrics
    ) -> None:
        """`text` is the request's, and grows while this lives."""
        self.client = client
        self._session = session
        self._text = text
        self._metrics = metrics
        self._length = 0  # of the text, when `drafted` was grown below it
        self.drafted = Drafted()

    async def ask(self, ask: Ask) -> Proposal | None:
        """Lets the draft grow; None if it fails, which changes the speed and a metric, never the text."""
        length = len(self._text)
        try:
            with tracing.span("draft", SpanKind.CLIENT, attributes={"shardflow.background": ask.background}):
                proposal = await self.client.propose(self._session, self._text, ask)
        except ShardflowError as error:
            self._metrics.draft_failures.inc()
            logger.warning("round without a draft: %s", error)
            return None
        if not ask.background and length >= self._length:
            self.drafted, self._length = proposal.drafted, length
        return proposal

    @property
    def needs_output(self) -> bool:
        """Whether it has nothing to say before the target has said something."""
        return self.client.wants_hidden

    def room(self, room: Room) -> Room:
        """What of it the draft's own context leaves."""
        free = self.client.max_session_tokens - len(self._text)
        return Room(max(0, min(room.nodes, free)), max(0, min(room.depth, free)))

    def root(self, length: int) -> int | None:
        """The node of `drafted` at which the first `length` tokens of the text end."""
        node: int | None = -1 if length >= self._length else None
        for token in self._text[self._length : length]:
            node = self.drafted.child(node, token)
        return node

    def close(self) -> None:
        """The draft may forget the request."""
        self.client.forget(self._session.session)


class FixedGuesser:
    """`linear:K` and `tree:N`: waits for the draft each round, and sends all that it gives."""

    hidden_ms = 0.0

    def __init__(self, mode: Mode, draft: DraftPart, text: Sequence[int], beliefs: Beliefs) -> None:
        self._mode = mode
        self._draft = draft
        self._text = text
        self._beliefs = beliefs

    async def tree(self, room: Room) -> Tree:
        room = self._draft.room(room)
        nodes = min(self._mode.size, room.nodes)
        depth = min(nodes, room.depth)
        if depth == 0:
            return Tree()
        if self._mode.kind == "linear":
            ask = Ask(depth, depth, max_children=1)
        else:
            ask = Ask(nodes, depth, calibration=self._beliefs.draft.logs())
        if await self._draft.ask(ask) is None:
            return Tree()
        return whole_tree(self._draft.drafted, self._beliefs)

    def ahead(self) -> None:
        return

    def learn(self, start: int, top_ids: Sequence[Sequence[int]]) -> None:
        node = self._draft.root(start)
        for token in self._text[start:]:
            judge_draft(self._beliefs, self._draft.drafted, node, token)
            node = self._draft.drafted.child(node, token)

    def close(self) -> None:
        self._draft.close()


def whole_tree(drafted: Drafted, beliefs: Beliefs) -> Tree:
    """All that the draft has grown, as guesses."""
    reach: list[float] = []
    for child, parent in zip(drafted, drafted.parents, strict=True):
        reach.append((reach[parent] if parent >= 0 else 1.0) * beliefs.draft.shares[child.cell])
    return Tree([child.token for child in drafted], drafted.parents, [GuessSource.DRAFT] * len(reach), reach)


def judge_draft(beliefs: Beliefs, drafted: Drafted, node: int | None, token: int) -> None:
    """Learns from the target's choice of `token` below `node`."""
    for child in drafted.children(node):
        beliefs.draft.learn(child.cell, child.token == token)
