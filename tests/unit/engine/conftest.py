"""Tiny models, written once a session, and a pipeline of slices in one process."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

from shardflow.engine import KVCache, ModelSlice, Segment, load_slice
from tests.families import FAMILIES, tiny_model

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, bool], Path]:
    """The directory of each (family, tied)."""
    root = tmp_path_factory.mktemp("models")
    return {
        (family, tied): tiny_model(family, root / f"{family}-{tied}", tied=tied)
        for family in FAMILIES
        for tied in (True, False)
    }


@dataclass
class Session:
    """The caches of one session, one for each slice of a pipeline."""

    kvs: list[KVCache]

    def keep(self, rows: Sequence[int]) -> None:
        for kv in self.kvs:
            kv.keep(rows)


@dataclass(frozen=True)
class Rows:
    """What one session adds in one step; a chain unless `parents` are given."""

    session: Session
    base: int
    tokens: Sequence[int]
    parents: Sequence[int] | None = None
    grows: bool = False


class Pipeline:
    """The whole model as slices one behind the other."""

    def __init__(self, path: Path, cuts: Sequence[int]) -> None:
        layers = json.loads((path / "config.json").read_text())["num_hidden_layers"]
        ranges = zip([0, *cuts], [*cuts, layers], strict=True)
        self.slices: list[ModelSlice] = [load_slice(path, (a, b)) for a, b in ranges]

    def session(self, max_len: int = 128) -> Session:
        return Session([each.new_kv(max_len) for each in self.slices])

    def run(self, *packed: Rows) -> list[Tensor]:
        """Logits `[rows, vocab]` of each session's rows."""
        hidden: list[Tensor] = []
        sizes = [len(rows.tokens) for rows in packed]
        for index, each in enumerate(self.slices):
            segments = [
                Segment(
                    kv=rows.session.kvs[index],
                    base=rows.base,
                    parents=range(-1, len(rows.tokens) - 1) if rows.parents is None else rows.parents,
                    tokens=rows.tokens if index == 0 else None,
                    hidden=hidden[i] if index else None,
                    grows=rows.grows,
                )
                for i, rows in enumerate(packed)
            ]
            hidden = list(each.forward(segments).split(sizes))
        return [self.slices[-1].logits(each) for each in hidden]
