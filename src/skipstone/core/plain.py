"""Arrow values from Python and NumPy values without pyarrow's converter.

The converter imports pandas if it is installed, which takes longer than most queries.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skipstone.errors import UsageError


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


# -- types and values for people -----------------------------------------------------------------


def type_name(type: pa.DataType, *, brief: bool = False) -> str:
    """A type as listings and errors name it: Arrow's name, without how values are stored.

    ``brief`` leaves out the fields of structs, for listings that have them on lines of their own.

    >>> type_name(pa.timestamp("us", "UTC")), type_name(pa.decimal128(9, 2)), type_name(pa.large_string())
    ('timestamp[us, UTC]', 'decimal(9, 2)', 'string')
    >>> pairs = pa.map_(pa.string(), pa.struct({"day": pa.date32()}))
    >>> type_name(pairs), type_name(pairs, brief=True)
    ('map<string, struct<day: date>>', 'map<string, struct>')
    """
    types = pa.types
    if isinstance(type, pa.BaseExtensionType):
        return str(type.extension_name).rpartition(".")[2]
    if types.is_dictionary(type) or types.is_run_end_encoded(type):
        return type_name(type.value_type, brief=brief)
    if types.is_struct(type):
        fields = ", ".join(f"{field.name}: {type_name(field.type)}" for field in type)
        return "struct" if brief else f"struct<{fields}>"
    if types.is_map(type):
        return f"map<{type_name(type.key_type, brief=brief)}, {type_name(type.item_type, brief=brief)}>"
    if types.is_nested(type) and hasattr(type, "value_type"):
        size = f"[{type.list_size}]" if types.is_fixed_size_list(type) else ""
        return f"list<{type_name(type.value_type, brief=brief)}>{size}"
    if types.is_decimal(type):
        return f"decimal({type.precision}, {type.scale})"
    if types.is_timestamp(type) and type.tz is not None:
        return f"timestamp[{type.unit}, {type.tz}]"
    if types.is_date(type) or types.is_interval(type):
        return "date" if types.is_date(type) else "interval"
    # Widths of offsets and of storage are Arrow's own affair.
    name = re.sub(r"^large_|_view$|^fixed_size_(?=binary)|(?<=^time)(?:32|64)", "", str(type))
    return "float16" if name == "halffloat" else name


def duration_text(value: pa.Scalar) -> str:
    """A duration in days, hours, minutes and seconds, each part with its sign.

    >>> duration_text(pa.scalar(5_400_250, pa.duration("ms")))
    '01:30:00.25'
    >>> duration_text(pa.scalar(-86_401, pa.duration("s")))
    '-1 day -00:00:01'
    """
    nanos = value.value * {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[value.type.unit]
    seconds, fraction = divmod(abs(nanos), 10**9)
    days, seconds = divmod(seconds, 86_400)
    sign = "-" if nanos < 0 else ""
    clock = f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    clock += f".{fraction:09d}".rstrip("0") if fraction else ""
    return f"{sign}{days:,} {'day' if days == 1 else 'days'} {clock}" if days else clock


# -- sizes -------------------------------------------------------------------------------------

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([kmgt])(i?)b?|b)?", re.IGNORECASE)
_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4}


def as_bytes(value: int | str, name: str) -> int:
    """Return a number of bytes, which text can give with a unit.

    >>> [as_bytes(size, "memory") for size in ("128MB", "64 MiB", "1.5 gb", "12", 7)]
    [128000000, 67108864, 1500000000, 12, 7]
    """
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is not None:
        number, prefix, binary = match.groups()
        power = _POWERS.get((prefix or "").lower(), 0)
        return round(float(number) * math.pow(1024 if binary else 1000, power))
    if isinstance(value, bool) or not isinstance(value, int):
        problem = f"{name} must be a number of bytes or text with a unit, got {value!r}"
        raise UsageError(problem, hint='pass bytes, or text such as "64MB" or "1GiB"')
    return value
