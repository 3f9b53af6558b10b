"""Trains a head on conversations until its time is up; what it needs to go on lies in one checkpoint."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear, smooth_l1_loss

from shardflow.engine.distill.batches import batches, collate
from shardflow.engine.distill.student import Answers, Student
from shardflow.engine.distill.talks import Talk

SAVE_EVERY_S = 120.0
WARM_UP = 30  # steps
DEEPER_WEIGHT = 0.8  # of an unrolled step's loss, relative to the step before


@dataclass(frozen=True)
class Recipe:
    """How a head is trained."""

    seconds: float  # of training in all, over every run that adds to it
    seed: int
    rate: float  # of learning, at its highest
    decay: float = 0.05  # of the weights
    batch: int = 2048  # answer tokens
    steps: int = 3  # unrolled
    single_share: float = 0.3  # of the time, at first, with one unrolled step
    share: float = 0.35  # of the positions whose logits are computed
    choice_weight: float = 0.2  # of the target's own choice beside its distribution
    feature_weight: float = 0.2
    average: float = 0.998  # of the weights over steps


@dataclass(frozen=True)
class Progress:
    """Where the training stands."""

    step: int
    elapsed: float  # seconds of training, over all runs
    loss: float
    right: float  # share of the sampled positions where the first choice is the target's, at depth 1


class Training:
    """One training run, which may be interrupted between any two steps."""

    def __init__(self, student: Student, vocab_weight: Tensor, recipe: Recipe, checkpoint: Path) -> None:
        """`vocab_weight`: rows of the target's LM head for the draft's vocabulary. Continues from `checkpoint`."""
        self.student = student
        self._vocab_weight = vocab_weight  # [draft_vocab, hidden]
        self._mean, self._std = student.frozen["feature_mean"], student.frozen["feature_std"]
        self._recipe = recipe
        self._checkpoint = checkpoint
        self._optimizer = torch.optim.AdamW(
            student.parameters(), lr=recipe.rate, betas=(0.9, 0.95), weight_decay=recipe.decay
        )
        self.average = {name: value.detach().clone() for name, value in student.weights.items()}
        self.step, self.elapsed, self._epoch, self._in_epoch = 0, 0.0, 0, 0
        self._stopped = False
        if checkpoint.exists():
            self._load()

    def run(self, talks: Sequence[Talk], report: Callable[[Progress], None]) -> None:
        """Trains until the recipe's seconds are used up, or `stop` is called by `report`."""
        saved = last = time.monotonic()
        while self.elapsed < self._recipe.seconds:
            order = list(batches(talks, self._recipe.batch, self._recipe.seed + self._epoch))
            for batch in order[self._in_epoch :]:
                loss, right = self._learn(batch)
                self._in_epoch += 1
                now = time.monotonic()
                self.elapsed, last = self.elapsed + now - last, now
                report(Progress(self.step, self.elapsed, loss, right))
                over = self._stopped or self.elapsed >= self._recipe.seconds
                if now - saved > SAVE_EVERY_S or over:
                    self.save()
                    saved = now
                if over:
                    return
            self._epoch, self._in_epoch = self._epoch + 1, 0

    def stop(self) -> None:
        """Ends `run` behind the present step."""
        self._stopped = True

    def save(self) -> None:
        """Writes the checkpoint, all or nothing."""
        held = {
            "student": {name: value.detach() for name, value in self.student.weights.items()},
            "average": self.average,
            "optimizer": self._optimizer.state_dict(),
            "counts": [self.step, self.elapsed, self._epoch, self._in_epoch],
        }
        partial = self._checkpoint.with_suffix(".partial")
        torch.save(held, partial)
        partial.replace(self._checkpoint)

    def _load(self) -> None:
        held: dict[str, Any] = torch.load(self._checkpoint, weights_only=True)
        with torch.no_grad():
            for name, value in self.student.weights.items():
                value.copy_(held["student"][name])
        self.average = held["average"]
        self._optimizer.load_state_dict(held["optimizer"])
        self.step, self.elapsed, self._epoch, self._in_epoch = held["counts"]

    def _learn(self, talks: Sequence[Talk]) -> tuple[float, float]:
        done = self.elapsed / self._recipe.seconds
        for group in self._optimizer.param_groups:
            warm = min(1.0, (self.step + 1) / WARM_UP)
            group["lr"] = self._recipe.rate * warm * (0.05 + 0.95 * (1 + math.cos(math.pi * min(1.0, done))) / 2)
        steps = 1 if done < self._recipe.single_share else self._recipe.steps
        answers = collate(talks, self._mean, self._std)
        loss, right = self._loss(answers, steps)
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.student.parameters(), 1.0)
        self._optimizer.step()
        self.step += 1
        self._follow()
        return loss.item(), right

    def _follow(self) -> None:
        """Moves the averaged weights, quickly while there are few steps to average over."""
        keep = min(self._recipe.average, self.step / (self.step + 10))
        for name, value in self.student.weights.items():
            self.average[name].lerp_(value.detach(), 1 - keep)

    def _loss(self, answers: Answers, steps: int) -> tuple[Tensor, float]:
        loss, right, weight = torch.zeros((), device=self._mean.device), 0.0, 1.0
        real = answers.real[:, 1:]  # where there is a next token
        for depth, output in enumerate(self.student.unrolled(answers, steps)):
            learnt = real.clone()
            learnt[:, :depth] = False
            guess, truth = output[:, :-1][learnt], answers.features[:, 1:][learnt]  # [n, hidden]
            picked = torch.rand(len(guess), device=guess.device) < self._recipe.share
            choice, agreed = self._choice_loss(guess[picked], truth[picked])
            loss = loss + weight * (choice + self._recipe.feature_weight * smooth_l1_loss(guess, truth))
            right = agreed if depth == 0 else right
            weight *= DEEPER_WEIGHT
        return loss, right

    def _choice_loss(self, guess: Tensor, truth: Tensor) -> tuple[Tensor, float]:
        """Cross-entropy to the target's distribution over the draft's ids, sharpened; and how often it is right."""
        logits = self._logits(guess)
        with torch.no_grad():
            wanted = self._logits(truth)
            best = wanted.argmax(dim=1)
            wanted = wanted.softmax(dim=1).mul_(1 - self._recipe.choice_weight)
            wanted[torch.arange(len(best)), best] += self._recipe.choice_weight
            agreed = (logits.argmax(dim=1) == best).float().mean().item()
        return -(wanted * logits.log_softmax(dim=1)).sum(dim=1).mean(), agreed

    def _logits(self, features: Tensor) -> Tensor:
        return linear(features * self._std + self._mean, self._vocab_weight)
