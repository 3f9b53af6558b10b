"""Settings of a verifier shard."""

from typing import Annotated, Literal

from pydantic import DirectoryPath, Field, field_validator
from pydantic_settings import NoDecode

from shardflow.config import Peer, ServiceSettings


class VerifierSettings(ServiceSettings):
    """What a verifier shard can be told."""

    model: DirectoryPath = Field(description="Directory of the target in Hugging Face form.")
    layers: str | None = Field(None, description="Layers to hold, FIRST:END with END excluded; unset: all.")
    dtype: Literal["float32", "float16", "bfloat16"] = Field(
        "float32", description="Element type of weights, KV and hidden states."
    )
    device: str = Field("cpu", description="Device to compute on, as torch names it.")
    next: Annotated[Peer | None, NoDecode] = Field(
        None,
        description="Shard that holds the next layers, host:port[@relay-host:relay-port]; unset: this is the last.",
    )
    threads: int | None = Field(None, ge=1, description="Threads to compute with; unset: one per core.")
    max_sessions: int = Field(64, ge=1, description="Sessions that are held at once.")
    max_session_tokens: int = Field(
        4096, ge=1, description="Longest session, in tokens; the model's own longest context bounds it too."
    )
    max_slice_rows: int = Field(256, ge=1, description="Longest chain or tree that one slice may carry.")
    max_batch_rows: int = Field(512, ge=1, description="Rows that one forward pass packs; one slice may exceed it.")
    session_idle_seconds: float = Field(600.0, gt=0, description="Time after which an unused session is forgotten.")
    origin_grace_seconds: float = Field(
        30.0, ge=0, description="Time for which the sessions of a lost orchestrator are kept."
    )

    @field_validator("next", mode="before")
    @classmethod
    def _read_next(cls, value: object) -> object:
        return Peer.parse(value) if isinstance(value, str) else value

    @field_validator("layers")
    @classmethod
    def _check_layers(cls, value: str | None) -> str | None:
        if value is not None:
            parse_layers(value)
        return value


def parse_layers(value: str) -> tuple[int, int]:
    """`"0:15"` -> (0, 15); ValueError if it is no range."""
    first, colon, end = value.partition(":")
    if not (colon and first.isdigit() and end.isdigit() and int(first) < int(end)):
        raise ValueError(f"{value!r} is not FIRST:END with FIRST < END")
    return int(first), int(end)
