"""The draft's tests run on models that are made once a session."""

from pathlib import Path

import pytest
import torch

from shardflow.engine import ModelSlice, load_slice
from tests.unit.draft.tiny import save_head, save_model


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def target_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("models") / "target", seed=1)


@pytest.fixture(scope="session")
def other_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another model with the same vocabulary, whose context ends at 40 tokens."""
    return save_model(tmp_path_factory.mktemp("models") / "other", seed=2, context=40)


@pytest.fixture(scope="session")
def head_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_head(tmp_path_factory.mktemp("models") / "head", seed=3)


@pytest.fixture(scope="session")
def target(target_path: Path) -> ModelSlice:
    return load_slice(target_path, None)
