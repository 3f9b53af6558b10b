"""The flags of the command line that several commands share, and what they ask for."""

from pathlib import Path
from typing import Annotated

import typer

from shardflow.client import Options, Prompt
from shardflow.speculation import MODES, Mode


def prompt(text: str, raw: bool) -> Prompt:
    """What to ask: the text as it is, or as a question in a chat."""
    return text if raw else [{"role": "user", "content": text}]


def options(max_tokens: int, temperature: float, top_p: float, seed: int | None, speculation: str | None) -> Options:
    """How to answer it; what was not given is left to the deployment."""
    given = Options(max_tokens=max_tokens, temperature=temperature, top_p=top_p)
    if seed is not None:
        given["seed"] = seed
    if speculation is not None:
        given["speculation"] = speculation
    return given


def modes(text: str) -> tuple[str, ...]:
    """`none,linear:4` -> ("none", "linear:4"), each once; BadParameter says which part is no mode of speculation."""
    try:
        return tuple(dict.fromkeys(str(Mode.parse(part.strip())) for part in text.split(",")))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--modes") from error


def _checked(mode: str | None) -> str | None:
    try:
        return None if mode is None else str(Mode.parse(mode))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


Address = Annotated[str, typer.Option(help="Address of the orchestrator, host:port.")]
Where = Annotated[str, typer.Argument(metavar="[ADDRESS]", help="Address of the orchestrator, host:port.")]
Model = Annotated[Path, typer.Option(help="Directory of the target model.")]
DraftOption = Annotated[str, typer.Option("--draft", help="Directory of the draft, or `none`.")]
Delay = Annotated[float, typer.Option(min=0, help="Emulated one-way delay between the two regions, in milliseconds.")]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Write the figures to this file.")]
Raw = Annotated[bool, typer.Option("--raw", help="Continue the text as it is, without the chat template.")]
MaxTokens = Annotated[int, typer.Option(min=1, help="Tokens of an answer at most.")]
Temperature = Annotated[float, typer.Option(min=0, max=2, help="0 is greedy.")]
TopP = Annotated[float, typer.Option(min=0, max=1, help="Keep the likeliest tokens up to this probability.")]
Seed = Annotated[int | None, typer.Option(min=0, help="The same seed gives the same text.")]
Modes = Annotated[str, typer.Option(help=f"Modes to compare, separated by commas: {MODES}.")]
Speculation = Annotated[str | None, typer.Option(callback=_checked, help=f"{MODES}; else the deployment's own.")]
DefaultSpeculation = Annotated[str, typer.Option(callback=_checked, help=f"Mode of requests that name none: {MODES}.")]
Timeout = Annotated[float, typer.Option(help="Seconds for a whole answer.")]
Port = Annotated[int, typer.Option(min=1, max=65535, help="Port of the gRPC API.")]
HttpPort = Annotated[int, typer.Option(min=1, max=65535, help="Port of the OpenAI API and the playground.")]
