"""From a predicate and a schema to a filter of rows.

Rows are units too: what the IR says exactly about a column (for which values a leaf is TRUE, FALSE and NULL)
is tested by set membership. A computed value (a sum, a cast, a function) is given to the IR as a column of
its own, so literals meet it by the same rules. What the IR can't say at all is computed from the tree.
What computes (casts, functions, texts, pairs) is imported where it is needed: most filters only compare.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
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
from skipstone.core.ir.literals import float_readings
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
from skipstone.errors import NotExpressibleError, PredicateError, SkipstoneError
from skipstone.predicate import tree
from skipstone.predicate.tree import Predicate, conjunction, disjunction, too_deep

_INT32 = 2**31
"""An integer constant in this range is an INT in Spark, whatever Arrow type it came in."""
_COMPUTED = "\0"
"""First part of the path under which the IR knows a computed value; no column has such a name."""


@dataclass(frozen=True, slots=True)
class RowBinder(Binder):
    """Binds what metadata can't look through as a column of its own: each value that is computed."""

    computed: dict[Path, Series] = field(default_factory=dict)
    found: dict[Path, pa.DataType] = field(default_factory=dict)
    made: dict[tuple[object, ...], Series] = field(default_factory=dict)
    """What was planned before, so that a value used in many places is planned once."""

    def column(self, path: Path) -> ColumnRef:
        """The column at ``path``, noted as one that is read."""
        ref = Binder.column(self, path)
        self.found[ref.path] = ref.type
        return ref

    def operand(self, expr: tree.Expr) -> Value | ColumnRef:
        """A constant, a column, or a computed value under a name of its own."""
        if isinstance(expr, tree.Column):
            return self.column(expr.path)
        if not expr.columns():
            return self.constant(expr)
        series = self.series(expr)
        path = (_COMPUTED, str(expr.key()))
        self.computed[path] = series
        return ColumnRef(path, series.type)

    def constant(self, expr: tree.Expr) -> Value:
        """An expression without columns, folded by the IR's rules or computed for one row."""
        try:
            folded = Binder.operand(self, expr)
            assert isinstance(folded, Value)
        except NotJudgeable:
            one = BatchRows(pa.record_batch([pa.nulls(1)], ["none"]), {})
            return Value(self.series(expr).compute(one)[0], "UTC")
        return folded

    def values_of(self, ref: ColumnRef) -> Series:
        """How the values behind a reference are computed."""
        computed = self.computed.get(ref.path)
        if computed is not None:
            return computed
        path = ref.path
        return Series(plain_type(ref.type), lambda rows: rows.column(path))

    # -- values ------------------------------------------------------------------------------

    def series(self, expr: tree.Expr) -> Series:
        """Any value expression, computed for each row."""
        key = expr.key()
        found = self.made.get(key)
        if found is None:
            found = self.made[key] = self._series(expr)
        return found

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
        raise not_computable(expr, "it is no value")

    def _call(self, call: tree.Call) -> Series:
        if call.name == "nullif" and len(call.args) == 2:
            same = tree.Compare("=", *call.args)
            return self._call(tree.Call("if", (same, tree.Literal(pa.scalar(None)), call.args[0]), call.zone))
        from skipstone.core.filter.functions import ALIASES, FUNCTIONS

        call = tree.Call(ALIASES.get(call.name, call.name), call.args, call.zone)
        build = FUNCTIONS.get(call.name)
        if build is None:
            raise not_computable(call, "no function of that name can be computed here")
        series, constants = [], []
        for arg in call.args:
            scalar = None if arg.columns() else self.constant(arg).scalar
            scalar = scalar if scalar is None else _narrow(scalar)
            constants.append(scalar)
            series.append(self.series(arg) if scalar is None else _repeat(scalar))
        return build(Arguments(call, tuple(series), tuple(constants)))


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
    """Turns predicates into conditions over one binder's columns."""

    binder: RowBinder

    def condition(self, predicate: Predicate) -> ConditionNode:
        """The condition that answers ``predicate``."""
        passes = (_expand, *PREDICATE_PASSES)
        rewritten = functools.reduce(lambda p, rewrite: rewrite(p), passes, predicate)
        node = functools.reduce(lambda n, rewrite: rewrite(n), NODE_PASSES, self._node(rewritten))
        return self._plan(node)

    def from_exact(self, node: Node) -> ConditionNode | None:
        """The condition of IR made for metadata, if that says all there is to say about plain columns."""
        if not _is_exact(node):
            return None
        for ref in node.refs():
            self.binder.column(ref.path)
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
        """A single test: by the IR where that is exact, else from the tree."""
        null = self._of_nothing(predicate)
        if null is not None:
            return null
        predicate = self._as_double(predicate)
        try:
            node = lower_node(predicate, Lowering(self.binder))
        except NotJudgeable as error:
            return self._computed(predicate, error.detail)
        if isinstance(node, Leaf) and not is_exact(node):
            return self._computed(predicate, "metadata can't tell")
        return node

    def _of_nothing(self, predicate: Predicate) -> Node | None:
        """Tests of a column of Arrow's null type: every value is NULL."""
        match predicate:
            case tree.IsNull():
                return None
            case tree.IsIn(_, values) if len(values) == 0:
                return None
            case tree.Compare("<=>", left, right):
                for one, other in ((left, right), (right, left)):
                    if self._is_nothing(one):
                        return self._node(tree.IsNull(other))
                return None
            case tree.Compare(_, left, right):
                return ConstantNode(None) if self._is_nothing(left) or self._is_nothing(right) else None
            case tree.IsIn(arg) | tree.IsNan(arg) | tree.Match(_, arg) | tree.Like(arg) | tree.Holds(arg):
                return ConstantNode(None) if self._is_nothing(arg) else None
        return None

    def _is_nothing(self, expr: tree.Expr) -> bool:
        if isinstance(expr, tree.Literal):
            return False
        operand = self.binder.operand(expr)
        return isinstance(operand, ColumnRef) and pa.types.is_null(storage_type(operand.out))

    def _as_double(self, predicate: Predicate) -> Predicate:
        """A literal beside a float column as the double that ANSI Spark compares it as."""
        match predicate:
            case tree.Compare(op, left, right):
                sides = self.binder.operand(left), self.binder.operand(right)
                for at in (0, 1):
                    column, value = sides[at], sides[1 - at]
                    if isinstance(column, ColumnRef) and isinstance(value, Value) and _is_float(column):
                        made = _double(column, value.scalar)
                        return tree.Compare(op, *((left, made) if at == 0 else (made, right)))
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

                return self._tested(arg, lambda type: match_test(predicate, type))
            case tree.Like(arg):
                from skipstone.core.filter.strings import like_test

                return self._tested(arg, lambda type: like_test(predicate, type), cost=40)
            case tree.Compare(op, left, right):
                recast = self._recast(left, right) or self._recast(right, left, turn=True)
                if recast is not None:
                    return self._leaf(tree.Compare(op, *recast))
                return self._pair(predicate)
            case tree.IsIn(arg, values, zone):
                recast = self._recast(arg, tree.Literal(pa.scalar(None, values.type), zone))
                if recast is not None:
                    return self._leaf(tree.IsIn(recast[0], values, zone))
        raise not_computable(predicate, why)

    def _tested(
        self, arg: tree.Expr, make: Callable[[pa.DataType], Callable[[pa.Array], TruthMask]], cost: int = 20
    ) -> ConditionNode:
        series = self.binder.series(arg)
        if not (is_text(series.type) or is_binary(series.type)):
            from skipstone.core.filter.casts import cast

            series = cast(tree.Cast(arg, pa.string()), series)
        test = make(series.type)
        return ConditionNode(lambda rows: test(series.compute(rows)), cost + series.cost, series.risky)

    def _recast(
        self, arg: tree.Expr, other: tree.Expr, *, turn: bool = False
    ) -> tuple[tree.Expr, tree.Expr] | None:
        """``arg`` cast to the other side's type, where Spark casts the column row by row."""
        from skipstone.core.filter.arithmetic import is_number

        source, target = (storage_type(self.binder.series(e).type) for e in (arg, other))
        zone = other.zone if isinstance(other, tree.Literal) else "UTC"
        wanted = None
        if is_text(source):
            wanted = _text_meets(target)
        elif pa.types.is_floating(target) and is_number(source) and not pa.types.is_floating(source):
            wanted = pa.float64()
        elif arg.columns() and not other.columns() and pa.types.is_timestamp(target) and target.tz:
            wanted = _instant_of(source)
        if wanted is None:
            return None
        made = tree.Cast(arg, wanted, zone)
        return (other, made) if turn else (made, other)

    def _pair(self, predicate: tree.Compare) -> ConditionNode:
        left, right = self.binder.series(predicate.left), self.binder.series(predicate.right)
        condition = _comparison(predicate.op, left, right)
        if condition is None:
            raise not_computable(predicate, f"{left.type} and {right.type} can't be compared here")
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
        made = self.binder.computed.get(leaf.ref.path)
        if made is not None:
            return ConditionNode(lambda rows: test(made.compute(rows)), 1 + made.cost, made.risky)
        path = leaf.ref.path
        if isinstance(leaf.ref.type, pa.DictionaryType):
            return ConditionNode(lambda rows: test(rows.raw(path)), 1)
        return ConditionNode(lambda rows: test(rows.column(path)), 1)

    def _plan_pair(self, op: tree.CompareOp, left: ColumnRef, right: ColumnRef) -> ConditionNode:
        condition = _comparison(op, self.binder.values_of(left), self.binder.values_of(right))
        assert condition is not None
        return condition


def _comparison(op: tree.CompareOp, left: Series, right: Series) -> ConditionNode | None:
    """Two computed values compared row by row; None if their types have no common order."""
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
    """BETWEEN as its two comparisons, wherever it stands."""
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
        case tree.Between(arg, low, high, low_in, high_in):
            above = tree.Compare(">=" if low_in else ">", arg, low)
            return tree.And((above, tree.Compare("<=" if high_in else "<", arg, high)))
    return predicate


def _is_float(ref: ColumnRef) -> bool:
    return key_space(ref.out).kind is Kind.FLOAT


def _double(ref: ColumnRef, scalar: pa.Scalar) -> tree.Literal:
    if not scalar.is_valid or pa.types.is_floating(storage_type(scalar.type)):
        return tree.Literal(scalar)
    return tree.Literal(float_readings(ref.out, scalar)[0])


def _instant_of(source: pa.DataType) -> pa.DataType | None:
    """The instants that dates or wall-clock times become when they meet one."""
    if pa.types.is_date(source):
        return pa.timestamp("us", "UTC")
    wall = pa.types.is_timestamp(source) and source.tz is None
    return pa.timestamp(source.unit, "UTC") if wall else None


def _text_meets(target: pa.DataType) -> pa.DataType | None:
    """The type a text is cast to when it meets a value of another type."""
    if pa.types.is_integer(target):
        return pa.int64()
    if pa.types.is_floating(target) or pa.types.is_decimal(target):
        return pa.float64()
    if pa.types.is_boolean(target) or pa.types.is_timestamp(target):
        return target
    return pa.date32() if pa.types.is_date(target) else None


class RowFilter:
    """Says for each row of a batch whether a predicate is TRUE, FALSE or NULL.

    It keeps no state between calls, so threads may share one; it pickles as its arguments.

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
        self.predicate = predicate
        self.schema = schema
        self.case_sensitive = case_sensitive
        # Whatever the compiler refuses is refused here in the same words.
        known = compiled or compile_predicate(predicate, schema, case_sensitive=case_sensitive)
        binder = RowBinder(schema, case_sensitive)
        planner = Planner(binder)
        try:
            self._condition = planner.from_exact(known.node) or planner.condition(predicate)
        except RecursionError:
            raise too_deep() from None
        self._types = binder.found
        self.columns: tuple[Path, ...] = tuple(binder.found)

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (self.predicate, self.schema, self.case_sensitive)

    def __repr__(self) -> str:
        return f"RowFilter({str(self.predicate)!r})"

    def mask(self, batch: pa.RecordBatch | pa.Table) -> Array:
        """True exactly where the predicate is TRUE: not where it is FALSE, not where it is NULL."""
        return _concat([answer.true for answer in self._answers(batch)])

    def truth(self, batch: pa.RecordBatch | pa.Table) -> tuple[Array, Array]:
        """Where the predicate is TRUE, and where it is NULL."""
        answers = self._answers(batch)
        null = [np.zeros(len(a), dtype=bool) if a.null is None else a.null for a in answers]
        return _concat([a.true for a in answers]), _concat(null)

    def _answers(self, batch: pa.RecordBatch | pa.Table) -> list[TruthMask]:
        """For each of its parts."""
        parts = [batch] if isinstance(batch, pa.RecordBatch) else batch.to_batches()
        try:
            return [self._condition.truth(BatchRows(part, self._types)) for part in parts]
        except RecursionError:
            raise too_deep() from None


def _concat(parts: list[Array]) -> Array:
    return parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, dtype=bool), *parts])


def _restore(predicate: Predicate, schema: pa.Schema, case_sensitive: bool) -> RowFilter:
    return RowFilter(predicate, schema, case_sensitive=case_sensitive)


# -- functions of the caller --------------------------------------------------------------------


def opaque_test(leaf: tree.Opaque, paths: tuple[Path, ...]) -> Callable[[BatchRows], TruthMask]:
    """Calls the leaf's function with the columns at ``paths``, named as the leaf names them."""
    evaluate = leaf.evaluate
    if evaluate is None:
        raise NotExpressibleError(
            f"the rows can't be tested for {leaf}: it came without a function that computes it",
            hint="write it as SQL text, or give the function with skipstone.udf",
        )
    names = [".".join(arg.path) for arg in leaf.args]

    def truth(rows: BatchRows) -> TruthMask:
        arrays = [rows.raw(path) for path in paths]
        if arrays:
            batch = pa.record_batch(arrays, names)
        else:  # a batch without columns still has rows
            batch = pa.record_batch(pa.StructArray.from_arrays([pa.nulls(rows.count)], ["none"])).select([])
        try:
            answer = evaluate(batch)
        except SkipstoneError:
            raise
        except Exception as error:
            raise PredicateError(f"{leaf} failed: {type(error).__name__}: {error}") from error
        return TruthMask.of(_check_mask(leaf, answer, rows.count))

    return truth


def _check_mask(leaf: tree.Opaque, answer: pa.Array, rows: int) -> pa.Array:
    if isinstance(answer, pa.ChunkedArray):
        answer = answer.combine_chunks()
    if not isinstance(answer, pa.Array):
        raise PredicateError(
            f"{leaf} gave a {type(answer).__name__}", hint="return a pyarrow array of booleans"
        )
    if pa.types.is_null(answer.type):
        answer = answer.cast(pa.bool_())
    if not pa.types.is_boolean(answer.type):
        raise PredicateError(f"{leaf} gave {answer.type}", hint="return a pyarrow array of booleans")
    if len(answer) != rows:
        raise PredicateError(f"{leaf} gave {len(answer)} answers for {rows} rows")
    return answer
