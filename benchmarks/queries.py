"""What the lakes are asked: one neutral form of each query, written out in each engine's language."""

from __future__ import annotations

import enum
import itertools
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import reduce
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from benchmarks.lakes import ID_STEP, Events, Lake

KEYS = 10_000
_OPERATORS = {"=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


# -- conditions --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Test:
    """A column against a value."""

    column: str
    operator: str
    value: Any

    def sql(self) -> str:
        """For DuckDB, DataFusion and Skipstone."""
        return f"{self.column} {self.operator} {_literal(self.value)}"

    def arrow(self) -> pc.Expression:
        """For pyarrow."""
        found: pc.Expression = _OPERATORS[self.operator](ds.field(self.column), self.value)
        return found

    def polars(self) -> pl.Expr:
        """For Polars."""
        found: pl.Expr = _OPERATORS[self.operator](pl.col(self.column), self.value)
        return found


@dataclass(frozen=True, slots=True)
class In:
    """A column among many integers."""

    column: str
    keys: pa.Int64Array

    def sql(self) -> str:
        """For those that read SQL."""
        return f"{self.column} IN ({', '.join(map(str, self.keys.to_pylist()))})"

    def arrow(self) -> pc.Expression:
        """For pyarrow."""
        return ds.field(self.column).isin(self.keys)

    def polars(self) -> pl.Expr:
        """For Polars."""
        return pl.col(self.column).is_in(pl.Series(self.keys).implode())


@dataclass(frozen=True, slots=True)
class Every:
    """All of some conditions."""

    parts: Sequence[Condition]

    def sql(self) -> str:
        """For those that read SQL."""
        return " AND ".join(part.sql() for part in self.parts)

    def arrow(self) -> pc.Expression:
        """For pyarrow."""
        return reduce(operator.and_, (part.arrow() for part in self.parts))

    def polars(self) -> pl.Expr:
        """For Polars."""
        return reduce(operator.and_, (part.polars() for part in self.parts))


@dataclass(frozen=True, slots=True)
class Either:
    """Any of some conditions."""

    parts: Sequence[Condition]

    def sql(self) -> str:
        """For those that read SQL."""
        return " OR ".join(f"({part.sql()})" for part in self.parts)

    def arrow(self) -> pc.Expression:
        """For pyarrow."""
        return reduce(operator.or_, (part.arrow() for part in self.parts))

    def polars(self) -> pl.Expr:
        """For Polars."""
        return reduce(operator.or_, (part.polars() for part in self.parts))


Condition = Test | In | Every | Either


def _literal(value: Any) -> str:
    match value:
        case str():
            return f"'{value}'"
        case datetime():
            return f"TIMESTAMP '{value.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}'"
        case date():
            return f"DATE '{value}'"
        case _:
            return str(value)


def between(column: str, low: Any, high: Any) -> Every:
    """Both ends included."""
    return Every((Test(column, ">=", low), Test(column, "<=", high)))


# -- queries -----------------------------------------------------------------------------------


class Promise(enum.Enum):
    """What we mean to be no slower than, with the lake kept open."""

    BEST_PEER = "the best peer"
    DATASET = "pyarrow.dataset, where there is nothing to skip"


@dataclass(frozen=True, slots=True)
class Query:
    """One question; ``order_by`` is descending with NULLs last, as Spark has it."""

    name: str
    where: Condition | None = None
    columns: tuple[str, ...] | None = None
    order_by: str | None = None
    limit: int | None = None
    heavy: bool = False
    """Takes about a second, so opening the lake anew makes no difference and is not timed."""
    promise: Promise | None = None

    @property
    def any_rows(self) -> bool:
        """Whether any rows will do, so that answers agree in their number only."""
        return self.limit is not None and self.order_by is None

    def sql(self, table: str = "lake") -> str:
        """For DuckDB and DataFusion."""
        text = f"SELECT {', '.join(self.columns or '*')} FROM {table}"
        if self.where is not None:
            text += f" WHERE {self.where.sql()}"
        if self.order_by is not None:
            text += f" ORDER BY {self.order_by} DESC NULLS LAST"
        return text if self.limit is None else f"{text} LIMIT {self.limit}"


def event_queries(events: Events, variant: int = 0) -> Iterator[Query]:
    """Questions about events, from one row to all of them; each variant looks in another place."""
    best = Promise.BEST_PEER
    rows = events.rows
    rng = np.random.default_rng((events.seed, variant))
    middle = int(rng.integers(rows // 50, rows - rows // 50))
    start = int(rng.integers(0, rows // 2))
    row = events.row(middle)
    id_, user = row["event_id"], row["user_id"]
    yield Query("point, event_id", Test("event_id", "=", id_), promise=best)
    yield Query("point, bloom, user_id", Test("user_id", "=", user), promise=best)
    yield Query("point, bloom, session", Test("session", "=", row["session"]), promise=best)
    yield Query("absent, event_id", Test("event_id", "=", middle * ID_STEP + ID_STEP - 1), promise=best)
    yield Query("absent, bloom, user_id", Test("user_id", "=", user + 1), promise=best)
    yield Query("absent, bloom, session", Test("session", "=", f"8888{middle:012x}"), promise=best)

    def ids(start: int, count: int) -> Condition:
        return between("event_id", start * ID_STEP, (start + count) * ID_STEP - 1)

    yield Query("range, 1,000 rows", ids(start, min(1_000, rows // 4)), promise=best)
    yield Query("range, 1 %", ids(start, rows // 100), promise=best)
    yield Query("range, 30 %", ids(start, rows * 3 // 10), heavy=True, promise=Promise.DATASET)
    yield Query("full scan", heavy=True, promise=Promise.DATASET)
    yield Query("full scan, two columns", columns=("event_id", "amount"), heavy=True)

    soon, later = (row["ts"] + timedelta(seconds=rows * share) for share in (-0.01, 0.01))
    hours = (Test("ts", ">=", soon), Test("ts", "<", later))
    rare = Test("kind", "=", "refund")
    yield Query(
        "range AND, ts, kind and amount", Every((*hours, rare, Test("amount", ">", 50.0))), promise=best
    )
    yield Query("point AND, user_id and ts", Every((Test("user_id", "=", user), *hours)), promise=best)
    either = Either((Test("event_id", "=", id_), Test("session", "=", row["session"])))
    yield Query("point OR, event_id or session", either, promise=best)
    yield Query("top 10 by ts", order_by="ts", limit=10)
    yield Query("top 10 by amount, refunds", rare, order_by="amount", limit=10, heavy=True)
    yield Query("limit 10", limit=10)
    yield Query("limit 10, refunds", rare, limit=10)
    few = min(KEYS, rows // 10)
    spread = np.sort(rng.choice(rows, few, replace=False))
    yield Query(f"point IN ({few:,}), spread", In("event_id", pa.array(events.ids(spread))), heavy=True)
    near = np.sort(rng.choice(few * 5, few, replace=False)) + start
    yield Query(f"point IN ({few:,}), clustered", In("event_id", pa.array(events.ids(near))))


def plain_queries(events: Events, variant: int = 0) -> Iterator[Query]:
    """Of those the ones with one condition or none, and no order or limit."""
    # They come first, and no more is made: thousands of keys take a while.
    return itertools.takewhile(lambda query: "AND" not in query.name, event_queries(events, variant))


def look_ups(events: Events, variant: int = 0) -> Iterator[Query]:
    """Of those the ones that want few rows by a key or a range."""
    for query in event_queries(events, variant):
        kinds = ("point, ", "absent, ", "range, 1", "point AND")
        if query.name.startswith(kinds) and not query.heavy:
            yield query


def lineitem_queries(lake: Lake, variant: int = 0) -> Iterator[Query]:
    """Questions about TPC-H's lineitem: files sorted by order, ship dates in all of them."""
    keys = pl.read_parquet(lake.files[variant % len(lake.files)], columns=["l_orderkey"])["l_orderkey"]
    yield Query("point, l_orderkey", Test("l_orderkey", "=", keys[len(keys) // (variant + 2)]))
    first = date(1993 + variant // 11 % 5, variant % 11 + 1, 1)
    month = (Test("l_shipdate", ">=", first), Test("l_shipdate", "<", first.replace(month=first.month + 1)))
    yield Query("range, l_shipdate, one month", Every(month), heavy=True)
    first = date(1993 + variant % 5, 1, 1)
    year = (Test("l_shipdate", ">=", first), Test("l_shipdate", "<", first.replace(year=first.year + 1)))
    cents = 2 + variant // 5 % 8
    discount = between("l_discount", Decimal(cents - 1) / 100, Decimal(cents + 1) / 100)
    yield Query(
        "range, as in Q6",
        Every((*year, *discount.parts, Test("l_quantity", "<", Decimal(24)))),
        columns=("l_extendedprice", "l_discount"),
    )
    yield Query("full scan, two columns", columns=("l_orderkey", "l_comment"), heavy=True)
