"""Count, sum, squares, minimum and maximum of blocks of rows, kept so that blocks can be put together.

Nothing is rounded before the answer: neither the order of rows, nor how they are cut into blocks, nor what of
them was kept in an index and what was read changes a bit of it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from skipstone.core.domain.keys import Kind, is_ordered, key_space, storage_type
from skipstone.core.evidence import Array, Bounds
from skipstone.core.evidence.hull import reduce_blocks
from skipstone.partial.ends import outermost
from skipstone.partial.exact import beside, fold
from skipstone.partial.limbs import fold_limbs

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Facet(enum.IntFlag):
    """What may be known of a block."""

    COUNT = 1
    SUM = 2
    SQUARES = 4
    ENDS = 8


EVERY = Facet.COUNT | Facet.SUM | Facet.SQUARES | Facet.ENDS


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
            # Where bounds were not asked for there are none.
            bound = bound & np.asarray(self.lower.is_valid())
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
            outermost(lower, numbered, greatest=False),
            outermost(upper, numbered, greatest=True),
            reduce_blocks(np.logical_or, self.has, starts, empty=False),
        )

    def _arrays(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "type"}

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


def facets_of(type: pa.DataType) -> Facet:
    """What can be known of a column."""
    storage = storage_type(type)
    if pa.types.is_integer(storage) or pa.types.is_floating(storage) or pa.types.is_decimal(storage):
        return EVERY
    return Facet.COUNT | Facet.ENDS if is_ordered(type) else Facet.COUNT


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
