"""The demonstration: one live answer, then the same prompts with and without speculation, measured and compared."""
