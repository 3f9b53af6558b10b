"""Reads single tensors out of a safetensors directory, by file offset, so that no other weight enters the process."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shardflow.engine.errors import CheckpointError

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
FETCH_RECORD = "fetched.json"  # in a directory that shardflow.engine.fetch made: what it holds, and of which model
CHUNK_BYTES = 4 << 20  # what is staged at once on the way into a parameter
SAMPLE_BYTES = 256  # of each tensor, what the digest reads


@dataclass(frozen=True)
class Entry:
    """Where one tensor lies on disk."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int  # bytes from the start of the file
    size: int  # bytes


class Checkpoint:
    """The tensors of a local Hugging Face directory: one `model.safetensors`, or an index over several files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries: dict[str, Entry] = {}
        self._staging = bytearray(CHUNK_BYTES)
        for file in _files(path):
            self.entries |= _read_header(file)

    def copy_into(self, name: str, target: Tensor) -> None:
        """Fill `target` with tensor `name`, converted to its dtype and device, through a small staging buffer.

        A memory map would count every page it touches as resident, and a whole-tensor read would hold the tensor twice.
        Raises CheckpointError when the tensor is missing, has another shape, or is stored in an unknown type.
        """
        entry = self.entries.get(name)
        if entry is None:
            raise CheckpointError(f"{self.path} holds no tensor {name}")
        if entry.shape != tuple(target.shape):
            raise CheckpointError(f"{name} has shape {entry.shape}, expected {tuple(target.shape)}")
        if entry.dtype not in DTYPES:
            raise CheckpointError(f"{name} is stored as {entry.dtype}, which is not one of {', '.join(DTYPES)}")
        self._copy_flat(entry, DTYPES[entry.dtype], target.view(-1))

    def digest(self) -> str:
        """SHA-256 that names the model: its configuration, the shape of every tensor, and the first bytes of each.

        The same for every slice of one directory, and cheap: some hundred short reads, whatever the model's size. A
        directory that was fetched may hold a part of the model only; its record names the whole.
        """
        record = self.path / FETCH_RECORD
        if record.exists():
            return str(json.loads(record.read_text())["digest"])
        seen = hashlib.sha256((self.path / "config.json").read_bytes())
        for name, entry in sorted(self.entries.items()):
            seen.update(f"{name} {entry.dtype} {entry.shape}".encode())
            sample = memoryview(bytearray(min(SAMPLE_BYTES, entry.size)))
            _read(entry, 0, sample)
            seen.update(sample)
        return seen.hexdigest()

    def _copy_flat(self, entry: Entry, dtype: torch.dtype, target: Tensor) -> None:
        if entry.size != target.numel() * dtype.itemsize:
            raise CheckpointError(f"{entry.file.name}: {entry.size} bytes are no {target.numel()} numbers of {dtype}")
        step = CHUNK_BYTES // dtype.itemsize
        for start in range(0, target.numel(), step):
            part = target[start : start + step]
            _read(entry, start * dtype.itemsize, memoryview(self._staging)[: part.numel() * dtype.itemsize])
            part.copy_(torch.frombuffer(self._staging, dtype=dtype, count=part.numel()))


def _files(path: Path) -> list[Path]:
    single, index = path / "model.safetensors", path / "model.safetensors.index.json"
    if index.exists():
        names = set(json.loads(index.read_text())["weight_map"].values())
        return [path / name for name in sorted(names)]
    if single.exists():
        return [single]
    raise CheckpointError(f"{path} holds neither model.safetensors nor model.safetensors.index.json")


def _read_header(file: Path) -> dict[str, Entry]:
    """The table of contents: 8 bytes of little-endian length, then JSON, then the data that its offsets count from."""
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if length > file.stat().st_size:
            raise CheckpointError(f"{file.name} is no safetensors file, or ends early")
        header: dict[str, Any] = json.loads(stream.read(length))
    header.pop("__metadata__", None)
    entries = {}
    for name, item in header.items():
        begin, end = item["data_offsets"]
        entries[name] = Entry(file, item["dtype"], tuple(item["shape"]), 8 + length + begin, end - begin)
    return entries


def _read(entry: Entry, skip: int, into: memoryview) -> None:
    with entry.file.open("rb", buffering=0) as stream:
        stream.seek(entry.offset + skip)
        if stream.readinto(into) != len(into):
            raise CheckpointError(f"{entry.file.name} ends early")
