"""The emulated target: one layer a shard, and no doubt about the next token."""

import hashlib

from torch import Tensor

from benchmarks.emulation.law import next_token
from benchmarks.emulation.model import EmulatedModel
from benchmarks.emulation.regime import FILE, Regime
from services.verifier.config import VerifierSettings, parse_layers
from shardflow.engine import ModelSlice

_SURE = 100.0  # logit of the next token; all others have 0


class Target(EmulatedModel):
    """The slice of one shard."""

    def __init__(self, regime: Regime, shard: int, digest: str) -> None:
        super().__init__(
            shard, shard + 1, len(regime.stage_ms), digest, pass_ms=lambda rows: regime.forward_ms(shard, rows)
        )

    def _say(self, state: int, position: int, logits: Tensor) -> None:
        logits.zero_()[next_token(state, position)] = _SURE


def load(settings: VerifierSettings) -> ModelSlice:
    """The stand-in for the layer that the settings name."""
    assert settings.layers is not None
    digest = hashlib.sha256((settings.model / FILE).read_bytes()).hexdigest()
    return Target(Regime.read(settings.model), parse_layers(settings.layers)[0], digest)
