"""How a told text replaces a known one, by ids."""

import pytest

from shardflow.engine.drafts import DraftGapError, DraftRequestError, Limits
from shardflow.engine.drafts.base import MAX_NODES, agreement, splice


def test_tokens_replace_what_stands_from_base_on() -> None:
    text = [1, 2, 3, 4]
    splice(text, 2, [9], 1, vocab_size=10)
    assert text == [1, 2, 9]


def test_a_gap_changes_nothing_and_says_what_is_known() -> None:
    text = [1, 2]
    with pytest.raises(DraftGapError, match="base is 3, but 2 tokens are known") as error:
        splice(text, 3, [9], 1, vocab_size=10)
    assert error.value.known_tokens == 2
    assert text == [1, 2]


@pytest.mark.parametrize(
    ("tokens", "prompt_tokens", "message"),
    [
        ([], 0, "at least one"),
        ([10], 0, r"within \[0, 10\)"),
        ([-1], 0, r"within \[0, 10\)"),
        ([5], 4, "prompt_tokens is 4, but the text has 3"),
    ],
)
def test_a_request_that_is_wrong_in_itself_changes_nothing(tokens: list[int], prompt_tokens: int, message: str) -> None:
    text = [1, 2]
    with pytest.raises(DraftRequestError, match=message):
        splice(text, 2, tokens, prompt_tokens, vocab_size=10)
    assert text == [1, 2]


@pytest.mark.parametrize(
    ("held", "base", "tokens", "length"),
    [
        ([], 0, [1], 0),
        ([1, 2, 3, 4], 2, [3, 4, 5], 4),  # both guesses were right
        ([1, 2, 3, 4], 2, [3, 9], 3),  # the second was not
        ([1, 2, 3, 4], 2, [9], 2),
        ([1, 2, 3, 4], 1, [2], 2),  # a rewind: what is behind the text does not count
        ([1, 2], 4, [7], 2),  # held less than the text
        ([1, 2, 3], 0, [1, 2, 3], 3),  # told again
    ],
)
def test_agreement_is_the_common_prefix(held: list[int], base: int, tokens: list[int], length: int) -> None:
    assert agreement(held, base, tokens) == length


@pytest.mark.parametrize("sizes", [(-1, 1, 1), (MAX_NODES + 1, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_a_tree_must_have_a_size(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(DraftRequestError):
        Limits(*sizes)


def test_no_nodes_need_no_other_size() -> None:
    assert Limits(0, 0, 0).max_nodes == 0
