"""Brings one shard's part of a model from the hub: `python -m shardflow.engine.fetch REPO --layers A:B --out DIR`.

Only the weight files that hold the shard's layers come, resumed where an earlier try stopped, and checked against the
hub's hashes. The directory appears whole or not at all, under a digest that is the same for every part of one model.
"""

import argparse
import hashlib
import io
import json
import logging
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from huggingface_hub import HfApi, hf_hub_url
from huggingface_hub.file_download import http_get
from huggingface_hub.utils._headers import build_hf_headers
from huggingface_hub.utils.tqdm import disable_progress_bars

from shardflow import logs
from shardflow.engine.checkpoint import FETCH_RECORD as RECORD

logger = logging.getLogger(__name__)

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
SIDE_FILES = (".json", ".txt", ".model", ".jinja")  # configuration and tokenizer
REPORT_S = 5.0
BLOCK_BYTES = 1 << 20


class FetchError(Exception):
    """The hub does not have what was asked for, or what came is not what the hub promised."""


@dataclass(frozen=True)
class Remote:
    """One file on the hub. `sha256` of large files, else `git_sha1`, the hash of git's blob."""

    name: str
    size: int
    sha256: str | None
    git_sha1: str

    def matches(self, path: Path) -> bool:
        """Whether `path` is this file, byte for byte."""
        if not path.is_file() or path.stat().st_size != self.size:
            return False
        seen = hashlib.sha256() if self.sha256 else hashlib.sha1(f"blob {self.size}\0".encode())
        with path.open("rb") as stream:
            while block := stream.read(BLOCK_BYTES):
                seen.update(block)
        return seen.hexdigest() == (self.sha256 or self.git_sha1)


@dataclass(frozen=True)
class Wanted:
    """What was asked for: all that decides which files a directory must hold."""

    repo: str
    revision: str
    layers: str
    """`FIRST:END`, `all`, or `none`: configuration and tokenizer only."""


def fetch(hub: HfApi, wanted: Wanted, out: Path) -> None:
    """Makes the directory `out`; does nothing, and asks nobody, if it holds what is wanted already.

    Raises FetchError for a repository without the layers, for a file that arrives other than announced, or if `out` is
    there and was not made by this function; a network that fails raises what the hub's client raises. What has arrived
    by then is kept beside `out` for the next try.
    """
    if _holds(out, wanted):
        logger.info("nothing to fetch", extra={"out": str(out)})
        return
    if out.exists() and not (out / RECORD).exists():
        raise FetchError(f"{out} is there already and was not fetched: remove it, or name another directory")
    commit, files = _list(hub, wanted)
    scratch = out.with_name(f".{out.name}.partial")
    if out.exists():  # other layers, or another revision: what it shares with them is not fetched again
        shutil.rmtree(scratch, ignore_errors=True)
        out.rename(scratch)
    scratch.mkdir(parents=True, exist_ok=True)
    bring = _Bringer(hub, wanted.repo, commit, files, scratch)
    side_files = {name for name in files if "/" not in name and name.endswith(SIDE_FILES) and name != INDEX}
    for name in sorted(side_files):
        bring(name)
    weights = _bring_weights(bring, files, scratch, wanted.layers)
    for path in scratch.iterdir():
        if path.name not in side_files | weights and (path.name in files or path.suffix == ".part"):
            path.unlink()
    record = asdict(wanted) | {"commit": commit, "digest": _digest(files), "files": sorted(side_files | weights)}
    (scratch / RECORD).write_text(json.dumps(record, indent=1))
    scratch.rename(out)
    logger.info("fetched", extra={"out": str(out), "commit": commit, "files": record["files"]})


def weight_files(index: Mapping[str, str], config: Mapping[str, Any], layers: tuple[int, int]) -> set[str]:
    """The files, out of `index` (tensor name -> file), that hold the layers and what the first or last shard adds."""
    first, end = layers
    count = int(config["num_hidden_layers"])
    prefixes = [f"model.layers.{layer}." for layer in range(first, end)]
    if first == 0:
        prefixes.append("model.embed_tokens.")
    if end == count:
        prefixes.append("model.norm.")
        untied = config.get("tie_word_embeddings") is False
        prefixes += ["lm_head."] if untied else ["lm_head.", "model.embed_tokens."]
    return {file for tensor, file in index.items() if tensor.startswith(tuple(prefixes))}


class _Bringer:
    """Brings single files into a directory, unless they are there."""

    def __init__(self, hub: HfApi, repo: str, commit: str, files: Mapping[str, Remote], into: Path) -> None:
        self._hub, self._repo, self._commit, self._files, self._into = hub, repo, commit, files, into

    def __call__(self, name: str) -> None:
        if name not in self._files:
            raise FetchError(f"{self._repo} has no {name}")
        remote, path = self._files[name], self._into / name
        if remote.matches(path):
            return
        part = path.with_name(f"{name}.{(remote.sha256 or remote.git_sha1)[:12]}.part")
        with _LoggedFile(part, remote) as stream:
            url = hf_hub_url(self._repo, name, revision=self._commit, endpoint=self._hub.endpoint)
            headers = build_hf_headers(token=self._hub.token)
            if stream.tell() < remote.size:
                http_get(url, stream, resume_size=stream.tell(), headers=headers, expected_size=remote.size)
        if not remote.matches(part):
            part.unlink()
            raise FetchError(f"{name}: what came is not what the hub announced; removed, try again")
        part.replace(path)


class _LoggedFile(io.FileIO):
    """A file that is appended to, and says in the log how far it is."""

    def __init__(self, path: Path, remote: Remote) -> None:
        super().__init__(path, "ab")
        self.seek(0, io.SEEK_END)
        self._remote = remote
        self._said = time.monotonic()
        self._log("resuming" if self.tell() else "fetching")

    def write(self, data: Any) -> int:
        written = super().write(data)
        if time.monotonic() - self._said >= REPORT_S:
            self._said = time.monotonic()
            self._log("fetching")
        return written

    def _log(self, event: str) -> None:
        done, size = self.tell(), self._remote.size
        percent = round(100 * done / size, 1) if size else 100.0
        fields = {"file": self._remote.name, "done_bytes": done, "size_bytes": size, "percent": percent}
        logger.info(event, extra=fields)


def _holds(out: Path, wanted: Wanted) -> bool:
    try:
        record = json.loads((out / RECORD).read_text())
    except FileNotFoundError:
        return False
    return all(record.get(key) == value for key, value in asdict(wanted).items())


def _list(hub: HfApi, wanted: Wanted) -> tuple[str, dict[str, Remote]]:
    """The commit that the revision means now, and its files by name."""
    info = hub.model_info(wanted.repo, revision=wanted.revision, files_metadata=True)
    files = {}
    for each in info.siblings or []:
        sha256 = each.lfs.sha256 if each.lfs else None
        files[each.rfilename] = Remote(each.rfilename, int(each.size or 0), sha256, str(each.blob_id))
    if info.sha is None or "config.json" not in files:
        raise FetchError(f"{wanted.repo} at {wanted.revision} is no model: there is no config.json")
    return info.sha, files


def _bring_weights(bring: Callable[[str], None], files: Iterable[str], scratch: Path, layers: str) -> set[str]:
    """Brings the weight files of `layers`, with an index of just these; returns the names of all of them."""
    if layers == "none":
        return set()
    config = json.loads((scratch / "config.json").read_text())
    needed = _parse_layers(layers, int(config["num_hidden_layers"]))
    if INDEX not in files:
        bring(SINGLE)
        return {SINGLE}
    bring(INDEX)
    index = json.loads((scratch / INDEX).read_text())
    names = weight_files(index["weight_map"], config, needed)
    for name in sorted(names):
        bring(name)
    index["weight_map"] = {tensor: file for tensor, file in index["weight_map"].items() if file in names}
    (scratch / INDEX).write_text(json.dumps(index))
    return names | {INDEX}


def _digest(files: Mapping[str, Remote]) -> str:
    """SHA-256 that names the model: its configuration and all its weights, also those that were left out here."""
    named = sorted(name for name in files if name == "config.json" or PurePosixPath(name).suffix == ".safetensors")
    parts = [f"{name} {files[name].sha256 or files[name].git_sha1}" for name in named]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _parse_layers(layers: str, count: int) -> tuple[int, int]:
    if layers == "all":
        return 0, count
    first, colon, end = layers.partition(":")
    if not (colon and first.isdigit() and end.isdigit() and int(first) < int(end) <= count):
        raise FetchError(f"layers {layers!r}: not FIRST:END within the model's {count} layers, all, or none")
    return int(first), int(end)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m shardflow.engine.fetch", description=__doc__.splitlines()[0])
    parser.add_argument("repo", metavar="REPO", help="repository on the hub, owner/name")
    parser.add_argument("--revision", default="main", help="branch, tag or commit")
    parser.add_argument("--layers", required=True, help="FIRST:END with END excluded, all, or none: no weights at all")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="the directory to make")
    given = parser.parse_args()
    logs.setup("fetch", "INFO")
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # a line for each request
    disable_progress_bars()
    try:
        fetch(HfApi(), Wanted(given.repo, given.revision, given.layers), given.out)
    except Exception as error:
        logger.error("fetch failed: %s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
