"""A leaf on rows: is the row's value one of those that make it TRUE, or one of those that make it NULL."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.arrays import Array, binary_keys, bools, numbers, plain, valid_rows
from skipstone.core.domain import Domain
from skipstone.core.domain.keys import PRESENCE, Kind
from skipstone.core.domain.spans import ByteSpans, NumberSpans, prefix_end
from skipstone.core.filter.conditions import TruthMask
from skipstone.core.ir.nodes import Leaf

FEW = 8
"""Up to this many spans each is compared with every row; above it they are looked up."""
_TABLE = 1 << 22
_TRUE, _FALSE, _NULL = range(3)
_DICTIONARY = pa.dictionary(pa.int8(), pa.int8()).id
_POINTS = 1 << 20

InSpans = Callable[[pa.Array], Array]
"""Per row, whether its key is in a set; anything for NULL, False for NaN."""


def is_exact(leaf: Leaf) -> bool:
    """Whether each value makes the leaf just one of TRUE, FALSE and NULL."""
    if leaf.is_plain:
        return True
    true, false, null = leaf.true, leaf.false, leaf.null
    return not (true.overlaps(false) or true.overlaps(null) or false.overlaps(null))


def leaf_test(leaf: Leaf) -> Callable[[pa.Array], TruthMask]:
    """How to answer an exact leaf for an array of its column's values."""
    few = leaf.is_plain and len(leaf.true.spans) <= FEW and not leaf.true.nulls
    of_values = _by_true(leaf.true) if few else _by_two(leaf)

    def answer(array: pa.Array) -> TruthMask:
        if array.type.id == _DICTIONARY and 0 < len(array.dictionary) <= len(array):
            return by_dictionary(array)
        array = plain(array)
        return of_values(array, None if array.null_count == 0 else valid_rows(array))

    def by_dictionary(array: pa.Array) -> TruthMask:
        each, valid = answer(array.dictionary), valid_rows(array.indices)
        codes = numbers(array.indices if valid is None else array.indices.fill_null(0))
        true = each.true[codes]
        null = None if each.null is None else each.null[codes]
        if valid is None:
            return TruthMask(true, null)
        null = np.zeros(len(array), dtype=bool) if null is None else null
        return TruthMask(np.where(valid, true, leaf.true.nulls), np.where(valid, null, leaf.null.nulls))

    return answer


def _by_true(domain: Domain) -> Callable[[pa.Array, Array | None], TruthMask]:
    """For a leaf that is NULL for NULL, TRUE for values of the domain and FALSE for all others."""
    member = _member(domain)

    def answer(array: pa.Array, valid: Array | None) -> TruthMask:
        true = member(array, valid)
        if true is None:
            true = np.zeros(len(array), dtype=bool)
        return TruthMask(true, None if valid is None else ~valid)

    return answer


def _by_two(leaf: Leaf) -> Callable[[pa.Array, Array | None], TruthMask]:
    """For any leaf: its sets share out all values, and the one with most spans is what the others leave."""
    sets = (leaf.true, leaf.false, leaf.null)
    one, other, rest = sorted((_TRUE, _FALSE, _NULL), key=lambda at: _work(sets[at]))
    members = _member(sets[one]), _member(sets[other])

    def answer(array: pa.Array, valid: Array | None) -> TruthMask:
        found = {one: members[0](array, valid), other: members[1](array, valid)}
        if rest != _FALSE:
            found[rest] = _neither(found[one], found[other], len(array))
        true = found[_TRUE]
        return TruthMask(np.zeros(len(array), dtype=bool) if true is None else true, found[_NULL])

    return answer


def _work(domain: Domain) -> int:
    if domain.spans.is_empty:
        return 0
    return 1 if domain.spans.is_all else 1 + len(domain.spans)


def _neither(a: Array | None, b: Array | None, rows: int) -> Array:
    taken = b if a is None else a if b is None else a | b
    return np.ones(rows, dtype=bool) if taken is None else ~taken


def _member(domain: Domain) -> Callable[[pa.Array, Array | None], Array | None]:
    """Per row, whether its value belongs to the domain; None for no row at all."""
    inside = None if domain.spans.is_empty else in_spans(domain.spans, nans=domain.nans)
    nans = domain.nans and not domain.spans.is_all

    def member(array: pa.Array, valid: Array | None) -> Array | None:
        found = None if inside is None else inside(array)
        if nans:
            nan = np.isnan(numbers(array))
            found = nan if found is None else found | nan
        if valid is None:
            return found
        if found is None:
            return ~valid if domain.nulls else None
        return found | ~valid if domain.nulls else found & valid

    return member


def in_spans(spans: NumberSpans | ByteSpans, *, nans: bool = False) -> InSpans:
    """The fastest test for being in ``spans``; with ``nans`` an unlimited set holds NaN too."""
    if spans.is_all:
        if spans.space.kind is Kind.FLOAT and not nans:
            return lambda array: ~np.isnan(numbers(array))
        return lambda array: np.ones(len(array), dtype=bool)
    if isinstance(spans, ByteSpans):
        return _in_texts(spans)
    return _in_numbers(spans)


# -- numbers -----------------------------------------------------------------------------------


def _in_numbers(spans: NumberSpans) -> InSpans:
    assert spans.space is not PRESENCE
    dtype = spans.space.dtype
    if len(spans) <= FEW:
        return lambda array: _compared(_keys(array, spans), spans)
    lows, highs = spans.lows, spans.highs
    if spans.space.kind is Kind.INT:
        low, extent = int(lows[0]), int(highs[-1]) - int(lows[0]) + 1
        if extent <= _TABLE:
            return _in_table(spans, low, extent)
        widths = highs.astype(np.float64) - lows.astype(np.float64) + 1
        if widths.sum() <= _POINTS:
            counts = (highs - lows).astype(np.int64) + 1
            firsts = np.repeat(np.cumsum(counts) - counts, counts)
            offsets = (np.arange(counts.sum()) - firsts).astype(dtype)
            return _in_points(np.repeat(lows, counts) + offsets)
    elif np.array_equal(lows, highs):
        return _in_points(lows + 0.0)  # one zero: Arrow's hash table would keep -0.0 apart

    def search(array: pa.Array) -> Array:
        keys = _keys(array, spans).astype(dtype)
        at = np.searchsorted(highs, keys, side="left")
        # NaN sorts above every span, so that it is found in none.
        return np.asarray((at < len(highs)) & (lows[np.minimum(at, len(lows) - 1)] <= keys))

    return search


def _keys(array: pa.Array, spans: NumberSpans) -> Array:
    """Keys that compare with the spans' ends: in their own width where the ends fit it."""
    keys = numbers(array)
    if spans.space.kind is Kind.FLOAT:
        return keys.astype(np.float64, copy=False)
    if keys.dtype == spans.space.dtype:
        return keys
    info = np.iinfo(keys.dtype)
    fits = int(info.min) <= int(spans.lows[0]) and int(spans.highs[-1]) <= int(info.max)
    return keys if fits else keys.astype(spans.space.dtype)


def _compared(keys: Array, spans: NumberSpans) -> Array:
    floor, ceiling = spans.space.limits
    found: Array | None = None
    for low, high in zip(spans.lows.tolist(), spans.highs.tolist(), strict=True):
        if low == high:
            hit = keys == low
        elif low == floor:
            hit = keys <= high
        elif high == ceiling:
            hit = keys >= low
        else:
            hit = (keys >= low) & (keys <= high)
        found = hit if found is None else found | hit
    assert found is not None
    return np.asarray(found)


def _in_table(spans: NumberSpans, low: int, extent: int) -> InSpans:
    """A flag for each key between the first and the last: one look-up per row."""
    steps = np.zeros(extent + 1, dtype=np.int8)
    steps[(spans.lows - spans.lows[0]).astype(np.int64)] += 1
    steps[(spans.highs - spans.lows[0]).astype(np.int64) + 1] -= 1
    flags = np.cumsum(steps[:-1], dtype=np.int8).astype(bool)

    def look_up(array: pa.Array) -> Array:
        keys = _keys(array, spans).astype(spans.space.dtype, copy=False)
        inside = (keys >= low) & (keys <= low + extent - 1)
        places = np.where(inside, keys, spans.lows[0]) - spans.lows[0]
        return np.asarray(flags[places.astype(np.int64, copy=False)] & inside)

    return look_up


def _in_points(keys: Array) -> InSpans:
    wanted = pa.array(keys)

    def look_up(array: pa.Array) -> Array:
        own = numbers(array).astype(keys.dtype, copy=False)
        own = own + 0.0 if own.dtype.kind == "f" else own
        return bools(pc.is_in(pa.array(own), wanted))

    return look_up


# -- bytes -------------------------------------------------------------------------------------


def _in_texts(spans: ByteSpans) -> InSpans:
    points = spans.points()
    if points is not None and len(points) > 1:
        return lambda array: _listed(binary_keys(array), points)
    if len(spans) <= FEW:
        return lambda array: _text_compared(binary_keys(array), spans, points)
    return lambda array: _ranked(binary_keys(array), spans)


def _unfixed(keys: pa.Array) -> pa.Array:
    return keys.cast(pa.binary()) if pa.types.is_fixed_size_binary(keys.type) else keys


def _listed(keys: pa.Array, points: list[bytes]) -> Array:
    keys = _unfixed(keys)
    return bools(pc.is_in(keys, pa.array(points, keys.type)))


def _text_compared(keys: pa.Array, spans: ByteSpans, points: list[bytes] | None) -> Array:
    kind = pa.binary() if pa.types.is_fixed_size_binary(keys.type) else keys.type
    if points:
        return bools(pc.equal(keys, pa.scalar(points[0], kind)))
    found: Array | None = None
    for low, high in spans.pairs():
        if low and high == prefix_end(low):
            hit = bools(pc.starts_with(_unfixed(keys), low))
            found = hit if found is None else found | hit
            continue
        hit = np.ones(len(keys), dtype=bool)
        if low:
            hit = bools(pc.greater_equal(keys, pa.scalar(low, kind)))
        if high is not None:
            hit &= bools(pc.less(keys, pa.scalar(high, kind)))
        found = hit if found is None else found | hit
    assert found is not None
    return found


def _ranked(keys: pa.Array, spans: ByteSpans) -> Array:
    """Many spans: rows and ends are ranked together, and the ranks compared as numbers."""
    keys = _unfixed(keys)
    ends = [high for high in spans.highs if high is not None]
    together = pa.concat_arrays([keys, pa.array([*spans.lows, *ends], keys.type)])
    ranks = np.asarray(pc.rank(together, sort_keys="ascending", tiebreaker="dense"))
    own, lows = ranks[: len(keys)], ranks[len(keys) : len(keys) + len(spans.lows)]
    highs = ranks[len(keys) + len(spans.lows) :]
    at = np.searchsorted(highs, own, side="right")
    return np.asarray((at < len(lows)) & (lows[np.minimum(at, len(lows) - 1)] <= own))
