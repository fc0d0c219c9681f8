"""Pages of several columns as one list of units.

Page boundaries differ from column to column, so the units are *segments*: the row ranges between
neighbouring boundaries of any column. Each segment lies in one page of each column and takes its facts,
so the judge sees one evidence table and AND, OR and NOT need no special care.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from skipstone.evidence import Array, ColumnFacts, Evidence
from skipstone.parquet.evidence import BoundLeaf, page_facts
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.pageindex import PageIndex

Indexes = Mapping[tuple[int, tuple[str, ...]], PageIndex]
"""Page indexes by row group and column path."""


@dataclass(frozen=True, slots=True, eq=False)
class Segments:
    """Row ranges that no page boundary cuts, with their evidence; rows are file-absolute."""

    starts: Array
    stops: Array
    groups: Array
    evidence: Evidence


def segments(
    metadata: ParquetMetadata,
    groups: Sequence[int],
    bound: Mapping[tuple[str, ...], BoundLeaf],
    indexes: Indexes,
    group_evidence: Evidence,
) -> Segments:
    """The segments of the given row groups; a column without an index keeps its row group's facts."""
    starts, stops, owners = _cut(metadata, groups, indexes)
    columns = {}
    for path, facts in group_evidence.columns.items():
        spread = facts.take(owners)
        if path in bound:
            pages = _spread_pages(metadata, bound[path], groups, indexes, starts, owners, facts)
            spread = spread if pages is None else spread.narrowed(pages)
        columns[path] = spread
    return Segments(starts, stops, owners, Evidence(stops - starts, columns))


def _cut(metadata: ParquetMetadata, groups: Sequence[int], indexes: Indexes) -> tuple[Array, Array, Array]:
    starts, stops, owners = [], [], []
    by_group: dict[int, list[Array]] = {group: [] for group in groups}
    for (group, _), index in indexes.items():
        by_group[group].append(index.first_rows)
    # A loop per row group, whose boundaries are cut in one operation.
    for group, cuts in by_group.items():
        rows = int(metadata.row_group_rows[group])
        first = int(metadata.row_group_starts[group])
        edges = np.unique(np.concatenate([np.array([0, rows]), *cuts]))
        starts.append(edges[:-1] + first)
        stops.append(edges[1:] + first)
        owners.append(np.full(len(edges) - 1, group))
    if not starts:
        nothing = np.array([], dtype=np.int64)
        return nothing, nothing, nothing
    return np.concatenate(starts), np.concatenate(stops), np.concatenate(owners)


def _spread_pages(
    metadata: ParquetMetadata,
    bound: BoundLeaf,
    groups: Sequence[int],
    indexes: Indexes,
    starts: Array,
    owners: Array,
    group_facts: ColumnFacts,
) -> ColumnFacts | None:
    """One column's page facts, one entry per segment; the row group's own where it has no index."""
    path = bound.ref.path
    parts = [group_facts]
    units = owners.copy()
    before = len(group_facts)
    for group in groups:
        index = indexes.get((group, path))
        if index is None:
            continue
        mine = owners == group
        inside = starts[mine] - metadata.row_group_starts[group]
        # The last page that starts at or before the segment: pages without rows come earlier.
        units[mine] = before + np.searchsorted(index.first_rows, inside, side="right") - 1
        parts.append(page_facts(metadata, bound, index))
        before += len(index)
    return None if len(parts) == 1 else ColumnFacts.concat(parts).take(units)
