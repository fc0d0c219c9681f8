"""A plan of whole files: which may hold a match, and which delete files bear on each; no file is opened."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from skipstone.core.evidence import Array
from skipstone.iceberg.deletes.matched import Links, Matched
from skipstone.iceberg.manifests.entries import Entries
from skipstone.report.trace import Note
from skipstone.report.trace.partitions import FilterStats


@dataclass(frozen=True, eq=False)
class FilePlan:
    """The data files that manifests leave of a table, as other planners give them."""

    entries: Entries
    whole: Array
    """Per file, whether every row matches that is not deleted."""
    deletes: Matched | None
    """Which delete files apply; None for a table without any."""
    filter_stats: FilterStats
    notes: tuple[Note, ...] = ()

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def paths(self) -> list[str]:
        """The files' locations."""
        found: list[str] = self.entries.paths.to_pylist()
        return found

    @property
    def rows(self) -> int:
        """Rows of the files, deleted ones included."""
        return int(self.entries.rows.sum())

    @cached_property
    def table(self) -> pa.Table:
        """A row per file: path, bytes, rows, spec, sequence number, whether all rows match, delete files."""
        entries = self.entries
        return pa.table(
            {
                "path": entries.paths,
                "bytes": pa.array(entries.sizes),
                "rows": pa.array(entries.rows),
                "spec_id": pa.array(entries.specs),
                "sequence": pa.array(entries.sequences),
                "whole": pa.array(self.whole),
                "deletes": self._delete_paths(),
            }
        )

    def _delete_paths(self) -> pa.Array:
        matched = self.deletes
        if matched is None:
            offsets = pa.array(np.zeros(len(self) + 1, dtype=np.int32))
            return pa.ListArray.from_arrays(offsets, pa.array([], pa.large_string()))
        vectors = np.flatnonzero(matched.vectors >= 0)
        parts = [_pairs(matched.positions), _pairs(matched.equalities), (vectors, matched.vectors[vectors])]
        owners = np.concatenate([owner for owner, _ in parts])
        numbers = np.concatenate([number for _, number in parts])
        order = np.argsort(owners, kind="stable")
        offsets = np.zeros(len(self) + 1, dtype=np.int32)
        np.cumsum(np.bincount(owners, minlength=len(self)), out=offsets[1:])
        paths = matched.deletes.paths.take(pa.array(numbers[order]))
        return pa.ListArray.from_arrays(pa.array(offsets), paths)

    def __repr__(self) -> str:
        return f"FilePlan({len(self):,} files, {self.rows:,} rows)"


def _pairs(links: Links) -> tuple[Array, Array]:
    return links.pairs(np.arange(len(links.counts)))
