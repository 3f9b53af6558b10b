"""Which code was measured: records of different code are not to be mixed, whatever else is committed meanwhile."""

import hashlib
import subprocess

from shardflow.topology import ROOT

_PATHS = ("services", "shardflow", "relay", "models", "benchmarks/emulation", "benchmarks/spec")


def digest() -> str:
    """Digest of what runs and of what asks, as it lies in the checkout; CalledProcessError outside a repository."""
    parts = [_git("ls-files", "--stage", *_PATHS), _git("diff", "HEAD", "--", *_PATHS)]
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, check=True).stdout
