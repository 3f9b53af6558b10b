"""What the repository may hold: no registry hosts, no machine's paths, no big files."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Written in pieces, so that this file does not find itself. Lock files name their registry by design.
REGISTRY = re.compile(
    r"py[p]i\.org|pythonhoste[d]\.org|crate[s]\.io|debia[n]\.org|download\.pytorc[h]\.org|proxy\.golan[g]"
)
MACHINE = re.compile(r"(?<![\w./-])/(?:wor[k]|roo[t]|home/\w+)/")
MAX_WEIGHTS_BYTES = 12_000_000
MAX_FILE_BYTES = 1_000_000


def repository_files() -> list[Path]:
    """Every file that is, or is about to be, under version control."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    return [path for name in names if name and (path := ROOT / name).is_file()]


def lines_with(pattern: re.Pattern[str]) -> list[str]:
    """`file:line` of every match in the repository's text files."""
    found = []
    for path in repository_files():
        if path.suffix in {".lock", ".safetensors", ".png"}:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if pattern.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}")
    return found


@pytest.mark.parametrize("text", ["index = https://py" + "pi.org/simple", "registry crates" + ".io"])
def test_registry_pattern(text: str) -> None:
    assert REGISTRY.search(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("cd /wor" + "k/main", True),
        ("'/roo" + "t/.cache'", True),
        ("a/work/b", False),
        ("https://x.example/work/", False),
    ],
)
def test_machine_pattern(text: str, found: bool) -> None:
    assert bool(MACHINE.search(text)) is found


def test_no_registry_host() -> None:
    assert lines_with(REGISTRY) == []


def test_no_path_of_a_machine() -> None:
    assert lines_with(MACHINE) == []


def test_weights_are_small() -> None:
    weights = [path for path in repository_files() if path.suffix == ".safetensors"]
    assert {path.name for path in weights} >= {"head.safetensors", "check.safetensors"}
    assert sum(path.stat().st_size for path in weights) <= MAX_WEIGHTS_BYTES


def test_no_other_big_file() -> None:
    files = [path for path in repository_files() if path.suffix != ".safetensors"]
    assert [path.name for path in files if path.stat().st_size > MAX_FILE_BYTES] == []


def test_pins_name_no_build_and_no_cuda() -> None:
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    assert "torch==2.13.0" in pins
    assert [pin for pin in pins if re.match(r"nvidia|cuda|triton|--|https?:", pin)] == []


def test_every_script_is_executable() -> None:
    scripts = [path for path in repository_files() if path.read_bytes()[:2] == b"#!"]
    assert ROOT / ".ci" / "run" in scripts
    assert [path.name for path in scripts if not path.stat().st_mode & 0o100] == []
