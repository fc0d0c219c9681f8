"""Conversion of Arrow arrays to plain layouts, NumPy keys and masks, zero-copy where possible."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.domain.keys import key_space, storage_type

Array = np.ndarray[Any, Any]


_WIDE = {
    pa.string_view(): pa.large_string(),
    pa.binary_view(): pa.large_binary(),
    pa.float16(): pa.float32(),
}


_EXTENSION = pa.uuid().id
# The most common layouts, which are already plain.
_PLAIN = frozenset(
    type.id
    for type in (
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.large_string(), pa.binary()),
        *(pa.large_binary(), pa.date32(), pa.date64(), pa.timestamp("us"), pa.decimal128(1)),
    )
)


@lru_cache(maxsize=256)
def plain_type(type: pa.DataType) -> pa.DataType:
    """Layout for computing with ``type``: no dictionary, extension, view or half float."""
    type = storage_type(type)
    return _WIDE.get(type, type)


def plain(array: pa.Array) -> pa.Array:
    """Convert ``array`` to its plain layout, without a copy if it already has it."""
    while array.type.id not in _PLAIN:
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        elif pa.types.is_dictionary(array.type):
            array = decode_dictionary(array)
        elif pa.types.is_run_end_encoded(array.type):
            array = pc.run_end_decode(array)
        else:
            wide = _WIDE.get(array.type)
            return array if wide is None else array.cast(wide)
    return array


def decode_dictionary(array: pa.Array) -> pa.Array:
    """Decode a dictionary array; view values are widened first, since Arrow can't take from views."""
    return plain(array.dictionary).take(array.indices)


def filter_rows(array: pa.Array, mask: pa.Array) -> pa.Array:
    """Filter an array of any type."""
    if array.type in (pa.string_view(), pa.binary_view()):
        return plain(array).filter(mask).cast(array.type)
    return array.filter(mask)


def bools(array: pa.Array) -> Array:
    """Convert an Arrow boolean array to NumPy, with False for NULL."""
    filled = array.fill_null(False) if array.null_count else array
    return np.asarray(filled.to_numpy(zero_copy_only=False))


def valid_rows(array: pa.Array) -> Array | None:
    """Mask of valid rows, or None if every row is valid."""
    return None if array.null_count == 0 else bools(pc.is_valid(array))


def both_valid(a: Array | None, b: Array | None) -> Array | None:
    """Mask of rows where both sides are valid, or None if all are."""
    if a is None or b is None:
        return b if a is None else a
    return a & b


# -- slices: nested arrays with an offset ------------------------------------------------------


def slice_columns(schema: pa.Schema) -> tuple[int, ...]:
    """Numbers of the columns whose slices other engines can't import; see ``without_offsets``."""
    types = enumerate(schema.types)
    nested = [(number, type) for number, type in types if type.num_fields or type.id == _EXTENSION]
    return tuple([number for number, type in nested if _has_fragile_slices(type)])


def without_offsets(batch: pa.RecordBatch, columns: Sequence[int]) -> pa.RecordBatch:
    """Copy those of the columns that are slices of larger arrays, so that every offset is zero.

    DuckDB refuses a struct below a struct with an offset, DataFusion panics, and Polars refuses a fixed-size
    list that has NULLs and more values than rows.
    """
    for number in columns:
        array = batch.column(number)
        if _is_slice(array):
            batch = batch.set_column(number, batch.schema.field(number), unsliced(array))
    return batch


def unsliced(array: pa.Array) -> pa.Array:
    """Copy a sliced array so that it and its children have offset zero."""
    # concat_arrays() does not copy a single array, and take() would build nested ones value by value.
    return pa.concat_arrays([array, array.slice(0, 0)])


def _has_fragile_slices(type: pa.DataType) -> bool:
    if isinstance(type, pa.BaseExtensionType):
        return _has_fragile_slices(type.storage_type)
    if not type.num_fields:
        return False
    inner = [type.field(number).type for number in range(type.num_fields)]
    above_struct = pa.types.is_struct(type) and any(pa.types.is_struct(storage_type(one)) for one in inner)
    return above_struct or pa.types.is_fixed_size_list(type) or any(map(_has_fragile_slices, inner))


def _is_slice(array: pa.Array) -> bool:
    """Whether a nested array, or one inside it, is a slice of a larger one."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    type = array.type
    if not type.num_fields:
        return False
    if array.offset:
        return True
    if pa.types.is_struct(type):
        return any(_is_slice(array.field(number)) for number in range(type.num_fields))
    cut = pa.types.is_fixed_size_list(type) and len(array.values) != len(array) * type.list_size
    return cut or _is_slice(array.values)


# -- keys: undefined under NULL ----------------------------------------------------------------

_WIDTHS: dict[int, Any] = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
_DTYPES = {pa.from_numpy_dtype(code).id: np.dtype(code) for code in "bhilBHILfd"}


def numbers(array: pa.Array) -> Array:
    """Numeric keys of a plain array, in the width of the array."""
    type = array.type
    dtype = _DTYPES.get(type.id)
    if dtype is not None:
        return as_numpy(array, dtype, 1)
    if pa.types.is_boolean(type):
        return bools(array).view(np.uint8)
    if pa.types.is_decimal(type):
        words = type.bit_width // 32 if type.bit_width == 32 else type.bit_width // 64
        item: Any = np.int32 if type.bit_width == 32 else np.int64
        # Keys of at most 18 digits are in the lowest word.
        return as_numpy(array, item, words)[::words]
    return as_numpy(array, _WIDTHS[type.bit_width], 1)


def as_numpy(array: pa.Array, dtype: Any, words: int) -> Array:
    """Values of a fixed-width array of ``words`` words each."""
    data, count = array.buffers()[1], len(array) * words
    if data is None or not count:
        return np.zeros(count, dtype)
    return np.frombuffer(data, dtype, count, array.offset * words * np.dtype(dtype).itemsize)


def runs(firsts: Array, counts: Array) -> Array:
    """Return the positions ``firsts`` to ``firsts + counts``, run by run."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    positions: Array = np.arange(total) + np.repeat(firsts - ends + counts, counts)
    return positions


def binary_keys(array: pa.Array) -> pa.Array:
    """Byte keys of a plain array as Arrow binary; wide decimals are biased big-endian numbers."""
    type = array.type
    if pa.types.is_string(type):
        return array.view(pa.binary())
    if pa.types.is_large_string(type):
        return array.view(pa.large_binary())
    if pa.types.is_decimal(type):
        return _wide(array)
    return array


def _wide(array: pa.Array) -> pa.Array:
    stored_width, key_width = array.type.bit_width // 8, key_space(array.type).width
    low_first = as_numpy(array, np.uint8, stored_width).reshape(-1, stored_width)[:, :key_width]
    keys = np.ascontiguousarray(low_first[:, ::-1])
    keys[:, 0] ^= 0x80
    validity = pa.array(bools(array.is_null())) if array.null_count else None
    result = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(key_width), len(array), [None, pa.py_buffer(keys)]
    )
    if validity is None:
        return result
    return pc.if_else(validity, pa.scalar(None, result.type), result)
