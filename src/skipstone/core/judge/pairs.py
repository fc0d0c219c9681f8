"""Comparisons of two columns, from the bounds of both."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.evidence import Array, Bounds, ColumnFacts, Evidence
from skipstone.core.ir.nodes import Pair
from skipstone.core.judge.bits import Bits


def judge_pair(node: Pair, evidence: Evidence) -> Bits:
    """The bits of ``left op right``."""
    left, right = evidence.facts(node.left), evidence.facts(node.right)
    equal = _equal(left, right)
    if node.op == "<=>":
        return _null_safe(left, right, equal)
    bits = _ORDERED[node.op](left, right, equal)
    both = left.may_value & right.may_value
    # NaN against anything: its own rules are not worth their lines, so it may go either way.
    nan = (left.may_nan & (right.may_value | right.may_nan)) | (right.may_nan & left.may_value)
    return Bits((bits.true & both) | nan, (bits.false & both) | nan, left.may_null | right.may_null)


def _less(a: ColumnFacts, b: ColumnFacts) -> Bits:
    """``a < b``: possible if the least a is below the greatest b; can fail unless all a are below all b."""
    may = _below(a.lower, b.upper)
    return Bits(may, ~_surely_below(a.upper, b.lower), may)


def _equal(a: ColumnFacts, b: ColumnFacts) -> Bits:
    may = ~_surely_below(a.upper, b.lower) & ~_surely_below(b.upper, a.lower)
    points = _same(a.lower, a.upper) & _same(b.lower, b.upper) & _same(a.lower, b.lower)
    return Bits(may, ~points, may)


_ORDERED: dict[str, Callable[[ColumnFacts, ColumnFacts, Bits], Bits]] = {
    "<": lambda a, b, _: _less(a, b),
    ">": lambda a, b, _: _less(b, a),
    ">=": lambda a, b, _: ~_less(a, b),
    "<=": lambda a, b, _: ~_less(b, a),
    "=": lambda _a, _b, equal: equal,
    "<>": lambda _a, _b, equal: ~equal,
}


def _null_safe(left: ColumnFacts, right: ColumnFacts, equal: Bits) -> Bits:
    both = left.may_value & right.may_value
    true = (equal.true & both) | (left.may_nan & right.may_nan) | (left.may_null & right.may_null)
    one_null = (left.may_null & (right.may_value | right.may_nan)) | (
        right.may_null & (left.may_value | left.may_nan)
    )
    false = (equal.false & both) | left.may_nan | right.may_nan | one_null
    return Bits(true, false, np.zeros(len(left), dtype=bool))


def _below(a: Bounds, b: Bounds) -> Array:
    """Whether some key at or above ``a`` may be below some key at or below ``b``."""
    if isinstance(a, pa.Array):
        return np.asarray(pc.less(a, b).fill_null(True).to_numpy(zero_copy_only=False))
    return np.asarray(a < b)


def _surely_below(a: Bounds, b: Bounds) -> Array:
    """Whether every key at or below ``a`` is below every key at or above ``b``."""
    if isinstance(a, pa.Array):
        return np.asarray(pc.less(a, b).fill_null(False).to_numpy(zero_copy_only=False))
    return np.asarray(a < b)


def _same(a: Bounds, b: Bounds) -> Array:
    if isinstance(a, pa.Array):
        return np.asarray(pc.equal(a, b).fill_null(False).to_numpy(zero_copy_only=False))
    return np.asarray(a == b)
