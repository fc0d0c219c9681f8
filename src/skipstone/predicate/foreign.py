"""What reading and writing foreign expressions share: literals, readings of a literal, LIKE as a regex."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.errors import NotExpressibleError
from skipstone.predicate import tree
from skipstone.predicate.values import value_array

T = TypeVar("T")
_PLAIN = {
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}
_PER_MILLISECOND = {"us": 1_000, "ns": 1_000_000}
_REGEX_SIGNS = frozenset("\\.+*?()|[]{}^$")


class Untranslatable(Exception):
    """A part of a foreign expression that the tree has no node for; it asks for an opaque leaf."""


def flattened(node: T, operands: Callable[[T], Sequence[T] | None]) -> Iterator[T]:
    """The members of a chain of one operator, which may be too long for recursion.

    ``operands`` gives those of a link of the chain, and None for anything else.
    """
    stack = [node]
    while stack:
        part = stack.pop()
        inner = operands(part)
        if inner is None:
            yield part
        else:
            stack.extend(reversed(inner))


def plain(values: pa.Array) -> pa.Array:
    """``values`` without dictionary, view or large layouts."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return values.cast(_PLAIN.get(values.type, values.type))


def literal(scalar: pa.Scalar) -> tree.Literal:
    """A foreign constant as a literal of the tree."""
    return tree.Literal(plain(pa.array([scalar], scalar.type))[0])


def list_values(constants: Sequence[pa.Scalar]) -> pa.Array:
    """The constants of a list as one array; those of one type may lie beyond Python's dates and times."""
    kinds = {scalar.type for scalar in constants}
    return pa.array(constants, kinds.pop()) if len(kinds) == 1 else value_array(constants)


def is_nan(scalar: pa.Scalar) -> bool:
    """Whether a constant is a floating-point NaN."""
    return bool(pa.types.is_floating(scalar.type) and scalar.is_valid and np.isnan(scalar.as_py()))


def is_number(kind: pa.DataType) -> bool:
    """Whether a constant of this type can meet a floating-point column."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def has_zero(values: pa.Array) -> bool:
    """Whether a list of numbers holds a zero, of either sign."""
    return is_number(values.type) and bool(
        pc.any(pc.equal(values.cast(pa.float64(), safe=False), 0.0)).as_py()
    )


def float32_readings(values: pa.Array) -> pa.Array | None:
    """``values`` and what they become in a float32 column, or None where that is the same."""
    if values.type != pa.float64() or not len(values):
        return None
    exact = values.drop_null().to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):
        rounded = exact.astype(np.float32).astype(np.float64)
    changed = rounded[(rounded != exact) & ~np.isnan(exact)]
    return pa.concat_arrays([values, pa.array(changed)]) if len(changed) else None


def finer_than_millisecond(values: pa.Array) -> pa.Array:
    """The timestamps a millisecond column can't hold."""
    step = _PER_MILLISECOND.get(values.type.unit) if pa.types.is_timestamp(values.type) else None
    if step is None or not len(values):
        return values[:0]
    ticks = values.cast(pa.int64()).drop_null().to_numpy(zero_copy_only=False)
    return pa.array(ticks[ticks % step != 0], pa.int64()).cast(values.type)


def millisecond_readings(values: pa.Array) -> pa.Array | None:
    """``values`` and what they become in a millisecond column, or None where that is the same."""
    fine = finer_than_millisecond(values)
    if not len(fine):
        return None
    step = _PER_MILLISECOND[values.type.unit]
    floor = fine.cast(pa.int64()).to_numpy() // step * step
    return pa.concat_arrays([values, *(pa.array(f).cast(values.type) for f in (floor, floor + step))])


def infinite(x: tree.Expr) -> tree.Predicate:
    """``x`` is an infinity of either sign."""
    return tree.IsIn(x, pa.array([np.inf, -np.inf]))


def finite(x: tree.Expr) -> tree.Predicate:
    """``x`` is neither an infinity nor NaN."""
    return tree.Not(tree.Or((infinite(x), tree.IsNan(x))))


def neighbours(scalar: pa.Scalar) -> pa.Array:
    """A date or a year and its neighbours: what it may be in the zone of a column."""
    kind = scalar.type
    if not scalar.is_valid or not (pa.types.is_date32(kind) or pa.types.is_integer(kind)):
        raise Untranslatable
    number = scalar.cast(pa.int32()).as_py()
    return pa.array([number - 1, number, number + 1], pa.int32()).cast(kind)


def between(above: tree.Predicate, below: tree.Predicate) -> tree.Predicate:
    """``above AND below``, as one BETWEEN where they compare one value with its two ends."""
    match above, below:
        case tree.Compare(">=" | ">", x, low), tree.Compare("<=" | "<", y, high) if x.key() == y.key():
            return tree.Between(x, low, high, above.op == ">=", below.op == "<=")
    return tree.conjunction((above, below))


def near(op: tree.CompareOp, arg: tree.Expr, readings: pa.Array, exact: tree.Predicate) -> tree.Predicate:
    """``exact``, next to a condition that metadata can judge and that holds wherever it does.

    ``readings`` are all the values the constant may stand for, depending on a column type that is
    not known here.
    """
    if op == "<>":
        return exact
    if op in ("=", "<=>"):
        return tree.And((tree.IsIn(arg, readings), exact))
    ends = pc.min_max(readings)
    return tree.And((tree.Compare(op, arg, tree.Literal(ends["max" if op in ("<", "<=") else "min"])), exact))


def like_regex(like: tree.Like) -> str:
    """A LIKE pattern as a regular expression for RE2 and Rust's regex."""
    pieces = ("".join("." if s is None else _quoted(s) for s in piece) for piece in like_pieces(like))
    return rf"(?s)\A{'.*'.join(pieces)}\z"


def like_pieces(like: tree.Like) -> list[list[str | None]]:
    """What stands between the ``%`` of a LIKE pattern: plain characters, and None for each ``_``."""
    pieces: list[list[str | None]] = [[]]
    signs = iter(like.pattern)
    for sign in signs:
        if sign == like.escape:
            plain = next(signs, None)
            if plain is None:
                raise NotExpressibleError(f"{like}: the pattern ends with its escape character")
            pieces[-1].append(plain)
        elif sign == "%":
            pieces.append([])
        else:
            pieces[-1].append(None if sign == "_" else sign)
    return pieces


def _quoted(sign: str) -> str:
    return "\\" + sign if sign in _REGEX_SIGNS else sign


OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = MappingProxyType(
    {
        "=": operator.eq,
        "<>": operator.ne,
        "<": operator.lt,
        "<=": operator.le,
        ">": operator.gt,
        ">=": operator.ge,
    }
)


class ExpressionWriter:
    """Builds expressions of one library; the defaults suit expressions that know ``&``, ``|`` and ``~``.

    In the methods below ``x`` and ``y`` are expressions of the library, already built.
    """

    library: ClassVar[str]
    # Functions that mean the same in the library, by Spark's name and the number of arguments.
    functions: ClassVar[Mapping[tuple[str, int], Callable[..., Any]]]

    # What each library builds in its own way. Lists have at least one value and no NULL.
    column: Callable[[tree.Column], Any]
    literal: Callable[[tree.Literal], Any]
    constant: Callable[[bool | None], Any]
    cast: Callable[[tree.Cast], Any]
    substring: Callable[[Any, int, int], Any]  # the start counts from zero, then the length
    is_in: Callable[[Any, tree.IsIn], Any]
    is_nan: Callable[[Any], Any]
    match: Callable[[Any, tree.Match], Any]
    pattern: Callable[[Any, tree.Like], Any]  # LIKE with regard to case
    cut: Callable[[pa.Array], pa.Array]  # timestamps as the library reads them for a millisecond column

    def inexpressible(self, what: object, why: str = "") -> NotExpressibleError:
        """The error that names the part the library can't express."""
        return NotExpressibleError(f"{self.library} has no way to say {what}" + (f": {why}" if why else ""))

    # -- the walk ----------------------------------------------------------------------------

    def write(self, node: tree.Expr) -> Any:
        """``node`` as an expression of the library."""
        match node:
            case tree.Constant(value):
                return self.constant(value)
            case tree.Holds(arg):
                return self.holds(self.operand(arg))
            case tree.And(args):
                return self.all_of([self.write(arg) for arg in args])
            case tree.Or(args):
                return self.any_of([self.write(arg) for arg in args])
            case tree.Not(arg):
                return self.negation(self.write(arg))
            case tree.Truth(arg, value):
                return self.truth(self.write(arg), value)
            case tree.IsNull(tree.Predicate() as arg):
                return self.truth(self.write(arg), None)
            case tree.Predicate():
                return self._test(node)
        return self._value(node)

    def _test(self, node: tree.Predicate) -> Any:
        match node:
            case tree.IsNull(arg):
                return self.is_null(self.operand(arg))
            case tree.IsNan(arg):
                return self.is_nan(self.operand(arg))
            case tree.IsIn():
                return self._is_in(node)
            case tree.Compare():
                return self._compare(node)
            case tree.Between():
                return self.write(tree.And(node.ends))
            case tree.Match(_, arg):
                return self.match(self.operand(arg), node)
            case tree.Like():
                return self.like(node)
        raise self.inexpressible(node)

    def _value(self, node: tree.Expr) -> Any:
        match node:
            case tree.Column():
                return self.column(node)
            case tree.Literal():
                return self.literal(node)
            case tree.Cast():
                return self.cast(node)
            case tree.Call(name, args):
                part, function = _substring(node), self.functions.get((name, len(args)))
                if part is not None:
                    return self.substring(self.write(args[0]), *part)
                if function is not None:
                    return function(*map(self.write, args))
        raise self.inexpressible(node)

    def _compare(self, node: tree.Compare) -> Any:
        op, left, right = node.op, node.left, node.right
        if isinstance(left, tree.Literal) and not (isinstance(right, tree.Literal) and right.missing):
            op, left, right = tree.FLIPPED[op], right, left
        x = self.operand(left)
        if not isinstance(right, tree.Literal):
            return self.compare(op, x, self.operand(right))
        if right.missing:
            return self.is_null(x) if op == "<=>" else self.constant(None)
        if op == "<=>":
            return self.null_to_false(x, self.compare_literal("=", x, right))
        return self.compare_literal(op, x, right)

    def _is_in(self, node: tree.IsIn) -> Any:
        values, has_null = plain(node.values).drop_null(), node.values.null_count > 0
        if not len(values):
            return self.constant(None if has_null else False)
        found = self.is_in(self.operand(node.arg), tree.IsIn(node.arg, values, node.zone))
        return self.any_of((found, self.constant(None))) if has_null else found

    # -- logic -------------------------------------------------------------------------------

    def operand(self, node: tree.Expr) -> Any:
        """What a comparison or a test is about."""
        return self.write(node)

    def holds(self, x: Any) -> Any:
        """A boolean value as a condition."""
        return x

    def all_of(self, parts: Sequence[Any]) -> Any:
        """The conditions joined by AND."""
        return functools.reduce(operator.and_, parts)

    def any_of(self, parts: Sequence[Any]) -> Any:
        """The conditions joined by OR."""
        return functools.reduce(operator.or_, parts)

    def negation(self, x: Any) -> Any:
        """``NOT x``."""
        return ~x

    def truth(self, x: Any, value: bool | None) -> Any:
        """``x IS TRUE``, ``IS FALSE`` or ``IS NULL``."""
        return self.is_null(x) if value is None else self.null_to_false(x, x if value else ~x)

    def null_to_false(self, x: Any, condition: Any) -> Any:
        """``condition``, which is NULL exactly where ``x`` is, with FALSE instead of NULL."""
        return self.known(x) & condition

    def is_null(self, x: Any) -> Any:
        """``x IS NULL``."""
        return x.is_null()

    def known(self, x: Any) -> Any:
        """``x IS NOT NULL``."""
        return x.is_not_null()

    # -- comparisons -------------------------------------------------------------------------

    def compare(self, op: tree.CompareOp, x: Any, y: Any) -> Any:
        """``x op y``."""
        if op == "<=>":
            both_null = self.is_null(x) & self.is_null(y)
            return (self.known(x) & self.known(y) & self.compare("=", x, y)) | both_null
        return OPERATORS[op](x, y)

    def compare_literal(self, op: tree.CompareOp, x: Any, literal: tree.Literal) -> Any:
        """``x op literal``, right also where the library first cuts a timestamp to the column's unit."""
        y, fine = self.literal(literal), finer_than_millisecond(pa.array([literal.scalar]))
        if not len(fine):
            return self.compare(op, x, y)
        cut = self.cut(fine)[0]
        return _compare_fine(op, x, y, self.literal(tree.Literal(cut)), rounded_up=cut.value > fine[0].value)

    def like(self, node: tree.Like) -> Any:
        """``arg LIKE pattern``; ILIKE is LIKE of both sides in lower case, as Spark defines it."""
        if node.ignore_case:
            escape = node.escape.lower() if node.escape else node.escape
            node = tree.Like(tree.Call("lower", (node.arg,)), node.pattern.lower(), escape)
        return self.pattern(self.operand(node.arg), node)


def _compare_fine(op: tree.CompareOp, x: Any, v: Any, t: Any, *, rounded_up: bool) -> Any:
    """``x op v``, right also where the library first rounds ``v`` to ``t`` in the column's coarser unit."""
    if op in ("=", "<>"):
        equal = (x == v) & (x != t)
        return equal if op == "=" else ~equal
    if op in ("<", ">="):
        less = x < v if rounded_up else (x < v) | (x <= t)
        return less if op == "<" else ~less
    most = (x <= v) & (x < t) if rounded_up else x <= v
    return most if op == "<=" else ~most


def _substring(call: tree.Call) -> tuple[int, int] | None:
    """Where ``substr`` or ``left`` with constant bounds begins, from zero, and how long it is."""
    bounds = [arg.scalar.as_py() if isinstance(arg, tree.Literal) else None for arg in call.args[1:]]
    match call.name, bounds:
        case "substr", [int(first), int(count)] if first > 0:
            return first - 1, max(count, 0)
        case "left", [int(count)]:
            return 0, max(count, 0)
    return None
