"""``advise(lake, queries)``: what an index or another layout would do for these questions.

Estimates from a sample of footers, page indexes and the heads of dictionaries; no data is read. What is
skipped today is judged as a scan judges it. What would be skipped is reckoned from bounds, which say where
values may be but not how often each occurs: take it for the right order of magnitude, not for a promise.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa

from skipstone.domain.keys import Kind, from_key, is_ordered, key_space, storage_type
from skipstone.errors import PredicateError, UsageError
from skipstone.evidence import Array
from skipstone.explain.advice import Advice, ColumnAdvice, LayoutAdvice
from skipstone.explain.units import percent
from skipstone.index.advise.asked import Asked, Question, question, read_questions, thinned
from skipstone.index.advise.axis import Mixture
from skipstone.index.advise.layout import Boxes, after
from skipstone.index.advise.profile import Profile, profile
from skipstone.index.advise.sample import Sample
from skipstone.index.advise.today import Skips, skips
from skipstone.ir.bind import Binder
from skipstone.ir.nodes import ColumnRef
from skipstone.lake.base import BaseLake
from skipstone.predicate.tree import Between, Column, Compare, Literal
from skipstone.prune.pages import Path

# An index, a bloom filter or another layout has to skip so much more to be worth its name.
_INDEX_GAIN, _BLOOM_GAIN, _LAYOUT_GAIN = 0.05, 0.1, 1.1
_SORTED_BY, _PAIRED = 8, 4
# Layouts are tried on so many questions.
_TRIED = 128
_ASKED_COLUMNS, _POINTS, _RANGES = 100, 4, 2
_RANGE = 0.05


def advise(
    lake: BaseLake,
    queries: Iterable[Any] | str | os.PathLike[str] | None = None,
    *,
    sample: int = 64,
) -> Advice:
    """Which columns to index, which bloom filters pay, and which order of rows would help most.

    ``queries`` are predicates, or pairs of a predicate and its weight, or the path of a query log: a
    condition, a SELECT from one table or ``{"where": ..., "count": ...}`` on each line. Without them,
    points and ranges of every column are asked. ``sample`` is how many files are looked at, at most.
    """
    if isinstance(sample, bool) or not isinstance(sample, int) or sample < 1:
        raise UsageError(f"sample={sample!r}", hint="give a positive number of files")
    schema = lake.query_schema
    asked = None if queries is None else read_questions(queries, schema)
    taken = Sample.of(lake, sample)
    if asked is None:
        profiles = {ref.path: profile(taken, ref) for ref in _leaves(schema)[:_ASKED_COLUMNS]}
        asked = Asked(tuple(_made_up(profiles.values(), schema)), 0, ())
        synthetic = True
    else:
        binder = Binder(schema)
        paths = dict.fromkeys(path for one in asked.questions for path in one.columns)
        refs = [*(binder.column(path) for path in paths), *_partitions(lake)]
        profiles = {ref.path: profile(taken, ref) for ref in refs}
        synthetic = False
    questions = asked.questions
    whole = [skips(taken, one) for one in questions]
    today = _mean(questions, [found.best for found in whole])
    columns = [
        _column(taken, one, questions, whole, profiles, synthetic=synthetic) for one in profiles.values()
    ]
    columns.sort(key=lambda column: -column.used)
    return Advice(
        lake=lake.uri,
        version=lake.version,
        files=len(lake.entries),
        sampled=len(taken.files),
        rows=round(taken.rows * taken.scale),
        understood=asked.understood,
        refused=asked.refused,
        synthetic=synthetic,
        skips=today,
        by_column=tuple(columns),
        layouts=tuple(_layouts(taken, questions, profiles, today)),
    )


def _leaves(schema: pa.Schema) -> list[ColumnRef]:
    """Every column with an order, fields of structs included; names that occur twice name nothing."""
    found: list[ColumnRef] = []

    def walk(fields: Sequence[pa.Field], above: Path) -> None:
        names = [field.name for field in fields]
        for field in fields:
            storage = storage_type(field.type)
            if names.count(field.name) > 1:
                continue
            if pa.types.is_struct(storage):
                walk(list(storage.fields), (*above, field.name))
            elif is_ordered(field.type):
                found.append(ColumnRef((*above, field.name), field.type))

    walk(list(schema), ())
    return found


def _partitions(lake: BaseLake) -> Iterator[ColumnRef]:
    for field in lake.query_schema:
        if field.name in lake.partition_names:
            yield ColumnRef((field.name,), field.type)


def _made_up(profiles: Iterable[Profile], schema: pa.Schema) -> Iterator[Question]:
    """Points and ranges of every column, at even distances through its rows; columns weigh the same."""
    for column in profiles:
        if column.axis is None or not column.values.sum():
            continue
        spread = Mixture.of(column.axis.low, column.axis.high, column.values).cuts(1_000)
        name = Column(column.ref.path)
        # Nobody asks for one double.
        exact = key_space(column.ref.type).kind is not Kind.FLOAT
        weight = 1 / (_RANGES + (_POINTS if exact else 0))
        for number in range(_POINTS if exact else 0):
            for value in _literals(column, spread[[_thousandths((number + 0.5) / _POINTS)]]):
                yield from _asked(Compare("=", name, value), schema, weight)
        for number in range(_RANGES):
            start = (number + 0.5) / _RANGES
            ends = [_thousandths(start), _thousandths(start + _RANGE)]
            if values := _literals(column, spread[ends]):
                yield from _asked(Between(name, values[0], values[1]), schema, weight)


def _thousandths(share: float) -> int:
    return round(1_000 * share)


def _literals(column: Profile, places: Array) -> list[Literal]:
    assert column.axis is not None
    lower, _ = column.axis.bounds(places, places)
    try:
        return [Literal(from_key(column.ref.type, key)) for key in lower.tolist()]
    except pa.ArrowInvalid:
        return []  # a bound that is no value of the type, such as a decimal of too many digits


def _asked(predicate: Any, schema: pa.Schema, weight: float) -> Iterator[Question]:
    try:
        yield question(predicate, schema, weight)
    except PredicateError:
        return  # a type that can't be asked for like this has no say


# -- columns -----------------------------------------------------------------------------------


def _column(
    sample: Sample,
    column: Profile,
    questions: Sequence[Question],
    whole: Sequence[Skips],
    profiles: Mapping[Path, Profile],
    *,
    synthetic: bool,
) -> ColumnAdvice:
    path = column.ref.path
    using = [(one, all_of_it) for one, all_of_it in zip(questions, whole, strict=True) if path in one.columns]
    mine = [one for one, _ in using]
    alone = [skips(sample, one, {path}, profiles) for one in mine]
    best = [found.best for found in alone]
    gains = [_gain(sample, one, path, found, every) for (one, every), found in zip(using, alone, strict=True)]
    bloomed = [found.best if found.bloom is None else found.bloom for found in alone]
    has_pages = any(found.pages is not None for found in alone)
    has_bloom = any(found.bloom is not None for found in alone)
    gain = _mean(mine, bloomed) - _mean(mine, best)
    index, bloom, why = _decide(sample, column, mine, _mean(mine, gains), gain)
    return ColumnAdvice(
        name=column.name,
        type=column.ref.type,
        used=0.0 if synthetic else sum(one.weight for one in mine),
        skip_files=_mean(mine, [found.files for found in alone]),
        skip_row_groups=_mean(mine, [found.row_groups for found in alone]),
        skip_pages=_mean(mine, best) if has_pages else None,
        skip_with_bloom=_mean(mine, bloomed) if has_bloom else None,
        index_bytes=column.index_bytes,
        bloom_bytes=column.bloom_bytes,
        index=index,
        bloom=bloom,
        why=why,
    )


def _gain(sample: Sample, asked: Question, path: Path, alone: Skips, whole: Skips) -> float:
    """What a column's bounds are good for: what they skip alone, or what would be lost without them."""
    others = {ref.path for ref in asked.refs} - {path}
    if alone.best >= whole.best or not others:
        return alone.best
    # Alone it may say nothing and still be needed: one side of an OR, or of a comparison of columns.
    return max(alone.best, whole.best - skips(sample, asked, others).best)


def _decide(
    sample: Sample, column: Profile, questions: Sequence[Question], skipped: float, gain: float
) -> tuple[bool, bool, str]:
    """Whether to index the column, whether to add bloom filters, and why."""
    if column.partition:
        return False, False, "directories tell it already"
    if not questions:
        return False, False, "no question asks for it"
    if not any(ref.path == column.ref.path for one in questions for ref in one.refs):
        return False, False, "asked for in ways that metadata can't judge"
    if not is_ordered(column.ref.type):
        return False, False, "a type without an order"
    said = percent(skipped, 1)
    index = skipped >= _INDEX_GAIN
    saved = gain * sum(entry.size for entry in sample.lake.entries)
    pays = gain >= _BLOOM_GAIN and column.bloom_bytes < saved
    if pays and column.has_bloom:
        return index, False, "the files have bloom filters already"
    reasons = []
    if index:
        reasons.append(f"index: bounds skip {said}")
    if pays:
        reasons.append(f"bloom: +{percent(gain, 1)}")
    elif gain >= _BLOOM_GAIN:
        reasons.append(f"no bloom: filters outweigh the {percent(gain, 1)} they skip")
    if not reasons:
        known = column.axis is not None
        little = f"bounds skip only {said}" if skipped else "bounds skip nothing"
        reasons.append(little if known else "no bounds in the footers")
    return index, pays, "; ".join(reasons)


def _mean(questions: Sequence[Question], figures: Sequence[float]) -> float:
    weights = sum(one.weight for one in questions)
    if not weights:
        return 0.0
    return sum(one.weight * figure for one, figure in zip(questions, figures, strict=True)) / weights


# -- layouts -----------------------------------------------------------------------------------


def _layouts(
    sample: Sample, questions: tuple[Question, ...], profiles: Mapping[Path, Profile], today: float
) -> list[LayoutAdvice]:
    """Layouts that would read less, the best first; those of the columns that are asked for most."""
    if not sample.rows or not questions:
        return []
    asked: dict[Path, float] = {}
    for one in questions:
        for ref in one.refs:
            asked[ref.path] = asked.get(ref.path, 0.0) + one.weight
    paths = sorted((path for path in asked if _sortable(profiles[path])), key=lambda path: -asked[path])
    columns = [profiles[path] for path in paths[:_SORTED_BY]]
    boxes = Boxes.of(sample, profiles)
    tried = thinned(questions, _TRIED)
    if len(tried) < len(questions):
        today = _mean(tried, [skips(sample, one).best for one in tried])
    found = [LayoutAdvice((by.name,), "sort", today, after(boxes, [by], tried)) for by in columns] + [
        LayoutAdvice((a.name, b.name), "zorder", today, after(boxes, [a, b], tried))
        for a, b in combinations(columns[:_PAIRED], 2)
    ]
    helping = [layout for layout in found if layout.factor >= _LAYOUT_GAIN]
    # Of two that are about as good, the simpler one.
    return sorted(helping, key=lambda layout: (-round(layout.after, 2), layout.kind, -layout.after))


def _sortable(column: Profile) -> bool:
    return (
        column.axis is not None and not column.partition and column.total > 1 and bool(np.any(column.values))
    )
