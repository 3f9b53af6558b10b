"""Verifier shards of a scripted target: they follow the rules of the contract to the letter, or break them when told.

What an orchestrator does against the rules lands in `violations`.
"""

import asyncio
import enum
import struct
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import grpc.aio

from shardflow.errors import FailedPrecondition
from shardflow.v1 import link_pb2, tensor_pb2, verifier_pb2, verifier_pb2_grpc
from tests.scripts import VOCAB, NextToken

MAX_SESSION_TOKENS = 512
MAX_SLICE_ROWS = 96
QUEUE_MS, COMPUTE_MS, OTHER_MS = 0.01, 0.02, 0.03  # what each shard says of each slice


class Fault(enum.Enum):
    """What a shard does wrong with one slice."""

    LOSE = "applies it and never answers"
    DUPLICATE = "answers twice"
    DELAY = "answers just before the next answer"
    REFUSE = "says FAILED_PRECONDITION"
    FORGET = "forgets all sessions first"
    DROP_STREAM = "applies it and drops the orchestrator's streams"
    NON_FINITE = "says INTERNAL"
    EXHAUSTED = "says RESOURCE_EXHAUSTED"
    GARBLE = "accepts rows that do not exist"


_FAILURES = {Fault.REFUSE: 9, Fault.NON_FINITE: 13, Fault.EXHAUSTED: 8}


class _Late(Exception):
    """The slice is to be dropped without an answer."""


@dataclass
class Session:
    """One session on one shard: the committed text, and the rows of the last slice behind it."""

    epoch: int = 0
    round: int = 0
    committed: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    committed_rows: int = 0
    setup: verifier_pb2.SessionSetup | None = None

    def apply(self, piece: verifier_pb2.Slice) -> None:
        """Moves on to a slice; _Late or FailedPrecondition if it does not continue this session."""
        fresh = piece.epoch > self.epoch
        if self.epoch and (piece.epoch, piece.round) <= (self.epoch, self.round):
            raise _Late
        if piece.round != (0 if fresh else self.round + 1):
            raise FailedPrecondition(f"round {piece.round} of epoch {piece.epoch} after {self}")
        self.committed = self._kept(piece, fresh)
        self.epoch, self.round = piece.epoch, piece.round
        self.rows, self.committed_rows = list(piece.tokens), piece.committed_rows
        self.parents = list(piece.parents) or list(range(-1, len(piece.tokens) - 1))
        self.setup = piece.setup if piece.HasField("setup") else self.setup

    def _kept(self, piece: verifier_pb2.Slice, fresh: bool) -> list[int]:
        if piece.keep:
            parents = [self.parents[row] for row in piece.keep]
            if fresh or piece.base != len(self.committed) + len(piece.keep) or parents != [-1, *piece.keep[:-1]]:
                raise FailedPrecondition(f"keep {list(piece.keep)} does not fit {self}")
            return self.committed + [self.rows[row] for row in piece.keep]
        chain = next((row for row, parent in enumerate(self.parents) if parent != row - 1), len(self.rows))
        held = self.committed + self.rows[: self.committed_rows if fresh else chain]
        if piece.base > len(held):
            raise FailedPrecondition(f"base {piece.base} is beyond {self}")
        return held[: piece.base]

    def text(self, row: int) -> list[int]:
        """The whole text up to a row of the last slice."""
        path = []
        while row >= 0:
            path.append(self.rows[row])
            row = self.parents[row]
        return self.committed + path[::-1]


class FakeShard(verifier_pb2_grpc.VerifierServiceServicer):
    """One shard; `following` is the shard behind it, called directly."""

    def __init__(self, name: str, layers: tuple[int, int], num_layers: int, next_token: NextToken) -> None:
        self.description = verifier_pb2.DescribeResponse(
            model="fake", model_digest="d", first_layer=layers[0], last_layer=layers[1], num_layers=num_layers,
            hidden_size=1, vocab_size=VOCAB, dtype=tensor_pb2.ELEMENT_TYPE_F32, max_sessions=8,
            max_session_tokens=MAX_SESSION_TOKENS, max_slice_rows=MAX_SLICE_ROWS,
        )  # fmt: skip
        self.name = name
        self.loading = False
        self.deaf = False  # hears slices and queries, does and says nothing
        self.faults: dict[int, Fault] = {}  # by number of the slice, counted from 0 over all sessions
        self.following: Callable[[], FakeShard | None] = lambda: None
        self.is_last = layers[1] == num_layers
        self.sessions: dict[str, Session] = {}
        self.released: list[str] = []
        self.slices: list[verifier_pb2.Slice] = []
        self.violations: list[str] = []
        self._next_token = next_token
        self._streams: dict[str, asyncio.Queue[verifier_pb2.ConnectResponse | None]] = {}
        self._held: list[verifier_pb2.ConnectResponse] = []
        self._paused: list[verifier_pb2.Slice] | None = None

    async def Describe(self, request: Any, context: Any) -> verifier_pb2.DescribeResponse:
        if self.loading:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "loading")
        return self.description

    async def Connect(self, requests: AsyncIterator[verifier_pb2.ConnectRequest], context: Any) -> None:
        outbox: asyncio.Queue[verifier_pb2.ConnectResponse | None] = asyncio.Queue()
        reader = asyncio.create_task(self._read(requests, outbox))
        try:
            while (message := await outbox.get()) is not None:
                await context.write(message)
            await context.abort(grpc.StatusCode.UNAVAILABLE, "dropped")
        finally:
            reader.cancel()

    def drop_streams(self) -> None:
        """Ends every peer's stream."""
        for outbox in self._streams.values():
            outbox.put_nowait(None)

    def pause(self) -> None:
        """From now on slices wait."""
        self._paused = []

    def resume(self) -> None:
        """The slices that waited are taken."""
        waiting, self._paused = self._paused or [], None
        for piece in waiting:
            self.receive(piece)

    @property
    def waiting(self) -> int:
        """Slices that wait."""
        return len(self._paused or [])

    def receive(self, piece: verifier_pb2.Slice) -> None:
        """Takes a slice from the orchestrator or from the shard before."""
        if self._paused is not None:
            self._paused.append(piece)
            return
        number = len(self.slices)
        self.slices.append(piece)
        fault = self.faults.get(number)
        if fault is Fault.FORGET:
            self.sessions.clear()
        if self.deaf or piece.session in self.released:
            return
        self._check(piece)
        try:
            if fault in _FAILURES:
                self._fail(piece, _FAILURES[fault], fault.value)
                return
            self._apply(piece)
        except _Late:
            return
        except FailedPrecondition as error:
            self._fail(piece, 9, str(error))
            return
        if fault is Fault.DROP_STREAM:
            self.drop_streams()
        self._pass_on(piece, fault)

    def _apply(self, piece: verifier_pb2.Slice) -> None:
        session = self.sessions.get(piece.session, Session())
        session.apply(piece)
        self.sessions[piece.session] = session

    def _pass_on(self, piece: verifier_pb2.Slice, fault: Fault | None) -> None:
        onward = verifier_pb2.Slice()
        onward.CopyFrom(piece)
        onward.stages.add(
            shard=self.name, queue_ms=QUEUE_MS, compute_ms=COMPUTE_MS, other_ms=OTHER_MS, batch_rows=len(piece.tokens)
        )
        following = self.following()
        if following is not None:
            following.receive(onward)
        elif not self.is_last:
            self._fail(piece, 14, "the next shard is gone")
        elif piece.want_verdict:
            self._answer(piece.origin, self._verdict(onward, self.sessions[piece.session]), fault)

    def _verdict(self, piece: verifier_pb2.Slice, session: Session) -> verifier_pb2.Verdict:
        setup = session.setup or verifier_pb2.SessionSetup()
        accepted, choices = [piece.committed_rows - 1], []
        while True:
            choice = self._next_token(session.text(accepted[-1]))
            choices.append(_choice(choice, setup))
            children = [row for row in range(piece.committed_rows, len(session.rows))
                        if session.parents[row] == accepted[-1] and session.rows[row] == choice]  # fmt: skip
            if not children:
                break
            accepted.append(children[0])
        verdict = verifier_pb2.Verdict(
            session=piece.session, epoch=piece.epoch, round=piece.round, base=piece.base, accepted_rows=accepted,
            next_token=choice, choices=choices, stages=piece.stages,
        )  # fmt: skip
        if setup.want_hidden:  # the state of a row is its own position, so that a mix-up shows
            positions = [float(len(session.text(row)) - 1) for row in accepted]
            data = struct.pack(f"<{len(positions)}f", *positions)
            verdict.hidden.CopyFrom(tensor_pb2.Tensor(dtype=1, shape=[len(positions), 1], data=data))
        return verdict

    def _answer(self, origin: str, verdict: verifier_pb2.Verdict, fault: Fault | None) -> None:
        if fault is Fault.GARBLE:
            verdict.accepted_rows.append(1000)
        message = verifier_pb2.ConnectResponse(verdict=verdict)
        if fault is Fault.DELAY:
            self._held.append(message)
        elif fault not in (Fault.LOSE, Fault.DROP_STREAM):
            for each in [*self._held, message] + [message] * (fault is Fault.DUPLICATE):
                self._say(origin, each)
            self._held.clear()

    def _fail(self, piece: verifier_pb2.Slice, code: int, message: str) -> None:
        failure = verifier_pb2.Failure(
            session=piece.session, epoch=piece.epoch, round=piece.round, code=code,
            message=f"{self.name}: {message}", state=self._state(piece.session),
        )  # fmt: skip
        self._say(piece.origin, verifier_pb2.ConnectResponse(failure=failure))

    def _state(self, name: str) -> verifier_pb2.SessionState:
        held = self.sessions.get(name, Session())
        return verifier_pb2.SessionState(session=name, epoch=held.epoch, round=held.round, base=len(held.committed))

    def _say(self, peer: str, message: verifier_pb2.ConnectResponse) -> None:
        if peer in self._streams:
            self._streams[peer].put_nowait(message)

    def _check(self, piece: verifier_pb2.Slice) -> None:
        setup = piece.setup if piece.HasField("setup") else None
        limit = setup.max_tokens if setup else MAX_SESSION_TOKENS
        rules = {
            "setup in round 0, and only there": (setup is not None) == (piece.round == 0),
            "rows fit a slice": 1 <= piece.committed_rows <= len(piece.tokens) <= MAX_SLICE_ROWS,
            "rows fit the session": piece.base + len(piece.tokens) <= limit <= MAX_SESSION_TOKENS,
            "ids are in the vocabulary": max(piece.tokens) < VOCAB,
            "parents come first": all(-1 <= parent < row for row, parent in enumerate(piece.parents)),
            "a slice after round 0 has an origin": bool(piece.origin),
        }
        self.violations += [f"{self.name}: {rule}" for rule, holds in rules.items() if not holds]

    async def _read(self, requests: AsyncIterator[verifier_pb2.ConnectRequest], outbox: asyncio.Queue[Any]) -> None:
        async for request in requests:
            kind = request.WhichOneof("message")
            if kind == "hello":
                self._streams[request.hello.peer] = outbox
            elif kind == "ping":
                pong = link_pb2.Pong(sequence=request.ping.sequence, padding=request.ping.padding)
                outbox.put_nowait(verifier_pb2.ConnectResponse(pong=pong))
            elif kind == "slice":
                self.receive(request.slice)
            elif kind == "release":
                self.released += request.release.sessions
                for name in request.release.sessions:
                    self.sessions.pop(name, None)
            elif kind == "query" and not self.deaf:
                outbox.put_nowait(verifier_pb2.ConnectResponse(session_state=self._state(request.query.session)))


def _choice(token: int, setup: verifier_pb2.SessionSetup) -> verifier_pb2.Choice:
    choice = verifier_pb2.Choice(token_id=token, top_ids=range(token, token + 8))
    if setup.want_logprobs:
        choice.logprob = -0.5
    for rank in range(setup.top_logprobs):
        choice.top.add(token_id=token + rank, logprob=-0.5 - rank)
    return choice
