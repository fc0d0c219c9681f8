"""Row groups of a plan's files as units: what is known of them, and how many of their rows may count.

Here aggregates meet the planner: what it knows of files is one survey, kept by the lake for later questions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

import numpy as np

from skipstone.aggregate.members import Cover, Members, Places
from skipstone.aggregate.states.state import Path
from skipstone.core.evidence import Array
from skipstone.core.ir.nodes import ColumnRef
from skipstone.core.rows import RowSet
from skipstone.index.coverage import IndexCoverage
from skipstone.index.draft import runs
from skipstone.prune.survey import Survey, SurveyPart
from skipstone.scan.lake import Lake
from skipstone.scan.plan import ScanPlan, Task


@dataclass(frozen=True, slots=True, eq=False)
class Share:
    """Rows of one file: those that may match, those proven to, and what tells members among them."""

    task: Task
    file: int
    """The file's number in the survey."""
    rows: RowSet
    proven: RowSet
    members: Members | None
    """None where every row is a member."""


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """The row groups of every share, one after the other."""

    survey: Survey
    shares: tuple[Share, ...]
    firsts: Array
    """The first unit of each share, and one past the last."""
    share: Array
    group: Array
    """The row group's number in the survey."""
    rows: Array
    kept: Array
    """Rows that may match."""
    proven: Array

    @classmethod
    def of(cls, lake: Lake, plan: ScanPlan, members: Members | None) -> Units:
        """The units of a plan's files, with the rows of each that the plan keeps."""
        coverage = lake.index.coverage if plan.options.index and plan.options.skipping else None
        numbers = np.array([task.number for task in plan.tasks], dtype=np.int64)
        survey, chosen = _survey(lake, coverage, numbers)
        files = {number: file for file, number in enumerate(chosen.tolist())}
        offsets = None
        if members is not None and members.has_places:
            offsets = FileOffsets(lake, coverage)
            members = members.located(offsets.paths)
        return cls.of_shares(survey, list(shares_of(plan, files, members, offsets)))

    @classmethod
    def of_shares(cls, survey: Survey, shares: Sequence[Share]) -> Units:
        """Count the rows of shares in each of their row groups."""
        files = np.array([share.file for share in shares], dtype=np.int64)
        counts = survey.firsts[files + 1] - survey.firsts[files]
        firsts = np.concatenate(([0], np.cumsum(counts)))
        group = runs(survey.firsts[files], counts)
        rows = survey.rows[group]
        kept, proven = rows.copy(), rows.copy()
        for number, share in enumerate(shares):
            mine = slice(int(firsts[number]), int(firsts[number + 1]))
            for chosen, counted in ((share.rows, kept), (share.proven, proven)):
                if not chosen.is_full:
                    counted[mine] = chosen.counts(survey.starts[group[mine]], survey.stops[group[mine]])
        owner = np.repeat(np.arange(len(shares)), counts)
        return cls(survey, tuple(shares), firsts, owner, group, rows, kept, proven)

    def __len__(self) -> int:
        return len(self.group)

    @property
    def starts(self) -> Array:
        """The first row of each unit, counted within its file."""
        return self.survey.starts[self.group]

    @property
    def stops(self) -> Array:
        """One past the last row of each unit, counted within its file."""
        return self.survey.stops[self.group]

    def of_share(self, share: int) -> Array:
        """The units of a share."""
        return np.arange(int(self.firsts[share]), int(self.firsts[share + 1]))

    def by_share(self, chosen: Array) -> list[tuple[int, Array]]:
        """Chosen units by share."""
        places = chosen.nonzero()[0]
        owners = self.share[places]
        cuts = [0, *((owners[1:] != owners[:-1]).nonzero()[0] + 1).tolist(), len(places)]
        return [(int(owners[a]), places[a:b]) for a, b in pairwise(cuts) if a < b]

    def ranges(self, share: int, units: Array) -> RowSet:
        """The rows of some units of a share."""
        total = self.shares[share].rows.total
        return RowSet.from_ranges(total, self.starts[units], self.stops[units])


def shares_of(
    plan: ScanPlan, files: dict[int, int], members: Members | None, offsets: FileOffsets | None
) -> Iterator[Share]:
    """The rows of each file, cut where sets of places tell their rows apart."""
    for task in plan.tasks:
        parts: Sequence[tuple[RowSet, Members | bool | None]] = [(task.rows, members)]
        if members is not None and offsets is not None:
            parts = members.split(task.rows, partial(offsets.rows, task))
        for rows, left in parts:
            if left is False or rows.is_empty:
                continue
            proven = task.proven if rows is task.rows else task.proven & rows
            yield Share(task, files[task.number], rows, proven, left if isinstance(left, Members) else None)


def cover_units(units: Units, refs: Sequence[ColumnRef]) -> Cover:
    """Per unit, whether a row of it may be a member, and whether one may not be."""
    inside, outside = np.ones(len(units), dtype=bool), np.zeros(len(units), dtype=bool)
    sets = {id(share.members): share.members for share in units.shares if share.members is not None}
    if not sets:
        return Cover(inside, outside)
    owners = np.array([id(share.members) for share in units.shares], dtype=np.uint64)[units.share]
    for key, members in sets.items():
        mine = np.flatnonzero(owners == key)
        facts = {ref.path: units.survey.facts(ref).take(units.group[mine]) for ref in refs}
        cover = members.cover(facts, len(mine))
        inside[mine], outside[mine] = cover.inside, cover.outside
    return Cover(inside, outside)


# -- the survey ----------------------------------------------------------------------------------


def _survey(lake: Lake, coverage: IndexCoverage | None, numbers: Array) -> tuple[Survey, Array]:
    """What is known of some files of a lake, or more, and their numbers in the order of the survey."""
    if coverage is not None and coverage.small and not len(coverage.unknown):
        # A small lake that the index knows is looked at whole, once for all questions.
        numbers = np.arange(len(lake.entries))

    def make() -> tuple[Survey, Array]:
        if coverage is None or not coverage.covered:
            return lake.survey(numbers), numbers
        return lake.surveyed(coverage, coverage.rows_of(numbers), numbers[coverage.owner[numbers] < 0])

    return lake.remembered((_survey, coverage, numbers.tobytes()), make)


@dataclass(slots=True, eq=False)
class FileOffsets:
    """Where the rows of each file begin if those of the whole lake are counted, files by path."""

    lake: Lake
    coverage: IndexCoverage | None
    order: Array = field(init=False)
    """The files' numbers in the listing, by path."""
    _starts: Array | None = None

    def __post_init__(self) -> None:
        keys = [entry.key for entry in self.lake.entries]
        self.order = np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.int64)

    @property
    def paths(self) -> list[str]:
        """The names of all files."""
        return [self.lake.entries[number].key for number in self.order.tolist()]

    def rows(self, task: Task, leaf: Places) -> RowSet:
        """The rows of a task's file that are in a set."""
        if self._starts is None:
            survey, chosen = _survey(self.lake, self.coverage, np.arange(len(self.order)))
            totals = np.zeros(len(self.order), dtype=np.int64)
            totals[chosen] = survey.totals
            self._starts = np.concatenate(([0], np.cumsum(totals[self.order])[:-1]))
        place = int(np.flatnonzero(self.order == task.number)[0])
        return leaf.rows(place, int(self._starts[place]), task.rows.total)


def by_part(survey: Survey, units: Array) -> Iterator[tuple[SurveyPart, Array]]:
    """Row groups (rising) by the source that they are known from, with their numbers there."""
    first = 0
    for part in survey.parts:
        last = first + len(part.rows)
        mine = units[(units >= first) & (units < last)] - first
        if len(mine):
            yield part, mine
        first = last


def part_of(survey: Survey, group: int) -> tuple[SurveyPart, int]:
    """The source that a row group is known from, and its number there."""
    ((part, mine),) = by_part(survey, np.array([group]))
    return part, int(mine[0])


def is_overridden(survey: Survey, group: int, path: Path) -> bool:
    """Whether a partition states a column of a row group, whatever its file says."""
    stated = survey.given.get(path)
    return stated is not None and (stated.where is None or bool(stated.where[survey.owners[group]]))
