"""Phase one of an aggregation: what metadata answers, and which rows are read for the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from skipstone.aggregate.bind import Binding
from skipstone.aggregate.counting import counted
from skipstone.aggregate.groups import UnitKeys
from skipstone.aggregate.known import known_blocks, known_sketches
from skipstone.aggregate.members import Cover, Outside
from skipstone.aggregate.merge import Known
from skipstone.aggregate.pages import member_pages, page_blocks
from skipstone.aggregate.units import Units, cover_units
from skipstone.core.evidence import Array
from skipstone.core.ir.nodes import ColumnRef
from skipstone.core.rows import RowSet
from skipstone.lake.files import Files
from skipstone.partial.blocks import Facet
from skipstone.partial.picks import Pick
from skipstone.partial.reading import BlockMeasure
from skipstone.partial.sketches import BadSketch
from skipstone.partial.spread import Histogram
from skipstone.partial.states import Measure, RowCount
from skipstone.report.trace.aggregate import Answered

Rows: TypeAlias = dict[int, RowSet]
"""Rows by share; shares without any are left out."""


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """What metadata leaves of one measure: rows to be read, and why."""

    known: tuple[Known, ...]
    read: Rows
    answered: tuple[Answered, ...]
    why: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """What metadata says of every measure, the count of rows first."""

    units: Units
    cover: Cover
    found: tuple[Found, ...]
    sure: Mapping[int, RowSet]
    """By share, rows of units with other rows as well that are proven to be members."""
    tests: Mapping[int, Outside]
    """By share, what tells members among the others."""
    live: int
    """Rows that may count."""


@dataclass(slots=True, eq=False)
class Preparation:
    """One run of phase one."""

    files: Files
    binding: Binding
    units: Units
    member_refs: Sequence[ColumnRef]
    key_refs: Sequence[ColumnRef]
    cached: bool
    cover: Cover = field(init=False)
    alive: Array = field(init=False)
    """Units with rows that may count."""
    whole: Array = field(init=False)
    """Units all of whose rows count, in one group that is known."""
    keys: UnitKeys = field(init=False)
    gone: Rows = field(default_factory=dict)
    """Rows of units that are alive, but are proven to be no members."""
    sure: Rows = field(default_factory=dict)
    tests: dict[int, Outside] = field(default_factory=dict)
    _alive_rows: Rows = field(default_factory=dict)
    _certain_rows: Rows = field(default_factory=dict)

    def __post_init__(self) -> None:
        units = self.units
        self.cover = cover_units(units, self.member_refs)
        self.alive = (units.kept > 0) & self.cover.inside
        self.keys = UnitKeys.of(units, self.key_refs)
        self.whole = self.alive & (units.proven == units.rows) & ~self.cover.outside & self.keys.fixed
        if not self.cached:
            self.whole = np.zeros(len(units), dtype=bool)

    def run(self) -> Prepared:
        """Ask metadata, and cut out what it leaves."""
        self._look_into_pages()
        measures = self.binding.measures
        found = self._together(
            [self._measure(number, measures[number]) for number in range(1, len(measures))]
        )
        outside = sum(len(gone) for gone in self.gone.values())
        outside += int(self.units.kept[(self.units.kept > 0) & ~self.alive].sum())
        live = int(self.units.kept.sum()) - outside
        counted = self._count(found)
        return Prepared(self.units, self.cover, (counted, *found), self.sure, self.tests, live)

    # -- members -----------------------------------------------------------------------------

    def _look_into_pages(self) -> None:
        """Where some rows of a unit are members, its pages may tell which are not, or which surely are."""
        units = self.units
        for share, partly in self._by_share(self.alive & self.cover.outside):
            members, rows = units.shares[share].members, units.shares[share].rows
            assert members is not None
            found = member_pages(self.files, units, share, partly, members, self.member_refs)
            gone = found.gone & rows
            if not gone.is_empty:
                self.gone[share] = gone
            if not found.sure.is_empty:
                self.sure[share] = found.sure
            self.tests[share] = counted(units, share, partly, self.member_refs) or Outside(members)

    def _by_share(self, chosen: Array) -> list[tuple[int, Array]]:
        """Chosen units by share."""
        places = np.flatnonzero(chosen)
        owners, first = np.unique(self.units.share[places], return_index=True)
        return list(zip(owners.tolist(), np.split(places, first[1:]) if len(first) else (), strict=True))

    def _live(self, share: int) -> RowSet:
        """The rows of a share that may count."""
        if share not in self._alive_rows:
            rows, mine = self.units.shares[share].rows, self.units.of_share(share)
            dead = mine[~self.alive[mine]]
            if len(dead):
                rows = rows - self.units.ranges(share, dead)
            self._alive_rows[share] = rows - self.gone[share] if share in self.gone else rows
        return self._alive_rows[share]

    def _certain(self, share: int) -> RowSet:
        """The rows of a share that count for sure, in groups that are known."""
        mine, proven = self.units.of_share(share), self.units.shares[share].proven
        if not self.cached:
            return RowSet.none(proven.total)
        if share not in self._certain_rows:
            proven = proven & members_of(self.units, self.cover, self.sure, share)
            loose = mine[~self.keys.fixed[mine]]
            self._certain_rows[share] = proven - self.units.ranges(share, loose) if len(loose) else proven
        return self._certain_rows[share]

    # -- measures ----------------------------------------------------------------------------

    def _measure(self, number: int, measure: Measure[Any]) -> Found:
        """What metadata knows of a measure."""
        answered, state = self._answered(measure)
        known = []
        if state is not None and answered.any():
            told = np.flatnonzero(answered)
            known.append(Known(number, self.keys.take(told), state, len(told)))
        levels = self._levels(answered)
        read: Rows = {}
        pages = rows = 0
        for share, _ in self._by_share(self.alive & ~answered):
            left = self._live(share)
            mine = self.units.of_share(share)
            done = mine[answered[mine]]
            if len(done):
                left = left - self.units.ranges(share, done)
            if isinstance(measure, BlockMeasure) and self.cached:
                partly = mine[self.alive[mine] & ~answered[mine]]
                for found, ranges in self._answered_pages(number, measure, share, partly):
                    known.append(found)
                    pages += len(found.state)
                    rows += len(ranges)
                    left = left - ranges
            if not left.is_empty:
                read[share] = left
        if pages:
            levels.append(Answered("pages", pages, rows))
        return Found(tuple(known), read, tuple(levels), self._why(measure, answered, read))

    def _answered(self, measure: Measure[Any]) -> tuple[Array, Any]:
        """The units that metadata answers, and their states."""
        answered = np.zeros(len(self.units), dtype=bool)
        candidates = np.flatnonzero(self.whole)
        if not len(candidates):
            return answered, None
        if isinstance(measure, Pick):
            return self._beaten(measure), None
        if measure.sketch is None and not _facets(measure):
            return answered, None
        groups, back = np.unique(self.units.group[candidates], return_inverse=True)
        ref = self._ref(measure)
        if measure.sketch is not None:
            found = known_sketches(self.units.survey, ref, measure.sketch, groups)
            right = np.array([blob is not None for blob in found], dtype=bool)[back]
            blobs = [blob for at in back.tolist() if (blob := found[at]) is not None]
            try:
                state = measure.sketched(blobs) if blobs else None
            except BadSketch:
                # A damaged sketch costs time, never the answer.
                return answered, None
        else:
            blocks = known_blocks(self.units.survey, ref, _facets(measure), groups)
            known = measure.cached(blocks.take(back))
            if known is None:
                return answered, None
            right = known[1]
            chosen = np.flatnonzero(right)
            state = measure.fold(known[0], chosen, np.arange(len(chosen))) if len(chosen) else None
        answered[candidates[right]] = True
        return answered, state

    def _beaten(self, measure: Pick) -> Array:
        """The units none of whose rows can be first (or last), since others have one before (after) them."""
        nothing = np.zeros(len(self.units), dtype=bool)
        facts = self.units.survey.facts(ColumnRef(measure.by, measure.by_type)).take(self.units.group)
        bounds = facts.upper if measure.last else facts.lower
        if self.key_refs or isinstance(bounds, pa.Array) or (measure.last and facts.may_nan.any()):
            return nothing
        exact = facts.upper_exact if measure.last else facts.lower_exact
        sure = bounds[self.whole & facts.may_value & exact]
        if not len(sure):
            return nothing
        beaten: Array = bounds < sure.max() if measure.last else bounds > sure.min()
        return beaten & self.alive & facts.may_value

    def _answered_pages(
        self, number: int, measure: BlockMeasure, share: int, units: Array
    ) -> list[tuple[Known, RowSet]]:
        """The same of pages in units of a share that are not answered as a whole."""
        certain = self._certain(share)
        if certain.is_empty:
            return []
        ref, total, answers = self._ref(measure), certain.total, []
        for unit in units[self.keys.fixed[units]].tolist():
            found = page_blocks(self.units.survey, int(self.units.group[unit]), ref, certain)
            right = np.zeros(0) if found is None else np.flatnonzero(found.blocks.knows(measure.facets))
            if found is None or not len(right):
                continue
            keys = self.keys.take(np.full(len(right), unit))
            ranges = RowSet.from_ranges(total, found.starts[right], found.stops[right])
            answers.append((Known(number, keys, found.blocks.take(right), len(right)), ranges))
        return answers

    def _ref(self, measure: Measure[Any]) -> ColumnRef:
        path = measure.columns[0]
        return ColumnRef(path, self.binding.types[path])

    def _levels(self, answered: Array) -> list[Answered]:
        """Units that are answered, each at the largest level that is answered as a whole."""
        units = self.units
        if not answered.any():
            return []
        files = np.array([share.file for share in units.shares], dtype=np.int64)
        owners = files[units.share]
        count = int(owners.max()) + 1
        whole = np.bincount(owners[answered], units.rows[answered], minlength=count).astype(np.int64)
        done = whole == units.survey.totals[:count]
        done &= whole > 0
        loose = answered & ~done[owners]
        levels = [
            Answered("files", int(done.sum()), int(whole[done].sum())),
            Answered("row groups", int(loose.sum()), int(units.rows[loose].sum())),
        ]
        return [level for level in levels if level.units]

    def _why(self, measure: Measure[Any], answered: Array, read: Rows) -> tuple[str, ...]:
        if not read:
            return ()
        if not self.cached:
            return ("metadata was not to answer",)
        why = []
        open_units = self.alive & ~answered
        loose = open_units & ~self.keys.fixed
        partly = open_units & self.keys.fixed & ~self.whole
        unknown = open_units & self.whole
        name = ".".join(measure.columns[0]) if measure.columns else ""
        if unknown.any():
            of = f" of {name}" if name else ""
            why.append(f"{_lack(measure)}{of} in {_groups(unknown)}")
        if partly.any():
            why.append(f"only some rows count in {_groups(partly)}")
        if loose.any():
            why.append(f"rows of several groups are in {_groups(loose)}")
        return tuple(why)

    def _together(self, found: Sequence[Found]) -> list[Found]:
        """Rather than to read most rows twice, what metadata knows of the rest is read with them."""
        whole = next((one for one in found if one.read and not one.known and not one.answered), None)
        if whole is None:
            return list(found)
        most = _size(whole.read)
        return [
            replace(whole, why=one.why) if most > _size(one.read) > most // _MOSTLY else one for one in found
        ]

    # -- counting ----------------------------------------------------------------------------

    def _count(self, others: Sequence[Found]) -> Found:
        """Rows that count for sure are counted here, others with the measure that reads least."""
        doubtful: Rows = {}
        for share, _ in self._by_share(self.alive & ~self.whole):
            left = self._live(share) - self._certain(share)
            if not left.is_empty:
                doubtful[share] = left
        reads = [found.read for found in others if doubtful and _holds(found.read, doubtful)]
        if reads:
            doubtful = min(reads, key=_size)
        counts = np.where(self.alive, self.units.kept, 0)
        for rows in (self.gone, doubtful):
            for share, less in rows.items():
                mine = self.units.of_share(share)
                counts[mine] -= less.counts(self.units.starts[mine], self.units.stops[mine])
        # Units that have lost all rows this way may be without a key.
        told = np.flatnonzero(counts > 0)
        known = Known(0, self.keys.take(told), counts[told], len(told))
        levels = self._levels(self.alive & (counts == self.units.rows))
        rest = int(counts.sum()) - sum(level.rows for level in levels)
        if rest:
            levels.append(Answered("rows", rest, rest))
        why = self._why(RowCount(), self.whole, doubtful)
        return Found((known,), doubtful, tuple(levels), why)


# Reading a row for one thing more costs about half of reading it by itself.
_MOSTLY = 2


def _lack(measure: Measure[Any]) -> str:
    """What would have to be kept of a column, or that nothing would do."""
    if measure.sketch is not None:
        return "the index has no sketches"
    if not isinstance(measure, BlockMeasure):
        return "it takes the values"
    sums = measure.facets & (Facet.SUM | Facet.SQUARES)
    return "the index has no sums" if sums else "metadata has no exact counts and bounds"


def _facets(measure: Measure[Any]) -> Facet:
    """What of blocks would do for a measure; nothing if its rows are needed in any case."""
    return measure.facets if isinstance(measure, BlockMeasure | Histogram) else Facet(0)


def members_of(units: Units, cover: Cover, sure: Mapping[int, RowSet], share: int) -> RowSet:
    """The rows of a share that are proven to be members."""
    mine = units.of_share(share)
    if units.shares[share].members is None:
        return RowSet.all(units.shares[share].rows.total)
    whole = units.ranges(share, mine[~cover.outside[mine]])
    return whole | sure[share] if share in sure else whole


def _holds(rows: Rows, others: Rows) -> bool:
    """Whether all rows of the others are among some."""
    return all(share in rows and mine.issubset(rows[share]) for share, mine in others.items())


def _size(rows: Rows) -> int:
    return sum(map(len, rows.values()))


def _groups(chosen: Array) -> str:
    count = int(chosen.sum())
    return f"{count:,} row group{'' if count == 1 else 's'}"
