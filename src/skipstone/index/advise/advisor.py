"""``advise(lake, queries)``: estimate how an index, bloom filters or another order of rows help queries.

What queries skip today is judged on the footers and page indexes of sampled files, as in a scan. What they
would skip under another order is judged the same way on sampled rows, sorted in that order.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.domain.keys import Kind, from_key, is_ordered, key_space, storage_type
from skipstone.core.ir.bind import Binder
from skipstone.core.ir.nodes import AndNode, ColumnRef
from skipstone.errors import PredicateError, UsageError
from skipstone.index.advise.advice import Advice, ColumnAdvice, LayoutAdvice
from skipstone.index.advise.questions import SampleQuery, Workload, bind, pick, read_workload
from skipstone.index.advise.rows import Path, RowSample, SampledColumn
from skipstone.index.advise.sample import LakeSample, Skips
from skipstone.lake.snapshot import Snapshot
from skipstone.predicate.tree import Between, Column, Compare, Literal, Predicate
from skipstone.report.units import percent

# Minimum gains of an index, a bloom filter or another layout.
_INDEX_GAIN, _BLOOM_GAIN, _LAYOUT_GAIN = 0.05, 0.1, 1.1
# Most used columns tried as orders, alone and in pairs, and queries to try them on.
_SORTED_BY, _PAIRED, _TRIED = 8, 4, 128
# Synthetic queries: columns, and values and ranges of each.
_COLUMNS, _POINTS, _RANGES, _RANGE_SHARE = 100, 4, 2, 0.05
# Bytes of an index per row group or page, and per file, without string bounds.
_UNIT_BYTES, _FILE_BYTES = 17, 29
_ROUNDING = 1e-9


def advise(
    lake: Snapshot,
    queries: Iterable[Any] | str | os.PathLike[str] | None = None,
    *,
    sample: int = 64,
) -> Advice:
    """Advise which columns to index, which bloom filters pay off, and which order of rows would help most.

    ``queries`` are predicates, pairs of a predicate and its weight, or the path of a query log: a condition,
    a SELECT from one table or ``{"where": ..., "count": ...}`` on each line. Without queries, values and
    ranges of every column are looked up. ``sample`` is the maximum number of files to sample.
    """
    if isinstance(sample, bool) or not isinstance(sample, int) or sample < 1:
        raise UsageError(f"sample must be a positive integer, got {sample!r}")
    schema = lake.query_schema
    workload = None if queries is None else read_workload(queries, schema)
    files = LakeSample.of(lake, sample)
    if workload is None:
        refs = leaves(schema)[:_COLUMNS]
    else:
        binder = Binder(schema)
        paths = [path for question in workload.questions for path in question.columns]
        paths += [(name,) for name in schema.names if name in lake.partition_names]
        refs = [binder.column(path) for path in dict.fromkeys(paths)]
    rows = files.read_rows(refs)
    queried = workload or Workload(tuple(look_ups(rows, refs, schema)))
    today = [files.skips(question.node) for question in queried.questions]
    columns = [_advise_column(files, rows, ref, queried.questions) for ref in refs]
    if workload is None:
        columns = [replace(column, used=0.0) for column in columns]
    columns.sort(key=lambda column: -column.used)
    return Advice(
        lake=lake.uri,
        version=lake.version,
        files=len(lake.entries),
        sampled=len(files.files),
        rows=rows.rows,
        sampled_rows=len(rows),
        understood=queried.understood,
        refused=queried.refused,
        synthetic=workload is None,
        is_table=lake.index_naming is not None,
        partition_by=tuple(name for name in schema.names if name in lake.partition_names),
        skips=mean(queried.questions, [skips.best for skips in today]),
        by_column=tuple(columns),
        layouts=tuple(_advise_layouts(files, rows, queried.questions)),
    )


def leaves(schema: pa.Schema) -> list[ColumnRef]:
    """Return all columns and struct fields with an ordered type and a unique name."""
    refs: list[ColumnRef] = []

    def walk(fields: Sequence[pa.Field], above: Path) -> None:
        names = [field.name for field in fields]
        for field in fields:
            storage = storage_type(field.type)
            if names.count(field.name) > 1:
                continue
            if pa.types.is_struct(storage):
                walk(list(storage.fields), (*above, field.name))
            elif is_ordered(field.type):
                refs.append(ColumnRef((*above, field.name), field.type))

    walk(list(schema), ())
    return refs


def look_ups(rows: RowSample, refs: Sequence[ColumnRef], schema: pa.Schema) -> Iterator[SampleQuery]:
    """Yield queries for values and ranges, evenly spread over each column's sampled values; equal weights."""
    for ref in refs:
        predicates = _of_column(ref, rows.columns[ref.path]) if ref.path in rows.columns else []
        for predicate in predicates:
            try:
                yield bind(predicate, schema, 1 / len(predicates))
            except PredicateError:
                continue  # predicates don't support the type


def _of_column(ref: ColumnRef, column: SampledColumn) -> list[Predicate]:
    name, ends = Column(ref.path), np.cumsum(column.counts)

    def at(share: float) -> Literal:
        number = int(np.searchsorted(ends, min(share, 1.0) * (ends[-1] - 1), side="right"))
        return Literal(from_key(ref.type, column.keys[number : number + 1].tolist()[0]))

    starts = [(number + 0.5) / _RANGES for number in range(_RANGES)] if len(ends) else []
    predicates: list[Predicate] = [Between(name, at(start), at(start + _RANGE_SHARE)) for start in starts]
    # Queries rarely look up a single floating-point number.
    if len(ends) and key_space(ref.type).kind is not Kind.FLOAT:
        predicates += [Compare("=", name, at((number + 0.5) / _POINTS)) for number in range(_POINTS)]
    return predicates


def mean(questions: Sequence[SampleQuery], figures: Iterable[float]) -> float:
    """Weighted mean of a figure over queries."""
    weights = sum(question.weight for question in questions)
    pairs = zip(questions, figures, strict=True)
    return sum(question.weight * figure for question, figure in pairs) / weights if weights else 0.0


# -- columns -----------------------------------------------------------------------------------


def _advise_column(
    files: LakeSample, rows: RowSample, ref: ColumnRef, questions: Sequence[SampleQuery]
) -> ColumnAdvice:
    mine = [question for question in questions if ref.path in question.columns]
    parts = [question.conjuncts(ref.path) for question in mine]
    skips = [files.skips(AndNode(part)) if part else Skips() for part in parts]
    read = [1 - own.best for own in skips]
    is_partition = files.survey.gives(ref.path)
    filtered = [
        None if is_partition else rows.read_with_bloom(question, ref.path, share)
        for question, share in zip(mine, read, strict=True)
    ]
    left = [share if less is None else less for share, less in zip(read, filtered, strict=True)]
    skipped, gain = 1 - mean(mine, read), mean(mine, read) - mean(mine, left)
    advice = ColumnAdvice(
        name=ref.name,
        type=ref.type,
        used=sum(question.weight for question in mine),
        skip_files=mean(mine, [own.files for own in skips]),
        skip_row_groups=mean(mine, [own.row_groups for own in skips]),
        skip_pages=skipped if any(own.pages is not None for own in skips) else None,
        skip_with_bloom=skipped + gain if any(less is not None for less in filtered) else None,
        index_bytes=0 if is_partition else _index_bytes(files, rows, ref),
        bloom_bytes=0 if is_partition else rows.bloom_bytes(ref.path),
        index=skipped >= _INDEX_GAIN,
        bloom=False,
        why="",
    )
    if is_partition:
        return replace(advice, index=False, why="partition column, needs no index")
    if not mine:
        return replace(advice, index=False, why="not used by any query")
    if not any(parts):
        return replace(advice, index=False, why="metadata can't judge these predicates")
    if not is_ordered(ref.type):
        return replace(advice, index=False, why="type has no order")
    pays = bloom_pays(gain, advice.bloom_bytes, sum(entry.size for entry in files.lake.entries))
    if pays and files.has_bloom(ref):
        return replace(advice, why="files already have bloom filters")
    reasons = [f"index: bounds skip {percent(skipped, 1)}"] if advice.index else []
    if pays:
        reasons.append(f"bloom: +{percent(gain, 1)}")
    elif gain >= _BLOOM_GAIN:
        reasons.append(f"no bloom: filters are larger than the {percent(gain, 1)} they skip")
    if not reasons:
        share = percent(skipped, 1)
        little = "bounds skip nothing" if share == "0 %" else f"bounds skip only {share}"
        reasons.append(little if files.has_bounds(ref) else "no bounds in the footers")
    return replace(advice, bloom=pays, why="; ".join(reasons))


def bloom_pays(gain: float, size: int, lake_bytes: float) -> bool:
    """Whether bloom filters skip enough rows, and more bytes than their own."""
    return gain >= _BLOOM_GAIN and size < gain * lake_bytes


def _index_bytes(files: LakeSample, rows: RowSample, ref: ColumnRef) -> int:
    facts = files.survey.facts(ref)
    text = 0.0
    if isinstance(facts.lower, pa.Array) and len(facts):
        lengths = [pc.sum(pc.binary_length(bounds)).as_py() or 0 for bounds in (facts.lower, facts.upper)]
        text = sum(lengths) / len(facts)
    pages = rows.rows / rows.page_rows[ref.path] if ref.path in rows.page_rows else 0.0
    units = len(files.survey) * files.scale + pages
    return round(len(files.lake.entries) * (_FILE_BYTES + text) + units * (_UNIT_BYTES + text))


# -- layouts -----------------------------------------------------------------------------------


def _advise_layouts(
    files: LakeSample, rows: RowSample, questions: tuple[SampleQuery, ...]
) -> list[LayoutAdvice]:
    """Return layouts by the most used columns that would read less, best first."""
    weights = {
        path: sum(question.weight for question in questions if question.conjuncts(path))
        for path in rows.columns
        if not files.survey.gives(path)
    }
    paths = sorted((path for path in weights if weights[path]), key=lambda path: -weights[path])[:_SORTED_BY]
    tried = pick(questions, _TRIED)
    today = [files.skips(question.node) for question in tried]
    matching = np.array([skips.matching for skips in today])
    before = mean(tried, [skips.best for skips in today])
    layouts = []
    for by in (*((path,) for path in paths), *combinations(paths[:_PAIRED], 2)):
        after = 1 - mean(tried, np.maximum(rows.shares_read(tried, by), matching).tolist())
        names = tuple(".".join(path) for path in by)
        layout = LayoutAdvice(names, "sort" if len(by) == 1 else "zorder", before, after)
        # A unit at each end of a range is within sampling error, unless all rows were read.
        chance = 0.0 if rows.scale == 1 else 2 * rows.unit_rows(by) / files.rows
        if layout.factor >= _LAYOUT_GAIN and after - before > chance + _ROUNDING:
            layouts.append(layout)
    # Of two layouts that are about equal, the simpler one comes first.
    return sorted(layouts, key=lambda layout: (-round(layout.after, 2), layout.kind, -layout.after))
