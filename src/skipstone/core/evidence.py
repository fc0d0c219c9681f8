"""Evidence: facts about columns in N units, from metadata.

Evidence about a column is a superset of its values in a unit: an interval of keys, and whether NULL, NaN and
ordinary values may occur. An unknown bound is the widest one, an unknown count means "may", so an unknown
fact can't be mistaken for a known one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.domain.keys import Kind, key_space
from skipstone.core.ir.nodes import ColumnRef
from skipstone.core.ir.transforms import Keys, Transform

Array = np.ndarray[Any, Any]
Bounds: TypeAlias = Any
"""One bound per unit: NumPy keys (unknown: the limit of the type) or Arrow binary (unknown: null)."""


@dataclass(frozen=True, slots=True, eq=False)
class ColumnFacts:
    """Facts about one column in N units: valid bounds, whether they are exact, and what may occur."""

    type: pa.DataType
    lower: Bounds
    upper: Bounds
    lower_exact: Array
    upper_exact: Array
    may_value: Array
    may_null: Array
    may_nan: Array

    def __len__(self) -> int:
        return len(self.may_value)

    @classmethod
    def unknown(cls, type: pa.DataType, units: int) -> ColumnFacts:
        """Facts without any information: anything may occur."""
        lower, upper = unbounded(type, units)
        no, yes = np.zeros(units, dtype=bool), np.ones(units, dtype=bool)
        may_nan = yes if key_space(type).kind is Kind.FLOAT else no
        return cls(type, lower, upper, no, no, yes, yes, may_nan)

    @classmethod
    def absent(cls, type: pa.DataType, units: int) -> ColumnFacts:
        """Facts about a column that is proven to be missing: NULL in every row."""
        no = np.zeros(units, dtype=bool)
        return replace(cls.unknown(type, units), may_value=no, may_nan=no)

    def take(self, units: Array) -> ColumnFacts:
        """Facts of selected units, in that order."""
        return ColumnFacts(
            self.type,
            _take(self.lower, units),
            _take(self.upper, units),
            self.lower_exact[units],
            self.upper_exact[units],
            self.may_value[units],
            self.may_null[units],
            self.may_nan[units],
        )

    def intersect(self, other: ColumnFacts) -> ColumnFacts:
        """Combine two facts about the same units."""
        return replace(
            self,
            lower=_tighter(self.lower, other.lower, np.maximum, pc.max_element_wise),
            upper=_tighter(self.upper, other.upper, np.minimum, pc.min_element_wise),
            lower_exact=other.lower_exact,
            upper_exact=other.upper_exact,
            may_value=self.may_value & other.may_value,
            may_null=self.may_null & other.may_null,
            may_nan=self.may_nan & other.may_nan,
        )

    @classmethod
    def concat(cls, parts: list[ColumnFacts]) -> ColumnFacts:
        """Concatenate the facts of several runs of units."""
        if len(parts) == 1:
            return parts[0]
        flags = {
            name: np.concatenate([getattr(p, name) for p in parts])
            for name in ("lower_exact", "upper_exact", "may_value", "may_null", "may_nan")
        }
        lower, upper = (_concat([getattr(p, name) for p in parts]) for name in ("lower", "upper"))
        return cls(parts[0].type, lower, upper, **flags)

    def through(self, step: Transform) -> ColumnFacts:
        """Facts about a monotone function of the column."""
        lower, lower_ok = step.forward(_keys(self.lower))
        upper, upper_ok = step.forward(_keys(self.upper))
        if isinstance(lower, np.ndarray):
            # If one end overflows the type, values near it may too, so both bounds are unknown.
            lower_ok = upper_ok = lower_ok & upper_ok
        if step.decreasing:
            lower, lower_ok, upper, upper_ok = upper, upper_ok, lower, lower_ok
        floor, ceiling = unbounded(step.out, len(self))
        return ColumnFacts(
            step.out,
            _where(lower_ok, lower, floor),
            _where(upper_ok, upper, ceiling),
            self.lower_exact & lower_ok,
            self.upper_exact & upper_ok,
            self.may_value,
            self.may_null,
            self.may_nan,
        )


@dataclass(frozen=True, slots=True, eq=False)
class FactOverride:
    """Facts about a column that replace those of the files, in all N files or in some."""

    facts: ColumnFacts
    where: Array | None = None
    """Mask of files where they apply; None for all."""

    def take(self, units: Array) -> FactOverride:
        """Select files, in that order."""
        return FactOverride(self.facts.take(units), None if self.where is None else self.where[units])

    def fallback_to(self, read: Callable[[], ColumnFacts]) -> ColumnFacts:
        """The facts where they apply, and those of ``read()`` elsewhere."""
        where = self.where
        if where is None or where.all():
            return self.facts
        other = read()
        if not where.any():
            return other
        flags = {
            name: np.where(where, getattr(self.facts, name), getattr(other, name))
            for name in ("lower_exact", "upper_exact", "may_value", "may_null", "may_nan")
        }
        lower, upper = (
            _choose(where, getattr(self.facts, name), getattr(other, name)) for name in ("lower", "upper")
        )
        return ColumnFacts(other.type, lower, upper, **flags)


def unbounded(type: pa.DataType, units: int) -> tuple[Bounds, Bounds]:
    """Bounds without any information."""
    space = key_space(type)
    if space.kind is Kind.BYTES:
        unknown = pa.nulls(units, pa.large_binary())
        return unknown, unknown
    floor, ceiling = space.limits
    return np.full(units, floor, space.dtype), np.full(units, ceiling, space.dtype)


def _keys(bounds: Bounds) -> Keys:
    keys: Keys = bounds.to_pylist() if isinstance(bounds, pa.Array) else bounds
    return keys


def _where(ok: Array, keys: Keys, otherwise: Bounds) -> Bounds:
    if isinstance(keys, list):
        return pa.array([k if good else None for k, good in zip(keys, ok, strict=True)], pa.large_binary())
    return np.where(ok, keys, otherwise)


def _choose(where: Array, a: Bounds, b: Bounds) -> Bounds:
    return pc.if_else(pa.array(where), a, b) if isinstance(a, pa.Array) else np.where(where, a, b)


def _take(bounds: Bounds, units: Array) -> Bounds:
    return bounds.take(pa.array(units)) if isinstance(bounds, pa.Array) else bounds[units]


def _tighter(a: Bounds, b: Bounds, numbers: Any, byte_strings: Any) -> Bounds:
    # Arrow's element-wise minimum and maximum skip nulls, so a known bound replaces an unknown one.
    return byte_strings(a, b) if isinstance(a, pa.Array) else numbers(a, b)


def _concat(bounds: list[Bounds]) -> Bounds:
    if isinstance(bounds[0], pa.Array):
        return pa.concat_arrays(bounds)
    return np.concatenate(bounds)


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """Evidence about N units: row counts, and facts about columns by path."""

    rows: Array
    columns: Mapping[tuple[str, ...], ColumnFacts]
    _derived: dict[ColumnRef, ColumnFacts] = field(default_factory=dict)
    _occupied: list[Array | None] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def occupied(self) -> Array | None:
        """Mask of units with rows, or None if every unit has rows."""
        if not self._occupied:
            occupied = self.rows != 0
            self._occupied.append(None if occupied.all() else occupied)
        return self._occupied[0]

    def facts(self, ref: ColumnRef) -> ColumnFacts:
        """Facts about a column or a function of it; unknown if nothing is recorded."""
        facts = self._derived.get(ref)
        if facts is None:
            facts = self.columns.get(ref.path) or ColumnFacts.unknown(ref.type, len(self))
            for step in ref.via:
                facts = facts.through(step)
            self._derived[ref] = facts
        return facts

    def take(self, units: Array) -> Evidence:
        return Evidence(self.rows[units], {path: f.take(units) for path, f in self.columns.items()})


def are_equal(a: Bounds, b: Bounds) -> Array:
    """Mask of equal known keys."""
    if isinstance(a, pa.Array):
        return np.asarray(pc.equal(a, b).fill_null(False))
    return np.asarray(a == b)


def is_ascending(bounds: Bounds) -> bool:
    """Whether the keys never decrease."""
    if isinstance(bounds, pa.Array):
        if len(bounds) < 2:
            return True
        return bool(pc.all(pc.less_equal(bounds[:-1], bounds[1:]).fill_null(False)).as_py())
    return bool(np.all(bounds[:-1] <= bounds[1:]))


# Blocks of at least this many units are reduced individually.
_LARGE_BLOCK = 64


def hull(facts: ColumnFacts, starts: Array) -> ColumnFacts:
    """Merge the facts of consecutive units into blocks; ``starts`` are the first units of the blocks.

    A block ends where the next begins. A block without units has no values.
    """
    low = _outer_bound(facts.lower, facts.lower_exact, facts.may_value, starts, upper=False)
    high = _outer_bound(facts.upper, facts.upper_exact, facts.may_value, starts, upper=True)
    floor, ceiling = unbounded(facts.type, len(starts))
    may_value, may_null, may_nan = (
        reduce_blocks(np.logical_or, flags, starts, empty=False)
        for flags in (facts.may_value, facts.may_null, facts.may_nan)
    )
    return ColumnFacts(
        facts.type,
        _choose(may_value, low[0], floor),
        _choose(may_value, high[0], ceiling),
        low[1],
        high[1],
        may_value,
        may_null,
        may_nan,
    )


def reduce_blocks(ufunc: np.ufunc, values: Array, starts: Array, *, empty: Any, dtype: Any = None) -> Array:
    """``ufunc.reduceat`` that returns ``empty`` for blocks without units."""
    if len(starts) and starts[-1] < len(values) and (starts[1:] > starts[:-1]).all():
        return ufunc.reduceat(values, starts, dtype=dtype).astype(dtype or values.dtype, copy=False)
    filled = np.diff(starts, append=len(values)) > 0
    result = np.full(len(starts), empty, dtype=dtype or values.dtype)
    if filled.any():
        result[filled] = ufunc.reduceat(values, starts[filled], dtype=dtype)
    return result


def _outer_bound(
    bounds: Bounds, exact: Array, counts: Array, starts: Array, *, upper: bool
) -> tuple[Bounds, Array]:
    """Outermost bound of each block, and whether it is exact."""
    if isinstance(bounds, pa.Array) and len(bounds) >= _LARGE_BLOCK * len(starts):
        return _outer_bound_of_each(bounds, exact, counts, starts, upper=upper)
    if isinstance(bounds, pa.Array):
        ranks, ordered = _ranked(bounds, upper=upper)
        outer, attained = _outer_bound(ranks, exact, counts, starts, upper=upper)
        in_range = (outer >= 0) & (outer < len(ordered))
        return ordered.take(pa.array(outer, mask=~in_range)), attained & in_range
    ufunc, neutral = (np.maximum, _lowest(bounds)) if upper else (np.minimum, _highest(bounds))
    outer = reduce_blocks(ufunc, np.where(counts, bounds, neutral), starts, empty=neutral)
    lengths = np.diff(starts, append=len(bounds))
    # Units before the first block belong to no block.
    inside = slice(len(bounds) - int(lengths.sum()), None)
    attains = np.zeros(len(bounds), dtype=bool)
    attains[inside] = bounds[inside] == np.repeat(outer, lengths)
    return outer, reduce_blocks(np.logical_or, attains & exact & counts, starts, empty=False)


def _outer_bound_of_each(
    bounds: pa.Array, exact: Array, counts: Array, starts: Array, *, upper: bool
) -> tuple[pa.Array, Array]:
    """Like :func:`_outer_bound`, block by block: faster for large blocks than sorting all byte strings."""
    outer: list[bytes | None] = []
    attained = np.zeros(len(starts), dtype=bool)
    edges = [*starts.tolist(), len(bounds)]
    for number, (start, stop) in enumerate(pairwise(edges)):
        selected = counts[start:stop]
        block = bounds.slice(start, stop - start).filter(pa.array(selected))
        bound = pc.min_max(block)["max" if upper else "min"]
        if block.null_count or not bound.is_valid:
            outer.append(None)
            continue
        outer.append(bound.as_py())
        equal = pc.equal(block, bound).to_numpy(zero_copy_only=False)
        attained[number] = bool((equal & exact[start:stop][selected]).any())
    return pa.array(outer, pa.large_binary()), attained


def _ranked(bounds: pa.Array, *, upper: bool) -> tuple[Array, pa.Array]:
    """Ranks of byte bounds, and the bounds by rank; unknown bounds are beyond all others."""
    coded = bounds.dictionary_encode()
    order = pc.sort_indices(coded.dictionary)
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order.to_numpy()] = np.arange(len(order))
    codes = coded.indices.fill_null(len(order)).to_numpy()
    return np.append(ranks, len(order) if upper else -1)[codes], coded.dictionary.take(order)


def _lowest(bounds: Array) -> Any:
    return -np.inf if bounds.dtype.kind == "f" else np.iinfo(bounds.dtype).min


def _highest(bounds: Array) -> Any:
    return np.inf if bounds.dtype.kind == "f" else np.iinfo(bounds.dtype).max
