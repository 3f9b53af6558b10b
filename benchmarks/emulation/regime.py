"""What is emulated, as data: the times of shards and draft, and how often the draft is right."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers

from benchmarks.emulation.law import VOCAB_SIZE, Acceptance

FILE = "emulation.json"
MAX_TOKENS = 4096


@dataclass(frozen=True)
class Regime:
    """Times in milliseconds. The defaults are those of the reference: two T4s, each with half of a 7B model."""

    acceptance: Acceptance
    stage_ms: tuple[float, ...] = (37.0, 42.0)
    """[shards] time of a forward pass of up to `free_rows` rows."""
    free_rows: int = 32
    row_ms: float = 1.25
    """Time of each further row, on each shard."""
    level_ms: float = 3.3
    """Time of one forward pass of the draft, whatever its rows."""

    def forward_ms(self, shard: int, rows: int) -> float:
        """Time of one forward pass of a shard."""
        return self.stage_ms[shard] + self.row_ms * max(0, rows - self.free_rows)

    def write(self, directory: Path) -> Path:
        """Makes `directory` stand for target and draft alike: this regime, and a tokenizer of made-up words."""
        directory.mkdir(parents=True, exist_ok=True)
        (directory / FILE).write_text(json.dumps(asdict(self)))
        config = {"num_hidden_layers": len(self.stage_ms), "max_position_embeddings": MAX_TOKENS}
        (directory / "config.json").write_text(json.dumps(config))
        words = Tokenizer(models.WordLevel({f"w{each}": each for each in range(VOCAB_SIZE)}, unk_token="w0"))
        words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        words.save(str(directory / "tokenizer.json"))
        return directory

    @classmethod
    def read(cls, directory: Path) -> "Regime":
        """What `write` has written."""
        entry = json.loads((directory / FILE).read_text())
        acceptance = Acceptance(**entry.pop("acceptance"))
        return cls(acceptance=acceptance, stage_ms=tuple(entry.pop("stage_ms")), **entry)
