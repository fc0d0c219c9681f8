"""Shared code of the adapters for foreign expressions: literals, LIKE patterns and the expression writer."""

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
_REGEX_SPECIALS = frozenset("\\.+*?()|[]{}^$")


class TranslationError(Exception):
    """Raised for a part of a foreign expression without an equivalent node; it becomes an opaque leaf."""


def flatten(node: T, operands: Callable[[T], Sequence[T] | None]) -> Iterator[T]:
    """Yield the operands of a chain of one operator, without recursion.

    ``operands`` returns the operands of a node of the chain, and None for any other node.
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
    """Convert dictionary, view and large layouts to the plain ones."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return values.cast(_PLAIN.get(values.type, values.type))


def literal(scalar: pa.Scalar) -> tree.Literal:
    """Convert a foreign constant to a literal."""
    return tree.Literal(plain(pa.array([scalar], scalar.type))[0])


def list_values(constants: Sequence[pa.Scalar]) -> pa.Array:
    """Convert constants to one array; values of one type avoid Python's limited dates and times."""
    kinds = {scalar.type for scalar in constants}
    return pa.array(constants, kinds.pop()) if len(kinds) == 1 else value_array(constants)


def is_nan(scalar: pa.Scalar) -> bool:
    """Whether a constant is NaN."""
    return bool(pa.types.is_floating(scalar.type) and scalar.is_valid and np.isnan(scalar.as_py()))


def is_number(kind: pa.DataType) -> bool:
    """Whether a constant of this type can be compared with a floating-point column."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def has_zero(values: pa.Array) -> bool:
    """Whether a list of numbers contains 0.0 or -0.0."""
    return is_number(values.type) and bool(
        pc.any(pc.equal(values.cast(pa.float64(), safe=False), 0.0)).as_py()
    )


def float32_readings(values: pa.Array) -> pa.Array | None:
    """``values`` plus their roundings to float32, or None if rounding changes nothing."""
    if values.type != pa.float64() or not len(values):
        return None
    exact = values.drop_null().to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):
        rounded = exact.astype(np.float32).astype(np.float64)
    changed = rounded[(rounded != exact) & ~np.isnan(exact)]
    return pa.concat_arrays([values, pa.array(changed)]) if len(changed) else None


def finer_than_millisecond(values: pa.Array) -> pa.Array:
    """Timestamps that don't fit into milliseconds."""
    step = _PER_MILLISECOND.get(values.type.unit) if pa.types.is_timestamp(values.type) else None
    if step is None or not len(values):
        return values[:0]
    ticks = values.cast(pa.int64()).drop_null().to_numpy(zero_copy_only=False)
    return pa.array(ticks[ticks % step != 0], pa.int64()).cast(values.type)


def millisecond_readings(values: pa.Array) -> pa.Array | None:
    """``values`` plus their roundings to milliseconds, or None if rounding changes nothing."""
    fine = finer_than_millisecond(values)
    if not len(fine):
        return None
    step = _PER_MILLISECOND[values.type.unit]
    floor = fine.cast(pa.int64()).to_numpy() // step * step
    return pa.concat_arrays([values, *(pa.array(f).cast(values.type) for f in (floor, floor + step))])


def infinite(x: tree.Expr) -> tree.Predicate:
    """Test for an infinity of either sign."""
    return tree.IsIn(x, pa.array([np.inf, -np.inf]))


def finite(x: tree.Expr) -> tree.Predicate:
    """Test for a finite number."""
    return tree.Not(tree.Or((infinite(x), tree.IsNan(x))))


def neighbours(scalar: pa.Scalar) -> pa.Array:
    """A date or year with its neighbours, which covers every time zone of the column."""
    kind = scalar.type
    if not scalar.is_valid or not (pa.types.is_date32(kind) or pa.types.is_integer(kind)):
        raise TranslationError
    number = scalar.cast(pa.int32()).as_py()
    return pa.array([number - 1, number, number + 1], pa.int32()).cast(kind)


def between(above: tree.Predicate, below: tree.Predicate) -> tree.Predicate:
    """``above AND below``, as one BETWEEN if both compare the same value."""
    match above, below:
        case tree.Compare(">=" | ">", x, low), tree.Compare("<=" | "<", y, high) if x.key() == y.key():
            return tree.Between(x, low, high, above.op == ">=", below.op == "<=")
    return tree.conjunction((above, below))


def add_prunable(
    op: tree.CompareOp, arg: tree.Expr, readings: pa.Array, exact: tree.Predicate
) -> tree.Predicate:
    """AND ``exact``, which metadata can't judge, with a wider condition that it can.

    ``readings`` are all values the constant can have, depending on the column type, which is unknown here.
    """
    if op == "<>":
        return exact
    if op in ("=", "<=>"):
        return tree.And((tree.IsIn(arg, readings), exact))
    ends = pc.min_max(readings)
    return tree.And((tree.Compare(op, arg, tree.Literal(ends["max" if op in ("<", "<=") else "min"])), exact))


def like_regex(like: tree.Like) -> str:
    """Convert a LIKE pattern to a regular expression for RE2 and Rust's regex."""
    pieces = ("".join("." if s is None else _escape_regex(s) for s in piece) for piece in like_pieces(like))
    return rf"(?s)\A{'.*'.join(pieces)}\z"


def like_pieces(like: tree.Like) -> list[list[str | None]]:
    """Split a LIKE pattern at ``%`` into lists of plain characters, with None for each ``_``."""
    pieces: list[list[str | None]] = [[]]
    chars = iter(like.pattern)
    for char in chars:
        if char == like.escape:
            plain = next(chars, None)
            if plain is None:
                raise NotExpressibleError(f"LIKE pattern ends with its escape character: {like}")
            pieces[-1].append(plain)
        elif char == "%":
            pieces.append([])
        else:
            pieces[-1].append(None if char == "_" else char)
    return pieces


def _escape_regex(char: str) -> str:
    return "\\" + char if char in _REGEX_SPECIALS else char


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
    """Builds expressions of one library; the defaults use the operators ``&``, ``|`` and ``~``.

    In the methods below ``x`` and ``y`` are built expressions of the library.
    """

    library: ClassVar[str]
    # Functions with Spark's semantics, by Spark's name and the number of arguments.
    functions: ClassVar[Mapping[tuple[str, int], Callable[..., Any]]]

    # Implemented by each subclass. Lists have at least one value and no NULL.
    column: Callable[[tree.Column], Any]
    literal: Callable[[tree.Literal], Any]
    constant: Callable[[bool | None], Any]
    cast: Callable[[tree.Cast], Any]
    substring: Callable[[Any, int, int], Any]  # zero-based start, length
    is_in: Callable[[Any, tree.IsIn], Any]
    is_nan: Callable[[Any], Any]
    match: Callable[[Any, tree.Match], Any]
    pattern: Callable[[Any, tree.Like], Any]  # case-sensitive LIKE
    cut: Callable[[pa.Array], pa.Array]  # timestamps as the library casts them to milliseconds

    def inexpressible(self, what: object, why: str = "") -> NotExpressibleError:
        """Error that names the part without an equivalent in the library."""
        return NotExpressibleError(
            f"{self.library} has no equivalent of {what}" + (f": {why}" if why else "")
        )

        # -- traversal ---------------------------------------------------------------------------

    def write(self, node: tree.Expr) -> Any:
        """Convert ``node`` to an expression of the library."""
        match node:
            case tree.Constant(value):
                return self.constant(value)
            case tree.BooleanValue(arg):
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
        hit = self.is_in(self.operand(node.arg), tree.IsIn(node.arg, values, node.zone))
        return self.any_of((hit, self.constant(None))) if has_null else hit

    # -- logic -------------------------------------------------------------------------------

    def operand(self, node: tree.Expr) -> Any:
        """Convert the argument of a comparison or a test."""
        return self.write(node)

    def holds(self, x: Any) -> Any:
        """Convert a boolean value to a condition."""
        return x

    def all_of(self, parts: Sequence[Any]) -> Any:
        """Join conditions by AND."""
        return functools.reduce(operator.and_, parts)

    def any_of(self, parts: Sequence[Any]) -> Any:
        """Join conditions by OR."""
        return functools.reduce(operator.or_, parts)

    def negation(self, x: Any) -> Any:
        """``NOT x``."""
        return ~x

    def truth(self, x: Any, value: bool | None) -> Any:
        """``x IS TRUE``, ``IS FALSE`` or ``IS NULL``."""
        return self.is_null(x) if value is None else self.null_to_false(x, x if value else ~x)

    def null_to_false(self, x: Any, condition: Any) -> Any:
        """``condition`` with FALSE instead of NULL; it is NULL exactly where ``x`` is."""
        return self.is_not_null(x) & condition

    def is_null(self, x: Any) -> Any:
        """``x IS NULL``."""
        return x.is_null()

    def is_not_null(self, x: Any) -> Any:
        """``x IS NOT NULL``."""
        return x.is_not_null()

    # -- comparisons -------------------------------------------------------------------------

    def compare(self, op: tree.CompareOp, x: Any, y: Any) -> Any:
        """``x op y``."""
        if op == "<=>":
            both_null = self.is_null(x) & self.is_null(y)
            return (self.is_not_null(x) & self.is_not_null(y) & self.compare("=", x, y)) | both_null
        return OPERATORS[op](x, y)

    def compare_literal(self, op: tree.CompareOp, x: Any, literal: tree.Literal) -> Any:
        """``x op literal``, correct even if the library casts the timestamp to the column's unit first."""
        y, fine = self.literal(literal), finer_than_millisecond(pa.array([literal.scalar]))
        if not len(fine):
            return self.compare(op, x, y)
        cut = self.cut(fine)[0]
        return _compare_fine(op, x, y, self.literal(tree.Literal(cut)), rounded_up=cut.value > fine[0].value)

    def like(self, node: tree.Like) -> Any:
        """``arg LIKE pattern``; ILIKE is LIKE with both sides in lower case, as in Spark."""
        if node.ignore_case:
            escape = node.escape.lower() if node.escape else node.escape
            node = tree.Like(tree.Call("lower", (node.arg,)), node.pattern.lower(), escape)
        return self.pattern(self.operand(node.arg), node)


def _compare_fine(op: tree.CompareOp, x: Any, v: Any, t: Any, *, rounded_up: bool) -> Any:
    """``x op v``, correct even if the library rounds ``v`` to ``t`` in the column's coarser unit first."""
    if op in ("=", "<>"):
        equal = (x == v) & (x != t)
        return equal if op == "=" else ~equal
    if op in ("<", ">="):
        less = x < v if rounded_up else (x < v) | (x <= t)
        return less if op == "<" else ~less
    less_or_equal = (x <= v) & (x < t) if rounded_up else x <= v
    return less_or_equal if op == "<=" else ~less_or_equal


def _substring(call: tree.Call) -> tuple[int, int] | None:
    """Zero-based start and length of ``substr`` or ``left`` with constant arguments, else None."""
    bounds = [arg.scalar.as_py() if isinstance(arg, tree.Literal) else None for arg in call.args[1:]]
    match call.name, bounds:
        case "substr", [int(first), int(count)] if first > 0:
            return first - 1, max(count, 0)
        case "left", [int(count)]:
            return 0, max(count, 0)
    return None
