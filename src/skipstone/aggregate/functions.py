"""What a user asks of columns: ``sk.count()``, ``sk.sum("x")`` and the others."""

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

_MOST_BINS = 100_000


@dataclass(frozen=True, slots=True, eq=False)
class Aggregate:
    """One function of the rows; ``alias`` gives it a name of one's own."""

    function: str
    columns: tuple[str, ...]
    name: str
    """What the answer calls it."""
    options: Any = None
    """Other arguments of the function."""

    def alias(self, name: str) -> Aggregate:
        """The same under another name."""
        if not isinstance(name, str) or not name:
            raise UsageError(f"alias({name!r})", hint="give a name")
        return replace(self, name=name)

    def __repr__(self) -> str:
        return self.name


def count(column: str | None = None) -> Aggregate:
    """How many rows there are; of a column, how many of its values are not NULL."""
    return Aggregate("count", (), "count") if column in (None, "*") else _of("count", column)


def sum(column: str) -> Aggregate:
    """The sum: exact for whole numbers and decimals, of floats exact and then rounded once."""
    return _of("sum", column)


def min(column: str) -> Aggregate:
    """The least value; NaN is larger than every number."""
    return _of("min", column)


def max(column: str) -> Aggregate:
    """The greatest value; NaN is larger than every number."""
    return _of("max", column)


def avg(column: str) -> Aggregate:
    """The mean, from the exact sum."""
    return _of("avg", column)


def var(column: str, *, ddof: int = 1) -> Aggregate:
    """The variance, of a sample (``ddof=1``) or of all there is (``ddof=0``), from exact sums."""
    return _of("var" if _degrees(ddof) else "var_pop", column, options=ddof)


def stddev(column: str, *, ddof: int = 1) -> Aggregate:
    """The standard deviation, of a sample (``ddof=1``) or of all there is (``ddof=0``)."""
    return _of("stddev" if _degrees(ddof) else "stddev_pop", column, options=ddof)


def approx_distinct(column: str) -> Aggregate:
    """About how many different values there are, NULL not counted; ``bounds`` tell how sure that is."""
    return _of("approx_distinct", column)


def quantile(column: str, q: float | Sequence[float], *, exact: bool = True) -> Aggregate:
    """The value below which a part ``q`` of the values lies; a list of parts gives a list of values.

    Exactly, as Spark's ``percentile``, which takes all values; or about (``exact=False``), from sketches.
    """
    single = _is_number(q)
    ranks: list[Any] = [q] if single else list(q) if isinstance(q, Iterable) else []
    if not ranks or not all(_is_number(r) and 0 <= r <= 1 for r in ranks):
        raise UsageError(f"quantile({column!r}, {q!r})", hint="give numbers from 0 to 1")
    shown = f"{q}" if single else f"[{', '.join(map(str, ranks))}]"
    function = "quantile" if exact else "approx_quantile"
    return _of(function, column, shown, options=(tuple(map(float, ranks)), single))


def histogram(column: str, bins: int | Sequence[Any]) -> Aggregate:
    """How many values lie between edges: a rising list, or those of so many even bins over all values.

    A bin includes its lower edge; the last one its upper edge, too.
    """
    if isinstance(bins, int):
        if not 1 <= bins <= _MOST_BINS or isinstance(bins, bool):
            raise UsageError(
                f"histogram({column!r}, {bins})",
                hint=f"give at least one bin and at most {_MOST_BINS:,}, or a list of edges",
            )
        return _of("histogram", column, f"{bins}", options=bins)
    if isinstance(bins, str) or not hasattr(bins, "__iter__"):
        raise UsageError(f"histogram({column!r}, {bins!r})", hint="give a number of bins, or a list of edges")
    edges = tuple(bins)
    return _of("histogram", column, f"{len(edges)} edges", options=edges)


def first(column: str, *, by: str) -> Aggregate:
    """The column's value in the row with the least ``by``; see :func:`last`."""
    return _picked("first", column, by)


def last(column: str, *, by: str) -> Aggregate:
    """The column's value in the row with the greatest ``by``.

    Rows whose ``by`` is NULL don't count. Of several such rows the one with the greatest value (for ``first``
    the least) counts, NULL being the least, so that the answer doesn't depend on how the rows are laid out.
    """
    return _picked("last", column, by)


def udaf(
    aggregate: UserAggregate,
    columns: Sequence[str],
    *,
    name: str | None = None,
    type: pa.DataType | None = None,
) -> Aggregate:
    """An aggregate of your own over batches of the named columns.

    ``aggregate`` has ``init() -> state``, ``update(state, batch) -> state``, ``merge(a, b) -> state`` and
    ``finish(state) -> value``; ``type`` is that of the value, unless it follows from the values.
    """
    if isinstance(columns, str) or not all(isinstance(column, str) for column in columns):
        raise UsageError(f"udaf(..., {columns!r})", hint="give a list of column names")
    called = name or f"{getattr(aggregate, '__name__', aggregate.__class__.__name__)}({', '.join(columns)})"
    return Aggregate("udaf", tuple(columns), called, (aggregate, type))


def _is_number(x: object) -> bool:
    return isinstance(x, Real | Decimal) and not isinstance(x, bool)


def _of(function: str, column: str, *more: str, options: Any = None) -> Aggregate:
    if not isinstance(column, str):
        raise UsageError(f"{function}({column!r})", hint="give the name of a column")
    return Aggregate(function, (column,), f"{function}({', '.join((column, *more))})", options)


def _picked(function: str, column: str, by: str) -> Aggregate:
    if not isinstance(by, str):
        raise UsageError(f"{function}({column!r}, by={by!r})", hint="give the name of a column")
    return Aggregate(function, (_of(function, column).columns[0], by), f"{function}({column} by {by})")


def _degrees(ddof: int) -> int:
    if ddof not in (0, 1):
        raise UsageError(f"ddof={ddof!r}", hint="give 1 for a sample, 0 for all there is")
    return ddof
