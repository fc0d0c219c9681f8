"""What metadata knows of columns in row groups and pages: block sums of an index, or what footers say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from skipstone.aggregate.groups import plain_key
from skipstone.aggregate.members import Members, OutsideByPlace, RisingIds
from skipstone.aggregate.states.blocks import Blocks, constant_blocks
from skipstone.aggregate.states.state import Facet, Path
from skipstone.aggregate.units import Units, by_part, is_overridden, part_of
from skipstone.core.arrays import plain, plain_type
from skipstone.core.domain.keys import Key, from_key
from skipstone.core.evidence import Array, ColumnFacts, Evidence
from skipstone.core.ir.nodes import ColumnRef
from skipstone.core.rows import RowSet
from skipstone.index.coverage import Recorded
from skipstone.lake.files import Files
from skipstone.parquet.evidence import find_leaf, page_facts, row_group_counts
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.pageindex import BadPageIndex, page_index_ranges, parse_page_index
from skipstone.prune.survey import PageFacts, Survey, SurveyPart, segments
from skipstone.store.store import ListedFile

# What a page index that was read counts for in the cache of files.
_PAGE_INDEX_WEIGHT = 50_000


# -- row groups ----------------------------------------------------------------------------------


def block_aggregates(survey: Survey, ref: ColumnRef, facets: Facet, units: Array) -> Blocks:
    """The aggregates of a column in some row groups (rising), as far as they are known."""
    parts = [_of_part(part, ref, mine) for part, mine in by_part(survey, units)]
    blocks = Blocks.concat(parts) if parts else Blocks.unknown(ref.type, 0)
    stated = survey.given.get(ref.path)
    if stated is not None:
        # What partitions state stands for what is stored.
        where = np.ones(len(units), bool) if stated.where is None else stated.where[survey.owners[units]]
        blocks = replace(blocks, known=np.where(where, 0, blocks.known).astype(np.uint8))
    lacking = ~blocks.knows(facets)
    if not lacking.any():
        return blocks
    # Units in which a column has one value, or none, are known whatever is asked of them.
    facts, rows = survey.facts(ref).take(units), survey.rows[units]
    for value, mine in constants(facts, lacking):
        order = np.arange(len(blocks))
        order[mine] = len(blocks) + np.arange(len(mine))
        same = constant_blocks(facts.type, value, rows[mine], facets)
        blocks = Blocks.concat([blocks, same]).take(order)
    return blocks


def _of_part(part: SurveyPart, ref: ColumnRef, units: Array) -> Blocks:
    if isinstance(part, Recorded):
        segment, groups = part.segment, part.groups[units]
        blocks = segment.blocks("group", ref, groups)
        if blocks is not None:
            return blocks
        if segment.has("group", ref):
            nulls, nans = segment.nulls("group", ref, groups), segment.nans("group", ref, groups)
            return from_statistics(segment.facts("group", ref, groups), part.rows[units], nulls, nans)
    # A loop over files: each has its own footer.
    counts = [row_group_counts([part.file(number)], ref) for number in range(len(part.counts))]
    nulls, nans = (np.concatenate(side)[units] for side in zip(*counts, strict=True))
    return from_statistics(part.facts(ref).take(units), part.rows[units], nulls, nans)


def from_statistics(facts: ColumnFacts, rows: Array, nulls: Array, nans: Array) -> Blocks:
    """What bounds and counts say: counts are -1 where they are unknown."""
    nulls, nans = np.where(facts.may_null, nulls, 0), np.where(facts.may_nan, nans, 0)
    counted, nans_counted = nulls >= 0, nans >= 0
    count = np.where(counted, rows - nulls, 0)
    has = facts.may_value & ~(counted & nans_counted & (count == nans))
    ends = nans_counted & (~has | (facts.lower_exact & facts.upper_exact))
    known = np.where(counted, Facet.COUNT, 0) | np.where(ends, Facet.MIN_MAX, 0)
    return replace(
        Blocks.unknown(facts.type, len(facts)),
        known=known.astype(np.uint8),
        count=count,
        nans=np.maximum(nans, 0),
        lower=facts.lower,
        upper=facts.upper,
        has=has,
    )


def constants(facts: ColumnFacts, among: Array) -> list[tuple[pa.Scalar, Array]]:
    """The values that some units have throughout, each with the units; NULL for those of NULLs only."""
    result = []
    only_null = np.flatnonzero(among & ~facts.may_value & ~facts.may_nan)
    if len(only_null):
        result.append((pa.scalar(None, facts.type), only_null))
    one = among & facts.may_value & ~facts.may_null & ~facts.may_nan & facts.lower_exact & facts.upper_exact
    if isinstance(facts.lower, pa.Array):
        bounds = zip(facts.lower.to_pylist(), facts.upper.to_pylist(), strict=True)
        same = np.array([low is not None and low == high for low, high in bounds], dtype=bool)
        places = np.flatnonzero(one & same)
        keys = [facts.lower[at].as_py() for at in places.tolist()]
    else:
        places = np.flatnonzero(one & (facts.lower == facts.upper))
        keys = facts.lower[places].tolist()
    by_key: dict[Key, list[int]] = {}
    for key, at in zip(keys, places.tolist(), strict=True):
        by_key.setdefault(key, []).append(at)
    return result + [(from_key(facts.type, key), np.array(mine)) for key, mine in by_key.items()]


def sketch_blobs(survey: Survey, ref: ColumnRef, kind: str, units: Array) -> list[bytes | None]:
    """The sketches of a column in some row groups (rising), where an index has them."""
    sketches: list[bytes | None] = []
    for part, mine in by_part(survey, units):
        blobs = None
        if isinstance(part, Recorded) and ref.path not in survey.given:
            blobs = part.segment.sketches(kind, ref, part.groups[mine])
        sketches += [None] * len(mine) if blobs is None else blobs
    return sketches


@dataclass(frozen=True, slots=True, eq=False)
class UnitKeys:
    """Per unit the group that all of its rows are in, where it is ``fixed``."""

    columns: tuple[pa.Array, ...]
    fixed: Array

    @classmethod
    def of(cls, units: Units, refs: Sequence[ColumnRef]) -> UnitKeys:
        """Look for units in which every key column has one value; without keys there is one group for all."""
        every = np.ones(len(units), dtype=bool)
        fixed, columns = every, []
        for ref in refs:
            values = constants(units.survey.facts(ref).take(units.group), every)
            places = np.full(len(units), -1, dtype=np.int64)
            for number, (_, mine) in enumerate(values):
                places[mine] = number
            fixed = fixed & (places >= 0)
            # One by one: they are few, and may be of any type.
            type = plain_type(ref.type)
            chunks = [plain(pa.repeat(v, 1)) if v.is_valid else pa.nulls(1, type) for v, _ in values]
            keys = plain_key(pa.chunked_array(chunks, type))
            columns.append(keys.take(pa.array(places, mask=places < 0)))
        return cls(tuple(columns), fixed)

    def take(self, units: Array) -> list[pa.Array]:
        """The keys of some units."""
        return [column.take(pa.array(units)) for column in self.columns]


# -- pages ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class MemberPages:
    """Rows of a file that are proven not to be members, and rows that are proven to be."""

    gone: RowSet
    sure: RowSet


def member_pages(
    files: Files, units: Units, share: int, mine: Array, members: Members, refs: Sequence[ColumnRef]
) -> MemberPages:
    """What pages of id columns say of some units of a share."""
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


def _pages(files: Files, entry: ListedFile, survey: Survey, group: int, ref: ColumnRef) -> PageFacts | None:
    """The pages of a column, from the index or else from the file."""
    if is_overridden(survey, group, ref.path):
        return None
    number = int(survey.numbers[group])
    return survey.pages(group, ref) or files.cache.get_or_make(
        (PageFacts, entry, number, ref.path, str(ref.type)),
        lambda: (_read_pages(files, entry, survey.file(group), number, ref), _PAGE_INDEX_WEIGHT),
    )


def _read_pages(
    files: Files, entry: ListedFile, metadata: ParquetMetadata, group: int, ref: ColumnRef
) -> PageFacts | None:
    bound = find_leaf(metadata, ref)
    if bound is None:
        return None
    bounds, places = page_index_ranges(metadata, group, bound.leaf.index)
    if bounds is None or places is None:
        return None
    try:
        columns, offsets = files.read(entry, [bounds, places])
        index = parse_page_index(columns, offsets, metadata, group, bound.leaf.index)
    except BadPageIndex:
        return None
    return PageFacts(index, page_facts(metadata, bound, index))


@dataclass(frozen=True, slots=True, eq=False)
class PageBlocks:
    """Pages of one unit whose aggregates are known: their blocks, and their rows within the file."""

    blocks: Blocks
    starts: Array
    stops: Array


def has_page_blocks(survey: Survey) -> bool:
    """Whether an index may know aggregates of pages."""
    return any(isinstance(part, Recorded) for part in survey.parts)


def page_blocks(survey: Survey, group: int, ref: ColumnRef, certain: RowSet) -> PageBlocks | None:
    """The pages of a column in a row group of which every row counts, with what the index keeps of them."""
    if is_overridden(survey, group, ref.path):
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
        blocks = from_statistics(pages.facts.take(whole), (stops - starts)[whole], nulls, nans)
    return PageBlocks(blocks, starts[whole], stops[whole])


# -- ids that count up from row to row -------------------------------------------------------------


def outside_by_place(
    units: Units, share: int, mine: Array, refs: Sequence[ColumnRef]
) -> OutsideByPlace | None:
    """A test for the rows of some units of a share; None unless all ids in them are known to count up."""
    members = units.shares[share].members
    assert members is not None
    groups = units.group[mine].tolist()
    by_path: dict[Path, RisingIds] = {}
    for ref in refs:
        if ref.path not in members.columns:
            continue
        runs = _rising_ids(units.survey, groups, ref) if len(ref.path) == 1 else None
        if runs is None or (runs.stops - runs.starts).sum() != units.rows[mine].sum():
            return None
        by_path[ref.path] = runs
    return OutsideByPlace(members, by_path)


def _rising_ids(survey: Survey, groups: Sequence[int], ref: ColumnRef) -> RisingIds | None:
    """Where a column counts up in row groups of one file; None if one of them isn't known to, at all."""
    parts = []
    for group in groups:
        pages = _rising_pages(survey, group, ref)
        if pages is None:
            return None
        parts.append(pages)
    starts, stops, lower, upper = (np.concatenate(side) for side in zip(*parts, strict=True))
    if not len(starts):
        return None
    fresh = np.ones(len(starts), dtype=bool)
    fresh[1:] = (starts[1:] != stops[:-1]) | (lower[1:] != upper[:-1] + 1)
    firsts = np.flatnonzero(fresh)
    return RisingIds(starts[firsts], stops[np.append(firsts[1:], len(stops)) - 1], lower[firsts])


def _rising_pages(survey: Survey, group: int, ref: ColumnRef) -> tuple[Array, Array, Array, Array] | None:
    """First rows, ends, first and last ids of the pages of a row group in which a column counts up."""
    part, unit = part_of(survey, group)
    if not isinstance(part, Recorded) or is_overridden(survey, group, ref.path):
        return None
    segment, own = part.segment, int(part.groups[unit])
    span, pages = segment.page_span(own, ref.path), segment.pages(own, ref)
    if span is None or pages is None or pages.facts.lower.dtype != np.int64:
        return None
    facts = pages.facts
    starts = pages.index.first_rows + int(survey.starts[group])
    stops = np.append(starts[1:], survey.stops[group])
    rises = segment.rises(ref, np.arange(*span))
    # In 64 bits without a sign, where a difference wraps as counting up would.
    width = facts.upper.view(np.uint64) - facts.lower.view(np.uint64)
    more = stops - starts - 1
    steady = (rises == more) & (width == more.astype(np.uint64)) & (facts.lower <= facts.upper)
    steady &= facts.may_value & ~facts.may_null & facts.lower_exact & facts.upper_exact & (more >= 0)
    return starts[steady], stops[steady], facts.lower[steady], facts.upper[steady]
