"""Count, sum, squares, minimum and maximum of blocks of rows, kept so that blocks can be put together.

Nothing is rounded before the answer: neither the order of rows, nor how they are cut into blocks, nor what of
them was kept in an index and what was read changes a bit of it.
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
    beside,
    decimal_limbs,
    decimal_sums,
    decimals,
    exact_squares,
    exact_sums,
    fold,
    fold_limbs,
    from_totals,
    huge_sums,
    min_max_and_sums,
    run_lengths,
    totals,
    two_product,
    whole_sums,
    whole_terms,
)
from skipstone.aggregate.states.state import EVERY, Facet, Measure, Path, RowSelection
from skipstone.core.arrays import texts
from skipstone.core.domain.keys import Kind, is_ordered, key_space, storage_type
from skipstone.core.evidence import Array, Bounds, reduce_blocks
from skipstone.parquet.measure import ColumnMeasure, NumberKeys, byte_keys, read_column

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Blocks of so many values are looked at one by one.
_LARGE = 64


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """Aggregates of one column in N blocks, in keys of its type; what is not ``known`` may hold anything.

    ``count`` is of values that are not NULL, NaN among them. NaN is in no sum and no bound; ``nans`` and
    ``has`` are known with any facet but COUNT. Sums and squares are the sums of their rows.
    """

    type: pa.DataType
    known: NDArray[np.uint8]
    """Facets, per block."""
    count: NDArray[np.int64]
    nans: NDArray[np.int64]
    limbs: NDArray[np.int64]
    """Sums of whole keys as ``[limb, block]``; for floats those of values from 2⁹⁶⁰ on (see limbs.py)."""
    parts: NDArray[np.float64]
    """Sums of finite floats below that, as ``[part, block]``."""
    infinite: NDArray[np.float64]
    """The sum of infinite values: 0, one of them, or NaN."""
    squares: NDArray[np.float64]
    """Sums of squared keys as ``[part, block]``; infinite if a value is beyond 2⁴⁸⁰."""
    lower: Bounds
    upper: Bounds
    """The least and the greatest key, uncut; a zero of floats stands for both zeros."""
    has: NDArray[np.bool_]
    """Whether there is a value that is neither NULL nor NaN, and so bounds."""

    def __len__(self) -> int:
        return len(self.count)

    @classmethod
    def unknown(cls, type: pa.DataType, count: int) -> Blocks:
        """Blocks of which nothing is known."""
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

    def knows(self, facets: Facet) -> NDArray[np.bool_]:
        """Which blocks have all of some facets."""
        sure: NDArray[np.bool_] = (self.known & facets) == facets
        return sure

    def take(self, units: Array) -> Blocks:
        """The chosen blocks, in that order."""
        return self._with({name: _taken(array, units) for name, array in self._arrays().items()})

    @classmethod
    def concat(cls, parts: Sequence[Blocks]) -> Blocks:
        """The blocks of several columns of one type, one after the other."""
        if len(parts) == 1:
            return parts[0]
        arrays = [part._arrays() for part in parts]
        return parts[0]._with({name: _joined([some[name] for some in arrays]) for name in arrays[0]})

    def merge(self, starts: Array) -> Blocks:
        """Larger blocks of consecutive ones; ``starts`` are their first blocks, in order."""
        if len(starts) == len(self) and np.array_equal(starts, np.arange(len(self))):
            return self
        bound = self.has
        if isinstance(self.lower, pa.Array):
            # Where bounds were not asked for there are none, and statistics may have one of the two.
            bound = bound & np.asarray(self.lower.is_valid()) & np.asarray(self.upper.is_valid())
        numbered = np.concatenate(([0], np.cumsum(bound)))[starts]
        lower, upper = (_taken(bounds, np.flatnonzero(bound)) for bounds in (self.lower, self.upper))
        with np.errstate(invalid="ignore"):
            infinite = reduce_blocks(np.add, self.infinite, starts, empty=0)
        return Blocks(
            self.type,
            reduce_blocks(np.bitwise_and, self.known, starts, empty=facets_of(self.type)),
            reduce_blocks(np.add, self.count, starts, empty=0),
            reduce_blocks(np.add, self.nans, starts, empty=0),
            fold_limbs(self.limbs, starts),
            fold(self.parts, starts),
            infinite,
            fold(self.squares, starts),
            least_or_greatest(lower, numbered, greatest=False),
            least_or_greatest(upper, numbered, greatest=True),
            reduce_blocks(np.logical_or, self.has, starts, empty=False),
        )

    def _arrays(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _ARRAYS}

    def _with(self, arrays: Mapping[str, Any]) -> Blocks:
        return replace(self, **arrays)

    # -- storing -----------------------------------------------------------------------------

    def to_arrays(self) -> dict[str, Array]:
        """Plain arrays of one element per block, to be stored; for types that have sums."""
        found: dict[str, Array] = {}
        for name, array in self._arrays().items():
            if isinstance(array, pa.Array):
                found[name] = _fixed(array, key_space(self.type).width)
            elif array.ndim == 2:
                found |= {f"{name}/{k}": row for k, row in enumerate(array)}
            elif name not in ("nans", "infinite") or (array != 0).any():
                found[name] = array
        return found

    @classmethod
    def stored_type(cls, type: pa.DataType, name: str) -> np.dtype[Any]:
        """The type of an array that :meth:`to_arrays` gives, without the number of its row."""
        array = cls.unknown(type, 0)._arrays()[name]
        return np.dtype((np.void, key_space(type).width)) if isinstance(array, pa.Array) else array.dtype

    @classmethod
    def from_arrays(cls, type: pa.DataType, arrays: Mapping[str, Array]) -> Blocks:
        """What :meth:`to_arrays` gave."""
        blank = cls.unknown(type, len(arrays["known"]))
        found: dict[str, Any] = {}
        for name, array in blank._arrays().items():
            rows = [arrays[f"{name}/{k}"] for k in range(len(arrays)) if f"{name}/{k}" in arrays]
            if rows:
                found[name] = np.stack(rows)
            elif name in arrays:
                found[name] = _bytes(arrays[name]) if isinstance(array, pa.Array) else arrays[name]
        return blank._with(found)


_ARRAYS = tuple(field.name for field in fields(Blocks) if field.name != "type")


def is_number(type: pa.DataType) -> bool:
    """Whether values of a type can be added."""
    storage = storage_type(type)
    return bool(pa.types.is_integer(storage) or pa.types.is_floating(storage) or pa.types.is_decimal(storage))


def scale_of(type: pa.DataType) -> int:
    """The power of ten by which the keys of a number exceed it."""
    storage = storage_type(type)
    return int(storage.scale) if pa.types.is_decimal(storage) else 0


def facets_of(type: pa.DataType) -> Facet:
    """What can be known of a column."""
    if is_number(type):
        return EVERY
    return Facet.COUNT | Facet.MIN_MAX if is_ordered(type) else Facet.COUNT


def _taken(array: Any, units: Array) -> Any:
    return array.take(pa.array(units)) if isinstance(array, pa.Array) else array[..., units]


def _joined(arrays: list[Any]) -> Any:
    if isinstance(arrays[0], pa.Array):
        return pa.concat_arrays(arrays)
    return beside(arrays) if arrays[0].ndim == 2 else np.concatenate(arrays)


def _fixed(keys: pa.Array, width: int) -> Array:
    filled = keys.fill_null(bytes(width)).to_pylist()
    return np.frombuffer(b"".join(filled), dtype=np.dtype((np.void, width)))


def _bytes(keys: Array) -> pa.Array:
    return pa.array([key.tobytes() for key in keys], pa.large_binary())


@dataclass(frozen=True, slots=True)
class BlockMeasure(Measure[Blocks]):
    """Some facets of one column."""

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

    def cached(self, blocks: Blocks) -> tuple[Blocks, Array]:
        """The blocks themselves, where the facets are known."""
        return blocks, blocks.knows(self.facets)


# -- from rows ---------------------------------------------------------------------------------


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
        return _with_facets(blank, wanted, {"count": count})
    column = read_column(type, values)
    count = rows - column.nulls(starts)
    if wanted == Facet.COUNT:
        return _with_facets(blank, wanted, {"count": count})
    # NULLs are left out before anything else, and blocks begin earlier by as much.
    starts = np.cumsum(count) - count
    kind, storage = key_space(type).kind, storage_type(type)
    if kind is Kind.BYTES:
        wide = pa.types.is_decimal(storage)
        found = _decimals(column, storage, starts, wanted) if wide else _texts(column, starts, wanted)
    else:
        wanted |= Facet.MIN_MAX
        keys = NumberKeys.of(column)
        some = keys.keys if keys.valid is None else keys.keys[keys.valid]
        found = (_floats if kind is Kind.FLOAT else _wholes)(some, starts, wanted)
        found |= {name: found[name].astype(key_space(type).dtype) for name in ("lower", "upper")}
    found.setdefault("has", count > 0)
    return _with_facets(blank, wanted, {"count": count, **found})


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


def _with_facets(blank: Blocks, facets: Facet, found: dict[str, Any]) -> Blocks:
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
    lower, upper = min_max(keys, starts)
    found: dict[str, Any] = {"lower": lower, "upper": upper}
    if wanted & Facet.SUM:
        most = max(-int(lower.min(initial=0)), int(upper.max(initial=0)))
        found["limbs"] = whole_sums(keys, starts, most)
    if wanted & Facet.SQUARES:
        found["squares"] = exact_squares(whole_terms(keys), starts)
    return found


def _floats(keys: Array, starts: Array, wanted: Facet) -> dict[str, Any]:
    summed = bool(wanted & Facet.SUM)
    lower, upper, parts = min_max_and_sums(keys, starts) if summed else (*min_max(keys, starts), None)
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


def _texts(column: ColumnMeasure, starts: Array, wanted: Facet) -> dict[str, Any]:
    if not wanted & Facet.MIN_MAX:
        return {}
    chunks = [key.cast(pa.large_binary()).drop_null() for key in byte_keys(column.chunks).chunks]
    keys = pa.concat_arrays(chunks) if chunks else pa.array([], pa.large_binary())
    return dict(zip(("lower", "upper"), min_max(keys, starts), strict=True))


def _decimals(column: ColumnMeasure, type: pa.DataType, starts: Array, wanted: Facet) -> dict[str, Any]:
    """The same of decimals that are wider than a word."""
    none = pa.array([], type)
    words = np.concatenate([decimal_limbs(chunk.drop_null()) for chunk in (*column.chunks, none)])
    found: dict[str, Any] = {}
    if wanted & Facet.MIN_MAX:
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


# -- least and greatest keys ---------------------------------------------------------------------


def least_or_greatest(keys: Bounds, starts: Array, *, greatest: bool) -> Bounds:
    """The least or the greatest key per block, NULL or 0 where it has none; NaN wins."""
    if not isinstance(keys, pa.Array):
        return reduce_blocks(np.maximum if greatest else np.minimum, keys, starts, empty=0)
    coded = keys.dictionary_encode()
    order = pc.sort_indices(coded.dictionary).to_numpy()
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order))
    found = least_or_greatest(ranks[coded.indices.to_numpy()], starts, greatest=greatest)
    empty = run_lengths(starts, len(keys)) == 0
    places = order[found] if len(order) else found
    return coded.dictionary.take(pa.array(places, mask=empty))


def min_max(keys: Bounds, starts: Array) -> tuple[Bounds, Bounds]:
    """The least and the greatest key per block, as :func:`least_or_greatest` has them."""
    if isinstance(keys, pa.Array) and len(keys) >= _LARGE * len(starts):
        # Of large blocks this is faster than putting all byte strings in order.
        edges = [*starts.tolist(), len(keys)]
        found = [pc.min_max(keys.slice(a, b - a)) for a, b in pairwise(edges)]
        least, greatest = (pa.array([e[name].as_py() for e in found], keys.type) for name in ("min", "max"))
        return least, greatest
    return least_or_greatest(keys, starts, greatest=False), least_or_greatest(keys, starts, greatest=True)


def extreme_rows(words: Array, starts: Array, *, greatest: bool) -> Array:
    """The least or the greatest row of ``[row, word]`` per block; words further right weigh more."""
    lengths = run_lengths(starts, len(words))
    limits = np.iinfo(words.dtype)
    found = np.zeros((len(starts), words.shape[1]), dtype=words.dtype)
    ahead = np.ones(len(words), dtype=bool)
    for k in reversed(range(words.shape[1])):
        # Only rows that are as far out as any by the words so far take part.
        mine = np.where(ahead, words[:, k], limits.min if greatest else limits.max)
        found[:, k] = least_or_greatest(mine, starts, greatest=greatest)
        ahead &= mine == np.repeat(found[:, k], lengths)
    return found
