"""What a forward refuses, and that it leaves every cache as it was when it does."""

from pathlib import Path

import pytest
import torch

from shardflow.engine import CacheStateError, CapacityError, ModelSlice, NonFiniteError, Segment, load_slice

Models = dict[tuple[str, bool], Path]


@pytest.fixture(scope="module")
def first(models: Models) -> ModelSlice:
    return load_slice(models["llama", True], (0, 2))


@pytest.fixture
def last(models: Models) -> ModelSlice:
    return load_slice(models["llama", True], (2, 5))


def test_a_slice_knows_itself(first: ModelSlice, last: ModelSlice) -> None:
    assert (first.start, first.stop, first.num_layers) == (0, 2, 5)
    assert (first.is_first, first.is_last, last.is_first, last.is_last) == (True, False, False, True)
    assert (first.hidden_size, first.vocab_size, first.dtype) == (48, 199, torch.float32)
    assert first.bytes_per_token == 2 * 2 * 2 * 16 * 4


def test_a_full_cache_is_refused_before_anything_is_written(first: ModelSlice) -> None:
    small, large = first.new_kv(4), first.new_kv(8)
    first.forward([Segment(small, 0, [-1, 0, 1], tokens=[1, 2, 3])])
    before = small.keys.clone()
    with pytest.raises(CapacityError):
        first.forward([Segment(large, 0, [-1], tokens=[1]), Segment(small, 2, [-1, 0, 1], tokens=[7, 8, 9])])
    assert (small.length, large.length) == (3, 0)
    assert torch.equal(small.keys[:, :, :3], before[:, :, :3])


def test_a_hole_is_refused(first: ModelSlice) -> None:
    with pytest.raises(CacheStateError):
        first.forward([Segment(first.new_kv(8), 1, [-1], tokens=[1])])


@pytest.mark.parametrize("parents", [[], [0], [-2], [-1, 1], [-1, 0, 2]])
def test_rows_without_an_earlier_parent_are_refused(first: ModelSlice, parents: list[int]) -> None:
    with pytest.raises(ValueError, match="every parent must be an earlier row or -1"):
        first.forward([Segment(first.new_kv(8), 0, parents, tokens=[1] * len(parents))])


@pytest.mark.parametrize("token", [-1, 199])
def test_ids_outside_the_vocabulary_are_refused(first: ModelSlice, token: int) -> None:
    kv = first.new_kv(8)
    with pytest.raises(ValueError, match="outside the vocabulary of 199"):
        first.forward([Segment(kv, 0, [-1, 0], tokens=[5, token])])
    assert kv.length == 0


def test_tokens_are_one_a_row(first: ModelSlice) -> None:
    with pytest.raises(ValueError, match="one token for each row"):
        first.forward([Segment(first.new_kv(8), 0, [-1, 0], tokens=[5])])


def test_hidden_states_are_one_a_row(last: ModelSlice) -> None:
    with pytest.raises(ValueError, match=r"hidden states \[rows, 48\]"):
        last.forward([Segment(last.new_kv(8), 0, [-1, 0], hidden=torch.zeros(1, 48))])


def test_two_segments_do_not_share_a_cache(first: ModelSlice) -> None:
    kv = first.new_kv(8)
    with pytest.raises(ValueError, match="share one cache"):
        first.forward([Segment(kv, 0, [-1], tokens=[1]), Segment(kv, 0, [-1], tokens=[2])])


def test_a_number_that_is_none_is_an_error_with_the_name_of_the_layers(last: ModelSlice) -> None:
    good, bad = last.new_kv(8), last.new_kv(8)
    with pytest.raises(NonFiniteError, match=r"layers \[2, 5\) of 5") as error:
        last.forward(
            [
                Segment(good, 0, [-1], hidden=torch.ones(1, 48)),
                Segment(bad, 0, [-1, 0], hidden=torch.tensor([[1.0] * 48, [float("nan")] * 48])),
            ]
        )
    assert error.value.segments == (1,)
    assert (good.length, bad.length) == (0, 0)


def test_only_the_last_slice_has_logits(first: ModelSlice) -> None:
    with pytest.raises(ValueError, match="no LM head"):
        first.logits(torch.zeros(1, 48))


def test_the_last_slice_norms_its_output(models: Models, last: ModelSlice) -> None:
    """Every row of an RMS norm with weight w has mean((row / w) ** 2) of 1."""
    hidden = last.forward([Segment(last.new_kv(8), 0, [-1, 0, 1], hidden=torch.randn(3, 48) * 50)])
    weight = load_slice(models["llama", True], (4, 5))._parts.norm.get_parameter("weight")  # type: ignore[union-attr]
    torch.testing.assert_close((hidden / weight).pow(2).mean(dim=1), torch.ones(3), atol=1e-3, rtol=0)
