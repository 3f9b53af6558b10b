"""Runs the verifier service with emulated compute: `python -m benchmarks.emulation.verifier`, same flags."""

import sys

from benchmarks.emulation import target
from services.verifier.config import VerifierSettings
from services.verifier.server import VerifierService
from shardflow import serving
from shardflow.config import load
from shardflow.metrics import VerifierMetrics


def main() -> None:
    """Reads the settings, builds the service around the stand-in, runs it."""
    settings = load(VerifierSettings, sys.argv[1:], "emulated-verifier")
    serving.main(settings, VerifierService(settings, VerifierMetrics(), target.load))


if __name__ == "__main__":
    main()
