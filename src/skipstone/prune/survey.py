"""The footers of several files as one run of row groups, so that one judgement serves them all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from skipstone.evidence import Array, ColumnFacts, Evidence
from skipstone.ir.nodes import ColumnRef
from skipstone.parquet.evidence import row_group_facts
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.rows import RowSet

_NO_FACTS: Mapping[tuple[str, ...], ColumnFacts] = {}


@dataclass(frozen=True, slots=True, eq=False)
class Survey:
    """N files, their row groups numbered through; ``given`` are facts per file that no footer states.

    A column that ``given`` names is never looked up in the files: where a partition column is stored in
    them as well, the directory's value stands.
    """

    files: tuple[ParquetMetadata, ...]
    given: Mapping[tuple[str, ...], ColumnFacts]
    owners: Array
    """The file of each row group."""
    numbers: Array
    """The row group's number within its file."""
    firsts: Array
    """The first row group of each file, and one past the last."""
    rows: Array
    starts: Array
    """The first row of each row group, counted within its file."""
    _facts: dict[tuple[tuple[str, ...], str], ColumnFacts] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        files: Iterable[ParquetMetadata],
        given: Mapping[tuple[str, ...], ColumnFacts] = _NO_FACTS,
    ) -> Survey:
        """Number the row groups of ``files`` through."""
        known = tuple(files)
        counts = np.array([file.row_group_count for file in known], dtype=np.int64)
        firsts = np.zeros(len(known) + 1, dtype=np.int64)
        np.cumsum(counts, out=firsts[1:])
        owners = np.repeat(np.arange(len(known)), counts)
        nothing = np.zeros(0, dtype=np.int64)
        rows = np.concatenate([nothing, *(file.row_group_rows for file in known)])
        starts = np.concatenate([nothing, *(file.row_group_starts for file in known)])
        return cls(known, given, owners, np.arange(firsts[-1]) - firsts[owners], firsts, rows, starts)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def stops(self) -> Array:
        """One past the last row of each row group, counted within its file."""
        return self.starts + self.rows

    def file(self, unit: int) -> ParquetMetadata:
        """The footer that a row group belongs to."""
        return self.files[int(self.owners[unit])]

    def units(self, file: int) -> range:
        """The row groups of a file."""
        return range(int(self.firsts[file]), int(self.firsts[file + 1]))

    def evidence(self, refs: Sequence[ColumnRef]) -> Evidence:
        """What the footers say about the columns in each row group."""
        return Evidence(self.rows, {ref.path: self.facts(ref) for ref in refs})

    def facts(self, ref: ColumnRef) -> ColumnFacts:
        """What is known about one column in each row group; worked out once per survey."""
        key = (ref.path, str(ref.type))
        found = self._facts.get(key)
        if found is None:
            given = self.given.get(ref.path)
            if given is not None:
                found = given.take(self.owners)
            elif self.files:
                # A loop over files: each has its own schema, and remembers its own facts.
                found = ColumnFacts.concat([row_group_facts(file, ref) for file in self.files])
            else:
                found = ColumnFacts.unknown(ref.type, 0)
            self._facts[key] = found
        return found

    def row_sets(self, owners: Array, starts: Array, stops: Array) -> dict[int, RowSet]:
        """Row ranges, each of the file that owns it, as one row set per file that has any."""
        order = np.argsort(owners, kind="stable")
        owners, starts, stops = owners[order], starts[order], stops[order]
        files, first = np.unique(owners, return_index=True)
        edges = [*first.tolist(), len(owners)]
        return {
            file: RowSet.from_ranges(self.files[file].num_rows, starts[a:b], stops[a:b])
            for file, a, b in zip(files.tolist(), edges[:-1], edges[1:], strict=True)
        }
