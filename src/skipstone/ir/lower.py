"""One function per predicate family: a condition on a column as the sets of values it holds for."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.domain import Domain
from skipstone.domain.keys import (
    Key,
    Kind,
    array_keys,
    is_binary,
    is_ordered,
    is_text,
    key_space,
    storage_type,
)
from skipstone.domain.spans import ByteSpans, NumberSpans, all_keys, limits, no_keys, prefix_end
from skipstone.errors import TypeMismatchError
from skipstone.ir.bind import Binder, CantJudge, Value
from skipstone.ir.literals import Cuts, NotComparable, cuts, is_nan, text_key
from skipstone.ir.nodes import (
    All,
    Any,
    ColumnRef,
    Decided,
    Diagnostic,
    Leaf,
    Node,
    Pair,
    Reason,
    Test,
    Unknown,
)
from skipstone.predicate import tree
from skipstone.predicate.tree import FLIPPED, CompareOp, Predicate

_MAX_DIAGNOSTICS = 100


@dataclass(slots=True)
class Lowering:
    """Turns a predicate without NOT over AND/OR into IR, noting what can't be judged."""

    binder: Binder
    unsupported: dict[Diagnostic, None] = field(default_factory=dict)

    def lower(self, predicate: Predicate) -> Node:
        """The IR of ``predicate``; a part that can't be judged becomes Unknown with a diagnostic."""
        try:
            return _lower(predicate, self)
        except CantJudge as error:
            return self.unknown(predicate, error.reason, error.detail)
        except TypeMismatchError as error:
            names = predicate.columns()
            if error.column is None and len(names) == 1:
                error.column = ".".join(names[0])
            raise

    def unknown(self, part: Predicate, reason: Reason, detail: str) -> Node:
        """An Unknown for ``part``, with its diagnostic."""
        self.note(part, reason, detail)
        return Unknown(str(part))

    def note(self, part: Predicate, reason: Reason, detail: str) -> None:
        """Record why a part is left to the rows, once."""
        if len(self.unsupported) < _MAX_DIAGNOSTICS:
            self.unsupported.setdefault(Diagnostic(str(part), reason, detail))

    def column(self, expr: tree.Expr) -> Value | ColumnRef:
        """The operand of a single-column condition."""
        return self.binder.operand(expr)


@functools.singledispatch
def _lower(predicate: Predicate, to: Lowering) -> Node:
    raise AssertionError(f"no lowering for {type(predicate).__name__}")


# -- structure ---------------------------------------------------------------------------------


@_lower.register
def _(predicate: tree.And, to: Lowering) -> Node:
    return All(tuple(to.lower(arg) for arg in predicate.args))


@_lower.register
def _(predicate: tree.Or, to: Lowering) -> Node:
    return Any(tuple(to.lower(arg) for arg in predicate.args))


@_lower.register
def _(predicate: tree.Not, to: Lowering) -> Node:
    node = negate(to.lower(predicate.arg))
    return replace(node, text=str(predicate)) if isinstance(node, (Leaf, Pair)) else node


@_lower.register
def _(predicate: tree.Truth, to: Lowering) -> Node:
    return truth_test(to.lower(predicate.arg), predicate.value)


@_lower.register
def _(predicate: tree.Constant, to: Lowering) -> Node:
    return Decided(predicate.value)


@_lower.register
def _(predicate: tree.Opaque, to: Lowering) -> Node:
    return to.unknown(predicate, Reason.OPAQUE, "only its function can tell")


def negate(node: Node) -> Node:
    """NOT: TRUE and FALSE change places, NULL stays."""
    match node:
        case Leaf(ref, true, false, null, text):
            return Leaf(ref, false, true, null, f"NOT ({text})")
        case Decided(value):
            return Decided(None if value is None else not value)
        case All(args):
            return Any(tuple(negate(arg) for arg in args))
        case Any(args):
            return All(tuple(negate(arg) for arg in args))
        case Test(arg, value, negated):
            return Test(arg, value, not negated)
        case Pair(op, left, right, text):
            if op == "<=>":
                return Test(node, True, negated=True)
            return Pair(tree.NEGATED[op], left, right, f"NOT ({text})")
    return node


def truth_test(node: Node, value: bool | None, *, negated: bool = False) -> Node:
    """IS [NOT] TRUE, FALSE or UNKNOWN: decided on a leaf's own sets where there is one."""
    if isinstance(node, Decided):
        return Decided((node.value is value) != negated)
    if not isinstance(node, Leaf):
        return Test(node, value, negated)
    parts = {True: node.true, False: node.false, None: node.null}
    holds = parts.pop(value)
    fails = functools.reduce(Domain.union, parts.values())
    if negated:
        holds, fails = fails, holds
    word = {True: "TRUE", False: "FALSE", None: "UNKNOWN"}[value]
    text = f"({node.text}) IS {'NOT ' if negated else ''}{word}"
    return Leaf(node.ref, holds, fails, Domain.none(node.ref.out), text)


# -- leaves ------------------------------------------------------------------------------------


def _leaf(ref: ColumnRef, true: Domain, text: str, *, false: Domain | None = None) -> Leaf:
    """A leaf that is NULL just for NULL; FALSE for every other value unless said otherwise."""
    rest = Domain.not_null(ref.out) - true if false is None else false
    return Leaf(ref, true, rest, Domain.only_null(ref.out), text)


@_lower.register
def _(predicate: tree.IsNull, to: Lowering) -> Node:
    if isinstance(predicate.arg, Predicate):
        return truth_test(to.lower(predicate.arg), None)
    operand = to.column(predicate.arg)
    if isinstance(operand, Value):
        return Decided(not operand.scalar.is_valid)
    nothing = Domain.none(operand.out)
    return Leaf(operand, Domain.only_null(operand.out), Domain.not_null(operand.out), nothing, str(predicate))


@_lower.register
def _(predicate: tree.IsNan, to: Lowering) -> Node:
    operand = to.column(predicate.arg)
    if isinstance(operand, Value):
        return Decided(is_nan(operand.scalar) if operand.scalar.is_valid else None)
    return _leaf(operand, Domain.only_nan(operand.out), str(predicate))


@_lower.register
def _(predicate: tree.Holds, to: Lowering) -> Node:
    operand = to.column(predicate.arg)
    if isinstance(operand, Value):
        value = operand.scalar.as_py()
        if value is None or isinstance(value, bool):
            return Decided(value)
    elif pa.types.is_boolean(storage_type(operand.out)):
        return _leaf(operand, Domain.values(operand.out, [True]), str(predicate))
    raise TypeMismatchError(f"{predicate} is not a condition", hint="compare it with something")


@_lower.register
def _(predicate: tree.Between, to: Lowering) -> Node:
    low: CompareOp = ">=" if predicate.low_inclusive else ">"
    high: CompareOp = "<=" if predicate.high_inclusive else "<"
    return All(
        (
            to.lower(tree.Compare(low, predicate.arg, predicate.low)),
            to.lower(tree.Compare(high, predicate.arg, predicate.high)),
        )
    )


# -- comparison --------------------------------------------------------------------------------


@_lower.register
def _(predicate: tree.Compare, to: Lowering) -> Node:
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


def _compare(predicate: Predicate, op: CompareOp, ref: ColumnRef, value: Value) -> Node:
    if not value.scalar.is_valid:
        if op != "<=>":
            return Decided(None)
        only_null = Domain.only_null(ref.out)
        return Leaf(ref, only_null, Domain.not_null(ref.out), Domain.none(ref.out), str(predicate))
    true = _matching(op, ref.out, value)
    if op == "<=>":
        return Leaf(ref, true, true.complement(), Domain.none(ref.out), str(predicate))
    return _leaf(ref, true, str(predicate))


def _matching(op: CompareOp, type: pa.DataType, value: Value) -> Domain:
    """The values for which ``column op value`` is TRUE."""
    if not is_ordered(type):
        raise CantJudge(Reason.TYPES, f"values of type {type} are compared row by row")
    if key_space(type).kind is Kind.FLOAT and is_nan(value.scalar):
        nan, rest = Domain.only_nan(type), Domain.of_spans(type, all_keys(key_space(type)))
        return {"=": nan, "<=>": nan, ">=": nan, "<": rest, "<>": rest, "<=": rest | nan}.get(
            op, Domain.none(type)
        )
    at = _place(type, value.scalar, value.zone)
    spans = {
        "=": lambda: between_cuts(type, at.at_or_above, at.above, stop_at_end=at.above is None),
        "<": lambda: _below(type, at.at_or_above),
        "<=": lambda: _below(type, at.above),
        ">": lambda: _from(type, at.above),
        ">=": lambda: _from(type, at.at_or_above),
    }
    if op == "<>":
        return Domain.not_null(type) - _matching("=", type, value)
    keys = spans["=" if op == "<=>" else op]()
    return Domain.of_spans(type, keys, nans=op in (">", ">="))


def _place(type: pa.DataType, scalar: pa.Scalar, zone: str) -> Cuts:
    try:
        return cuts(type, scalar, zone)
    except NotComparable as error:
        raise CantJudge(Reason.ZONE if error.zone else Reason.TYPES, str(error)) from error


def _below(type: pa.DataType, cut: Key | None) -> NumberSpans | ByteSpans:
    return all_keys(key_space(type)) if cut is None else _from(type, cut).complement()


def _from(type: pa.DataType, cut: Key | None) -> NumberSpans | ByteSpans:
    """Keys at or above ``cut``; none if there is no such key."""
    space = key_space(type)
    if cut is None:
        return no_keys(space)
    if isinstance(cut, bytes):
        return ByteSpans.of(space, [(cut, None)])
    return NumberSpans.of(space, [(cut, limits(space)[1])])


def between_cuts(
    type: pa.DataType, start: Key | None, stop: Key | None, *, stop_at_end: bool
) -> NumberSpans | ByteSpans:
    """Keys from ``start`` up to but not including ``stop``."""
    upper = _from(type, start)
    return upper if stop_at_end else upper.intersect(_below(type, stop))  # type: ignore[arg-type]


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
    true = _matching(predicate.op, type, right)
    return Decided(true.nans if is_nan(left.scalar) else true.contains(left.scalar))


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


# -- sets --------------------------------------------------------------------------------------


@_lower.register
def _(predicate: tree.IsIn, to: Lowering) -> Node:
    operand = to.column(predicate.arg)
    if isinstance(operand, Value):
        return _value_in(predicate, operand)
    ref, values = operand, predicate.values
    if len(values) == 0:
        return Decided(False)
    if not is_ordered(ref.out):
        raise CantJudge(Reason.TYPES, f"values of type {ref.out} are compared row by row")
    true = _members(ref.out, _present(values), predicate.zone)
    if values.null_count == 0:
        return _leaf(ref, true, str(predicate))
    # A NULL in the list turns every miss into NULL.
    misses = Domain.all(ref.out) - true
    return Leaf(ref, true, Domain.none(ref.out), misses, str(predicate))


def _present(values: pa.Array) -> pa.Array:
    """The values that are not NULL; Arrow has no filter for views, so those are copied first."""
    if pa.types.is_string_view(values.type):
        values = values.cast(pa.large_string())
    elif pa.types.is_binary_view(values.type):
        values = values.cast(pa.large_binary())
    return values.drop_null()


def _members(type: pa.DataType, values: pa.Array, zone: str) -> Domain:
    """The column's values that equal one of ``values``."""
    given, own = storage_type(values.type), storage_type(type)
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if given == own or (is_text(given) and is_text(own)):
        return Domain.values(type, values)
    if is_binary(given) and is_binary(own):
        # By bytes, not by a cast: a value of another length is no error, it just equals nothing.
        return Domain.of_spans(type, ByteSpans.of_points(key_space(type), array_keys(given, values)))
    if pa.types.is_integer(given) and pa.types.is_integer(own):
        keys = array_keys(given, values)
        assert isinstance(keys, np.ndarray)
        space = key_space(type)
        inside = keys[(keys >= space.low) & (keys <= space.high)]
        return Domain.of_spans(type, NumberSpans.of_points(space, inside.astype(space.dtype)))
    if pa.types.is_float64(given) and pa.types.is_floating(own):
        nan = pc.is_nan(values)
        points = values.filter(pc.invert(nan)).to_numpy(zero_copy_only=False)
        spans = NumberSpans.of_points(key_space(type), points)
        return Domain.of_spans(type, spans, nans=bool(pc.any(nan).as_py()))
    # Coerced one by one: values of another type each have a place of their own.
    found = [_matching("=", type, Value(scalar, zone)) for scalar in values]
    pairs = [pair for domain in found for pair in domain.spans.pairs()]
    space = key_space(type)
    kind = ByteSpans if space.kind is Kind.BYTES else NumberSpans
    return Domain.of_spans(type, kind.of(space, pairs), nans=any(d.nans for d in found))  # type: ignore[arg-type]


def _value_in(predicate: tree.IsIn, value: Value) -> Node:
    if len(predicate.values) == 0:
        return Decided(False)
    if not value.scalar.is_valid:
        return Decided(None)
    type = value.scalar.type
    domain = _members(type, _present(predicate.values), predicate.zone)
    if domain.nans if is_nan(value.scalar) else domain.contains(value.scalar):
        return Decided(True)
    return Decided(None if predicate.values.null_count else False)


# -- text --------------------------------------------------------------------------------------


@_lower.register
def _(predicate: tree.Match, to: Lowering) -> Node:
    operand = to.column(predicate.arg)
    if not isinstance(operand, ColumnRef):
        raise CantJudge(Reason.FUNCTION, "a pattern on a constant")
    return _text_leaf(
        predicate, to, operand, pa.scalar(predicate.text), exact=predicate.kind == "prefix", ends=False
    )


@_lower.register
def _(predicate: tree.Like, to: Lowering) -> Node:
    operand = to.column(predicate.arg)
    if not isinstance(operand, ColumnRef):
        raise CantJudge(Reason.FUNCTION, "a pattern on a constant")
    start, rest = like_prefix(predicate.pattern, predicate.escape)
    if predicate.ignore_case:
        start, rest = "", "%_"
    prefix = pa.scalar(start)
    if rest == "":
        return _text_leaf(predicate, to, operand, prefix, exact=True, ends=True)
    return _text_leaf(predicate, to, operand, prefix, exact=rest.strip("%") == "", ends=False)


def like_prefix(pattern: str, escape: str | None) -> tuple[str, str]:
    """The plain text a LIKE pattern starts with, and the pattern from its first wildcard on."""
    plain: list[str] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if escape and char == escape:
            if at + 1 == len(pattern):
                raise TypeMismatchError(f"LIKE pattern {pattern!r} ends with its escape character")
            plain.append(pattern[at + 1])
            at += 2
            continue
        if char in "%_":
            return "".join(plain), pattern[at:]
        plain.append(char)
        at += 1
    return "".join(plain), ""


def _text_leaf(
    predicate: Predicate, to: Lowering, ref: ColumnRef, start: pa.Scalar, *, exact: bool, ends: bool
) -> Node:
    """A condition on how a text starts: exactly that, or (not exact) at least that."""
    type = storage_type(ref.out)
    if not (is_text(type) or is_binary(type)):
        raise CantJudge(Reason.TYPES, f"{ref.out} is converted to text row by row")
    not_null = Domain.not_null(ref.out)
    matching_all = isinstance(predicate, tree.Match) and predicate.kind != "prefix"
    key = b"" if matching_all else text_key(type, start)
    space = key_space(ref.out)
    spans = ByteSpans.of_points(space, [key]) if ends else ByteSpans.of(space, [(key, prefix_end(key))])
    true = Domain.of_spans(ref.out, spans)
    if exact:
        return _leaf(ref, true, str(predicate))
    if not key:
        to.note(predicate, Reason.PATTERN, "bounds say nothing about it")
    return _leaf(ref, true, str(predicate), false=not_null)
