"""Block aggregates of a segment's columns, and sketches of row groups."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from skipstone.core.evidence import Array
from skipstone.index.container import BadIndex, Container, Key
from skipstone.index.levels import join_bytes

if TYPE_CHECKING:
    from skipstone.aggregate.states.blocks import Blocks

_ALWAYS: Final = frozenset(("known", "count", "lower", "upper", "has"))


@dataclass(eq=False)
class SegmentAggregates:
    """Aggregates and sketches of an open segment, by column number."""

    container: Container

    @cached_property
    def _names(self) -> dict[tuple[int, str], dict[str, Key]]:
        """Arrays of aggregates by column and level, of sketches by column and kind."""
        names: dict[tuple[int, str], dict[str, Key]] = {}
        for column, name in self.container.arrays():
            first, _, rest = name.partition("/")
            if first in ("sum", "sketch"):
                which, _, part = rest.partition("/")
                names.setdefault((column, f"{first}/{which}"), {})[part] = (column, name)
        return names

    def blocks(self, column: int, type: pa.DataType, level: str, units: Array) -> Blocks | None:
        """Return the aggregates of some row groups or pages, as keys of the recorded type."""
        from skipstone.aggregate.states.blocks import Blocks

        keys = self._names.get((column, f"sum/{level}"))
        if keys is None:
            return None
        self._check(keys, column, level)
        self.container.load(keys.values())
        arrays = {name: self.container.take(key, units) for name, key in keys.items()}
        return Blocks.from_arrays(type, arrays)

    def _check(self, names: Iterable[str], column: int, level: str) -> None:
        """Refuse aggregates with missing arrays, which would count as zeros."""
        present = set(names)
        parts = {name.partition("/")[0] for name in present if "/" in name}
        rows = {f"{p}/{k}" for p in parts for k in range(sum(n.startswith(f"{p}/") for n in present))}
        if not _ALWAYS | rows <= present or not parts & {"limbs", "parts"}:
            raise BadIndex(f"arrays of sum/{level} of column {column} are missing", self.container.name)

    def sums(self, column: int, type: pa.DataType) -> dict[str, Blocks]:
        """Return all aggregates of a column, by level."""
        from skipstone.aggregate.states.blocks import Blocks

        for (owner, name), keys in self._names.items():
            if owner == column and name.startswith("sum/"):
                self._check(keys, column, name.removeprefix("sum/"))
        return {
            name.removeprefix("sum/"): Blocks.from_arrays(
                type, {part: self.container.whole(key) for part, key in keys.items()}
            )
            for (owner, name), keys in self._names.items()
            if owner == column and name.startswith("sum/")
        }

    def sketches(self, column: int, kind: str, groups: Array) -> list[bytes | None] | None:
        """Return the sketches of row groups, None for one without; None if the column has no sketches."""
        keys = self._names.get((column, f"sketch/{kind}"))
        if keys is None:
            return None
        starts, stops = (self.container.take(keys["offsets"], groups + end) for end in (0, 1))
        spans = zip(starts.tolist(), stops.tolist(), strict=True)
        bodies = self.container.slices([(keys["data"], *span) for span in spans])
        return [body.tobytes() or None for body in bodies]

    def all_sketches(self, column: int) -> dict[str, list[bytes]]:
        """Return all sketches of a column, by kind; empty for row groups without one."""
        return {
            name.removeprefix("sketch/"): join_bytes(
                *(self.container.whole(keys[part]) for part in ("offsets", "data"))
            ).to_pylist()
            for (owner, name), keys in self._names.items()
            if owner == column and name.startswith("sketch/")
        }
