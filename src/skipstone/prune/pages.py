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
class Segments:
    """Row ranges that no page boundary cuts, with their evidence; rows count within the file."""

    starts: Array
    stops: Array
    units: Array
    """The row group of each segment."""
    evidence: Evidence


def segments(survey: Survey, units: Sequence[int], indexed: Indexed, evidence: Evidence) -> Segments:
    """The segments of the given row groups; a column without an index keeps its row group's facts."""
    cuts: dict[int, list[Array]] = {unit: [] for unit in units}
    for (unit, _), pages in indexed.items():
        cuts[unit].append(pages.index.first_rows)
    # A loop per row group, whose boundaries are cut in one operation.
    edges = {
        unit: np.unique(np.concatenate([np.array([0, survey.rows[unit]]), *mine]))
        for unit, mine in cuts.items()
    }
    counts = np.array([len(e) - 1 for e in edges.values()], dtype=np.int64)
    owners = np.repeat(np.fromiter(edges, dtype=np.int64, count=len(edges)), counts)
    nothing = np.zeros(0, dtype=np.int64)
    inside = np.concatenate([nothing, *(e[:-1] for e in edges.values())])
    stops = np.concatenate([nothing, *(e[1:] for e in edges.values())])
    spans = dict(zip(edges, _spans(counts), strict=True))
    columns = {}
    for path, facts in evidence.columns.items():
        spread = facts.take(owners)
        finer = _spread(path, facts, indexed, spans, inside, owners)
        columns[path] = spread if finer is None else spread.narrowed(finer)
    first = survey.starts[owners]
    return Segments(inside + first, stops + first, owners, Evidence(stops - inside, columns))


def spread_pages(
    masks: Mapping[int, Array], path: Path, indexed: Indexed, found: Segments, survey: Survey
) -> Array:
    """Per segment, what a mask of one column's pages says of the page it lies in; False without a mask."""
    spread = np.zeros(len(found.units), dtype=bool)
    for unit, mask in masks.items():
        pages = indexed.get((unit, path))
        if pages is None or len(pages.index) != len(mask):
            continue
        mine = np.flatnonzero(found.units == unit)
        inside = found.starts[mine] - survey.starts[unit]
        spread[mine] = mask[np.searchsorted(pages.index.first_rows, inside, side="right") - 1]
    return spread


def _spans(counts: Array) -> list[slice]:
    ends = np.cumsum(counts)
    return [slice(int(end - count), int(end)) for end, count in zip(ends, counts, strict=True)]


def _spread(
    path: Path,
    facts: ColumnFacts,
    indexed: Indexed,
    spans: Mapping[int, slice],
    inside: Array,
    owners: Array,
) -> ColumnFacts | None:
    """One column's page facts, one entry per segment; the row group's own where it has no index."""
    parts = [facts]
    taken = owners.copy()
    before = len(facts)
    for unit, span in spans.items():
        pages = indexed.get((unit, path))
        if pages is None:
            continue
        # The last page that starts at or before the segment: pages without rows come earlier.
        taken[span] = before + np.searchsorted(pages.index.first_rows, inside[span], side="right") - 1
        parts.append(pages.facts)
        before += len(pages.index)
    return None if len(parts) == 1 else ColumnFacts.concat(parts).take(taken)
