"""Which slices a shard applies: a state machine per session that no repeated, late or reordered slice can corrupt.

No I/O, no clock (times are passed in), no torch: a session's KV is whatever `new_kv` makes.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from services.verifier.slices import Head, Key, Limits, Setup, chain_length, check
from shardflow.errors import FailedPrecondition, InvalidArgument, ResourceExhausted, ShardflowError

TOMBSTONES = 16_384

Kv = TypeVar("Kv")


@dataclass
class Session(Generic[Kv]):
    """What a shard knows of one session: the last applied slice, and the committed text before it."""

    setup: Setup
    kv: Kv
    epoch: int = 0
    round: int = 0
    base: int = 0
    committed: list[int] = field(default_factory=list)  # token ids at positions [0, base)
    tokens: tuple[int, ...] = ()  # rows of the last slice; none if it failed
    parents: tuple[int, ...] = ()
    committed_rows: int = 0
    touched: float = 0.0  # seconds

    def accept(self, head: Head, now: float) -> None:
        """Moves on to a slice that `SessionTable.admit` has found to continue this session."""
        rows = head.keep or range(head.base - self.base)
        if head.base > self.base:
            self.committed.extend(self.tokens[row] for row in rows)
        else:
            del self.committed[head.base :]
        self.epoch, self.round, self.base = head.epoch, head.round, head.base
        self.tokens, self.parents, self.committed_rows = head.tokens, head.parents, head.committed_rows
        self.setup = head.setup or self.setup
        self.touched = now

    def forget_rows(self) -> None:
        """The last slice failed: what it would have written is not there, the text before it is."""
        self.tokens, self.parents, self.committed_rows = (), (), 0

    def __str__(self) -> str:
        return f"epoch {self.epoch}, round {self.round}, base {self.base}, {len(self.tokens)} rows"


@dataclass(frozen=True)
class Apply(Generic[Kv]):
    """The slice continues the session: keep these rows of the slice before, or truncate to base, and run it."""

    session: Session[Kv]


@dataclass(frozen=True)
class Drop:
    """The slice is late or repeated, or its session was released: nothing is done, nobody is told."""

    reason: str


@dataclass(frozen=True)
class Refuse:
    """The slice does not fit; the session is as it was, and its orchestrator is told."""

    error: ShardflowError


class SessionTable(Generic[Kv]):
    """All sessions of a shard."""

    def __init__(self, limits: Limits, new_kv: Callable[[int], Kv], *, idle_s: float, grace_s: float) -> None:
        """`new_kv(max_tokens)` makes a cache. A session is forgotten `idle_s` seconds after its last slice, or when its
        origin's stream has been gone for `grace_s`."""
        self.limits = limits
        self._new_kv = new_kv
        self._idle_s = idle_s
        self._grace_s = grace_s
        self._sessions: dict[Key, Session[Kv]] = {}
        self._released: OrderedDict[Key, None] = OrderedDict()
        self._connected: set[str] = set()
        self._gone: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, key: Key) -> Session[Kv] | None:
        """The session, if it is held."""
        return self._sessions.get(key)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._sessions)

    def values(self) -> list[Session[Kv]]:
        """All sessions held."""
        return list(self._sessions.values())

    def admit(self, head: Head, now: float) -> Apply[Kv] | Drop | Refuse:
        """Decides about a slice; on Apply the session has moved on to it."""
        if head.key in self._released:
            return Drop("its session was released")
        session = self._sessions.get(head.key)
        if session is not None and (late := _late(session, head)):
            return Drop(late)
        try:
            check(head, self.limits)
            session = self._begin(head) if session is None else _continue(session, head)
        except ShardflowError as error:
            return Refuse(error)
        session.accept(head, now)
        return Apply(session)

    def release(self, key: Key) -> None:
        """Forgets a session at once, and remembers that it did, so that a late slice can not bring it back."""
        self._sessions.pop(key, None)
        self._released[key] = None
        if len(self._released) > TOMBSTONES:
            self._released.popitem(last=False)

    def forget(self, key: Key) -> None:
        """Forgets a session whose KV is in doubt; it may come back with base 0."""
        self._sessions.pop(key, None)

    def connect(self, origin: str) -> None:
        """The origin's stream is up."""
        self._connected.add(origin)
        self._gone.pop(origin, None)

    def disconnect(self, origin: str, now: float) -> None:
        """The origin's stream is gone."""
        self._connected.discard(origin)
        if any(name == origin for name, _ in self._sessions):
            self._gone[origin] = now

    def expire(self, now: float) -> list[Key]:
        """Forgets what nobody uses; returns the sessions concerned. They may come back with base 0."""
        expired = [key for key, session in self._sessions.items() if self._unused(key[0], session, now)]
        for key in expired:
            del self._sessions[key]
        held = {origin for origin, _ in self._sessions}
        self._gone = {origin: since for origin, since in self._gone.items() if origin in held}
        return expired

    def _unused(self, origin: str, session: Session[Kv], now: float) -> bool:
        if now - session.touched > self._idle_s:
            return True
        gone_since = max(session.touched, self._gone.get(origin, 0.0))
        return origin not in self._connected and now - gone_since > self._grace_s

    def _begin(self, head: Head) -> Session[Kv]:
        if head.setup is None or head.base != 0:
            raise FailedPrecondition(f"unknown session: it must begin with round 0 and base 0, not {_at(head)}")
        if len(self._sessions) >= self.limits.max_sessions:
            raise ResourceExhausted(f"all {self.limits.max_sessions} sessions are taken")
        _check_room(head, head.setup.max_tokens)
        session = Session(head.setup, self._new_kv(head.setup.max_tokens))
        self._sessions[head.key] = session
        return session


def _late(session: Session[Kv], head: Head) -> str | None:
    if head.epoch < session.epoch:
        return f"epoch {head.epoch} is over: the session is in epoch {session.epoch}"
    if head.epoch == session.epoch and head.round <= session.round:
        return f"round {head.round} of epoch {head.epoch} was applied before"
    return None


def _continue(session: Session[Kv], head: Head) -> Session[Kv]:
    """Raises unless the slice is the next one, and what it keeps is here."""
    same_epoch = head.epoch == session.epoch
    if head.round != (session.round + 1 if same_epoch else 0):
        raise FailedPrecondition(f"a gap: {_at(head)} after {session}")
    if head.keep:
        _check_keep(session, head)
    else:
        chain = chain_length(session.parents) if same_epoch else session.committed_rows
        if head.base > session.base + chain:
            raise FailedPrecondition(f"base {head.base} is beyond the chain that is held: {session}")
    if head.setup is not None and head.setup.max_tokens != session.setup.max_tokens:
        raise InvalidArgument(f"setup.max_tokens: the session was made for {session.setup.max_tokens}")
    _check_room(head, session.setup.max_tokens)
    return session


def _check_keep(session: Session[Kv], head: Head) -> None:
    if head.base != session.base + len(head.keep):
        raise FailedPrecondition(f"keep: {len(head.keep)} rows kept and base {head.base} do not fit {session}")
    path = zip((-1, *head.keep), head.keep, strict=False)
    if any(row >= len(session.parents) or session.parents[row] != above for above, row in path):
        raise FailedPrecondition(f"keep: {list(head.keep)} is no path of the slice before: {session}")


def _check_room(head: Head, max_tokens: int) -> None:
    if head.base + len(head.tokens) > max_tokens:
        raise InvalidArgument(f"base {head.base} and {len(head.tokens)} rows are beyond setup.max_tokens {max_tokens}")


def _at(head: Head) -> str:
    return f"epoch {head.epoch}, round {head.round}, base {head.base}"
