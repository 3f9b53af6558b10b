"""The engine: runs a slice of a language model over packed rows, and samples. The only part that imports torch."""

from shardflow.engine.errors import (
    CacheStateError,
    CapacityError,
    CheckpointError,
    EngineError,
    NonFiniteError,
    UnsupportedModelError,
)
from shardflow.engine.kv import KVCache
from shardflow.engine.loader import load_slice
from shardflow.engine.model import ModelSlice, Segment
from shardflow.engine.noise import gumbel
from shardflow.engine.sampling import GREEDY, SamplingParams, choose, greedy, process, rank

__all__ = [
    "GREEDY",
    "CacheStateError",
    "CapacityError",
    "CheckpointError",
    "EngineError",
    "KVCache",
    "ModelSlice",
    "NonFiniteError",
    "SamplingParams",
    "Segment",
    "UnsupportedModelError",
    "choose",
    "greedy",
    "gumbel",
    "load_slice",
    "process",
    "rank",
]
