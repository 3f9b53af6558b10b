"""Everything the engine refuses or fails at, as types a service can turn into a status."""

from collections.abc import Sequence

from shardflow.errors import FailedPrecondition


class EngineError(Exception):
    """Base of all errors raised by the engine."""


class UnsupportedModelError(EngineError, FailedPrecondition):
    """The model can not be sliced or rewound by this engine; raised before any weight is read."""


class CheckpointError(EngineError, FailedPrecondition):
    """The model directory lacks a file or a tensor, or its tensors do not fit the configuration."""


class LayersError(EngineError, FailedPrecondition, ValueError):
    """Layers were asked for that the model does not have."""


class CapacityError(EngineError):
    """A session would grow past the rows its KV cache was made for; raised before anything is written."""


class CacheStateError(EngineError):
    """A slice starts behind the end of its KV cache, or keeps rows that are no path of the slice before."""


class NonFiniteError(EngineError):
    """NaN or infinity where numbers were due.

    `segments` holds the indices, in the forward call, of the segments concerned (empty outside a forward call).
    """

    def __init__(self, message: str, segments: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.segments = tuple(segments)
