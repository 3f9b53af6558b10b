"""The gRPC client: what it sends, what it gives back, how it ends."""

import asyncio
from contextlib import aclosing

import grpc
import pytest

from shardflow import errors
from shardflow.client import Chunk, ShardflowClient, Token, Usage, gather, to_request
from shardflow.v1 import orchestrator_pb2 as pb
from shardflow.v1 import sampling_pb2
from tests.fake_orchestrator import FakeOrchestrator, answer, served


def test_a_text_is_sent_as_it_is() -> None:
    assert to_request("Hello") == pb.GenerateRequest(text="Hello")


def test_token_ids_are_sent_as_ids() -> None:
    assert to_request([5, 6]) == pb.GenerateRequest(token_ids=pb.TokenIds(ids=[5, 6]))


def test_a_conversation_is_sent_as_messages() -> None:
    request = to_request([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}])
    assert [(message.role, message.content) for message in request.chat.messages] == [
        ("system", "Be brief."),
        ("user", "Hi"),
    ]


def test_sampling_options_go_into_the_sampling_message_and_the_others_beside_it() -> None:
    request = to_request("x", temperature=0.5, seed=0, logit_bias={3: -1.0}, max_tokens=4, stop=["a", "b"])
    assert request == pb.GenerateRequest(
        text="x",
        sampling=sampling_pb2.SamplingParams(temperature=0.5, seed=0, logit_bias={3: -1.0}),
        max_tokens=4,
        stop=["a", "b"],
    )


def test_what_is_not_given_is_not_set() -> None:
    request = to_request("x", temperature=0.5)
    assert not request.HasField("max_tokens")
    assert not request.HasField("speculation")
    assert not request.sampling.HasField("seed")


def test_a_mode_of_speculation_is_sent_as_its_message() -> None:
    asked = to_request("x", speculation="tree:31")
    assert asked == pb.GenerateRequest(text="x", speculation=pb.Speculation(tree=pb.TreeSpeculation(nodes=31)))


@pytest.mark.parametrize(
    ("prompt", "options", "field"),
    [
        ([], {}, "prompt"),
        ([-1], {}, "prompt"),
        ([{"role": "user"}], {}, "prompt"),
        ("x", {"max_tokens": -1}, "max_tokens"),
        ("x", {"temperature": "warm"}, "temperature"),
        ("x", {"seed": 2**64}, "seed"),
        ("x", {"stop": 3}, "stop"),
        ("x", {"speculation": "fast"}, "speculation"),
        ("x", {"nonsense": 1}, "nonsense"),
    ],
)
async def test_what_can_not_be_sent_is_refused_by_name(prompt: object, options: dict[str, object], field: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=field):
        to_request(prompt, **options)  # type: ignore[arg-type]


async def test_an_answer_streams_as_chunks() -> None:
    async with served(FakeOrchestrator(answer("Par", "is"))) as address, ShardflowClient(address) as client:
        chunks = [chunk async for chunk in client.generate("x")]
    usage = Usage(prompt_tokens=3, completion_tokens=2, rounds=2, drafted_tokens=8, accepted_tokens=1)
    assert chunks == [
        Chunk("r1", (Token(1, "Par", "target"),), "Par"),
        Chunk("r1", (Token(2, "is", "target"),), "is", finish_reason="stop", usage=usage, seed=7),
    ]


async def test_a_token_tells_its_source_and_its_alternatives() -> None:
    token = pb.Token(id=9, text="a", source=pb.TOKEN_SOURCE_CORRECTED, logprob=-0.5)
    token.top.add(token_id=9, logprob=-0.5)
    reply = pb.GenerateResponse(tokens=[token], finish_reason=pb.FINISH_REASON_LENGTH)
    async with served(FakeOrchestrator([reply])) as address, ShardflowClient(address) as client:
        whole = await client.complete("x", logprobs=True, top_logprobs=1)
    assert whole.tokens == (Token(9, "a", "corrected", -0.5, ((9, -0.5),)),)
    assert whole.finish_reason == "length"


async def test_complete_gathers_the_whole_answer() -> None:
    replies = answer("Par", "is", ".")
    replies[1].rounds.add(round_ms=90.0)
    async with served(FakeOrchestrator(replies)) as address, ShardflowClient(address) as client:
        whole = await client.complete("x")
    assert (whole.request_id, whole.text, whole.seed) == ("r1", "Paris.", 7)
    assert [token.id for token in whole.tokens] == [1, 2, 3]
    assert [record.round_ms for record in whole.rounds] == [90.0]


def test_a_stream_without_an_end_is_no_answer() -> None:
    with pytest.raises(errors.ShardflowError, match="finish reason"):
        gather([Chunk("r1", (), "Par")])


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, errors.InvalidArgument),
        (grpc.StatusCode.NOT_FOUND, errors.NotFound),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, errors.ResourceExhausted),
        (grpc.StatusCode.FAILED_PRECONDITION, errors.FailedPrecondition),
        (grpc.StatusCode.UNAVAILABLE, errors.Unavailable),
        (grpc.StatusCode.UNKNOWN, errors.InternalError),
    ],
)
async def test_a_status_code_becomes_its_typed_error(code: grpc.StatusCode, kind: type[Exception]) -> None:
    async with served(FakeOrchestrator(answer("a"), (code, "because"))) as address, ShardflowClient(address) as client:
        with pytest.raises(errors.ShardflowError, match=f"{address}: because") as caught:
            await client.complete("x")
    assert type(caught.value) is kind


async def test_tokens_before_a_failure_are_delivered() -> None:
    fake = FakeOrchestrator(answer("a", "b")[:1], (grpc.StatusCode.UNAVAILABLE, "gone"))
    texts = []
    async with served(fake) as address, ShardflowClient(address) as client:
        with pytest.raises(errors.Unavailable):
            async for chunk in client.generate("x"):
                texts.append(chunk.text)
    assert texts == ["a"]


async def test_nobody_listening_is_unavailable_and_names_the_address() -> None:
    async with ShardflowClient("127.0.0.1:1") as client:
        with pytest.raises(errors.Unavailable, match=r"127\.0\.0\.1:1"):
            await client.status()


async def test_the_deadline_is_for_the_whole_answer() -> None:
    async with served(FakeOrchestrator(answer("a", "b")[:1], hang=True)) as address, ShardflowClient(address) as client:
        with pytest.raises(TimeoutError):
            await client.complete("x", timeout=0.3)


async def test_closing_the_iterator_cancels_the_request() -> None:
    fake = FakeOrchestrator(answer("a", "b")[:1], hang=True)
    async with served(fake) as address, ShardflowClient(address) as client:
        async with aclosing(client.generate("x")) as chunks:
            await anext(chunks)
        async with asyncio.timeout(5):
            await fake.cancelled.wait()


async def test_cancelling_the_task_cancels_the_request() -> None:
    fake = FakeOrchestrator(answer("a", "b")[:1], hang=True)
    async with served(fake) as address, ShardflowClient(address) as client:
        chunks = client.generate("x")
        await anext(chunks)
        waiting = asyncio.ensure_future(anext(chunks))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        async with asyncio.timeout(5):
            await fake.cancelled.wait()


async def test_status_is_the_message_as_it_came() -> None:
    state = pb.GetStatusResponse(model="tiny", num_layers=4)
    async with served(FakeOrchestrator(state=state)) as address, ShardflowClient(address) as client:
        assert await client.status() == state
