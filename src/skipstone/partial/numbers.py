"""The numbers of a column: as compact keys that compare like them, or as doubles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.domain.keys import Kind, key_space, storage_type
from skipstone.core.evidence import Array
from skipstone.errors import TypeMismatchError
from skipstone.parquet.measure import Column, NumberKeys

if TYPE_CHECKING:
    from numpy.typing import NDArray

_WHOLE: Final = [np.dtype(name) for name in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")]


def check_number(type: pa.DataType, what: str, path: tuple[str, ...]) -> None:
    """Raise an error for a type whose values are no numbers."""
    storage = storage_type(type)
    if not (pa.types.is_integer(storage) or pa.types.is_floating(storage) or pa.types.is_decimal(storage)):
        raise TypeMismatchError(
            f"{what} of type {type} can't be computed", column=".".join(path), hint="name a column of numbers"
        )


def scale_of(type: pa.DataType) -> int:
    """The power of ten by which the keys of a number exceed it."""
    storage = storage_type(type)
    return int(storage.scale) if pa.types.is_decimal(storage) else 0


def compact_keys(type: pa.DataType, column: Column) -> Array:
    """The keys in the narrowest form that holds those of all columns of the type.

    Decimals of more than 18 digits are doubles, at their scale. What lies under NULL is garbage.
    """
    space, storage = key_space(type), storage_type(type)
    if space.kind is Kind.BYTES:
        return _wide_decimals(column)
    keys = NumberKeys.of(column).keys
    if space.kind is Kind.FLOAT:
        return keys.astype(np.float64 if storage.bit_width == 64 else np.float32, copy=False)
    narrow = next(one for one in _WHOLE if np.iinfo(one).min <= space.low and space.high <= np.iinfo(one).max)
    return keys.astype(narrow, copy=False)


def doubles(type: pa.DataType, column: Column) -> NDArray[np.float64]:
    """The numbers as doubles, rounded if need be, with one zero only; times as their keys."""
    return compact_keys(type, column).astype(np.float64, copy=False) / 10.0 ** scale_of(type) + 0.0


def _wide_decimals(column: Column) -> NDArray[np.float64]:
    parts = [np.zeros(0, dtype=np.float64)]
    for chunk in column.chunks:
        whole = pa.decimal128(38, 0) if chunk.type.bit_width == 128 else pa.decimal256(76, 0)
        same = pa.Array.from_buffers(whole, len(chunk), chunk.buffers(), offset=chunk.offset)
        parts.append(pc.cast(same, pa.float64()).fill_null(0).to_numpy())
    return np.concatenate(parts)
