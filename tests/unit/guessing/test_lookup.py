"""What the text itself suggests: followers of the longest run that was met before, and what the target held likely."""

import pytest

from services.orchestrator.guessing.lookup import RECYCLED_KINDS, TEXT_KINDS, Found, Successors, TextIndex

ONLY, CONFIRMED, CONTESTED = 0, 1, 2
EIGHT, FIVE, THREE, TWO, ONE = 0, 3, 6, 9, 12


def index(text: str) -> TextIndex:
    filled = TextIndex()
    for token in text.encode():
        filled.append(token)
    return filled


@pytest.mark.parametrize(
    ("text", "context", "found"),
    [
        ("", "a", []),
        ("ab", "b", []),  # nothing has followed yet
        ("ab", "a", [("b", ONE + ONLY)]),
        ("abab", "a", [("b", ONE + CONFIRMED)]),
        ("abac", "a", [("c", ONE + CONTESTED), ("b", ONE + CONTESTED)]),
        ("abcabd", "ab", [("d", TWO + CONTESTED), ("c", TWO + CONTESTED)]),
        ("xabcyzabd", "xab", [("c", THREE + ONLY)]),  # the longer run wins, though another came later
        ("xabcyzabd", "qab", [("d", TWO + CONTESTED), ("c", TWO + CONTESTED)]),
        ("12345x", "z12345", [("x", FIVE + ONLY)]),
        ("12345678x", "12345678", [("x", EIGHT + ONLY)]),
        ("aaaa", "a", [("a", ONE + CONFIRMED)]),
    ],
)
def test_text(text: str, context: str, found: list[tuple[str, int]]) -> None:
    expected = [Found(ord(token), kind) for token, kind in found]
    assert list(index(text).after(tuple(context.encode()))) == expected


def test_only_the_latest_followers_are_remembered() -> None:
    after = list(index("axaybaycadaeaf").after((ord("a"),)))
    assert [chr(found.token) for found in after] == ["f", "e", "d", "y"]


def test_kinds_of_text_are_counted() -> None:
    assert (TEXT_KINDS, RECYCLED_KINDS) == (15, 8)


def test_recycled() -> None:
    successors = Successors()
    assert list(successors.after((1, 2))) == []
    successors.learn((1, 2), [5, 6, 7, 8, 9])
    successors.learn((3, 2), [4, 5])
    assert list(successors.after((0, 1, 2))) == [Found(5, 0), Found(6, 1), Found(7, 2), Found(8, 3)]
    assert list(successors.after((9, 2))) == [Found(4, 4), Found(5, 5)]  # of the token alone: where it was met last
    assert list(successors.after((7,))) == []
