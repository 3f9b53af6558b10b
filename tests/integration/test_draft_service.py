"""The draft service over real gRPC: streams, order, eviction, forgetting, draining."""

import asyncio
import gc
import threading
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
import torch
from prometheus_client import CollectorRegistry

from services.draft.config import DraftSettings
from services.draft.server import DraftService
from shardflow.engine.drafts import Limits, Proposal
from shardflow.engine.drafts.hf import ModelSession
from shardflow.engine.errors import CheckpointError
from shardflow.metrics import DraftMetrics
from shardflow.transport import SERVER_OPTIONS, open_channel
from shardflow.v1 import draft_pb2, draft_pb2_grpc, link_pb2, tensor_pb2
from tests.unit.draft.tiny import save_head, save_model

Request, Response = draft_pb2.ProposeRequest, draft_pb2.ProposeResponse
HELLO = Request(hello=link_pb2.Hello(peer="orchestrator"))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    path = tmp_path_factory.mktemp("models")
    save_model(path / "model", seed=1)
    save_head(path / "head", seed=3)
    return path


class Running:
    """A service that serves, and a client's way to it."""

    def __init__(self, service: DraftService, channel: grpc.aio.Channel, registry: CollectorRegistry) -> None:
        self.service = service
        self.stub = draft_pb2_grpc.DraftServiceStub(channel)
        self.registry = registry
        self._ids = iter(range(1, 1000))

    async def open(self) -> Any:
        call = self.stub.Propose(timeout=30)
        await call.write(HELLO)
        return call

    async def send(self, call: Any, session: str, **fields: Any) -> int:
        """Sends an Extend; its request id."""
        request_id = next(self._ids)
        shape = {"max_nodes": 4, "max_depth": 4, "max_children": 1, "prompt_tokens": 3}
        extend = draft_pb2.Extend(**(shape | fields))
        await call.write(Request(request_id=request_id, session=session, extend=extend))
        return request_id

    async def ask(self, call: Any, session: str, **fields: Any) -> Response:
        await self.send(call, session, **fields)
        answer: Response = await call.read()
        return answer

    async def until_read(self, call: Any) -> None:
        """Returns when the service has read all that was sent, if it has answered all before."""
        await call.write(Request(ping=link_pb2.Ping(sequence=1)))
        assert (await call.read()).HasField("pong")

    def sessions(self) -> float | None:
        return self.registry.get_sample_value("shardflow_draft_sessions")


@asynccontextmanager
async def serving(path: Path, start: bool = True, **settings: Any) -> AsyncIterator[Running]:
    registry = CollectorRegistry()
    service = DraftService(DraftSettings(model=path, **settings), DraftMetrics(registry))
    server = grpc.aio.server(options=SERVER_OPTIONS)
    service.register(server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    channel = open_channel(f"127.0.0.1:{port}", relay=None)
    try:
        if start:
            await service.start()
        yield Running(service, channel, registry)
    finally:
        await channel.close()
        await service.close()
        await server.stop(grace=0)


async def test_a_model_describes_itself(models: Path) -> None:
    async with serving(models / "model", max_session_tokens=300) as running:
        answer = await running.stub.DescribeDraft(draft_pb2.DescribeDraftRequest())
    assert (answer.model, answer.kind) == ("model", draft_pb2.DRAFT_KIND_MODEL)
    assert (answer.vocab_size, answer.hidden_size, answer.max_session_tokens) == (97, 0, 300)


async def test_a_head_describes_itself_and_answers(models: Path) -> None:
    async with serving(models / "head", target=models / "model") as running:
        answer = await running.stub.DescribeDraft(draft_pb2.DescribeDraftRequest())
        assert (answer.kind, answer.hidden_size) == (draft_pb2.DRAFT_KIND_HEAD, 32)
        hidden = tensor_pb2.Tensor(dtype=tensor_pb2.ELEMENT_TYPE_F32, shape=[1, 32], data=bytes(128))
        proposal = await running.ask(await running.open(), "s", tokens=[3, 1, 4, 1], hidden=hidden)
    assert len(proposal.tree.tokens) == 4


async def test_a_head_without_its_target_does_not_start(models: Path) -> None:
    async with serving(models / "head", start=False) as running:
        with pytest.raises(CheckpointError, match="target"):
            await running.service.start()


async def test_before_the_weights_are_loaded_it_is_unavailable(models: Path) -> None:
    async with serving(models / "model", start=False) as running:
        for call in (running.stub.DescribeDraft(draft_pb2.DescribeDraftRequest()), running.stub.Propose().read()):
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await call
            assert error.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_every_request_may_be_repeated(models: Path) -> None:
    async with serving(models / "model") as running:
        call = await running.open()
        first = await running.ask(call, "s", tokens=[3, 1, 4])
        text = [3, 1, 4, *first.tree.tokens[:2], 9]
        second = await running.ask(call, "s", base=3, tokens=text[3:])
        again = await running.ask(call, "s", base=3, tokens=text[3:])
        fresh = await running.ask(await running.open(), "t", tokens=text)
    assert first.tree.parents == [-1, 0, 1, 2]
    assert second.tree.tokens == again.tree.tokens == fresh.tree.tokens


async def test_a_ping_is_echoed_while_a_model_computes(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(models / "model") as running:
        release = blocked(monkeypatch)
        call = await running.open()
        await running.send(call, "s", tokens=[3, 1, 4])
        await call.write(Request(ping=link_pb2.Ping(sequence=7, padding=b"xy")))
        pong = (await call.read()).pong
        assert (pong.sequence, pong.padding) == (7, b"xy")
        release()
        assert (await call.read()).HasField("tree")


async def test_sessions_of_two_streams_interleave(models: Path) -> None:
    async with serving(models / "model") as running:
        one, other = await running.open(), await running.open()
        ids = [
            await running.send(call, name, tokens=[3, 1, 4]) for call, name in ((one, "a"), (other, "b"), (one, "c"))
        ]
        mine = [await one.read(), await one.read()]
        theirs = await other.read()
    assert [(answer.request_id, answer.session) for answer in mine] == [(ids[0], "a"), (ids[2], "c")]
    assert (theirs.request_id, theirs.session) == (ids[1], "b")


async def test_an_evicted_session_is_sent_again_from_the_start(models: Path) -> None:
    async with serving(models / "model", max_sessions=2) as running:
        call = await running.open()
        before = await running.ask(call, "a", tokens=[3, 1, 4])
        await running.ask(call, "b", tokens=[3, 1, 4])
        await running.ask(call, "c", tokens=[3, 1, 4])
        missed = await running.ask(call, "a", base=3, tokens=[1])
        after = await running.ask(call, "a", tokens=[3, 1, 4])
        assert running.sessions() == 2
    assert (missed.failure.code, missed.failure.known_tokens) == (9, 0)
    assert after.tree == before.tree


async def test_forgetting_frees_a_session_at_once(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[weakref.ref[ModelSession]] = []
    monkeypatch.setattr(ModelSession, "__init__", remembering(made))
    async with serving(models / "model") as running:
        call = await running.open()
        await running.ask(call, "s", tokens=[3, 1, 4])
        assert running.sessions() == 1
        await call.write(Request(session="s", forget=draft_pb2.Forget()))
        await running.ask(call, "t", tokens=[3, 1, 4])  # the thread has moved on
        gc.collect()
        assert running.sessions() == 1
        assert [ref() is None for ref in made] == [True, False]


async def test_what_is_queued_for_a_forgotten_session_is_not_computed(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(models / "model") as running:
        release = blocked(monkeypatch)
        call = await running.open()
        await running.send(call, "running", tokens=[3, 1, 4])
        queued = await running.send(call, "queued", tokens=[3, 1, 4])
        await call.write(Request(session="queued", forget=draft_pb2.Forget()))
        await running.until_read(call)
        release()
        answers = {answer.request_id: answer for answer in (await call.read(), await call.read())}
        assert answers[queued].failure.code == 1  # CANCELLED
        assert running.sessions() == 1


AHEAD = {"base": 3, "max_nodes": 512, "max_depth": 64, "max_children": 8, "background": True}


class Gate:
    """Keeps each forward pass in the background waiting until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()
        real = ModelSession.propose

        def gated(session: ModelSession, limits: Limits, *ranking: Any) -> Proposal:
            if limits.max_levels == 1:
                self.reached.set()
                assert self.opened.wait(10)
            return real(session, limits, *ranking)

        monkeypatch.setattr(ModelSession, "propose", gated)

    async def wait(self) -> None:
        assert await asyncio.to_thread(self.reached.wait, 10)


async def test_work_in_the_background_gives_way_after_a_level(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(models / "model") as running:
        call = await running.open()
        await running.ask(call, "a", tokens=[3, 1, 4])
        gate = Gate(monkeypatch)
        ahead = await running.send(call, "a", **AHEAD)
        await gate.wait()
        other = await running.send(call, "b", tokens=[3, 1, 4])
        await running.until_read(call)
        gate.opened.set()
        assert (await call.read()).request_id == other
        mine = await running.send(call, "a", base=3, tokens=[7])
        answers = [await call.read(), await call.read()]
    assert [answer.request_id for answer in answers] == [ahead, mine]
    assert answers[0].levels >= 1
    assert answers[0].compute_ms > 0
    assert [len(answer.tree.tokens) for answer in answers] == [0, 4]


async def test_what_grew_in_the_background_is_there_when_it_is_asked_for(models: Path) -> None:
    small = {"max_nodes": 12, "max_depth": 3, "max_children": 3}
    async with serving(models / "model") as running:
        call = await running.open()
        await running.ask(call, "a", tokens=[3, 1, 4], **(small | {"max_nodes": 0}))
        ahead = await running.ask(call, "a", base=3, **small, background=True)
        grown = await running.ask(call, "a", base=3, **small)
        at_once = await running.ask(call, "b", tokens=[3, 1, 4], **small)
    assert (ahead.levels, grown.levels) == (at_once.levels, 0)
    assert at_once.levels > 1
    assert grown.tree == at_once.tree


async def test_a_new_text_is_not_taken_in_in_the_background(models: Path) -> None:
    async with serving(models / "model") as running:
        call = await running.open()
        await running.ask(call, "a", tokens=[3, 1, 4])
        wrong = await running.ask(call, "a", base=3, tokens=[1], background=True)
        assert (wrong.failure.code, wrong.failure.known_tokens) == (3, 3)  # INVALID_ARGUMENT
        assert (await running.ask(call, "a", base=3, background=True)).HasField("tree")


async def test_a_forgotten_session_does_not_grow_on(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(models / "model") as running:
        call = await running.open()
        await running.ask(call, "a", tokens=[3, 1, 4])
        gate = Gate(monkeypatch)
        await running.send(call, "a", **AHEAD)
        await gate.wait()
        await call.write(Request(session="a", forget=draft_pb2.Forget()))
        await running.until_read(call)
        gate.opened.set()
        answer = await call.read()
        assert (answer.failure.code, answer.levels) == (1, 1)  # CANCELLED
        assert running.sessions() == 0


async def test_draining_ends_the_background(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(models / "model") as running:
        call = await running.open()
        await running.ask(call, "a", tokens=[3, 1, 4])
        gate = Gate(monkeypatch)
        ahead = await running.send(call, "a", **AHEAD)
        await gate.wait()
        draining = asyncio.create_task(running.service.drain())
        await asyncio.sleep(0)
        gate.opened.set()
        await draining
        answer = await call.read()
    assert (answer.request_id, answer.levels) == (ahead, 1)


async def test_a_spoilt_session_is_dropped_and_the_next_is_fine(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(models / "model") as running:
        call = await running.open()
        with monkeypatch.context() as broken:
            broken.setattr(ModelSession, "propose", lambda self, limits, sampling, calibration: [][0])
            spoilt = await running.ask(call, "s", tokens=[3, 1, 4])
        assert (spoilt.failure.code, running.sessions()) == (13, 0)
        missed = await running.ask(call, "s", base=3, tokens=[1])
        assert missed.failure.known_tokens == 0
        assert (await running.ask(call, "s", tokens=[3, 1, 4])).HasField("tree")


@pytest.mark.parametrize("first", [Request(session="s", forget=draft_pb2.Forget()), Request()], ids=["forget", "empty"])
async def test_a_stream_begins_with_a_hello(models: Path, first: Request) -> None:
    async with serving(models / "model") as running:
        call = running.stub.Propose(timeout=10)
        await call.write(first)
        with pytest.raises(grpc.aio.AioRpcError, match="hello") as error:
            await call.read()
        assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_message_without_an_action_ends_the_stream(models: Path) -> None:
    async with serving(models / "model") as running:
        call = await running.open()
        await call.write(Request(session="s"))
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await call.read()
        assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_stream_that_half_closes_still_gets_its_answers(models: Path) -> None:
    async with serving(models / "model") as running:
        call = await running.open()
        await running.send(call, "s", tokens=[3, 1, 4])
        await call.done_writing()
        assert (await call.read()).HasField("tree")
        assert await call.read() is grpc.aio.EOF


async def test_draining_ends_what_runs_and_refuses_what_comes(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(models / "model") as running:
        release = blocked(monkeypatch)
        call = await running.open()
        first = await running.send(call, "s", tokens=[3, 1, 4])
        await running.until_read(call)
        draining = asyncio.create_task(running.service.drain())
        await asyncio.sleep(0)
        late = await running.ask(call, "t", tokens=[3, 1, 4])
        assert late.failure.code == 14  # UNAVAILABLE
        assert not draining.done()
        release()
        assert (await call.read()).request_id == first
        await draining


async def test_a_new_head_takes_over_between_two_proposals(models: Path, tmp_path: Path) -> None:
    path = save_head(tmp_path / "head", seed=3)
    hidden = tensor_pb2.Tensor(dtype=tensor_pb2.ELEMENT_TYPE_F32, shape=[1, 32], data=bytes(128))
    ask = {"tokens": [3, 1, 4, 1], "hidden": hidden}
    async with serving(path, target=models / "model") as running:
        call = await running.open()
        old = await running.ask(call, "s", **ask)
        other = save_head(tmp_path / "other", seed=4)
        (other / "head.safetensors").replace(path / "head.safetensors")
        await running.service.reload()
        gap = await running.ask(call, "s", base=4, tokens=[9], hidden=hidden)
        assert (gap.failure.code, gap.failure.known_tokens) == (grpc.StatusCode.FAILED_PRECONDITION.value[0], 0)
        new = await running.ask(call, "s", **ask)
    assert len(new.tree.tokens) == 4
    assert list(new.tree.tokens) != list(old.tree.tokens)


async def test_a_head_that_can_not_be_read_leaves_the_old_one(models: Path, tmp_path: Path) -> None:
    path = save_head(tmp_path / "head", seed=3)
    hidden = tensor_pb2.Tensor(dtype=tensor_pb2.ELEMENT_TYPE_F32, shape=[1, 32], data=bytes(128))
    ask = {"tokens": [3, 1, 4, 1], "hidden": hidden}
    async with serving(path, target=models / "model") as running:
        call = await running.open()
        old = await running.ask(call, "s", **ask)
        (path / "head.safetensors").write_bytes(b"cut off")
        await running.service.reload()
        again = await running.ask(call, "s", **ask)
    assert list(again.tree.tokens) == list(old.tree.tokens)


async def test_what_it_did_is_counted(models: Path) -> None:
    async with serving(models / "model") as running:
        call = await running.open()
        await running.ask(call, "s", tokens=[3, 1, 4])
        await running.ask(call, "s", base=9, tokens=[1])
        value = running.registry.get_sample_value
        assert value("shardflow_draft_proposals_total", {"result": "ok"}) == 1
        assert value("shardflow_draft_proposals_total", {"result": "FAILED_PRECONDITION"}) == 1
        assert value("shardflow_draft_nodes_total") == 4
        assert value("shardflow_draft_level_seconds_count") == 1


def blocked(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Holds every proposal back until the returned function is called."""
    gate = threading.Event()
    propose = ModelSession.propose

    def waiting(self: ModelSession, *arguments: Any) -> Any:
        assert gate.wait(20)
        return propose(self, *arguments)

    monkeypatch.setattr(ModelSession, "propose", waiting)
    return gate.set


def remembering(made: list[weakref.ref[ModelSession]]) -> Any:
    begin = ModelSession.__init__

    def init(self: ModelSession, *arguments: Any) -> None:
        begin(self, *arguments)
        made.append(weakref.ref(self))

    return init
