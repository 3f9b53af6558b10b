"""Runs the draft service with emulated compute: `python -m benchmarks.emulation.draft`, same flags."""

import sys

from benchmarks.emulation import drafter
from services.draft.config import DraftSettings
from services.draft.server import DraftService
from shardflow import serving
from shardflow.config import load
from shardflow.metrics import DraftMetrics


def main() -> None:
    """Reads the settings, builds the service around the stand-in, runs it."""
    settings = load(DraftSettings, sys.argv[1:], "emulated-draft")
    serving.main(settings, DraftService(settings, DraftMetrics(), drafter.load))


if __name__ == "__main__":
    main()
