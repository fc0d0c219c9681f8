"""The aggregates of blocks of rows, from the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from skipstone.core.domain.keys import Kind, is_ordered, key_space, storage_type
from skipstone.core.evidence import Array
from skipstone.core.evidence.hull import reduce_blocks
from skipstone.core.filter.keys import texts
from skipstone.parquet.measure import Column, NumberKeys, byte_keys, read_column
from skipstone.partial.blocks import Blocks, Facet, facets_of
from skipstone.partial.ends import both_ends, extreme_rows
from skipstone.partial.exact import (
    LARGEST,
    LARGEST_ROOT,
    ends_and_sums,
    exact_squares,
    exact_sums,
    fold,
    run_lengths,
    two_product,
    whole_terms,
)
from skipstone.partial.limbs import (
    decimal_sums,
    decimal_words,
    decimals,
    from_totals,
    huge_sums,
    totals,
    whole_sums,
)
from skipstone.partial.states import Measure, Path, Rows


@dataclass(frozen=True, slots=True)
class BlockMeasure(Measure[Blocks]):
    """Some facets of one column."""

    path: Path
    type: pa.DataType
    facets: Facet

    @property
    def columns(self) -> tuple[Path, ...]:
        """The one column."""
        return (self.path,)

    def update(self, rows: Rows) -> Blocks:
        """The facets of each group."""
        return read_blocks(self.type, rows.column(self.path), rows.starts, self.facets)

    def join(self, states: Sequence[Blocks]) -> Blocks:
        """All blocks."""
        return Blocks.concat(states)

    def fold(self, state: Blocks, order: Array, starts: Array) -> Blocks:
        """Blocks of blocks."""
        return state.take(order).merge(starts)

    def cached(self, blocks: Blocks) -> tuple[Blocks, Array]:
        """The blocks themselves, where the facets are known."""
        return blocks, blocks.knows(self.facets)


def read_blocks(
    type: pa.DataType, values: pa.Array | pa.ChunkedArray, starts: Array, facets: Facet
) -> Blocks:
    """The aggregates of blocks of rows that begin at ``starts``, in keys of ``type``.

    Facets that the type can't have stay unknown. Raises :class:`skipstone.parquet.measure.NotMeasurable` for
    values that are no exact part of the type.
    """
    rows = run_lengths(starts, len(values))
    assert rows.sum() == len(values)
    assert (rows >= 0).all()
    wanted = facets & facets_of(type) | Facet.COUNT
    blank = Blocks.unknown(type, len(rows))
    if not is_ordered(type):
        present = np.asarray(values.is_valid())
        count = reduce_blocks(np.add, present, starts, empty=0, dtype=np.int64)
        return _told(blank, wanted, {"count": count})
    column = read_column(type, values)
    count = rows - column.nulls(starts)
    if wanted == Facet.COUNT:
        return _told(blank, wanted, {"count": count})
    # NULLs are left out before anything else, and blocks begin earlier by as much.
    starts = np.cumsum(count) - count
    kind, storage = key_space(type).kind, storage_type(type)
    if kind is Kind.BYTES:
        wide = pa.types.is_decimal(storage)
        found = _decimals(column, storage, starts, wanted) if wide else _texts(column, starts, wanted)
    else:
        wanted |= Facet.ENDS
        keys = NumberKeys.of(column)
        some = keys.keys if keys.valid is None else keys.keys[keys.valid]
        found = (_floats if kind is Kind.FLOAT else _wholes)(some, starts, wanted)
        found |= {name: found[name].astype(key_space(type).dtype) for name in ("lower", "upper")}
    found.setdefault("has", count > 0)
    return _told(blank, wanted, {"count": count, **found})


def constant_blocks(type: pa.DataType, value: pa.Scalar, rows: Array, facets: Facet) -> Blocks:
    """The aggregates of blocks in which one value, or NULL, stands in each of ``rows`` rows."""
    array = pa.repeat(value, 1) if value.is_valid else pa.nulls(1, type)
    once = read_blocks(type, array, np.zeros(1, dtype=np.int64), facets)
    many = once.take(np.zeros(len(rows), dtype=np.int64))
    counts = rows.astype(np.int64)
    sums = [total * count for total, count in zip(totals(many.limbs), counts.tolist(), strict=True)]
    return replace(
        many,
        count=many.count * counts,
        nans=many.nans * counts,
        limbs=from_totals(sums) if len(many.limbs) else many.limbs,
        parts=_times(many.parts, counts),
        infinite=np.where(counts > 0, many.infinite, 0.0),
        squares=_times(many.squares, counts),
        has=many.has & (counts > 0),
    )


def _told(blank: Blocks, facets: Facet, found: dict[str, Any]) -> Blocks:
    return replace(blank, known=np.full(len(blank), facets, dtype=np.uint8), **found)


def _times(parts: Array, counts: Array) -> Array:
    """Exact multiples: each part becomes two, of which the second is what rounding left out of the first."""
    if not len(parts):
        return parts
    finite = np.isfinite(parts)
    high, low = two_product(np.where(finite, parts, 0.0), counts.astype(np.float64)[np.newaxis])
    high[~finite & (counts > 0)] = np.inf
    return fold(np.vstack([high, low]), np.arange(len(counts)))


# -- by kind of key ----------------------------------------------------------------------------


def _wholes(keys: Array, starts: Array, wanted: Facet) -> dict[str, Any]:
    lower, upper = both_ends(keys, starts)
    found: dict[str, Any] = {"lower": lower, "upper": upper}
    if wanted & Facet.SUM:
        most = max(-int(lower.min(initial=0)), int(upper.max(initial=0)))
        found["limbs"] = whole_sums(keys, starts, most)
    if wanted & Facet.SQUARES:
        found["squares"] = exact_squares(whole_terms(keys), starts)
    return found


def _floats(keys: Array, starts: Array, wanted: Facet) -> dict[str, Any]:
    summed = bool(wanted & Facet.SUM)
    lower, upper, parts = ends_and_sums(keys, starts) if summed else (*both_ends(keys, starts), None)
    if np.isnan(lower).any():
        odd = np.isnan(keys)
        nans = reduce_blocks(np.add, odd, starts, empty=0, dtype=np.int64)
        left = run_lengths(starts, len(keys)) - nans
        return _floats(keys[~odd], np.cumsum(left) - left, wanted) | {"nans": nans}
    # Adding zero leaves one of the two zeros.
    found: dict[str, Any] = {"lower": lower + 0.0, "upper": upper + 0.0}
    found["nans"] = np.zeros(len(starts), dtype=np.int64)
    found["has"] = run_lengths(starts, len(keys)) > 0
    if summed:
        found |= _huge_float_sums(keys, starts) if parts is None else {"parts": parts}
    if wanted & Facet.SQUARES:
        most = max(-float(lower.min(initial=0.0)), float(upper.max(initial=0.0)))
        found |= _float_squares(keys, starts, most)
    return found


def _huge_float_sums(keys: Array, starts: Array) -> dict[str, Any]:
    """The sums where some values are not below LARGEST."""
    keys = keys.astype(np.float64)
    odd = np.abs(keys) >= LARGEST
    huge = np.where(odd & np.isfinite(keys), keys, 0.0)
    with np.errstate(invalid="ignore"):
        beyond = reduce_blocks(np.add, np.where(np.isinf(keys), keys, 0.0), starts, empty=0.0)
    parts = exact_sums(np.where(odd, 0.0, keys), starts)
    return {"parts": parts, "limbs": huge_sums(huge, starts), "infinite": beyond}


def _float_squares(keys: Array, starts: Array, most: float) -> dict[str, Any]:
    if most < LARGEST_ROOT:
        return {"squares": exact_squares([keys], starts)}
    keys = keys.astype(np.float64)
    odd = np.abs(keys) >= LARGEST_ROOT
    squares = exact_squares([np.where(odd, 0.0, keys)], starts)
    beyond = reduce_blocks(np.logical_or, odd, starts, empty=False)
    return {"squares": np.vstack([squares, np.where(beyond, np.inf, 0.0)])}


def _texts(column: Column, starts: Array, wanted: Facet) -> dict[str, Any]:
    if not wanted & Facet.ENDS:
        return {}
    chunks = [key.cast(pa.large_binary()).drop_null() for key in byte_keys(column.chunks).chunks]
    keys = pa.concat_arrays(chunks) if chunks else pa.array([], pa.large_binary())
    return dict(zip(("lower", "upper"), both_ends(keys, starts), strict=True))


def _decimals(column: Column, type: pa.DataType, starts: Array, wanted: Facet) -> dict[str, Any]:
    """The same of decimals that are wider than a word."""
    none = pa.array([], type)
    words = np.concatenate([decimal_words(chunk.drop_null()) for chunk in (*column.chunks, none)])
    found: dict[str, Any] = {}
    if wanted & Facet.ENDS:
        has = run_lengths(starts, len(words)) > 0
        for name, greatest in (("lower", False), ("upper", True)):
            rows = extreme_rows(words, starts, greatest=greatest)
            found[name] = texts(decimals(rows.T, type, has)).cast(pa.large_binary())
    if wanted & Facet.SUM:
        found["limbs"] = decimal_sums(words, starts)
    if wanted & Facet.SQUARES:
        terms = [np.ldexp(words[:, k].astype(np.float64), 32 * k) for k in range(words.shape[1])]
        found["squares"] = exact_squares(terms, starts)
    return found
