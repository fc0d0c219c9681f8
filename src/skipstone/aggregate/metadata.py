"""Phase one of an aggregation: answers from metadata, and the rows to read for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from skipstone.aggregate.bind import Binding
from skipstone.aggregate.groups import GroupStates
from skipstone.aggregate.members import Cover, MemberAntiJoin, Members
from skipstone.aggregate.states.blocks import BlockMeasure
from skipstone.aggregate.states.first_last import FirstLast
from skipstone.aggregate.states.sketches import BadSketch
from skipstone.aggregate.states.state import Facet, Measure
from skipstone.aggregate.statistics import (
    UnitKeys,
    block_aggregates,
    column_facts,
    has_page_blocks,
    member_pages,
    page_blocks,
    sequential_anti_join,
    sketch_blobs,
)
from skipstone.aggregate.units import Units, cover_units
from skipstone.core.evidence import Array
from skipstone.core.ir.nodes import ColumnRef
from skipstone.core.rows import RowSet
from skipstone.lake.files import Files
from skipstone.report.trace import LevelAnswer
from skipstone.report.units import plural

# Reading one more column of a row costs about half of reading the row separately.
_SHARED_READ_GAIN = 2

RowsByShare: TypeAlias = dict[int, RowSet]
"""Rows by share number; shares without rows are omitted."""


@dataclass(frozen=True, slots=True, eq=False)
class MeasureAnswer:
    """States of one measure from metadata, and the rows to read for the rest."""

    states: tuple[GroupStates, ...]
    read: RowsByShare
    complete: Array
    """Units answered completely."""
    incomplete: Array
    """Units with rows that metadata doesn't answer."""
    parts: LevelAnswer | None = None
    """Pages or rows of incomplete units that are answered."""

    @property
    def rows_read(self) -> int:
        return _size(self.read)


@dataclass(slots=True, eq=False)
class MetadataAnswer:
    """Answers from metadata for an aggregation; without ``cached`` metadata only excludes rows."""

    files: Files
    binding: Binding
    units: Units
    members: Members | None
    cached: bool
    cover: Cover = field(init=False)
    keys: UnitKeys = field(init=False)
    alive: Array = field(init=False)
    """Units with rows that may qualify."""
    full: Array = field(init=False)
    """Units whose rows all qualify and are in one known group."""
    outside: RowsByShare = field(default_factory=dict)
    """Rows of alive units that are proven non-members."""
    inside: RowsByShare = field(default_factory=dict)
    """Rows of mixed units that are proven members."""
    tests: dict[int, MemberAntiJoin] = field(default_factory=dict)
    """Membership tests by share."""
    live: int = field(init=False)
    """Number of rows that may qualify."""
    measures: tuple[MeasureAnswer, ...] = field(init=False)
    """By measure number; the first is the row count."""
    _live_rows: RowsByShare = field(default_factory=dict)
    _certain_rows: RowsByShare = field(default_factory=dict)

    def __post_init__(self) -> None:
        units = self.units
        ids = self.members.columns if self.members is not None else {}
        refs = [ColumnRef(path, type) for path, type in ids.items()]
        self.cover = cover_units(units, refs)
        self.alive = (units.candidates > 0) & self.cover.inside
        self.keys = UnitKeys.of(units, [self.binding.column(path) for path in self.binding.keys])
        self.full = self.alive & (units.proven == units.rows) & ~self.cover.outside & self.keys.fixed
        if not self.cached:
            self.full = np.zeros(len(units), dtype=bool)
        self._split_pages(refs)
        outside = sum(map(len, self.outside.values()))
        self.live = int(units.candidates[self.alive].sum()) - outside
        others = [self._measure(*pair) for pair in enumerate(self.binding.measures) if pair[0]]
        others = _read_together(others)
        self.measures = (self._count(others), *others)

    # -- rows of shares ------------------------------------------------------------------------

    def _split_pages(self, refs: Sequence[ColumnRef]) -> None:
        """Use pages to find members and non-members in units that have both."""
        units = self.units
        for share, mixed in units.by_share(self.alive & self.cover.outside):
            members, rows = units.shares[share].members, units.shares[share].rows
            assert members is not None
            pages = member_pages(self.files, units, share, mixed, members, refs)
            outside = pages.outside & rows
            if not outside.is_empty:
                self.outside[share] = outside
            if not pages.inside.is_empty:
                self.inside[share] = pages.inside
            self.tests[share] = sequential_anti_join(units, share, mixed, refs) or MemberAntiJoin(members)

    def members_of(self, share: int) -> RowSet:
        """Rows of a share that are proven members."""
        units, indexes = self.units, self.units.of_share(share)
        if units.shares[share].members is None:
            return RowSet.all(units.shares[share].rows.total)
        inside = units.ranges(share, indexes[~self.cover.outside[indexes]])
        return inside | self.inside[share] if share in self.inside else inside

    def _live(self, share: int) -> RowSet:
        """Rows of a share that may qualify."""
        if share not in self._live_rows:
            rows, indexes = self.units.shares[share].rows, self.units.of_share(share)
            dead = indexes[~self.alive[indexes]]
            if len(dead):
                rows = rows - self.units.ranges(share, dead)
            self._live_rows[share] = rows - self.outside[share] if share in self.outside else rows
        return self._live_rows[share]

    def _certain(self, share: int) -> RowSet:
        """Rows of a share that certainly qualify, in known groups."""
        indexes, proven = self.units.of_share(share), self.units.shares[share].proven
        if not self.cached:
            return RowSet.none(proven.total)
        if share not in self._certain_rows:
            proven = proven & self.members_of(share)
            mixed = indexes[~self.keys.fixed[indexes]]
            self._certain_rows[share] = proven - self.units.ranges(share, mixed) if len(mixed) else proven
        return self._certain_rows[share]

    # -- measures ----------------------------------------------------------------------------

    def _measure(self, number: int, measure: Measure[Any]) -> MeasureAnswer:
        complete, state = self._answer_units(measure)
        states = []
        if state is not None and complete.any():
            indexes = np.flatnonzero(complete)
            states.append(GroupStates(number, self.keys.take(indexes), state, len(indexes)))
        read: RowsByShare = {}
        pages = rows = 0
        incomplete = self.alive & ~complete
        for share, mixed in self.units.by_share(incomplete):
            left = self._live(share)
            indexes = self.units.of_share(share)
            done = indexes[complete[indexes]]
            if len(done):
                left = left - self.units.ranges(share, done)
            if isinstance(measure, BlockMeasure) and self.cached:
                for group_states, ranges in self._answer_pages(number, measure, share, mixed):
                    states.append(group_states)
                    pages += group_states.groups
                    rows += len(ranges)
                    left = left - ranges
            if not left.is_empty:
                read[share] = left
        parts = LevelAnswer("pages", pages, rows) if pages else None
        return MeasureAnswer(tuple(states), read, complete, incomplete, parts)

    def _answer_units(self, measure: Measure[Any]) -> tuple[Array, Any]:
        """Mask of units that metadata answers completely, and their states."""
        complete = np.zeros(len(self.units), dtype=bool)
        candidates = np.flatnonzero(self.full)
        if not len(candidates):
            return complete, None
        if isinstance(measure, FirstLast):
            return self._superseded(measure), None
        if measure.sketch is None and not measure.facets:
            return complete, None
        groups, back = np.unique(self.units.group[candidates], return_inverse=True)
        column = self.binding.column(measure.columns[0])
        if measure.sketch is not None:
            if not isinstance(column, ColumnRef):
                return complete, None
            sketches = sketch_blobs(self.units.survey, column, measure.sketch, groups)
            usable = np.array([blob is not None for blob in sketches], dtype=bool)[back]
            blobs = [blob for at in back.tolist() if (blob := sketches[at]) is not None]
            try:
                state = measure.from_sketches(blobs) if blobs else None
            except BadSketch:
                # A damaged sketch costs time, never correctness.
                return complete, None
        else:
            blocks = block_aggregates(self.units.survey, column, measure.facets, groups)
            cached = measure.from_blocks(blocks.take(back))
            if cached is None:
                return complete, None
            usable = cached[1]
            selected = np.flatnonzero(usable)
            state = measure.fold(cached[0], selected, np.arange(len(selected))) if len(selected) else None
        complete[candidates[usable]] = True
        return complete, state

    def _superseded(self, measure: FirstLast) -> Array:
        """Units that can't have the first (or last) row, since a full unit has an earlier (later) one."""
        none = np.zeros(len(self.units), dtype=bool)
        facts = column_facts(self.units.survey, self.binding.column(measure.by), self.units.group)
        bounds = facts.upper if measure.last else facts.lower
        if self.binding.keys or isinstance(bounds, pa.Array) or (measure.last and facts.may_nan.any()):
            return none
        exact = facts.upper_exact if measure.last else facts.lower_exact
        certain = bounds[self.full & facts.may_value & exact]
        if not len(certain):
            return none
        superseded: Array = bounds < certain.max() if measure.last else bounds > certain.min()
        return superseded & self.alive & facts.may_value

    def _answer_pages(
        self, number: int, measure: BlockMeasure, share: int, units: Array
    ) -> list[tuple[GroupStates, RowSet]]:
        """States and rows of fully qualifying pages in incomplete units of a share."""
        if not has_page_blocks(self.units.survey):
            return []
        certain = self._certain(share)
        if certain.is_empty:
            return []
        ref = self.binding.column(measure.path)
        if not isinstance(ref, ColumnRef):
            return []
        answers = []
        for unit in units[self.keys.fixed[units]].tolist():
            pages = page_blocks(self.units.survey, int(self.units.group[unit]), ref, certain)
            usable = np.zeros(0) if pages is None else np.flatnonzero(pages.blocks.has_facets(measure.facets))
            if pages is None or not len(usable):
                continue
            keys = self.keys.take(np.full(len(usable), unit))
            ranges = RowSet.from_ranges(certain.total, pages.starts[usable], pages.stops[usable])
            answers.append((GroupStates(number, keys, pages.blocks.take(usable), len(usable)), ranges))
        return answers

    def _count(self, others: Sequence[MeasureAnswer]) -> MeasureAnswer:
        """Count certain rows from metadata, and the others with the measure that reads the fewest rows."""
        units = self.units
        doubtful: RowsByShare = {}
        for share, _ in units.by_share(self.alive & ~self.full):
            unproven = self._live(share) - self._certain(share)
            if not unproven.is_empty:
                doubtful[share] = unproven
        reads = [other.read for other in others if doubtful and _includes(other.read, doubtful)]
        if reads:
            doubtful = min(reads, key=_size)
        counts = np.where(self.alive, units.candidates, 0)
        for rows in (self.outside, doubtful):
            for share, removed in rows.items():
                indexes = units.of_share(share)
                counts[indexes] -= removed.counts(units.starts[indexes], units.stops[indexes])
        # Units without remaining rows may have no key.
        indexes = np.flatnonzero(counts > 0)
        states = GroupStates(0, self.keys.take(indexes), counts[indexes], len(indexes))
        complete = self.alive & (counts == units.rows)
        partial = int(counts[~complete].sum())
        parts = LevelAnswer("rows", partial, partial) if partial else None
        return MeasureAnswer((states,), doubtful, complete, self.alive & ~self.full, parts)

    # -- for the trace -------------------------------------------------------------------------

    def levels(self, number: int) -> tuple[LevelAnswer, ...]:
        """Answers for a measure by level; each unit counts at the highest level that is complete."""
        units, answer = self.units, self.measures[number]
        complete, parts = answer.complete, () if answer.parts is None else (answer.parts,)
        if not complete.any():
            return parts
        files = np.array([share.file for share in units.shares], dtype=np.int64)
        owners = files[units.share]
        count = int(owners.max()) + 1
        answered_rows = np.bincount(owners[complete], units.rows[complete], minlength=count).astype(np.int64)
        done = (answered_rows == units.survey.totals[:count]) & (answered_rows > 0)
        single = complete & ~done[owners]
        levels = [
            LevelAnswer("files", int(done.sum()), int(answered_rows[done].sum())),
            LevelAnswer("row groups", int(single.sum()), int(units.rows[single].sum())),
        ]
        return (*(level for level in levels if level.units), *parts)

    def why(self, number: int) -> tuple[str, ...]:
        """Reasons why rows are read for a measure."""
        measure, incomplete = self.binding.measures[number], self.measures[number].incomplete
        if not self.measures[number].read:
            return ()
        if not self.cached:
            return ("metadata is not used",)
        computed = bool(measure.columns) and measure.columns[0] in self.binding.computed
        missing = _missing_metadata(measure, computed=computed)
        if measure.columns:
            missing += f" of {'.'.join(measure.columns[0])}"
        reasons = (
            (f"{missing} in", incomplete & self.full),
            ("only some rows qualify in", incomplete & self.keys.fixed & ~self.full),
            ("rows belong to several groups in", incomplete & ~self.keys.fixed),
        )
        why = [
            f"{reason} {plural(int(units.sum()), 'row group')}" for reason, units in reasons if units.any()
        ]
        if reasons[-1][1].any():
            keys = [self.binding.computed.get(path) for path in self.binding.keys]
            why += [
                f"{key.why}, so bounds don't tell the groups of {key.name}"
                for key in keys
                if key is not None and key.monotone is None
            ]
        return tuple(why)


def _missing_metadata(measure: Measure[Any], *, computed: bool) -> str:
    if measure.sketch is not None:
        return "metadata has no sketches" if computed else "no index with sketches"
    if not isinstance(measure, BlockMeasure):
        return "the function needs all values"
    sums = measure.facets & (Facet.SUM | Facet.SQUARES)
    if sums:
        return "metadata has no sums" if computed else "no index with sums"
    return "metadata has no exact counts and bounds"


def _read_together(answers: Sequence[MeasureAnswer]) -> list[MeasureAnswer]:
    """Avoid reading rows twice: a measure that reads most of the rows reads all of them."""
    full = next((a for a in answers if a.read and not a.states and not a.complete.any()), None)
    if full is None:
        return list(answers)
    rows = full.rows_read
    # The incomplete units are retained, since they explain why rows are read.
    return [
        replace(full, incomplete=answer.incomplete)
        if rows > answer.rows_read > rows // _SHARED_READ_GAIN
        else answer
        for answer in answers
    ]


def _includes(rows: RowsByShare, others: RowsByShare) -> bool:
    """Whether ``rows`` is a superset of ``others``."""
    return all(share in rows and subset.issubset(rows[share]) for share, subset in others.items())


def _size(rows: RowsByShare) -> int:
    return sum(map(len, rows.values()))
