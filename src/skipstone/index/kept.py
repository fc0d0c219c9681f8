"""What a segment keeps of its columns' values: block aggregates, and sketches of row groups."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from skipstone.evidence import Array
from skipstone.index.container import Container, Key
from skipstone.index.levels import join_bytes
from skipstone.partial.blocks import Blocks


@dataclass(eq=False)
class Kept:
    """Aggregates and sketches of an open segment; columns by number."""

    container: Container

    @cached_property
    def _names(self) -> dict[tuple[int, str], dict[str, Key]]:
        """The arrays of aggregates by column and level, those of sketches by column and kind."""
        found: dict[tuple[int, str], dict[str, Key]] = {}
        for column, name in self.container.arrays():
            first, _, rest = name.partition("/")
            if first in ("sum", "sketch"):
                which, _, part = rest.partition("/")
                found.setdefault((column, f"{first}/{which}"), {})[part] = (column, name)
        return found

    def blocks(self, column: int, type: pa.DataType, level: str, units: Array) -> Blocks | None:
        """The aggregates of some row groups or pages, in keys of the type they were recorded in."""
        keys = self._names.get((column, f"sum/{level}"))
        if keys is None:
            return None
        self.container.load(keys.values())
        arrays = {name: self.container.take(key, units) for name, key in keys.items()}
        return Blocks.from_arrays(type, arrays)

    def sums(self, column: int, type: pa.DataType) -> dict[str, Blocks]:
        """All aggregates of a column, by level."""
        return {
            name.removeprefix("sum/"): Blocks.from_arrays(
                type, {part: self.container.whole(key) for part, key in keys.items()}
            )
            for (owner, name), keys in self._names.items()
            if owner == column and name.startswith("sum/")
        }

    def sketches(self, column: int, kind: str, groups: Array) -> list[bytes | None] | None:
        """The sketches of some row groups, None for one that has none; None if there are none at all."""
        keys = self._names.get((column, f"sketch/{kind}"))
        if keys is None:
            return None
        starts, stops = (self.container.take(keys["offsets"], groups + end) for end in (0, 1))
        spans = zip(starts.tolist(), stops.tolist(), strict=True)
        bodies = self.container.slices([(keys["data"], *span) for span in spans])
        return [body.tobytes() or None for body in bodies]

    def all_sketches(self, column: int) -> dict[str, list[bytes]]:
        """All sketches of a column, by kind; empty where a row group has none."""
        return {
            name.removeprefix("sketch/"): join_bytes(
                *(self.container.whole(keys[part]) for part in ("offsets", "data"))
            ).to_pylist()
            for (owner, name), keys in self._names.items()
            if owner == column and name.startswith("sketch/")
        }
