"""The ranges of partition values in manifest lists as evidence about source columns, for N manifests."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import from_bytes
from pyiceberg.transforms import IdentityTransform, Transform, TruncateTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DecimalType,
    DoubleType,
    LongType,
    PrimitiveType,
    StringType,
)

from skipstone.core.domain.keys import Kind, is_binary, is_text, key_space, storage_type
from skipstone.core.evidence import Array, Bounds, ColumnFacts, widest
from skipstone.iceberg.partitions.transforms import source_facts


def summary_facts(
    transform: Transform[Any, Any],
    lower: Sequence[Any],
    upper: Sequence[Any],
    contains_null: Sequence[bool],
    contains_nan: Sequence[bool | None],
    type: pa.DataType,
) -> ColumnFacts | None:
    """What the ranges of partition values that manifests hold say about the source column.

    A bound that is absent may mean that there is no value, or that nobody wrote it down: it says nothing.
    """
    low, high = source_facts(transform, lower, type), source_facts(transform, upper, type)
    if low is None or high is None:
        return None
    units = len(lower)
    floor, ceiling = widest(type, units)
    surely = ~_crossed(low.lower, high.upper)
    if storage_type(type) == pa.binary(16):
        # Writers don't agree on the order of UUIDs; they do where both bounds are the same.
        surely &= np.array([a == b for a, b in zip(lower, upper, strict=True)], dtype=bool)
    low_ok = surely & ~_wrapped(transform, type, lower, upper)
    no, yes = np.zeros(units, dtype=bool), np.ones(units, dtype=bool)
    is_float = key_space(type).kind is Kind.FLOAT
    return ColumnFacts(
        type,
        _where(low_ok, low.lower, floor),
        _where(surely, high.upper, ceiling),
        no,
        no,
        yes,
        np.array(contains_null, dtype=bool),
        np.array([is_float and found is not False for found in contains_nan], dtype=bool),
    )


def summary_value(transform: Transform[Any, Any], type: pa.DataType, data: bytes | None) -> Any:
    """A bound of a manifest's partition summary in internal form; None if it is absent or malformed."""
    if data is None:
        return None
    storage = storage_type(type)
    plain = isinstance(transform, (IdentityTransform, TruncateTransform))
    if plain and pa.types.is_temporal(storage) and len(data) != storage.bit_width // 8:
        return None
    try:
        return from_bytes(_stored_as(storage) if plain else LongType(), data)
    except (struct.error, ValueError):
        return None


def _stored_as(storage: pa.DataType) -> PrimitiveType:
    if pa.types.is_boolean(storage):
        return BooleanType()
    if pa.types.is_floating(storage):
        return DoubleType()
    if pa.types.is_decimal(storage):
        return DecimalType(storage.precision, storage.scale)
    if is_text(storage):
        return StringType()
    return BinaryType() if is_binary(storage) else LongType()


def _where(known: Array, bounds: Bounds, otherwise: Bounds) -> Bounds:
    if isinstance(bounds, pa.Array):
        return pc.if_else(pa.array(known), bounds, otherwise)
    return np.where(known, bounds, otherwise)


def _crossed(lower: Bounds, upper: Bounds) -> Array:
    if isinstance(lower, pa.Array):
        return np.asarray(pc.greater(lower, upper).fill_null(False).to_numpy(zero_copy_only=False))
    return np.asarray(lower > upper)


def _wrapped(
    transform: Transform[Any, Any], type: pa.DataType, lower: Sequence[Any], upper: Sequence[Any]
) -> Array:
    """Which ranges may hold partitions of the least integers, whose truncation wraps to the greatest."""
    whole = isinstance(transform, TruncateTransform) and pa.types.is_integer(storage_type(type))
    if not whole or transform.width.bit_count() == 1:
        return np.zeros(len(lower), dtype=bool)
    pairs = zip(lower, upper, strict=True)
    return np.array([_reaches_top(low, high, transform.width) for low, high in pairs], dtype=bool)


def _reaches_top(low: int | None, high: int | None, width: int) -> bool:
    if low is None or high is None:
        return False
    # A long may have been an int when its values were truncated.
    return any(low <= top and high > top - width for top in (2**31 - 1, 2**63 - 1))
