"""The command `shardflow distill`: says what is wanted, and hands over to the engine, which it does not load."""

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer


def distill(
    target: Annotated[Path, typer.Argument(help="Directory of the target model.", exists=True, file_okay=False)],
    out: Annotated[Path | None, typer.Option(help="Directory of the head; one that is there is trained on.")] = None,
    hours: Annotated[float, typer.Option(min=0.001, help="Time for everything, over all runs.")] = 4.0,
    seeds_file: Annotated[Path | None, typer.Option(exists=True, help="Prompts, one a line.")] = None,
    from_log: Annotated[Path | None, typer.Option(exists=True, help="Log of rounds of a running system.")] = None,
    evaluate: Annotated[Path | None, typer.Option(exists=True, help="Only measure the head in this directory.")] = None,
    rtt: Annotated[float, typer.Option(min=0, help="Round trip, in ms, that speeds are predicted for.")] = 86.0,
    seed: Annotated[int, typer.Option(min=0, help="Of prompts, sampling and training.")] = 0,
    device: Annotated[str, typer.Option(help="Where to compute, as torch names it.")] = "cpu",
) -> None:
    """Make a draft head for TARGET out of what it says itself; run it again to go on after an interruption."""
    if (out is None) == (evaluate is None):
        raise typer.BadParameter("either --out or --evaluate is needed")
    plan = {
        "target": str(target), "out": str(out or evaluate), "hours": hours, "seed": seed, "rtt_ms": rtt,
        "seeds_file": seeds_file and str(seeds_file), "log": from_log and str(from_log), "device": device,
    }  # fmt: skip
    task = "evaluate" if evaluate else "run"
    os.execv(sys.executable, [sys.executable, "-m", "shardflow.engine.distill", task, json.dumps(plan)])
