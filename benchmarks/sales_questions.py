"""Questions about the sales: sets of ids, ranges of values, and both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from benchmarks.sales import Sales

_SQL = "SELECT count(*), sum(amount), avg(amount), min(amount), max(amount), sum(quantity) FROM lake"


@dataclass(frozen=True, slots=True)
class Span:
    """Values of a column from ``low`` on and below ``high``."""

    column: str
    low: Any
    high: Any

    def sql(self) -> str:
        """As every dialect here reads it."""
        return f"{self.column} >= {_literal(self.low)} AND {self.column} < {_literal(self.high)}"

    def polars(self) -> pl.Expr:
        """As Polars has it."""
        return (pl.col(self.column) >= self.low) & (pl.col(self.column) < self.high)


def _literal(value: Any) -> str:
    return (
        f"TIMESTAMP WITH TIME ZONE '{value:%Y-%m-%d %H:%M:%S}+00:00'"
        if isinstance(value, datetime)
        else f"{value}"
    )


@dataclass(frozen=True, eq=False)
class Question:
    """Which rows count: those of a span, and those of some ids (ascending) or, if ``denied``, all others.

    ``column`` is where the ids are.
    """

    span: Span | None = None
    ids: np.ndarray | None = None
    denied: bool = False
    column: str = "id"

    @cached_property
    def table(self) -> pa.Table:
        """The ids."""
        return pa.table({"id": self.ids})

    def sql(self, *, bounds: bool = False) -> str:
        """The whole query, where ``ids`` is a table; with ``bounds`` it says between what they lie."""
        conditions = [] if self.span is None else [self.span.sql()]
        if self.ids is not None and self.denied:
            conditions.append(f"NOT EXISTS (SELECT 1 FROM ids WHERE ids.id = lake.{self.column})")
        elif self.ids is not None:
            conditions.append(f"{self.column} IN (SELECT id FROM ids)")
            if bounds:
                conditions.append(f"{self.column} >= {self.ids[0]} AND {self.column} <= {self.ids[-1]}")
        return f"{_SQL} WHERE {' AND '.join(conditions)}" if conditions else _SQL


# -- kinds -------------------------------------------------------------------------------------

Make = Callable[[Sales, np.random.Generator], Question]


@dataclass(frozen=True, slots=True)
class Shape:
    """A kind of question, and how many times as fast as the best peer it is promised to be."""

    name: str
    make: Make
    times: float | None = None


def _first(sales: Sales, rng: np.random.Generator, rows: int) -> int:
    """Where so many rows begin; odd, and so at the edge of no file, row group or page."""
    return int(rng.integers(0, (sales.rows - rows) // 2)) * 2 + 1


def _run(share: float) -> Make:
    def make(sales: Sales, rng: np.random.Generator) -> Question:
        rows = int(sales.rows * share)
        first = _first(sales, rng, rows)
        return Question(ids=np.arange(first, first + rows))

    return make


def _spread(share: float, *, denied: bool = False) -> Make:
    def make(sales: Sales, rng: np.random.Generator) -> Question:
        return Question(ids=np.flatnonzero(rng.random(sales.rows) < share), denied=denied)

    return make


def _customers(share: float) -> Make:
    def make(sales: Sales, rng: np.random.Generator) -> Question:
        return Question(ids=np.flatnonzero(rng.random(sales.customers) < share), column="customer")

    return make


def _range(column: str, share: float) -> Make:
    def make(sales: Sales, rng: np.random.Generator) -> Question:
        rows = int(sales.rows * share)
        first = _first(sales, rng, rows)
        return Question(_span(sales, column, first, first + rows))

    return make


def _run_and_range(share: float) -> Make:
    """A run of ids, and times of which the first half falls into it."""

    def make(sales: Sales, rng: np.random.Generator) -> Question:
        rows = int(sales.rows * share)
        first = _first(sales, rng, 2 * rows)
        return Question(
            _span(sales, "ts", first + rows // 2, first + rows * 3 // 2), np.arange(first, first + rows)
        )

    return make


def _span(sales: Sales, column: str, first: int, stop: int) -> Span:
    return Span(column, first, stop) if column == "id" else Span(column, sales.time(first), sales.time(stop))


SHAPES = (
    Shape("full, no filter", lambda _sales, _rng: Question(), 20),
    Shape("clustered, one run of 30 % of ids", _run(0.3), 20),
    Shape("spread, 0.1 % of ids", _spread(0.001), 1),
    Shape("spread, 10 % of ids", _spread(0.1), 1),
    Shape("spread, 50 % of ids", _spread(0.5), 1),
    Shape("spread, without 1 % of ids", _spread(0.01, denied=True), 1),
    Shape("spread, 10 % of customers", _customers(0.1), 1),
    Shape("range, ts, 0.1 %", _range("ts", 0.001)),
    Shape("range, ts, 10 %", _range("ts", 0.1)),
    Shape("range, ts, 50 %", _range("ts", 0.5)),
    Shape("range, id, 0.1 %", _range("id", 0.001)),
    Shape("range, id, 10 %", _range("id", 0.1)),
    Shape("range, id, 50 %", _range("id", 0.5)),
    Shape("clustered AND range, a run of 30 % and ts", _run_and_range(0.3)),
)
