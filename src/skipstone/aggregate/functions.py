"""Aggregate functions: ``sk.count()``, ``sk.sum("x")`` and the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from numbers import Real
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from skipstone.core.plain import as_bytes
from skipstone.errors import UsageError
from skipstone.predicate.tree import Call, Expr

if TYPE_CHECKING:
    from skipstone.typing import SizeLike, UserAggregate

_MAX_BINS = 100_000
DISTINCT_BYTES = 1 << 30
"""Default limit for the distinct values of an exact count."""
_NAME_HINT = 'use the name of a column, or an expression such as "a * b"'


@dataclass(frozen=True, slots=True, eq=False)
class Aggregate:
    """One aggregate function of one or more columns.

    Attributes:
        function: The name of the function.
        columns: The columns or expressions that the function aggregates.
        name: The name of the result; ``alias`` changes it.
        options: Other arguments of the function.

    Examples:
        >>> import skipstone as sk
        >>> total = sk.sum("amount").alias("total")
        >>> sk.open("events").scan("event_id < 5").aggregate(total).to_pylist()
        [{'total': 1.0}]
    """

    function: str
    columns: tuple[str | Expr, ...]
    name: str
    options: Any = None

    def alias(self, name: str) -> Aggregate:
        """Return the aggregate with another name for its result."""
        if not isinstance(name, str) or not name:
            raise UsageError(f"alias {name!r} is not a name", hint="use a non-empty string")
        return replace(self, name=name)

    def __repr__(self) -> str:
        return self.name


def count(column: str | Expr | None = None) -> Aggregate:
    """Count rows, or the values of a column that are not NULL.

    Args:
        column: The column; None counts rows.

    Examples:
        >>> import skipstone as sk
        >>> sk.open("events").scan("country = 'DE'").aggregate(sk.count())["count"]
        250
    """
    if column is None or (isinstance(column, str) and column == "*"):
        return Aggregate("count", (), "count")
    return _of("count", column)


def count_distinct(column: str | Expr, *more: str | Expr, memory: SizeLike = DISTINCT_BYTES) -> Aggregate:
    """Count the distinct values of a column, or combinations of several columns, exactly.

    Rows with NULL in one of the columns are ignored. NaN is one value, and so are 0.0 and -0.0 together.
    [approx_distinct][skipstone.approx_distinct] estimates the number with far less memory.

    Args:
        column: A column, or an expression such as ``"upper(country)"``.
        *more: Further columns, to count combinations.
        memory: Maximum bytes of the distinct values; beyond it the aggregation fails.

    Examples:
        >>> import skipstone as sk
        >>> answer = sk.open("events").scan().aggregate(sk.count_distinct("country"))
        >>> answer["count(distinct country)"]
        4
    """
    held = as_bytes(memory, "memory")
    if held <= 0:
        raise UsageError(f"memory={memory!r} is not a size", hint='use bytes, or text such as "1GB"')
    columns = (column, *more)
    for each in columns:
        _check_column("count_distinct", each)
    return Aggregate("count_distinct", columns, f"count(distinct {', '.join(map(label, columns))})", held)


def sum(column: str | Expr) -> Aggregate:
    """Sum a column exactly; sums of floats are rounded once, at the end.

    Args:
        column: A numeric column, or an expression such as ``"a * b"``.

    Examples:
        >>> import skipstone as sk
        >>> sk.open("events").scan().aggregate(sk.sum("event_id"))["sum(event_id)"]
        499500
    """
    return _of("sum", column)


def min(column: str | Expr) -> Aggregate:
    """Return the smallest value; NaN is larger than every number.

    Args:
        column: A column of an ordered type.

    Examples:
        >>> import skipstone as sk
        >>> sk.open("events").scan("event_id >= 10").aggregate(sk.min("amount"))["min(amount)"]
        1.0
    """
    return _of("min", column)


def max(column: str | Expr) -> Aggregate:
    """Return the largest value; NaN is larger than every number.

    Args:
        column: A column of an ordered type.

    Examples:
        >>> import skipstone as sk
        >>> sk.open("events").scan().aggregate(sk.max("country"))["max(country)"]
        'US'
    """
    return _of("max", column)


def avg(column: str | Expr) -> Aggregate:
    """Return the mean, computed from the exact sum.

    Args:
        column: A numeric column.

    Examples:
        >>> import skipstone as sk
        >>> sk.open("events").scan("event_id < 3").aggregate(sk.avg("event_id"))["avg(event_id)"]
        1.0
    """
    return _of("avg", column)


def var(column: str | Expr, *, ddof: int = 1) -> Aggregate:
    """Return the variance, computed from exact sums.

    Args:
        column: A numeric column.
        ddof: 1 for the variance of a sample, 0 for that of a population.

    Examples:
        >>> import skipstone as sk
        >>> sk.open("events").scan("event_id < 3").aggregate(sk.var("event_id"))["var(event_id)"]
        1.0
    """
    return _of("var" if _check_ddof(ddof) else "var_pop", column, options=ddof)


def stddev(column: str | Expr, *, ddof: int = 1) -> Aggregate:
    """Return the standard deviation, computed from exact sums.

    Args:
        column: A numeric column.
        ddof: 1 for the standard deviation of a sample, 0 for that of a population.

    Examples:
        >>> import skipstone as sk
        >>> sk.open("events").scan("event_id < 3").aggregate(sk.stddev("event_id"))["stddev(event_id)"]
        1.0
    """
    return _of("stddev" if _check_ddof(ddof) else "stddev_pop", column, options=ddof)


def approx_distinct(column: str | Expr) -> Aggregate:
    """Estimate the number of distinct values, without NULL.

    ``bounds`` of the answer has a confidence interval.

    Args:
        column: The column.

    Examples:
        >>> import skipstone as sk
        >>> answer = sk.open("events").scan().aggregate(sk.approx_distinct("country"))
        >>> round(answer["approx_distinct(country)"])
        4
    """
    return _of("approx_distinct", column)


def quantile(column: str | Expr, q: float | Sequence[float], *, exact: bool = True) -> Aggregate:
    """Return a quantile, as Spark's ``percentile`` does; for a list of quantiles, a list.

    Args:
        column: A numeric or temporal column.
        q: One number from 0 to 1, or several.
        exact: If False, estimate from sketches, which needs far less memory.

    Examples:
        >>> import skipstone as sk
        >>> sk.open("events").scan().aggregate(sk.quantile("event_id", [0, 0.5, 1]).alias("q"))["q"]
        [0.0, 499.5, 999.0]
    """
    single = _is_number(q)
    ranks: list[Any] = [q] if single else list(q) if isinstance(q, Iterable) else []
    if not ranks or not all(_is_number(r) and 0 <= r <= 1 for r in ranks):
        raise UsageError(f"quantile() needs ranks from 0 to 1, got {q!r}", hint="use numbers from 0 to 1")
    argument = f"{q}" if single else f"[{', '.join(map(str, ranks))}]"
    function = "quantile" if exact else "approx_quantile"
    return _of(function, column, argument, options=(tuple(map(float, ranks)), single))


def histogram(column: str | Expr, bins: int | Sequence[Any]) -> Aggregate:
    """Count the values in each bin. A bin includes its lower edge; the last one also its upper edge.

    Args:
        column: A numeric or temporal column.
        bins: The edges in ascending order, or the number of bins of equal width.

    Examples:
        >>> import skipstone as sk
        >>> answer = sk.open("events").scan().aggregate(sk.histogram("event_id", [0, 10, 100]).alias("bins"))
        >>> [bin["count"] for bin in answer["bins"]]
        [10, 91]
    """
    if isinstance(bins, int):
        if not 1 <= bins <= _MAX_BINS or isinstance(bins, bool):
            raise UsageError(
                f"histogram() needs 1 to {_MAX_BINS:,} bins, got {bins}",
                hint="use another number of bins, or a list of edges",
            )
        return _of("histogram", column, f"{bins}", options=bins)
    if isinstance(bins, str) or not hasattr(bins, "__iter__"):
        raise UsageError(
            f"histogram() can't use {bins!r} as bins", hint="use a number of bins or a list of edges"
        )
    edges = tuple(bins)
    return _of("histogram", column, f"{len(edges)} edges", options=edges)


def first(column: str | Expr, *, by: str | Expr) -> Aggregate:
    """Return the column's value in the row with the smallest ``by``.

    Rows whose ``by`` is NULL are ignored. Among several rows with the smallest ``by`` the smallest value is
    returned, where NULL is smallest, so that the answer doesn't depend on the order of rows.

    Args:
        column: The column to return.
        by: The column to order by.

    Examples:
        >>> import skipstone as sk
        >>> sk.open("events").scan().aggregate(sk.first("country", by="ts").alias("first"))["first"]
        'DE'
    """
    return _first_or_last("first", column, by)


def last(column: str | Expr, *, by: str | Expr) -> Aggregate:
    """Return the column's value in the row with the largest ``by``.

    Rows whose ``by`` is NULL are ignored. Among several rows with the largest ``by`` the largest value is
    returned, where NULL is smallest.

    Args:
        column: The column to return.
        by: The column to order by.

    Examples:
        >>> import skipstone as sk
        >>> sk.open("events").scan().aggregate(sk.last("event_id", by="ts").alias("last"))["last"]
        999
    """
    return _first_or_last("last", column, by)


def udaf(
    aggregate: UserAggregate,
    columns: Sequence[str],
    *,
    name: str | None = None,
    type: pa.DataType | None = None,
) -> Aggregate:
    """Define a custom aggregate, computed on batches of the named columns.

    Args:
        aggregate: An object with ``init() -> state``, ``update(state, batch) -> state``,
            ``merge(a, b) -> state`` and ``finish(state) -> value``.
        columns: The columns of the batches.
        name: The name of the result.
        type: The type of the result; by default inferred from the values.

    Examples:
        >>> import skipstone as sk
        >>> class Rows:
        ...     def init(self): return 0
        ...     def update(self, state, batch): return state + len(batch)
        ...     def merge(self, a, b): return a + b
        ...     def finish(self, state): return state
        >>> sk.open("events").scan("event_id < 5").aggregate(sk.udaf(Rows(), ["amount"])).to_pylist()
        [{'Rows(amount)': 5}]
    """
    if isinstance(columns, str) or not all(isinstance(column, str) for column in columns):
        raise UsageError(f"udaf() needs column names, got {columns!r}", hint="use a list of column names")
    name = name or f"{getattr(aggregate, '__name__', aggregate.__class__.__name__)}({', '.join(columns)})"
    return Aggregate("udaf", tuple(columns), name, (aggregate, type))


def _is_number(x: object) -> bool:
    return isinstance(x, Real | Decimal) and not isinstance(x, bool)


def label(column: str | Expr) -> str:
    """Text of a column or an expression."""
    if isinstance(column, str):
        return column
    text = str(column)
    # Operators are in parentheses, which only matter inside other expressions.
    operator = isinstance(column, Call) and len(column.args) == 2 and text.startswith("(")
    return text[1:-1] if operator else text


def _check_column(function: str, column: object, what: str = "a column name") -> None:
    if not isinstance(column, str | Expr):
        raise UsageError(f"{function}() needs {what}, got {column!r}", hint=_NAME_HINT)


def _of(function: str, column: str | Expr, *more: str, options: Any = None) -> Aggregate:
    _check_column(function, column)
    return Aggregate(function, (column,), f"{function}({', '.join((label(column), *more))})", options)


def _first_or_last(function: str, column: str | Expr, by: str | Expr) -> Aggregate:
    _check_column(function, column)
    _check_column(function, by, "a column name as by=")
    return Aggregate(function, (column, by), f"{function}({label(column)} by {label(by)})")


def _check_ddof(ddof: int) -> int:
    if ddof not in (0, 1):
        raise UsageError(
            f"ddof must be 0 or 1, got {ddof!r}", hint="use 1 for a sample, 0 for the population"
        )
    return ddof
