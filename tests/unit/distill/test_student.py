"""The student's arithmetic is the head's: what it predicts unrolled is what the draft service would compute."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from shardflow.engine.distill.batches import batches, collate
from shardflow.engine.distill.heads import Apprentice
from shardflow.engine.distill.talks import Talk, load_talks, save_talks
from shardflow.engine.distill.vocabulary import choose_vocabulary
from shardflow.engine.drafts.eagle import EagleDrafter
from shardflow.engine.drafts.head import HeadCache
from tests.unit.draft.tiny import save_head, save_model

ANSWERS = ([5, 9, 2, 6, 5], [3, 1, 4])


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("models")
    return save_model(folder / "target", seed=1), save_head(folder / "head", seed=3)


def talks() -> list[Talk]:
    make = torch.Generator().manual_seed(4)
    return [Talk([1, 2], answer, torch.randn(len(answer), 32, generator=make).half()) for answer in ANSWERS]


def alone(drafter: EagleDrafter, talk: Talk, known: int, count: int) -> Tensor:
    """`[count, hidden]`: outputs at token `known` - 1, then at the next ones with guessed features, one by one."""
    head, cache = drafter.head, HeadCache(drafter.head.config, 16, torch.device("cpu"))
    seen = torch.ones(known, known, dtype=torch.bool).tril()
    features = head.normalised(talk.features.float())
    found = [head.forward(talk.answer[:known], features[:known], range(known), cache, 0, seen)[-1:]]
    for at in range(known, known + count - 1):
        found.append(head.forward([talk.answer[at]], found[-1], [at], cache, at, None))
    return torch.cat(found)


def test_unrolled_steps_are_the_levels_of_a_tree(directories: tuple[Path, Path]) -> None:
    target, head = directories
    student = Apprentice.read(head, target, "cpu").student
    drafter = EagleDrafter(head, target, 16, torch.device("cpu"))
    answers = collate(talks(), student.frozen["feature_mean"], student.frozen["feature_std"])
    with torch.no_grad():
        outputs = student.unrolled(answers, 3)
    for row, talk in enumerate(talks()):
        for known in range(1, len(talk.answer) - 1):
            path = torch.stack([outputs[step][row, known - 1 + step] for step in range(3)])
            length = min(3, len(talk.answer) - known + 1)
            assert torch.allclose(path[:length], alone(drafter, talk, known, length), atol=1e-4)


def test_a_head_that_is_written_reads_the_same(directories: tuple[Path, Path], tmp_path: Path) -> None:
    target, head = directories
    made = Apprentice.read(head, target, "cpu")
    made.put({name: value.bfloat16().float() for name, value in made.student.weights.items()})
    made.write(tmp_path, temperature=0.75)
    again = Apprentice.read(tmp_path, target, "cpu")
    assert again.config.temperature == 0.75
    assert torch.equal(again.vocabulary, made.vocabulary)
    for name, value in made.student.weights.items():
        assert torch.equal(again.student.weights[name], value)


def test_batches_hold_every_talk_once_and_no_more_tokens_than_asked() -> None:
    made = [Talk([1], [7] * length, torch.zeros(length, 2)) for length in (3, 9, 4, 4, 1, 8, 2)]
    groups = list(batches(made, 9, seed=1))
    assert sorted(len(talk.answer) for group in groups for talk in group) == [1, 2, 3, 4, 4, 8, 9]
    assert max(len(group) * max(len(talk.answer) for talk in group) for group in groups) == 9
    assert [len(group) for group in groups] != [len(group) for group in batches(made, 9, seed=2)]


def test_talks_come_back_from_their_files(tmp_path: Path) -> None:
    save_talks(tmp_path / "b.safetensors", talks()[1:])
    save_talks(tmp_path / "a.safetensors", talks()[:1])
    (tmp_path / "c.safetensors.partial").write_bytes(b"cut off")
    back = list(load_talks(tmp_path))
    assert [(talk.prompt, talk.answer) for talk in back] == [([1, 2], answer) for answer in ANSWERS]
    assert torch.equal(back[1].features, talks()[1].features)


def test_the_vocabulary_is_what_is_said_most() -> None:
    made = [Talk([4, 4, 5], [7, 7, 2], torch.zeros(3, 2)), Talk([5], [7], torch.zeros(1, 2))]
    assert choose_vocabulary(made, 2, 10).tolist() == [2, 7]
    assert choose_vocabulary(made, 5, 10).tolist() == [0, 2, 4, 5, 7]
    assert choose_vocabulary(made, 50, 10).tolist() == list(range(10))
