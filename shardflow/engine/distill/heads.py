"""A head's directory: started, read for more training, written for the draft service."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from shardflow.engine import GREEDY
from shardflow.engine.distill.student import Student
from shardflow.engine.distill.talks import Talk
from shardflow.engine.distill.vocabulary import choose_vocabulary, statistics
from shardflow.engine.drafts import Limits
from shardflow.engine.drafts.eagle import EagleDrafter
from shardflow.engine.drafts.head import KIND, HeadCache, HeadConfig, read_tables
from shardflow.engine.loader import read_config

CHECKED = 24  # answer tokens of the check vectors
WEIGHTS, CHECK, RECEIPT = "head.safetensors", "check.safetensors", "receipt.json"


class Apprentice:
    """A student together with the tables of its target."""

    def __init__(
        self, config: HeadConfig, frozen: Mapping[str, Tensor], vocabulary: Tensor, target: Path, device: str
    ) -> None:
        """`vocabulary` `[draft_vocab]`: the ids that it learns to say; `target`: the directory."""
        embedding, output = read_tables(target, config.vocab_size, config.hidden_size, torch.device(device))
        self.config = config
        self.vocabulary = vocabulary.to(device)
        self.vocab_weight = output[self.vocabulary]  # [draft_vocab, hidden]
        self.student = Student(config, {name: value.to(device) for name, value in frozen.items()}, embedding)

    @classmethod
    def fresh(cls, target: Path, talks: Sequence[Talk], vocabulary: int, device: str) -> "Apprentice":
        """A head of one layer in the shape of the target's, of random weights, that can say `vocabulary` ids."""
        model = read_config(target)
        ids = choose_vocabulary(talks, vocabulary, model.vocab_size)
        heads = model.num_attention_heads
        config = HeadConfig(
            hidden_size=model.hidden_size,
            num_attention_heads=heads,
            num_key_value_heads=model.num_key_value_heads,
            head_dim=getattr(model, "head_dim", None) or model.hidden_size // heads,
            intermediate_size=model.hidden_size * 8 // 3,
            rms_norm_eps=1e-5,
            rope_theta=100_000.0,
            vocab_size=model.vocab_size,
            draft_vocab_size=len(ids),
            temperature=1.0,
        )
        embedding, _ = read_tables(target, config.vocab_size, config.hidden_size, torch.device("cpu"))
        return cls(config, statistics(talks, embedding), ids, target, device)

    @classmethod
    def read(cls, path: Path, target: Path, device: str) -> "Apprentice":
        """The head in directory `path`."""
        held = load_file(path / WEIGHTS)
        frozen = {name: value.float() for name, value in held.items() if name.endswith(("_mean", "_std"))}
        made = cls(HeadConfig.read(path), frozen, held["draft_vocab"].long(), target, device)
        made.put({name: held[f"{name}.weight"].float() for name in made.student.weights})
        return made

    @torch.no_grad()
    def put(self, weights: Mapping[str, Tensor]) -> None:
        """Sets the trainable weights, by the student's names."""
        for name, value in self.student.weights.items():
            value.copy_(weights[name])

    def write(self, path: Path, *, temperature: float) -> None:
        """Writes weights, in bfloat16, and configuration."""
        path.mkdir(parents=True, exist_ok=True)
        tensors = {f"{name}.weight": value.detach().bfloat16() for name, value in self.student.weights.items()}
        tensors |= {name: value for name, value in self.student.frozen.items()}
        tensors["draft_vocab"] = self.vocabulary.int()
        save_file(tensors, path / WEIGHTS)
        config = {"kind": KIND} | asdict(self.config) | {"temperature": temperature}
        (path / "config.json").write_text(json.dumps(config, indent=1) + "\n")


def write_check(path: Path, target: Path, talk: Talk) -> None:
    """Writes what the head of directory `path` answers on one talk, so that another implementation can be held to it.

    `prompt`, `answer` `[n]`, `features` `[n, hidden]`; `top4_depth1` `[n, 4]`: the best four for the token after each;
    `logits_last` `[draft_vocab]` after the last; `chain4_after_last`: the greedy guesses behind it.
    """
    drafter = EagleDrafter(path, target, 4 * CHECKED, torch.device("cpu"))
    answer, features = list(talk.answer[:CHECKED]), talk.features[:CHECKED].float()
    session, tops = drafter.new_session(), []
    for at in range(len(answer)):
        start = len(talk.prompt) + at if at else 0
        tokens = [*talk.prompt, *answer][start : len(talk.prompt) + at + 1]
        session.extend(start, tokens, prompt_tokens=len(talk.prompt), hidden=features[at : at + 1])
        tops.append(session.propose(Limits(4, 1, 4), GREEDY).tree.tokens)
    held = {
        "prompt": torch.tensor(talk.prompt, dtype=torch.int32),
        "answer": torch.tensor(answer, dtype=torch.int32),
        "features": features,
        "top4_depth1": torch.tensor(tops, dtype=torch.int32),
        "logits_last": logits_after(drafter, answer, features),
        "chain4_after_last": torch.tensor(session.propose(Limits(4, 4, 1), GREEDY).tree.tokens, dtype=torch.int32),
    }
    save_file(held, path / CHECK)


@torch.inference_mode()
def logits_after(drafter: EagleDrafter, answer: Sequence[int], features: Tensor) -> Tensor:
    """`[draft_vocab]` after the last token of `answer`, from its features `[n, hidden]`."""
    head, n = drafter.head, len(answer)
    cache = HeadCache(head.config, n, head.device)
    seen = torch.ones(n, n, dtype=torch.bool).tril()
    return head.logits(head.forward(answer, head.normalised(features), range(n), cache, 0, seen)[-1:])[0]
