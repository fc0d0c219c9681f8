"""A snapshot with the unflushed rows of its table: what a reader sees.

Each part of a memtable is a layer over the snapshot, converted once. A layer hides the rows of the snapshot,
and of older layers, that have its keys.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa

from skipstone.core.evidence import Array
from skipstone.core.rows import RowSet
from skipstone.iceberg.writing.target import stored_columns
from skipstone.table.keys import Keys, KeySet
from skipstone.table.locate import locate
from skipstone.table.overlay import Layer, MemoryFile, OverlayTable, overlay
from skipstone.table.tail.evolve import adapt, key_columns
from skipstone.table.tail.memtable import Versions

if TYPE_CHECKING:
    from skipstone.scan.table import Table

NAME = "tail"
"""What explanations call the rows."""


class TailView:
    """Makes views; the last one is used again until the snapshot or the memtables change."""

    def __init__(self, name: str = NAME) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._base: Table | None = None
        self._parts: tuple[Versions, ...] = ()
        self._view: OverlayTable | None = None
        self._files: WeakKeyDictionary[Versions, MemoryFile | None] = WeakKeyDictionary()
        self._hidden: dict[str, RowSet] = {}
        self._located: pa.Array | None = None
        """Keys whose rows in the snapshot are hidden."""

    def of(self, base: Table, parts: tuple[Versions, ...]) -> OverlayTable:
        """The snapshot of a table with memtables over it, oldest first."""
        with self._lock:
            if base is not self._base:
                self._start(base)
            elif self._view is not None and _same(parts, self._parts):
                return self._view
            keys = Keys.of(base)
            for part in parts:
                self._hide(base, keys, part)
            self._view = overlay(base, dict(self._hidden), self._layers(base, parts), name=self._name)
            self._parts = parts
            return self._view

    def _start(self, base: Table) -> None:
        if self._base is None or self._base.iceberg_schema != base.iceberg_schema:
            self._files.clear()
        self._base, self._parts, self._view = base, (), None
        self._hidden, self._located = {}, None

    def _hide(self, base: Table, keys: Keys, part: Versions) -> None:
        """Hide the rows of the snapshot with keys that no earlier call has looked for."""
        if any(part is one for one in self._parts):
            return
        codes, rows = part.codes, part.rows
        if self._located is not None:
            new = pa.array(_missing(codes, self._located))
            codes, rows = codes.filter(new), rows.filter(new)
        if not len(codes):
            return
        columns = key_columns(stored_columns(base.iceberg_schema), keys.names)
        for path, chosen in locate(base, keys.select(adapt(rows, columns, base.name))).row_sets().items():
            before = self._hidden.get(path)
            self._hidden[path] = chosen if before is None else before | chosen
        self._located = codes if self._located is None else pa.concat_arrays([self._located, codes])

    def _layers(self, base: Table, parts: Sequence[Versions]) -> list[Layer]:
        layers: list[Layer] = []
        newer: list[pa.Array] = []
        for part in reversed(parts):
            file = self._file(base, part)
            if file is not None:
                layers.insert(0, Layer(file, _replaced(part, newer)))
            newer.append(part.codes)
        return layers

    def _file(self, base: Table, part: Versions) -> MemoryFile | None:
        if part not in self._files:
            columns = stored_columns(base.iceberg_schema)
            rows = adapt(part.upserts(), columns, base.name) if len(part.live_codes) else None
            self._files[part] = None if rows is None else MemoryFile.of(base, rows)
        return self._files[part]


def _same(one: Sequence[Versions], other: Sequence[Versions]) -> bool:
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))


def _missing(codes: pa.Array, others: pa.Array) -> Array:
    """Which of some distinct codes are not among others."""
    if len(others) < len(codes):
        return KeySet(others).find(codes) < 0
    # The smaller side is hashed.
    missing = np.ones(len(codes), dtype=bool)
    at = KeySet(codes).find(others)
    missing[at[at >= 0]] = False
    return missing


def _replaced(part: Versions, newer: Sequence[pa.Array]) -> RowSet | None:
    """The live rows of a part that have versions in newer parts."""
    if not newer:
        return None
    again: Array = KeySet(pa.concat_arrays(list(newer))).find(part.live_codes) >= 0
    return RowSet.from_positions(len(again), np.flatnonzero(again)) if again.any() else None
