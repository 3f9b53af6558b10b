"""`python -m services.draft`: runs the draft service until it is told to stop."""

import sys

from services.draft.config import DraftSettings
from services.draft.server import DraftService
from shardflow import config, serving
from shardflow.metrics import DraftMetrics

if __name__ == "__main__":
    settings = config.load(DraftSettings, sys.argv[1:], "draft")
    serving.main(settings, DraftService(settings, DraftMetrics()))
