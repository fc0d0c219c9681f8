"""Estimates that can be merged: distinct counts (theta) and quantiles (KLL) by Apache DataSketches.

They are estimates, for planning and for people: no row may ever be dropped by one. A theta sketch is exact
up to 4,096 distinct values and within about 3 % (two standard deviations) beyond. A KLL sketch gives values
whose rank is within about 1.3 % of the rank asked for; two sketches of the same values need not be equal,
because KLL throws dice.

The library's readers can take the process down over damaged bytes. So a sketch is followed by its hash, and
one whose hash is another is never shown to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.domain.keys import Kind, key_space
from skipstone.parquet.bloom import hash_values
from skipstone.parquet.measure import NumberKeys, byte_keys, read_column

THETA: Final = "theta"
KLL: Final = "kll"
_LG_K: Final = 12
_K: Final = 200
_DEVIATIONS: Final = 2
_SEAL: Final = 8
_REFUSALS: Final = (ValueError, IndexError, RuntimeError, MemoryError)


class BadSketch(Exception):
    """A stored sketch that can't be read; never fatal, the caller does without it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class DistinctEstimate:
    """How many distinct values there are: an estimate, and bounds that hold about 19 times out of 20."""

    estimate: float
    lower: float
    upper: float
    exact: bool
    """Whether the sketch still held every value; then all three numbers are the count itself."""
    sketch: bytes


@dataclass(frozen=True, slots=True)
class Quantiles:
    """The spread of numeric keys as doubles: integers beyond 2⁵³ are rounded, NULL and NaN left out."""

    count: int
    error: float
    """How far the rank of an answer is off, as a part of 1, about 99 times out of 100."""
    sketch: bytes

    def keys(self, ranks: Sequence[float]) -> list[float]:
        """The keys at ranks from 0 to 1; none if there are no values."""
        return list(_kll(self.sketch).get_quantiles(list(ranks), True)) if self.count else []

    def rank(self, key: float) -> float:
        """The part of the values that is not above a key; NaN if there are no values."""
        return float(_kll(self.sketch).get_rank(key, True)) if self.count else float("nan")


def sketches(type: pa.DataType, values: pa.Array | pa.ChunkedArray) -> dict[str, bytes]:
    """The sketches of a column as ``type``, by kind: theta for all ordered types, KLL for numeric keys.

    NaN counts as one distinct value. Raises NotMeasurable as :func:`skipstone.parquet.measure.measure` does.
    """
    column = read_column(type, values)
    if key_space(type).kind is Kind.BYTES:
        unique = pc.unique(byte_keys(column.chunks)).drop_null()
        # Theta takes no bytes, and of the empty string no notice: the hashes of values stand for them.
        return {THETA: _theta(hash_values(unique.to_pylist()).view(np.int64).tolist())}
    keys = NumberKeys.of(column)
    distinct = keys.distinct()
    wide = distinct.astype(np.float64) if distinct.dtype.kind == "f" else distinct.astype(np.int64)
    numbers = (keys.keys if keys.valid is None else keys.keys[keys.valid]).astype(np.float64)
    return {THETA: _theta(wide.tolist()), KLL: _quantiles(numbers[~np.isnan(numbers)])}


def merge_theta(parts: Sequence[bytes]) -> DistinctEstimate:
    """How many distinct values all sketched columns have together."""
    import datasketches

    union = datasketches.theta_union(_LG_K)
    for part in parts:
        union.update(_read(datasketches.compact_theta_sketch, part))
    merged = union.get_result()
    return DistinctEstimate(
        merged.get_estimate(),
        merged.get_lower_bound(_DEVIATIONS),
        merged.get_upper_bound(_DEVIATIONS),
        not merged.is_estimation_mode(),
        _sealed(merged),
    )


def merge_kll(parts: Sequence[bytes]) -> Quantiles:
    """How the values of all sketched columns are spread together."""
    import datasketches

    merged = datasketches.kll_doubles_sketch(_K)
    for part in parts:
        merged.merge(_kll(part))
    return Quantiles(merged.n, merged.normalized_rank_error(False), _sealed(merged))


def _theta(values: list[Any]) -> bytes:
    import datasketches

    sketch = datasketches.update_theta_sketch(_LG_K)
    # Value by value, though distinct ones only: the library takes no arrays here.
    for value in values:
        sketch.update(value)
    return _sealed(sketch.compact())


def _quantiles(numbers: np.ndarray[Any, Any]) -> bytes:
    import datasketches

    sketch = datasketches.kll_doubles_sketch(_K)
    sketch.update(numbers)
    return _sealed(sketch)


def _kll(part: bytes) -> Any:
    import datasketches

    return _read(datasketches.kll_doubles_sketch, part)


def _sealed(sketch: Any) -> bytes:
    data: bytes = sketch.serialize()
    return data + hash_values([data]).astype("<u8").tobytes()


def _read(kind: Any, part: bytes) -> Any:
    data, seal = part[:-_SEAL], part[-_SEAL:]
    if hash_values([data]).astype("<u8").tobytes() != seal:
        raise BadSketch("the sketch is damaged")
    try:
        return kind.deserialize(data)
    except _REFUSALS as error:
        raise BadSketch(f"the sketch can't be read: {error}") from error
