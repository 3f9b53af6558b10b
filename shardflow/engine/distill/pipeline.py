"""A distillation from the target's directory to the head's: talks, training, calibration, files, evaluation."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from shardflow.demo.receipt import receipt
from shardflow.engine.distill.calibration import fit_temperature
from shardflow.engine.distill.clock import Clock
from shardflow.engine.distill.evaluation import agreement, judge
from shardflow.engine.distill.heads import RECEIPT, WEIGHTS, Apprentice, write_check
from shardflow.engine.distill.talking import Source
from shardflow.engine.distill.talks import Talk, load_talks, save_talks
from shardflow.engine.distill.training import Progress, Recipe, Training
from shardflow.engine.drafts import load_drafter
from shardflow.engine.loader import load_slice
from shardflow.errors import FailedPrecondition, InvalidArgument

VOCABULARY = 10_240  # ids that a head can say: beyond them its LM head costs more than they bring
TALKING, TRAINING = 0.5, 0.9  # shares of the budget by whose end a stage ends
FILE = 32  # talks
RATE, RATE_WIDTH = 1e-3, 576  # the learning rate that suits a head of this width

Tell = Callable[[str, float, float, str], None]  # stage; its seconds used, and in all; a remark


@dataclass(frozen=True)
class Plan:
    """What is asked for; work that was interrupted is continued by the same plan only, but for its hours."""

    target: Path
    out: Path
    hours: float
    seed: int
    rtt_ms: float
    seeds_file: Path | None
    log: Path | None
    device: str


class Distillation:
    """One plan under way. What was done before is found on disk, whatever interrupted it."""

    def __init__(self, plan: Plan, tell: Tell) -> None:
        """Loads the target. Raises FailedPrecondition when the directory holds the work of another plan."""
        self._plan = plan
        self._tell = tell
        self._work = plan.out / ".work"
        for name in ("held", "talks"):
            (self._work / name).mkdir(parents=True, exist_ok=True)
        dtype = torch.float32 if plan.device == "cpu" else torch.float16
        self._target = load_slice(plan.target, None, dtype=dtype, device=plan.device)
        self._check_plan()
        self._clock = Clock(self._work / "clock.json", plan.hours * 3600)
        self._source = Source(plan.target, self._target, plan.seed, plan.seeds_file, plan.log)

    def run(self) -> dict[str, Any]:
        """Everything that is still to be done; returns the figures that the receipt holds."""
        held = self.held_out()
        self._talk()
        talks = [talk for talk in load_talks(self._work / "talks") if len(talk.answer) > 1]
        if not talks:
            raise InvalidArgument("there is no talk to train on: more --hours, or a log with answers in it")
        apprentice = self._apprentice(talks)
        before = agreement(apprentice, held)
        steps = self._train(apprentice, talks)
        figures = self._write(apprentice, held) | {"agreement_before": before, "steps": steps}
        figures["talks"], figures["answer_tokens"] = len(talks), sum(len(talk.answer) for talk in talks)
        conditions: dict[str, Any] = {name: str(value) for name, value in asdict(self._plan).items()}
        conditions |= {"target_digest": self._target.digest, "recipe": asdict(self._recipe())}
        made = {"figures": figures, "receipt": receipt(**conditions)}
        (self._plan.out / RECEIPT).write_text(json.dumps(made, indent=1) + "\n")
        self._clock.save()
        return figures

    def evaluate(self) -> dict[str, Any]:
        """The figures of the head that is there already."""
        apprentice = Apprentice.read(self._plan.out, self._plan.target, self._plan.device)
        return self._figures(apprentice, self.held_out())

    def held_out(self) -> list[Talk]:
        """Greedy talks that nothing is trained on; made once."""
        folder = self._work / "held"
        if not list(folder.iterdir()):
            self._tell("held-out talks", 0, 1, "")
            save_talks(folder / "0000.safetensors", list(self._source.held_out()))
        held = [talk for talk in load_talks(folder) if len(talk.answer) > 1]
        if not held:
            raise InvalidArgument("every held-out answer of the target is empty: there is nothing to evaluate on")
        return held

    def _check_plan(self) -> None:
        plan, file = self._plan, self._work / "plan.json"
        paths = {"seeds_file": str(plan.seeds_file), "log": str(plan.log)}
        asked = {"target": self._target.digest, "seed": plan.seed} | paths
        if file.exists() and json.loads(file.read_text()) != asked:
            raise FailedPrecondition(f"{plan.out} holds the work of another plan: {file.read_text()}")
        file.write_text(json.dumps(asked))

    def _talk(self) -> None:
        """Fills the folder of talks until its share of the time is used, or a log is read to its end."""
        folder = self._work / "talks"
        part = len(list(folder.glob("*.safetensors")))
        talks = iter(self._source.talks(part * FILE if self._plan.log else part))
        group: list[Talk] = []
        while self._clock.left(TALKING) > 0 and (talk := next(talks, None)):
            group.append(talk)
            if len(group) == FILE:
                self._keep(folder, part, group)
                part, group = part + 1, []
        if group:
            self._keep(folder, part, group)

    def _keep(self, folder: Path, part: int, group: Sequence[Talk]) -> None:
        save_talks(folder / f"{part:06}.safetensors", group)
        self._clock.save()
        self._tell("talks", self._clock.used(), self._clock.seconds * TALKING, f"{part * FILE + len(group)} talks")

    def _apprentice(self, talks: Sequence[Talk]) -> Apprentice:
        """The head that is to be trained: the one in the output directory if there is one, else a new one.

        It is kept beside the work, so that an interrupted run starts from the same one.
        """
        plan, start = self._plan, self._work / "start"
        if not (start / WEIGHTS).exists():
            torch.manual_seed(plan.seed)
            if (plan.out / WEIGHTS).exists():
                made = Apprentice.read(plan.out, plan.target, plan.device)
            else:
                made = Apprentice.fresh(plan.target, talks, VOCABULARY, plan.device)
            made.write(start, temperature=1.0)
        return Apprentice.read(start, plan.target, plan.device)

    def _recipe(self) -> Recipe:
        rate = RATE * (RATE_WIDTH / self._target.hidden_size) ** 0.5  # wider heads take smaller steps
        return Recipe(self._clock.seconds * (TRAINING - TALKING), self._plan.seed, rate)

    def _train(self, apprentice: Apprentice, talks: Sequence[Talk]) -> int:
        training = Training(apprentice.student, apprentice.vocab_weight, self._recipe(), self._work / "train.pt")

        def report(progress: Progress) -> None:
            remark = f"step {progress.step}, loss {progress.loss:.2f}, first choice right {progress.right:.2f}"
            self._tell("training", progress.elapsed, self._recipe().seconds, remark)
            if self._clock.left(TRAINING) <= 0:
                training.stop()

        training.run(talks, report)
        apprentice.put(training.average)
        return training.step

    def _write(self, apprentice: Apprentice, held: Sequence[Talk]) -> dict[str, Any]:
        apprentice.write(self._plan.out, temperature=fit_temperature(apprentice, held))
        longest = max(held, key=lambda talk: len(talk.answer))
        write_check(self._plan.out, self._plan.target, longest)
        return self._figures(apprentice, held)

    def _figures(self, apprentice: Apprentice, held: Sequence[Talk]) -> dict[str, Any]:
        self._tell("evaluation", 0, 1, "")
        drafter = load_drafter(self._plan.out, self._plan.target, max_tokens=4096, device=self._plan.device)
        shapes = judge(drafter, self._target, held, self._plan.rtt_ms)
        return {"agreement": agreement(apprentice, held), "shapes": shapes, "rtt_ms": self._plan.rtt_ms}
