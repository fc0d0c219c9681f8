"""Mergeable count, sum, sum of squares, minimum and maximum of blocks of rows.

States are exact, so results don't depend on the order of rows, on how they are split into blocks, or on which
blocks come from an index and which are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.aggregate.states.exact import (
    LARGEST,
    LARGEST_ROOT,
    concat_blocks,
    decimal_limbs,
    decimal_sums,
    exact_squares,
    exact_sums,
    fold,
    fold_limbs,
    from_ints,
    huge_sums,
    integer_sums,
    integer_terms,
    min_max_and_sums,
    run_lengths,
    to_decimals,
    to_ints,
    two_product,
)
from skipstone.aggregate.states.state import ALL_FACETS, Facet, Measure, Path, RowSelection
from skipstone.core.arrays import binary_keys
from skipstone.core.domain.keys import Kind, is_ordered, key_space, storage_type
from skipstone.core.evidence import Array, Bounds, reduce_blocks
from skipstone.parquet.measure import ColumnMeasure, NumberKeys, byte_keys, read_column

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Blocks of at least this many byte strings are reduced individually.
_LARGE_BLOCK = 64


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """Aggregates of one column in N blocks, in keys of its type; arrays are undefined for missing ``facets``.

    ``count`` is the number of non-NULL values, including NaN. Sums and bounds exclude NaN; ``nans`` and
    ``has`` are defined with any facet other than COUNT. A sum is the total of its column of limbs or parts.
    """

    type: pa.DataType
    facets: NDArray[np.uint8]
    """Available facets of each block."""
    count: NDArray[np.int64]
    nans: NDArray[np.int64]
    limbs: NDArray[np.int64]
    """Sums of integer keys as ``[limb, block]``; for floats, of values of at least 2⁹⁶⁰."""
    parts: NDArray[np.float64]
    """Sums of smaller finite floats, as ``[part, block]``."""
    infinite: NDArray[np.float64]
    """Sum of infinite values: 0, an infinity, or NaN."""
    squares: NDArray[np.float64]
    """Sums of squared keys as ``[part, block]``; infinite if a value exceeds 2⁴⁸⁰."""
    lower: Bounds
    upper: Bounds
    """Smallest and largest key, not truncated; a float zero represents both zeros."""
    has: NDArray[np.bool_]
    """Whether there is a value other than NULL and NaN, and so bounds."""

    def __len__(self) -> int:
        return len(self.count)

    @classmethod
    def unknown(cls, type: pa.DataType, count: int) -> Blocks:
        """Blocks without any facet."""
        space, none, flat = key_space(type), np.zeros(count, dtype=np.int64), np.zeros((0, count))
        empty = pa.nulls(count, pa.large_binary()) if space.kind is Kind.BYTES else none.astype(space.dtype)
        return cls(
            type,
            none.astype(np.uint8),
            none,
            none,
            flat.astype(np.int64),
            flat,
            np.zeros(count),
            flat,
            empty,
            empty,
            none.astype(np.bool_),
        )

    def has_facets(self, facets: Facet) -> NDArray[np.bool_]:
        """Mask of blocks that have all the given facets."""
        mask: NDArray[np.bool_] = (self.facets & facets) == facets
        return mask

    def take(self, units: Array) -> Blocks:
        """Select blocks, in the order of ``units``."""
        return self._with({name: _take(array, units) for name, array in self._arrays().items()})

    @classmethod
    def concat(cls, parts: Sequence[Blocks]) -> Blocks:
        """Concatenate blocks of one type."""
        if len(parts) == 1:
            return parts[0]
        arrays = [part._arrays() for part in parts]
        return parts[0]._with({name: _concat([some[name] for some in arrays]) for name in arrays[0]})

    def merge(self, starts: Array) -> Blocks:
        """Merge consecutive blocks; ``starts`` are the first blocks of the merged ones."""
        if len(starts) == len(self) and np.array_equal(starts, np.arange(len(self))):
            return self
        bounded = self.has
        if isinstance(self.lower, pa.Array):
            # Bounds may not have been computed, and statistics can have only one of the two.
            bounded = bounded & np.asarray(self.lower.is_valid()) & np.asarray(self.upper.is_valid())
        new_starts = np.concatenate(([0], np.cumsum(bounded)))[starts]
        lower, upper = (_take(bounds, np.flatnonzero(bounded)) for bounds in (self.lower, self.upper))
        with np.errstate(invalid="ignore"):
            infinite = reduce_blocks(np.add, self.infinite, starts, empty=0)
        return Blocks(
            self.type,
            reduce_blocks(np.bitwise_and, self.facets, starts, empty=facets_of(self.type)),
            reduce_blocks(np.add, self.count, starts, empty=0),
            reduce_blocks(np.add, self.nans, starts, empty=0),
            fold_limbs(self.limbs, starts),
            fold(self.parts, starts),
            infinite,
            fold(self.squares, starts),
            min_or_max(lower, new_starts, maximum=False),
            min_or_max(upper, new_starts, maximum=True),
            reduce_blocks(np.logical_or, self.has, starts, empty=False),
        )

    def _arrays(self) -> dict[str, Any]:
        return {stored: getattr(self, field) for stored, field in _ARRAYS.items()}

    def _with(self, arrays: Mapping[str, Any]) -> Blocks:
        return replace(self, **{_ARRAYS[stored]: array for stored, array in arrays.items()})

    # -- storing -----------------------------------------------------------------------------

    def to_arrays(self) -> dict[str, Array]:
        """Convert to plain arrays of one element per block, for storage; only for types that have sums."""
        arrays: dict[str, Array] = {}
        for name, array in self._arrays().items():
            if isinstance(array, pa.Array):
                arrays[name] = _to_fixed_width(array, key_space(self.type).width)
            elif array.ndim == 2:
                arrays |= {f"{name}/{k}": row for k, row in enumerate(array)}
            elif name not in ("nans", "infinite") or (array != 0).any():
                arrays[name] = array
        return arrays

    @classmethod
    def stored_type(cls, type: pa.DataType, name: str) -> np.dtype[Any]:
        """Type of an array from :meth:`to_arrays`; ``name`` has no row number."""
        array = cls.unknown(type, 0)._arrays()[name]
        return np.dtype((np.void, key_space(type).width)) if isinstance(array, pa.Array) else array.dtype

    @classmethod
    def from_arrays(cls, type: pa.DataType, arrays: Mapping[str, Array]) -> Blocks:
        """Inverse of :meth:`to_arrays`."""
        empty = cls.unknown(type, len(arrays["known"]))
        restored: dict[str, Any] = {}
        for name, array in empty._arrays().items():
            rows = [arrays[f"{name}/{k}"] for k in range(len(arrays)) if f"{name}/{k}" in arrays]
            if rows:
                restored[name] = np.stack(rows)
            elif name in arrays:
                restored[name] = _bytes(arrays[name]) if isinstance(array, pa.Array) else arrays[name]
        return empty._with(restored)


# Fields by the names under which the index stores them.
_ARRAYS = {"known" if f.name == "facets" else f.name: f.name for f in fields(Blocks) if f.name != "type"}


def is_number(type: pa.DataType) -> bool:
    """Whether values of a type can be summed."""
    storage = storage_type(type)
    return bool(pa.types.is_integer(storage) or pa.types.is_floating(storage) or pa.types.is_decimal(storage))


def scale_of(type: pa.DataType) -> int:
    """Decimal scale of the keys: key = value * 10^scale."""
    storage = storage_type(type)
    return int(storage.scale) if pa.types.is_decimal(storage) else 0


def facets_of(type: pa.DataType) -> Facet:
    """Facets that a column of this type can have."""
    if is_number(type):
        return ALL_FACETS
    return Facet.COUNT | Facet.MIN_MAX if is_ordered(type) else Facet.COUNT


def _take(array: Any, units: Array) -> Any:
    return array.take(pa.array(units)) if isinstance(array, pa.Array) else array[..., units]


def _concat(arrays: list[Any]) -> Any:
    if isinstance(arrays[0], pa.Array):
        return pa.concat_arrays(arrays)
    return concat_blocks(arrays) if arrays[0].ndim == 2 else np.concatenate(arrays)


def _to_fixed_width(keys: pa.Array, width: int) -> Array:
    filled = keys.fill_null(bytes(width)).to_pylist()
    return np.frombuffer(b"".join(filled), dtype=np.dtype((np.void, width)))


def _bytes(keys: Array) -> pa.Array:
    return pa.array([key.tobytes() for key in keys], pa.large_binary())


@dataclass(frozen=True, slots=True)
class BlockMeasure(Measure[Blocks]):
    """Block aggregates of one column."""

    path: Path
    type: pa.DataType
    facets: Facet

    @property
    def columns(self) -> tuple[Path, ...]:
        return (self.path,)

    def update(self, rows: RowSelection) -> Blocks:
        return read_blocks(self.type, rows.column(self.path), rows.starts, self.facets)

    def join(self, states: Sequence[Blocks]) -> Blocks:
        return Blocks.concat(states)

    def fold(self, state: Blocks, order: Array, starts: Array) -> Blocks:
        return state.take(order).merge(starts)

    def from_blocks(self, blocks: Blocks) -> tuple[Blocks, Array]:
        return blocks, blocks.has_facets(self.facets)


# -- from rows ---------------------------------------------------------------------------------


def read_blocks(
    type: pa.DataType, values: pa.Array | pa.ChunkedArray, starts: Array, facets: Facet
) -> Blocks:
    """Compute aggregates of the blocks that begin at ``starts``, in keys of ``type``.

    Facets that the type can't have are ignored. Raises :class:`skipstone.parquet.measure.NotMeasurable` for
    values that ``type`` can't represent exactly.
    """
    rows = run_lengths(starts, len(values))
    assert rows.sum() == len(values)
    assert (rows >= 0).all()
    available = facets & facets_of(type) | Facet.COUNT
    empty = Blocks.unknown(type, len(rows))
    if not is_ordered(type):
        present = np.asarray(values.is_valid())
        count = reduce_blocks(np.add, present, starts, empty=0, dtype=np.int64)
        return _with_facets(empty, available, {"count": count})
    column = read_column(type, values)
    count = rows - column.nulls(starts)
    if available == Facet.COUNT:
        return _with_facets(empty, available, {"count": count})
    # NULLs are dropped first, so blocks begin earlier.
    starts = np.cumsum(count) - count
    kind, storage = key_space(type).kind, storage_type(type)
    if kind is Kind.BYTES:
        wide = pa.types.is_decimal(storage)
        arrays = (
            _decimals(column, storage, starts, available)
            if wide
            else _byte_strings(column, starts, available)
        )
    else:
        available |= Facet.MIN_MAX
        keys = NumberKeys.of(column)
        valid_keys = keys.keys if keys.valid is None else keys.keys[keys.valid]
        arrays = (_floats if kind is Kind.FLOAT else _integers)(valid_keys, starts, available)
        arrays |= {name: arrays[name].astype(key_space(type).dtype) for name in ("lower", "upper")}
    arrays.setdefault("has", count > 0)
    return _with_facets(empty, available, {"count": count, **arrays})


def constant_blocks(type: pa.DataType, value: pa.Scalar, rows: Array, facets: Facet) -> Blocks:
    """Aggregates of blocks that repeat one value, or NULL, ``rows`` times."""
    array = pa.repeat(value, 1) if value.is_valid else pa.nulls(1, type)
    single = read_blocks(type, array, np.zeros(1, dtype=np.int64), facets)
    many = single.take(np.zeros(len(rows), dtype=np.int64))
    counts = rows.astype(np.int64)
    sums = [total * count for total, count in zip(to_ints(many.limbs), counts.tolist(), strict=True)]
    return replace(
        many,
        count=many.count * counts,
        nans=many.nans * counts,
        limbs=from_ints(sums) if len(many.limbs) else many.limbs,
        parts=_multiply(many.parts, counts),
        infinite=np.where(counts > 0, many.infinite, 0.0),
        squares=_multiply(many.squares, counts),
        has=many.has & (counts > 0),
    )


def _with_facets(blocks: Blocks, facets: Facet, arrays: dict[str, Any]) -> Blocks:
    return replace(blocks, facets=np.full(len(blocks), facets, dtype=np.uint8), **arrays)


def _multiply(parts: Array, counts: Array) -> Array:
    """Exact multiples: each part becomes a rounded product and its rounding error."""
    if not len(parts):
        return parts
    finite = np.isfinite(parts)
    high, low = two_product(np.where(finite, parts, 0.0), counts.astype(np.float64)[np.newaxis])
    high[~finite & (counts > 0)] = np.inf
    return fold(np.vstack([high, low]), np.arange(len(counts)))


# -- by kind of key ----------------------------------------------------------------------------


def _integers(keys: Array, starts: Array, facets: Facet) -> dict[str, Any]:
    lower, upper = min_max(keys, starts)
    arrays: dict[str, Any] = {"lower": lower, "upper": upper}
    if facets & Facet.SUM:
        largest = max(-int(lower.min(initial=0)), int(upper.max(initial=0)))
        arrays["limbs"] = integer_sums(keys, starts, largest)
    if facets & Facet.SQUARES:
        arrays["squares"] = exact_squares(integer_terms(keys), starts)
    return arrays


def _floats(keys: Array, starts: Array, facets: Facet) -> dict[str, Any]:
    summed = bool(facets & Facet.SUM)
    lower, upper, parts = min_max_and_sums(keys, starts) if summed else (*min_max(keys, starts), None)
    if np.isnan(lower).any():
        is_nan = np.isnan(keys)
        nans = reduce_blocks(np.add, is_nan, starts, empty=0, dtype=np.int64)
        lengths = run_lengths(starts, len(keys)) - nans
        return _floats(keys[~is_nan], np.cumsum(lengths) - lengths, facets) | {"nans": nans}
    # Adding zero normalizes -0.0 to 0.0.
    arrays: dict[str, Any] = {"lower": lower + 0.0, "upper": upper + 0.0}
    arrays["nans"] = np.zeros(len(starts), dtype=np.int64)
    arrays["has"] = run_lengths(starts, len(keys)) > 0
    if summed:
        arrays |= _huge_float_sums(keys, starts) if parts is None else {"parts": parts}
    if facets & Facet.SQUARES:
        largest = max(-float(lower.min(initial=0.0)), float(upper.max(initial=0.0)))
        arrays |= _float_squares(keys, starts, largest)
    return arrays


def _huge_float_sums(keys: Array, starts: Array) -> dict[str, Any]:
    """Sums if some values are at least LARGEST."""
    keys = keys.astype(np.float64)
    is_huge = np.abs(keys) >= LARGEST
    huge = np.where(is_huge & np.isfinite(keys), keys, 0.0)
    with np.errstate(invalid="ignore"):
        infinite = reduce_blocks(np.add, np.where(np.isinf(keys), keys, 0.0), starts, empty=0.0)
    parts = exact_sums(np.where(is_huge, 0.0, keys), starts)
    return {"parts": parts, "limbs": huge_sums(huge, starts), "infinite": infinite}


def _float_squares(keys: Array, starts: Array, largest: float) -> dict[str, Any]:
    if largest < LARGEST_ROOT:
        return {"squares": exact_squares([keys], starts)}
    keys = keys.astype(np.float64)
    is_huge = np.abs(keys) >= LARGEST_ROOT
    squares = exact_squares([np.where(is_huge, 0.0, keys)], starts)
    overflows = reduce_blocks(np.logical_or, is_huge, starts, empty=False)
    return {"squares": np.vstack([squares, np.where(overflows, np.inf, 0.0)])}


def _byte_strings(column: ColumnMeasure, starts: Array, facets: Facet) -> dict[str, Any]:
    if not facets & Facet.MIN_MAX:
        return {}
    chunks = [key.cast(pa.large_binary()).drop_null() for key in byte_keys(column.chunks).chunks]
    keys = pa.concat_arrays(chunks) if chunks else pa.array([], pa.large_binary())
    return dict(zip(("lower", "upper"), min_max(keys, starts), strict=True))


def _decimals(column: ColumnMeasure, type: pa.DataType, starts: Array, facets: Facet) -> dict[str, Any]:
    """Aggregates of decimals of more than 64 bits."""
    none = pa.array([], type)
    words = np.concatenate([decimal_limbs(chunk.drop_null()) for chunk in (*column.chunks, none)])
    arrays: dict[str, Any] = {}
    if facets & Facet.MIN_MAX:
        has = run_lengths(starts, len(words)) > 0
        for name, maximum in (("lower", False), ("upper", True)):
            rows = extreme_rows(words, starts, maximum=maximum)
            arrays[name] = binary_keys(to_decimals(rows.T, type, has)).cast(pa.large_binary())
    if facets & Facet.SUM:
        arrays["limbs"] = decimal_sums(words, starts)
    if facets & Facet.SQUARES:
        terms = [np.ldexp(words[:, k].astype(np.float64), 32 * k) for k in range(words.shape[1])]
        arrays["squares"] = exact_squares(terms, starts)
    return arrays


# -- minima and maxima ---------------------------------------------------------------------------


def min_or_max(keys: Bounds, starts: Array, *, maximum: bool) -> Bounds:
    """Smallest or largest key of each block, NULL or 0 if it is empty; NaN wins."""
    if not isinstance(keys, pa.Array):
        return reduce_blocks(np.maximum if maximum else np.minimum, keys, starts, empty=0)
    coded = keys.dictionary_encode()
    order = pc.sort_indices(coded.dictionary).to_numpy()
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order))
    best = min_or_max(ranks[coded.indices.to_numpy()], starts, maximum=maximum)
    empty = run_lengths(starts, len(keys)) == 0
    indexes = order[best] if len(order) else best
    return coded.dictionary.take(pa.array(indexes, mask=empty))


def min_max(keys: Bounds, starts: Array) -> tuple[Bounds, Bounds]:
    """Smallest and largest key of each block, as in :func:`min_or_max`."""
    if isinstance(keys, pa.Array) and len(keys) >= _LARGE_BLOCK * len(starts):
        # For large blocks this is faster than sorting all byte strings.
        edges = [*starts.tolist(), len(keys)]
        pairs = [pc.min_max(keys.slice(a, b - a)) for a, b in pairwise(edges)]
        low, high = (pa.array([e[name].as_py() for e in pairs], keys.type) for name in ("min", "max"))
        return low, high
    return min_or_max(keys, starts, maximum=False), min_or_max(keys, starts, maximum=True)


def extreme_rows(words: Array, starts: Array, *, maximum: bool) -> Array:
    """Smallest or largest row of ``[row, word]`` in each block; the last word is the most significant."""
    lengths = run_lengths(starts, len(words))
    limits = np.iinfo(words.dtype)
    result = np.zeros((len(starts), words.shape[1]), dtype=words.dtype)
    tied = np.ones(len(words), dtype=bool)
    for k in reversed(range(words.shape[1])):
        # Only rows that tie for the best in the more significant words are compared.
        candidates = np.where(tied, words[:, k], limits.min if maximum else limits.max)
        result[:, k] = min_or_max(candidates, starts, maximum=maximum)
        tied &= candidates == np.repeat(result[:, k], lengths)
    return result
