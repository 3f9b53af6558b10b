"""Every arrangement of slices, chunks, trees and sessions gives the logits and the text of plain transformers."""

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shardflow.engine import greedy
from tests.families import FAMILIES, VOCAB, plain_greedy, plain_logits
from tests.unit.engine.conftest import Pipeline, Rows, Session

PROMPT = [11, 42, 7, 190, 3, 55, 120, 8, 64, 33, 17]  # longer than the window of 7
CUTS = {1: (), 2: (2,), 3: (1, 4)}
Models = dict[tuple[str, bool], Path]


def greedy_text(pipeline: Pipeline, prompt: list[int], count: int) -> list[int]:
    session = pipeline.session()
    (logits,) = pipeline.run(Rows(session, 0, prompt))
    text = greedy(logits[-1:])
    while len(text) < count:
        (logits,) = pipeline.run(Rows(session, len(prompt) + len(text) - 1, text[-1:]))
        text += greedy(logits)
    return text


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("slices", CUTS)
def test_greedy_text_is_that_of_transformers(models: Models, family: str, tied: bool, slices: int) -> None:
    path = models[family, tied]
    assert greedy_text(Pipeline(path, CUTS[slices]), PROMPT, 24) == plain_greedy(path, PROMPT, 24)


@pytest.mark.parametrize("chunks", [(11,), (1,) * 11, (3, 5, 2, 1), (7, 4)])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_prompt_in_chunks_gives_the_logits_of_one_forward(models: Models, family: str, chunks: tuple[int]) -> None:
    path = models[family, True]
    pipeline = Pipeline(path, (3,))
    session, rows, base = pipeline.session(), [], 0
    for size in chunks:
        rows += pipeline.run(Rows(session, base, PROMPT[base : base + size]))
        base += size
    torch.testing.assert_close(torch.cat(rows), plain_logits(path, PROMPT), atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_sessions_in_one_forward_do_not_see_each_other(models: Models, family: str) -> None:
    path = models[family, False]
    pipeline = Pipeline(path, (2,))
    a, b, c = pipeline.session(), pipeline.session(), pipeline.session()
    pipeline.run(Rows(a, 0, PROMPT[:9]), Rows(b, 0, [5, 6]))
    mixed = pipeline.run(Rows(a, 9, [70]), Rows(c, 0, PROMPT), Rows(b, 2, [9, 10, 11], parents=[-1, 0, 0]))
    torch.testing.assert_close(mixed[0][0], plain_logits(path, [*PROMPT[:9], 70])[-1], atol=2e-4, rtol=1e-4)
    torch.testing.assert_close(mixed[1], plain_logits(path, PROMPT), atol=2e-4, rtol=1e-4)
    torch.testing.assert_close(mixed[2][1], plain_logits(path, [5, 6, 9, 10])[-1], atol=2e-4, rtol=1e-4)
    torch.testing.assert_close(mixed[2][2], plain_logits(path, [5, 6, 9, 11])[-1], atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("family", ["qwen2", "mistral", "gemma2", "gemma3"])
def test_a_window_counts_positions_not_rows(models: Models, family: str) -> None:
    """A tree with a stray sibling at every level, deeper than the window of 7."""
    parents = [-1, 0, 0, 2, 2, 4, 4, 6, 6, 8, 8, 10, 10, 12, 12, 14, 14, 16, 16]
    pipeline = Pipeline(models[family, True], (3,))
    session = pipeline.session()
    pipeline.run(Rows(session, 0, PROMPT))
    _check_tree(pipeline, models[family, True], session, PROMPT, [50 + r for r in range(19)], parents)


@st.composite
def trees(draw: st.DrawFn) -> tuple[list[int], list[int], int]:
    """(tokens, parents, the row where acceptance ends)."""
    size = draw(st.integers(1, 12))
    parents = [-1] + [draw(st.integers(0, r - 1)) for r in range(1, size)]
    tokens = draw(st.lists(st.integers(0, VOCAB - 1), min_size=size, max_size=size))
    return tokens, parents, draw(st.integers(0, size - 1))


def path_to(row: int, parents: list[int]) -> list[int]:
    """The rows from the root to `row`."""
    path = []
    while row >= 0:
        path.append(row)
        row = parents[row]
    return path[::-1]


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rounds=st.lists(trees(), min_size=1, max_size=3), base=st.integers(1, 11), back=st.integers(0, 4))
def test_random_trees_kept_and_rewound(
    models: Models, family: str, rounds: list[tuple[list[int], list[int], int]], base: int, back: int
) -> None:
    """Each row has the logits of its own path; so it is after a gather of the accepted rows, and after a rewind."""
    path = models[family, True]
    pipeline = _pipeline(path)
    session, text = pipeline.session(), PROMPT[:base]
    pipeline.run(Rows(session, 0, text))
    for tokens, parents, last in rounds:
        _check_tree(pipeline, path, session, text, tokens, parents)
        kept = path_to(last, parents)
        session.keep(kept)
        text = text + [tokens[row] for row in kept]
        assert [kv.length for kv in session.kvs] == [len(text)] * 2
    text = text[: max(1, len(text) - back)]
    _check_tree(pipeline, path, session, text, [1, 2, 3], [-1, 0, 0])


@pytest.mark.parametrize("family", FAMILIES)
def test_a_tree_in_steps_is_the_tree_at_once(models: Models, family: str) -> None:
    """Deeper than the window of 7; two other sessions share the steps, and what stays below a path grows on."""
    parents = [-1, 0, 0, 2, 2, 4, 4, 6, 6, 8, 8, 10, 10, 12]
    tokens = [50 + row for row in range(14)]
    pipeline = _pipeline(models[family, True])
    session, other = pipeline.session(), pipeline.session()
    pipeline.run(Rows(session, 0, PROMPT))
    logits = [pipeline.run(Rows(session, 11, tokens[:4], parents[:4]), Rows(other, 0, PROMPT))[0]]
    for first, last in ((4, 5), (5, 12), (12, 14)):
        rows = Rows(session, 11, tokens[first:last], parents[first:last], grows=True)
        logits += pipeline.run(Rows(other, 0, PROMPT), rows)[1:]
    for row, found in enumerate(torch.cat(logits)):
        branch = [tokens[each] for each in path_to(row, parents)]
        torch.testing.assert_close(found, plain_logits(models[family, True], PROMPT + branch)[-1], atol=3e-4, rtol=1e-4)
    for kv in session.kvs:
        kv.keep([0, 2, 4], [5, 6, 7, 8])
    (found,) = pipeline.run(Rows(session, 14, [60, 61], [1, 3], grows=True))
    branches = [[50, 52, 54, 56, 60], [50, 52, 54, 56, 58, 61]]
    for row, branch in zip(found, branches, strict=True):
        torch.testing.assert_close(row, plain_logits(models[family, True], PROMPT + branch)[-1], atol=3e-4, rtol=1e-4)


_pipelines: dict[Path, Pipeline] = {}


def _pipeline(path: Path) -> Pipeline:
    return _pipelines.setdefault(path, Pipeline(path, (3,)))


def _check_tree(
    pipeline: Pipeline, path: Path, session: Session, text: list[int], tokens: list[int], parents: list[int]
) -> None:
    (logits,) = pipeline.run(Rows(session, len(text), tokens, parents))
    for row in range(len(tokens)):
        branch = [tokens[each] for each in path_to(row, parents)]
        torch.testing.assert_close(logits[row], plain_logits(path, text + branch)[-1], atol=3e-4, rtol=1e-4)
