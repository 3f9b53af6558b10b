"""Runs the draft service: `python -m services.draft --model DIR [--target DIR]`."""

import sys

from services.draft.config import DraftSettings
from shardflow import serving
from shardflow.config import calm_openmp, load
from shardflow.metrics import DraftMetrics


def main() -> None:
    """Reads the settings, builds the service, runs it."""
    settings = load(DraftSettings, sys.argv[1:], "shardflow-draft")
    calm_openmp()
    from services.draft.server import DraftService  # brings torch in, and OpenMP with it

    serving.main(settings, DraftService(settings, DraftMetrics()))


if __name__ == "__main__":
    main()
