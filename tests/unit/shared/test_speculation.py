"""Modes of speculation in words and in messages, and the cells of a calibration."""

import pytest

from shardflow.calibration import CELLS, cell, typical
from shardflow.speculation import Mode
from shardflow.v1 import orchestrator_pb2 as pb

MODES = {
    "none": Mode("none"),
    "linear:1": Mode("linear", 1),
    "linear:64": Mode("linear", 64),
    "tree:31": Mode("tree", 31),
    "lookup": Mode("lookup"),
    "auto": Mode("auto"),
}
DRAFTING = {"linear:1", "linear:64", "tree:31", "auto"}


@pytest.mark.parametrize(("text", "mode"), MODES.items())
def test_words(text: str, mode: Mode) -> None:
    assert Mode.parse(text) == mode
    assert str(mode) == text
    assert mode.drafts == (text in DRAFTING)


@pytest.mark.parametrize("mode", MODES.values(), ids=str)
def test_messages(mode: Mode) -> None:
    assert Mode.read(mode.message()) == mode


def test_no_mode() -> None:
    assert Mode.read(pb.Speculation()) is None


@pytest.mark.parametrize(
    "text",
    ["", "linear", "linear:", "linear:0", "linear:65", "linear:-1", "linear:²", "None", "tree", "tree:65", "auto:1"],
)
def test_words_that_are_no_mode(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        Mode.parse(text)
    expected = "none of `none`, `linear:K`, `tree:N`, `lookup` or `auto`, with K and N from 1 to 64"
    assert str(caught.value) == f"{text!r} is {expected}"


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        (pb.Speculation(linear=pb.LinearSpeculation(k=65)), "speculation.linear.k: 65 where 1 to 64 was expected"),
        (pb.Speculation(tree=pb.TreeSpeculation()), "speculation.tree.nodes: 0 where 1 to 64 was expected"),
    ],
)
def test_messages_that_are_no_mode(message: pb.Speculation, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        Mode.read(message)


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ((1, 0, 1.0), 0),
        ((1, 0, 0.97), 0),
        ((1, 0, 0.96), 1),
        ((1, 0, 0.0), 11),
        ((1, 1, 1.0), 12),
        ((1, 2, 1.0), 24),
        ((1, 3, 1.0), 24),
        ((1, 4, 1.0), 36),
        ((1, 99, 1.0), 36),
        ((2, 0, 1.0), 48),
        ((3, 0, 1.0), 96),
        ((99, 99, 0.0), 143),
    ],
)
def test_cells(place: tuple[int, int, float], expected: int) -> None:
    assert cell(*place) == expected
    assert CELLS == 144


def test_a_typical_confidence_lies_in_its_cell() -> None:
    assert [cell(1, 0, confidence) for confidence in typical()] == list(range(12))
