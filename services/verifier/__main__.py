"""`python -m services.verifier`: one shard of the target."""

import sys

from services.verifier.config import VerifierSettings
from services.verifier.server import VerifierService
from shardflow.config import load
from shardflow.metrics import VerifierMetrics
from shardflow.serving import main

if __name__ == "__main__":
    settings = load(VerifierSettings, sys.argv[1:], "verifier")
    main(settings, VerifierService(settings, VerifierMetrics()))
