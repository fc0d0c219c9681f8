"""Functions that can be evaluated on rows, by Spark's names."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.arrays import bools
from skipstone.core.domain.keys import is_text
from skipstone.core.filter import arithmetic, strings, times
from skipstone.core.filter.arithmetic import as_type, common_type, is_number
from skipstone.core.filter.conditions import Arguments, BatchRows, Series, apply

Build = Callable[[Arguments], Series]


def _common_type(to: Arguments, types: list[pa.DataType]) -> pa.DataType:
    """Common type of alternative values; NULL adopts any type."""
    common = pa.null()
    for type in types:
        if pa.types.is_null(common) or common == type:
            common = type
        elif pa.types.is_null(type):
            continue
        elif is_text(common) and is_text(type):
            common = pa.large_string()
        else:
            wider = common_type(common, type) if is_number(common) and is_number(type) else None
            if wider is None:
                raise to.unsupported(f"{common} and {type} have no common type")
            common = wider
    return common


def _convert(array: pa.Array, type: pa.DataType) -> pa.Array:
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), type)
    return as_type(array, type)


def _coalesce(to: Arguments) -> Series:
    type = _common_type(to, list(to.types))
    return apply(to.call, type, lambda *a: pc.coalesce(*(_convert(x, type) for x in a)), to.series)


def _if(to: Arguments) -> Series:
    if len(to.types) != 3 or not pa.types.is_boolean(to.types[0]):
        raise to.unsupported("arguments must be a condition and two values")
    type = _common_type(to, list(to.types[1:]))
    test, yes, no = to.series

    def choose(rows: BatchRows) -> pa.Array:
        mask = bools(test.compute(rows))
        # Each value is evaluated only on its rows: the condition may protect it from errors.
        parts = [_convert(s.compute(rows.where(m)), type) for s, m in ((yes, mask), (no, ~mask))]
        indexes = np.where(mask, np.cumsum(mask) - 1, len(parts[0]) + np.cumsum(~mask) - 1)
        return pa.concat_arrays(parts).take(pa.array(indexes))

    key = ("computed", to.call.key())
    return Series(
        type,
        lambda rows: rows.remember(key, choose),
        any(s.risky for s in to.series),
        5 + sum(s.cost for s in to.series),
    )


def _extreme(to: Arguments) -> Series:
    type = _common_type(to, list(to.types))
    if pa.types.is_floating(type) or pa.types.is_nested(type) or len(to.types) < 2:
        raise to.unsupported("arguments must be at least two values without NaN or nested types")
    kernel = pc.max_element_wise if to.call.name == "greatest" else pc.min_element_wise
    return apply(to.call, type, lambda *a: kernel(*(_convert(x, type) for x in a)), to.series)


FUNCTIONS: dict[str, Build] = {
    "+": arithmetic.arithmetic,
    "-": arithmetic.arithmetic,
    "*": arithmetic.arithmetic,
    "/": arithmetic.divide,
    "%": arithmetic.remainder,
    "div": arithmetic.integer_divide,
    "negative": arithmetic.negative,
    "abs": arithmetic.absolute,
    "floor": arithmetic.floor_or_ceil,
    "ceil": arithmetic.floor_or_ceil,
    "sqrt": arithmetic.square_root,
    **dict.fromkeys(("lower", "upper", "trim", "ltrim", "rtrim", "reverse"), strings.string_function),
    "length": strings.length,
    **dict.fromkeys(("substr", "left", "right"), strings.substring),
    "concat": strings.concat,
    "replace": strings.replace,
    "rlike": strings.rlike,
    **dict.fromkeys(times.FIELDS, times.date_field),
    "date_trunc": times.date_trunc,
    "datediff": times.day_count,
    "coalesce": _coalesce,
    "if": _if,
    "greatest": _extreme,
    "least": _extreme,
}
ALIASES = {"substring": "substr", "ceiling": "ceil", "dayofmonth": "day", "date_add": "+", "date_sub": "-"}
"""Alternative names of functions."""
