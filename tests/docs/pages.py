"""The pages of the documentation and their fenced blocks."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# Programs that are not at hand where the tests run; blocks that name them are read and not run.
_ELSEWHERE = re.compile(r"\b(docker|docker-compose|kubectl|gcloud|kind)\b")
_BLOCK = re.compile(r"^```(?P<language>\w+)(?: (?P<mark>[\w-]+))?\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block; `mark` is what its info string says behind the language."""

    place: str
    """`page.md:line`."""
    language: str
    mark: str
    text: str

    @property
    def runs(self) -> bool:
        """Whether it can be run as it is, against a deployment that `shardflow up` has started."""
        return self.language in ("sh", "python") and not self.mark and not _ELSEWHERE.search(self.text)


def blocks() -> list[Block]:
    """All blocks of all pages that have a language."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in _BLOCK.finditer(text):
            place = f"{page.name}:{text.count(chr(10), 0, match.start()) + 1}"
            found.append(Block(place, match["language"], match["mark"] or "", match["text"]))
    return found
