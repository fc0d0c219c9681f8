"""Aggregates bound to a lake's schema: what is kept of rows for them, and how that becomes the answer.

To add a function, write its measure in ``states/``, its name in ``functions`` and a binder here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from skipstone.aggregate.functions import Aggregate
from skipstone.aggregate.groups import key_type
from skipstone.aggregate.states import answers, custom, first_last, histogram, quantiles, sketches
from skipstone.aggregate.states.blocks import BlockMeasure, Blocks
from skipstone.aggregate.states.histogram import check_binned
from skipstone.aggregate.states.state import Facet, Measure, Path, RowCount
from skipstone.core.arrays import plain_type
from skipstone.core.domain.keys import is_ordered
from skipstone.core.ir.bind import Binder
from skipstone.core.ir.nodes import ColumnRef
from skipstone.errors import TypeMismatchError, UsageError
from skipstone.scan.projection import find_path


@dataclass(frozen=True, slots=True, eq=False)
class BoundOutput:
    """A column of the answer: made of the state of one measure."""

    asked: Aggregate
    measure: int
    finish: Callable[[Any], pa.Array]
    bounds: Callable[[Any], tuple[Any, Any]] | None = None
    """For estimates, below and above which value the truth is hardly to be found."""

    @property
    def name(self) -> str:
        """What the answer calls it."""
        return self.asked.name


@dataclass(frozen=True, slots=True, eq=False)
class Binding:
    """Measures, the first of which counts rows, and what becomes of them."""

    measures: tuple[Measure[Any], ...]
    outputs: tuple[BoundOutput, ...]
    keys: tuple[Path, ...]
    key_fields: tuple[pa.Field, ...]
    types: Mapping[Path, pa.DataType]
    """Of the columns that are read."""


def bind(
    asked: Sequence[Aggregate], group_by: Sequence[str], schema: pa.Schema, *, case_sensitive: bool
) -> Binding:
    """The aggregates over a schema; an error names what can't be computed."""
    if not asked:
        raise UsageError("nothing to aggregate", hint="give sk.count(), sk.sum(column) or others")
    for one in asked:
        if not isinstance(one, Aggregate):
            raise UsageError(f"{one!r} is not an aggregate", hint="give sk.count(), sk.sum(column) or others")
    binder = Binder(schema, case_sensitive)
    keys = _keys(group_by, binder)
    _check_names([*(f.name for _, f in keys), *(one.name for one in asked)])
    measures = _Measures(binder)
    outputs = tuple(
        _nulls(one) if _has_no_type(measures, one) else _BINDERS[one.function](measures, one) for one in asked
    )
    paths = tuple(path for path, _ in keys)
    read = dict.fromkeys((*paths, *(path for measure in measures.all for path in measure.columns)))
    types = {path: binder.column(path).type for path in read}
    return Binding(tuple(measures.all), outputs, paths, tuple(f for _, f in keys), types)


def _keys(group_by: Sequence[str], binder: Binder) -> list[tuple[Path, pa.Field]]:
    if isinstance(group_by, str) or not all(isinstance(name, str) for name in group_by):
        raise UsageError(f"group_by={group_by!r}", hint="give a list of column names")
    found = []
    for name in group_by:
        ref = binder.column(find_path(binder, name))
        found.append((ref.path, pa.field(name, key_type(name, ref.type))))
    return found


def _check_names(names: Sequence[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(
            f"two columns of the answer are called {twice[0]!r}", hint="give one of them an alias"
        )


@dataclass(slots=True)
class _Measures:
    """Collects measures, each once; those of blocks of one column are one."""

    binder: Binder
    all: list[Measure[Any]] = field(default_factory=lambda: [RowCount()])
    places: dict[Any, int] = field(default_factory=dict)

    def ref(self, name: str) -> ColumnRef:
        return self.binder.column(find_path(self.binder, name))

    def blocks(self, ref: ColumnRef, facets: Facet) -> int:
        place = self.places.get(ref.path)
        if place is None:
            place = self.places[ref.path] = len(self.all)
            self.all.append(BlockMeasure(ref.path, ref.type, facets))
        else:
            held = self.all[place]
            assert isinstance(held, BlockMeasure)
            self.all[place] = replace(held, facets=held.facets | facets)
        return place

    def other(self, measure: Measure[Any]) -> int:
        place = self.places.get(measure)
        if place is None:
            place = self.places[measure] = len(self.all)
            self.all.append(measure)
        return place


def _has_no_type(measures: _Measures, asked: Aggregate) -> bool:
    """Whether the answer is NULL in any case, since the column has no type and so no values."""
    if asked.function in ("count", "udaf"):
        return False
    return bool(pa.types.is_null(plain_type(measures.ref(asked.columns[0]).type)))


def _nulls(asked: Aggregate) -> BoundOutput:
    none = pa.scalar(0) if asked.function == "approx_distinct" else pa.scalar(None)
    return BoundOutput(asked, 0, lambda counts: pa.repeat(none, len(counts)))


# -- one binder per function -------------------------------------------------------------------


def _count(measures: _Measures, asked: Aggregate) -> BoundOutput:
    if not asked.columns:
        return BoundOutput(asked, 0, pa.array)
    ref = measures.ref(asked.columns[0])
    return BoundOutput(asked, measures.blocks(ref, Facet.COUNT), answers.counts)


def _sum(measures: _Measures, asked: Aggregate) -> BoundOutput:
    ref = measures.ref(asked.columns[0])
    answers.sum_type(plain_type(ref.type), ref.name)
    place = measures.blocks(ref, Facet.COUNT | Facet.SUM)
    return BoundOutput(asked, place, partial(answers.sums, name=ref.name))


def _avg(measures: _Measures, asked: Aggregate) -> BoundOutput:
    ref = measures.ref(asked.columns[0])
    answers.avg_type(plain_type(ref.type), ref.name)
    place = measures.blocks(ref, Facet.COUNT | Facet.SUM)
    return BoundOutput(asked, place, partial(answers.averages, name=ref.name))


def _var(measures: _Measures, asked: Aggregate, *, root: bool) -> BoundOutput:
    ref = measures.ref(asked.columns[0])
    answers.sum_type(plain_type(ref.type), ref.name)
    place = measures.blocks(ref, Facet.COUNT | Facet.SUM | Facet.SQUARES)
    return BoundOutput(asked, place, partial(answers.variances, ddof=asked.options, root=root))


def _extreme(measures: _Measures, asked: Aggregate, *, greatest: bool, nan: bool = True) -> BoundOutput:
    ref = measures.ref(asked.columns[0])
    if nan:
        _check_ordered(ref, asked)
    else:
        check_binned(ref.type, ref.name)
    place = measures.blocks(ref, Facet.COUNT | Facet.MIN_MAX)
    return BoundOutput(
        asked, place, partial(answers.extremes if nan else _extremes_of_numbers, greatest=greatest)
    )


def _extremes_of_numbers(blocks: Blocks, *, greatest: bool) -> pa.Array:
    count = np.where(blocks.has, blocks.count - blocks.nans, 0)
    return answers.extremes(replace(blocks, count=count, nans=np.zeros_like(count)), greatest=greatest)


def _approx_distinct(measures: _Measures, asked: Aggregate) -> BoundOutput:
    ref = measures.ref(asked.columns[0])
    place = measures.other(sketches.SketchMeasure(sketches.CPC, ref.path, ref.type))
    return BoundOutput(asked, place, sketches.distinct_counts, sketches.distinct_bounds)


def _quantile(measures: _Measures, asked: Aggregate) -> BoundOutput:
    ref = measures.ref(asked.columns[0])
    ranks, single = asked.options
    place = measures.other(quantiles.AllValues(ref.path, ref.type))
    return BoundOutput(asked, place, partial(quantiles.exact_quantiles, ranks=ranks, single=single))


def _approx_quantile(measures: _Measures, asked: Aggregate) -> BoundOutput:
    ref = measures.ref(asked.columns[0])
    ranks, single = asked.options
    place = measures.other(sketches.SketchMeasure(sketches.KLL, ref.path, ref.type))
    finish = partial(quantiles.approx_quantiles, ranks=ranks, single=single)
    return BoundOutput(asked, place, finish, partial(quantiles.quantile_bounds, ranks=ranks, single=single))


def _histogram(measures: _Measures, asked: Aggregate) -> BoundOutput:
    ref = measures.ref(asked.columns[0])
    if asked.options is None:
        # Even bins from the least to the greatest of no values.
        cell = pa.struct({"low": pa.float64(), "high": pa.float64(), "count": pa.int64()})
        return BoundOutput(asked, 0, lambda counts: pa.nulls(len(counts), pa.list_(cell)))
    measure = histogram.Histogram.of(ref.path, ref.type, asked.options)
    return BoundOutput(asked, measures.other(measure), partial(histogram.histograms, measure))


def _pick(measures: _Measures, asked: Aggregate, *, last: bool) -> BoundOutput:
    ref, by = (measures.ref(name) for name in asked.columns)
    return BoundOutput(
        asked,
        measures.other(first_last.FirstLast(ref.path, ref.type, by.path, by.type, last)),
        first_last.picked,
    )


def _udaf(measures: _Measures, asked: Aggregate) -> BoundOutput:
    aggregate, type = asked.options
    paths = tuple(measures.ref(name).path for name in asked.columns)
    measure = custom.Custom(paths, asked.columns, aggregate, asked.name)
    return BoundOutput(asked, measures.other(measure), partial(custom.finished, measure, type=type))


def _check_ordered(ref: ColumnRef, asked: Aggregate) -> None:
    if not is_ordered(ref.type):
        raise TypeMismatchError(
            f"{asked.name} needs an ordered column, got {ref.type}",
            column=ref.name,
            hint="ask for one of its fields",
        )


_BINDERS: dict[str, Callable[[_Measures, Aggregate], BoundOutput]] = {
    "count": _count,
    "sum": _sum,
    "avg": _avg,
    "min": partial(_extreme, greatest=False),
    "max": partial(_extreme, greatest=True),
    # Between these are the even bins of a histogram, in none of which NaN is.
    "least number": partial(_extreme, greatest=False, nan=False),
    "greatest number": partial(_extreme, greatest=True, nan=False),
    "var": partial(_var, root=False),
    "var_pop": partial(_var, root=False),
    "stddev": partial(_var, root=True),
    "stddev_pop": partial(_var, root=True),
    "approx_distinct": _approx_distinct,
    "quantile": _quantile,
    "approx_quantile": _approx_quantile,
    "histogram": _histogram,
    "first": partial(_pick, last=False),
    "last": partial(_pick, last=True),
    "udaf": _udaf,
}
