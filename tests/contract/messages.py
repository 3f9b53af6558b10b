"""One example of each message of the contract, with every field set."""

from google.protobuf.message import Message

from shardflow.v1 import draft_pb2, link_pb2, orchestrator_pb2, sampling_pb2, tensor_pb2, verifier_pb2

TENSOR = tensor_pb2.Tensor(dtype=tensor_pb2.ELEMENT_TYPE_BF16, shape=[1, 2], data=b"\1\2\3\4")
SAMPLING = sampling_pb2.SamplingParams(
    temperature=0.5, top_k=2, top_p=0.25, min_p=0.125, repetition_penalty=1.5, presence_penalty=-1,
    frequency_penalty=2, logit_bias={300: -4}, seed=2**64 - 1,
)  # fmt: skip
TOP = sampling_pb2.TokenLogprob(token_id=5, logprob=-0.5)
HELLO, PING, PONG = (
    link_pb2.Hello(peer="p"),
    link_pb2.Ping(sequence=1, padding=b"\0"),
    link_pb2.Pong(sequence=2, padding=b"\0"),
)
SETUP = verifier_pb2.SessionSetup(
    sampling=SAMPLING, prompt_tokens=2, top_logprobs=3, want_logprobs=True, want_hidden=True, max_tokens=6
)
STAGE = verifier_pb2.StageTiming(shard="s", queue_ms=1, compute_ms=2, other_ms=4, batch_rows=5)
STATE = verifier_pb2.SessionState(session="s", epoch=2, round=3, base=4)
SLICE = verifier_pb2.Slice(
    session="s", epoch=2, round=3, base=4, keep=[0, 2], tokens=[6, 300], parents=[-1, 0], hidden=TENSOR,
    want_verdict=True, origin="o", setup=SETUP, stages=[STAGE], committed_rows=13, traceparent="t",
)  # fmt: skip
CHOICE = verifier_pb2.Choice(token_id=1, logprob=-0.5, top=[TOP], top_ids=[7, 8])
VERDICT = verifier_pb2.Verdict(
    session="s", epoch=2, round=3, base=4, accepted_rows=[0, 1], next_token=6, choices=[CHOICE], hidden=TENSOR,
    stages=[STAGE],
)  # fmt: skip
FAILURE = verifier_pb2.Failure(session="s", epoch=2, round=3, code=9, message="m", state=STATE)
RELEASE, QUERY = verifier_pb2.Release(sessions=["a", "b"]), verifier_pb2.Query(session="s")
LINK = link_pb2.LinkStatus(dialler="s", peer="t", address="a", relay="r", connected=True, rtt_ms=6, bytes_per_second=7)
DESCRIBE = verifier_pb2.DescribeResponse(
    model="m", model_digest="d", first_layer=3, last_layer=4, num_layers=5, hidden_size=6, vocab_size=7,
    dtype=tensor_pb2.ELEMENT_TYPE_F16, max_session_tokens=9, max_sessions=10, sessions=11, kv_bytes_per_token=12,
    version="v", max_slice_rows=14, kv_tokens=15, next=LINK, unix_time_ms=17,
)  # fmt: skip
EXTEND = draft_pb2.Extend(
    base=1, tokens=[2, 300], hidden=TENSOR, max_nodes=4, max_depth=5, max_children=6, sampling=SAMPLING,
    prompt_tokens=8, max_levels=9, min_gain=0.5, min_probability=0.25, calibration=[-1, -2], background=True,
    traceparent="t",
)  # fmt: skip
TREE = draft_pb2.Tree(tokens=[1, 300], parents=[-1, 0], logprobs=[-0.5, -1])
DRAFT_FAILURE = draft_pb2.DraftFailure(code=9, message="m", known_tokens=3)
DESCRIBE_DRAFT = draft_pb2.DescribeDraftResponse(
    model="m", kind=draft_pb2.DRAFT_KIND_HEAD, vocab_size=3, vocabulary_digest="d", hidden_size=5,
    max_session_tokens=6, version="v",
)  # fmt: skip
TOKEN = orchestrator_pb2.Token(id=1, text="t", source=orchestrator_pb2.TOKEN_SOURCE_CORRECTED, logprob=-0.5, top=[TOP])
USAGE = orchestrator_pb2.Usage(prompt_tokens=1, completion_tokens=2, rounds=3, drafted_tokens=4, accepted_tokens=5)
RECORD = orchestrator_pb2.RoundRecord(
    round_ms=1, draft_ms=2, network_ms=4, orchestrator_ms=8, stages=[STAGE], drafted_tokens=6, accepted_tokens=7,
    prefill=True, draft_tokens=[9], draft_parents=[-1], draft_sources=[orchestrator_pb2.GUESS_SOURCE_TEXT],
    draft_probabilities=[0.5], accepted_guesses=[0], draft_hidden_ms=14,
)  # fmt: skip
SHARD_STATUS = orchestrator_pb2.ShardStatus(
    address="a", connected=True, relay="r", rtt_ms=4, describe=DESCRIBE, clock_offset_ms=6, clock_error_ms=7
)
DRAFT_STATUS = orchestrator_pb2.DraftStatus(
    address="a", connected=True, model="m", acceptance=0.5, describe=DESCRIBE_DRAFT, problem="p"
)
CHAT = orchestrator_pb2.Chat(messages=[orchestrator_pb2.ChatMessage(role="user", content="c")])


def _generate(**prompt: object) -> orchestrator_pb2.GenerateRequest:
    linear = orchestrator_pb2.Speculation(linear=orchestrator_pb2.LinearSpeculation(k=1))
    return orchestrator_pb2.GenerateRequest(
        model="m", sampling=SAMPLING, max_tokens=6, stop=["x", "y"], ignore_eos=True, logprobs=True, top_logprobs=10,
        speculation=linear, round_records=True, **prompt,
    )  # fmt: skip


MESSAGES: dict[str, Message] = {
    "tensor": TENSOR,
    "sampling": SAMPLING,
    "token logprob": TOP,
    "hello to a shard": verifier_pb2.ConnectRequest(hello=HELLO),
    "slice": verifier_pb2.ConnectRequest(slice=SLICE),
    "release": verifier_pb2.ConnectRequest(release=RELEASE),
    "ping to a shard": verifier_pb2.ConnectRequest(ping=PING),
    "query": verifier_pb2.ConnectRequest(query=QUERY),
    "verdict": verifier_pb2.ConnectResponse(verdict=VERDICT),
    "failure": verifier_pb2.ConnectResponse(failure=FAILURE),
    "pong of a shard": verifier_pb2.ConnectResponse(pong=PONG),
    "session state": verifier_pb2.ConnectResponse(session_state=STATE),
    "description of a shard": DESCRIBE,
    "extend": draft_pb2.ProposeRequest(request_id=1, session="s", extend=EXTEND),
    "forget": draft_pb2.ProposeRequest(request_id=1, session="s", forget=draft_pb2.Forget()),
    "hello to a draft": draft_pb2.ProposeRequest(hello=HELLO),
    "ping to a draft": draft_pb2.ProposeRequest(ping=PING),
    "tree": draft_pb2.ProposeResponse(request_id=1, session="s", tree=TREE, queue_ms=1, compute_ms=2, levels=3),
    "failure of a draft": draft_pb2.ProposeResponse(request_id=1, session="s", failure=DRAFT_FAILURE),
    "pong of a draft": draft_pb2.ProposeResponse(pong=PONG),
    "description of a draft": DESCRIBE_DRAFT,
    "text": _generate(text="t"),
    "token ids": _generate(token_ids=orchestrator_pb2.TokenIds(ids=[1, 300])),
    "chat": _generate(chat=CHAT),
    "no speculation": orchestrator_pb2.Speculation(none=orchestrator_pb2.NoSpeculation()),
    "tree speculation": orchestrator_pb2.Speculation(tree=orchestrator_pb2.TreeSpeculation(nodes=1)),
    "lookup speculation": orchestrator_pb2.Speculation(lookup=orchestrator_pb2.LookupSpeculation()),
    "auto speculation": orchestrator_pb2.Speculation(auto=orchestrator_pb2.AutoSpeculation()),
    "answer": orchestrator_pb2.GenerateResponse(
        request_id="r", tokens=[TOKEN], text="t", finish_reason=orchestrator_pb2.FINISH_REASON_LENGTH, usage=USAGE,
        rounds=[RECORD], seed=7,
    ),
    "status": orchestrator_pb2.GetStatusResponse(
        model="m", num_layers=2, max_session_tokens=3, shards=[SHARD_STATUS], draft=DRAFT_STATUS, active_requests=6,
        version="v", default_speculation="none", problem="p", links=[LINK], output_tokens=11, drafted_tokens=12,
        accepted_tokens=13,
    ),
}  # fmt: skip
