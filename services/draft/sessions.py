"""The sessions that are held: a bounded number, the least recently used one leaves first. Pure: knows no model."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

S = TypeVar("S")


@dataclass
class Held(Generic[S]):
    """One session's state. Work that was queued before the session was forgotten still has it, and can tell."""

    state: S
    forgotten: bool = False
    user: object = None  # who used it last


class Sessions(Generic[S]):
    """States by session id. One that left is missed by its orchestrator at the next request, which then sends all."""

    def __init__(self, most: int, new: Callable[[], S]) -> None:
        self._most = most
        self._new = new
        self._held: OrderedDict[str, Held[S]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def use(self, session: str, user: object = None) -> Held[S]:
        """The session's state, a new one if there is none; makes it the most recently used, and by `user`."""
        held = self._held.pop(session, None) or Held(self._new())
        held.user = user
        self._held[session] = held
        if len(self._held) > self._most:
            self._held.popitem(last=False)
        return held

    def forget(self, session: str) -> None:
        """Lets go of a session, if it is held."""
        held = self._held.pop(session, None)
        if held is not None:
            held.forgotten = True

    def of(self, user: object) -> list[str]:
        """The sessions that nobody has used since `user` did."""
        return [name for name, held in self._held.items() if held.user is user]

    def discard(self, session: str, held: Held[S]) -> None:
        """Lets go of a state that is of no more use, unless a newer one has taken its place."""
        if self._held.get(session) is held:
            self.forget(session)
