"""A deployment with emulated compute: the orchestrator, relay and link as they are, shards and draft with stand-ins."""

from pathlib import Path

from benchmarks.emulation.regime import Regime
from shardflow.topology import Topology

MODULES = {"verifier": "benchmarks.emulation.verifier", "draft": "benchmarks.emulation.draft"}


def emulated(regime: Regime, directory: Path, delay_ms: float) -> Topology:
    """What `shardflow.cluster.running` starts; `directory` is made to stand for the models."""
    model = regime.write(directory)
    return Topology(
        model=model, draft=model, shards=len(regime.stage_ms), delay_ms=delay_ms, threads=1, modules=MODULES
    )


def prompt(number: int, tokens: int = 16) -> list[int]:
    """Ids of the `number`th prompt; each begins a text of its own."""
    return [position * 16 + (number >> 4 * (position % 8)) % 16 for position in range(tokens)]
