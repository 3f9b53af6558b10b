"""The deployables: one package per process."""
