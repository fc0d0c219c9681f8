"""What pruning found: the rows that may match, and the proof."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from skipstone.core.evidence import Array
from skipstone.core.ir import Compiled
from skipstone.core.rows import RowSet
from skipstone.core.rows.selection import Selector, from_selection, to_selection
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.report.trace import Trace

if TYPE_CHECKING:
    from pyroaring import BitMap, BitMap64


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PruneResult:
    """Row groups and rows of one file that may match.

    ``rows`` never misses a matching row. Every row of ``proven`` is known to match, so a reader need not
    test it. ``verdicts`` has NONE, SOME or ALL for each row group of the file, before its pages were
    looked at.
    """

    rows: RowSet
    proven: RowSet
    verdicts: Array
    compiled: Compiled
    trace: Trace
    metadata: ParquetMetadata
    bitmap: BitMap | BitMap64 | None = None

    @property
    def row_groups(self) -> list[int]:
        """Row groups that hold a row of ``rows``."""
        starts = self.metadata.row_group_starts
        counts = self.rows.counts(starts, starts + self.metadata.row_group_rows)
        return [int(group) for group in np.flatnonzero(counts)]

    def row_selection(self) -> list[Selector]:
        """``("skip" | "select", n)`` over the kept row groups, as Parquet readers take it."""
        meta = self.metadata
        return to_selection(self.rows, self.row_groups, meta.row_group_starts, meta.row_group_rows)

    def from_selection(self, selection: list[Selector]) -> RowSet:
        """The file-absolute rows of a selection over the kept row groups."""
        meta = self.metadata
        return from_selection(
            selection, self.row_groups, meta.row_group_starts, meta.row_group_rows, meta.num_rows
        )

    def to_bitmap(self) -> BitMap | BitMap64:
        """The kept rows as a roaring bitmap."""
        return self.rows.to_bitmap() if self.bitmap is None else self.bitmap

    def __str__(self) -> str:
        from skipstone.report.explain import prune_tree
        from skipstone.report.text import to_text

        return to_text(prune_tree(self.trace))

    def __repr__(self) -> str:
        kept = len(self.row_groups)
        return (
            f"PruneResult({len(self.rows):,} of {self.rows.total:,} rows, "
            f"{kept} of {self.metadata.row_group_count} row groups)"
        )
