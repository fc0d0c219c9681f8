"""Lowering of predicates to IR: the sets of values for which a condition is TRUE, FALSE and NULL.

:func:`lower_node` dispatches on the kind of predicate.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.arrays import Array, plain
from skipstone.core.domain import Domain
from skipstone.core.domain.keys import (
    Key,
    Kind,
    array_keys,
    is_binary,
    is_ordered,
    is_text,
    key_space,
    storage_type,
)
from skipstone.core.domain.points import points_of
from skipstone.core.domain.spans import ByteSpans, NumberSpans, all_keys, no_keys, prefix_end
from skipstone.core.ir.bind import Binder
from skipstone.core.ir.literals import (
    EXACT_DOUBLE,
    EXACT_FLOAT,
    Cuts,
    NotComparable,
    cuts,
    float_readings,
    is_nan,
    string_key,
)
from skipstone.core.ir.nodes import (
    AndNode,
    ColumnComparison,
    ColumnRef,
    ConstantNode,
    Diagnostic,
    IsNode,
    Leaf,
    Node,
    NotJudgeable,
    OpaqueNode,
    OrNode,
    Reason,
    Value,
)
from skipstone.core.ir.transforms import DAY, UNITS
from skipstone.core.plain import type_name
from skipstone.errors import TypeMismatchError
from skipstone.predicate import tree
from skipstone.predicate.tree import FLIPPED, CompareOp, Predicate
from skipstone.predicate.values import drop_nulls

_MAX_DIAGNOSTICS = 100


@dataclass(slots=True)
class Lowering:
    """Lowers a predicate without NOT over AND/OR to IR, and collects diagnostics."""

    binder: Binder
    unsupported: dict[Diagnostic, None] = field(default_factory=dict)

    def lower(self, predicate: Predicate) -> Node:
        """Lower ``predicate``; a part that can't be judged becomes an OpaqueNode with a diagnostic."""
        try:
            return _lowering(type(predicate))(predicate, self)
        except NotJudgeable as error:
            return self.unknown(predicate, error.reason, error.detail)
        except TypeMismatchError as error:
            names = predicate.columns()
            if error.column is None and len(names) == 1:
                error.column = ".".join(names[0])
            raise

    def unknown(self, part: Predicate, reason: Reason, detail: str) -> Node:
        """Make an OpaqueNode for ``part``, with a diagnostic."""
        self.note(part, reason, detail)
        return OpaqueNode(str(part))

    def note(self, part: Predicate, reason: Reason, detail: str) -> None:
        """Record once why metadata can't judge a part."""
        if len(self.unsupported) < _MAX_DIAGNOSTICS:
            self.unsupported.setdefault(Diagnostic(str(part), reason, detail))

    def column(self, expr: tree.Expr) -> Value | ColumnRef:
        """Bind the operand of a single-column condition."""
        return self.binder.operand(expr)


@functools.singledispatch
def lower_node(predicate: Predicate, to: Lowering) -> Node:
    """Lower one predicate; implementations are registered per node class."""
    raise AssertionError(f"no lowering of {type(predicate).__name__}")


_lowering: Callable[[object], Callable[..., Node]] = functools.cache(lower_node.dispatch)


# -- structure ---------------------------------------------------------------------------------


@lower_node.register
def _(predicate: tree.And, to: Lowering) -> Node:
    return AndNode(tuple(to.lower(arg) for arg in predicate.args))


@lower_node.register
def _(predicate: tree.Or, to: Lowering) -> Node:
    return OrNode(tuple(to.lower(arg) for arg in predicate.args))


@lower_node.register
def _(predicate: tree.Not, to: Lowering) -> Node:
    node = negate(to.lower(predicate.arg))
    if isinstance(node, Leaf):
        return Leaf(node.ref, node.true, node.false, node.null, predicate.__str__)
    return replace(node, text=str(predicate)) if isinstance(node, ColumnComparison) else node


@lower_node.register
def _(predicate: tree.Truth, to: Lowering) -> Node:
    return truth_test(to.lower(predicate.arg), predicate.value)


@lower_node.register
def _(predicate: tree.Constant, to: Lowering) -> Node:
    return ConstantNode(predicate.value)


@lower_node.register
def _(predicate: tree.Opaque, to: Lowering) -> Node:
    return to.unknown(predicate, Reason.OPAQUE, "evaluated by its function only")


def negate(node: Node) -> Node:
    """Swap TRUE and FALSE."""
    match node:
        case Leaf(ref, true, false, null, text):
            return Leaf(ref, false, true, null, f"NOT ({text})")
        case ConstantNode(value):
            return ConstantNode(None if value is None else not value)
        case AndNode(args):
            return OrNode(tuple(negate(arg) for arg in args))
        case OrNode(args):
            return AndNode(tuple(negate(arg) for arg in args))
        case IsNode(arg, value, negated):
            return IsNode(arg, value, not negated)
        case ColumnComparison(op, left, right, text):
            if op == "<=>":
                return IsNode(node, True, negated=True)
            return ColumnComparison(tree.NEGATED[op], left, right, f"NOT ({text})")
    return node.invert()


def truth_test(node: Node, value: bool | None, *, negated: bool = False) -> Node:
    """IS [NOT] TRUE, FALSE or UNKNOWN; merged into the sets of a leaf."""
    if isinstance(node, ConstantNode):
        return ConstantNode((node.value is value) != negated)
    if not isinstance(node, Leaf):
        return IsNode(node, value, negated)
    parts = {True: node.true, False: node.false, None: node.null}
    holds = parts.pop(value)
    fails = functools.reduce(Domain.union, parts.values())
    if negated:
        holds, fails = fails, holds
    word = {True: "TRUE", False: "FALSE", None: "UNKNOWN"}[value]
    text = f"({node.text}) IS {'NOT ' if negated else ''}{word}"
    return Leaf(node.ref, holds, fails, Domain.none(node.ref.out), text)


# -- leaves ------------------------------------------------------------------------------------


def null_for_null(ref: ColumnRef, true: Domain, part: Predicate, *, false: Domain | None = None) -> Leaf:
    """A leaf that is NULL only for NULL, and by default FALSE for all other values."""
    if false is None:
        return Leaf(ref, true, text=part.__str__)
    return Leaf(ref, true, false, Domain.only_null(ref.out), part.__str__)


# -- comparisons -------------------------------------------------------------------------------


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
"""A literal at the end of a range, and whether it is included."""


@functools.lru_cache(maxsize=4096)
def _is_own_key(type: pa.DataType, literal_type: pa.DataType) -> bool:
    """Whether the integer of a literal is its key in a column: integers, dates, timestamps of one unit."""
    stored = storage_type(type)
    if pa.types.is_timestamp(stored) and pa.types.is_timestamp(literal_type):
        return bool(stored.unit == literal_type.unit and (stored.tz is None) == (literal_type.tz is None))
    if pa.types.is_date32(stored):
        return bool(pa.types.is_date32(literal_type))
    return bool(pa.types.is_integer(stored) and pa.types.is_integer(literal_type))


def integer_leaf(ref: ColumnRef, low: End | None, high: End | None, text: Callable[[], str]) -> Leaf | None:
    """A leaf for a range of integers, dates or timestamps, or None for other types."""
    ends: list[int] = []
    type = ref.out
    for end, step in ((low, 1), (high, -1)):
        if end is not None:
            scalar, inclusive = end
            if not scalar.is_valid or not _is_own_key(type, scalar.type):
                return None
            key: int = scalar.as_py() if pa.types.is_integer(scalar.type) else scalar.value
            ends.append(key + (0 if inclusive else step))
    space = key_space(type)
    first, last = space.low if low is None else ends[0], space.high if high is None else ends[-1]
    return Leaf(ref, Domain(type, NumberSpans.single(space, first, last), False, False), text=text)


def _compare(predicate: Predicate, op: CompareOp, ref: ColumnRef, value: Value) -> Node:
    if not value.scalar.is_valid:
        if op != "<=>":
            return ConstantNode(None)
        only_null = Domain.only_null(ref.out)
        return Leaf(ref, only_null, Domain.not_null(ref.out), Domain.none(ref.out), str(predicate))
    readings = [matching(op, ref.out, Value(scalar, value.zone)) for scalar in _readings(ref.out, value)]
    may, certain = functools.reduce(Domain.union, readings), functools.reduce(Domain.intersect, readings)
    if op == "<=>":
        return Leaf(ref, may, certain.complement(), Domain.none(ref.out), str(predicate))
    if len(readings) == 1:
        return null_for_null(ref, may, predicate)
    return null_for_null(ref, may, predicate, false=Domain.not_null(ref.out) - certain)


def _readings(type: pa.DataType, value: Value) -> list[pa.Scalar]:
    return float_readings(type, value.scalar) if key_space(type).kind is Kind.FLOAT else [value.scalar]


def matching(op: CompareOp, type: pa.DataType, value: Value) -> Domain:
    """Values for which ``column op value`` is TRUE."""
    if not is_ordered(type):
        raise NotJudgeable(Reason.TYPES, f"type {type_name(type)} has no order")
    if key_space(type).kind is Kind.FLOAT and is_nan(value.scalar):
        nan, rest = Domain.only_nan(type), Domain.of_spans(type, all_keys(key_space(type)))
        return {"=": nan, "<=>": nan, ">=": nan, "<": rest, "<>": rest, "<=": rest | nan}.get(
            op, Domain.none(type)
        )
    if op == "<>":
        return Domain.not_null(type) - matching("=", type, value)
    cut = _cuts(type, value.scalar, value.zone)
    floor = _smallest_key(type)
    ends: dict[str, tuple[Key | None, Key | None]] = {
        "=": (cut.at_or_above, cut.above),
        "<=>": (cut.at_or_above, cut.above),
        "<": (floor, cut.at_or_above),
        "<=": (floor, cut.above),
        ">": (cut.above, None),
        ">=": (cut.at_or_above, None),
    }
    return Domain.of_spans(type, _keys_between(type, *ends[op]), nans=op in (">", ">="))


def _cuts(type: pa.DataType, scalar: pa.Scalar, zone: str) -> Cuts:
    try:
        return cuts(type, scalar, zone)
    except NotComparable as error:
        raise NotJudgeable(Reason.ZONE if error.zone else Reason.TYPES, str(error)) from error


def _smallest_key(type: pa.DataType) -> Key:
    space = key_space(type)
    return b"" if space.kind is Kind.BYTES else space.limits[0]


def _keys_between(type: pa.DataType, start: Key | None, stop: Key | None) -> NumberSpans | ByteSpans:
    """Keys in [start, stop): none if ``start`` is None, unbounded if ``stop`` is None."""
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
    """Compare two constants as if the left one were a column of its type."""
    if not left.scalar.is_valid or not right.scalar.is_valid:
        both = not left.scalar.is_valid and not right.scalar.is_valid
        return ConstantNode(both if predicate.op == "<=>" else None)
    type = left.scalar.type
    if is_text(storage_type(type)) and not is_text(storage_type(right.scalar.type)):
        return _compare_values(
            tree.Compare(FLIPPED[predicate.op], predicate.right, predicate.left), right, left
        )
    results = set()
    for scalar in _readings(type, right):
        true = matching(predicate.op, type, Value(scalar, right.zone))
        results.add(true.nans if is_nan(left.scalar) else true.contains(left.scalar))
    if len(results) > 1:
        raise NotJudgeable(Reason.TYPES, "engines differ in comparing these constants")
    return ConstantNode(results.pop())


def _pair(predicate: tree.Compare, left: ColumnRef, right: ColumnRef) -> Node:
    types = storage_type(left.out), storage_type(right.out)
    if not (is_ordered(left.out) and is_ordered(right.out) and _same_key_order(*types)):
        raise NotJudgeable(
            Reason.TYPES, f"keys of {type_name(left.out)} and {type_name(right.out)} are not comparable"
        )
    return ColumnComparison(predicate.op, left, right, str(predicate))


def _same_key_order(a: pa.DataType, b: pa.DataType) -> bool:
    """Whether the keys of two types compare like their values."""
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


# -- lists of values ---------------------------------------------------------------------------


@lower_node.register
def _(predicate: tree.IsIn, to: Lowering) -> Node:
    operand = to.column(predicate.arg)
    if isinstance(operand, Value):
        return _value_in(predicate, operand)
    ref, values = operand, predicate.values
    if len(values) == 0:
        return ConstantNode(False)
    if not is_ordered(ref.out):
        raise NotJudgeable(Reason.TYPES, f"type {type_name(ref.out)} has no order")
    may, certain = _members(ref.out, drop_nulls(values), predicate.zone)
    if certain is may and values.null_count == 0:
        return null_for_null(ref, may, predicate)
    misses = Domain.not_null(ref.out) - certain
    if values.null_count == 0:
        return null_for_null(ref, may, predicate, false=misses)
    # A NULL in the list turns every non-match into NULL.
    return Leaf(ref, may, Domain.none(ref.out), misses | Domain.only_null(ref.out), str(predicate))


def _members(type: pa.DataType, values: pa.Array, zone: str) -> tuple[Domain, Domain]:
    """Column values that may equal one of ``values``, and those that certainly do."""
    list_type = storage_type(values.type)
    if key_space(type).kind is not Kind.FLOAT or pa.types.is_floating(list_type):
        exact = _equal(type, values, zone)
        return exact, exact
    if pa.types.is_integer(list_type):
        doubles = values.cast(pa.float64(), safe=False)
        if storage_type(type).bit_width == 64:
            exact = _equal(type, doubles, zone)
            return exact, exact
        narrow = doubles.to_numpy().astype(f"f{storage_type(type).bit_width // 8}")
        exact, rounded = (_equal(type, some, zone) for some in (doubles, pa.array(narrow.astype("f8"))))
        return exact | rounded, exact & rounded
    readings = [float_readings(type, scalar) for scalar in values]
    exact, rounded = (
        _equal(type, pa.array([r[at].as_py() for r in readings], pa.float64()), zone) for at in (0, -1)
    )
    return exact | rounded, exact & rounded


def _equal(type: pa.DataType, values: pa.Array, zone: str) -> Domain:
    list_type, column_type = storage_type(values.type), storage_type(type)
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if list_type == column_type or (is_text(list_type) and is_text(column_type)):
        return Domain.values(type, values)
    if is_binary(list_type) and is_binary(column_type):
        # Compared as bytes: a value of another length is valid, but equals nothing.
        return Domain.of_spans(type, points_of(list_type, values))
    ratio = _ratio(column_type, list_type)
    if ratio is not None:
        return Domain.of_spans(type, _rescaled(type, values, ratio))
    if pa.types.is_floating(list_type) and pa.types.is_floating(column_type):
        values = plain(values).cast(pa.float64())
        nan = pc.is_nan(values)
        points = values.filter(pc.invert(nan)).to_numpy(zero_copy_only=False)
        spans = NumberSpans.of_points(key_space(type), points)
        return Domain.of_spans(type, spans, nans=bool(pc.any(nan).as_py()))
    if pa.types.is_floating(list_type) and pa.types.is_integer(column_type):
        whole = _whole_numbers(values)
        if whole is not None:
            return Domain.of_spans(type, NumberSpans.of_points(key_space(type), whole))
    # Values of another type are coerced individually.
    domains = [matching("=", type, Value(scalar, zone)) for scalar in values]
    pairs = [pair for domain in domains for pair in domain.spans.pairs()]
    space = key_space(type)
    kind = ByteSpans if space.kind is Kind.BYTES else NumberSpans
    return Domain.of_spans(type, kind.of(space, pairs), nans=any(d.nans for d in domains))  # type: ignore[arg-type]


def _ratio(column: pa.DataType, values: pa.DataType) -> Fraction | None:
    """Keys of the column per key of the values, if equal numbers or times have keys in that ratio."""
    both = column, values
    if any(key_space(type).kind is not Kind.INT for type in both):
        return None
    if all(pa.types.is_integer(type) or pa.types.is_decimal(type) for type in both):
        scales = [type.scale if pa.types.is_decimal(type) else 0 for type in both]
        return Fraction(10) ** (scales[0] - scales[1]) if min(scales) >= 0 else None
    if all(pa.types.is_timestamp(type) for type in both) and (column.tz is None) == (values.tz is None):
        return Fraction(UNITS[column.unit], UNITS[values.unit])
    if all(pa.types.is_date(type) for type in both):
        days = [DAY * 1_000 if pa.types.is_date32(type) else 1 for type in both]
        return Fraction(days[1], days[0])
    return None


def _rescaled(type: pa.DataType, values: pa.Array, ratio: Fraction) -> NumberSpans:
    """The keys of a column that equal one of the values; a value between two keys equals none."""
    keys, space = array_keys(storage_type(values.type), values), key_space(type)
    assert isinstance(keys, np.ndarray)
    up, down = ratio.numerator, ratio.denominator
    if down > 1:
        keys = keys[keys % down == 0] // down
    low, high = -(-space.low // up), space.high // up
    keys = keys[(keys >= low) & (keys <= high)].astype(space.dtype)
    return NumberSpans.of_points(space, keys * up if up > 1 else keys)


def _whole_numbers(values: pa.Array) -> Array | None:
    """The whole numbers among floats; None if one is so large that several integers equal it."""
    exact = EXACT_DOUBLE if pa.types.is_float64(values.type) else EXACT_FLOAT
    numbers = plain(values).to_numpy(zero_copy_only=False)
    finite = numbers[np.isfinite(numbers)]
    if len(finite) and np.abs(finite).max() >= exact:
        return None
    return np.asarray(finite[finite == np.floor(finite)].astype(np.int64))


def _value_in(predicate: tree.IsIn, value: Value) -> Node:
    if len(predicate.values) == 0:
        return ConstantNode(False)
    if not value.scalar.is_valid:
        return ConstantNode(None)
    type = value.scalar.type
    domain, _ = _members(type, drop_nulls(predicate.values), predicate.zone)
    if domain.nans if is_nan(value.scalar) else domain.contains(value.scalar):
        return ConstantNode(True)
    return ConstantNode(None if predicate.values.null_count else False)


# -- NULL and NaN ------------------------------------------------------------------------------


@lower_node.register
def _(predicate: tree.IsNull, to: Lowering) -> Node:
    if isinstance(predicate.arg, Predicate):
        return truth_test(to.lower(predicate.arg), None)
    operand = to.column(predicate.arg)
    if isinstance(operand, Value):
        return ConstantNode(not operand.scalar.is_valid)
    none = Domain.none(operand.out)
    return Leaf(operand, Domain.only_null(operand.out), Domain.not_null(operand.out), none, str(predicate))


@lower_node.register
def _(predicate: tree.IsNan, to: Lowering) -> Node:
    operand = to.column(predicate.arg)
    type = storage_type(operand.scalar.type if isinstance(operand, Value) else operand.out)
    if is_text(type) and not predicate.lenient:
        raise NotJudgeable(Reason.CAST, "strings are cast to doubles")
    if not (predicate.lenient or _is_number(type) or pa.types.is_null(type)):
        raise TypeMismatchError(
            f"isnan needs a number, not {type_name(type)}", hint="pass a column of numbers"
        )
    if isinstance(operand, Value):
        return ConstantNode(is_nan(operand.scalar) if operand.scalar.is_valid else None)
    return null_for_null(operand, Domain.only_nan(operand.out), predicate)


def _is_number(type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type) or pa.types.is_floating(type) or pa.types.is_decimal(type))


@lower_node.register
def _(predicate: tree.BooleanValue, to: Lowering) -> Node:
    operand = to.column(predicate.arg)
    if isinstance(operand, Value):
        value = operand.scalar.as_py()
        if value is None or isinstance(value, bool):
            return ConstantNode(value)
    elif pa.types.is_boolean(storage_type(operand.out)):
        return null_for_null(operand, Domain.values(operand.out, [True]), predicate)
    raise TypeMismatchError(
        f"{predicate} is not a condition",
        hint="compare the column with a value; in a shell, quote the whole condition",
    )


@lower_node.register
def _(predicate: tree.Between, to: Lowering) -> Node:
    match predicate:
        case tree.Between(
            tree.Column(path), tree.Literal(lowest), tree.Literal(highest), low_inclusive, high_inclusive
        ):
            leaf = integer_leaf(
                to.binder.column(path),
                (lowest, low_inclusive),
                (highest, high_inclusive),
                lambda: " AND ".join(map(str, predicate.ends)),
            )
            if leaf is not None:
                return leaf
    return AndNode(tuple(to.lower(end) for end in predicate.ends))


# -- patterns ----------------------------------------------------------------------------------


@lower_node.register
def _(predicate: tree.Match, to: Lowering) -> Node:
    operand = to.column(predicate.arg)
    if not isinstance(operand, ColumnRef):
        raise NotJudgeable(Reason.FUNCTION, "pattern on a constant")
    return _string_leaf(
        predicate, to, operand, pa.scalar(predicate.text), exact=predicate.kind == "prefix", ends=False
    )


@lower_node.register
def _(predicate: tree.Like, to: Lowering) -> Node:
    operand = to.column(predicate.arg)
    if not isinstance(operand, ColumnRef):
        raise NotJudgeable(Reason.FUNCTION, "pattern on a constant")
    start, rest = like_prefix(predicate.pattern, predicate.escape)
    if predicate.ignore_case:
        start, rest = "", "%_"
    prefix = pa.scalar(start)
    if rest == "":
        return _string_leaf(predicate, to, operand, prefix, exact=True, ends=True)
    return _string_leaf(predicate, to, operand, prefix, exact=rest.strip("%") == "", ends=False)


def like_prefix(pattern: str, escape: str | None) -> tuple[str, str]:
    """Split a LIKE pattern into its literal prefix and the rest from the first wildcard."""
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


def _string_leaf(
    predicate: Predicate, to: Lowering, ref: ColumnRef, start: pa.Scalar, *, exact: bool, ends: bool
) -> Node:
    """A prefix condition; if not ``exact``, the prefix is necessary but not sufficient."""
    type = storage_type(ref.out)
    if not (is_text(type) or is_binary(type)):
        raise NotJudgeable(Reason.TYPES, f"{type_name(ref.out)} is converted to string row by row")
    not_null = Domain.not_null(ref.out)
    matching_all = isinstance(predicate, tree.Match) and predicate.kind != "prefix"
    key = b"" if matching_all else string_key(type, start)
    space = key_space(ref.out)
    spans = ByteSpans.of_points(space, [key]) if ends else ByteSpans.of(space, [(key, prefix_end(key))])
    true = Domain.of_spans(ref.out, spans)
    if exact:
        return null_for_null(ref, true, predicate)
    if not key:
        to.note(predicate, Reason.PATTERN, "bounds can't decide it")
    return null_for_null(ref, true, predicate, false=not_null)
