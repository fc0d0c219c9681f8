"""Conversion between stored values and keys, in the file's own units, scales and widths."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from skipstone.core.domain.keys import Key, Kind, is_text, key_space, storage_type, wide_key, wide_value
from skipstone.core.evidence import Array
from skipstone.core.ir.transforms import DAY, UNITS, Keys, Same, Scale, Transform
from skipstone.parquet.schema import LeafColumn, LogicalKind, PhysicalType

_P, _K = PhysicalType, LogicalKind
_UNIX_EPOCH_JULIAN = 2_440_588
_NANOS_PER_DAY = 86_400 * 10**9
_WIDTHS = {_P.BOOLEAN: 1, _P.INT32: 4, _P.INT64: 8, _P.INT96: 12, _P.FLOAT: 4, _P.DOUBLE: 8}


def stored_type(leaf: LeafColumn) -> pa.DataType | None:
    """Return the Arrow type of a leaf's stored values; None if they have no order."""
    logical, physical = leaf.logical, leaf.physical
    match logical.kind:
        case _K.STRING | _K.ENUM | _K.JSON:
            return pa.string()
        case _K.BSON:
            return pa.binary()
        case _K.UUID:
            return pa.binary(16)
        case _K.DECIMAL:
            if logical.precision > 76:
                return None
            wide = logical.precision > 38
            return (pa.decimal256 if wide else pa.decimal128)(logical.precision, logical.scale)
        case _K.DATE:
            return pa.date32()
        case _K.TIME:
            return pa.time32("ms") if logical.unit == "ms" else pa.time64(logical.unit)
        case _K.TIMESTAMP:
            return pa.timestamp(logical.unit, "UTC" if logical.utc else None)
        case _K.INTEGER:
            return getattr(pa, f"{'' if logical.signed else 'u'}int{logical.bits}")()
        case _K.FLOAT16:
            return pa.float16()
        case _K.NONE:
            return _PLAIN_TYPES.get(physical) or (
                pa.binary(leaf.type_length) if physical is _P.FIXED_LEN_BYTE_ARRAY else None
            )
    return None


_PLAIN_TYPES = {
    _P.BOOLEAN: pa.bool_(),
    _P.INT32: pa.int32(),
    _P.INT64: pa.int64(),
    _P.INT96: pa.timestamp("ns"),
    _P.FLOAT: pa.float32(),
    _P.DOUBLE: pa.float64(),
    _P.BYTE_ARRAY: pa.binary(),
}


def conversion(leaf: LeafColumn, own: pa.DataType, wanted: pa.DataType) -> tuple[Transform, ...] | None:
    """Return the steps from a leaf's stored keys to keys of ``wanted``; None if there is no exact conversion.

    ``own`` is the type pyarrow reads the leaf as, which differs from the stored type only in labels and in
    the unit of a date. From ``own`` to ``wanted`` only widening is allowed.
    """
    stored = stored_type(leaf)
    if stored is None:
        return None
    first = _relabel(stored, storage_type(own))
    second = widen(storage_type(own), storage_type(wanted))
    return None if first is None or second is None else (*first, *second)


def _relabel(stored: pa.DataType, own: pa.DataType) -> tuple[Transform, ...] | None:
    if stored == own or _both_bytes(stored, own):
        return ()
    if pa.types.is_date32(stored) and pa.types.is_date64(own):
        return (Scale(own, 86_400_000),)
    if pa.types.is_int64(stored) and pa.types.is_duration(own):
        return (Same(own),)
    if pa.types.is_timestamp(stored) and pa.types.is_timestamp(own) and stored.unit == own.unit:
        return (Same(own),)  # the zone is a label: the stored numbers are the same
    if pa.types.is_time(stored) and pa.types.is_time(own) and stored.unit == own.unit:
        return (Same(own),)
    if pa.types.is_decimal(stored) and pa.types.is_decimal(own):
        return () if (stored.precision, stored.scale) == (own.precision, own.scale) else None
    return None


def _both_bytes(a: pa.DataType, b: pa.DataType) -> bool:
    spaces = key_space(a), key_space(b)
    decimals = pa.types.is_decimal(a) or pa.types.is_decimal(b)
    return spaces[0].kind is Kind.BYTES and spaces[1].kind is Kind.BYTES and not decimals


def widen(own: pa.DataType, wanted: pa.DataType) -> tuple[Transform, ...] | None:
    """Return the steps from keys of a type to keys of a wider one; None if there is no exact conversion."""
    if own == wanted or (_both_bytes(own, wanted) and is_text(own) == is_text(wanted)):
        return ()
    spaces = key_space(own), key_space(wanted)
    if pa.types.is_integer(own) and pa.types.is_integer(wanted):
        inside = spaces[1].low <= spaces[0].low and spaces[0].high <= spaces[1].high
        return (Same(wanted),) if inside and spaces[0].high < 2**63 else None
    if pa.types.is_floating(own) and pa.types.is_floating(wanted):
        return (Same(wanted),) if wanted.bit_width >= own.bit_width else None
    if pa.types.is_date32(own) and pa.types.is_timestamp(wanted) and wanted.tz is None:
        return (Scale(wanted, DAY * UNITS[wanted.unit]),)
    if (
        pa.types.is_timestamp(own)
        and pa.types.is_timestamp(wanted)
        and (own.tz is None) == (wanted.tz is None)
    ):
        times = {"s": 0, "ms": 3, "us": 6, "ns": 9}
        power = times[wanted.unit] - times[own.unit]
        return (Scale(wanted, 10**power),) if power >= 0 else None
    if pa.types.is_decimal(own) and pa.types.is_decimal(wanted) and spaces[1].kind is Kind.INT:
        power = wanted.scale - own.scale
        return (Scale(wanted, 10**power),) if power >= 0 and spaces[0].kind is Kind.INT else None
    return None


# -- stored bytes to keys ----------------------------------------------------------------------


def decode_keys(leaf: LeafColumn, raw: Sequence[bytes | None]) -> tuple[Keys, Array]:
    """Return the keys of stored values, some of which may be None, and which of them are usable."""
    if leaf.logical.kind is _K.DECIMAL and leaf.physical in (_P.BYTE_ARRAY, _P.FIXED_LEN_BYTE_ARRAY):
        return _decode_decimals(leaf, raw)
    if leaf.physical in _WIDTHS or leaf.logical.kind is _K.FLOAT16:
        return _decode_numbers(leaf, raw)
    return list(raw), np.array([r is not None for r in raw], dtype=bool)


def _decode_numbers(leaf: LeafColumn, raw: Sequence[bytes | None]) -> tuple[Keys, Array]:
    width = _WIDTHS.get(leaf.physical, 2)
    if None not in raw and set(map(len, raw)) == {width}:  # type: ignore[arg-type]
        ok = np.ones(len(raw), dtype=bool)
        joined = b"".join(raw)  # type: ignore[arg-type]
    else:
        blank = bytes(width)
        ok = np.array([r is not None and len(r) == width for r in raw], dtype=bool)
        joined = b"".join(r if r is not None and len(r) == width else blank for r in raw)
    if leaf.physical is _P.INT96:
        return _decode_int96(joined, ok)
    numbers = np.frombuffer(joined, dtype=_dtype(leaf))
    if numbers.dtype.kind == "f":
        floats = numbers.astype(np.float64)
        return floats, ok & ~np.isnan(floats)
    return numbers.astype(np.uint64 if numbers.dtype == np.dtype("<u8") else np.int64), ok


def _dtype(leaf: LeafColumn) -> np.dtype[np.generic]:
    if leaf.logical.kind is _K.FLOAT16:
        return np.dtype("<f2")
    unsigned = leaf.logical.kind is _K.INTEGER and not leaf.logical.signed
    return np.dtype(
        {
            _P.BOOLEAN: "<u1",
            _P.INT32: "<u4" if unsigned else "<i4",
            _P.INT64: "<u8" if unsigned else "<i8",
            _P.FLOAT: "<f4",
            _P.DOUBLE: "<f8",
        }[leaf.physical]
    )


def _decode_int96(joined: bytes, ok: Array) -> tuple[Keys, Array]:
    parts = np.frombuffer(joined, dtype=[("nanos", "<i8"), ("day", "<i4")])
    days = parts["day"].astype(np.int64) - _UNIX_EPOCH_JULIAN
    fits = ok & (np.abs(days) < 106_000) & (parts["nanos"] >= 0) & (parts["nanos"] < _NANOS_PER_DAY)
    return np.where(fits, days, 0) * _NANOS_PER_DAY + np.where(fits, parts["nanos"], 0), fits


def _decode_decimals(leaf: LeafColumn, raw: Sequence[bytes | None]) -> tuple[Keys, Array]:
    stored = stored_type(leaf)
    if stored is None:
        return [None] * len(raw), np.zeros(len(raw), dtype=bool)
    space = key_space(stored)
    limit = 1 << (8 * space.width - 1) if space.kind is Kind.BYTES else 2**63
    whole = [int.from_bytes(r, "big", signed=True) if r else None for r in raw]
    ok = np.array([w is not None and -limit <= w < limit for w in whole], dtype=bool)
    usable = [w if good and w is not None else 0 for w, good in zip(whole, ok, strict=True)]
    if space.kind is Kind.BYTES:
        return [wide_key(w, space.width) for w in usable], ok
    return np.array(usable, dtype=np.int64), ok


# -- keys to stored bytes ----------------------------------------------------------------------


def encode_key(leaf: LeafColumn, key: Key) -> list[bytes] | None:
    """Return all encodings of a key in the file; empty if it has none, None if that is uncertain."""
    physical, decimal = leaf.physical, leaf.logical.kind is _K.DECIMAL
    if isinstance(key, bytes):
        if decimal:
            if physical is not _P.FIXED_LEN_BYTE_ARRAY:
                return None  # writers pad decimals of variable length differently
            return _big_endian(wide_value(key), leaf.type_length)
        fixed = physical is _P.FIXED_LEN_BYTE_ARRAY
        return [] if fixed and len(key) != leaf.type_length else [key]
    if isinstance(key, float):
        return _encode_float(leaf, key)
    if physical is _P.FIXED_LEN_BYTE_ARRAY and decimal:
        return _big_endian(key, leaf.type_length)
    if physical in (_P.INT32, _P.INT64):
        width = _WIDTHS[physical]
        unsigned = leaf.logical.kind is _K.INTEGER and not leaf.logical.signed
        try:
            return [key.to_bytes(width, "little", signed=not unsigned)]
        except OverflowError:
            return []
    return None


def _big_endian(number: int, width: int) -> list[bytes]:
    try:
        return [number.to_bytes(width, "big", signed=True)]
    except OverflowError:
        return []


def _encode_float(leaf: LeafColumn, key: float) -> list[bytes] | None:
    form = {_P.FLOAT: "<f", _P.DOUBLE: "<d"}.get(leaf.physical)
    if leaf.logical.kind is _K.FLOAT16:
        form = "<e"
    if form is None:
        return None
    try:
        data = struct.pack(form, key)
    except OverflowError:
        return []
    if struct.unpack(form, data)[0] != key:
        return []
    return [struct.pack(form, 0.0), struct.pack(form, -0.0)] if key == 0 else [data]
