"""Conversion of user input to a Predicate, without importing libraries the user doesn't use."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from skipstone.core.domain import DomainTree
from skipstone.errors import ParseError, PredicateError, SkipstoneError, UsageError
from skipstone.predicate.tree import (
    Column,
    Constant,
    Expr,
    Predicate,
    condition,
    conjunction,
    in_keys,
    too_deep,
)
from skipstone.predicate.values import preview

if TYPE_CHECKING:
    from skipstone.typing import Dialect, PredicateLike, SemiJoinLike


def parse(text: str, dialect: Dialect = "spark", tz: str = "UTC") -> Predicate:
    """Parse one SQL condition.

    Args:
        text: The condition, without ``WHERE``.
        dialect: The SQL dialect: ``"spark"``, ``"hive"``, ``"trino"``, ``"presto"`` or ``"duckdb"``.
        tz: The time zone of timestamps without a zone.

    Raises:
        ParseError: If the text is not one condition.

    Examples:
        >>> import skipstone as sk
        >>> sk.parse("user_id = 42 and ts >= '2026-01-01'").columns()
        (('user_id',), ('ts',))
    """
    from skipstone.predicate.sql import parse_sql

    if isinstance(text, str) and not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ParseError(f"SQL is not valid Unicode: {error.reason}") from None
    return parse_sql(text, dialect, tz)


def predicate(value: PredicateLike) -> Predicate:
    """Convert SQL text or an expression of another library to a predicate.

    Args:
        value: SQL text; ``sk.col(...)`` conditions; a column domain; an expression of pyarrow, Polars,
            DataFusion or pyiceberg; a list of PySpark data source filters, joined by AND; or None, which is
            TRUE for every row.

    Raises:
        PredicateError: If the value can't be converted.

    Examples:
        >>> import pyarrow.compute as pc
        >>> import skipstone as sk
        >>> sk.predicate(pc.field("country") == "DE")
        Predicate("country = 'DE'")
        >>> sk.predicate("country = 'DE'") == (sk.col("country") == "DE")
        True
    """
    if isinstance(value, Expr) or value is None or isinstance(value, bool):
        return Constant(True) if value is None else condition(value)
    if isinstance(value, str):
        return parse(value)
    if isinstance(value, DomainTree):
        from skipstone.predicate.domains import from_column_domain

        return from_column_domain(value)
    try:
        converted = _from_library(value)
    except (SkipstoneError, ImportError):
        raise
    except RecursionError:
        raise too_deep() from None
    except Exception as error:
        raise PredicateError(f"{type(value).__name__} can't be converted to a predicate: {error}") from error
    if converted is None:
        raise PredicateError(
            f"{type(value).__name__} can't be converted to a predicate",
            hint="use SQL, skipstone.col(...) conditions, a pyarrow, Polars, DataFusion or pyiceberg "
            "expression, or a list of PySpark data-source filters",
        )
    return converted


def with_keys(where: PredicateLike, semi_join: SemiJoinLike, names: Collection[str]) -> Predicate:
    """The condition ``where``, and that a column has one of the keys; ``names`` are those of the columns."""
    if not isinstance(semi_join, tuple) or len(semi_join) != 2:
        raise UsageError("semi_join is not a column and its values", hint='use semi_join=("user_id", values)')
    column, keys = semi_join
    if isinstance(column, str):
        column = Column((column,) if column in names else tuple(column.split(".")))
    if not isinstance(column, Expr) or isinstance(column, Predicate):
        raise UsageError(
            f"semi_join with {preview(column)}", hint="give the name of a column, and its values"
        )
    join = in_keys(column, keys)
    return join if where is None else conjunction((predicate(where), join))


def _from_library(value: Any) -> Predicate | None:
    """Convert an expression of another library; None if ``value`` is not one."""
    # Module names of the class identify the library without importing it.
    roots = {cls.__module__.partition(".")[0] for cls in type(value).__mro__}
    if "pyarrow" in roots:
        from skipstone.predicate.arrow import from_arrow

        return from_arrow(value)
    if "polars" in roots and hasattr(value, "meta"):
        from skipstone.predicate.polars import from_polars

        return from_polars(value)
    if "datafusion" in roots:
        from skipstone.predicate.datafusion import from_datafusion

        return from_datafusion(value)
    if "pyiceberg" in roots:
        from skipstone.predicate.iceberg import from_iceberg

        return from_iceberg(value)
    if "pyspark" in roots or _is_spark_filters(value):
        from skipstone.predicate.spark import from_spark

        return from_spark(value)
    return None


def _is_spark_filters(value: Any) -> bool:
    """Whether ``value`` is a non-empty list of PySpark data-source filters."""
    if not isinstance(value, (list, tuple)):
        return False
    roots = [{cls.__module__.partition(".")[0] for cls in type(item).__mro__} for item in value]
    return bool(roots) and all("pyspark" in names for names in roots)
