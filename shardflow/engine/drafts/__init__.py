"""Drafts: what guesses ahead of the target. `load_drafter` opens a directory of either kind."""

from shardflow.engine.drafts.base import (
    MAX_NODES,
    Drafter,
    DraftGapError,
    DraftRequestError,
    DraftSession,
    DraftTree,
    Limits,
    Proposal,
)
from shardflow.engine.drafts.load import load_drafter

__all__ = [
    "MAX_NODES",
    "DraftGapError",
    "DraftRequestError",
    "DraftSession",
    "DraftTree",
    "Drafter",
    "Limits",
    "Proposal",
    "load_drafter",
]
