"""Pages of several columns as one list of units.

Page boundaries differ from column to column, so the units are *segments*: the row ranges between
neighbouring boundaries of any column. Each segment lies in one page of each column and takes its facts,
so the judge sees one evidence table and AND, OR and NOT need no special care.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from skipstone.core.evidence import Array, ColumnFacts, Evidence
from skipstone.parquet.pageindex import PageIndex
from skipstone.prune.survey import Survey

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class PageFacts:
    """The pages of one column in one row group, and what they hold."""

    index: PageIndex
    facts: ColumnFacts


Indexed = Mapping[tuple[int, Path], PageFacts]
"""Pages by row group (of the survey) and column path."""


@dataclass(frozen=True, slots=True, eq=False)
class Cuts:
    """The segments of one row group, the same for every predicate on the same columns."""

    starts: Array
    stops: Array
    evidence: Evidence
    pages: Mapping[Path, tuple[int, Array]]
    """Per column with an index, how many pages it has, and in which of them each segment lies."""

    def __len__(self) -> int:
        return len(self.starts)

    @classmethod
    def of(cls, survey: Survey, unit: int, indexed: Mapping[Path, PageFacts], evidence: Evidence) -> Cuts:
        """A column without an index keeps its row group's facts."""
        edges = _edges(int(survey.rows[unit]), [pages.index.first_rows for pages in indexed.values()])
        starts, stops = edges[:-1], edges[1:]
        owner = np.full(len(starts), unit)
        columns = {path: facts.take(owner) for path, facts in evidence.columns.items()}
        places = {}
        for path, pages in indexed.items():
            # The last page that starts at or before the segment: pages without rows come earlier.
            numbers = np.searchsorted(pages.index.first_rows, starts, side="right") - 1
            columns[path] = columns[path].narrowed(pages.facts.take(numbers))
            places[path] = len(pages.index), numbers
        first = survey.starts[unit]
        return cls(starts + first, stops + first, Evidence(stops - starts, columns), places)


@dataclass(frozen=True, slots=True, eq=False)
class Segments:
    """Row ranges that no page boundary cuts, with their evidence; rows count within the file."""

    starts: Array
    stops: Array
    units: Array
    """The row group of each segment."""
    evidence: Evidence
    parts: Mapping[int, Cuts]

    @classmethod
    def of(cls, parts: Mapping[int, Cuts]) -> Segments:
        """Those of several row groups, one after the other."""
        cuts = list(parts.values())
        units = np.repeat(np.fromiter(parts, dtype=np.int64, count=len(parts)), [len(cut) for cut in cuts])
        if len(cuts) == 1:
            return cls(cuts[0].starts, cuts[0].stops, units, cuts[0].evidence, parts)
        columns = {
            path: ColumnFacts.concat([cut.evidence.columns[path] for cut in cuts])
            for path in cuts[0].evidence.columns
        }
        return cls(
            np.concatenate([cut.starts for cut in cuts]),
            np.concatenate([cut.stops for cut in cuts]),
            units,
            Evidence(np.concatenate([cut.evidence.rows for cut in cuts]), columns),
            parts,
        )


def segments(survey: Survey, units: Sequence[int], indexed: Indexed, evidence: Evidence) -> Segments:
    """The segments of the given row groups."""
    mine: dict[int, dict[Path, PageFacts]] = {unit: {} for unit in units}
    for (unit, path), pages in indexed.items():
        mine[unit][path] = pages
    return Segments.of({unit: Cuts.of(survey, unit, found, evidence) for unit, found in mine.items()})


def spread_pages(masks: Mapping[int, Array], path: Path, found: Segments) -> Array:
    """Per segment, what a mask of one column's pages says of the page it lies in; False without a mask."""
    return np.concatenate([_spread(masks.get(unit), cuts, path) for unit, cuts in found.parts.items()])


def _spread(mask: Array | None, cuts: Cuts, path: Path) -> Array:
    count, numbers = cuts.pages.get(path, (0, None))
    if mask is None or numbers is None or count != len(mask):
        return np.zeros(len(cuts), dtype=bool)
    return mask[numbers]


def _edges(rows: int, cuts: Sequence[Array]) -> Array:
    """Where segments of a row group begin, and its end."""
    if len(cuts) == 1 and cuts[0][0] == 0 and cuts[0][-1] < rows and (cuts[0][1:] > cuts[0][:-1]).all():
        return np.append(cuts[0], rows)
    return np.unique(np.concatenate([np.array([0, rows]), *cuts]))
