"""Fixtures: a tiny model, running shards, an orchestrator, and the loop of one generation."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from shardflow.v1 import sampling_pb2
from tests.integration.verifier.harness import Draft, Generated, Orchestrator, Running, make_setup, serve

LAYERS = 6
VOCAB = 89
CUTS = {1: [(0, 6)], 2: [(0, 2), (2, 6)], 3: [(0, 1), (1, 4), (4, 6)]}


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama of 6 layers whose greedy text does not repeat itself at once."""
    torch.set_num_threads(1)
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=VOCAB, hidden_size=32, intermediate_size=64, num_hidden_layers=LAYERS, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=512, initializer_range=0.3, tie_word_embeddings=False,
        bos_token_id=None, eos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    path = tmp_path_factory.mktemp("models") / "tiny"
    LlamaForCausalLM(config).save_pretrained(path)
    return path


@pytest.fixture(scope="session")
def plain(model_dir: Path) -> Any:
    """The same model in one process."""
    return LlamaForCausalLM.from_pretrained(model_dir).eval()


@pytest.fixture(scope="session")
def greedy_text(plain: Any) -> Callable[[Sequence[int], int], list[int]]:
    """What `transformers` generates: `greedy_text(prompt, tokens)`."""

    def generate(prompt: Sequence[int], tokens: int) -> list[int]:
        ids = torch.tensor([list(prompt)])
        out = plain.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False
        )
        return [int(token) for token in out[0, len(prompt) :]]

    return generate


@pytest.fixture
def chain(model_dir: Path) -> Callable[..., Any]:
    """`async with chain(n, **settings) as shards`: n running shards, first shard first."""

    @asynccontextmanager
    async def start(shards: int, **settings: Any) -> AsyncIterator[list[Running]]:
        running: list[Running] = []
        async with AsyncExitStack() as stack:
            for layers in reversed(CUTS[shards]):
                following = running[0].address if running else None
                running.insert(0, await serve(model_dir, layers, following, **settings))
                stack.push_async_callback(running[0].stop)
            yield running

    return start


@pytest.fixture
async def orchestrator() -> AsyncIterator[Callable[..., Awaitable[Orchestrator]]]:
    """`await orchestrator(shards, name="o")`: an orchestrator with a stream to every shard."""
    opened: list[Orchestrator] = []

    async def open_(shards: Sequence[Running], name: str = "o") -> Orchestrator:
        opened.append(Orchestrator(name))
        for shard in shards:
            await opened[-1].dial(shard.address)
        return opened[-1]

    yield open_
    for each in opened:
        await each.close()


@pytest.fixture
def generate() -> Callable[..., Awaitable[Generated]]:
    """`await generate(orchestrator, session, prompt, tokens, draft=..., sampling=..., chunk=...)`."""

    async def run(
        orchestrator: Orchestrator, session: str, prompt: list[int], tokens: int, *, draft: Draft | None = None,
        sampling: sampling_pb2.SamplingParams | None = None, chunk: int = 5, **setup: Any,
    ) -> Generated:  # fmt: skip
        text, number, base = list(prompt), 0, 0
        first = make_setup(prompt_tokens=len(prompt), max_tokens=len(prompt) + tokens + 16, sampling=sampling, **setup)
        while len(prompt) - base > chunk:
            await orchestrator.slice(
                session, round=number, base=base, tokens=prompt[base : base + chunk], want_verdict=False,
                setup=first if number == 0 else None,
            )  # fmt: skip
            number, base = number + 1, base + chunk
        keep: list[int] = []
        verdicts = []
        while len(text) < len(prompt) + tokens:
            fresh = text[base:]
            guesses, parents = draft(text) if draft else ([], [])
            rows = [*range(-1, len(fresh) - 1), *(parent + len(fresh) for parent in parents)]
            verdict = await orchestrator.ask(
                session, round=number, base=base, keep=keep, tokens=[*fresh, *guesses], parents=rows,
                committed_rows=len(fresh), setup=first if number == 0 else None,
            )  # fmt: skip
            verdicts.append(verdict)
            text += [choice.token_id for choice in verdict.choices]
            path = [*range(len(fresh) - 1), *verdict.accepted_rows]
            keep = path if path != list(range(len(path))) else []
            base, number = base + len(path), number + 1
        return Generated(text[len(prompt) : len(prompt) + tokens], len(verdicts), verdicts)

    return run
