"""What the documentation says is so: generated pages are fresh, tables agree with the tests, links lead somewhere."""

import inspect
import json
import re
import subprocess
import sys

import pytest
import typer.main
import yaml

from services.draft.config import DraftSettings
from services.orchestrator.config import OrchestratorSettings
from services.verifier.config import VerifierSettings
from shardflow.cli import app
from tests.contract import test_status_codes
from tests.docs.pages import PAGES, ROOT, Block, blocks

SETTINGS = {"draft": DraftSettings, "orchestrator": OrchestratorSettings, "verifier": VerifierSettings}
COMMANDS = {name: command.params for name, command in typer.main.get_command(app).commands.items()}  # type: ignore[attr-defined]


def test_the_configuration_is_what_the_settings_say() -> None:
    script = "import runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__'); assert 'torch' not in sys.modules"
    argv = [sys.executable, "-c", script, "scripts/configuration-doc.py"]
    printed = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert printed == (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")


def test_every_status_code_has_a_row_and_a_test() -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    table = page.partition("## Status codes")[2].partition("Errors carry")[0]
    rows = re.findall(r"^\| `([A-Z_]+)` \|", table, re.MULTILINE)
    tests = [name for name, _ in inspect.getmembers(test_status_codes, inspect.isfunction) if name.startswith("test_")]
    tested = {name: [code for code in rows if name.startswith(f"test_{code.lower()}")] for name in tests}
    assert [name for name, codes in tested.items() if not codes] == []
    assert sorted(rows) == sorted({code for codes in tested.values() for code in codes})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: object) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))  # type: ignore[attr-defined]
    assert [link for link in links if not (page.parent / link).exists()] == []  # type: ignore[attr-defined]


@pytest.mark.parametrize("block", [block for block in blocks() if not block.runs], ids=lambda block: block.place)
def test_what_is_not_run_is_well_formed(block: Block) -> None:
    match block.language:
        case "sh":
            subprocess.run(["bash", "-n"], input=block.text, text=True, check=True)
        case "python":
            compile(block.text, block.place, "exec")
        case "json":
            json.loads(block.text)
        case "yaml":
            assert list(yaml.safe_load_all(block.text))


@pytest.mark.parametrize(
    "block", [block for block in blocks() if block.language == "sh"], ids=lambda block: block.place
)
def test_flags_and_targets_exist(block: Block) -> None:
    targets = re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for line in block.text.replace("\\\n", " ").splitlines():
        given = re.findall(r"(?<=\s)(--[a-z-]+)", line)
        if command := re.search(r"(?:^|[|;&] *)(?:\S+/)?shardflow ([a-z]+)", line):
            known = {option for parameter in COMMANDS[command[1]] for option in parameter.opts}
            assert set(given) <= known, line
        elif service := re.search(r"python -m services\.(\w+)", line):
            known = {"--" + name.replace("_", "-") for name in SETTINGS[service[1]].model_fields}
            assert set(given) <= known, line
        elif made := re.match(r"make ([a-z0-9-]+)", line):
            assert made[1] in targets, line
