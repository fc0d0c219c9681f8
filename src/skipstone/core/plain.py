"""Arrow values from Python and NumPy values without pyarrow's converter.

The converter imports pandas if it is installed, which takes longer than most queries.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def int_scalar(value: int) -> pa.Scalar:
    """Make a bigint scalar.

    >>> int_scalar(-3)
    <pyarrow.Int64Scalar: -3>
    """
    body = pa.py_buffer(value.to_bytes(8, "little", signed=True))
    return pa.Array.from_buffers(pa.int64(), 1, [None, body])[0]


def string_scalar(value: str | bytes, type: pa.DataType | None = None) -> pa.Scalar:
    """Make a scalar of a string or binary type with offsets.

    >>> string_scalar("naïve"), string_scalar(b"a", pa.large_binary())
    (<pyarrow.StringScalar: 'naïve'>, <pyarrow.LargeBinaryScalar: b'a'>)
    """
    type = type or pa.string()
    if type not in _OFFSETS:
        return pa.scalar(value, type)
    body = value.encode() if isinstance(value, str) else value
    offsets = pa.py_buffer(struct.pack(_OFFSETS[type], 0, len(body)))
    return pa.Array.from_buffers(type, 1, [None, offsets, pa.py_buffer(body)])[0]


_OFFSETS = {pa.string(): "<ii", pa.binary(): "<ii", pa.large_string(): "<qq", pa.large_binary(): "<qq"}


def int_array(values: NDArray[Any]) -> pa.Array:
    """Convert a NumPy array of integers, without a copy.

    >>> int_array(np.arange(3, dtype=np.int32)).to_pylist()
    [0, 1, 2]
    """
    body = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, body])


def bytes_array(values: Sequence[bytes | None]) -> pa.Array:
    """Make a large_binary array.

    >>> bytes_array([b"a", None, b""]).to_pylist()
    [b'a', None, b'']
    """
    filled = [b"" if value is None else value for value in values]
    offsets = np.zeros(len(filled) + 1, dtype=np.int64)
    np.cumsum([*map(len, filled)], out=offsets[1:])
    valid = None
    if None in values:
        valid = pa.py_buffer(np.packbits([value is not None for value in values], bitorder="little"))
    body = [valid, pa.py_buffer(offsets), pa.py_buffer(b"".join(filled))]
    return pa.Array.from_buffers(pa.large_binary(), len(filled), body)
