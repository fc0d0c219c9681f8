"""Aggregate functions: ``sk.count()``, ``sk.sum("x")`` and the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from numbers import Real
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from skipstone.errors import UsageError

if TYPE_CHECKING:
    from skipstone.typing import UserAggregate

_MAX_BINS = 100_000
_NAME_HINT = "use the name of a column"


@dataclass(frozen=True, slots=True, eq=False)
class Aggregate:
    """An aggregate function; use ``alias`` to name the result column."""

    function: str
    columns: tuple[str, ...]
    name: str
    """Name of the result column."""
    options: Any = None
    """Other arguments of the function."""

    def alias(self, name: str) -> Aggregate:
        """Rename the result column."""
        if not isinstance(name, str) or not name:
            raise UsageError(f"alias {name!r} is not a name", hint="use a non-empty string")
        return replace(self, name=name)

    def __repr__(self) -> str:
        return self.name


def count(column: str | None = None) -> Aggregate:
    """Number of rows, or of non-NULL values of a column."""
    return Aggregate("count", (), "count") if column in (None, "*") else _of("count", column)


def sum(column: str) -> Aggregate:
    """Sum: exact for integers and decimals; sums of floats are exact and then rounded once."""
    return _of("sum", column)


def min(column: str) -> Aggregate:
    """Smallest value; NaN is larger than every number."""
    return _of("min", column)


def max(column: str) -> Aggregate:
    """Largest value; NaN is larger than every number."""
    return _of("max", column)


def avg(column: str) -> Aggregate:
    """Mean, from the exact sum."""
    return _of("avg", column)


def var(column: str, *, ddof: int = 1) -> Aggregate:
    """Variance of a sample (``ddof=1``) or of the population (``ddof=0``), from exact sums."""
    return _of("var" if _check_ddof(ddof) else "var_pop", column, options=ddof)


def stddev(column: str, *, ddof: int = 1) -> Aggregate:
    """Standard deviation of a sample (``ddof=1``) or of the population (``ddof=0``)."""
    return _of("stddev" if _check_ddof(ddof) else "stddev_pop", column, options=ddof)


def approx_distinct(column: str) -> Aggregate:
    """Approximate number of distinct non-NULL values; ``bounds`` has the confidence bounds."""
    return _of("approx_distinct", column)


def quantile(column: str, q: float | Sequence[float], *, exact: bool = True) -> Aggregate:
    """Quantile ``q``, from 0 to 1; a list of quantiles returns a list of values.

    Exact quantiles follow Spark's ``percentile`` and read all values; ``exact=False`` uses sketches.
    """
    single = _is_number(q)
    ranks: list[Any] = [q] if single else list(q) if isinstance(q, Iterable) else []
    if not ranks or not all(_is_number(r) and 0 <= r <= 1 for r in ranks):
        raise UsageError(f"quantile() needs ranks from 0 to 1, got {q!r}", hint="use numbers from 0 to 1")
    argument = f"{q}" if single else f"[{', '.join(map(str, ranks))}]"
    function = "quantile" if exact else "approx_quantile"
    return _of(function, column, argument, options=(tuple(map(float, ranks)), single))


def histogram(column: str, bins: int | Sequence[Any]) -> Aggregate:
    """Number of values per bin; ``bins`` is an ascending list of edges or a number of equal-width bins.

    A bin includes its lower edge; the last bin also includes its upper edge.
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


def first(column: str, *, by: str) -> Aggregate:
    """Value of the column in the row with the smallest ``by``; see :func:`last`."""
    return _first_or_last("first", column, by)


def last(column: str, *, by: str) -> Aggregate:
    """Value of the column in the row with the largest ``by``.

    Rows with a NULL ``by`` are ignored. Ties are broken by the largest value (for ``first`` the smallest),
    with NULL as the smallest, so the result doesn't depend on the order of rows.
    """
    return _first_or_last("last", column, by)


def udaf(
    aggregate: UserAggregate,
    columns: Sequence[str],
    *,
    name: str | None = None,
    type: pa.DataType | None = None,
) -> Aggregate:
    """User-defined aggregate over batches of the named columns.

    ``aggregate`` has ``init() -> state``, ``update(state, batch) -> state``, ``merge(a, b) -> state`` and
    ``finish(state) -> value``; ``type`` is the type of the result, inferred from the values by default.
    """
    if isinstance(columns, str) or not all(isinstance(column, str) for column in columns):
        raise UsageError(f"udaf() needs column names, got {columns!r}", hint="use a list of column names")
    name = name or f"{getattr(aggregate, '__name__', aggregate.__class__.__name__)}({', '.join(columns)})"
    return Aggregate("udaf", tuple(columns), name, (aggregate, type))


def _is_number(x: object) -> bool:
    return isinstance(x, Real | Decimal) and not isinstance(x, bool)


def _of(function: str, column: str, *more: str, options: Any = None) -> Aggregate:
    if not isinstance(column, str):
        raise UsageError(f"{function}() needs a column name, got {column!r}", hint=_NAME_HINT)
    return Aggregate(function, (column,), f"{function}({', '.join((column, *more))})", options)


def _first_or_last(function: str, column: str, by: str) -> Aggregate:
    if not isinstance(by, str):
        raise UsageError(f"{function}() needs a column name as by=, got {by!r}", hint=_NAME_HINT)
    return Aggregate(function, (_of(function, column).columns[0], by), f"{function}({column} by {by})")


def _check_ddof(ddof: int) -> int:
    if ddof not in (0, 1):
        raise UsageError(
            f"ddof must be 0 or 1, got {ddof!r}", hint="use 1 for a sample, 0 for the population"
        )
    return ddof
