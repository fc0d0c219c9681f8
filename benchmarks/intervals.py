"""The interval test that pruning by bounds comes down to, as each peer does it best.

A *test* asks which units' ``[lower, upper]`` meet a set of closed spans; a *question* joins tests by AND or
OR. A peer answers with the units that may match, in the form it gives them in: a mask from array libraries,
unit numbers from DuckDB. It computes that one bit; the judge computes three.
"""

from __future__ import annotations

import datetime as dt
import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

Span = tuple[Any, Any]
"""Least and greatest value, None without end."""
MANY = 16
"""Above this many spans (all of them single values) a search beats comparing with each."""


@dataclass(frozen=True, slots=True)
class Test:
    """Which units' bounds of ``column`` meet one of ``spans``, or (``nan``) may hold NaN."""

    column: str
    spans: Sequence[Span]
    nan: bool = False
    as_date: bool = False


@dataclass(frozen=True, slots=True)
class Question:
    """A predicate as Skipstone reads it, and the same as interval tests."""

    name: str
    sql: str
    tests: Sequence[Test]
    join: Callable[[Any, Any], Any] = operator.and_


@dataclass(frozen=True, slots=True)
class BoundsTable:
    """Bounds of N units in each peer's own form: columns ``x_lo``, ``x_hi`` and perhaps ``x_nan``."""

    arrays: Mapping[str, np.ndarray[Any, Any]]
    arrow: pa.Table
    polars: pl.DataFrame
    duckdb: duckdb.DuckDBPyConnection
    clustered: bool

    @classmethod
    def of(cls, columns: Mapping[str, Any], *, clustered: bool) -> BoundsTable:
        """Hand the columns (NumPy arrays, or Arrow strings) to every peer."""
        units = len(next(iter(columns.values())))
        arrow = pa.table({"unit": np.arange(units), **columns})
        connection = duckdb.connect()
        connection.register("given", arrow)
        connection.execute("CREATE TABLE bounds AS SELECT * FROM given")
        connection.unregister("given")
        # Each column as one array: kernels on chunks would be measured otherwise.
        frame = pl.from_arrow(arrow)
        assert isinstance(frame, pl.DataFrame)
        arrays = {
            name: np.array(c.to_pylist(), dtype="S") if isinstance(c, pa.Array) else c
            for name, c in columns.items()
        }
        return cls(arrays, arrow.combine_chunks(), frame.rechunk(), connection, clustered)


def peers(question: Question, table: BoundsTable) -> dict[str, Callable[[Any], Any]]:
    """Every peer's way to answer, ready to run."""
    return {
        "numpy by hand": _joined(question, functools.partial(_numpy, table)),
        "pyarrow.compute": _joined(question, functools.partial(_arrow, table), pc.and_, pc.or_),
        "polars": _polars(question, table),
        "duckdb": _duckdb(question, table),
    }


def unit_numbers(answer: Any) -> np.ndarray[Any, Any]:
    """The units of an answer, whatever its form, in ascending order."""
    if isinstance(answer, dict):
        return np.sort(np.asarray(answer["unit"]))
    if isinstance(answer, pl.Series):
        answer = answer.to_numpy()
    elif isinstance(answer, pa.Array | pa.ChunkedArray):
        answer = answer.to_numpy(zero_copy_only=False) if isinstance(answer, pa.Array) else answer.to_numpy()
    return np.flatnonzero(answer)


def _joined(
    question: Question, ask: Callable[[Test], Any], both: Any = operator.and_, either: Any = operator.or_
) -> Callable[[Any], Any]:
    join = both if question.join is operator.and_ else either
    return lambda _given: functools.reduce(join, (ask(test) for test in question.tests))


# -- NumPy -------------------------------------------------------------------------------------


def _numpy(table: BoundsTable, test: Test) -> Any:
    low, high = table.arrays[f"{test.column}_lo"], table.arrays[f"{test.column}_hi"]
    if test.as_date:
        low, high = low.astype("datetime64[D]"), high.astype("datetime64[D]")
    if len(test.spans) > MANY:
        keys = np.array([key for key, _ in test.spans])
        return _mark_units(low, high, keys) if table.clustered else _find_keys(low, high, keys)
    spans = [tuple(_numpy_value(v) for v in span) for span in test.spans]
    found = functools.reduce(operator.or_, (_meets(low, high, *span) for span in spans))
    return found | table.arrays[f"{test.column}_nan"] if test.nan else found


def _numpy_value(value: Any) -> Any:
    if isinstance(value, dt.date):
        return np.datetime64(value)
    return value.encode() if isinstance(value, str) else value


def _meets(low: Any, high: Any, least: Any, greatest: Any) -> Any:
    if least is None:
        return low <= greatest
    if greatest is None:
        return high >= least
    return (low <= greatest) & (high >= least)


def _find_keys(low: Any, high: Any, keys: Any) -> Any:
    first = np.searchsorted(keys, low)
    return (first < len(keys)) & (keys[np.minimum(first, len(keys) - 1)] <= high)


def _mark_units(low: Any, high: Any, keys: Any) -> Any:
    found = np.zeros(len(low), dtype=bool)
    starts, stops = np.searchsorted(high, keys), np.searchsorted(low, keys, side="right")
    for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
        found[start:stop] = True
    return found


# -- pyarrow -----------------------------------------------------------------------------------


def _arrow(table: BoundsTable, test: Test) -> Any:
    low, high = (table.arrow[f"{test.column}_{end}"].chunk(0) for end in ("lo", "hi"))
    if test.as_date:
        low, high = (pc.cast(bound, pa.date32(), safe=False) for bound in (low, high))
    if len(test.spans) > MANY:
        keys = pa.array([key for key, _ in test.spans])
        first = pc.search_sorted(keys, low)
        last = pa.scalar(len(keys) - 1, first.type)
        nearest = keys.take(pc.min_element_wise(first, last))
        return pc.and_(pc.less_equal(first, last), pc.less_equal(nearest, high))
    found = functools.reduce(pc.or_, (_arrow_meets(low, high, *span) for span in test.spans))
    return pc.or_(found, table.arrow[f"{test.column}_nan"].chunk(0)) if test.nan else found


def _arrow_meets(low: Any, high: Any, least: Any, greatest: Any) -> Any:
    if least is None:
        return pc.less_equal(low, greatest)
    if greatest is None:
        return pc.greater_equal(high, least)
    return pc.and_(pc.less_equal(low, greatest), pc.greater_equal(high, least))


# -- Polars ------------------------------------------------------------------------------------


def _polars(question: Question, table: BoundsTable) -> Callable[[Any], Any]:
    frame = table.polars
    if any(len(test.spans) > MANY for test in question.tests):
        (test,) = question.tests
        keys = pl.Series([key for key, _ in test.spans])
        return lambda _given: _polars_search(frame[f"{test.column}_lo"], frame[f"{test.column}_hi"], keys)
    expression = functools.reduce(question.join, (_polars_test(test) for test in question.tests))
    return lambda _given: frame.select(expression.alias("found"))["found"]


def _polars_test(test: Test) -> pl.Expr:
    low, high = pl.col(f"{test.column}_lo"), pl.col(f"{test.column}_hi")
    if test.as_date:
        low, high = low.cast(pl.Date), high.cast(pl.Date)
    found = functools.reduce(operator.or_, (_polars_meets(low, high, *span) for span in test.spans))
    return found | pl.col(f"{test.column}_nan") if test.nan else found


def _polars_meets(low: pl.Expr, high: pl.Expr, least: Any, greatest: Any) -> pl.Expr:
    if least is None:
        return low <= pl.lit(greatest)
    if greatest is None:
        return high >= pl.lit(least)
    return (low <= pl.lit(greatest)) & (high >= pl.lit(least))


def _polars_search(low: pl.Series, high: pl.Series, keys: pl.Series) -> pl.Series:
    first = keys.search_sorted(low)
    return (first < len(keys)) & (keys.gather(first.clip(upper_bound=len(keys) - 1)) <= high)


# -- DuckDB ------------------------------------------------------------------------------------


def _duckdb(question: Question, table: BoundsTable) -> Callable[[Any], Any]:
    connection = table.duckdb
    if any(len(test.spans) > MANY for test in question.tests):
        (test,) = question.tests
        connection.register("wanted", pa.table({"k": [key for key, _ in test.spans]}))
        connection.execute("CREATE OR REPLACE TABLE keys AS SELECT * FROM wanted")
        connection.unregister("wanted")
        low, high = f"{test.column}_lo", f"{test.column}_hi"
        sql = f"SELECT unit FROM bounds ASOF JOIN keys ON {low} <= k WHERE k <= {high}"
    else:
        word = " AND " if question.join is operator.and_ else " OR "
        sql = f"SELECT unit FROM bounds WHERE {word.join(f'({_sql_test(t)})' for t in question.tests)}"
    return lambda _given: connection.execute(sql).fetchnumpy()


def _sql_test(test: Test) -> str:
    low, high = f"{test.column}_lo", f"{test.column}_hi"
    if test.as_date:
        low, high = f"{low}::DATE", f"{high}::DATE"
    parts = []
    for least, greatest in test.spans:
        ends = [f"{low} <= {_sql(greatest)}"] if greatest is not None else []
        ends += [f"{high} >= {_sql(least)}"] if least is not None else []
        parts.append(f"({' AND '.join(ends)})")
    return " OR ".join([*parts, *([f"{test.column}_nan"] if test.nan else [])])


def _sql(value: Any) -> str:
    if isinstance(value, dt.date):
        return f"DATE '{value}'"
    if isinstance(value, float):
        return f"CAST('{value!r}' AS DOUBLE)"
    return f"'{value}'" if isinstance(value, str) else str(value)
