"""From a predicate to an expression of another library: one walk over the tree for all of them.

The walk holds what Spark's semantics ask of every library: three-valued logic, NULL literals, NULL in a
list, null-safe equality, ILIKE, and the error for what can't be expressed. A subclass of
:class:`ExpressionWriter` says how its library builds each part and makes up for where the library differs
from Spark, such as NaN or a literal that is rounded to the column's type.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import pyarrow as pa

from skipstone.errors import NotExpressibleError
from skipstone.predicate import tree
from skipstone.predicate.foreign import finer_than_millisecond, plain

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
