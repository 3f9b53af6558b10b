"""One request of the draft, from message to message: checked, run on the session, and answered or refused."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from services.draft.sessions import Held
from shardflow.calibration import CELLS
from shardflow.engine import EngineError, NonFiniteError, SamplingParams
from shardflow.engine.drafts import Drafter, DraftGapError, DraftRequestError, DraftSession, Limits, Proposal
from shardflow.engine.wire import from_proto, sampling_from_proto
from shardflow.errors import FailedPrecondition, InvalidArgument, NumericError, ShardflowError, rpc_code
from shardflow.v1 import draft_pb2

logger = logging.getLogger(__name__)

_CANCELLED = 1  # google.rpc.Code


@dataclass(frozen=True)
class Outcome:
    """An answer, and whether the session it came from may be used again."""

    answer: draft_pb2.ProposeResponse
    usable: bool = True


def propose(drafter: Drafter, held: Held[DraftSession], request: draft_pb2.ProposeRequest, arrived: float) -> Outcome:
    """Answers an Extend, or does one turn of one in the background; never raises.

    `arrived`: when the request came, in seconds on the monotonic clock.
    """
    if held.forgotten:
        return cancelled(request)
    started = time.monotonic()
    outcome = _attempt(drafter, held.state, request)
    outcome.answer.queue_ms = (started - arrived) * 1000
    outcome.answer.compute_ms = (time.monotonic() - started) * 1000
    return outcome


def grown(request: draft_pb2.ProposeRequest) -> Outcome:
    """The answer to what was asked in the background: that it has been done."""
    return Outcome(
        draft_pb2.ProposeResponse(request_id=request.request_id, session=request.session, tree=draft_pb2.Tree())
    )


def cancelled(request: draft_pb2.ProposeRequest) -> Outcome:
    """The answer to what was asked for a session that is over."""
    return Outcome(refusal(request, _CANCELLED, "the session was forgotten", 0))


def refusal(request: draft_pb2.ProposeRequest, code: int, message: str, known: int) -> draft_pb2.ProposeResponse:
    """The answer that says why there is no tree."""
    failure = draft_pb2.DraftFailure(code=code, message=message, known_tokens=known)
    return draft_pb2.ProposeResponse(request_id=request.request_id, session=request.session, failure=failure)


def _attempt(drafter: Drafter, session: DraftSession, request: draft_pb2.ProposeRequest) -> Outcome:
    try:
        proposal = _extend_and_propose(drafter, session, request.extend)
    except (DraftRequestError, DraftGapError, ShardflowError) as error:
        return Outcome(refusal(request, rpc_code(_typed(error)), str(error), session.known_tokens))
    except Exception as error:  # whatever went wrong, it costs this session alone
        if not isinstance(error, NonFiniteError):
            logger.exception("a proposal failed", extra={"session": request.session})
        return Outcome(refusal(request, rpc_code(_typed(error)), f"{type(error).__name__}: {error}", 0), usable=False)
    outcome = grown(request)
    outcome.answer.levels = proposal.levels
    if not request.extend.background:
        tree = proposal.tree
        outcome.answer.tree.MergeFrom(draft_pb2.Tree(tokens=tree.tokens, parents=tree.parents, logprobs=tree.logprobs))
    return outcome


def _extend_and_propose(drafter: Drafter, session: DraftSession, extend: draft_pb2.Extend) -> Proposal:
    limits = Limits(
        extend.max_nodes,
        extend.max_depth,
        extend.max_children,
        1 if extend.background else extend.max_levels,
        extend.min_gain,
        extend.min_probability,
    )
    if extend.background and (extend.tokens or extend.base != session.known_tokens):
        raise InvalidArgument("background: only what is known already grows in the background")
    calibration = _calibration(extend)
    sampling = _sampling(extend, drafter.vocab_size)
    hidden = _hidden(extend, drafter.hidden_size)
    session.extend(extend.base, list(extend.tokens), prompt_tokens=extend.prompt_tokens, hidden=hidden)
    return session.propose(limits, sampling, calibration)


def _calibration(extend: draft_pb2.Extend) -> Sequence[float] | None:
    if not extend.calibration:
        return None
    if len(extend.calibration) != CELLS or not all(value <= 0 for value in extend.calibration):
        raise InvalidArgument(f"calibration: {CELLS} logarithms of probabilities are due")
    return list(extend.calibration)


def _sampling(extend: draft_pb2.Extend, vocab_size: int) -> SamplingParams:
    if any(token >= vocab_size for token in extend.sampling.logit_bias):
        raise InvalidArgument(f"sampling.logit_bias: an id is not below the draft's vocabulary size {vocab_size}")
    return sampling_from_proto(extend.sampling)


def _hidden(extend: draft_pb2.Extend, width: int) -> Tensor | None:
    """`[n, width]`, or None if there is none."""
    if not extend.HasField("hidden"):
        return None
    rows = extend.hidden.shape[0] if extend.hidden.shape else 0
    return from_proto(extend.hidden, field="hidden", rows=rows, width=width)


def _typed(error: Exception) -> Exception:
    """The service's error for one of the engine's; anything else stays, and counts as INTERNAL."""
    table: dict[type[EngineError], type[ShardflowError]] = {
        DraftRequestError: InvalidArgument,
        DraftGapError: FailedPrecondition,
        NonFiniteError: NumericError,
    }
    kind = next((ours for theirs, ours in table.items() if isinstance(error, theirs)), None)
    return error if kind is None else kind(str(error))
