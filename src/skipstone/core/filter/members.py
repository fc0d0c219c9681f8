"""Evaluation of leaves on rows, by set membership."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.arrays import Array, binary_keys, bools, numbers, plain, valid_rows
from skipstone.core.domain import Domain
from skipstone.core.domain.keys import PRESENCE, Kind
from skipstone.core.domain.points import BytePoints, as_binary
from skipstone.core.domain.spans import ByteSpans, NumberSpans, prefix_end
from skipstone.core.filter.conditions import TruthMask
from skipstone.core.ir.nodes import Leaf

FEW = 8
"""Up to this many spans are compared with every row; more are looked up."""
_TABLE = 1 << 22
_TRUE, _FALSE, _NULL = range(3)
_DICTIONARY = pa.dictionary(pa.int8(), pa.int8()).id
_CACHED = 1 << 14

InSpans = Callable[[pa.Array], Array]
"""Per row, whether its key is in a set; undefined for NULL, False for NaN."""


def is_exact(leaf: Leaf) -> bool:
    """Whether the leaf is exactly one of TRUE, FALSE and NULL for each value."""
    if leaf.is_plain:
        return True
    true, false, null = leaf.true, leaf.false, leaf.null
    return not (true.overlaps(false) or true.overlaps(null) or false.overlaps(null))


def leaf_test(leaf: Leaf) -> Callable[[pa.Array], TruthMask]:
    """Make a function that evaluates an exact leaf on an array of the column."""
    simple = leaf.is_plain and not leaf.true.nulls
    evaluate_values = _evaluate_true_set(leaf.true) if simple else _evaluate_two_sets(leaf)

    def evaluate(array: pa.Array) -> TruthMask:
        if array.type.id == _DICTIONARY and 0 < len(array.dictionary) <= len(array):
            return evaluate_dictionary(array)
        array = plain(array)
        return evaluate_values(array, None if array.null_count == 0 else valid_rows(array))

    def evaluate_dictionary(array: pa.Array) -> TruthMask:
        by_code, valid = evaluate(array.dictionary), valid_rows(array.indices)
        codes = numbers(array.indices if valid is None else array.indices.fill_null(0))
        true = by_code.true[codes]
        null = None if by_code.null is None else by_code.null[codes]
        if valid is None:
            return TruthMask(true, null)
        null = np.zeros(len(array), dtype=bool) if null is None else null
        return TruthMask(np.where(valid, true, leaf.true.nulls), np.where(valid, null, leaf.null.nulls))

    return evaluate


def _evaluate_true_set(domain: Domain) -> Callable[[pa.Array, Array | None], TruthMask]:
    """Evaluate a leaf that is NULL for NULL, TRUE for values of the domain and FALSE for all others."""
    member = _member(domain)

    def evaluate(array: pa.Array, valid: Array | None) -> TruthMask:
        true = member(array, valid)
        if true is None:
            true = np.zeros(len(array), dtype=bool)
        return TruthMask(true, None if valid is None else ~valid)

    return evaluate


def _evaluate_two_sets(leaf: Leaf) -> Callable[[pa.Array, Array | None], TruthMask]:
    """Evaluate any leaf: its sets partition all values, so the one with the most spans is the complement."""
    sets = (leaf.true, leaf.false, leaf.null)
    first, second, rest = sorted((_TRUE, _FALSE, _NULL), key=lambda at: _work(sets[at]))
    members = _member(sets[first]), _member(sets[second])

    def evaluate(array: pa.Array, valid: Array | None) -> TruthMask:
        masks = {first: members[0](array, valid), second: members[1](array, valid)}
        if rest != _FALSE:
            masks[rest] = _neither(masks[first], masks[second], len(array))
        true = masks[_TRUE]
        return TruthMask(np.zeros(len(array), dtype=bool) if true is None else true, masks[_NULL])

    return evaluate


def _work(domain: Domain) -> int:
    if domain.spans.is_empty:
        return 0
    return 1 if domain.spans.is_all else 1 + len(domain.spans)


def _neither(a: Array | None, b: Array | None, rows: int) -> Array:
    either = b if a is None else a if b is None else a | b
    return np.ones(rows, dtype=bool) if either is None else ~either


def _member(domain: Domain) -> Callable[[pa.Array, Array | None], Array | None]:
    """Membership of each row in the domain; None if no row is a member."""
    inside = None if domain.spans.is_empty else in_spans(domain.spans, nans=domain.nans)
    nans = domain.nans and not domain.spans.is_all

    def member(array: pa.Array, valid: Array | None) -> Array | None:
        mask = None if inside is None else inside(array)
        if nans:
            nan = np.isnan(numbers(array))
            mask = nan if mask is None else mask | nan
        if valid is None:
            return mask
        if mask is None:
            return ~valid if domain.nulls else None
        return mask | ~valid if domain.nulls else mask & valid

    return member


def in_spans(spans: NumberSpans | ByteSpans, *, nans: bool = False) -> InSpans:
    """Choose the fastest membership test; with ``nans`` an unbounded set contains NaN."""
    if spans.is_all:
        if spans.space.kind is Kind.FLOAT and not nans:
            return lambda array: ~np.isnan(numbers(array))
        return lambda array: np.ones(len(array), dtype=bool)
    if isinstance(spans, ByteSpans):
        return _in_byte_spans(spans)
    return _in_numbers(spans)


# -- numbers -----------------------------------------------------------------------------------


def _in_numbers(spans: NumberSpans) -> InSpans:
    assert spans.space is not PRESENCE
    dtype = spans.space.dtype
    if len(spans) <= FEW:
        return lambda array: _compare(_keys(array, spans), spans)
    lows, highs = spans.lows, spans.highs
    if spans.space.kind is Kind.INT:
        low, extent = int(lows[0]), int(highs[-1]) - int(lows[0]) + 1
        if extent <= _TABLE:
            return _in_table(spans, low, extent)

    def search(array: pa.Array) -> Array:
        keys = _keys(array, spans).astype(dtype, copy=False)
        if not len(keys):
            return np.zeros(0, dtype=bool)
        # Rows of a clustered column span a part of the keys. NaN sorts above every span, so it is in none.
        first = np.searchsorted(highs, np.fmin.reduce(keys), side="left")
        last = np.searchsorted(lows, np.fmax.reduce(keys), side="right")
        if first >= last:
            return np.zeros(len(keys), dtype=bool)
        return _in_sorted(keys, lows[first:last], highs[first:last])

    return search


def _in_sorted(keys: Array, lows: Array, highs: Array) -> Array:
    """Whether keys are in sorted spans."""
    order = None
    if len(lows) <= 2 * len(keys) and np.array_equal(lows, highs):
        # Adding zero makes -0.0 zero, which a hash table distinguishes.
        members, keys = (pa.array(some + some.dtype.type(0)) for some in (lows, keys))
        return bools(pc.is_in(keys, members))
    if len(lows) > _CACHED:
        # A search for ascending keys finds its way in the CPU cache.
        order = np.argsort(keys)
        keys = keys[order]
    at = np.searchsorted(highs, keys, side="left")
    inside = (at < len(highs)) & (lows[np.minimum(at, len(lows) - 1)] <= keys)
    if order is None:
        return np.asarray(inside)
    mask = np.empty(len(keys), dtype=bool)
    mask[order] = inside
    return mask


def _keys(array: pa.Array, spans: NumberSpans) -> Array:
    """Keys in their own width if the ends of the spans fit, otherwise in the width of the spans."""
    keys = numbers(array)
    if spans.space.kind is Kind.FLOAT:
        return keys.astype(np.float64, copy=False)
    if keys.dtype == spans.space.dtype:
        return keys
    info = np.iinfo(keys.dtype)
    fits = int(info.min) <= int(spans.lows[0]) and int(spans.highs[-1]) <= int(info.max)
    return keys if fits else keys.astype(spans.space.dtype)


def _compare(keys: Array, spans: NumberSpans) -> Array:
    floor, ceiling = spans.space.limits
    mask: Array | None = None
    for low, high in zip(spans.lows.tolist(), spans.highs.tolist(), strict=True):
        if low == high:
            hit = keys == low
        elif low == floor:
            hit = keys <= high
        elif high == ceiling:
            hit = keys >= low
        else:
            hit = (keys >= low) & (keys <= high)
        mask = hit if mask is None else mask | hit
    assert mask is not None
    return np.asarray(mask)


def _in_table(spans: NumberSpans, low: int, extent: int) -> InSpans:
    """Use a table with a flag for each key between the first and the last."""
    steps = np.zeros(extent + 1, dtype=np.int8)
    steps[(spans.lows - spans.lows[0]).astype(np.int64)] += 1
    steps[(spans.highs - spans.lows[0]).astype(np.int64) + 1] -= 1
    flags = np.cumsum(steps[:-1], dtype=np.int8).astype(bool)

    def look_up(array: pa.Array) -> Array:
        keys = _keys(array, spans).astype(spans.space.dtype, copy=False)
        inside = (keys >= low) & (keys <= low + extent - 1)
        offsets = np.where(inside, keys, spans.lows[0]) - spans.lows[0]
        return np.asarray(flags[offsets.astype(np.int64, copy=False)] & inside)

    return look_up


# -- bytes -------------------------------------------------------------------------------------


def _in_byte_spans(spans: ByteSpans) -> InSpans:
    if isinstance(spans, BytePoints):
        return lambda array: spans.mask(as_binary(binary_keys(array)))
    points = spans.points()
    if points is not None and len(points) > 1:
        return lambda array: _in_list(binary_keys(array), points)
    if len(spans) <= FEW:
        return lambda array: _compare_bytes(binary_keys(array), spans, points)
    return lambda array: _compare_ranks(binary_keys(array), spans)


def _to_variable_width(keys: pa.Array) -> pa.Array:
    return keys.cast(pa.binary()) if pa.types.is_fixed_size_binary(keys.type) else keys


def _in_list(keys: pa.Array, points: list[bytes]) -> Array:
    keys = _to_variable_width(keys)
    return bools(pc.is_in(keys, pa.array(points, keys.type)))


def _compare_bytes(keys: pa.Array, spans: ByteSpans, points: list[bytes] | None) -> Array:
    kind = pa.binary() if pa.types.is_fixed_size_binary(keys.type) else keys.type
    if points:
        return bools(pc.equal(keys, pa.scalar(points[0], kind)))
    mask: Array | None = None
    for low, high in spans.pairs():
        if low and high == prefix_end(low):
            hit = bools(pc.starts_with(_to_variable_width(keys), low))
            mask = hit if mask is None else mask | hit
            continue
        hit = np.ones(len(keys), dtype=bool)
        if low:
            hit = bools(pc.greater_equal(keys, pa.scalar(low, kind)))
        if high is not None:
            hit &= bools(pc.less(keys, pa.scalar(high, kind)))
        mask = hit if mask is None else mask | hit
    assert mask is not None
    return mask


def _compare_ranks(keys: pa.Array, spans: ByteSpans) -> Array:
    """For many spans: rank rows and ends together, and compare the ranks."""
    keys = _to_variable_width(keys)
    ends = [high for high in spans.highs if high is not None]
    combined = pa.concat_arrays([keys, pa.array([*spans.lows, *ends], keys.type)])
    ranks = np.asarray(pc.rank(combined, sort_keys="ascending", tiebreaker="dense"))
    row_ranks, lows = ranks[: len(keys)], ranks[len(keys) : len(keys) + len(spans.lows)]
    highs = ranks[len(keys) + len(spans.lows) :]
    at = np.searchsorted(highs, row_ranks, side="right")
    return np.asarray((at < len(lows)) & (lows[np.minimum(at, len(lows) - 1)] <= row_ranks))
