"""Evidence from manifests: file metrics as column facts, as far as they can be trusted."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    GeographyType,
    GeometryType,
    IcebergType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from skipstone.core.domain.keys import PRESENCE, Kind, key_space, storage_type
from skipstone.core.evidence import Array, Bounds, ColumnFacts, unbounded
from skipstone.errors import SchemaError
from skipstone.iceberg.manifests.entries import Entries, raw_bytes
from skipstone.iceberg.partitions.evidence import bounds_or
from skipstone.iceberg.schema import arrow_type
from skipstone.parquet.values import widen

_WIDEST: Final = 16
_DAY: Final = 86_400

# Encodings of a type's bounds: little-endian numbers, and the factor of one unit. Several encodings mean that
# the column can have been widened after files were written.
_STORED: Final[dict[type[IcebergType], tuple[tuple[str, int], ...]]] = {
    BooleanType: (("<u1", 1),),
    IntegerType: (("<i4", 1),),
    LongType: (("<i8", 1), ("<i4", 1)),
    FloatType: (("<f4", 1),),
    DoubleType: (("<f8", 1), ("<f4", 1)),
    DateType: (("<i4", 1),),
    TimeType: (("<i8", 1),),
    TimestampType: (("<i8", 1), ("<i4", _DAY * 10**6)),
    TimestamptzType: (("<i8", 1),),
    TimestampNanoType: (("<i8", 1), ("<i4", _DAY * 10**9)),
    TimestamptzNanoType: (("<i8", 1),),
}
_BYTES: Final = (StringType, BinaryType, FixedType, UUIDType)


def decode_keys(field_type: IcebergType, data: pa.Array) -> tuple[Bounds, Array]:
    """Keys of encoded values, and a mask of the usable ones: not null and well-formed.

    Bytes and strings stay as they are, since bounds can be truncated anywhere. Unordered types have no keys.
    """
    if isinstance(field_type, _BYTES):
        return data, np.asarray(data.is_valid())
    if isinstance(field_type, DecimalType):
        words, ok = _decimal_words(field_type, data)
        if key_space(arrow_type(field_type)).kind is Kind.INT:
            return np.where(ok, words["low"].view(np.int64), 0), ok
        # Big-endian bytes with the sign bit flipped sort like the number.
        turned = np.zeros(len(words), dtype=[("high", ">u8"), ("low", ">u8")])
        turned["high"] = words["high"].view(np.uint64) ^ np.uint64(1 << 63)
        turned["low"] = words["low"]
        fixed = pa.Array.from_buffers(pa.binary(_WIDEST), len(words), [None, pa.py_buffer(turned)])
        return fixed.cast(pa.large_binary()), ok
    forms = _STORED.get(field_type.__class__)
    if forms is None:
        return pa.nulls(len(data), pa.large_binary()), np.zeros(len(data), dtype=bool)
    return _decode_numbers(forms, data)


def _decode_numbers(forms: tuple[tuple[str, int], ...], data: pa.Array) -> tuple[Array, Array]:
    whole, offsets = raw_bytes(data)
    valid = np.asarray(data.is_valid())
    sizes = np.diff(offsets)
    first = np.dtype(forms[0][0])
    if valid.all() and (sizes == first.itemsize).all():
        return _as_keys(whole.view(first)), valid
    keys = np.zeros(len(data), np.float64 if first.kind == "f" else np.int64)
    ok = np.zeros(len(data), dtype=bool)
    for name, worth in forms:
        form = np.dtype(name)
        here = np.flatnonzero(valid & (sizes == form.itemsize))
        cells = whole[offsets[here][:, None] + np.arange(form.itemsize)]
        values = _as_keys(np.ascontiguousarray(cells).view(form).reshape(len(here)))
        if worth != 1:
            fits = np.abs(values) <= np.iinfo(np.int64).max // worth
            here, values = here[fits], values[fits] * worth
        keys[here], ok[here] = values, True
    return keys, ok


def _as_keys(values: Array) -> Array:
    keys: Array = values.astype(np.float64 if values.dtype.kind == "f" else np.int64)
    return keys


def _decimal_words(field_type: DecimalType, data: pa.Array) -> tuple[Array, Array]:
    """Decode big-endian two's complement of any length as 128 bits; the mask says which fit the precision."""
    whole, offsets = raw_bytes(data)
    sizes = np.diff(offsets)
    here = np.flatnonzero(np.asarray(data.is_valid()) & (sizes > 0) & (sizes <= _WIDEST))
    # Byte k from the least significant is k before the end of the value; before its start, the sign.
    back = np.arange(_WIDEST)
    at = offsets[here + 1][:, None] - 1 - back
    inside = back < sizes[here][:, None]
    signs = np.where(whole[offsets[here]] > 0x7F, 0xFF, 0).astype(np.uint8)
    cells = np.zeros((len(data), _WIDEST), np.uint8)
    cells[here] = np.where(inside, whole[np.where(inside, at, 0)], signs[:, None])
    words = cells.view([("low", "<u8"), ("high", "<i8")]).reshape(len(data))
    ok = np.zeros(len(data), dtype=bool)
    limit = 10**field_type.precision
    ok[here] = _less(words[here], limit) & ~_less(words[here], 1 - limit)
    return words, ok


def _less(words: Array, limit: int) -> Array:
    """Mask of the 128-bit numbers below a limit."""
    high, low = np.int64(limit >> 64), np.uint64(limit & (2**64 - 1))
    below: Array = (words["high"] < high) | ((words["high"] == high) & (words["low"] < low))
    return below


# Writers order UUIDs as signed or as unsigned bytes; bounds of geometries are not an order.
_UNTRUSTED = (UUIDType, GeometryType, GeographyType)


def file_facts(
    entries: Entries, field_id: int, ref_type: pa.DataType, field_type: IcebergType, required: bool
) -> ColumnFacts:
    """Facts of a column per file.

    ``required`` means that neither the column nor a struct around it is NULL. Bounds need not be values:
    writers truncate strings. Nothing is known if values were not counted once per row, or if the file is
    recorded without rows.
    """
    units = len(entries)
    own = _own_type(field_type)
    steps = None if own is None else widen(own, storage_type(ref_type))
    if own is None or steps is None:
        return ColumnFacts.unknown(ref_type, units)
    metrics = entries.metrics(field_id)
    rows = entries.rows
    floating = key_space(own).kind is Kind.FLOAT
    # Repeated columns don't have one value per row; only its footer proves that a file has no rows.
    per_row = ((metrics.values < 0) | (metrics.values == rows)) & (rows > 0)
    nulls_known = per_row & (metrics.nulls >= 0) & (metrics.nulls <= rows)
    nans_known = per_row & (metrics.nans >= 0) & (metrics.nans <= rows)
    bounded = np.asarray(metrics.lower.is_valid()) | np.asarray(metrics.upper.is_valid())
    low, low_ok, high, high_ok, no_number = _bounds(field_type, metrics.lower, metrics.upper)
    low_ok, high_ok = low_ok & per_row, high_ok & per_row
    counted = nulls_known & (metrics.values == rows)
    # Counts are not believed if bounds contradict them.
    all_null = counted & (metrics.nulls == rows) & ~bounded
    all_nan = (
        counted & nans_known & (metrics.nulls + metrics.nans == rows) & (~bounded | no_number) & floating
    )
    may_null = ~(nulls_known & (metrics.nulls == 0))
    if required:
        # A recorded count still wins: the column can have become required after the file was written.
        may_null &= nulls_known
    meet = _meet(low, high) & low_ok & high_ok & nulls_known
    others = metrics.nulls + np.where(nans_known, metrics.nans, rows if floating else 0)
    exact = meet & (others < rows) & (not _may_be_cut(own))
    floor, ceiling = unbounded(own, units)
    facts = ColumnFacts(
        own,
        bounds_or(low_ok, low, floor),
        bounds_or(high_ok, high, ceiling),
        exact,
        exact,
        may_value=~all_null & ~all_nan,
        may_null=may_null,
        may_nan=~(nans_known & (metrics.nans == 0)) & ~all_null & floating,
    )
    for step in steps:
        facts = facts.through(step)
    return replace(facts, type=ref_type)


def _own_type(field_type: IcebergType) -> pa.DataType | None:
    """Arrow type of the values; None if they have no order."""
    if not isinstance(field_type, PrimitiveType):
        return None
    try:
        own = arrow_type(field_type)
    except SchemaError:
        return None
    return None if key_space(own) is PRESENCE else own


def _bounds(
    field_type: IcebergType, lower: pa.Array, upper: pa.Array
) -> tuple[Bounds, Array, Bounds, Array, Array]:
    """Keys of the bounds, masks of the trusted ones, and a mask of files where both are NaN."""
    low, low_ok = decode_keys(field_type, lower)
    high, high_ok = decode_keys(field_type, upper)
    neither = np.zeros(len(lower), dtype=bool)
    if isinstance(field_type, _UNTRUSTED):
        return low, neither, high, neither, neither
    if isinstance(low, pa.Array):
        crossed = np.asarray(pc.greater(low, high).fill_null(False))
        return low, low_ok & ~crossed, high, high_ok & ~crossed, neither
    if low.dtype.kind == "f":
        wrong = np.isnan(low) | np.isnan(high)
        neither = np.isnan(low) & np.isnan(high) & low_ok & high_ok
        # Writers mix up -0.0 and 0.0.
        low, high = np.where(low == 0, -0.0, low), np.where(high == 0, 0.0, high)
    else:
        wrong = neither
    wrong = wrong | (low_ok & high_ok & (low > high))
    return low, low_ok & ~wrong, high, high_ok & ~wrong, neither


def _meet(low: Bounds, high: Bounds) -> Array:
    if isinstance(low, pa.Array):
        return np.asarray(pc.equal(low, high).fill_null(False))
    equal: Array = (low == high) & (low != 0) if low.dtype.kind == "f" else low == high
    return equal


def _may_be_cut(own: pa.DataType) -> bool:
    return key_space(own).kind is Kind.BYTES and not pa.types.is_decimal(own)
