"""The emulated draft: knows the target's text as well as the regime says, and takes the time that the regime says.

Only the model is emulated. Its sessions are those of any draft that is a language model: they feed rows, keep what a
verdict leaves valid, and grow trees.
"""

import math

from torch import Tensor

from benchmarks.emulation.law import VOCAB_SIZE
from benchmarks.emulation.model import EmulatedModel
from benchmarks.emulation.regime import MAX_TOKENS, Regime
from benchmarks.emulation.waiting import Pass
from services.draft.config import DraftSettings
from shardflow.engine.drafts import Drafter, DraftSession
from shardflow.engine.drafts.hf import ModelSession


class Draft(EmulatedModel):
    """All layers of the target in one, with their states, but less sure of what comes."""

    def __init__(self, regime: Regime) -> None:
        layers = len(regime.stage_ms)
        super().__init__(0, layers, layers, "", pass_ms=lambda rows: regime.level_ms)
        self._acceptance = regime.acceptance
        self._emulated = Pass(0.0)

    def logits(self, hidden: Tensor) -> Tensor:
        """See `EmulatedModel`; a draft's pass ends here, since a level is cheap enough for this to count."""
        logits = super().logits(hidden)
        self._emulated.end()
        return logits

    def _finish(self, emulated: Pass) -> None:
        self._emulated = emulated

    def _say(self, state: int, position: int, logits: Tensor) -> None:
        """The candidates' confidences, and little for each other id, so that all of it adds up to 1."""
        candidates = self._acceptance.candidates(state, position)
        rest = 1 - sum(confidence for _, confidence in candidates)
        logits.fill_(math.log(rest / (VOCAB_SIZE - len(candidates))))
        logits.numpy()[[token for token, _ in candidates]] = [math.log(confidence) for _, confidence in candidates]


class EmulatedDrafter:
    """See `Drafter`."""

    vocab_size = VOCAB_SIZE
    hidden_size = 0
    max_tokens = MAX_TOKENS

    def __init__(self, regime: Regime) -> None:
        self._model = Draft(regime)

    def new_session(self) -> DraftSession:
        return ModelSession(self._model, self.max_tokens)


def load(settings: DraftSettings) -> Drafter:
    """The emulated draft of the regime in the settings' directory."""
    return EmulatedDrafter(Regime.read(settings.model))
