"""Row groups of a plan's files as units, with metadata and counts of the rows that may qualify.

Metadata of the files is a survey, as in the planner; the lake caches it for later queries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

import numpy as np

from skipstone.aggregate.members import Cover, Members, RowPositions
from skipstone.aggregate.states.state import Path
from skipstone.core.arrays import runs
from skipstone.core.evidence import Array
from skipstone.core.ir.nodes import ColumnRef
from skipstone.core.rows import RowSet
from skipstone.index.coverage import IndexCoverage
from skipstone.prune.survey import Survey, SurveyPart
from skipstone.scan.lake import Lake
from skipstone.scan.plan import ScanPlan, Task


@dataclass(frozen=True, slots=True, eq=False)
class Share:
    """Rows of one file that may match, those proven to match, and the members that qualify."""

    task: Task
    file: int
    """File number in the survey."""
    rows: RowSet
    proven: RowSet
    members: Members | None
    """None if every row is a member."""


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """The row groups of all shares, concatenated."""

    survey: Survey
    shares: tuple[Share, ...]
    firsts: Array
    """First unit of each share, and one past the last unit."""
    share: Array
    group: Array
    """Row group number in the survey."""
    rows: Array
    candidates: Array
    """Number of rows that may match."""
    proven: Array
    """Number of rows proven to match."""

    @classmethod
    def of(cls, lake: Lake, plan: ScanPlan, members: Members | None) -> Units:
        """Units of a plan's files."""
        coverage = lake.index.coverage if plan.options.index and plan.options.skipping else None
        numbers = np.array([task.number for task in plan.tasks], dtype=np.int64)
        survey, selected = _survey(lake, coverage, numbers)
        files = {number: file for file, number in enumerate(selected.tolist())}
        offsets = None
        if members is not None and members.has_positions:
            offsets = FileOffsets(lake, coverage)
            members = members.bind_files(offsets.paths)
        return cls.of_shares(survey, list(shares_of(plan, files, members, offsets)))

    @classmethod
    def of_shares(cls, survey: Survey, shares: Sequence[Share]) -> Units:
        """Count the rows of shares in each of their row groups."""
        files = np.array([share.file for share in shares], dtype=np.int64)
        counts = survey.firsts[files + 1] - survey.firsts[files]
        firsts = np.concatenate(([0], np.cumsum(counts)))
        group = runs(survey.firsts[files], counts)
        rows = survey.rows[group]
        candidates, proven = rows.copy(), rows.copy()
        for number, share in enumerate(shares):
            indexes = slice(int(firsts[number]), int(firsts[number + 1]))
            for selected, counts_per_unit in ((share.rows, candidates), (share.proven, proven)):
                if not selected.is_full:
                    counts_per_unit[indexes] = selected.counts(
                        survey.starts[group[indexes]], survey.stops[group[indexes]]
                    )
        owner = np.repeat(np.arange(len(shares)), counts)
        return cls(survey, tuple(shares), firsts, owner, group, rows, candidates, proven)

    def __len__(self) -> int:
        return len(self.group)

    @property
    def starts(self) -> Array:
        """First row of each unit in its file."""
        return self.survey.starts[self.group]

    @property
    def stops(self) -> Array:
        """One past the last row of each unit in its file."""
        return self.survey.stops[self.group]

    def of_share(self, share: int) -> Array:
        """Indexes of the units of a share."""
        return np.arange(int(self.firsts[share]), int(self.firsts[share + 1]))

    def by_share(self, mask: Array) -> list[tuple[int, Array]]:
        """Group a mask of units by share."""
        units = mask.nonzero()[0]
        owners = self.share[units]
        cuts = [0, *((owners[1:] != owners[:-1]).nonzero()[0] + 1).tolist(), len(units)]
        return [(int(owners[a]), units[a:b]) for a, b in pairwise(cuts) if a < b]

    def ranges(self, share: int, units: Array) -> RowSet:
        """Rows of some units of a share."""
        total = self.shares[share].rows.total
        return RowSet.from_ranges(total, self.starts[units], self.stops[units])


def shares_of(
    plan: ScanPlan, files: dict[int, int], members: Members | None, offsets: FileOffsets | None
) -> Iterator[Share]:
    """Split the rows of each file by position sets."""
    for task in plan.tasks:
        parts: Sequence[tuple[RowSet, Members | bool | None]] = [(task.rows, members)]
        if members is not None and offsets is not None:
            parts = members.split(task.rows, partial(offsets.rows, task))
        for rows, remaining in parts:
            if remaining is False or rows.is_empty:
                continue
            proven = task.proven if rows is task.rows else task.proven & rows
            yield Share(
                task, files[task.number], rows, proven, remaining if isinstance(remaining, Members) else None
            )


def cover_units(units: Units, refs: Sequence[ColumnRef]) -> Cover:
    """Evaluate the member sets of all units."""
    inside, outside = np.ones(len(units), dtype=bool), np.zeros(len(units), dtype=bool)
    sets = {id(share.members): share.members for share in units.shares if share.members is not None}
    if not sets:
        return Cover(inside, outside)
    owners = np.array([id(share.members) for share in units.shares], dtype=np.uint64)[units.share]
    for key, members in sets.items():
        indexes = np.flatnonzero(owners == key)
        facts = {ref.path: units.survey.facts(ref).take(units.group[indexes]) for ref in refs}
        cover = members.cover(facts, len(indexes))
        inside[indexes], outside[indexes] = cover.inside, cover.outside
    return Cover(inside, outside)


# -- the survey ----------------------------------------------------------------------------------


def _survey(lake: Lake, coverage: IndexCoverage | None, numbers: Array) -> tuple[Survey, Array]:
    """Survey of at least the given files of a lake, and their numbers in survey order."""
    if coverage is not None and coverage.small and not len(coverage.unknown):
        # A small lake that is fully indexed gets one survey for all queries.
        numbers = np.arange(len(lake.entries))

    def make() -> tuple[Survey, Array]:
        if coverage is None or not coverage.covered:
            return lake.survey(numbers), numbers
        return lake.surveyed(coverage, coverage.rows_of(numbers), numbers[coverage.owner[numbers] < 0])

    return lake.remembered((_survey, coverage, numbers.tobytes()), make)


@dataclass(slots=True, eq=False)
class FileOffsets:
    """First row number of each file when the rows of the lake are numbered in path order."""

    lake: Lake
    coverage: IndexCoverage | None
    order: Array = field(init=False)
    """File numbers of the listing, in path order."""
    _starts: Array | None = None

    def __post_init__(self) -> None:
        keys = [entry.key for entry in self.lake.entries]
        self.order = np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.int64)

    @property
    def paths(self) -> list[str]:
        """Paths of all files, sorted."""
        return [self.lake.entries[number].key for number in self.order.tolist()]

    def rows(self, task: Task, leaf: RowPositions) -> RowSet:
        """Rows of a task's file that are in a set."""
        if self._starts is None:
            survey, selected = _survey(self.lake, self.coverage, np.arange(len(self.order)))
            totals = np.zeros(len(self.order), dtype=np.int64)
            totals[selected] = survey.totals
            self._starts = np.concatenate(([0], np.cumsum(totals[self.order])[:-1]))
        index = int(np.flatnonzero(self.order == task.number)[0])
        return leaf.rows(index, int(self._starts[index]), task.rows.total)


def by_part(survey: Survey, units: Array) -> Iterator[tuple[SurveyPart, Array]]:
    """Group ascending row groups by survey part, with their numbers in the part."""
    first = 0
    for part in survey.parts:
        last = first + len(part.rows)
        numbers = units[(units >= first) & (units < last)] - first
        if len(numbers):
            yield part, numbers
        first = last


def part_of(survey: Survey, group: int) -> tuple[SurveyPart, int]:
    """Survey part of a row group, and its number in the part."""
    ((part, numbers),) = by_part(survey, np.array([group]))
    return part, int(numbers[0])


def is_overridden(survey: Survey, group: int, path: Path) -> bool:
    """Whether a partition value replaces the column of a row group."""
    override = survey.overrides.get(path)
    return override is not None and (override.where is None or bool(override.where[survey.owners[group]]))
