"""A tiny target, and a draft for it made from nothing; it must beat guessing from the text alone."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from shardflow.engine.distill.evaluation import use
from shardflow.engine.distill.talks import Talk, load_talks
from shardflow.engine.drafts import DraftTree, Limits, Proposal, load_drafter
from shardflow.engine.drafts.base import NOTHING
from shardflow.engine.sampling import SamplingParams
from shardflow.roundlog import Round, RoundLog
from tests.families import tiny_model

CHAIN = Limits(4, 4, 1)
HOURS = 0.0125  # 45 s


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model("llama", tmp_path_factory.mktemp("target"), tied=False, initializer_range=0.1)


@pytest.fixture(scope="module")
def made(target: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("made") / "head"
    assert distil(target, "--out", out, "--hours", HOURS) == 0
    return out


def distil(target: Path, *arguments: object) -> int:
    command = [Path(sys.executable).parent / "shardflow", "distill", target, *arguments]
    return subprocess.run([str(part) for part in command], timeout=300, check=False).returncode


class Ngrams:
    """Guesses what followed the last time that the text ended like this; see `Drafter`."""

    hidden_size, vocab_size, max_tokens = 0, 199, 4096

    def new_session(self) -> "Ngrams":
        made = Ngrams()
        made.text = []
        return made

    text: list[int]

    @property
    def known_tokens(self) -> int:
        return len(self.text)

    def extend(self, base: int, tokens: Sequence[int], *, prompt_tokens: int, hidden: Tensor | None) -> None:
        self.text = [*self.text[:base], *tokens]

    def propose(self, limits: Limits, sampling: SamplingParams, calibration: Sequence[float] | None = None) -> Proposal:
        for size in (3, 2, 1):
            for end in range(len(self.text) - 1, size - 1, -1):
                if self.text[end - size : end] == self.text[-size:]:
                    guess = self.text[end : end + limits.max_nodes]
                    return Proposal(DraftTree(guess, list(range(-1, len(guess) - 1)), [0.0] * len(guess)), 0)
        return NOTHING


def fresh(talks: Sequence[Talk]) -> list[Talk]:
    """The beginnings, where a random model has not yet begun to repeat itself."""
    return [Talk(talk.prompt, talk.answer[:24], talk.features[:24]) for talk in talks]


@pytest.mark.slow
def test_a_draft_from_nothing_beats_ngrams(target: Path, made: Path) -> None:
    held = fresh(list(load_talks(made / ".work" / "held")))
    head = use(load_drafter(made, target, max_tokens=512), held, CHAIN).tokens_per_round
    assert head > 1.15 * use(Ngrams(), held, CHAIN).tokens_per_round


@pytest.mark.slow
def test_the_directory_says_how_it_was_made(target: Path, made: Path) -> None:
    receipt = json.loads((made / "receipt.json").read_text())
    assert receipt["receipt"]["conditions"]["seed"] == "0"
    assert receipt["figures"]["steps"] > 0
    assert set(receipt["figures"]["shapes"]) == {"none", "chain_4", "chain_8", "tree_31"}
    check = load_file(made / "check.safetensors")
    drafter = load_drafter(made, target, max_tokens=64)
    session, prompt = drafter.new_session(), check["prompt"].tolist()
    session.extend(0, prompt + check["answer"].tolist(), prompt_tokens=len(prompt), hidden=check["features"])
    assert session.propose(CHAIN, SamplingParams()).tree.tokens == check["chain4_after_last"].tolist()


@pytest.mark.slow
def test_another_plan_does_not_continue_it(target: Path, tmp_path: Path) -> None:
    (tmp_path / ".work").mkdir()
    (tmp_path / ".work" / "plan.json").write_text('{"target": "another", "seed": 0}')
    assert distil(target, "--out", tmp_path) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == [".work"]


@pytest.mark.slow
def test_training_goes_on_from_a_log(target: Path, made: Path, tmp_path: Path) -> None:
    for name in ("config.json", "head.safetensors"):
        (tmp_path / name).write_bytes((made / name).read_bytes())
    log = RoundLog(tmp_path / "rounds", 1 << 20)
    for number, talk in enumerate(load_talks(made / ".work" / "talks")):
        log.begin(str(number), talk.prompt)
        log.round(str(number), Round(talk.answer, [[token] for token in talk.answer]))
        if number == 40:
            break
    log.close()
    assert distil(target, "--out", tmp_path, "--hours", 0.003, "--from-log", tmp_path / "rounds") == 0
    figures = json.loads((tmp_path / "receipt.json").read_text())["figures"]
    assert figures["talks"] == 41
    first = {name: value for name, value in load_file(made / "head.safetensors").items() if name == "fc.weight"}
    assert not torch.equal(load_file(tmp_path / "head.safetensors")["fc.weight"], first["fc.weight"])
