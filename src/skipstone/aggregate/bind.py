"""Binds aggregates to a lake's schema: which state to compute, and how to turn it into the result.

To add a function, write its measure in ``states/``, its name in ``functions`` and a binder here.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from skipstone.aggregate.functions import Aggregate, label
from skipstone.aggregate.groups import key_type
from skipstone.aggregate.states import answers, custom, distinct, first_last, histogram, quantiles, sketches
from skipstone.aggregate.states.blocks import BlockMeasure, Blocks
from skipstone.aggregate.states.histogram import check_binned
from skipstone.aggregate.states.state import Facet, Measure, Path, RowCount
from skipstone.core.arrays import plain_type
from skipstone.core.domain.keys import is_ordered
from skipstone.core.filter import RowValues
from skipstone.core.ir import compile_predicate
from skipstone.core.ir.bind import Binder
from skipstone.core.ir.nodes import ColumnRef, Node, NotJudgeable
from skipstone.core.plain import type_name
from skipstone.errors import TypeMismatchError, UnknownColumnError, UsageError
from skipstone.predicate.tree import Call, Column, Expr, Literal, Predicate, has_calls, refuse_deep
from skipstone.scan.projection import Projection, find_path

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
    """Types of the columns read or computed."""
    computed: Mapping[Path, ComputedColumn]
    query: pa.Schema
    """Columns of expressions, with the types that these are bound to."""

    def column(self, path: Path) -> ColumnRef | ComputedColumn:
        """A column of the lake, or a computed one."""
        return self.computed.get(path) or ColumnRef(path, self.types[path])

    def read_paths(self, numbers: Iterable[int]) -> tuple[Path, ...]:
        """Columns of the lake that some measures and the keys need."""
        sources = (
            (path,) if (computed := self.computed.get(path)) is None else [ref.path for ref in computed.refs]
            for path in self._paths(numbers)
        )
        return tuple(dict.fromkeys(chain.from_iterable(sources)))

    def row_values(self, numbers: Iterable[int]) -> RowValues | None:
        """Evaluates the computed columns that some measures and the keys need."""
        needed = [computed for path in self._paths(numbers) if (computed := self.computed.get(path))]
        if not needed:
            return None
        expressions = {name: expr for c in needed for name, expr in c.values.expressions.items()}
        return RowValues(expressions, self.query, case_sensitive=needed[0].values.case_sensitive)

    def _paths(self, numbers: Iterable[int]) -> Iterator[Path]:
        return chain(self.keys, *(self.measures[number].columns for number in numbers))


@dataclass(frozen=True, slots=True, eq=False)
class ComputedColumn:
    """An expression, as an additional column of the rows."""

    name: str
    type: pa.DataType
    values: RowValues
    refs: tuple[ColumnRef, ...]
    """Columns that the expression reads."""
    monotone: ColumnRef | None
    """The only column with its functions, if bounds of the column give bounds of the values."""
    why: str
    """Why the expression is not monotone."""
    choice: Choice | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """``if(condition, yes, no)``: where metadata decides the condition for a unit, one value for its rows."""

    condition: Node
    yes: ColumnRef | ComputedColumn | pa.Scalar | None
    """None if the value has another type."""
    no: ColumnRef | ComputedColumn | pa.Scalar | None


Key: TypeAlias = tuple[str, str | Expr]
"""Name of a key in the result, and the column or expression."""


@refuse_deep
def bind(
    aggregates: Sequence[Aggregate],
    group_by: Sequence[Key],
    schema: pa.Schema,
    query: pa.Schema,
    *,
    case_sensitive: bool,
) -> Binding:
    """Bind aggregates to a schema, and expressions to that of predicates; raise if one can't be computed."""
    if not aggregates:
        raise UsageError("no aggregate functions", hint=_HINT)
    for aggregate in aggregates:
        if not isinstance(aggregate, Aggregate):
            raise UsageError(f"{aggregate!r} is not an aggregate function", hint=_HINT)
    measures = _Measures(Binder(schema, case_sensitive), Binder(query, case_sensitive))
    keys = [(name, measures.ref(column)) for name, column in group_by]
    _check_names([*(name for name, _ in keys), *(aggregate.name for aggregate in aggregates)])
    outputs = tuple(
        _nulls(a) if _is_null_column(measures, a) else _BINDERS[a.function](measures, a) for a in aggregates
    )
    paths = tuple(ref.path for _, ref in keys)
    computed: dict[Path, ComputedColumn] = {(each.name,): each for each in measures.computed.values()}
    sources = [ref.path for each in computed.values() for ref in each.refs]
    return Binding(
        tuple(measures.all),
        outputs,
        paths,
        tuple(pa.field(name, key_type(name, ref.type)) for name, ref in keys),
        measures.types,
        computed,
        Projection.of(query, sources).schema,
    )


def _check_names(names: Sequence[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        hint = f"name one of them with AS or alias(): {twice[0]} AS other"
        raise UsageError(f"two result columns are named {twice[0]!r}", hint=hint)


@dataclass(slots=True)
class _Measures:
    """Collects measures without duplicates; block measures of one column are combined."""

    binder: Binder
    query: Binder
    """Binds expressions, with the types of predicates."""
    all: list[Measure[Any]] = field(default_factory=lambda: [RowCount()])
    indexes: dict[Any, int] = field(default_factory=dict)
    types: dict[Path, pa.DataType] = field(default_factory=dict)
    computed: dict[tuple[object, ...], ComputedColumn] = field(default_factory=dict)
    """By the key of the expression."""
    now: dt.datetime = field(default_factory=partial(dt.datetime.now, dt.UTC))
    """The current time of all expressions."""

    def ref(self, column: str | Expr) -> ColumnRef:
        """Resolve a column, or add the column of an expression."""
        ref = self._ref(column)
        self.types[ref.path] = ref.type
        return ref

    def _ref(self, column: str | Expr) -> ColumnRef:
        expr = column
        if isinstance(expr, str):
            try:
                return self.binder.column(find_path(self.binder, expr))
            except UnknownColumnError:
                from skipstone.aggregate.select import read_expression

                if expr.isidentifier() or (parsed := read_expression(expr)) is None:
                    raise
                expr = parsed
        if has_calls(expr):
            from skipstone.core.filter.constants import read_clock, settle_value

            binder = self.query
            expr = settle_value(
                read_clock(expr, self.now), binder.schema, case_sensitive=binder.case_sensitive
            )
        if isinstance(expr, Column):
            return self.binder.column(expr.path)
        computed = self.computed.get(expr.key())
        if computed is None:
            computed = self.computed[expr.key()] = self._compute(expr, label(column))
        return ColumnRef((computed.name,), computed.type)

    def constant(self, expr: Expr) -> pa.Scalar:
        """Value of an expression without columns."""
        from skipstone.core.filter.constants import read_clock

        values = RowValues({"value": read_clock(expr, self.now)}, pa.schema([]))
        return values.compute(pa.table({"none": pa.nulls(1)}))["value"][0]

    def _compute(self, expr: Expr, name: str) -> ComputedColumn:
        taken = {*self.query.schema.names, *(computed.name for computed in self.computed.values())}
        while name in taken:
            name += " "
        values = RowValues({name: expr}, self.query.schema, case_sensitive=self.query.case_sensitive)
        if not values.columns:
            raise UsageError(f"expression {name} has no column", hint="use an expression of columns")
        refs = tuple(self.query.column(path) for path in values.columns)
        monotone, why = None, ""
        try:
            operand = self.query.operand(expr)
            monotone = operand if isinstance(operand, ColumnRef) else None
        except NotJudgeable as error:
            why = error.detail
        type = values.types[name]
        return ComputedColumn(name, type, values, refs, monotone, why, self._choice(expr, type))

    def _choice(self, expr: Expr, type: pa.DataType) -> Choice | None:
        match expr:
            case Call("if", (Predicate() as condition, yes, no)):
                schema, case_sensitive = self.query.schema, self.query.case_sensitive
                compiled = compile_predicate(condition, schema, case_sensitive=case_sensitive)
                return Choice(compiled.node, self._value(yes, type), self._value(no, type))
        return None

    def _value(self, expr: Expr, type: pa.DataType) -> ColumnRef | ComputedColumn | pa.Scalar | None:
        match expr:
            case Literal(scalar):
                with suppress(pa.ArrowInvalid):
                    return scalar.cast(type)
                return None
            case Column(path):
                value: ColumnRef | ComputedColumn = self.query.column(path)
            case _ if expr.columns():
                value = self._compute(expr, label(expr))
            case _:
                return None
        return value if plain_type(value.type) == type else None

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
    """Whether the result is always NULL or 0, since a column has Arrow's null type."""
    if aggregate.function in ("count", "udaf"):
        return False
    columns = aggregate.columns if aggregate.function == "count_distinct" else aggregate.columns[:1]
    return any(pa.types.is_null(plain_type(measures.ref(column).type)) for column in columns)


def _nulls(aggregate: Aggregate) -> BoundOutput:
    value = pa.scalar(0 if aggregate.function in ("approx_distinct", "count_distinct") else None)
    return BoundOutput(aggregate, 0, lambda counts: pa.repeat(value, len(counts)))


# -- one binder per function -------------------------------------------------------------------


def _count(measures: _Measures, aggregate: Aggregate) -> BoundOutput:
    if not aggregate.columns:
        return BoundOutput(aggregate, 0, pa.array)
    column = aggregate.columns[0]
    if isinstance(column, Expr) and not column.columns():
        # A constant, such as the condition of count_if(true): it counts all rows or none.
        factor = int(measures.constant(column).is_valid)
        return BoundOutput(aggregate, 0, lambda counts: pa.array(counts * factor))
    ref = measures.ref(column)
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


def _count_distinct(measures: _Measures, aggregate: Aggregate) -> BoundOutput:
    refs = [measures.ref(column) for column in aggregate.columns]
    for ref in refs:
        if pa.types.is_nested(plain_type(ref.type)):
            raise TypeMismatchError(
                f"distinct values of type {type_name(ref.type)} can't be counted",
                column=ref.name,
                hint="use one of its fields",
            )
    paths, types = tuple(ref.path for ref in refs), tuple(ref.type for ref in refs)
    measure = measures.other(distinct.Distinct(paths, types, aggregate.name, aggregate.options))
    return BoundOutput(aggregate, measure, distinct.distinct_counts)


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
    names = tuple(map(label, aggregate.columns))
    measure = custom.Custom(paths, names, implementation, aggregate.name)
    return BoundOutput(aggregate, measures.other(measure), partial(custom.finish_custom, measure, type=type))


def _check_ordered(ref: ColumnRef, aggregate: Aggregate) -> None:
    if not is_ordered(ref.type):
        raise TypeMismatchError(
            f"{aggregate.name} needs an ordered column, got {type_name(ref.type)}",
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
    "count_distinct": _count_distinct,
    "approx_distinct": _approx_distinct,
    "quantile": _quantile,
    "approx_quantile": _approx_quantile,
    "histogram": _histogram,
    "first": partial(_pick, last=False),
    "last": partial(_pick, last=True),
    "udaf": _udaf,
}
