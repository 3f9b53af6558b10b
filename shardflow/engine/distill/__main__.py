"""The command `shardflow distill`: makes a draft for a target, or measures one."""

from pathlib import Path
from typing import Annotated, Any

import typer
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


def distill(
    target: Annotated[Path, typer.Argument(help="Directory of the target model.", exists=True, file_okay=False)],
    out: Annotated[Path | None, typer.Option(help="Directory of the head; one that is there is trained on.")] = None,
    hours: Annotated[float, typer.Option(min=0.001, help="Time for everything, over all runs.")] = 4.0,
    seeds_file: Annotated[Path | None, typer.Option(exists=True, help="Prompts, one a line.")] = None,
    from_log: Annotated[Path | None, typer.Option(exists=True, help="Log of rounds of a running system.")] = None,
    evaluate: Annotated[Path | None, typer.Option(exists=True, help="Measure the head in this directory only.")] = None,
    rtt: Annotated[float, typer.Option(min=0, help="Round trip, in ms, that speeds are predicted for.")] = 86.0,
    seed: Annotated[int, typer.Option(min=0, help="Of prompts, sampling and training.")] = 0,
    device: Annotated[str, typer.Option(help="Where to compute, as torch names it.")] = "cpu",
) -> None:
    """Make a draft head for TARGET out of what it says itself; run it again to go on after an interruption."""
    place = evaluate or out
    if place is None:
        raise typer.BadParameter("either --out or --evaluate is needed")
    bars = Bars()
    try:
        with bars.progress:
            plan = Plan(target, place, hours, seed, rtt, seeds_file, from_log, device)
            work = Distillation(plan, bars.tell)
            figures = work.evaluate() if evaluate else work.run()
    except (ShardflowError, EngineError) as error:
        console.print(f"error: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
        raise typer.Exit(1) from error
    except KeyboardInterrupt as error:
        raise typer.Exit(130) from error
    show(figures)


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
    typer.run(distill)
