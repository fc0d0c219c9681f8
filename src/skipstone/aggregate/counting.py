"""Ids that count up from row to row: which rows are members is known without reading them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from skipstone.aggregate.members import Ids, Members
from skipstone.aggregate.units import Units, part_of
from skipstone.evidence import Array
from skipstone.index.coverage import Recorded
from skipstone.ir.nodes import ColumnRef
from skipstone.prune.survey import Survey
from skipstone.rows import RowSet


@dataclass(frozen=True, slots=True, eq=False)
class Counting:
    """Runs of rows of a file in which a column counts up, and the id that each begins with."""

    starts: Array
    stops: Array
    ids: Array

    def rows(self, leaf: Ids, total: int) -> RowSet:
        """The rows of a file's runs whose ids are in a set."""
        found = RowSet.none(total)
        # Run by run: a file has few, since they go on from page to page.
        for start, stop, first in zip(
            self.starts.tolist(), self.stops.tolist(), self.ids.tolist(), strict=True
        ):
            # Ids below 0 are in no set.
            skipped = min(max(-first, 0), stop - start)
            members = leaf.ids.rows(first + skipped, stop - start - skipped)
            if not members.is_empty:
                found = found | members.shift(start + skipped, total=total)
        return found


def counted_members(
    units: Units, share: int, mine: Array, members: Members, refs: Sequence[ColumnRef]
) -> tuple[RowSet, RowSet]:
    """Rows of some units of a share whose ids are known, and those of them that are members."""
    total = units.shares[share].rows.total
    groups = units.group[mine].tolist()
    runs = {ref.path: _runs(units.survey, groups, ref) for ref in refs}
    known = RowSet.all(total)
    for found in runs.values():
        known = known & RowSet.from_ranges(total, found.starts, found.stops)
    if known.is_empty:
        return known, known
    leaves: Mapping[Ids, RowSet] = {
        leaf: runs[leaf.path].rows(leaf, total) for leaf in members.leaves() if isinstance(leaf, Ids)
    }
    return known, known & members.among(leaves, total)


def _runs(survey: Survey, groups: Sequence[int], ref: ColumnRef) -> Counting:
    """Where a column counts up in row groups of one file, as far as an index tells."""
    none = np.zeros(0, dtype=np.int64)
    found = [pages for group in groups if (pages := _pages(survey, group, ref)) is not None]
    starts, stops, lower, upper = (
        np.concatenate([none, *(page[side] for page in found)]) for side in range(4)
    )
    if not len(starts):
        return Counting(none, none, none)
    fresh = np.ones(len(starts), dtype=bool)
    fresh[1:] = (starts[1:] != stops[:-1]) | (lower[1:] != upper[:-1] + 1)
    firsts = np.flatnonzero(fresh)
    return Counting(starts[firsts], stops[np.append(firsts[1:], len(stops)) - 1], lower[firsts])


def _pages(survey: Survey, group: int, ref: ColumnRef) -> tuple[Array, Array, Array, Array] | None:
    """First rows, ends, first and last ids of the pages of a row group in which a column counts up."""
    part, unit = part_of(survey, group)
    if not isinstance(part, Recorded) or ref.path in survey.given:
        return None
    segment, own = part.segment, int(part.groups[unit])
    span, pages = segment.page_span(own, ref.path), segment.pages(own, ref)
    if span is None or pages is None or pages.facts.lower.dtype != np.int64:
        return None
    facts, first = pages.facts, int(survey.starts[group])
    starts = pages.index.first_rows + first
    stops = np.append(starts[1:], survey.stops[group])
    rises = segment.rises(ref, np.arange(*span))
    # In 64 bits without a sign, where a difference wraps as counting up would.
    width = facts.upper.view(np.uint64) - facts.lower.view(np.uint64)
    more = stops - starts - 1
    steady = (rises == more) & (width == more.astype(np.uint64)) & (facts.lower <= facts.upper)
    steady &= facts.may_value & ~facts.may_null & facts.lower_exact & facts.upper_exact & (more >= 0)
    return starts[steady], stops[steady], facts.lower[steady], facts.upper[steady]
