"""Phase one of an aggregation: what metadata answers, and which rows are read for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from skipstone.aggregate.bind import Binding
from skipstone.aggregate.groups import GroupStates
from skipstone.aggregate.members import Cover, Members, Outside
from skipstone.aggregate.states.blocks import BlockMeasure
from skipstone.aggregate.states.first_last import FirstLast
from skipstone.aggregate.states.sketches import BadSketch
from skipstone.aggregate.states.state import Facet, Measure
from skipstone.aggregate.statistics import (
    UnitKeys,
    block_aggregates,
    has_page_blocks,
    member_pages,
    outside_by_place,
    page_blocks,
    sketch_blobs,
)
from skipstone.aggregate.units import Units, cover_units
from skipstone.core.evidence import Array
from skipstone.core.ir.nodes import ColumnRef
from skipstone.core.rows import RowSet
from skipstone.lake.files import Files
from skipstone.report.trace import LevelAnswer
from skipstone.report.units import plural

# Reading a row for one thing more costs about half of reading it by itself.
_MOSTLY = 2

RowsByShare: TypeAlias = dict[int, RowSet]
"""Shares without rows are left out."""


@dataclass(frozen=True, slots=True, eq=False)
class MeasureAnswer:
    """What metadata knows of one measure, and the rows to be read for the rest."""

    states: tuple[GroupStates, ...]
    read: RowsByShare
    answered: Array
    """Units that are answered as a whole."""
    left: Array
    """Units of which metadata leaves rows."""
    parts: LevelAnswer | None = None
    """Pages or rows of other units that are answered as well."""

    @property
    def rows_read(self) -> int:
        """Rows that are read for it."""
        return _size(self.read)


@dataclass(slots=True, eq=False)
class MetadataAnswer:
    """What metadata answers of an aggregation; unless ``cached``, it only rules rows out."""

    files: Files
    binding: Binding
    units: Units
    members: Members | None
    cached: bool
    cover: Cover = field(init=False)
    keys: UnitKeys = field(init=False)
    alive: Array = field(init=False)
    """Units with rows that may count."""
    whole: Array = field(init=False)
    """Units all of whose rows count, in one group that is known."""
    gone: RowsByShare = field(default_factory=dict)
    """Rows of units that are alive, but are proven not to be members."""
    sure: RowsByShare = field(default_factory=dict)
    """Rows of units with other rows as well that are proven to be members."""
    tests: dict[int, Outside] = field(default_factory=dict)
    """By share, what tells members among the others."""
    live: int = field(init=False)
    """Rows that may count."""
    measures: tuple[MeasureAnswer, ...] = field(init=False)
    """By number of the measure, the count of rows first."""
    _live_rows: RowsByShare = field(default_factory=dict)
    _certain_rows: RowsByShare = field(default_factory=dict)

    def __post_init__(self) -> None:
        units, types = self.units, self.binding.types
        ids = self.members.columns if self.members is not None else {}
        refs = [ColumnRef(path, type) for path, type in ids.items()]
        self.cover = cover_units(units, refs)
        self.alive = (units.kept > 0) & self.cover.inside
        self.keys = UnitKeys.of(units, [ColumnRef(path, types[path]) for path in self.binding.keys])
        self.whole = self.alive & (units.proven == units.rows) & ~self.cover.outside & self.keys.fixed
        if not self.cached:
            self.whole = np.zeros(len(units), dtype=bool)
        self._look_into_pages(refs)
        gone = sum(map(len, self.gone.values()))
        self.live = int(units.kept[self.alive].sum()) - gone
        others = [self._measure(*pair) for pair in enumerate(self.binding.measures) if pair[0]]
        others = _read_together(others)
        self.measures = (self._count(others), *others)

    # -- rows of shares ------------------------------------------------------------------------

    def _look_into_pages(self, refs: Sequence[ColumnRef]) -> None:
        """Where some rows of a unit are members, its pages may tell which are not, or which surely are."""
        units = self.units
        for share, partly in units.by_share(self.alive & self.cover.outside):
            members, rows = units.shares[share].members, units.shares[share].rows
            assert members is not None
            pages = member_pages(self.files, units, share, partly, members, refs)
            gone = pages.gone & rows
            if not gone.is_empty:
                self.gone[share] = gone
            if not pages.sure.is_empty:
                self.sure[share] = pages.sure
            self.tests[share] = outside_by_place(units, share, partly, refs) or Outside(members)

    def members_of(self, share: int) -> RowSet:
        """The rows of a share that are proven to be members."""
        units, mine = self.units, self.units.of_share(share)
        if units.shares[share].members is None:
            return RowSet.all(units.shares[share].rows.total)
        whole = units.ranges(share, mine[~self.cover.outside[mine]])
        return whole | self.sure[share] if share in self.sure else whole

    def _live(self, share: int) -> RowSet:
        """The rows of a share that may count."""
        if share not in self._live_rows:
            rows, mine = self.units.shares[share].rows, self.units.of_share(share)
            dead = mine[~self.alive[mine]]
            if len(dead):
                rows = rows - self.units.ranges(share, dead)
            self._live_rows[share] = rows - self.gone[share] if share in self.gone else rows
        return self._live_rows[share]

    def _certain(self, share: int) -> RowSet:
        """The rows of a share that count for sure, in groups that are known."""
        mine, proven = self.units.of_share(share), self.units.shares[share].proven
        if not self.cached:
            return RowSet.none(proven.total)
        if share not in self._certain_rows:
            proven = proven & self.members_of(share)
            loose = mine[~self.keys.fixed[mine]]
            self._certain_rows[share] = proven - self.units.ranges(share, loose) if len(loose) else proven
        return self._certain_rows[share]

    # -- measures ----------------------------------------------------------------------------

    def _measure(self, number: int, measure: Measure[Any]) -> MeasureAnswer:
        """What metadata knows of a measure."""
        answered, state = self._answered_units(measure)
        states = []
        if state is not None and answered.any():
            places = np.flatnonzero(answered)
            states.append(GroupStates(number, self.keys.take(places), state, len(places)))
        read: RowsByShare = {}
        pages = rows = 0
        left_units = self.alive & ~answered
        for share, partly in self.units.by_share(left_units):
            left = self._live(share)
            mine = self.units.of_share(share)
            done = mine[answered[mine]]
            if len(done):
                left = left - self.units.ranges(share, done)
            if isinstance(measure, BlockMeasure) and self.cached:
                for known, ranges in self._answered_pages(number, measure, share, partly):
                    states.append(known)
                    pages += known.groups
                    rows += len(ranges)
                    left = left - ranges
            if not left.is_empty:
                read[share] = left
        parts = LevelAnswer("pages", pages, rows) if pages else None
        return MeasureAnswer(tuple(states), read, answered, left_units, parts)

    def _answered_units(self, measure: Measure[Any]) -> tuple[Array, Any]:
        """The units that metadata answers, and their states."""
        answered = np.zeros(len(self.units), dtype=bool)
        candidates = np.flatnonzero(self.whole)
        if not len(candidates):
            return answered, None
        if isinstance(measure, FirstLast):
            return self._beaten(measure), None
        if measure.sketch is None and not measure.facets:
            return answered, None
        groups, back = np.unique(self.units.group[candidates], return_inverse=True)
        ref = self._ref(measure)
        if measure.sketch is not None:
            sketches = sketch_blobs(self.units.survey, ref, measure.sketch, groups)
            right = np.array([blob is not None for blob in sketches], dtype=bool)[back]
            blobs = [blob for at in back.tolist() if (blob := sketches[at]) is not None]
            try:
                state = measure.sketched(blobs) if blobs else None
            except BadSketch:
                # A damaged sketch costs time, never the answer.
                return answered, None
        else:
            blocks = block_aggregates(self.units.survey, ref, measure.facets, groups)
            known = measure.cached(blocks.take(back))
            if known is None:
                return answered, None
            right = known[1]
            chosen = np.flatnonzero(right)
            state = measure.fold(known[0], chosen, np.arange(len(chosen))) if len(chosen) else None
        answered[candidates[right]] = True
        return answered, state

    def _beaten(self, measure: FirstLast) -> Array:
        """The units none of whose rows can be first (or last), since others have one before (after) them."""
        nothing = np.zeros(len(self.units), dtype=bool)
        facts = self.units.survey.facts(ColumnRef(measure.by, measure.by_type)).take(self.units.group)
        bounds = facts.upper if measure.last else facts.lower
        if self.binding.keys or isinstance(bounds, pa.Array) or (measure.last and facts.may_nan.any()):
            return nothing
        exact = facts.upper_exact if measure.last else facts.lower_exact
        sure = bounds[self.whole & facts.may_value & exact]
        if not len(sure):
            return nothing
        beaten: Array = bounds < sure.max() if measure.last else bounds > sure.min()
        return beaten & self.alive & facts.may_value

    def _answered_pages(
        self, number: int, measure: BlockMeasure, share: int, units: Array
    ) -> list[tuple[GroupStates, RowSet]]:
        """States of pages, and their rows, in units of a share that are not answered as a whole."""
        if not has_page_blocks(self.units.survey):
            return []
        certain = self._certain(share)
        if certain.is_empty:
            return []
        ref, answers = self._ref(measure), []
        for unit in units[self.keys.fixed[units]].tolist():
            pages = page_blocks(self.units.survey, int(self.units.group[unit]), ref, certain)
            right = np.zeros(0) if pages is None else np.flatnonzero(pages.blocks.knows(measure.facets))
            if pages is None or not len(right):
                continue
            keys = self.keys.take(np.full(len(right), unit))
            ranges = RowSet.from_ranges(certain.total, pages.starts[right], pages.stops[right])
            answers.append((GroupStates(number, keys, pages.blocks.take(right), len(right)), ranges))
        return answers

    def _ref(self, measure: Measure[Any]) -> ColumnRef:
        path = measure.columns[0]
        return ColumnRef(path, self.binding.types[path])

    def _count(self, others: Sequence[MeasureAnswer]) -> MeasureAnswer:
        """Rows that count for sure are counted here, others with the measure that reads least."""
        units = self.units
        doubtful: RowsByShare = {}
        for share, _ in units.by_share(self.alive & ~self.whole):
            left = self._live(share) - self._certain(share)
            if not left.is_empty:
                doubtful[share] = left
        reads = [other.read for other in others if doubtful and _includes(other.read, doubtful)]
        if reads:
            doubtful = min(reads, key=_size)
        counts = np.where(self.alive, units.kept, 0)
        for rows in (self.gone, doubtful):
            for share, less in rows.items():
                mine = units.of_share(share)
                counts[mine] -= less.counts(units.starts[mine], units.stops[mine])
        # Units that have lost all rows this way may be without a key.
        places = np.flatnonzero(counts > 0)
        states = GroupStates(0, self.keys.take(places), counts[places], len(places))
        answered = self.alive & (counts == units.rows)
        rest = int(counts[~answered].sum())
        parts = LevelAnswer("rows", rest, rest) if rest else None
        return MeasureAnswer((states,), doubtful, answered, self.alive & ~self.whole, parts)

    # -- for the trace -------------------------------------------------------------------------

    def levels(self, number: int) -> tuple[LevelAnswer, ...]:
        """What is answered of a measure, each unit at the largest level that is answered as a whole."""
        units, answer = self.units, self.measures[number]
        answered, parts = answer.answered, () if answer.parts is None else (answer.parts,)
        if not answered.any():
            return parts
        files = np.array([share.file for share in units.shares], dtype=np.int64)
        owners = files[units.share]
        count = int(owners.max()) + 1
        whole = np.bincount(owners[answered], units.rows[answered], minlength=count).astype(np.int64)
        done = (whole == units.survey.totals[:count]) & (whole > 0)
        loose = answered & ~done[owners]
        levels = [
            LevelAnswer("files", int(done.sum()), int(whole[done].sum())),
            LevelAnswer("row groups", int(loose.sum()), int(units.rows[loose].sum())),
        ]
        return (*(level for level in levels if level.units), *parts)

    def why(self, number: int) -> tuple[str, ...]:
        """Why rows are read for a measure, a sentence each."""
        measure, left = self.binding.measures[number], self.measures[number].left
        if not self.measures[number].read:
            return ()
        if not self.cached:
            return ("metadata was not to answer",)
        lack = _lack(measure)
        if measure.columns:
            lack += f" of {'.'.join(measure.columns[0])}"
        reasons = (
            (f"{lack} in", left & self.whole),
            ("only some rows count in", left & self.keys.fixed & ~self.whole),
            ("rows of several groups are in", left & ~self.keys.fixed),
        )
        return tuple(
            f"{reason} {plural(int(units.sum()), 'row group')}" for reason, units in reasons if units.any()
        )


def _lack(measure: Measure[Any]) -> str:
    """What would have to be kept of a column, or that nothing would do."""
    if measure.sketch is not None:
        return "the index has no sketches"
    if not isinstance(measure, BlockMeasure):
        return "it takes the values"
    sums = measure.facets & (Facet.SUM | Facet.SQUARES)
    return "the index has no sums" if sums else "metadata has no exact counts and bounds"


def _read_together(answers: Sequence[MeasureAnswer]) -> list[MeasureAnswer]:
    """Rather than to read most rows twice, what metadata knows of the rest is read with them."""
    whole = next((one for one in answers if one.read and not one.states and not one.answered.any()), None)
    if whole is None:
        return list(answers)
    most = whole.rows_read
    # The units that are left stay as they are: they tell why rows are read.
    return [
        replace(whole, left=one.left) if most > one.rows_read > most // _MOSTLY else one for one in answers
    ]


def _includes(rows: RowsByShare, others: RowsByShare) -> bool:
    """Whether all rows of the others are among some."""
    return all(share in rows and mine.issubset(rows[share]) for share, mine in others.items())


def _size(rows: RowsByShare) -> int:
    return sum(map(len, rows.values()))
