"""IS NULL, isnan, bare booleans and BETWEEN."""

from __future__ import annotations

import pyarrow as pa

from skipstone.core.domain import Domain
from skipstone.core.domain.keys import (
    storage_type,
)
from skipstone.core.ir.families.compare import integer_leaf
from skipstone.core.ir.literals import is_nan
from skipstone.core.ir.lower import Lowering, lower_node, null_for_null, truth_test
from skipstone.core.ir.nodes import (
    All,
    Decided,
    Leaf,
    Node,
)
from skipstone.core.ir.operands import Value
from skipstone.errors import TypeMismatchError
from skipstone.predicate import tree
from skipstone.predicate.tree import CompareOp, Predicate


@lower_node.register
def _(predicate: tree.IsNull, to: Lowering) -> Node:
    if isinstance(predicate.arg, Predicate):
        return truth_test(to.lower(predicate.arg), None)
    operand = to.column(predicate.arg)
    if isinstance(operand, Value):
        return Decided(not operand.scalar.is_valid)
    nothing = Domain.none(operand.out)
    return Leaf(operand, Domain.only_null(operand.out), Domain.not_null(operand.out), nothing, str(predicate))


@lower_node.register
def _(predicate: tree.IsNan, to: Lowering) -> Node:
    operand = to.column(predicate.arg)
    if isinstance(operand, Value):
        return Decided(is_nan(operand.scalar) if operand.scalar.is_valid else None)
    return null_for_null(operand, Domain.only_nan(operand.out), predicate)


@lower_node.register
def _(predicate: tree.Holds, to: Lowering) -> Node:
    operand = to.column(predicate.arg)
    if isinstance(operand, Value):
        value = operand.scalar.as_py()
        if value is None or isinstance(value, bool):
            return Decided(value)
    elif pa.types.is_boolean(storage_type(operand.out)):
        return null_for_null(operand, Domain.values(operand.out, [True]), predicate)
    raise TypeMismatchError(f"{predicate} is not a condition", hint="compare it with something")


@lower_node.register
def _(predicate: tree.Between, to: Lowering) -> Node:
    low: CompareOp = ">=" if predicate.low_inclusive else ">"
    high: CompareOp = "<=" if predicate.high_inclusive else "<"

    def ends() -> tuple[tree.Compare, tree.Compare]:
        return (
            tree.Compare(low, predicate.arg, predicate.low),
            tree.Compare(high, predicate.arg, predicate.high),
        )

    match predicate:
        case tree.Between(tree.Column(path), tree.Literal(least), tree.Literal(most), with_least, with_most):
            one = integer_leaf(
                to.binder.column(path),
                (least, with_least),
                (most, with_most),
                lambda: " AND ".join(map(str, ends())),
            )
            if one is not None:
                return one
    return All(tuple(to.lower(end) for end in ends()))
