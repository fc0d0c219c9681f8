"""Unflushed rows in memory: the last version of each key, in columns.

Deletes are rows, too: they have a key, NULL in all other columns, and are not live.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.evidence import Array
from skipstone.table.keys import Keys, KeySet, last_of_each
from skipstone.table.tail.wal import Kind

_FEW: Final = 4_096
"""Rows of small writes that are merged at once."""
_MANY: Final = 256
"""Small writes that are merged at once."""
_GROWTH: Final = 4
"""Each part of a memtable is at least this many times larger than the next."""


@dataclass(frozen=True, eq=False)
class Versions:
    """The last version of each of some keys."""

    codes: pa.Array
    """The keys, as ``Keys.encode`` has them."""
    rows: pa.Table
    live: Array
    """Whether the last version is a row, rather than a delete."""

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return int(self.rows.nbytes + self.codes.nbytes + self.live.nbytes)

    @cached_property
    def _set(self) -> KeySet:
        return KeySet(self.codes)

    def find(self, codes: pa.Array) -> Array:
        """The index of each key; -1 if it has no version here."""
        return self._set.find(codes)

    @cached_property
    def live_codes(self) -> pa.Array:
        """The keys of the live rows."""
        return self.codes if self.live.all() else self.codes.filter(pa.array(self.live))

    def take(self, chosen: Array) -> Versions:
        """Some of the versions."""
        at = pa.array(chosen)
        return Versions(self.codes.take(at), self.rows.take(at), self.live[chosen])

    def upserts(self) -> pa.Table:
        """The live rows."""
        return self.rows if self.live.all() else self.rows.filter(pa.array(self.live))

    def deletes(self, keys: Sequence[str]) -> pa.Table:
        """The keys of the deleted rows."""
        return self.rows.select(list(keys)).filter(pa.array(~self.live))


def of_frame(keys: Keys, schema: pa.Schema, kind: Kind, rows: pa.RecordBatch) -> Versions:
    """The versions of a frame, whose keys are distinct."""
    codes = keys.encode(rows)
    if kind is Kind.ROWS:
        columns = rows.columns
    else:
        held = dict(zip(rows.schema.names, rows.columns, strict=True))
        columns = [
            held[field.name] if field.name in held else pa.nulls(len(rows), field.type) for field in schema
        ]
    live = np.full(len(rows), kind is Kind.ROWS)
    return Versions(codes, pa.Table.from_arrays(columns, schema=_nullable(schema)), live)


def merge(parts: Sequence[Versions]) -> Versions:
    """The last versions of several sets, oldest set first."""
    if len(parts) == 1:
        return parts[0]
    codes = pa.concat_arrays([part.codes for part in parts])
    rows = pa.concat_tables([part.rows for part in parts])
    live = np.concatenate([part.live for part in parts])
    last = last_of_each(codes)
    if len(last) == len(codes):
        return Versions(codes, rows, live)
    return Versions(codes, rows, live).take(last)


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_nullable(True) for field in schema])


class Memtable:
    """The versions of consecutive frames; its owner locks it."""

    def __init__(self, keys: Keys, schema: pa.Schema, first: int) -> None:
        self.keys, self.schema, self.first = keys, schema, first
        self.last = first - 1
        """Number of the last frame."""
        self.nbytes = 0
        """Bytes in memory, including versions that are no longer the last."""
        self._parts: list[Versions] = []
        self._recent: list[Versions] = []
        self._waiting = 0

    def __len__(self) -> int:
        """The number of versions, including some that are no longer the last."""
        return sum(map(len, self._parts)) + self._waiting

    def put(self, number: int, versions: Versions) -> None:
        """Add the versions of a frame."""
        self._recent.append(versions)
        self.last = number
        self.nbytes += versions.nbytes
        self._waiting += len(versions)
        if self._waiting > _FEW or len(self._recent) > _MANY:
            self._settle()

    def parts(self) -> tuple[Versions, ...]:
        """All versions, oldest first; a key can be in several parts, but only once in each."""
        self._settle()
        return tuple(self._parts)

    def versions(self) -> Versions:
        """The last version of each key; the memtable is not empty."""
        self._settle()
        if len(self._parts) > 1:
            self._replace(0)
        return self._parts[0]

    def _settle(self) -> None:
        """Merge small writes, and parts of about the same size: each row is copied a few times in all."""
        if not self._recent:
            return
        self._parts.append(_compacted(self._recent))
        self._recent, self._waiting = [], 0
        first = len(self._parts) - 1
        while first and len(self._parts[first - 1]) < _GROWTH * sum(map(len, self._parts[first:])):
            first -= 1
        self._replace(first)

    def _replace(self, first: int) -> None:
        if first < len(self._parts) - 1:
            self._parts[first:] = [_compacted(self._parts[first:])]
        self.nbytes = sum(part.nbytes for part in self._parts)


def _compacted(parts: Sequence[Versions]) -> Versions:
    """Merged versions with one chunk per column: the chunks of small writes would add up.

    Many of them are sorted by key, so that readers can skip pages.
    """
    merged = merge(parts)
    if len(merged) > _FEW:
        merged = merged.take(np.asarray(pc.sort_indices(merged.codes)))
    return Versions(merged.codes, merged.rows.combine_chunks(), merged.live)
