"""Settings of the orchestrator."""

from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import NoDecode

from shardflow.config import Peer, ServiceSettings, split_address
from shardflow.speculation import MODES, Mode


class OrchestratorSettings(ServiceSettings):
    """What the orchestrator can be told."""

    model: Path = Field(description="Directory with the target's tokenizer and configuration.")
    model_name: str = Field("", description="Name that clients call the model by; the directory's name if empty.")
    shards: Annotated[tuple[Peer, ...], NoDecode] = Field(
        description="Verifier shards, first one first: host:port[@relay-host:relay-port], separated by commas."
    )
    draft: Annotated[Peer | None, NoDecode] = Field(None, description="Draft service, host:port[@relay]; unset: none.")
    speculation: Annotated[Mode, NoDecode] = Field(
        Mode("auto"), description=f"What a request gets that does not choose: {MODES}."
    )
    http_listen: str | None = Field(
        None, description="Address that serves the OpenAI API and the playground over HTTP; unset: none."
    )
    http_api_keys: Annotated[tuple[SecretStr, ...], NoDecode] = Field(
        (), description="Bearer keys, one of which HTTP clients must send, separated by commas; none: open to all."
    )
    prefill_chunk: int = Field(256, ge=1, le=4096, description="Prompt tokens in one slice at most.")
    patience_s: float = Field(4.0, ge=0, description="Time that a request waits for a lost peer, in seconds.")
    draft_timeout_s: float = Field(5.0, gt=0, description="Time that a round waits for the draft, in seconds.")
    round_timeout_s: float = Field(60.0, gt=0, description="Time that one round may take, in seconds.")

    @field_validator("shards", mode="before")
    @classmethod
    def _read_shards(cls, value: object) -> object:
        return tuple(Peer.parse(part.strip()) for part in value.split(",")) if isinstance(value, str) else value

    @field_validator("http_listen")
    @classmethod
    def _check_http_listen(cls, value: str | None) -> str | None:
        if value is not None:
            split_address(value)
        return value

    @field_validator("http_api_keys", mode="before")
    @classmethod
    def _read_keys(cls, value: object) -> object:
        return tuple(key.strip() for key in value.split(",") if key.strip()) if isinstance(value, str) else value

    @field_validator("draft", mode="before")
    @classmethod
    def _read_draft(cls, value: object) -> object:
        return Peer.parse(value) if isinstance(value, str) else value

    @field_validator("speculation", mode="before")
    @classmethod
    def _read_speculation(cls, value: object) -> object:
        return Mode.parse(value) if isinstance(value, str) else value
