"""Compiles a predicate and a schema to a row filter.

Exact leaves of the IR are evaluated by set membership. Computed values (arithmetic, casts, functions) are
bound in the IR as separate columns, so literals are coerced by the same rules. Conditions that the IR can't
express are evaluated from the tree. Modules for computations (casts, functions, strings, pairs) are imported
on demand, since most filters only compare.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from skipstone.core.arrays import Array, plain_type
from skipstone.core.domain.keys import Kind, is_binary, is_ordered, is_text, key_space, storage_type
from skipstone.core.filter.conditions import (
    Arguments,
    BatchRows,
    ConditionNode,
    Path,
    Series,
    TruthMask,
    all_of,
    any_of,
    not_computable,
)
from skipstone.core.filter.members import is_exact, leaf_test
from skipstone.core.ir import Compiled, compile_predicate
from skipstone.core.ir.bind import Binder
from skipstone.core.ir.compile import NODE_PASSES, PREDICATE_PASSES
from skipstone.core.ir.literals import fixed_offset, float_readings
from skipstone.core.ir.lower import Lowering, lower_node, negate
from skipstone.core.ir.nodes import (
    AndNode,
    ColumnComparison,
    ColumnRef,
    ConstantNode,
    IsNode,
    Leaf,
    Node,
    NotJudgeable,
    OrNode,
    Value,
)
from skipstone.core.plain import type_name
from skipstone.errors import NotExpressibleError, PredicateError, SkipstoneError, did_you_mean
from skipstone.predicate import tree
from skipstone.predicate.tree import Predicate, conjunction, disjunction, too_deep

_INT32 = 2**31
"""An integer constant in this range is an INT in Spark, regardless of its Arrow type."""
_COMPUTED = "\0"
"""First part of the path of a computed value in the IR; no column has this name."""


@dataclass(frozen=True, slots=True)
class RowBinder(Binder):
    """Binds computed values as separate columns."""

    computed: dict[Path, Series] = field(default_factory=dict)
    read: dict[Path, pa.DataType] = field(default_factory=dict)
    """Types of the columns read."""
    planned: dict[tuple[object, ...], Series] = field(default_factory=dict)
    """Planned values by key, so that a repeated value is planned once."""

    def column(self, path: Path) -> ColumnRef:
        """Resolve the column at ``path`` and record that it is read."""
        ref = Binder.column(self, path)
        self.read[ref.path] = ref.type
        return ref

    def operand(self, expr: tree.Expr) -> Value | ColumnRef:
        """Bind to a constant, a column, or a computed value under a generated name."""
        if isinstance(expr, tree.Column):
            return self.column(expr.path)
        if not expr.columns():
            return self.constant(expr)
        series = self.series(expr)
        path = (_COMPUTED, str(expr.key()))
        self.computed[path] = series
        return ColumnRef(path, series.type)

    def constant(self, expr: tree.Expr) -> Value:
        """Fold an expression without columns, or compute it for one row."""
        try:
            folded = Binder.operand(self, expr)
            assert isinstance(folded, Value)
        except NotJudgeable:
            one = BatchRows(pa.record_batch([pa.nulls(1)], ["none"]), {})
            zone = expr.zone if isinstance(expr, tree.Call | tree.Cast) else "UTC"
            return Value(self.series(expr).compute(one)[0], zone)
        return folded

    def values_of(self, ref: ColumnRef) -> Series:
        """The series of a column reference."""
        computed = self.computed.get(ref.path)
        if computed is not None:
            return computed
        path = ref.path
        return Series(plain_type(ref.type), lambda rows: rows.column(path))

    # -- values ------------------------------------------------------------------------------

    def series(self, expr: tree.Expr) -> Series:
        """Plan a value expression."""
        key = expr.key()
        series = self.planned.get(key)
        if series is None:
            series = self.planned[key] = self._series(expr)
        return series

    def _series(self, expr: tree.Expr) -> Series:
        match expr:
            case tree.Column(path):
                return self.values_of(self.column(path))
            case tree.Literal(scalar):
                return _repeat(scalar)
            case tree.Cast(arg):
                from skipstone.core.filter.casts import cast

                return cast(expr, self.series(arg))
            case tree.Call():
                return self._call(expr)
            case Predicate():
                condition = Planner(self).condition(expr)
                return Series(
                    pa.bool_(), lambda rows: condition.truth(rows).array(), condition.risky, condition.cost
                )
        raise not_computable(expr, "not a value expression")

    def _call(self, call: tree.Call) -> Series:
        if call.name == "nullif" and len(call.args) == 2:
            same = tree.Compare("=", *call.args, call.zone)
            return self._call(tree.Call("if", (same, tree.Literal(pa.scalar(None)), call.args[0]), call.zone))
        from skipstone.core.filter.functions import ALIASES, FUNCTIONS

        call = tree.Call(ALIASES.get(call.name, call.name), call.args, call.zone)
        build = FUNCTIONS.get(call.name)
        if build is None:
            raise _unknown_function(call, (*FUNCTIONS, *ALIASES))
        series, constants = [], []
        for arg in call.args:
            scalar = None if arg.columns() else self.constant(arg).scalar
            scalar = scalar if scalar is None else _narrow(scalar)
            constants.append(scalar)
            series.append(self.series(arg) if scalar is None else _repeat(scalar))
        return build(Arguments(call, tuple(series), tuple(constants)))


_SYNTAX = frozenset({"interval", "lambda", "getfield", "getitem"})


def _unknown_function(call: tree.Call, names: Sequence[str]) -> NotExpressibleError:
    # Syntax that has no function of its own, or another dialect's function.
    is_name = call.name.replace("_", "").isalnum() and call.name not in _SYNTAX
    if not is_name:
        return not_computable(call, "the function is not supported")
    from skipstone.predicate.sql.read import SPECIAL

    if call.name in SPECIAL or call.name == "extract":
        return not_computable(call, "the arguments are not supported")
    error = not_computable(call, f"unknown function {call.name!r}")
    error.hint = did_you_mean(call.name, names, error.hint or "")
    return error


def _narrow(scalar: pa.Scalar) -> pa.Scalar:
    small = pa.types.is_int64(scalar.type) and scalar.is_valid and -_INT32 <= scalar.as_py() < _INT32
    return scalar.cast(pa.int32()) if small else scalar


def _repeat(scalar: pa.Scalar) -> Series:
    if isinstance(scalar, pa.ExtensionScalar):
        scalar = pa.scalar(None, scalar.type.storage_type) if not scalar.is_valid else scalar.value
    type = plain_type(scalar.type)
    value = scalar if scalar.type == type else scalar.cast(type)
    return Series(type, lambda rows: pa.repeat(value, rows.count))


# -- conditions --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Planner:
    """Plans predicates as conditions."""

    binder: RowBinder

    def condition(self, predicate: Predicate) -> ConditionNode:
        """Plan ``predicate``."""
        passes = (_expand, *PREDICATE_PASSES)
        rewritten = functools.reduce(lambda p, rewrite: rewrite(p), passes, predicate)
        node = functools.reduce(lambda n, rewrite: rewrite(n), NODE_PASSES, self._node(rewritten))
        return self._plan(node)

    def from_exact(self, node: Node) -> ConditionNode | None:
        """Plan the IR that was compiled for metadata if it is exact, otherwise return None."""
        if not _is_exact(node):
            return None
        for ref in node.refs():
            # Bound to the same schema already.
            self.binder.read[ref.path] = ref.type
        return self._plan(node)

    # -- to IR -------------------------------------------------------------------------------

    def _node(self, predicate: Predicate) -> Node:
        match predicate:
            case tree.And(args):
                return AndNode(tuple(self._node(a) for a in args))
            case tree.Or(args):
                return OrNode(tuple(self._node(a) for a in args))
            case tree.Not(arg):
                return negate(self._node(arg))
            case tree.Truth(arg, value):
                return IsNode(self._node(arg), value)
            case tree.IsNull(Predicate() as arg):
                return IsNode(self._node(arg), None)
            case tree.Opaque(args):
                paths = tuple(self.binder.column(a.path).path for a in args)
                return ConditionNode(opaque_test(predicate, paths), cost=1_000)
        return self._leaf(predicate)

    def _leaf(self, predicate: Predicate) -> Node:
        """Lower a single test to IR if that is exact, otherwise plan it from the tree."""
        null = self._null_column_test(predicate)
        if null is not None:
            return null
        predicate = self._as_double(predicate)
        try:
            node = lower_node(predicate, Lowering(self.binder))
        except NotJudgeable as error:
            return self._computed(predicate, error.detail)
        if isinstance(node, Leaf) and not is_exact(node):
            return self._computed(predicate, "no exact evaluation")
        return node

    def _null_column_test(self, predicate: Predicate) -> Node | None:
        """Plan a test of a column of Arrow's null type, in which every value is NULL."""
        match predicate:
            case tree.IsNull():
                return None
            case tree.IsIn(_, values) if len(values) == 0:
                return None
            case tree.Compare("<=>", left, right):
                for one, other in ((left, right), (right, left)):
                    if self._is_null_column(one):
                        return self._node(tree.IsNull(other))
                return None
            case tree.Compare(_, left, right):
                return (
                    ConstantNode(None) if self._is_null_column(left) or self._is_null_column(right) else None
                )
            case (
                tree.IsIn(arg)
                | tree.IsNan(arg)
                | tree.Match(_, arg)
                | tree.Like(arg)
                | tree.BooleanValue(arg)
            ):
                return ConstantNode(None) if self._is_null_column(arg) else None
        return None

    def _is_null_column(self, expr: tree.Expr) -> bool:
        if isinstance(expr, tree.Literal):
            return False
        operand = self.binder.operand(expr)
        return isinstance(operand, ColumnRef) and pa.types.is_null(storage_type(operand.out))

    def _as_double(self, predicate: Predicate) -> Predicate:
        """Convert literals compared with a float column to doubles, as Spark's ANSI mode does."""
        match predicate:
            case tree.Compare(op, left, right):
                sides = self.binder.operand(left), self.binder.operand(right)
                for at in (0, 1):
                    column, value = sides[at], sides[1 - at]
                    if isinstance(column, ColumnRef) and isinstance(value, Value) and _is_float(column):
                        literal = _double(column, value.scalar)
                        return tree.Compare(op, *((left, literal) if at == 0 else (literal, right)))
            case tree.IsIn(arg, values, zone):
                column = self.binder.operand(arg)
                floats = pa.types.is_floating(storage_type(values.type))
                if isinstance(column, ColumnRef) and _is_float(column) and not floats:
                    doubles = [_double(column, scalar).scalar.as_py() for scalar in values]
                    return tree.IsIn(arg, pa.array(doubles, pa.float64()), zone)
        return predicate

    # -- from the tree -----------------------------------------------------------------------

    def _computed(self, predicate: Predicate, why: str) -> Node:
        match predicate:
            case tree.Match(_, arg):
                from skipstone.core.filter.strings import match_test

                return self._string_test(arg, lambda type: match_test(predicate, type))
            case tree.Like(arg):
                from skipstone.core.filter.strings import like_test

                return self._string_test(arg, lambda type: like_test(predicate, type), cost=40)
            case tree.IsNan(arg, False):
                return self._leaf(tree.IsNan(tree.Cast(arg, pa.float64())))
            case tree.Compare(op, left, right, zone):
                recast = self._recast(left, right, zone) or self._recast(right, left, zone, swap=True)
                if recast is not None:
                    return self._leaf(tree.Compare(op, *recast, zone))
                return self._pair(predicate)
            case tree.IsIn(arg, values, zone):
                recast = self._recast(arg, tree.Literal(pa.scalar(None, values.type), zone), zone)
                if recast is not None:
                    return self._leaf(tree.IsIn(recast[0], values, zone))
        raise not_computable(predicate, why)

    def _string_test(
        self, arg: tree.Expr, make: Callable[[pa.DataType], Callable[[pa.Array], TruthMask]], cost: int = 20
    ) -> ConditionNode:
        series = self.binder.series(arg)
        if not (is_text(series.type) or is_binary(series.type)):
            from skipstone.core.filter.casts import cast

            series = cast(tree.Cast(arg, pa.string()), series)
        test = make(series.type)
        return ConditionNode(lambda rows: test(series.compute(rows)), cost + series.cost, series.risky)

    def _recast(
        self, arg: tree.Expr, other: tree.Expr, zone: str, *, swap: bool = False
    ) -> tuple[tree.Expr, tree.Expr] | None:
        """Cast ``arg`` to the type of the other side if Spark casts the column row by row."""
        from skipstone.core.filter.arithmetic import is_number

        source, target = (storage_type(self.binder.series(e).type) for e in (arg, other))
        zone = other.zone if isinstance(other, tree.Literal) else zone
        target_type = None
        if is_text(source):
            target_type = _string_target(target)
        elif pa.types.is_floating(target) and is_number(source) and not pa.types.is_floating(source):
            target_type = pa.float64()
        elif arg.columns() and pa.types.is_timestamp(target) and target.tz:
            # Two columns in UTC are compared without a cast, which could overflow.
            target_type = _instant_of(source) if not other.columns() or fixed_offset(zone) != 0 else None
        if target_type is None:
            return None
        cast = tree.Cast(arg, target_type, zone)
        return (other, cast) if swap else (cast, other)

    def _pair(self, predicate: tree.Compare) -> ConditionNode:
        left, right = self.binder.series(predicate.left), self.binder.series(predicate.right)
        condition = _comparison(predicate.op, left, right)
        if condition is None:
            raise not_computable(
                predicate, f"{type_name(left.type)} and {type_name(right.type)} can't be compared"
            )
        return condition

    # -- from IR -----------------------------------------------------------------------------

    def _plan(self, node: Node) -> ConditionNode:
        match node:
            case ConditionNode():
                return node
            case AndNode(args):
                return all_of([self._plan(a) for a in args])
            case OrNode(args):
                return any_of([self._plan(a) for a in args])
            case IsNode(arg, value, negated):
                return self._plan(arg).test(value, negated=negated)
            case ConstantNode(value):
                return ConditionNode(lambda rows: TruthMask.constant(rows.count, value))
            case ColumnComparison(op, left, right):
                return self._plan_pair(op, left, right)
            case Leaf():
                return self._plan_leaf(node)
        raise AssertionError(f"no plan for {type(node).__name__}")

    def _plan_leaf(self, leaf: Leaf) -> ConditionNode:
        test = leaf_test(leaf)
        computed = self.binder.computed.get(leaf.ref.path)
        if computed is not None:
            return ConditionNode(lambda rows: test(computed.compute(rows)), 1 + computed.cost, computed.risky)
        path = leaf.ref.path
        if isinstance(leaf.ref.type, pa.DictionaryType):
            return ConditionNode(lambda rows: test(rows.raw(path)), 1)
        return ConditionNode(lambda rows: test(rows.column(path)), 1)

    def _plan_pair(self, op: tree.CompareOp, left: ColumnRef, right: ColumnRef) -> ConditionNode:
        condition = _comparison(op, self.binder.values_of(left), self.binder.values_of(right))
        assert condition is not None
        return condition


def _comparison(op: tree.CompareOp, left: Series, right: Series) -> ConditionNode | None:
    """Compare two values row by row; None if their types are not comparable."""
    from skipstone.core.filter.pairs import compare, order_of

    order = order_of(left.type, right.type)
    if order is None:
        return None
    return ConditionNode(
        lambda rows: compare(op, order, left.compute(rows), right.compute(rows)),
        2 + left.cost + right.cost,
        left.risky or right.risky,
    )


def _is_exact(node: Node) -> bool:
    match node:
        case Leaf(ref):
            return not ref.via and is_ordered(ref.type) and is_exact(node)
        case AndNode(args) | OrNode(args):
            return all(_is_exact(arg) for arg in args)
        case IsNode(arg):
            return _is_exact(arg)
    return False


def _expand(predicate: Predicate) -> Predicate:
    """Expand BETWEEN to two comparisons."""
    match predicate:
        case tree.And(args):
            return conjunction(_expand(a) for a in args)
        case tree.Or(args):
            return disjunction(_expand(a) for a in args)
        case tree.Not(arg):
            return tree.Not(_expand(arg))
        case tree.Truth(arg, value):
            return tree.Truth(_expand(arg), value)
        case tree.IsNull(Predicate() as arg):
            return tree.Truth(_expand(arg), None)
        case tree.Between():
            return tree.And(predicate.ends)
    return predicate


def _is_float(ref: ColumnRef) -> bool:
    return key_space(ref.out).kind is Kind.FLOAT


def _double(ref: ColumnRef, scalar: pa.Scalar) -> tree.Literal:
    if not scalar.is_valid or pa.types.is_floating(storage_type(scalar.type)):
        return tree.Literal(scalar)
    return tree.Literal(float_readings(ref.out, scalar)[0])


def _instant_of(source: pa.DataType) -> pa.DataType | None:
    """Type to which dates and wall-clock times are cast when compared with instants."""
    if pa.types.is_date(source):
        return pa.timestamp("us", "UTC")
    wall = pa.types.is_timestamp(source) and source.tz is None
    return pa.timestamp(source.unit, "UTC") if wall else None


def _string_target(target: pa.DataType) -> pa.DataType | None:
    """Type to which a string is cast when compared with another type."""
    if pa.types.is_integer(target):
        return pa.int64()
    if pa.types.is_floating(target) or pa.types.is_decimal(target):
        return pa.float64()
    if pa.types.is_boolean(target) or pa.types.is_timestamp(target):
        return target
    return pa.date32() if pa.types.is_date(target) else None


@contextlib.contextmanager
def _errors_of(expr: tree.Expr) -> Iterator[None]:
    """Convert errors of Arrow and stack overflows to errors that name ``expr``."""
    try:
        yield
    except RecursionError:
        raise too_deep() from None
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise PredicateError(f"{expr} failed: {error}") from error


class RowFilter:
    """Evaluates a predicate on the rows of a batch.

    A filter is stateless, so threads can share it; it pickles as its arguments.

    >>> import pyarrow as pa, skipstone as sk
    >>> RowFilter(sk.parse("a > 1"), pa.schema({"a": pa.int64()})).mask(pa.table({"a": [1, 2, None]}))
    array([False,  True, False])
    """

    __slots__ = ("_condition", "_types", "case_sensitive", "columns", "predicate", "schema")

    def __init__(
        self,
        predicate: Predicate,
        schema: pa.Schema,
        *,
        case_sensitive: bool = True,
        compiled: Compiled | None = None,
    ) -> None:
        if tree.has_calls(predicate):
            from skipstone.core.filter.constants import read_clock, settle_value

            predicate = tree.condition(
                settle_value(read_clock(predicate), schema, case_sensitive=case_sensitive)
            )
        self.predicate = predicate
        self.schema = schema
        self.case_sensitive = case_sensitive
        # Compiled first, so that both raise the same errors.
        compiled_predicate = compiled or compile_predicate(predicate, schema, case_sensitive=case_sensitive)
        binder = RowBinder(schema, case_sensitive)
        planner = Planner(binder)
        with _errors_of(predicate):
            self._condition = planner.from_exact(compiled_predicate.node) or planner.condition(predicate)
        self._types = binder.read
        self.columns: tuple[Path, ...] = tuple(binder.read)

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (self.predicate, self.schema, self.case_sensitive)

    def __repr__(self) -> str:
        return f"RowFilter({str(self.predicate)!r})"

    def mask(self, batch: pa.RecordBatch | pa.Table) -> Array:
        """Mask of rows where the predicate is TRUE (neither FALSE nor NULL)."""
        return _concat([mask.true for mask in self._evaluate(batch)])

    def truth(self, batch: pa.RecordBatch | pa.Table) -> tuple[Array, Array]:
        """Masks of rows where the predicate is TRUE, and where it is NULL."""
        masks = self._evaluate(batch)
        null = [np.zeros(len(a), dtype=bool) if a.null is None else a.null for a in masks]
        return _concat([a.true for a in masks]), _concat(null)

    def _evaluate(self, batch: pa.RecordBatch | pa.Table) -> list[TruthMask]:
        parts = [batch] if isinstance(batch, pa.RecordBatch) else batch.to_batches()
        with _errors_of(self.predicate):
            return [self._condition.truth(BatchRows(part, self._types)) for part in parts]


def _concat(parts: list[Array]) -> Array:
    return parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, dtype=bool), *parts])


def _restore(predicate: Predicate, schema: pa.Schema, case_sensitive: bool) -> RowFilter:
    return RowFilter(predicate, schema, case_sensitive=case_sensitive)


class RowValues:
    """Evaluates value expressions on the rows of a table, with Spark SQL's semantics and types.

    Like a filter it is stateless, and pickles as its arguments.

    >>> import pyarrow as pa, skipstone as sk
    >>> values = RowValues({"double": sk.col("a") * 2}, pa.schema({"a": pa.int64()}))
    >>> values.append_to(pa.table({"a": [1, None]}))["double"].to_pylist()
    [2, None]
    """

    __slots__ = ("_series", "_types", "case_sensitive", "columns", "expressions", "schema", "types")

    def __init__(
        self, expressions: Mapping[str, tree.Expr], schema: pa.Schema, *, case_sensitive: bool = True
    ) -> None:
        self.expressions = dict(expressions)
        self.schema = schema
        self.case_sensitive = case_sensitive
        binder = RowBinder(schema, case_sensitive)
        self._series: dict[str, Series] = {}
        for name, expr in self.expressions.items():
            with _errors_of(expr):
                self._series[name] = binder.series(expr)
        self._types = binder.read
        self.columns: tuple[Path, ...] = tuple(binder.read)
        """Columns read."""
        self.types = {name: series.type for name, series in self._series.items()}
        """Types of the values, by name."""

    def __reduce__(self) -> tuple[object, ...]:
        return _restore_values, (self.expressions, self.schema, self.case_sensitive)

    def compute(self, table: pa.Table) -> dict[str, pa.ChunkedArray]:
        """The values for the rows of a table, by name."""
        batches = table.to_batches()
        if not table.num_columns:  # rows without columns, for constants
            batches = [pa.record_batch([pa.nulls(table.num_rows)], ["none"])]
        rows = [BatchRows(batch, self._types) for batch in batches]
        values = {}
        for name, series in self._series.items():
            with _errors_of(self.expressions[name]):
                values[name] = pa.chunked_array([series.compute(batch) for batch in rows], series.type)
        return values

    def append_to(self, table: pa.Table) -> pa.Table:
        """The table with one more column for each expression."""
        for name, column in self.compute(table).items():
            table = table.append_column(name, column)
        return table


def _restore_values(
    expressions: Mapping[str, tree.Expr], schema: pa.Schema, case_sensitive: bool
) -> RowValues:
    return RowValues(expressions, schema, case_sensitive=case_sensitive)


# -- user-defined functions ---------------------------------------------------------------------


def opaque_test(leaf: tree.Opaque, paths: tuple[Path, ...]) -> Callable[[BatchRows], TruthMask]:
    """Evaluate the leaf's function on the columns at ``paths``, named as in the leaf."""
    evaluate = leaf.evaluate
    if evaluate is None:
        raise NotExpressibleError(
            f"{leaf} can't be evaluated: the condition has no Python function",
            hint="write the condition as SQL, or use skipstone.udf",
        )
    names = [".".join(arg.path) for arg in leaf.args]

    def truth(rows: BatchRows) -> TruthMask:
        arrays = [rows.raw(path) for path in paths]
        if arrays:
            batch = pa.record_batch(arrays, names)
        else:  # a batch without columns still has rows
            batch = pa.record_batch(pa.StructArray.from_arrays([pa.nulls(rows.count)], ["none"])).select([])
        try:
            mask = evaluate(batch)
        except SkipstoneError:
            raise
        except Exception as error:
            raise PredicateError(f"{leaf} failed: {type(error).__name__}: {error}") from error
        return TruthMask.of(_check_mask(leaf, mask, rows.count))

    return truth


_MASK_HINT = "return a pyarrow array of one boolean per row"


def _check_mask(leaf: tree.Opaque, mask: pa.Array, rows: int) -> pa.Array:
    if isinstance(mask, pa.ChunkedArray):
        mask = mask.combine_chunks()
    if not isinstance(mask, pa.Array):
        raise PredicateError(f"{leaf} returned a {type(mask).__name__}", hint=_MASK_HINT)
    if pa.types.is_null(mask.type):
        mask = mask.cast(pa.bool_())
    if not pa.types.is_boolean(mask.type):
        raise PredicateError(f"{leaf} returned {type_name(mask.type)}", hint=_MASK_HINT)
    if len(mask) != rows:
        raise PredicateError(f"{leaf} returned {len(mask)} values for {rows} rows", hint=_MASK_HINT)
    return mask
