"""Between the wire's messages and what the shard works with."""

from torch import Tensor

from services.verifier.deciding import Decision
from services.verifier.sessions import Session
from services.verifier.slices import Head, Limits, Setup
from shardflow.engine import KVCache, ModelSlice
from shardflow.engine.wire import from_proto, sampling_from_proto, to_proto
from shardflow.errors import InvalidArgument, ShardflowError, rpc_code
from shardflow.v1 import sampling_pb2, verifier_pb2


def read_head(message: verifier_pb2.Slice, limits: Limits) -> Head:
    """The slice without its hidden states; InvalidArgument if it is too long or its sampling parameters are off."""
    for field in ("tokens", "parents", "keep"):
        if len(getattr(message, field)) > limits.max_slice_rows:
            raise InvalidArgument(
                f"{field}: {len(getattr(message, field))} rows, 1 to {limits.max_slice_rows} fit a slice"
            )
    return Head(
        origin=message.origin,
        session=message.session,
        epoch=message.epoch,
        round=message.round,
        base=message.base,
        keep=tuple(message.keep),
        tokens=tuple(message.tokens),
        parents=tuple(message.parents) or tuple(range(-1, len(message.tokens) - 1)),
        committed_rows=message.committed_rows,
        want_verdict=message.want_verdict,
        setup=_read_setup(message.setup, limits.vocab_size) if message.HasField("setup") else None,
    )


def read_hidden(message: verifier_pb2.Slice, model: ModelSlice) -> Tensor | None:
    """`[rows, hidden_size]` from the shard before, none on the first; InvalidArgument if this shard needs another."""
    if model.is_first:
        if message.HasField("hidden"):
            raise InvalidArgument("hidden: the first shard takes tokens only")
        return None
    if not message.HasField("hidden"):
        raise InvalidArgument("hidden: missing, and this is not the first shard")
    hidden = from_proto(message.hidden, field="hidden", rows=len(message.tokens), width=model.hidden_size)
    if hidden.dtype != model.dtype:
        raise InvalidArgument(f"hidden: {hidden.dtype} came where this shard computes in {model.dtype}")
    return hidden


def set_hidden(message: verifier_pb2.Slice, hidden: Tensor) -> None:
    """Puts the hidden states `[rows, hidden_size]` of this shard into a slice that is to be passed on."""
    message.hidden.CopyFrom(to_proto(hidden))


def verdict(head: Head, setup: Setup, decision: Decision) -> verifier_pb2.ConnectResponse:
    """The answer to a slice, but for its timings."""
    answer = verifier_pb2.Verdict(
        session=head.session,
        epoch=head.epoch,
        round=head.round,
        base=head.base,
        accepted_rows=decision.walk.accepted,
        next_token=decision.walk.next_token,
        choices=[_choice(decision, index, setup) for index in range(len(decision.walk.accepted))],
        hidden=to_proto(decision.hidden) if setup.want_hidden else None,
    )
    return verifier_pb2.ConnectResponse(verdict=answer)


def failure(
    slice_: Head | verifier_pb2.Slice, shard: str, error: ShardflowError, session: Session[KVCache] | None
) -> verifier_pb2.ConnectResponse:
    """Why a slice was not applied, and what the shard has."""
    answer = verifier_pb2.Failure(
        session=slice_.session,
        epoch=slice_.epoch,
        round=slice_.round,
        code=rpc_code(error),
        message=f"{shard}: {error}",
        state=session_state(slice_.session, session),
    )
    return verifier_pb2.ConnectResponse(failure=answer)


def session_state(session_id: str, session: Session[KVCache] | None) -> verifier_pb2.SessionState:
    """The shard's own view of a session; zeros for one that it does not hold."""
    if session is None:
        return verifier_pb2.SessionState(session=session_id)
    return verifier_pb2.SessionState(session=session_id, epoch=session.epoch, round=session.round, base=session.base)


def _read_setup(message: verifier_pb2.SessionSetup, vocab_size: int) -> Setup:
    if any(token >= vocab_size for token in message.sampling.logit_bias):
        raise InvalidArgument(f"sampling.logit_bias: an id is not below the vocabulary size {vocab_size}")
    return Setup(
        max_tokens=message.max_tokens,
        prompt_tokens=message.prompt_tokens,
        top_logprobs=message.top_logprobs,
        want_logprobs=message.want_logprobs,
        want_hidden=message.want_hidden,
        sampling=sampling_from_proto(message.sampling),
    )


def _choice(decision: Decision, index: int, setup: Setup) -> verifier_pb2.Choice:
    choice = verifier_pb2.Choice(token_id=decision.walk.choices[index], top_ids=decision.top_ids[index])
    if decision.laws is not None:
        law = decision.laws[index]
        if setup.want_logprobs:
            choice.logprob = law.chosen
        choice.top.extend(sampling_pb2.TokenLogprob(token_id=token, logprob=value) for token, value in law.top)
    return choice
