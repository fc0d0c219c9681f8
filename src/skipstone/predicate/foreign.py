"""What reading and writing foreign expressions share: literals, readings of a literal, LIKE as a regex."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

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


class Unknown(Exception):
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
        raise Unknown
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
