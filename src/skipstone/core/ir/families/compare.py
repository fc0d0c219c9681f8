"""Comparisons with a literal, of two literals, and of two columns."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import pyarrow as pa

from skipstone.core.domain import Domain
from skipstone.core.domain.keys import (
    Key,
    KeySpace,
    Kind,
    is_binary,
    is_ordered,
    is_text,
    key_space,
    storage_type,
)
from skipstone.core.domain.spans import ByteSpans, NumberSpans, all_keys, no_keys
from skipstone.core.ir.literals import Cuts, NotComparable, cuts, float_readings, is_nan
from skipstone.core.ir.lower import Lowering, lower_node, null_for_null
from skipstone.core.ir.nodes import (
    ColumnRef,
    Decided,
    Leaf,
    Node,
    Pair,
    Reason,
)
from skipstone.core.ir.operands import CantJudge, Value
from skipstone.predicate import tree
from skipstone.predicate.tree import FLIPPED, CompareOp, Predicate


@lower_node.register
def _(predicate: tree.Compare, to: Lowering) -> Node:
    match predicate:
        case tree.Compare("=" | "<" | "<=" | ">" | ">=" as op, tree.Column(path), tree.Literal(scalar)):
            end = scalar, op not in ("<", ">")
            low, high = None if op[0] == "<" else end, None if op[0] == ">" else end
            leaf = integer_leaf(to.binder.column(path), low, high, predicate.__str__)
            if leaf is not None:
                return leaf
    left, right = to.column(predicate.left), to.column(predicate.right)
    if isinstance(left, ColumnRef) and isinstance(right, ColumnRef):
        return _pair(predicate, left, right)
    if isinstance(left, ColumnRef) and isinstance(right, Value):
        return _compare(predicate, predicate.op, left, right)
    if isinstance(left, Value) and isinstance(right, ColumnRef):
        return _compare(predicate, FLIPPED[predicate.op], right, left)
    assert isinstance(left, Value)
    assert isinstance(right, Value)
    return _compare_values(predicate, left, right)


End = tuple[pa.Scalar, bool]
"""A literal at the end of a range, and whether it belongs to it."""


@functools.lru_cache(maxsize=4096)
def _whole_numbers(type: pa.DataType, given: pa.DataType) -> KeySpace | None:
    """The keys of an integer column, compared with an integer: each number is its own key."""
    integers = pa.types.is_integer(storage_type(type)) and pa.types.is_integer(given)
    return key_space(type) if integers else None


def integer_leaf(ref: ColumnRef, low: End | None, high: End | None, text: Callable[[], str]) -> Leaf | None:
    """``ref`` from an integer to another, where there is one; None for other types."""
    ends: list[int] = []
    type = ref.out
    for end, step in ((low, 1), (high, -1)):
        if end is not None:
            scalar, belongs = end
            space = _whole_numbers(type, scalar.type)
            if space is None or not scalar.is_valid:
                return None
            ends.append(scalar.as_py() + (0 if belongs else step))
    space = key_space(type)
    first, last = space.low if low is None else ends[0], space.high if high is None else ends[-1]
    return Leaf(ref, Domain(type, NumberSpans.one(space, first, last), False, False), text=text)


def _compare(predicate: Predicate, op: CompareOp, ref: ColumnRef, value: Value) -> Node:
    if not value.scalar.is_valid:
        if op != "<=>":
            return Decided(None)
        only_null = Domain.only_null(ref.out)
        return Leaf(ref, only_null, Domain.not_null(ref.out), Domain.none(ref.out), str(predicate))
    readings = [matching(op, ref.out, Value(scalar, value.zone)) for scalar in _readings(ref.out, value)]
    may, sure = functools.reduce(Domain.union, readings), functools.reduce(Domain.intersect, readings)
    if op == "<=>":
        return Leaf(ref, may, sure.complement(), Domain.none(ref.out), str(predicate))
    if len(readings) == 1:
        return null_for_null(ref, may, predicate)
    return null_for_null(ref, may, predicate, false=Domain.not_null(ref.out) - sure)


def _readings(type: pa.DataType, value: Value) -> list[pa.Scalar]:
    return float_readings(type, value.scalar) if key_space(type).kind is Kind.FLOAT else [value.scalar]


def matching(op: CompareOp, type: pa.DataType, value: Value) -> Domain:
    """The values for which ``column op value`` is TRUE."""
    if not is_ordered(type):
        raise CantJudge(Reason.TYPES, f"values of type {type} are compared row by row")
    if key_space(type).kind is Kind.FLOAT and is_nan(value.scalar):
        nan, rest = Domain.only_nan(type), Domain.of_spans(type, all_keys(key_space(type)))
        return {"=": nan, "<=>": nan, ">=": nan, "<": rest, "<>": rest, "<=": rest | nan}.get(
            op, Domain.none(type)
        )
    if op == "<>":
        return Domain.not_null(type) - matching("=", type, value)
    at = _place(type, value.scalar, value.zone)
    floor = _least_key(type)
    ends: dict[str, tuple[Key | None, Key | None]] = {
        "=": (at.at_or_above, at.above),
        "<=>": (at.at_or_above, at.above),
        "<": (floor, at.at_or_above),
        "<=": (floor, at.above),
        ">": (at.above, None),
        ">=": (at.at_or_above, None),
    }
    return Domain.of_spans(type, _keys_between(type, *ends[op]), nans=op in (">", ">="))


def _place(type: pa.DataType, scalar: pa.Scalar, zone: str) -> Cuts:
    try:
        return cuts(type, scalar, zone)
    except NotComparable as error:
        raise CantJudge(Reason.ZONE if error.zone else Reason.TYPES, str(error)) from error


def _least_key(type: pa.DataType) -> Key:
    """The least key of a type that has an order."""
    space = key_space(type)
    return b"" if space.kind is Kind.BYTES else space.limits[0]


def _keys_between(type: pa.DataType, start: Key | None, stop: Key | None) -> NumberSpans | ByteSpans:
    """Keys from ``start`` (if None: no key) up to but not including ``stop`` (if None: to the end)."""
    space = key_space(type)
    if start is None:
        return no_keys(space)
    if isinstance(start, bytes):
        assert stop is None or isinstance(stop, bytes)
        return ByteSpans.of(space, [(start, stop)])
    floor, last = space.limits
    if stop is not None:
        assert not isinstance(stop, bytes)
        if stop <= floor:
            return no_keys(space)
        last = math.nextafter(stop, -math.inf) if space.kind is Kind.FLOAT else stop - 1
    return NumberSpans.of(space, [(start, last)])


def _compare_values(predicate: tree.Compare, left: Value, right: Value) -> Node:
    """Two constants: the left one stands in for a column of its own type."""
    if not left.scalar.is_valid or not right.scalar.is_valid:
        both = not left.scalar.is_valid and not right.scalar.is_valid
        return Decided(both if predicate.op == "<=>" else None)
    type = left.scalar.type
    if is_text(storage_type(type)) and not is_text(storage_type(right.scalar.type)):
        return _compare_values(
            tree.Compare(FLIPPED[predicate.op], predicate.right, predicate.left), right, left
        )
    answers = set()
    for scalar in _readings(type, right):
        true = matching(predicate.op, type, Value(scalar, right.zone))
        answers.add(true.nans if is_nan(left.scalar) else true.contains(left.scalar))
    if len(answers) > 1:
        raise CantJudge(Reason.TYPES, "engines differ in how they compare these constants")
    return Decided(answers.pop())


def _pair(predicate: tree.Compare, left: ColumnRef, right: ColumnRef) -> Node:
    types = storage_type(left.out), storage_type(right.out)
    if not (is_ordered(left.out) and is_ordered(right.out) and _same_line(*types)):
        raise CantJudge(Reason.TYPES, f"{left.out} and {right.out} are compared row by row")
    return Pair(predicate.op, left, right, str(predicate))


def _same_line(a: pa.DataType, b: pa.DataType) -> bool:
    """Whether the keys of two types compare as the values do."""
    if a == b or (pa.types.is_floating(a) and pa.types.is_floating(b)):
        return True
    if pa.types.is_integer(a) and pa.types.is_integer(b):
        return key_space(a).dtype == key_space(b).dtype
    if pa.types.is_timestamp(a) and pa.types.is_timestamp(b):
        return bool(a.unit == b.unit and (a.tz is None) == (b.tz is None))
    if pa.types.is_decimal(a) and pa.types.is_decimal(b):
        spaces = key_space(a), key_space(b)
        return bool(
            a.scale == b.scale and (spaces[0].kind, spaces[0].width) == (spaces[1].kind, spaces[1].width)
        )
    return (is_text(a) and is_text(b)) or (is_binary(a) and is_binary(b))
