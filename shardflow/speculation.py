"""How guesses are asked for: a mode says what a request wants of speculation; it changes the speed, never the text."""

from dataclasses import dataclass

from shardflow.calibration import CELLS as CELLS
from shardflow.calibration import CONFIDENCES as CONFIDENCES
from shardflow.calibration import cell as cell
from shardflow.calibration import typical as typical
from shardflow.v1 import orchestrator_pb2 as pb

MAX_NODES = 64  # guesses in one slice

_SIZED = {"linear": "K", "tree": "N"}
_PLAIN = ("none", "lookup", "auto")
MODES = "`none`, `linear:K`, `tree:N`, `lookup` or `auto`"
PATTERN = "^(none|lookup|auto|(linear|tree):[0-9]{1,2})$"


@dataclass(frozen=True)
class Mode:
    """One way to speculate.

    `none`: one token a round. `linear`: a chain of `size` guesses from the draft. `tree`: its `size` most probable
    guesses. `lookup`: guesses from the text alone. `auto`: from every source, as many as pay, drafted ahead.
    """

    kind: str
    size: int = 0

    @classmethod
    def parse(cls, text: str) -> "Mode":
        """Reads `none`, `linear:K`, `tree:N`, `lookup` or `auto`, sizes from 1 to 64; ValueError says what is wrong."""
        kind, _, size = text.partition(":")
        if text in _PLAIN:
            return cls(text)
        if kind in _SIZED and size.isascii() and size.isdigit() and 1 <= int(size) <= MAX_NODES:
            return cls(kind, int(size))
        raise ValueError(f"{text!r} is none of {MODES}, with K and N from 1 to {MAX_NODES}")

    @classmethod
    def read(cls, message: pb.Speculation) -> "Mode | None":
        """From the message; None if it names no mode. ValueError names the field that is wrong."""
        match message.WhichOneof("mode"):
            case None:
                return None
            case "linear":
                return cls("linear", _checked("linear.k", message.linear.k))
            case "tree":
                return cls("tree", _checked("tree.nodes", message.tree.nodes))
            case kind:
                return cls(kind)

    def message(self) -> pb.Speculation:
        """The message that asks for it."""
        match self.kind:
            case "linear":
                return pb.Speculation(linear=pb.LinearSpeculation(k=self.size))
            case "tree":
                return pb.Speculation(tree=pb.TreeSpeculation(nodes=self.size))
            case kind:
                message = pb.Speculation()
                getattr(message, kind).SetInParent()
                return message

    @property
    def drafts(self) -> bool:
        """Whether it asks the draft."""
        return self.kind in ("linear", "tree", "auto")

    def __str__(self) -> str:
        return f"{self.kind}:{self.size}" if self.kind in _SIZED else self.kind


def _checked(field: str, size: int) -> int:
    if not 1 <= size <= MAX_NODES:
        raise ValueError(f"speculation.{field}: {size} where 1 to {MAX_NODES} was expected")
    return size
