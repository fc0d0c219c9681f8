"""Random expressions of columns, with their values computed by Python."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from skipstone.core.arrays import plain_type
from tests.property._aggregate_oracle import Answers, Path

_YEARS = np.datetime64("0002-01-01"), np.datetime64("9998-01-01")


@dataclass(frozen=True)
class Rule:
    """An expression of one column: its text, the type of its values, and each value."""

    text: str
    type: Callable[[pa.DataType], pa.DataType]
    value: Callable[[Any], Any]
    null: Any = None
    """Value where the column is NULL."""


def _positive(value: Any) -> Any:
    # NaN is the largest number.
    return value if value > 0 or value != value else None


def _remainder(value: int) -> int:
    return abs(value) % 3 * (1 if value >= 0 else -1)


def _int_type(type: pa.DataType) -> pa.DataType:
    width = type.bit_width + pa.types.is_unsigned_integer(type)
    return pa.int32() if width <= 32 else pa.int64()


def _in_unit(type: pa.DataType) -> str:
    return "D" if pa.types.is_date32(type) else type.unit


def _times(type: pa.DataType) -> list[Rule]:
    unit = _in_unit(type)

    def floor(to: str, back: str) -> Callable[[int], int]:
        return lambda v: int(
            np.datetime64(v, unit).astype(f"datetime64[{to}]").astype(f"datetime64[{back}]").astype(int)
        )

    years = Rule("year({})", lambda _: pa.int32(), lambda v: floor("Y", "Y")(v) + 1970)
    if pa.types.is_date32(type):
        return [years]
    return [
        years,
        Rule("cast({} as date)", lambda _: pa.date32(), floor("D", "D")),
        Rule("date_trunc('month', {})", lambda own: own, floor("M", unit)),
        Rule("date_trunc('hour', {})", lambda own: own, floor("h", unit)),
    ]


def _rules(type: pa.DataType, values: Sequence[Any]) -> list[Rule]:
    """Expressions that make sense of a column, and fit all its values."""
    kept = [v for v in values if v is not None]
    if pa.types.is_integer(type) and type != pa.uint64():
        return [
            Rule("{} % 3", _int_type, _remainder),
            Rule(
                "case when {} > 1 then 7 else 2 end",
                lambda _: pa.int32(),
                lambda v: 7 if v > 1 else 2,
                null=2,
            ),
            Rule("if({0} > 0, {0}, null)", lambda own: own, _positive),
        ]
    if pa.types.is_floating(type):
        return [
            Rule("{} * 2", lambda _: pa.float64(), lambda v: v * 2.0),
            Rule("case when {0} > 0 then {0} end", lambda own: own, _positive),
        ]
    if pa.types.is_decimal(type) and type.precision <= 30 and type.scale >= 0:
        return [Rule("{} * 2", lambda own: pa.decimal128(own.precision + 2, own.scale), lambda v: v * 2)]
    if pa.types.is_date32(type) or pa.types.is_timestamp(type):
        times = np.array(kept, dtype="int64").astype(f"datetime64[{_in_unit(type)}]").astype("datetime64[D]")
        return _times(type) if ((times > _YEARS[0]) & (times < _YEARS[1])).all() else []
    if pa.types.is_string(type) or pa.types.is_large_string(type):
        return [
            Rule("length({})", lambda _: pa.int32(), len),
            Rule("if({} >= 'b', 1, 0)", lambda _: pa.int32(), lambda v: int(v.encode() >= b"b"), null=0),
            Rule("substr({}, 1, 1)", lambda own: own, lambda v: v[:1]),
            Rule("left({}, 2)", lambda own: own, lambda v: v[:2]),
        ]
    return []


def add_expressions(rng: random.Random, answers: Answers, paths: Sequence[Path]) -> list[Path]:
    """Add a few expressions to the columns of the truth, under their text."""
    found = []
    for path in rng.sample(paths, min(len(paths), 4)):
        type, values = plain_type(answers.type(path)), answers.values(path)
        rules = _rules(type, values)
        if not rules:
            continue
        rule = rng.choice(rules)
        text = rule.text.format(".".join(f"`{part.replace('`', '``')}`" for part in path))
        if text not in answers.table.column_names:
            made = [rule.null if v is None else rule.value(v) for v in values]
            answers.table = answers.table.append_column(text, _array(made, rule.type(type)))
        found.append((text,))
    return found


def _array(values: list[Any], type: pa.DataType) -> pa.Array:
    if pa.types.is_temporal(type):
        return pa.array(values, pa.int32() if type.bit_width == 32 else pa.int64()).view(type)
    return pa.array(values, type)
