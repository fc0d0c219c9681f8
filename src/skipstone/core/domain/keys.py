"""Key spaces: every ordered type maps to integers, floats or bytes.

A *key* is the form of a value that metadata stores and comparisons use: a timestamp is an integer in its
unit, a decimal an integer at its scale (above 18 digits: biased big-endian bytes), a string its UTF-8 bytes.
Keys sort in Spark SQL's order; NULL and NaN have no key.
"""

from __future__ import annotations

import decimal
import enum
import functools
import math
import uuid
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.plain import duration_text, type_name
from skipstone.errors import TypeMismatchError

Key = int | float | bytes

_EXACT = decimal.Context(prec=90)
_NARROW_DIGITS = 18
_INT64 = (-(2**63), 2**63 - 1)


class Kind(enum.Enum):
    """Representation of the keys of a type."""

    INT = "int"
    FLOAT = "float"
    BYTES = "bytes"


@dataclass(frozen=True, slots=True)
class KeySpace:
    """Keys of a type: their kind, their range, and the width of fixed-width byte keys."""

    kind: Kind
    low: int = 0
    high: int = 0
    width: int = 0
    dtype: np.dtype[Any] = field(init=False, compare=False)
    """NumPy dtype of numeric keys."""
    limits: tuple[float, float] = field(init=False, compare=False)
    """Smallest and largest key of a numeric space."""

    def __post_init__(self) -> None:
        floats = self.kind is Kind.FLOAT
        whole = np.uint64 if self.high > _INT64[1] else np.int64
        object.__setattr__(self, "dtype", np.dtype(np.float64 if floats else whole))
        object.__setattr__(self, "limits", (-math.inf, math.inf) if floats else (self.low, self.high))


_FLOATS = KeySpace(Kind.FLOAT)
_BYTES = KeySpace(Kind.BYTES)
_INT64_SPACE = KeySpace(Kind.INT, *_INT64)
_BOOLEAN = KeySpace(Kind.INT, 0, 1)
PRESENCE = KeySpace(Kind.INT, 0, 0)
"""Types without an order: every non-NULL value has the key 0."""


def storage_type(type: pa.DataType) -> pa.DataType:
    """``type`` without dictionary, run-end or extension wrapping."""
    while True:
        if pa.types.is_dictionary(type) or pa.types.is_run_end_encoded(type):
            type = type.value_type
        elif isinstance(type, pa.BaseExtensionType):
            type = type.storage_type
        else:
            return type


@functools.lru_cache(maxsize=4096)
def key_space(type: pa.DataType) -> KeySpace:
    """Key space of ``type``; :data:`PRESENCE` for types without an order (struct, list, map, ...)."""
    type = storage_type(type)
    if pa.types.is_boolean(type):
        return _BOOLEAN
    if pa.types.is_integer(type):
        bits = type.bit_width
        if pa.types.is_unsigned_integer(type):
            return KeySpace(Kind.INT, 0, 2**bits - 1)
        return KeySpace(Kind.INT, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    if pa.types.is_floating(type):
        return _FLOATS
    if is_text(type) or is_binary(type):
        return _BYTES
    if pa.types.is_decimal(type):
        return _decimal_space(type)
    if pa.types.is_date32(type) or pa.types.is_time32(type):
        return KeySpace(Kind.INT, -(2**31), 2**31 - 1)
    if pa.types.is_temporal(type) and not pa.types.is_interval(type):
        return _INT64_SPACE
    return PRESENCE


def is_ordered(type: pa.DataType) -> bool:
    """Whether values of ``type`` can be compared."""
    return key_space(type) is not PRESENCE


def is_text(type: pa.DataType) -> bool:
    """Whether ``type`` is an Arrow string type."""
    return bool(pa.types.is_string(type) or pa.types.is_large_string(type) or pa.types.is_string_view(type))


def is_binary(type: pa.DataType) -> bool:
    """Whether ``type`` is an Arrow binary type, fixed-size or not."""
    return bool(
        pa.types.is_binary(type)
        or pa.types.is_large_binary(type)
        or pa.types.is_binary_view(type)
        or pa.types.is_fixed_size_binary(type)
    )


def _decimal_space(type: pa.DataType) -> KeySpace:
    if type.precision <= _NARROW_DIGITS:
        limit = 10**type.precision - 1
        return KeySpace(Kind.INT, -limit, limit)
    return KeySpace(Kind.BYTES, width=16 if type.precision <= 38 else 32)


# -- wide decimals -----------------------------------------------------------------------------


def wide_key(unscaled: int, width: int) -> bytes:
    """Key of a wide decimal: bytes that sort like the number."""
    return (unscaled + (1 << (8 * width - 1))).to_bytes(width, "big")


def wide_value(key: bytes) -> int:
    """Inverse of :func:`wide_key`."""
    return int.from_bytes(key, "big") - (1 << (8 * len(key) - 1))


def unscaled(value: decimal.Decimal, scale: int) -> int | None:
    """``value`` as an integer at ``scale``, or None if it has more digits."""
    scaled = value.scaleb(scale, _EXACT)
    whole = int(scaled)
    return whole if scaled == whole else None


# -- values to keys and back -------------------------------------------------------------------


def to_key(type: pa.DataType, value: object) -> Key:
    """Key of a Python or Arrow value other than NULL and NaN; raises if ``type`` can't represent it."""
    space = key_space(type)
    if space is PRESENCE:
        raise TypeMismatchError(f"type {type_name(type)} has no order", hint="compare its leaf fields")
    storage = storage_type(type)
    scalar = _to_scalar(storage, value)
    if not scalar.is_valid:
        raise TypeMismatchError("NULL can't be in a range", hint="use the nulls flag")
    if space.kind is Kind.FLOAT:
        number = float(scalar.as_py())
        if math.isnan(number):
            raise TypeMismatchError("NaN can't be in a range", hint="use the nans flag")
        return number
    if pa.types.is_decimal(storage):
        whole = unscaled(scalar.as_py(), storage.scale)
        assert whole is not None
        return wide_key(whole, space.width) if space.kind is Kind.BYTES else whole
    if space.kind is Kind.BYTES:
        data = scalar.as_py()
        return data.encode() if isinstance(data, str) else bytes(data)
    return int(scalar.value) if pa.types.is_temporal(storage) else int(scalar.as_py())


def _to_scalar(type: pa.DataType, value: object) -> pa.Scalar:
    if isinstance(value, uuid.UUID):
        value = value.bytes
    try:
        if isinstance(value, pa.Scalar):
            scalar = value.value if isinstance(value, pa.ExtensionScalar) else value
            return scalar if scalar.type == type else scalar.cast(type)
        return pa.scalar(value, type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
        raise TypeMismatchError(f"{value!r} is not a value of type {type_name(type)}: {error}") from error


def from_key(type: pa.DataType, key: Key) -> pa.Scalar:
    """Value of ``type`` with this key."""
    storage = storage_type(type)
    if pa.types.is_decimal(storage):
        whole = wide_value(key) if isinstance(key, bytes) else int(key)
        return pa.scalar(decimal.Decimal(whole).scaleb(-storage.scale, _EXACT), storage)
    if isinstance(key, bytes):
        if is_text(storage):
            return pa.scalar(key.decode("utf-8", "replace"), storage)
        fits = not pa.types.is_fixed_size_binary(storage) or storage.byte_width == len(key)
        return pa.scalar(key, storage if fits else pa.binary())
    if pa.types.is_temporal(storage):
        return pa.scalar(int(key), pa.int32() if storage.bit_width == 32 else pa.int64()).cast(storage)
    if isinstance(key, float):
        # A range of a narrow float can end between two of its values.
        narrow = pa.scalar(key, storage)
        return narrow if narrow.as_py() == key else pa.scalar(key, pa.float64())
    return pa.scalar(bool(key) if pa.types.is_boolean(storage) else key, storage)


def format_key(type: pa.DataType, key: Key) -> str:
    """Format a key as its value, with quotes for strings."""
    storage = storage_type(type)
    if isinstance(key, bytes) and is_text(storage):
        return "'" + key.decode("utf-8", "replace") + "'"
    try:
        scalar = from_key(type, key)
        if pa.types.is_duration(storage):
            return duration_text(scalar)
        if pa.types.is_temporal(storage):
            return str(scalar.cast(pa.string()))
        return str(scalar.as_py())
    except (pa.ArrowInvalid, ValueError, OverflowError):
        return str(key)


def array_keys(type: pa.DataType, values: pa.Array) -> np.ndarray[Any, Any] | list[bytes]:
    """Keys of an array of ``type`` without NULL or NaN."""
    space = key_space(type)
    storage = storage_type(type)
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if space.kind is Kind.BYTES and not pa.types.is_decimal(storage):
        return [v.encode() if isinstance(v, str) else v for v in values.to_pylist()]
    if pa.types.is_decimal(storage):
        return _decimal_keys(storage, space, values)
    if pa.types.is_temporal(storage):
        values = values.view(pa.int32() if storage.bit_width == 32 else pa.int64())
    elif pa.types.is_boolean(storage):
        values = values.cast(pa.int8())
    elif pa.types.is_float16(storage):
        values = pc.cast(values, pa.float32())
    return np.asarray(values.to_numpy(zero_copy_only=False)).astype(space.dtype)


def _decimal_keys(
    storage: pa.DataType, space: KeySpace, values: pa.Array
) -> np.ndarray[Any, Any] | list[bytes]:
    if space.kind is Kind.BYTES:
        return [wide_key(unscaled(v, storage.scale) or 0, space.width) for v in values.to_pylist()]
    if not len(values):
        return np.zeros(0, dtype=np.int64)
    # Keys of at most 18 digits are in the lowest word.
    words = max(values.type.bit_width // 64, 1)
    data = np.frombuffer(values.buffers()[1], np.int32 if values.type.bit_width == 32 else np.int64)
    return data[values.offset * words : (values.offset + len(values)) * words : words].astype(np.int64)
