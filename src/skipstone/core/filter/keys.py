"""The keys of a column's rows, without a copy where the layout allows: what lies under NULL is garbage."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.domain.keys import key_space
from skipstone.core.filter.truth import Array, bools

_WIDTHS: dict[int, Any] = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
_DTYPES = {pa.from_numpy_dtype(code).id: np.dtype(code) for code in "bhilBHILfd"}


def numbers(array: pa.Array) -> Array:
    """Numeric keys of a plain array, in the array's own width."""
    type = array.type
    dtype = _DTYPES.get(type.id)
    if dtype is not None:
        return _buffer(array, dtype, 1)
    if pa.types.is_boolean(type):
        return bools(array).view(np.uint8)
    if pa.types.is_decimal(type):
        words = type.bit_width // 32 if type.bit_width == 32 else type.bit_width // 64
        item: Any = np.int32 if type.bit_width == 32 else np.int64
        # Keys of at most 18 digits lie in the lowest word.
        return _buffer(array, item, words)[::words]
    return _buffer(array, _WIDTHS[type.bit_width], 1)


def _buffer(array: pa.Array, dtype: Any, words: int) -> Array:
    data, count = array.buffers()[1], len(array) * words
    if data is None or not count:
        return np.zeros(count, dtype)
    return np.frombuffer(data, dtype, count, array.offset * words * np.dtype(dtype).itemsize)


def texts(array: pa.Array) -> pa.Array:
    """Byte keys of a plain array, as Arrow binary; wide decimals as biased big-endian numbers."""
    type = array.type
    if pa.types.is_string(type):
        return array.view(pa.binary())
    if pa.types.is_large_string(type):
        return array.view(pa.large_binary())
    if pa.types.is_decimal(type):
        return _wide(array)
    return array


def _wide(array: pa.Array) -> pa.Array:
    stored, kept = array.type.bit_width // 8, key_space(array.type).width
    low_first = _buffer(array, np.uint8, stored).reshape(-1, stored)[:, :kept]
    keys = np.ascontiguousarray(low_first[:, ::-1])
    keys[:, 0] ^= 0x80
    validity = pa.array(bools(array.is_null())) if array.null_count else None
    made = pa.FixedSizeBinaryArray.from_buffers(pa.binary(kept), len(array), [None, pa.py_buffer(keys)])
    if validity is None:
        return made
    return pc.if_else(validity, pa.scalar(None, made.type), made)
