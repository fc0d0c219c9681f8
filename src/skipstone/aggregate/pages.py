"""Pages of units that metadata can't answer as a whole: some hold no member, some only members."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from skipstone.aggregate.known import told
from skipstone.aggregate.members import Members
from skipstone.aggregate.units import Units, is_stated, part_of
from skipstone.core.evidence import Array, Evidence
from skipstone.core.ir.nodes import ColumnRef
from skipstone.core.rows import RowSet
from skipstone.index.coverage import Recorded
from skipstone.lake.files import Files
from skipstone.parquet.evidence import find_leaf, page_facts
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.pageindex import BadPageIndex, page_index_ranges, parse_page_index
from skipstone.partial.blocks import Blocks
from skipstone.prune.pages import PageFacts, segments
from skipstone.prune.survey import Survey
from skipstone.store.place import Listed


@dataclass(frozen=True, slots=True, eq=False)
class MemberPages:
    """Rows of a file that are proven to be no members, and rows that are proven to be."""

    gone: RowSet
    sure: RowSet


def member_pages(
    files: Files, units: Units, share: int, mine: Array, members: Members, refs: Sequence[ColumnRef]
) -> MemberPages:
    """What pages of id columns tell of some units of a share."""
    survey, task = units.survey, units.shares[share].task
    total = units.shares[share].rows.total
    groups = units.group[mine].tolist()
    indexed = {
        (group, ref.path): pages
        for group in groups
        for ref in refs
        if (pages := _pages(files, task.entry, survey, group, ref)) is not None
    }
    if not indexed:
        return MemberPages(RowSet.none(total), RowSet.none(total))
    evidence = Evidence(survey.rows, {ref.path: survey.facts(ref) for ref in refs})
    cut = segments(survey, groups, indexed, evidence)
    cover = members.cover(cut.evidence.columns, len(cut.starts))
    gone, sure = ~cover.inside, ~cover.outside
    return MemberPages(
        RowSet.from_ranges(total, cut.starts[gone], cut.stops[gone]),
        RowSet.from_ranges(total, cut.starts[sure], cut.stops[sure]),
    )


def _pages(files: Files, entry: Listed, survey: Survey, group: int, ref: ColumnRef) -> PageFacts | None:
    """The pages of a column, from the index or else from the file."""
    if is_stated(survey, group, ref.path):
        return None
    return survey.pages(group, ref) or files.cache.get_or_make(
        (PageFacts, entry, int(survey.numbers[group]), ref.path, str(ref.type)),
        lambda: (_read(files, entry, survey.file(group), int(survey.numbers[group]), ref), _WEIGHT),
    )


_WEIGHT = 50_000


def _read(
    files: Files, entry: Listed, metadata: ParquetMetadata, group: int, ref: ColumnRef
) -> PageFacts | None:
    bound = find_leaf(metadata, ref)
    if bound is None:
        return None
    bounds, places = page_index_ranges(metadata, group, bound.leaf.index)
    if bounds is None or places is None:
        return None
    try:
        one, other = files.read(entry, [bounds, places])
        index = parse_page_index(one, other, metadata, group, bound.leaf.index)
    except BadPageIndex:
        return None
    return PageFacts(index, page_facts(metadata, bound, index))


@dataclass(frozen=True, slots=True, eq=False)
class AnsweredPages:
    """Pages of one unit whose aggregates are known: their blocks, and their rows within the file."""

    blocks: Blocks
    starts: Array
    stops: Array


def page_blocks(survey: Survey, group: int, ref: ColumnRef, certain: RowSet) -> AnsweredPages | None:
    """The pages of a column in a row group of which every row counts, with what the index keeps of them."""
    if is_stated(survey, group, ref.path):
        return None
    part, unit = part_of(survey, group)
    if not isinstance(part, Recorded):
        return None
    segment, own = part.segment, int(part.groups[unit])
    span, places = segment.page_span(own, ref.path), segment.places(own, ref.path)
    if span is None or places is None:
        return None
    starts = places.first_rows + survey.starts[group]
    stops = np.append(starts[1:], survey.stops[group])
    whole = np.flatnonzero(certain.counts(starts, stops) == stops - starts)
    if not len(whole):
        return None
    numbers = span[0] + whole
    blocks = segment.blocks("page", ref, numbers)
    if blocks is None:
        pages = segment.pages(own, ref)
        if pages is None:
            return None
        nulls, nans = segment.nulls("page", ref, numbers), segment.nans("page", ref, numbers)
        blocks = told(pages.facts.take(whole), (stops - starts)[whole], nulls, nans)
    return AnsweredPages(blocks, starts[whole], stops[whole])
