"""A byte-level model directory, a scripted target of two shards, and drafts that are stopped in the end."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fakes import FakeDraft, StartDraft, Target
from tests.orchestrating import write_model


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "bytes")


@pytest.fixture
async def target() -> AsyncIterator[Target]:
    target = Target()
    await target.start()
    yield target
    await target.stop()
    assert target.violations == []


@pytest.fixture
async def start_draft() -> AsyncIterator[StartDraft]:
    started: list[FakeDraft] = []

    async def start(draft: FakeDraft) -> FakeDraft:
        await draft.server.start()
        started.append(draft)
        return draft

    yield start
    for draft in started:
        await draft.server.stop()
        assert draft.violations == []
