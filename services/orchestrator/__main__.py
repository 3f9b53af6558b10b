"""Runs the orchestrator: `python -m services.orchestrator --model DIR --shards A,B [--draft C]`."""

import sys

from services.orchestrator.config import OrchestratorSettings
from services.orchestrator.server import OrchestratorService
from shardflow import serving
from shardflow.config import load
from shardflow.metrics import OrchestratorMetrics


def main() -> None:
    """Reads the settings, builds the service, runs it."""
    settings = load(OrchestratorSettings, sys.argv[1:], "shardflow-orchestrator")
    serving.main(settings, OrchestratorService(settings, OrchestratorMetrics()))


if __name__ == "__main__":
    main()
