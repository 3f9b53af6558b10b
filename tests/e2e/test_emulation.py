"""The deployment with emulated compute, every process started: one text in all modes of speculation."""

from pathlib import Path

import pytest

from benchmarks.emulation.deployment import emulated, prompt
from benchmarks.emulation.law import Acceptance, advance, beginning, next_token
from benchmarks.emulation.regime import Regime
from shardflow.client import ShardflowClient
from shardflow.cluster import running

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(300)]

REGIME = Regime(Acceptance(0.65), stage_ms=(1.0, 1.0), row_ms=0.1, level_ms=0.2)
MODES = ("none", "linear:1", "linear:8", "tree:31", "lookup", "auto")


async def test_one_text_in_all_modes(tmp_path: Path) -> None:
    expected = prompt(7)
    for _ in range(40):
        expected.append(next_token(advance(beginning(2), expected)[-1], len(expected)))
    topology = emulated(REGIME, tmp_path / "model", delay_ms=2.0)
    async with running(topology, tmp_path) as cluster, ShardflowClient(cluster.address) as client:
        answers = {mode: await client.complete(prompt(7), max_tokens=40, speculation=mode) for mode in MODES}
    assert {tuple(token.id for token in answer.tokens) for answer in answers.values()} == {tuple(expected[16:])}
    assert answers["none"].usage.rounds == 40
    assert answers["linear:8"].usage.rounds < answers["linear:1"].usage.rounds < 40
    assert answers["tree:31"].usage.rounds < answers["linear:8"].usage.rounds
    assert answers["lookup"].usage.accepted_tokens == 0  # the text repeats nothing
