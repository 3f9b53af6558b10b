"""The keys and values of one session on one slice, preallocated, rewound by moving a length."""

from collections.abc import Sequence

import torch

from shardflow.engine.errors import CacheStateError, CapacityError


class KVCache:
    """Rows [0, length) hold the committed text first, then the rows of the last slice (a chain or a tree).

    The memory is not touched before it is written, so an unused capacity costs address space only.
    """

    def __init__(
        self, layers: int, kv_heads: int, head_dim: int, max_len: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        shape = (layers, kv_heads, max_len, head_dim)
        self.keys = torch.empty(shape, dtype=dtype, device=device)
        self.values = torch.empty(shape, dtype=dtype, device=device)
        self.max_len = max_len
        self.length = 0
        self.parents: tuple[int, ...] = ()  # of the last slice, whose rows are the last len(parents) ones

    @property
    def bytes_per_token(self) -> int:
        """Bytes that one row takes over all layers of the slice, keys and values together."""
        layers, kv_heads, _, head_dim = self.keys.shape
        return 2 * layers * kv_heads * head_dim * self.keys.element_size()

    def check(self, base: int, rows: int, *, grows: bool = False) -> None:
        """Raises CapacityError or CacheStateError unless `rows` rows can be written from `base` on.

        The rows below `base` must be a chain: the last slice, when it was a tree, is cut by `keep` first. When the last
        slice `grows`, it must start at `base`, and the rows are written behind it.
        """
        if not 0 <= base <= self.length:
            raise CacheStateError(f"rows from {base} on were asked for, but {self.length} are held")
        kept = base - (self.length - len(self.parents))
        if grows and kept != 0:
            raise CacheStateError(f"the last slice starts at {base - kept}, not at {base}: it can not grow there")
        if kept > 0 and list(self.parents[:kept]) != list(range(-1, kept - 1)):
            raise CacheStateError(f"the first {kept} rows of the last slice are no chain: say which ones to keep")
        start = self.length if grows else base
        if start + rows > self.max_len:
            raise CapacityError(f"{start} + {rows} rows do not fit into a cache of {self.max_len}")

    def truncate(self, base: int) -> None:
        """Forget every row from `base` on. Raises CacheStateError as `check` does."""
        self.check(base, 0)
        if base < self.length:
            self.length = base
            self.parents = ()

    def keep(self, rows: Sequence[int], tree: Sequence[int] = ()) -> None:
        """Keep only these rows of the last slice, a path that starts at the committed text, and move them up behind it.

        The rows `tree`, all below the path's end and parents first, are kept too: they are the last slice from now on.
        Raises CacheStateError, and changes nothing, when the rows are no such path or tree.
        """
        start, held = self.length - len(self.parents), len(self.parents)
        above = [-1, *rows[:-1]] if rows else []
        if any(not 0 <= row < held or self.parents[row] != up for row, up in zip(rows, above, strict=True)):
            raise CacheStateError(f"rows {list(rows)} are no path in the last slice of {held} rows")
        place = {rows[-1] if rows else -1: -1} | {row: index for index, row in enumerate(tree)}
        parents = [place.get(self.parents[row], held) if 0 <= row < held else held for row in tree]
        if any(parent >= index for index, parent in enumerate(parents)):
            raise CacheStateError(f"rows {list(tree)} are no tree below rows {list(rows)} of the last slice")
        kept = [*rows, *tree]
        if kept != list(range(len(kept))):
            source = torch.tensor(kept, device=self.keys.device) + start
            for store in (self.keys, self.values):
                store[:, :, start : start + len(kept)] = store.index_select(2, source)
        self.length = start + len(kept)
        self.parents = tuple(parents)

    def extend(self, parents: Sequence[int], *, grows: bool = False) -> None:
        """Count the rows of a slice, or those that the last slice grew by, just written behind the length, as held."""
        self.length += len(parents)
        self.parents = (*self.parents, *parents) if grows else tuple(parents)
