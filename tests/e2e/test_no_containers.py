"""Why the container tests are skipped: the script tells each reason, and none where they can run."""

import shutil
import subprocess
from pathlib import Path

import pytest

from shardflow.topology import ROOT

TOOLS = ("bash", "env", "timeout", "df", "tail")
DEAF = 'echo "Cannot connect to the Docker daemon" >&2; exit 1'
WITHOUT_COMPOSE = 'if [ "$1" = compose ]; then exit 1; fi; echo /nowhere'
COMPLETE = "echo /nowhere"


def reason(folder: Path, **programs: str) -> tuple[int, str]:
    """Exit status and output of the script where only these programs exist, each a line of shell."""
    for tool in TOOLS:
        path = shutil.which(tool)
        assert path is not None
        (folder / tool).symlink_to(path)
    for name, text in programs.items():
        (folder / name).unlink(missing_ok=True)
        (folder / name).write_text(f"#!{folder}/bash\n{text}\n")
        (folder / name).chmod(0o755)
    done = subprocess.run(
        [ROOT / "scripts" / "no-containers.sh"], env={"PATH": str(folder)}, capture_output=True, text=True, timeout=30
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("programs", "expected"),
    [
        ({}, (0, "there is no docker\n")),
        ({"docker": DEAF}, (0, "no docker engine answers: Cannot connect to the Docker daemon\n")),
        ({"docker": WITHOUT_COMPOSE}, (0, "docker has neither its compose plugin nor docker-compose\n")),
        ({"docker": WITHOUT_COMPOSE, "docker-compose": "exit 0"}, (1, "")),
        ({"docker": COMPLETE}, (1, "")),
        ({"docker": "echo /", "df": "echo Avail; echo 7"}, (0, "/ has less than 8 GiB left\n")),
    ],
    ids=["no docker", "no engine", "no compose", "old compose", "complete", "no disk"],
)
def test_the_reason_is_told(tmp_path: Path, programs: dict[str, str], expected: tuple[int, str]) -> None:
    assert reason(tmp_path, **programs) == expected
