"""Pages of several columns as one list of units.

Page boundaries differ from column to column, so the units are *segments*: the row ranges between
neighbouring boundaries of any column. Each segment lies in one page of each column and takes its facts,
so the judge sees one evidence table and AND, OR and NOT need no special care. Pages are arrays over all row
groups at once: a lake's pages are cut into segments in a few array operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from skipstone.core.evidence import Array, ColumnFacts, Evidence, Stated
from skipstone.parquet.pageindex import PageIndex

if TYPE_CHECKING:
    from skipstone.prune.survey import Survey

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class PageFacts:
    """The pages of one column in one row group, and what they hold."""

    index: PageIndex
    facts: ColumnFacts


@dataclass(frozen=True, slots=True, eq=False)
class ColumnPages:
    """The pages of one column in many row groups, one after the other."""

    units: Array
    """The row group of each page, rising."""
    first_rows: Array
    """The first row of each page, counted within its row group."""
    facts: ColumnFacts
    numbers: Array
    """What bloom filters at hand call each page; -1 for one that they don't know."""

    @classmethod
    def of(cls, pages: Iterable[tuple[int, PageFacts]]) -> ColumnPages:
        """The pages of some row groups, whose numbers rise."""
        units, found = zip(*pages, strict=True)
        counts = [len(one.index) for one in found]
        return cls(
            np.repeat(np.array(units, dtype=np.int64), counts),
            np.concatenate([one.index.first_rows for one in found]),
            ColumnFacts.concat([one.facts for one in found]),
            np.full(sum(counts), -1, dtype=np.int64),
        )

    @classmethod
    def concat(cls, parts: Sequence[ColumnPages]) -> ColumnPages:
        """Several runs of row groups, put in the order of their numbers."""
        if len(parts) == 1:
            return parts[0]
        units, first_rows, numbers = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("units", "first_rows", "numbers")
        )
        joined = cls(units, first_rows, ColumnFacts.concat([part.facts for part in parts]), numbers)
        if (units[1:] >= units[:-1]).all():
            return joined
        return joined.take(np.argsort(units, kind="stable"))

    def take(self, pages: Array) -> ColumnPages:
        """The chosen pages, in that order."""
        return ColumnPages(
            self.units[pages], self.first_rows[pages], self.facts.take(pages), self.numbers[pages]
        )


@dataclass(frozen=True, slots=True, eq=False)
class Segments:
    """Row ranges that no page boundary cuts, with their evidence; rows count within the file."""

    starts: Array
    stops: Array
    units: Array
    """The row group of each segment."""
    evidence: Evidence
    numbers: Mapping[Path, Array]
    """Per column with pages, what bloom filters at hand call the page that each segment lies in, or -1."""
    filtered: bool = False
    """Whether all bloom filters that there are of these columns are at hand."""

    def __len__(self) -> int:
        return len(self.starts)

    @classmethod
    def of(
        cls, survey: Survey, units: Array, columns: Mapping[Path, ColumnPages], evidence: Evidence
    ) -> Segments:
        """Those of some row groups (rising); a column without pages keeps its row group's facts."""
        rows = survey.rows[units]
        # Rows of the row groups are laid end to end, so that one search finds the pages of all of them.
        ends = np.cumsum(rows)
        begins = ends - rows
        firsts = {
            path: begins[np.searchsorted(units, pages.units)] + pages.first_rows
            for path, pages in columns.items()
        }
        edges = np.unique(np.concatenate([begins, *firsts.values()]))
        total = int(ends[-1]) if len(ends) else 0
        edges = edges[edges < total]
        place = np.searchsorted(ends, edges, side="right")
        owners = units[place]
        facts = {path: known.take(owners) for path, known in evidence.columns.items()}
        numbers = {}
        for path, pages in columns.items():
            # The last page that starts at or before the segment: pages without rows come earlier.
            at = np.searchsorted(firsts[path], edges, side="right") - 1
            known = (at >= 0) & (pages.units[at] == owners)
            base = facts[path]
            narrowed = base.narrowed(pages.facts.take(np.maximum(at, 0)))
            facts[path] = Stated(narrowed, known).over(lambda base=base: base)  # type: ignore[misc]
            numbers[path] = np.where(known, pages.numbers[at], -1)
        starts = edges - begins[place] + survey.starts[owners]
        lengths = np.diff(edges, append=total)
        return cls(starts, starts + lengths, owners, Evidence(lengths, facts), numbers)


def segments(
    survey: Survey,
    units: Sequence[int],
    indexed: Mapping[tuple[int, Path], PageFacts],
    evidence: Evidence,
) -> Segments:
    """The segments of the given row groups, from pages by row group and column path."""
    mine: dict[Path, list[tuple[int, PageFacts]]] = {}
    for (unit, path), pages in sorted(indexed.items(), key=lambda item: item[0][0]):
        mine.setdefault(path, []).append((unit, pages))
    columns = {path: ColumnPages.of(found) for path, found in mine.items()}
    return Segments.of(survey, np.array(sorted(units), dtype=np.int64), columns, evidence)
