"""Settings of the draft service."""

from typing import Literal

from pydantic import DirectoryPath, Field

from shardflow.config import ServiceSettings


class DraftSettings(ServiceSettings):
    """What the draft service can be told."""

    model: DirectoryPath = Field(
        description='Directory of the draft: a causal language model, or a head ("kind": "eagle_head" in config.json).'
    )
    target: DirectoryPath | None = Field(
        None, description="Directory of the target, of which a head reads the embedding."
    )
    dtype: Literal["float32", "float16", "bfloat16"] = Field(
        "float32", description="Element type of weights and KV; a head has float32 only."
    )
    device: str = Field("cpu", description="Device to compute on, as torch names it.")
    threads: int | None = Field(None, ge=1, description="Threads to compute with; unset: one per core.")
    max_sessions: int = Field(
        64, ge=1, description="Sessions held at once; beyond it the least recently used one goes."
    )
    max_session_tokens: int = Field(
        8192,
        ge=1,
        description="Longest context, in tokens; the draft's own bounds it too. Longer texts get no guesses.",
    )
