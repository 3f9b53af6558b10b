"""Runs one shard of the target: `python -m services.verifier --model DIR [--layers FIRST:END]`."""

import sys

from services.verifier.config import VerifierSettings
from shardflow import serving
from shardflow.config import calm_openmp, load
from shardflow.metrics import VerifierMetrics


def main() -> None:
    """Reads the settings, builds the service, runs it."""
    settings = load(VerifierSettings, sys.argv[1:], "shardflow-verifier")
    calm_openmp()
    from services.verifier.server import VerifierService  # brings torch in, and OpenMP with it

    serving.main(settings, VerifierService(settings, VerifierMetrics()))


if __name__ == "__main__":
    main()
