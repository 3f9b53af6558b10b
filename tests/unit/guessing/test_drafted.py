"""The draft's tree as the orchestrator reads it: checked, cut to the vocabulary, and walked by the text."""

import math

import pytest

from services.orchestrator.guessing.drafted import Child, Drafted
from services.orchestrator.guessing.reading import read_tree
from shardflow.calibration import cell
from shardflow.errors import ShardflowError
from shardflow.v1 import draft_pb2

NAN = float("nan")


def message(tokens: list[int], parents: list[int], logprobs: list[float] | None = None) -> draft_pb2.Tree:
    return draft_pb2.Tree(tokens=tokens, parents=parents, logprobs=logprobs or [math.log(0.5)] * len(tokens))


def test_children_in_order_of_rank() -> None:
    drafted = Drafted([7, 8, 9], [-1, -1, 0], [0.6, 0.3, 0.99])
    assert drafted.children(-1) == [Child(0, 7, cell(1, 0, 0.6)), Child(1, 8, cell(1, 1, 0.3))]
    assert drafted.children(0) == [Child(2, 9, cell(2, 0, 0.99))]
    assert list(drafted.children(1)) == list(drafted.children(None)) == []
    assert [drafted.child(-1, 8), drafted.child(-1, 9), drafted.child(0, 9), drafted.child(None, 7)] == [
        1,
        None,
        2,
        None,
    ]


def test_read() -> None:
    drafted = read_tree(message([7, 8], [-1, 0], [math.log(0.6), 0.0]), 2, 10)
    assert [(child.token, child.cell) for child in drafted] == [(7, cell(1, 0, 0.6)), (8, cell(2, 0, 1.0))]
    assert list(drafted.parents) == [-1, 0]


@pytest.mark.parametrize(
    ("tokens", "parents", "kept", "their_parents"),
    [
        ([7, 10, 8], [-1, -1, -1], [7, 8], [-1, -1]),
        ([10, 7, 8], [-1, 0, 1], [], []),
        ([7, 10, 8, 9], [-1, 0, 1, 0], [7, 9], [-1, 0]),
        ([9, 8], [-1, 0], [9, 8], [-1, 0]),
    ],
)
def test_ids_outside_the_vocabulary(
    tokens: list[int], parents: list[int], kept: list[int], their_parents: list[int]
) -> None:
    drafted = read_tree(message(tokens, parents), 4, 10)
    assert ([child.token for child in drafted], list(drafted.parents)) == (kept, their_parents)


@pytest.mark.parametrize(
    ("tree", "fault"),
    [
        (message([1] * 5, [-1] * 5), "5 nodes where at most 4 were asked for"),
        (draft_pb2.Tree(tokens=[1, 2], parents=[-1], logprobs=[0, 0]), "1 parents and 2 log-probabilities for 2 nodes"),
        (draft_pb2.Tree(tokens=[1], parents=[-1]), "1 parents and 0 log-probabilities for 1 nodes"),
        (message([1, 2], [-1, 1]), r"parents \[-1, 1\] do not come before their children"),
        (message([1, 2], [-2, 0]), r"parents \[-2, 0\] do not come before their children"),
        (message([1], [-1], [NAN]), "log-probabilities that are none"),
        (message([1], [-1], [0.5]), "log-probabilities that are none"),
    ],
)
def test_trees_that_are_none(tree: draft_pb2.Tree, fault: str) -> None:
    with pytest.raises(ShardflowError, match=f"draft: {fault}"):
        read_tree(tree, 4, 10)
