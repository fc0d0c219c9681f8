"""What an aggregation must answer: DuckDB filters, groups and counts, and fractions do what must be exact."""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tests.property._lakes import whole

Path = tuple[str, ...]
WHOLE, FLOAT, DECIMAL, OTHER = "whole", "float", "decimal", "other"


class Unanswerable(Exception):
    """The exact value doesn't fit the type of the answer: an error is wanted."""


# -- values ------------------------------------------------------------------------------------


def leaf(table: pa.Table, path: Path) -> pa.Array:
    """A column in one piece, or a field of a struct: NULL where the struct is."""
    array = whole(table.column(table.column_names.index(path[0])))
    for name in path[1:]:
        array = pc.struct_field(array, [array.type.get_field_index(name)])
    return array


def stored(array: pa.Array) -> pa.Array:
    """The same values in a type that DuckDB has too: times are numbers, and zero has no sign."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    type = array.type
    if pa.types.is_dictionary(type):
        return stored(array.dictionary_decode())
    if pa.types.is_null(type):
        return pa.nulls(len(array), pa.int32())
    if pa.types.is_floating(type):
        return pc.add(array.cast(pa.float64()), 0.0)
    if pa.types.is_temporal(type):
        return array.view(pa.int32() if type.bit_width == 32 else pa.int64()).cast(pa.int64())
    if pa.types.is_string_view(type) or pa.types.is_large_string(type):
        return array.cast(pa.string())
    if pa.types.is_large_binary(type) or pa.types.is_binary_view(type) or pa.types.is_fixed_size_binary(type):
        return array.cast(pa.binary())
    if pa.types.is_nested(type):
        valid = array.is_valid()
        return pc.if_else(valid, pa.scalar(0, pa.int8()), pa.scalar(None, pa.int8()))
    return array


def family(type: pa.DataType) -> str:
    """What sums of a type are made of."""
    if pa.types.is_integer(type):
        return WHOLE
    if pa.types.is_floating(type):
        return FLOAT
    return DECIMAL if pa.types.is_decimal(type) else OTHER


def rank(value: Any) -> Any:
    """What values rise by: NULL, numbers, NaN; text by its bytes."""
    if value is None:
        return (0,)
    if isinstance(value, float):
        return (2,) if math.isnan(value) else (1, value)
    return (1, value.encode() if isinstance(value, str) else value)


def canon(value: Any) -> Any:
    """A value that is equal to itself, whatever the sign of zero."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    return tuple(map(canon, value)) if isinstance(value, list | tuple) else value


def rounded(value: Fraction) -> float:
    """The nearest double."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


# -- asking ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Group:
    """The rows of one group, with what DuckDB says of them."""

    rows: Sequence[int]
    said: Mapping[str, Any]


class Answers:
    """Groups the rows of one table."""

    def __init__(self, table: pa.Table, starts: Sequence[int]) -> None:
        self.table = table
        self.starts = starts
        self._columns: dict[Path, list[Any]] = {}
        self._names: dict[Path, str] = {}
        self._db = duckdb.connect(config={"threads": 1})
        self._db.execute("SET TimeZone = 'UTC'")

    def type(self, path: Path) -> pa.DataType:
        """The type of a column as the lake has it."""
        field = self.table.schema.field(self.table.column_names.index(path[0]))
        for name in path[1:]:
            field = field.type.field(name)
        return field.type

    def values(self, path: Path) -> list[Any]:
        """A column as plain values."""
        if path not in self._columns:
            self._columns[path] = stored(leaf(self.table, path)).to_pylist()
        return self._columns[path]

    def name(self, path: Path) -> str:
        """What DuckDB calls a column."""
        return self._names.setdefault(path, f"c{len(self._names)}")

    def groups(
        self,
        matches: np.ndarray,
        condition: str,
        sets: Mapping[str, np.ndarray],
        group_by: Sequence[Path],
        said: Mapping[str, str],
    ) -> dict[tuple[Any, ...], Group]:
        """The groups by their keys, of matching rows for which ``condition`` about ``sets`` holds."""
        keys = [self.name(path) for path in group_by]
        arrays = {name: stored(leaf(self.table, path)) for path, name in self._names.items()}
        rows = np.arange(self.table.num_rows)
        self._db.register("lake", pa.table({**arrays, "row_": rows, "match_": pa.array(matches)}))
        for name, numbers in sets.items():
            self._db.register(name, pa.table({"n": pa.array(numbers, pa.uint64())}))
        chosen = ", ".join([*keys, "list(row_ ORDER BY row_)", *said.values()])
        text = f"SELECT {chosen} FROM lake WHERE match_ AND ({condition})"
        if keys:
            text += f" GROUP BY {', '.join(keys)}"
        found = self._db.execute(text).fetchall()
        for name in ("lake", *sets):
            self._db.unregister(name)
        at = len(keys)
        return {
            tuple(map(canon, row[:at])): Group(row[at] or [], dict(zip(said, row[at + 1 :], strict=True)))
            for row in found
        }

    def close(self) -> None:
        """Let DuckDB go."""
        self._db.close()


# -- exact functions of a group's values -------------------------------------------------------


def total(values: Sequence[Any]) -> Fraction | float | None:
    """The exact sum of what is not NULL; a float if it isn't finite."""
    kept = [v for v in values if v is not None]
    if not kept:
        return None
    odd = [v for v in kept if isinstance(v, float) and not math.isfinite(v)]
    return sum(odd) if odd else sum(map(Fraction, kept), Fraction())


def fitting(value: Fraction, precision: int, scale: int) -> Fraction:
    """The value, if a decimal of this type holds it."""
    if abs(value) >= 10 ** (precision - scale):
        raise Unanswerable(f"{value} in decimal({precision}, {scale})")
    return value


def sum_of(values: Sequence[Any], type: pa.DataType) -> Any:
    """Whole numbers and decimals exactly, floats rounded once."""
    found = total(values)
    if found is None or isinstance(found, float):
        return found
    kind = family(type)
    if kind == FLOAT:
        return rounded(found)
    if kind == WHOLE:
        return fitting(found, 38, 0)
    return fitting(found, min(38, type.precision + 10), type.scale)


def average_of(values: Sequence[Any], type: pa.DataType) -> Any:
    """The exact quotient rounded once: to a double, or half up to four more digits."""
    found = total(values)
    if found is None or isinstance(found, float):
        return found
    mean = found / sum(v is not None for v in values)
    if family(type) != DECIMAL:
        return rounded(mean)
    precision, scale = min(38, type.precision + 4), min(38, type.scale + 4)
    with decimal.localcontext(prec=120, rounding=decimal.ROUND_HALF_UP):
        shifted = abs(mean) * 10**scale
        digits = math.floor(shifted + Fraction(1, 2))
    return fitting(Fraction(-digits if mean < 0 else digits, 10**scale), precision, scale)


def variance_of(values: Sequence[Any], ddof: int) -> Fraction | float | None:
    """The exact variance."""
    kept = [v for v in values if v is not None]
    if len(kept) <= ddof:
        return None
    if any(isinstance(v, float) and not math.isfinite(v) for v in kept):
        return math.nan
    numbers = [Fraction(v) for v in kept]
    mean = sum(numbers, Fraction()) / len(numbers)
    return sum(((v - mean) ** 2 for v in numbers), Fraction()) / (len(numbers) - ddof)


def quantile_of(values: Sequence[Any], share: float) -> tuple[float, float] | None:
    """Between the two closest ranks, as Spark's ``percentile``, and how far off rounding may be."""
    kept = sorted((v for v in values if v is not None), key=rank)
    if not kept:
        return None
    at = (len(kept) - 1) * share
    low, high = kept[math.floor(at)], kept[math.ceil(at)]
    if low == high or math.floor(at) == math.ceil(at) or (low != low and high != high):
        return float(low), abs(float(low)) * 1e-15
    ends = [v for v in (low, high) if isinstance(v, float) and not math.isfinite(v)]
    if ends:
        return float(sum(ends)), 0.0
    share = Fraction(at) - math.floor(at)
    wide = max(abs(Fraction(low)), abs(Fraction(high)))
    return rounded(Fraction(low) * (1 - share) + Fraction(high) * share), float(wide) * 1e-12


def counts_of(values: Sequence[Any], edges: Sequence[Fraction]) -> list[int]:
    """How many are in each bin; the last one holds its upper edge."""
    counts = [0] * (len(edges) - 1)
    for v in values:
        if v is None or v != v or (isinstance(v, float) and math.isinf(v)):
            continue
        number = Fraction(v)
        if edges[0] <= number <= edges[-1]:
            at = sum(edge <= number for edge in edges) - 1
            counts[min(at, len(counts) - 1)] += 1
    return counts


def picked_of(values: Sequence[Any], by: Sequence[Any], *, last: bool) -> Any:
    """The value beside the least (greatest) of ``by``; of several the least (greatest), NULL being least."""
    pairs = [(rank(b), rank(v), v) for v, b in zip(values, by, strict=True) if b is not None]
    if not pairs:
        return None
    choose: Callable[..., Any] = max if last else min
    return choose(pairs, key=lambda pair: pair[:2])[2]
