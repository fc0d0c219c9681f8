"""Ids that count up from row to row: which rows are members is told by their places, without reading them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from skipstone.aggregate.members import Outside
from skipstone.aggregate.units import Units, is_stated, part_of
from skipstone.core.evidence import Array
from skipstone.core.ir.nodes import ColumnRef
from skipstone.index.coverage import Recorded
from skipstone.lake.files import Files
from skipstone.partial.states import Path
from skipstone.prune.survey import Survey


@dataclass(frozen=True, slots=True, eq=False)
class Counting:
    """Runs of rows of a file in which a column counts up, and the id that each begins with."""

    starts: Array
    stops: Array
    ids: Array

    def at(self, places: Array) -> Array:
        """The ids at some places, all of which are in a run."""
        runs: Any = 0
        if len(self.starts) > 1:
            runs = np.searchsorted(self.starts, places, side="right") - 1
        found: Array = places + (self.ids - self.starts)[runs]
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Counted(Outside):
    """The same of rows whose ids count up; nothing is read for it."""

    runs: Mapping[Path, Counting]

    @property
    def columns(self) -> tuple[Path, ...]:
        """None."""
        return ()

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        """None."""
        return ()

    def deleted(self, table: pa.Table, files: Files, places: Callable[[], Array]) -> Array:  # noqa: ARG002
        """Per row, whether it is no member."""
        at = places()
        if not len(at):
            return np.zeros(0, dtype=bool)
        if at[-1] - at[0] + 1 == len(at) and all(len(runs.starts) == 1 for runs in self.runs.values()):
            first = {path: int(runs.at(at[:1])[0]) for path, runs in self.runs.items()}
            return ~self.members.evaluate(lambda leaf: leaf.ids.run(first[leaf.path], len(at)))
        return ~self.members.evaluate(lambda leaf: leaf.ids.contains(self.runs[leaf.path].at(at)))

    def cut_down(self) -> Counted:
        """The same with hardly more members than its rows may have."""
        bounds = {
            path: (int(runs.ids.min()), int((runs.ids + (runs.stops - runs.starts)).max()))
            for path, runs in self.runs.items()
        }
        return replace(self, members=self.members.restrict(bounds))


def counted(units: Units, share: int, mine: Array, refs: Sequence[ColumnRef]) -> Counted | None:
    """A test for the rows of some units of a share; None unless all ids in them are known to count up."""
    members = units.shares[share].members
    assert members is not None
    groups = units.group[mine].tolist()
    found: dict[Path, Counting] = {}
    for ref in refs:
        if ref.path not in members.paths:
            continue
        runs = _runs(units.survey, groups, ref) if len(ref.path) == 1 else None
        if runs is None or (runs.stops - runs.starts).sum() != units.rows[mine].sum():
            return None
        found[ref.path] = runs
    return Counted(members, found)


def _runs(survey: Survey, groups: Sequence[int], ref: ColumnRef) -> Counting | None:
    """Where a column counts up in row groups of one file; None if one of them isn't known to, at all."""
    found = []
    for group in groups:
        pages = _pages(survey, group, ref)
        if pages is None:
            return None
        found.append(pages)
    starts, stops, lower, upper = (np.concatenate([pages[side] for pages in found]) for side in range(4))
    if not len(starts):
        return None
    fresh = np.ones(len(starts), dtype=bool)
    fresh[1:] = (starts[1:] != stops[:-1]) | (lower[1:] != upper[:-1] + 1)
    firsts = np.flatnonzero(fresh)
    return Counting(starts[firsts], stops[np.append(firsts[1:], len(stops)) - 1], lower[firsts])


def _pages(survey: Survey, group: int, ref: ColumnRef) -> tuple[Array, Array, Array, Array] | None:
    """First rows, ends, first and last ids of the pages of a row group in which a column counts up."""
    part, unit = part_of(survey, group)
    if not isinstance(part, Recorded) or is_stated(survey, group, ref.path):
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
