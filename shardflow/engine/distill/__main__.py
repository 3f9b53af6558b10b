"""The engine's side of `shardflow distill`: runs a plan that comes as JSON, with bars and tables."""

import json
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from shardflow.engine.distill.pipeline import Distillation, Plan
from shardflow.engine.errors import EngineError
from shardflow.errors import ShardflowError

console = Console()


class Bars:
    """One bar a stage; what is left is what the time budget leaves."""

    def __init__(self) -> None:
        columns = (
            TextColumn("{task.description:14}"),
            BarColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[remark]}"),
        )
        self.progress = Progress(*columns, console=console)
        self._tasks: dict[str, TaskID] = {}

    def tell(self, stage: str, done: float, total: float, remark: str) -> None:
        """Moves the bar of a stage."""
        if stage not in self._tasks:
            self._tasks[stage] = self.progress.add_task(stage, total=total, remark="")
        self.progress.update(self._tasks[stage], completed=min(done, total), total=total, remark=remark)


def main(task: str, asked: dict[str, Any]) -> int:
    """Runs or evaluates a plan, shows the figures; exit code 1 for an error of ours, 130 for Ctrl-C."""
    paths = {name: asked[name] and Path(asked[name]) for name in ("target", "out", "seeds_file", "log")}
    bars = Bars()
    try:
        with bars.progress:
            work = Distillation(Plan(**asked | paths), bars.tell)
            figures = work.evaluate() if task == "evaluate" else work.run()
    except (ShardflowError, EngineError) as error:
        console.print(f"error: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        return 130
    show(figures)
    return 0


def show(figures: dict[str, Any]) -> None:
    """The figures as two tables."""
    depths = Table("target's choice among", *(f"depth {depth}" for depth in range(1, 5)))
    for name, shares in figures["agreement"].items():
        depths.add_row(name.replace("_", " "), *(f"{share:.2f}" for share in shares))
    shapes = Table("shape", "tokens a round", "ms a level", f"tok/s at {figures['rtt_ms']:g} ms")
    for name, used in figures["shapes"].items():
        shapes.add_row(
            name.replace("_", " "), f"{used.get('tokens_per_round', 1):.2f}", f"{used.get('level_ms', 0):.1f}",
            f"{used['tok_s']:.1f}",
        )  # fmt: skip
    console.print(depths)
    console.print(shapes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], json.loads(sys.argv[2])))
