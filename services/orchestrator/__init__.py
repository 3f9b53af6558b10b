"""The orchestrator: owns every request, asks the draft, sends rounds to the shards, streams text to clients."""
