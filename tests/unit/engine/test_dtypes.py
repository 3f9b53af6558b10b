"""In half precision the logits are as near to fp32 as those of transformers are."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from shardflow.engine import Segment, load_slice
from tests.families import FAMILIES, plain_logits

IDS = [11, 42, 7, 190, 3, 55, 120, 8, 64, 33, 17]


@torch.inference_mode()
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_gap_to_fp32(models: dict[tuple[str, bool], Path], family: str, dtype: torch.dtype) -> None:
    path = models[family, False]
    exact = plain_logits(path, IDS)
    theirs = AutoModelForCausalLM.from_pretrained(path, dtype=dtype, attn_implementation="eager").eval()
    first, last = load_slice(path, (0, 2), dtype=dtype), load_slice(path, (2, 5), dtype=dtype)
    hidden = first.forward([Segment(first.new_kv(16), 0, range(-1, 10), tokens=IDS)])
    logits = last.logits(last.forward([Segment(last.new_kv(16), 0, range(-1, 10), hidden=hidden)]))
    assert (hidden.dtype, logits.dtype) == (dtype, torch.float32)
    usual = (theirs(input_ids=torch.tensor([IDS])).logits[0].float() - exact).abs().mean()
    assert (logits - exact).abs().mean() < 1.5 * usual
