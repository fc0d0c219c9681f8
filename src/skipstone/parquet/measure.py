"""Facts about the pages of a chunk that only its values can tell: true bounds, NULL and NaN counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.arrays import numbers, plain, texts, valid_rows
from skipstone.core.domain.keys import Kind, is_ordered, key_space, storage_type
from skipstone.core.domain.spans import prefix_end
from skipstone.core.evidence import Array, ColumnFacts, widest
from skipstone.core.evidence.hull import hull, reduce_blocks
from skipstone.core.ir.transforms import Scale
from skipstone.parquet.values import widen

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Longer bounds are cut: they cost more than they tell apart.
_LONGEST_BOUND: Final = 64


class NotMeasurable(Exception):
    """A column whose values have no order, or no exact way to the wanted type; the caller does without."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """What the values of one chunk say: facts and counts per page, distinct values over all pages.

    Bounds are the least and the greatest value that is neither NULL nor NaN. They are exact but where a
    byte string was cut, and but for zeros, which may stand for each other. NaN is one value among the
    distinct ones, and so are both zeros together.
    """

    facts: ColumnFacts
    nulls: NDArray[np.int64]
    nans: NDArray[np.int64]
    rows: NDArray[np.int64]
    distinct: int
    rises: NDArray[np.int64]
    """Per page the rows of whole numbers that are one more than the row before, wherever that wraps."""


def measure(type: pa.DataType, values: pa.Array | pa.ChunkedArray, first_rows: NDArray[np.int64]) -> Measured:
    """Measure a decoded chunk whose pages begin at ``first_rows``, in keys of ``type``."""
    space, column = key_space(type), read_column(type, values)
    rows = np.diff(first_rows, append=len(values))
    assert rows.sum() == len(values)
    assert (rows >= 0).all()
    nulls = column.nulls(first_rows)
    nans = np.zeros(len(rows), dtype=np.int64)
    rises = np.zeros(len(rows), dtype=np.int64)
    floor, ceiling = widest(type, len(rows))
    lower: Any
    upper: Any
    if space.kind is Kind.BYTES:
        keys = byte_keys(column.chunks)
        has = rows > nulls
        lower, upper, lower_exact, upper_exact = _byte_bounds(keys, first_rows, rows)
        unique = pc.unique(keys)
        distinct = len(unique) - unique.null_count
    else:
        numeric = NumberKeys.of(column)
        if space.kind is Kind.FLOAT:
            nans = numeric.nans(first_rows)
        has = rows > nulls + nans
        lower, upper = (
            np.where(has, ends.astype(space.dtype), limit)
            for ends, limit in zip(numeric.ends(first_rows), (floor, ceiling), strict=True)
        )
        lower_exact = upper_exact = has
        if space.kind is Kind.FLOAT:
            lower_exact, upper_exact = has & (lower != 0), has & (upper != 0)
            lower[lower == 0], upper[upper == 0] = -0.0, 0.0
        distinct = len(numeric.distinct())
        if space.kind is Kind.INT:
            rises = numeric.rises(first_rows)
    facts = ColumnFacts(
        type, lower, upper, lower_exact, upper_exact, may_value=has, may_null=nulls > 0, may_nan=nans > 0
    )
    return Measured(facts, nulls, nans, rows, distinct, rises)


def whole(measured: Measured) -> ColumnFacts:
    """The facts about all pages together, as one unit."""
    return hull(measured.facts, np.zeros(1, dtype=np.int64))


# -- columns -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """A column in plain chunks whose keys are those of the wanted type; ``valid`` is None without NULLs."""

    chunks: Sequence[pa.Array]
    valid: Array | None

    def nulls(self, starts: Array) -> NDArray[np.int64]:
        """NULLs per block."""
        if self.valid is None:
            return np.zeros(len(starts), dtype=np.int64)
        return _count(~self.valid, starts)


def read_column(type: pa.DataType, values: pa.Array | pa.ChunkedArray) -> Column:
    """``values`` ready to be measured as ``type``, which theirs must be or widen to without loss."""
    if not is_ordered(type):
        raise NotMeasurable(f"values of type {type} have no order")
    chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
    wanted = storage_type(type)
    try:
        chunks = [_as(plain(chunk), wanted, storage_type(values.type)) for chunk in chunks]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise NotMeasurable(f"a value of type {values.type} is not one of {type}: {error}") from error
    masks = [valid_rows(chunk) for chunk in chunks]
    if all(mask is None for mask in masks):
        return Column(chunks, None)
    filled = [np.ones(len(c), dtype=bool) if m is None else m for c, m in zip(chunks, masks, strict=True)]
    return Column(chunks, _joined(filled))


def _as(array: pa.Array, wanted: pa.DataType, own: pa.DataType) -> pa.Array:
    if pa.types.is_null(own):
        return plain(pa.nulls(len(array), wanted))
    if pa.types.is_timestamp(own) and pa.types.is_timestamp(wanted) and own.tz is None and wanted.tz:
        # Times without a zone are no part of instants; these are instants that pyarrow reads without one.
        own = pa.timestamp(own.unit, wanted.tz)
        array = array.view(own)
    steps = widen(own, wanted)
    if steps is None:
        raise NotMeasurable(f"{own} is no exact part of {wanted}")
    scaled = any(isinstance(step, Scale) and step.times != 1 for step in steps)
    return array.cast(wanted) if scaled else array


def byte_keys(chunks: Sequence[pa.Array]) -> pa.ChunkedArray:
    """The keys of columns of bytes, in offsets of 64 bits where their lengths differ."""
    keys = [texts(chunk) for chunk in chunks]
    if not keys:
        return pa.chunked_array([], pa.large_binary())
    fixed = pa.types.is_fixed_size_binary(keys[0].type)
    return pa.chunked_array(keys if fixed else [key.cast(pa.large_binary()) for key in keys])


@dataclass(frozen=True, slots=True, eq=False)
class NumberKeys:
    """The keys of a column of numbers, in the width they came in; what lies under NULL is garbage."""

    keys: Array
    valid: Array | None

    @classmethod
    def of(cls, column: Column) -> NumberKeys:
        """The keys of all chunks, without a copy where there is one."""
        return cls(_joined([numbers(chunk) for chunk in column.chunks]), column.valid)

    def filled(self, neutral: Any) -> Array:
        """The keys with ``neutral`` under NULL."""
        return self.keys if self.valid is None else np.where(self.valid, self.keys, neutral)

    def nans(self, starts: Array) -> NDArray[np.int64]:
        """NaNs per block of a column of floats."""
        return _count(np.isnan(self.filled(0)), starts)

    def ends(self, starts: Array) -> tuple[Array, Array]:
        """The least and the greatest number per block; in one without numbers they mean nothing."""
        if self.keys.dtype.kind == "f":
            keys = self.filled(np.nan)
            # These two pass over NaN where there is anything else.
            return (
                reduce_blocks(np.fmin, keys, starts, empty=np.nan),
                reduce_blocks(np.fmax, keys, starts, empty=np.nan),
            )
        least, greatest = np.iinfo(self.keys.dtype).min, np.iinfo(self.keys.dtype).max
        return (
            reduce_blocks(np.minimum, self.filled(greatest), starts, empty=greatest),
            reduce_blocks(np.maximum, self.filled(least), starts, empty=least),
        )

    def rises(self, starts: Array) -> NDArray[np.int64]:
        """Per block the numbers that are one more than the one before; what is under NULL counts, too."""
        risen = np.zeros(len(self.keys), dtype=bool)
        if self.keys.dtype != np.bool_:
            risen[1:] = self.keys[1:] == self.keys[:-1] + self.keys.dtype.type(1)
        risen[starts[starts < len(risen)]] = False
        return _count(risen, starts)

    def distinct(self) -> Array:
        """The different keys in order, both zeros as one and NaN, if there is any, as the last one."""
        keys = np.sort(self.keys if self.valid is None else self.keys[self.valid])
        fresh = np.ones(len(keys), dtype=bool)
        np.not_equal(keys[1:], keys[:-1], out=fresh[1:])
        if keys.dtype.kind == "f":
            fresh[1:] &= ~np.isnan(keys[:-1])
        return keys[fresh]


def _joined(parts: list[Array]) -> Array:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def _count(flags: Array, starts: Array) -> NDArray[np.int64]:
    return reduce_blocks(np.add, flags, starts, empty=0, dtype=np.int64)


# -- bounds of bytes ---------------------------------------------------------------------------


def _byte_bounds(
    keys: pa.ChunkedArray, first_rows: Array, rows: Array
) -> tuple[pa.Array, pa.Array, Array, Array]:
    """Lower and upper bounds per page, cut where they are long, and which of them occur."""
    lower, upper, lower_exact, upper_exact = [], [], [], []
    # Page by page, since Arrow has no minimum of byte strings by group that keeps the groups' order.
    for start, count in zip(first_rows.tolist(), rows.tolist(), strict=True):
        ends = pc.min_max(keys.slice(start, count))
        low, high = ends["min"].as_py(), ends["max"].as_py()
        lower_exact.append(low is not None and len(low) <= _LONGEST_BOUND)
        upper_exact.append(high is not None and len(high) <= _LONGEST_BOUND)
        lower.append(low if low is None else low[:_LONGEST_BOUND])
        cut = high is not None and len(high) > _LONGEST_BOUND
        upper.append(prefix_end(high[:_LONGEST_BOUND]) if cut else high)
    return (
        pa.array(lower, pa.large_binary()),
        pa.array(upper, pa.large_binary()),
        np.array(lower_exact, dtype=bool),
        np.array(upper_exact, dtype=bool),
    )
