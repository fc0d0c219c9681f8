"""Binds aggregates to a lake's schema: which state to compute, and how to turn it into the result.

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

_HINT = "use sk.count(), sk.sum(column) or another aggregate function"


@dataclass(frozen=True, slots=True, eq=False)
class BoundOutput:
    """A column of the result, computed from the state of one measure."""

    aggregate: Aggregate
    measure: int
    finish: Callable[[Any], pa.Array]
    bounds: Callable[[Any], tuple[Any, Any]] | None = None
    """Computes the confidence bounds of an estimate."""

    @property
    def name(self) -> str:
        """Name of the result column."""
        return self.aggregate.name


@dataclass(frozen=True, slots=True, eq=False)
class Binding:
    """Measures to compute (the first counts rows) and the outputs made from them."""

    measures: tuple[Measure[Any], ...]
    outputs: tuple[BoundOutput, ...]
    keys: tuple[Path, ...]
    key_fields: tuple[pa.Field, ...]
    types: Mapping[Path, pa.DataType]
    """Types of the columns read."""


def bind(
    aggregates: Sequence[Aggregate], group_by: Sequence[str], schema: pa.Schema, *, case_sensitive: bool
) -> Binding:
    """Bind aggregates to a schema; raise if one can't be computed."""
    if not aggregates:
        raise UsageError("no aggregate functions", hint=_HINT)
    for aggregate in aggregates:
        if not isinstance(aggregate, Aggregate):
            raise UsageError(f"{aggregate!r} is not an aggregate function", hint=_HINT)
    binder = Binder(schema, case_sensitive)
    keys = _keys(group_by, binder)
    _check_names([*(f.name for _, f in keys), *(aggregate.name for aggregate in aggregates)])
    measures = _Measures(binder)
    outputs = tuple(
        _nulls(a) if _is_null_column(measures, a) else _BINDERS[a.function](measures, a) for a in aggregates
    )
    paths = tuple(path for path, _ in keys)
    read = dict.fromkeys((*paths, *(path for measure in measures.all for path in measure.columns)))
    types = {path: binder.column(path).type for path in read}
    return Binding(tuple(measures.all), outputs, paths, tuple(f for _, f in keys), types)


def _keys(group_by: Sequence[str], binder: Binder) -> list[tuple[Path, pa.Field]]:
    if isinstance(group_by, str) or not all(isinstance(name, str) for name in group_by):
        raise UsageError(f"group_by={group_by!r} is not a list of names", hint="use a list of column names")
    keys = []
    for name in group_by:
        ref = binder.column(find_path(binder, name))
        keys.append((ref.path, pa.field(name, key_type(name, ref.type))))
    return keys


def _check_names(names: Sequence[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"two result columns are named {twice[0]!r}", hint="use alias() on one of them")


@dataclass(slots=True)
class _Measures:
    """Collects measures without duplicates; block measures of one column are combined."""

    binder: Binder
    all: list[Measure[Any]] = field(default_factory=lambda: [RowCount()])
    indexes: dict[Any, int] = field(default_factory=dict)

    def ref(self, name: str) -> ColumnRef:
        return self.binder.column(find_path(self.binder, name))

    def blocks(self, ref: ColumnRef, facets: Facet) -> int:
        index = self.indexes.get(ref.path)
        if index is None:
            index = self.indexes[ref.path] = len(self.all)
            self.all.append(BlockMeasure(ref.path, ref.type, facets))
        else:
            measure = self.all[index]
            assert isinstance(measure, BlockMeasure)
            self.all[index] = replace(measure, facets=measure.facets | facets)
        return index

    def other(self, measure: Measure[Any]) -> int:
        index = self.indexes.get(measure)
        if index is None:
            index = self.indexes[measure] = len(self.all)
            self.all.append(measure)
        return index


def _is_null_column(measures: _Measures, aggregate: Aggregate) -> bool:
    """Whether the result is always NULL, since the column has Arrow's null type."""
    if aggregate.function in ("count", "udaf"):
        return False
    return bool(pa.types.is_null(plain_type(measures.ref(aggregate.columns[0]).type)))


def _nulls(aggregate: Aggregate) -> BoundOutput:
    value = pa.scalar(0) if aggregate.function == "approx_distinct" else pa.scalar(None)
    return BoundOutput(aggregate, 0, lambda counts: pa.repeat(value, len(counts)))


# -- one binder per function -------------------------------------------------------------------


def _count(measures: _Measures, aggregate: Aggregate) -> BoundOutput:
    if not aggregate.columns:
        return BoundOutput(aggregate, 0, pa.array)
    ref = measures.ref(aggregate.columns[0])
    return BoundOutput(aggregate, measures.blocks(ref, Facet.COUNT), answers.counts)


def _sum(measures: _Measures, aggregate: Aggregate) -> BoundOutput:
    ref = measures.ref(aggregate.columns[0])
    answers.sum_type(plain_type(ref.type), ref.name)
    measure = measures.blocks(ref, Facet.COUNT | Facet.SUM)
    return BoundOutput(aggregate, measure, partial(answers.sums, name=ref.name))


def _avg(measures: _Measures, aggregate: Aggregate) -> BoundOutput:
    ref = measures.ref(aggregate.columns[0])
    answers.avg_type(plain_type(ref.type), ref.name)
    measure = measures.blocks(ref, Facet.COUNT | Facet.SUM)
    return BoundOutput(aggregate, measure, partial(answers.averages, name=ref.name))


def _var(measures: _Measures, aggregate: Aggregate, *, root: bool) -> BoundOutput:
    ref = measures.ref(aggregate.columns[0])
    answers.sum_type(plain_type(ref.type), ref.name)
    measure = measures.blocks(ref, Facet.COUNT | Facet.SUM | Facet.SQUARES)
    return BoundOutput(aggregate, measure, partial(answers.variances, ddof=aggregate.options, root=root))


def _extreme(measures: _Measures, aggregate: Aggregate, *, maximum: bool, nan: bool = True) -> BoundOutput:
    ref = measures.ref(aggregate.columns[0])
    if nan:
        _check_ordered(ref, aggregate)
    else:
        check_binned(ref.type, ref.name)
    measure = measures.blocks(ref, Facet.COUNT | Facet.MIN_MAX)
    return BoundOutput(
        aggregate, measure, partial(answers.extremes if nan else _extremes_of_numbers, maximum=maximum)
    )


def _extremes_of_numbers(blocks: Blocks, *, maximum: bool) -> pa.Array:
    count = np.where(blocks.has, blocks.count - blocks.nans, 0)
    return answers.extremes(replace(blocks, count=count, nans=np.zeros_like(count)), maximum=maximum)


def _approx_distinct(measures: _Measures, aggregate: Aggregate) -> BoundOutput:
    ref = measures.ref(aggregate.columns[0])
    measure = measures.other(sketches.SketchMeasure(sketches.CPC, ref.path, ref.type))
    return BoundOutput(aggregate, measure, sketches.distinct_counts, sketches.distinct_bounds)


def _quantile(measures: _Measures, aggregate: Aggregate) -> BoundOutput:
    ref = measures.ref(aggregate.columns[0])
    ranks, single = aggregate.options
    measure = measures.other(quantiles.AllValues(ref.path, ref.type))
    return BoundOutput(aggregate, measure, partial(quantiles.exact_quantiles, ranks=ranks, single=single))


def _approx_quantile(measures: _Measures, aggregate: Aggregate) -> BoundOutput:
    ref = measures.ref(aggregate.columns[0])
    ranks, single = aggregate.options
    measure = measures.other(sketches.SketchMeasure(sketches.KLL, ref.path, ref.type))
    finish = partial(quantiles.approx_quantiles, ranks=ranks, single=single)
    return BoundOutput(
        aggregate, measure, finish, partial(quantiles.quantile_bounds, ranks=ranks, single=single)
    )


def _histogram(measures: _Measures, aggregate: Aggregate) -> BoundOutput:
    ref = measures.ref(aggregate.columns[0])
    if aggregate.options is None:
        # Even bins without any values.
        cell = pa.struct({"low": pa.float64(), "high": pa.float64(), "count": pa.int64()})
        return BoundOutput(aggregate, 0, lambda counts: pa.nulls(len(counts), pa.list_(cell)))
    measure = histogram.Histogram.of(ref.path, ref.type, aggregate.options)
    return BoundOutput(aggregate, measures.other(measure), partial(histogram.histograms, measure))


def _pick(measures: _Measures, aggregate: Aggregate, *, last: bool) -> BoundOutput:
    ref, by = (measures.ref(name) for name in aggregate.columns)
    return BoundOutput(
        aggregate,
        measures.other(first_last.FirstLast(ref.path, ref.type, by.path, by.type, last)),
        first_last.finish_first_last,
    )


def _udaf(measures: _Measures, aggregate: Aggregate) -> BoundOutput:
    implementation, type = aggregate.options
    paths = tuple(measures.ref(name).path for name in aggregate.columns)
    measure = custom.Custom(paths, aggregate.columns, implementation, aggregate.name)
    return BoundOutput(aggregate, measures.other(measure), partial(custom.finish_custom, measure, type=type))


def _check_ordered(ref: ColumnRef, aggregate: Aggregate) -> None:
    if not is_ordered(ref.type):
        raise TypeMismatchError(
            f"{aggregate.name} needs an ordered column, got {ref.type}",
            column=ref.name,
            hint="use one of its fields",
        )


_BINDERS: dict[str, Callable[[_Measures, Aggregate], BoundOutput]] = {
    "count": _count,
    "sum": _sum,
    "avg": _avg,
    "min": partial(_extreme, maximum=False),
    "max": partial(_extreme, maximum=True),
    # The range of even histogram bins, which NaN is never in.
    "smallest number": partial(_extreme, maximum=False, nan=False),
    "largest number": partial(_extreme, maximum=True, nan=False),
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
