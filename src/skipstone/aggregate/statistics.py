"""Column statistics of row groups and pages: block aggregates from the index, or footer statistics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from skipstone.aggregate.bind import ComputedColumn
from skipstone.aggregate.members import Members, SequentialAntiJoin, SequentialIds
from skipstone.aggregate.states.blocks import Blocks, constant_blocks
from skipstone.aggregate.states.state import Facet, Path, plain_key
from skipstone.aggregate.units import Units, by_part, is_overridden, part_of
from skipstone.core.arrays import plain, plain_type
from skipstone.core.domain.keys import Key, from_key, is_ordered
from skipstone.core.evidence import Array, ColumnFacts, Evidence, FactOverride, are_equal
from skipstone.core.ir.nodes import ColumnRef, columns_of
from skipstone.core.ir.transforms import Same
from skipstone.core.judge import Verdict, judge
from skipstone.core.rows import RowSet
from skipstone.errors import SkipstoneError
from skipstone.index.coverage import RecordedFiles
from skipstone.lake.files import Files
from skipstone.parquet.evidence import find_leaf, page_facts, row_group_counts
from skipstone.parquet.measure import measure
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.pageindex import BadPageIndex, page_index_ranges, parse_page_index
from skipstone.prune.survey import PageFacts, Survey, SurveyPart, segments
from skipstone.store.store import ListedFile

# Cache weight of a parsed page index.
_PAGE_INDEX_WEIGHT = 50_000


# -- row groups ----------------------------------------------------------------------------------


Column: TypeAlias = ColumnRef | ComputedColumn | pa.Scalar
"""A column, an expression, or a constant."""


def column_facts(survey: Survey, column: Column, units: Array) -> ColumnFacts:
    """Facts about a column, or about the values of an expression, in some row groups."""
    if isinstance(column, ColumnRef):
        return survey.facts(column).take(units)
    if not is_ordered(column.type):
        return ColumnFacts.unknown(column.type, len(units))
    if isinstance(column, pa.Scalar):
        return _facts_of_values(pa.repeat(column, len(units)))
    facts = _monotone_facts(survey, column, units)
    for value, chosen in _choices(survey, column, units):
        part = replace(column_facts(survey, value, units[chosen]), type=column.type)
        facts = ColumnFacts.concat([facts, part]).take(_replace_order(len(units), chosen))
    values, constant = _constant_values(survey, column, units)
    if not constant.any():
        return facts
    return FactOverride(_facts_of_values(values), constant).fallback_to(lambda: facts)


def _facts_of_values(values: pa.Array) -> ColumnFacts:
    """Facts about units that each repeat one value."""
    return _with_exact_values(measure(values.type, values, np.arange(len(values))).facts)


def _choices(survey: Survey, column: ComputedColumn, units: Array) -> Iterator[tuple[Column, Array]]:
    """The value of a condition's branch, and the units where the condition is decided for all rows."""
    choice = column.choice
    if choice is None or not len(units):
        return
    verdicts = judge(choice.condition, survey.evidence(columns_of(choice.condition)).take(units)).verdicts()
    for value, verdict in ((choice.yes, Verdict.ALL), (choice.no, Verdict.NONE)):
        chosen = np.flatnonzero(verdicts == verdict)
        if value is not None and len(chosen):
            yield value, chosen


def _replace_order(count: int, chosen: Array) -> Array:
    """Order that puts the units after the first ``count`` in place of the chosen ones."""
    order = np.arange(count)
    order[chosen] = count + np.arange(len(chosen))
    return order


def _monotone_facts(survey: Survey, column: ComputedColumn, units: Array) -> ColumnFacts:
    """Facts about an expression from the bounds of its column; unknown if it is not monotone."""
    ref = column.monotone
    if ref is None:
        return ColumnFacts.unknown(column.type, len(units))
    facts = survey.facts(ColumnRef(ref.path, ref.type)).take(units)
    for step in ref.via:
        facts = facts.through(step)
    if plain_type(facts.type) != column.type:
        if not (pa.types.is_integer(facts.type) and pa.types.is_integer(column.type)):
            return ColumnFacts.unknown(column.type, len(units))
        # Rows are computed in another width than bounds.
        facts = facts.through(Same(column.type))
    return _with_exact_values(replace(facts, type=column.type))


def _with_exact_values(facts: ColumnFacts) -> ColumnFacts:
    """Equal bounds are exact, since every value is between them."""
    same = are_equal(facts.lower, facts.upper)
    return replace(facts, lower_exact=facts.lower_exact | same, upper_exact=facts.upper_exact | same)


def _constant_values(survey: Survey, column: ComputedColumn, units: Array) -> tuple[pa.Array, Array]:
    """Value of an expression in each unit where its columns are constant, and a mask of these units."""
    constant, columns = np.ones(len(units), dtype=bool), {}
    for ref in column.refs:
        facts = survey.facts(ref).take(units)
        columns[ref.path[0]], fixed = _constant_keys(facts)
        # A field would need its struct.
        constant = constant & fixed & (len(ref.path) == 1)
    if not constant.any():
        return pa.nulls(len(units), column.type), constant
    try:
        rows = pa.table(columns).filter(pa.array(constant))
        values = plain_key(column.values.append_to(rows)[column.name])
    except SkipstoneError:
        # The error is raised if rows of the unit qualify and are read.
        return pa.nulls(len(units), column.type), np.zeros(len(units), dtype=bool)
    positions = np.cumsum(constant) - 1
    return values.take(pa.array(positions, mask=~constant)), constant


def _constant_keys(facts: ColumnFacts) -> tuple[pa.Array, Array]:
    """Value of each unit in which a column is constant, and a mask of these units."""
    values = constant_values(facts, np.ones(len(facts), dtype=bool))
    positions = np.full(len(facts), -1, dtype=np.int64)
    for number, (_, indexes) in enumerate(values):
        positions[indexes] = number
    # A loop, since there are few values and they can be of any type.
    type = plain_type(facts.type)
    chunks = [plain(pa.repeat(v, 1)) if v.is_valid else pa.nulls(1, type) for v, _ in values]
    keys = plain_key(pa.chunked_array(chunks, type))
    return keys.take(pa.array(positions, mask=positions < 0)), positions >= 0


def block_aggregates(survey: Survey, column: Column, facets: Facet, units: Array) -> Blocks:
    """Available aggregates of a column or an expression in some row groups, which must be ascending."""
    if isinstance(column, ColumnRef):
        blocks = _stored_blocks(survey, column, units)
    elif isinstance(column, ComputedColumn):
        blocks = _computed_blocks(survey, column, units)
        for value, chosen in _choices(survey, column, units):
            part = block_aggregates(survey, value, facets, units[chosen])
            blocks = Blocks.concat([blocks, part]).take(_replace_order(len(units), chosen))
    else:
        return constant_blocks(column.type, column, survey.rows[units], facets)
    missing = ~blocks.has_facets(facets)
    if not missing.any():
        return blocks
    # A column with a single value, or only NULLs, has all facets.
    facts, rows = column_facts(survey, column, units), survey.rows[units]
    for value, indexes in constant_values(facts, missing):
        constant = constant_blocks(facts.type, value, rows[indexes], facets)
        blocks = Blocks.concat([blocks, constant]).take(_replace_order(len(blocks), indexes))
    return blocks


def _computed_blocks(survey: Survey, column: ComputedColumn, units: Array) -> Blocks:
    """Counts and bounds of a monotone expression, which is NULL only where its column is."""
    ref = column.monotone
    if ref is None or not is_ordered(column.type):
        return Blocks.unknown(column.type, len(units))
    base = _stored_blocks(survey, ColumnRef(ref.path, ref.type), units)
    rows, unknown = survey.rows[units], np.full(len(units), -1)
    nulls = np.where(base.has_facets(Facet.COUNT), rows - base.count, unknown)
    return from_statistics(_monotone_facts(survey, column, units), rows, nulls, unknown)


def _stored_blocks(survey: Survey, ref: ColumnRef, units: Array) -> Blocks:
    parts = [_of_part(part, ref, indexes) for part, indexes in by_part(survey, units)]
    blocks = Blocks.concat(parts) if parts else Blocks.unknown(ref.type, 0)
    override = survey.overrides.get(ref.path)
    if override is not None:
        # Partition values replace what is stored in the file.
        where = np.ones(len(units), bool) if override.where is None else override.where[survey.owners[units]]
        blocks = replace(blocks, facets=np.where(where, 0, blocks.facets).astype(np.uint8))
    return blocks


def _of_part(part: SurveyPart, ref: ColumnRef, units: Array) -> Blocks:
    if isinstance(part, RecordedFiles):
        segment, groups = part.segment, part.groups[units]
        blocks = segment.blocks("group", ref, groups)
        if blocks is not None:
            return blocks
        if segment.has("group", ref):
            nulls, nans = segment.nulls("group", ref, groups), segment.nans("group", ref, groups)
            return from_statistics(segment.facts("group", ref, groups), part.rows[units], nulls, nans)
    # A loop over files, since each has its own footer.
    counts = [row_group_counts([part.file(number)], ref) for number in range(len(part.counts))]
    nulls, nans = (np.concatenate(side)[units] for side in zip(*counts, strict=True))
    return from_statistics(part.facts(ref).take(units), part.rows[units], nulls, nans)


def from_statistics(facts: ColumnFacts, rows: Array, nulls: Array, nans: Array) -> Blocks:
    """Blocks from bounds and counts; unknown counts are -1."""
    nulls, nans = np.where(facts.may_null, nulls, 0), np.where(facts.may_nan, nans, 0)
    has_nulls, has_nans = nulls >= 0, nans >= 0
    count = np.where(has_nulls, rows - nulls, 0)
    has = facts.may_value & ~(has_nulls & has_nans & (count == nans))
    has_min_max = has_nans & (~has | (facts.lower_exact & facts.upper_exact))
    flags = np.where(has_nulls, Facet.COUNT, 0) | np.where(has_min_max, Facet.MIN_MAX, 0)
    return replace(
        Blocks.unknown(facts.type, len(facts)),
        facets=flags.astype(np.uint8),
        count=count,
        nans=np.maximum(nans, 0),
        lower=facts.lower,
        upper=facts.upper,
        has=has,
    )


def constant_values(facts: ColumnFacts, candidates: Array) -> list[tuple[pa.Scalar, Array]]:
    """Values that are constant in some units, each with its units; NULL for all-NULL units."""
    result = []
    only_null = np.flatnonzero(candidates & ~facts.may_value & ~facts.may_nan)
    if len(only_null):
        result.append((pa.scalar(None, facts.type), only_null))
    single = (
        candidates
        & facts.may_value
        & ~facts.may_null
        & ~facts.may_nan
        & facts.lower_exact
        & facts.upper_exact
    )
    indexes = np.flatnonzero(single & are_equal(facts.lower, facts.upper))
    lower = facts.take(indexes).lower
    keys = lower.to_pylist() if isinstance(lower, pa.Array) else lower.tolist()
    by_key: dict[Key, list[int]] = {}
    for key, at in zip(keys, indexes.tolist(), strict=True):
        by_key.setdefault(key, []).append(at)
    return result + [(from_key(facts.type, key), np.array(members)) for key, members in by_key.items()]


def sketch_blobs(survey: Survey, ref: ColumnRef, kind: str, units: Array) -> list[bytes | None]:
    """Sketches of a column in some row groups, which must be ascending; None where the index has none."""
    sketches: list[bytes | None] = []
    for part, numbers in by_part(survey, units):
        blobs = None
        if isinstance(part, RecordedFiles) and ref.path not in survey.overrides:
            blobs = part.segment.sketches(kind, ref, part.groups[numbers])
        sketches += [None] * len(numbers) if blobs is None else blobs
    return sketches


@dataclass(frozen=True, slots=True, eq=False)
class UnitKeys:
    """The group of each unit; ``fixed`` marks units whose rows are all in one group."""

    columns: tuple[pa.Array, ...]
    fixed: Array

    @classmethod
    def of(cls, units: Units, keys: Sequence[ColumnRef | ComputedColumn]) -> UnitKeys:
        """Find units in which every key is constant; without keys all rows are one group."""
        all_fixed, columns = np.ones(len(units), dtype=bool), []
        for key in keys:
            values, fixed = _constant_keys(column_facts(units.survey, key, units.group))
            columns.append(values)
            all_fixed = all_fixed & fixed
        return cls(tuple(columns), all_fixed)

    def take(self, units: Array) -> list[pa.Array]:
        return [column.take(pa.array(units)) for column in self.columns]


# -- pages ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class MemberPages:
    """Rows of a file that are proven non-members, and rows that are proven members."""

    outside: RowSet
    inside: RowSet


def member_pages(
    files: Files, units: Units, share: int, indexes: Array, members: Members, refs: Sequence[ColumnRef]
) -> MemberPages:
    """Judge the pages of id columns in some units of a share."""
    survey, task = units.survey, units.shares[share].task
    total = units.shares[share].rows.total
    groups = units.group[indexes].tolist()
    indexed = {
        (group, ref.path): pages
        for group in groups
        for ref in refs
        if (pages := _pages(files, task.entry, survey, group, ref)) is not None
    }
    if not indexed:
        return MemberPages(RowSet.none(total), RowSet.none(total))
    evidence = Evidence(survey.rows, {ref.path: survey.facts(ref) for ref in refs})
    pieces = segments(survey, groups, indexed, evidence)
    cover = members.cover(pieces.evidence.columns, len(pieces.starts))
    outside, inside = ~cover.inside, ~cover.outside
    return MemberPages(
        RowSet.from_ranges(total, pieces.starts[outside], pieces.stops[outside]),
        RowSet.from_ranges(total, pieces.starts[inside], pieces.stops[inside]),
    )


def _pages(files: Files, entry: ListedFile, survey: Survey, group: int, ref: ColumnRef) -> PageFacts | None:
    """Page facts of a column, from the index or else from the file."""
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
    bounds, locations = page_index_ranges(metadata, group, bound.leaf.index)
    if bounds is None or locations is None:
        return None
    try:
        columns, offsets = files.read(entry, [bounds, locations])
        index = parse_page_index(columns, offsets, metadata, group, bound.leaf.index)
    except BadPageIndex:
        return None
    return PageFacts(index, page_facts(metadata, bound, index))


@dataclass(frozen=True, slots=True, eq=False)
class PageBlocks:
    """Aggregates of pages of one unit, and their row ranges in the file."""

    blocks: Blocks
    starts: Array
    stops: Array


def has_page_blocks(survey: Survey) -> bool:
    """Whether aggregates of pages can be available, from an index."""
    return any(isinstance(part, RecordedFiles) for part in survey.parts)


def page_blocks(survey: Survey, group: int, ref: ColumnRef, certain: RowSet) -> PageBlocks | None:
    """Indexed aggregates of the pages of a row group whose rows all qualify."""
    if is_overridden(survey, group, ref.path):
        return None
    part, unit = part_of(survey, group)
    if not isinstance(part, RecordedFiles):
        return None
    segment, row_group = part.segment, int(part.groups[unit])
    span, locations = segment.page_span(row_group, ref.path), segment.page_offsets(row_group, ref.path)
    if span is None or locations is None:
        return None
    starts = locations.first_rows + survey.starts[group]
    stops = np.append(starts[1:], survey.stops[group])
    full = np.flatnonzero(certain.counts(starts, stops) == stops - starts)
    if not len(full):
        return None
    numbers = span[0] + full
    blocks = segment.blocks("page", ref, numbers)
    if blocks is None:
        pages = segment.pages(row_group, ref)
        if pages is None:
            return None
        nulls, nans = segment.nulls("page", ref, numbers), segment.nans("page", ref, numbers)
        blocks = from_statistics(pages.facts.take(full), (stops - starts)[full], nulls, nans)
    return PageBlocks(blocks, starts[full], stops[full])


# -- sequential ids ---------------------------------------------------------------------------------


def sequential_anti_join(
    units: Units, share: int, indexes: Array, refs: Sequence[ColumnRef]
) -> SequentialAntiJoin | None:
    """Membership test by row position for some units, or None unless all their ids are sequential."""
    members = units.shares[share].members
    assert members is not None
    groups = units.group[indexes].tolist()
    by_path: dict[Path, SequentialIds] = {}
    for ref in refs:
        if ref.path not in members.columns:
            continue
        runs = _sequential_ids(units.survey, groups, ref) if len(ref.path) == 1 else None
        if runs is None or (runs.stops - runs.starts).sum() != units.rows[indexes].sum():
            return None
        by_path[ref.path] = runs
    return SequentialAntiJoin(members, by_path)


def _sequential_ids(survey: Survey, groups: Sequence[int], ref: ColumnRef) -> SequentialIds | None:
    """Runs of sequential ids in row groups of one file, or None if one has no page statistics."""
    parts = []
    for group in groups:
        pages = _sequential_pages(survey, group, ref)
        if pages is None:
            return None
        parts.append(pages)
    starts, stops, lower, upper = (np.concatenate(side) for side in zip(*parts, strict=True))
    if not len(starts):
        return None
    is_start = np.ones(len(starts), dtype=bool)
    is_start[1:] = (starts[1:] != stops[:-1]) | (lower[1:] != upper[:-1] + 1)
    firsts = np.flatnonzero(is_start)
    return SequentialIds(starts[firsts], stops[np.append(firsts[1:], len(stops)) - 1], lower[firsts])


def _sequential_pages(survey: Survey, group: int, ref: ColumnRef) -> tuple[Array, Array, Array, Array] | None:
    """Row starts and stops, first and last ids of the pages with sequential ids."""
    part, unit = part_of(survey, group)
    if not isinstance(part, RecordedFiles) or is_overridden(survey, group, ref.path):
        return None
    segment, row_group = part.segment, int(part.groups[unit])
    span, pages = segment.page_span(row_group, ref.path), segment.pages(row_group, ref)
    if span is None or pages is None or pages.facts.lower.dtype != np.int64:
        return None
    facts = pages.facts
    starts = pages.index.first_rows + int(survey.starts[group])
    stops = np.append(starts[1:], survey.stops[group])
    rises = segment.rises(ref, np.arange(*span))
    # Unsigned, so that a difference of extreme values doesn't overflow.
    width = facts.upper.view(np.uint64) - facts.lower.view(np.uint64)
    steps = stops - starts - 1
    sequential = (rises == steps) & (width == steps.astype(np.uint64)) & (facts.lower <= facts.upper)
    sequential &= facts.may_value & ~facts.may_null & facts.lower_exact & facts.upper_exact & (steps >= 0)
    return starts[sequential], stops[sequential], facts.lower[sequential], facts.upper[sequential]
