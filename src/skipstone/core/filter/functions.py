"""The functions rows can be computed with, by Spark's names; a name that is not here is refused."""

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


def _meeting_type(to: Arguments, types: list[pa.DataType]) -> pa.DataType:
    """One type for values that take each other's place; NULL takes any."""
    found = pa.null()
    for type in types:
        if pa.types.is_null(found) or found == type:
            found = type
        elif pa.types.is_null(type):
            continue
        elif is_text(found) and is_text(type):
            found = pa.large_string()
        else:
            wider = common_type(found, type) if is_number(found) and is_number(type) else None
            if wider is None:
                raise to.refuse(f"{found} and {type} have no common type here")
            found = wider
    return found


def _met(array: pa.Array, type: pa.DataType) -> pa.Array:
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), type)
    return as_type(array, type)


def _coalesce(to: Arguments) -> Series:
    type = _meeting_type(to, list(to.types))
    return apply(to.call, type, lambda *a: pc.coalesce(*(_met(x, type) for x in a)), to.series)


def _if(to: Arguments) -> Series:
    if len(to.types) != 3 or not pa.types.is_boolean(to.types[0]):
        raise to.refuse("it takes a condition and two values")
    type = _meeting_type(to, list(to.types[1:]))
    test, yes, no = to.series

    def choose(rows: BatchRows) -> pa.Array:
        chosen = bools(test.compute(rows))
        # Each value for its own rows only: the test may be there to keep the others from failing.
        parts = [_met(s.compute(rows.where(m)), type) for s, m in ((yes, chosen), (no, ~chosen))]
        places = np.where(chosen, np.cumsum(chosen) - 1, len(parts[0]) + np.cumsum(~chosen) - 1)
        return pa.concat_arrays(parts).take(pa.array(places))

    key = ("made", to.call.key())
    return Series(
        type,
        lambda rows: rows.remember(key, choose),
        any(s.risky for s in to.series),
        5 + sum(s.cost for s in to.series),
    )


def _extreme(to: Arguments) -> Series:
    type = _meeting_type(to, list(to.types))
    if pa.types.is_floating(type) or pa.types.is_nested(type) or len(to.types) < 2:
        raise to.refuse("NaN has an order of its own in it")
    pick = pc.max_element_wise if to.call.name == "greatest" else pc.min_element_wise
    return apply(to.call, type, lambda *a: pick(*(_met(x, type) for x in a)), to.series)


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
"""Names that mean the same; an adapter may use either."""
