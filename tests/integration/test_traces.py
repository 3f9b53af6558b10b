"""One trace of a request over orchestrator, draft and shards: real services, real exporter, a collector on a port."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import torch
from opentelemetry.proto.trace.v1 import trace_pb2

from shardflow import tracing
from shardflow.otlp import Export
from tests.families import LAYERS, tiny_model
from tests.integration.exactness.deployment import deployed
from tests.orchestrating import write_model
from tests.spans import Collector, collecting


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    async with collecting() as collector:
        yield collector


@asynccontextmanager
async def exporting_to(collector: Collector) -> AsyncIterator[None]:
    """Spans of the block have arrived at its end."""
    export = Export("everything", collector.endpoint)
    tracing.use(export.provider)
    try:
        yield
    finally:
        tracing.use(None)
        await asyncio.to_thread(export.close)


def lines(spans: Sequence[trace_pb2.Span], parent: bytes, depth: int = 0) -> list[str]:
    """A line for each span below `parent`, in the order of their starts; a stage's with its shard."""
    below = [each for each in spans if each.parent_span_id == parent]
    found: list[str] = []
    for each in sorted(below, key=lambda each: each.start_time_unix_nano):
        shard = next((f" {part.value.string_value}" for part in each.attributes if part.key == "shardflow.shard"), "")
        found += [f"{'  ' * depth}{each.name}{shard}", *lines(spans, each.span_id, depth + 1)]
    return found


async def trace_of(path: Path, collector: Collector, mode: str, tokens: int) -> Sequence[trace_pb2.Span]:
    """The spans of one request to three shards and a draft that is always right."""
    torch.set_num_threads(1)
    target, tokenizer = tiny_model("llama", path / "llama", tied=False), write_model(path / "tokenizer")
    async with (
        exporting_to(collector),
        deployed(target, tokenizer, layers=LAYERS, shards=3, draft=target) as deployment,
    ):
        await deployment.generate([17, 3, 150], mode=mode, tokens=tokens, ignore_eos=True)
    assert len({span.trace_id for span in collector.spans}) == 1
    return collector.spans


async def test_one_trace_over_all_services(tmp_path: Path, collector: Collector) -> None:
    spans = await trace_of(tmp_path, collector, "linear:2", tokens=4)
    stages = ["    stage verifier[0:2]", "    stage verifier[2:4]", "    stage verifier[4:5]"]
    assert lines(spans, b"") == [
        "request", "  round", *stages, "  round", "    draft", "      propose", *stages,
    ]  # fmt: skip


async def test_what_is_drafted_ahead_is_in_the_trace(tmp_path: Path, collector: Collector) -> None:
    spans = await trace_of(tmp_path, collector, "auto", tokens=24)
    names = {span.span_id: span.name for span in spans} | {b"": ""}
    assert {(span.name, names[span.parent_span_id]) for span in spans} == {
        ("request", ""), ("round", "request"), ("stage", "round"), ("draft", "round"), ("propose", "draft"),
    }  # fmt: skip


def test_services_that_export_nothing_do_not_load_the_sdk() -> None:
    script = """if True:
        import sys
        import services.draft.__main__, services.orchestrator.__main__, services.verifier.__main__
        print([name for name in sys.modules if name.startswith("opentelemetry.sdk")])
    """
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"
