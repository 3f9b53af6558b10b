"""The emulated slices: a tree sees what a chain sees, whatever the KV went through, and times add up."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from benchmarks.emulation import waiting
from benchmarks.emulation.drafter import EmulatedDrafter
from benchmarks.emulation.law import Acceptance, advance, beginning, next_token
from benchmarks.emulation.regime import Regime
from benchmarks.emulation.target import Target
from shardflow.engine import GREEDY, KVCache, Segment, greedy
from shardflow.engine.drafts import Limits

QUICK = Regime(Acceptance(0.65), stage_ms=(0.0, 0.0), level_ms=0.0)


class Pair:
    """Both slices of one session."""

    def __init__(self) -> None:
        self.slices = [Target(QUICK, shard, "") for shard in range(2)]
        self.kvs: list[KVCache] = [each.new_kv(64) for each in self.slices]

    def choices(self, base: int, tokens: Sequence[int], parents: Sequence[int]) -> list[int]:
        hidden = None
        for each, kv in zip(self.slices, self.kvs, strict=True):
            hidden = each.forward([Segment(kv, base, parents, tokens, hidden)])
        assert hidden is not None
        return greedy(self.slices[-1].logits(hidden))


def said(ids: Sequence[int]) -> int:
    """What the target says after `ids`."""
    return next_token(advance(beginning(2), ids)[-1], len(ids))


def test_a_chain_is_answered_row_by_row() -> None:
    assert Pair().choices(0, [3, 5, 9], [-1, 0, 1]) == [said([3]), said([3, 5]), said([3, 5, 9])]


def test_each_row_of_a_tree_sees_its_ancestors_only() -> None:
    pair = Pair()
    pair.choices(0, [3, 5], [-1, 0])
    assert pair.choices(2, [7, 1, 2, 4], [-1, 0, 0, 1]) == [
        said([3, 5, 7]), said([3, 5, 7, 1]), said([3, 5, 7, 2]), said([3, 5, 7, 1, 4]),
    ]  # fmt: skip


def test_rows_that_were_kept_count_and_others_do_not() -> None:
    pair = Pair()
    pair.choices(0, [3, 1, 2, 4], [-1, 0, 0, 2])
    for kv in pair.kvs:
        kv.keep([0, 2, 3])
    assert pair.choices(3, [8], [-1]) == [said([3, 2, 4, 8])]


def test_a_lost_row_changes_the_text() -> None:
    pair = Pair()
    pair.choices(0, [3, 1, 2], [-1, 0, 1])
    pair.kvs[1].keys[0, 0, 2] = 0
    assert pair.choices(3, [8], [-1]) != [said([3, 1, 2, 8])]


def test_rows_beyond_the_free_ones_cost_time() -> None:
    regime = Regime(Acceptance(0.78))
    assert [regime.forward_ms(0, rows) for rows in (1, 32, 33, 64)] == [37.0, 37.0, 38.25, 77.0]
    assert regime.forward_ms(1, 36) == 47.0


def test_work_counts_as_a_part_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now, slept = [10.0], []
    monkeypatch.setattr(waiting.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(waiting.time, "sleep", slept.append)
    for work_s in (0.015, 0.05):
        emulated = waiting.Pass(40.0)
        now[0] += work_s
        emulated.end()
    assert slept == [pytest.approx(0.025), 0.0]


def test_the_draft_knows_the_target_as_often_as_it_should() -> None:
    session = EmulatedDrafter(QUICK).new_session()
    ids = list(range(10))
    right = 0
    for _ in range(240):
        session.extend(0, ids, prompt_tokens=10, hidden=None)
        guess = session.propose(Limits(1, 1, 1), GREEDY).tree.tokens[0]
        ids.append(said(ids))
        right += guess == ids[-1]
    assert right == 155


def test_a_chain_follows_the_first_candidates() -> None:
    session = EmulatedDrafter(QUICK).new_session()
    session.extend(0, [1, 2, 3], prompt_tokens=3, hidden=None)
    tree = session.propose(Limits(4, 4, 1), GREEDY).tree
    path = [1, 2, 3]
    for token in tree.tokens:
        assert token == QUICK.acceptance.candidates(advance(beginning(2), path)[-1], len(path))[0][0]
        path.append(token)
    assert tree.parents == [-1, 0, 1, 2]
    assert torch.tensor(tree.logprobs).exp().tolist() == pytest.approx([0.65] * 4)


def test_a_regime_is_read_as_it_was_written(tmp_path: Path) -> None:
    regime = Regime(Acceptance(0.9, varying=True), stage_ms=(1.0, 2.0, 3.0), level_ms=0.5)
    assert Regime.read(regime.write(tmp_path)) == regime
