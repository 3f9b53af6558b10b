"""Distillation: makes a draft head for a target, out of what the target says itself."""
