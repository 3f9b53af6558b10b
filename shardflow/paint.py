"""How tokens look in a terminal: one colour for each place where a token can come from."""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from shardflow.client import Token

STYLES = {"target": "default", "accepted": "green", "corrected": "yellow", "bonus": "cyan"}
MARKS = {"target": ".", "accepted": "+", "corrected": "x", "bonus": "*"}
_MEANINGS = {
    "target": "chosen without a guess",
    "accepted": "guessed by the draft, confirmed by the target",
    "corrected": "guessed wrong, corrected by the target",
    "bonus": "chosen after guesses that were all right",
}


def say(console: Console, line: str) -> None:
    """One line of plain text, as it is: no markup, no highlighting, no wrapping."""
    console.print(line, highlight=False, markup=False, soft_wrap=True)


def token_text(token: Token) -> Text:
    """The text that a token released, in the colour of its source."""
    return Text(token.text, style=STYLES[token.source])


def legend() -> Text:
    """What the colours mean, one line each."""
    lines = [Text(f"■ {source}: {meaning}", style=STYLES[source]) for source, meaning in _MEANINGS.items()]
    return Text("\n").join(lines)


def marks(tokens: Sequence[Token]) -> str:
    """The sources of `tokens`, a character each, for where there are no colours."""
    return "".join(MARKS[token.source] for token in tokens)


def marks_legend() -> str:
    """What the characters of `marks` mean."""
    return ", ".join(f"{MARKS[source]} {source}" for source in MARKS)
