"""A value for each row: its type, how it is computed, and what that takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from skipstone.core.filter.rows import Rows
from skipstone.core.filter.truth import Array
from skipstone.errors import NotExpressibleError, PredicateError
from skipstone.predicate import tree

Kernel = Callable[..., pa.Array]
"""Computes an array from arrays of the arguments."""
Checked = Callable[[pa.Array], tuple[pa.Array, Array | None]]
"""A cast, and the rows whose value doesn't fit (None: no cast of these types can fail)."""


class RowError(Exception):
    """A row for which Spark, too, has no value: an overflow, a bad cast, a division by zero."""


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """An expression bound to columns; ``type`` is a plain one."""

    type: pa.DataType
    compute: Callable[[Rows], pa.Array]
    risky: bool = False
    """Whether it can fail on a row, and so must see only the rows that Spark would compute it for."""
    cost: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Arguments:
    """What a function is called with; a constant argument has its scalar as well."""

    call: tree.Call
    series: tuple[Series, ...]
    constants: tuple[pa.Scalar | None, ...]

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        """Types of the arguments."""
        return tuple(s.type for s in self.series)

    def refuse(self, why: str) -> NotExpressibleError:
        """The error that says why the call can't be computed."""
        return cannot(self.call, why)


def cannot(expr: tree.Expr, why: str) -> NotExpressibleError:
    """The error for a part that nobody here can compute as Spark does."""
    return NotExpressibleError(
        f"the rows can't be tested for {expr}: {why}",
        hint="compute it with skipstone.udf, or leave it out and filter the result",
    )


def apply(
    expr: tree.Expr,
    type: pa.DataType,
    kernel: Kernel,
    args: Sequence[Series],
    *,
    risky: bool = False,
    cost: int = 1,
) -> Series:
    """``kernel`` of the arguments, computed once per batch; its failures name ``expr``."""
    key = ("made", expr.key())
    # Nothing that is computed from a value known to fail is safe either.
    risky = risky or any(s.risky for s in args)

    def make(rows: Rows) -> pa.Array:
        arrays = [s.compute(rows) for s in args]
        try:
            return kernel(*arrays)
        except (RowError, pa.ArrowInvalid) as error:
            raise PredicateError(
                f"{expr} fails on a row: {error}", hint="exclude such rows with AND, or use try_cast"
            ) from error

    return Series(type, lambda rows: rows.remember(key, make), risky, cost + sum(s.cost for s in args))
