"""The judge: IR × evidence → verdicts and reasons. Pure, columnar, and the same at every level."""

from __future__ import annotations

import bisect
import enum
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.domain import Domain
from skipstone.core.domain.points import BytePoints
from skipstone.core.domain.spans import ByteSpans, NumberSpans
from skipstone.core.evidence import Array, Bounds, ColumnFacts, Evidence, are_equal, is_ascending
from skipstone.core.ir.nodes import (
    AndNode,
    ColumnComparison,
    ConstantNode,
    IsNode,
    Leaf,
    Node,
    OpaqueNode,
    OrNode,
)

# -- bits --------------------------------------------------------------------------------------


class Verdict(enum.IntEnum):
    """The verdict on a unit: no row matches (NONE), some rows may match (SOME), or all rows match (ALL).

    Examples:
        >>> import skipstone as sk
        >>> result = sk.prune("events/part-0.parquet", "event_id >= 0")
        >>> [sk.Verdict(verdict).name for verdict in result.verdicts]
        ['ALL']
    """

    NONE = 0
    SOME = 1
    ALL = 2


@dataclass(frozen=True, slots=True, eq=False)
class VerdictBits:
    """Per unit, whether some row may be TRUE, may be FALSE and may be NULL."""

    true: Array
    false: Array
    null: Array

    @classmethod
    def constant(cls, units: int, value: bool | None) -> VerdictBits:
        """Bits of a constant condition."""
        return cls(*(np.full(units, value is bit) for bit in (True, False, None)))

    @classmethod
    def unknown(cls, units: int) -> VerdictBits:
        """Bits of a condition that can't be judged."""
        yes = np.ones(units, dtype=bool)
        return cls(yes, yes, yes)

    def take(self, units: Array) -> VerdictBits:
        return VerdictBits(self.true[units], self.false[units], self.null[units])

    def __and__(self, other: VerdictBits) -> VerdictBits:
        null = (self.null & (other.true | other.null)) | (other.null & (self.true | self.null))
        return VerdictBits(self.true & other.true, self.false | other.false, null)

    def __or__(self, other: VerdictBits) -> VerdictBits:
        return ~(~self & ~other)

    def __invert__(self) -> VerdictBits:
        return VerdictBits(self.false, self.true, self.null)

    def test(self, value: bool | None) -> VerdictBits:
        """IS TRUE, IS FALSE or IS UNKNOWN."""
        parts = {True: self.true, False: self.false, None: self.null}
        holds = parts.pop(value)
        first, second = parts.values()
        return VerdictBits(holds, first | second, np.zeros(len(holds), dtype=bool))

    def verdicts(self) -> Array:
        """NONE if no row may be TRUE, ALL if no row may be FALSE or NULL, otherwise SOME."""
        all_true = self.true & ~(self.false | self.null)
        return self.true.astype(np.int8) + all_true


# -- intervals of numbers ----------------------------------------------------------------------


FEW = 16
"""Up to this many spans are compared with every unit; for more a search is faster."""

_BLOCK = 1 << 16


def meets_numbers(facts: ColumnFacts, spans: NumberSpans) -> Array:
    """Per unit, whether ``[lower, upper]`` contains a key in ``spans``."""
    lower, upper = facts.lower, facts.upper
    assert isinstance(lower, np.ndarray)
    assert isinstance(upper, np.ndarray)
    if spans.is_empty:
        return np.zeros(len(lower), dtype=bool)
    if len(spans) <= FEW:
        return _compare(lower, upper, spans)
    if len(lower) > 4 * len(spans) and is_ascending(lower) and is_ascending(upper):
        return _search_units(lower, upper, spans)
    return _search_spans(lower, upper, spans)


def _compare(lower: Array, upper: Array, spans: NumberSpans) -> Array:
    floor, ceiling = spans.space.limits
    hits = np.zeros(len(lower), dtype=bool)
    above, below = np.empty(_BLOCK, dtype=bool), np.empty(_BLOCK, dtype=bool)
    pairs = list(zip(spans.lows.tolist(), spans.highs.tolist(), strict=True))
    # In blocks that fit into the CPU cache, so that each bound is loaded from memory once.
    for start in range(0, len(lower), _BLOCK):
        lows, highs = lower[start : start + _BLOCK], upper[start : start + _BLOCK]
        out = hits[start : start + _BLOCK]
        reaches, begins = above[: len(out)], below[: len(out)]
        for low, high in pairs:
            if low == floor and high == ceiling:
                out[:] = True
            elif low == floor:
                out |= np.less_equal(lows, high, out=begins)
            elif high == ceiling:
                out |= np.greater_equal(highs, low, out=reaches)
            else:
                np.less_equal(lows, high, out=begins)
                begins &= np.greater_equal(highs, low, out=reaches)
                out |= begins
    return hits


def _search_spans(lower: Array, upper: Array, spans: NumberSpans) -> Array:
    """For each unit, search the first span that doesn't end before it."""
    first = np.searchsorted(spans.highs, lower, side="left")
    starts = spans.lows[np.minimum(first, len(spans) - 1)]
    return np.asarray((first < len(spans)) & (starts <= upper))


def _search_units(lower: Array, upper: Array, spans: NumberSpans) -> Array:
    """For each span, search the run of units it overlaps, without a pass over the units."""
    starts = np.searchsorted(upper, spans.lows, side="left")
    stops = np.searchsorted(lower, spans.highs, side="right")
    overlapping = starts < stops
    starts, stops = starts[overlapping], stops[overlapping]
    hits = np.zeros(len(lower), dtype=bool)
    if not len(starts):
        return hits
    # Runs ascend like their spans; adjacent runs are merged and filled together.
    gaps = np.flatnonzero(starts[1:] > stops[:-1]) + 1
    firsts = starts[np.concatenate(([0], gaps))]
    lasts = stops[np.concatenate((gaps - 1, [len(stops) - 1]))]
    for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
        hits[first:last] = True
    return hits


# -- intervals of byte strings -----------------------------------------------------------------


def meets_bytes(facts: ColumnFacts, spans: ByteSpans) -> Array:
    """Per unit, whether ``[lower, upper]`` contains a key in ``spans``; an unknown bound is unlimited."""
    assert isinstance(facts.lower, pa.Array)
    assert isinstance(facts.upper, pa.Array)
    if spans.__class__ is BytePoints:
        first, stop = spans.between(facts.lower, facts.upper)
        return np.asarray(first < stop)
    if len(spans) > FEW:
        return _search(facts.lower, facts.upper, spans)
    hits: Array = np.zeros(len(facts), dtype=bool)
    for low, high in spans.pairs():
        reaches = _bools(pc.greater_equal(facts.upper, pa.scalar(low, _BYTES))) if low else True
        begins = True if high is None else _bools(pc.less(facts.lower, pa.scalar(high, _BYTES)))
        hits |= reaches & begins
    return hits


_BYTES = pa.large_binary()


def _bools(mask: pa.Array) -> Array:
    filled = mask.fill_null(True) if mask.null_count else mask
    result: Array = filled.to_numpy(zero_copy_only=False)
    return result


def _search(lower: pa.Array, upper: pa.Array, spans: ByteSpans) -> Array:
    """For each unit, search the first span that ends after its lower bound."""
    ends = [high for high in spans.highs if high is not None]
    lows = list(spans.lows)
    hits = np.ones(len(lower), dtype=bool)
    # A loop over units, since Arrow has no binary search in byte strings and a file has few units.
    for unit, (low, high) in enumerate(zip(lower.to_pylist(), upper.to_pylist(), strict=True)):
        at = bisect.bisect_right(ends, low) if low is not None else 0
        hits[unit] = at < len(lows) and (high is None or lows[at] <= high)
    return hits


# -- one column against another ----------------------------------------------------------------


def judge_comparison(node: ColumnComparison, evidence: Evidence) -> VerdictBits:
    """Bits of ``left op right``."""
    left, right = evidence.facts(node.left), evidence.facts(node.right)
    equal = _equal(left, right)
    if node.op == "<=>":
        return _null_safe(left, right, equal)
    bits = _ORDERED[node.op](left, right, equal)
    both = left.may_value & right.may_value
    # A comparison with NaN may be TRUE or FALSE; exact rules are not worth the code.
    nan = (left.may_nan & (right.may_value | right.may_nan)) | (right.may_nan & left.may_value)
    return VerdictBits((bits.true & both) | nan, (bits.false & both) | nan, left.may_null | right.may_null)


def _less(a: ColumnFacts, b: ColumnFacts) -> VerdictBits:
    """``a < b``: may be TRUE if min(a) < max(b); may be FALSE unless max(a) < min(b)."""
    may = _below(a.lower, b.upper)
    return VerdictBits(may, ~_surely_below(a.upper, b.lower), may)


def _equal(a: ColumnFacts, b: ColumnFacts) -> VerdictBits:
    may = ~_surely_below(a.upper, b.lower) & ~_surely_below(b.upper, a.lower)
    points = are_equal(a.lower, a.upper) & are_equal(b.lower, b.upper) & are_equal(a.lower, b.lower)
    return VerdictBits(may, ~points, may)


_ORDERED: dict[str, Callable[[ColumnFacts, ColumnFacts, VerdictBits], VerdictBits]] = {
    "<": lambda a, b, _: _less(a, b),
    ">": lambda a, b, _: _less(b, a),
    ">=": lambda a, b, _: ~_less(a, b),
    "<=": lambda a, b, _: ~_less(b, a),
    "=": lambda _a, _b, equal: equal,
    "<>": lambda _a, _b, equal: ~equal,
}


def _null_safe(left: ColumnFacts, right: ColumnFacts, equal: VerdictBits) -> VerdictBits:
    both = left.may_value & right.may_value
    true = (equal.true & both) | (left.may_nan & right.may_nan) | (left.may_null & right.may_null)
    one_null = (left.may_null & (right.may_value | right.may_nan)) | (
        right.may_null & (left.may_value | left.may_nan)
    )
    false = (equal.false & both) | left.may_nan | right.may_nan | one_null
    return VerdictBits(true, false, np.zeros(len(left), dtype=bool))


def _below(a: Bounds, b: Bounds) -> Array:
    """Whether a key >= ``a`` may be below a key <= ``b``."""
    if isinstance(a, pa.Array):
        return np.asarray(pc.less(a, b).fill_null(True).to_numpy(zero_copy_only=False))
    return np.asarray(a < b)


def _surely_below(a: Bounds, b: Bounds) -> Array:
    """Whether every key <= ``a`` is below every key >= ``b``."""
    if isinstance(a, pa.Array):
        return np.asarray(pc.less(a, b).fill_null(False).to_numpy(zero_copy_only=False))
    return np.asarray(a < b)


# -- trees -------------------------------------------------------------------------------------


Exclusions = Mapping[int, Array]
"""Units by ``id`` of a leaf, where other evidence (such as a bloom filter) rules out TRUE."""


@dataclass(frozen=True, slots=True, eq=False)
class Judgement:
    """Bits of N units, and those of each top-level conjunct, which explain why a unit is dropped."""

    bits: VerdictBits
    parts: tuple[tuple[Node, VerdictBits], ...]

    def verdicts(self) -> Array:
        """NONE, SOME or ALL for each unit."""
        return self.bits.verdicts()

    def take(self, units: Array) -> Judgement:
        """Select units, in that order."""
        return Judgement(self.bits.take(units), tuple((node, bits.take(units)) for node, bits in self.parts))

    def blame(self) -> Array:
        """For each unit, the first conjunct that no row can satisfy; -1 if the unit is kept."""
        conjuncts = np.full(len(self.bits.true), -1, dtype=np.int32)
        for number in reversed(range(len(self.parts))):
            conjuncts[~self.parts[number][1].true] = number
        return conjuncts


def judge(node: Node, evidence: Evidence, exclusions: Exclusions | None = None) -> Judgement:
    """Judge ``node`` for each unit of ``evidence``."""
    occupied = evidence.occupied
    parts = []
    total: VerdictBits | None = None
    for conjunct in node.args if isinstance(node, AndNode) else (node,):
        bits = _judge(conjunct, evidence, exclusions)
        if occupied is not None:
            bits = VerdictBits(bits.true & occupied, bits.false & occupied, bits.null & occupied)
        parts.append((conjunct, bits))
        total = bits if total is None else total & bits
    assert total is not None
    return Judgement(total, tuple(parts))


def _judge(node: Node, evidence: Evidence, exclusions: Exclusions | None) -> VerdictBits:
    match node:
        case Leaf():
            return _leaf(node, evidence, exclusions)
        case AndNode(args):
            return functools.reduce(VerdictBits.__and__, [_judge(a, evidence, exclusions) for a in args])
        case OrNode(args):
            return functools.reduce(VerdictBits.__or__, [_judge(a, evidence, exclusions) for a in args])
        case IsNode(arg, value, negated):
            bits = _judge(arg, evidence, exclusions).test(value)
            return ~bits if negated else bits
        case ColumnComparison():
            return judge_comparison(node, evidence)
        case ConstantNode(value):
            return VerdictBits.constant(len(evidence), value)
        case OpaqueNode():
            return VerdictBits.unknown(len(evidence))
    raise AssertionError(f"no judge for {type(node).__name__}")


def _leaf(leaf: Leaf, evidence: Evidence, exclusions: Exclusions | None) -> VerdictBits:
    facts = evidence.facts(leaf.ref)
    span = leaf.span
    if span is None:
        spans = leaf.true.spans
        if spans.__class__ is BytePoints and leaf.is_plain:  # not isinstance(): calls are the cost
            true, false = _judge_points(facts, spans)
            null = facts.may_null
        else:
            true, false, null = (meets(facts, domain) for domain in (leaf.true, leaf.false, leaf.null))
    else:
        # A plain leaf with one span of numbers needs neither of the other two sets.
        low, high = span
        true = (facts.lower <= high) & (facts.upper >= low) & facts.may_value
        false = ((facts.lower < low) | (facts.upper > high)) & facts.may_value
        null = facts.may_null
        if leaf.true.nans:
            true = true | facts.may_nan
        else:
            false = false | facts.may_nan
    excluded = None if exclusions is None else exclusions.get(id(leaf))
    return VerdictBits(true if excluded is None else true & ~excluded, false, null)


def _judge_points(facts: ColumnFacts, points: BytePoints) -> tuple[Array, Array]:
    """Per unit, whether it may have one of many byte strings, and whether it may have another one."""
    false = facts.may_value
    single = are_equal(facts.lower, facts.upper).nonzero()[0]
    if len(single):
        assert isinstance(facts.lower, pa.Array)
        false = false.copy()
        false[single] &= ~points.mask(facts.lower.take(pa.array(single)))
    return meets_bytes(facts, points) & facts.may_value, false


def meets(facts: ColumnFacts, domain: Domain) -> Array:
    """Per unit, whether it may contain a value in ``domain``."""
    hits: Array | None = None
    if not domain.spans.is_empty:
        if domain.spans.is_all:
            hits = facts.may_value
        elif isinstance(domain.spans, NumberSpans):
            hits = meets_numbers(facts, domain.spans) & facts.may_value
        else:
            hits = meets_bytes(facts, domain.spans) & facts.may_value
    if domain.nulls:
        hits = facts.may_null if hits is None else hits | facts.may_null
    if domain.nans:
        hits = facts.may_nan if hits is None else hits | facts.may_nan
    return np.zeros(len(facts), dtype=bool) if hits is None else hits
