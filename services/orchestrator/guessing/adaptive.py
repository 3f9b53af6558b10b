"""`auto` and `lookup`: guesses from every source, as many as pay, drafted while the round before is in flight."""

import asyncio
import time
from collections.abc import Sequence

from services.orchestrator.drafting import Ask, Proposal
from services.orchestrator.guessing.beliefs import WORTHS, Beliefs, Waiting
from services.orchestrator.guessing.building import Built, Evidence, Price, Room, build
from services.orchestrator.guessing.costs import Costs
from services.orchestrator.guessing.drafted import Drafted
from services.orchestrator.guessing.guesser import DraftPart, judge_draft
from services.orchestrator.guessing.lookup import CONTEXT, Successors, TextIndex
from services.orchestrator.rounds import GuessSource, Tree
from shardflow.speculation import MAX_NODES

READ_AT_ONCE = 1024  # tokens of a long prompt that are indexed in one go, a few milliseconds
AHEAD_NODES = 1024  # of the draft's tree at most, when it is grown ahead
AHEAD_GAIN = 0.005  # guesses that are less often needed are not drafted ahead
AHEAD_REACH = 0.0001  # of a node that the draft looks at ahead
LEAST_REACH = 0.002  # of one that it looks at while the round waits
MORE_NODES = 8  # than trees have had are asked for
DEEPEST = 32
USELESS = 0.02  # expected tokens a round below which the draft is asked now and then only
NOW_AND_THEN = 16  # rounds


class AdaptiveGuesser:
    """See `Guesser`. Without a draft it is `lookup`."""

    def __init__(self, text: Sequence[int], draft: DraftPart | None, beliefs: Beliefs, costs: Costs) -> None:
        """`text` grows while this lives."""
        self.hidden_ms = 0.0
        self._text = text
        self._draft = draft
        self._beliefs = beliefs
        self._costs = costs
        self._index = TextIndex()
        self._read = 0  # tokens of the text in the index
        self._successors = Successors()
        self._price: Price | None = None
        self._room = Room(MAX_NODES, DEEPEST)
        self._sent = Tree()
        self._waited = False
        self._rounds = 0
        self._growing: set[asyncio.Task[None]] = set()
        self._begun = False

    async def tree(self, room: Room) -> Tree:
        self._room = Room(min(room.nodes, MAX_NODES), min(room.depth, DEEPEST))
        self._rounds += 1
        self._read_on()
        self._waited = False
        built = self._build()
        if self._draft is not None and self._may_ask(self._draft) and self._waiting(built).pays(self._costs.rate):
            began, waiting = time.monotonic(), self._waiting(built)
            self._waited = True
            proposal = await self._draft.ask(self._ask_now())
            if proposal is not None:
                self._learn_level(proposal)
                waiting.ms.learn((time.monotonic() - began) * 1000)
                before, built = built, self._build()
                waiting.gain.learn(built.value - before.value)
        self._sent = built.tree
        self._beliefs.nodes.learn(len(built.tree.tokens))
        return built.tree

    def ahead(self) -> None:
        if not self._begun:
            self._begun = True
            self._costs.active += 1
        self._price = Price(self._costs.price(1, MAX_NODES))
        if self._draft is None or not self._may_ask(self._draft) or not self._draft_is_worth_asking(self._draft):
            return
        growing = asyncio.create_task(self._grow(self._draft, len(self._text)))
        self._growing.add(growing)
        growing.add_done_callback(self._growing.discard)

    def learn(self, start: int, top_ids: Sequence[Sequence[int]]) -> None:
        drafted = self._draft.drafted if self._draft is not None else Drafted()
        node = self._draft.root(start) if self._draft is not None else None
        for place, best in enumerate(top_ids, start):
            token, context = self._text[place], self._context(place)
            judge_draft(self._beliefs, drafted, node, token)
            for found in self._index.after(context):
                self._beliefs.text.learn(found.kind, found.token == token)
            for found in self._successors.after(context):
                self._beliefs.recycled.learn(found.kind, found.token == token)
            self._successors.learn(context, best)
            node = drafted.child(node, token)
        self._read_on()

    def close(self) -> None:
        self._costs.active -= self._begun
        for growing in self._growing:
            growing.cancel()
        if self._draft is not None:
            self._draft.close()

    def _may_ask(self, draft: DraftPart) -> bool:
        """Whether the draft is there, and answer, session and its own context have room for a guess."""
        room = draft.room(self._room)
        return not draft.client.trouble and min(room.nodes, room.depth) > 0

    def _read_on(self) -> None:
        for token in self._text[self._read : self._read + READ_AT_ONCE]:
            self._index.append(token)
        self._read = min(len(self._text), self._read + READ_AT_ONCE)

    def _context(self, end: int) -> tuple[int, ...]:
        return tuple(self._text[max(0, end - CONTEXT) : end])

    def _build(self) -> Built:
        drafted, root = Drafted(), None
        if self._draft is not None:
            drafted, root = self._draft.drafted, self._draft.root(len(self._text))
        if self._price is None:
            self._price = Price(self._costs.price(1, MAX_NODES))
        evidence = Evidence(self._beliefs, self._index, self._successors, drafted)
        return build(evidence, self._context(len(self._text)), root, self._price, self._room)

    def _ask_now(self) -> Ask:
        """What is worth waiting for: a level as long as it promises more than the time it takes."""
        assert self._price is not None and self._draft is not None  # built, and with a draft
        room = self._draft.room(self._room)
        level = self._costs.rate * self._costs.level_ms.value
        return Ask(
            max_nodes=min(room.nodes, round(self._beliefs.nodes.value) + MORE_NODES),
            max_depth=room.depth,
            min_gain=level,
            min_probability=max(LEAST_REACH, self._price.floors[0]),
            calibration=self._beliefs.draft.logs(),
        )

    def _ask_ahead(self) -> Ask:
        """Growth below whatever the verdict may make the next text."""
        assert self._draft is not None
        room = self._draft.room(Room(AHEAD_NODES, 2 * DEEPEST))
        return Ask(
            max_nodes=room.nodes,
            max_depth=room.depth,
            min_gain=AHEAD_GAIN,
            min_probability=AHEAD_REACH,
            calibration=self._beliefs.draft.logs(),
            background=True,
        )

    def _waiting(self, now: Built) -> Waiting:
        """What waiting was like where the draft had looked below the text, or had not, and as much was to be had."""
        assert self._draft is not None
        covered = bool(self._draft.drafted.children(self._draft.root(len(self._text))))
        return self._beliefs.waiting[covered][min(WORTHS - 1, int(now.value + 0.5))]

    async def _grow(self, draft: DraftPart, length: int) -> None:
        """Lets the draft grow on below the text; it stops by itself when it is asked about the next one."""
        if not self._waited:
            now = self._build()
            waiting = self._waiting(now)
            proposal = await draft.ask(self._ask_now())
            if proposal is None:
                return
            self._count_hidden(proposal)
            if len(self._text) != length:
                return
            waiting.gain.learn(self._build().value - now.value)
        if draft.needs_output:
            return  # what it grows is void when the target has said more
        proposal = await draft.ask(self._ask_ahead())
        if proposal is not None:
            self._count_hidden(proposal)

    def _count_hidden(self, proposal: Proposal) -> None:
        self.hidden_ms += proposal.compute_ms
        self._learn_level(proposal)

    def _learn_level(self, proposal: Proposal) -> None:
        """Taking in what is new costs about as much as a level."""
        self._costs.level_ms.learn(proposal.compute_ms / (proposal.levels + 1))

    def _draft_is_worth_asking(self, draft: DraftPart) -> bool:
        if draft.needs_output and not self._rounds:
            return False
        sure = zip(self._sent.sources, self._sent.probabilities, strict=True)
        self._beliefs.drafted.learn(sum(reach for source, reach in sure if source is GuessSource.DRAFT))
        return self._beliefs.drafted.value > USELESS or self._rounds % NOW_AND_THEN == 0
