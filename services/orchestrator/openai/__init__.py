"""The OpenAI HTTP API of the orchestrator: JSON in, the core's own generations, JSON or server-sent events out."""
