"""Whatever the network repeats, reorders, delays or loses, the KV holds the text that the orchestrator means."""

from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from services.verifier.sessions import Apply, Refuse, SessionTable
from services.verifier.slices import Head, Limits, Setup
from shardflow.engine import GREEDY

LIMITS = Limits(vocab_size=50, max_sessions=8, max_session_tokens=64, max_slice_rows=8)
SETUP = Setup(max_tokens=64, prompt_tokens=1, top_logprobs=0, want_logprobs=False, want_hidden=False, sampling=GREEDY)


@dataclass
class FakeKv:
    """For each row, the tokens from the start of the text to it: what its keys and values depend on."""

    rows: list[tuple[int, ...]] = field(default_factory=list)
    last: int = 0  # rows of the last slice

    def run(self, head: Head) -> None:
        if head.keep:
            start = len(self.rows) - self.last
            self.rows[start:] = [self.rows[start + row] for row in head.keep]
        del self.rows[head.base :]
        assert len(self.rows) == head.base
        text = self.rows[-1] if self.rows else ()
        for token, parent in zip(head.tokens, head.parents, strict=True):
            self.rows.append((self.rows[head.base + parent] if parent >= 0 else text) + (token,))
        self.last = len(head.tokens)


class AnyOrder(RuleBasedStateMachine):
    """An orchestrator that knows its text, and a network that does what it likes."""

    def __init__(self) -> None:
        super().__init__()
        self.table: SessionTable[FakeKv] = SessionTable(LIMITS, lambda _: FakeKv(), idle_s=1e9, grace_s=1e9)
        self.number = 0
        self.seen: list[Head] = []  # all that was ever sent, and may come again
        self.texts: dict[tuple[str, int, int], tuple[int, ...]] = {}  # text before the rows of (session, epoch, round)
        self.begin_session()

    def begin_session(self) -> None:
        self.number += 1
        self.text: tuple[int, ...] = ()
        self.epoch, self.round = 1, 0
        self.previous: Head | None = None  # the last slice that was answered

    @property
    def name(self) -> str:
        return f"s{self.number}"

    def deliver(self, head: Head) -> Any:
        outcome = self.table.admit(head, 0.0)
        if isinstance(outcome, Apply):
            outcome.session.kv.run(head)
        return outcome

    @rule(data=st.data())
    def round_trip(self, data: st.DataObject) -> None:
        """The next slice, which may be lost; then part of its tree is accepted."""
        committed = data.draw(st.integers(1, 3))
        guesses = data.draw(st.integers(0, 4))
        rows = committed + guesses
        if len(self.text) + rows > SETUP.max_tokens:
            return
        tokens = tuple(data.draw(st.lists(st.integers(0, 3), min_size=rows, max_size=rows)))
        parents = [*range(-1, committed - 1)]
        parents += [data.draw(st.integers(committed - 1, row - 1)) for row in range(committed, rows)]
        head = self.next_slice(tokens, tuple(parents), committed)
        self.seen.append(head)
        self.texts[self.name, self.epoch, self.round] = self.text
        if data.draw(st.booleans()) and data.draw(st.booleans()):
            return  # lost, and the orchestrator does not know it yet
        outcome = self.deliver(head)
        if isinstance(outcome, Refuse):
            self.recover()
            return
        assert isinstance(outcome, Apply), outcome
        self.previous = head
        self.round += 1
        row = committed - 1
        self.accepted = list(range(committed))
        while children := [child for child in range(rows) if parents[child] == row and child >= committed]:
            row = data.draw(st.sampled_from([*children, -1]))
            if row < 0:
                break
            self.accepted.append(row)
        self.text += tuple(tokens[row] for row in self.accepted)

    def next_slice(self, tokens: tuple[int, ...], parents: tuple[int, ...], committed: int) -> Head:
        keep: tuple[int, ...] = ()
        if self.round > 0 and self.accepted != list(range(len(self.accepted))):
            keep = tuple(self.accepted)
        return Head(
            origin="o", session=self.name, epoch=self.epoch, round=self.round, base=len(self.text), keep=keep,
            tokens=tokens, parents=parents, committed_rows=committed, want_verdict=True,
            setup=SETUP if self.round == 0 else None,
        )  # fmt: skip

    @rule()
    def lose_and_recover(self) -> None:
        """A deadline passed: the orchestrator opens a new epoch from what the shard says."""
        self.recover()

    def recover(self) -> None:
        session = self.table.get(("o", self.name))
        self.text = self.text[: session.base if session else 0]
        self.epoch, self.round = self.epoch + 1, 0

    @precondition(lambda self: self.seen)
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        """Anything that was ever sent comes (again)."""
        head = data.draw(st.sampled_from(self.seen))
        fresh = head.session == self.name and (head.epoch, head.round) == (self.epoch, self.round)
        before = self.content()
        outcome = self.deliver(head)
        if fresh:  # the slice that was thought lost was only late
            self.round += 1
            self.accepted = list(range(head.committed_rows))
            self.text += head.tokens[: head.committed_rows]
        elif head.session == self.name and head.epoch == self.epoch:
            assert not isinstance(outcome, Apply)
            assert self.content() == before

    @rule()
    def release(self) -> None:
        """The request ends; what is still on the way must not bring it back."""
        self.table.release(("o", self.name))
        self.begin_session()

    @rule()
    def fail(self) -> None:
        """The forward pass of the last slice failed."""
        session = self.table.get(("o", self.name))
        if session is not None:
            session.forget_rows()
            del session.kv.rows[session.base :]
            session.kv.last = 0
            self.recover()

    def content(self) -> Any:
        session = self.table.get(("o", self.name))
        return None if session is None else list(session.kv.rows)

    @invariant()
    def held_text_is_the_text_that_was_meant(self) -> None:
        for number in range(1, self.number):
            assert self.table.get(("o", f"s{number}")) is None
        session = self.table.get(("o", self.name))
        if session is None:
            return
        meant = self.texts[self.name, session.epoch, session.round]
        assert tuple(session.committed) == meant
        assert session.base == len(meant)
        assert session.kv.rows[: session.base] == [meant[: at + 1] for at in range(session.base)]
        assert len(session.kv.rows) == session.base + len(session.tokens)


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_a_confused_orchestrator_can_not_corrupt_a_session(data: st.DataObject) -> None:
    """Rounds, bases, kept rows and trees at random: what is applied leaves the KV as the committed text would."""
    table: SessionTable[FakeKv] = SessionTable(LIMITS, lambda _: FakeKv(), idle_s=1e9, grace_s=1e9)
    for _ in range(12):
        session = table.get(("o", "s"))
        epoch, number, base = (session.epoch, session.round, session.base) if session else (1, -1, 0)
        renew = data.draw(st.integers(0, 4)) == 0
        step = data.draw(st.sampled_from([1, 1, 1, 1, 0, 2]))
        keep = sorted(data.draw(st.sets(st.integers(0, 3), max_size=2)))
        tokens = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=5))
        head = Head(
            origin="o", session="s", epoch=epoch + renew, round=0 if renew else number + step,
            base=base + len(keep) - data.draw(st.integers(0, 1)) if keep else data.draw(st.integers(0, base + 3)),
            keep=tuple(keep), tokens=tuple(tokens),
            parents=(-1, *(data.draw(st.integers(0, row - 1)) for row in range(1, len(tokens)))),
            committed_rows=1, want_verdict=True, setup=None,
        )  # fmt: skip
        head = replace(head, setup=SETUP if head.round == 0 else None)
        outcome = table.admit(head, 0.0)
        if isinstance(outcome, Apply):
            kept = outcome.session
            kept.kv.run(head)
            assert kept.kv.rows[: kept.base] == [tuple(kept.committed[: at + 1]) for at in range(kept.base)]
            assert len(kept.committed) == kept.base
            assert len(kept.kv.rows) == kept.base + len(head.tokens)
