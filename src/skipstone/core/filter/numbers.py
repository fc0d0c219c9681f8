"""Numbers as doubles, rounded once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from skipstone.core.filter.keys import numbers
from skipstone.core.filter.truth import Array

_EXACT = 2**53
_EXACT_POWER = 22
_NARROW_DIGITS = 18


def doubles(array: pa.Array) -> Array:
    """A column of numbers as doubles, each rounded to nearest; anything for NULL."""
    if not pa.types.is_decimal(array.type):
        return numbers(array).astype(np.float64, copy=False)
    type = array.type
    if type.precision <= _NARROW_DIGITS and 0 <= type.scale <= _EXACT_POWER:
        whole = numbers(array)
        if not (np.abs(whole) > _EXACT).any():
            # Both operands are exact, so the one division rounds once.
            return np.asarray(whole.astype(np.float64) / 10.0**type.scale)
    return parsed(array, pa.float64())


def parsed(array: pa.Array, type: pa.DataType) -> Array:
    """Decimals by way of their text: Arrow reads it correctly rounded, its own cast is not."""
    filled = array.fill_null(0) if array.null_count else array
    return numbers(filled.cast(pa.string()).cast(type))
