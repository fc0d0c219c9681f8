"""Row filters and values: evaluate predicates and expressions on Arrow batches with Spark SQL's semantics."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa

from skipstone.core.filter.plan import RowFilter, RowValues
from skipstone.predicate.tree import Predicate, condition, has_calls

__all__ = ["RowFilter", "RowValues", "fix_clock", "settle"]


def fix_clock(predicate: Predicate, now: dt.datetime | None = None) -> Predicate:
    """Replace the functions of the current time by ``now``, by default the time of this call.

    >>> import skipstone as sk
    >>> noon = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)
    >>> fix_clock(sk.parse("d >= current_date - interval 1 month"), noon)
    Predicate("d >= ('2026-01-31' - INTERVAL '1' MONTH)")
    """
    if not has_calls(predicate):
        return predicate
    from skipstone.core.filter.constants import read_clock

    return condition(read_clock(predicate, now))


def settle(predicate: Predicate, schema: pa.Schema, *, case_sensitive: bool = True) -> Predicate:
    """Replace constant calls by literals, and access to fields of structs by columns.

    >>> import skipstone as sk
    >>> settle(sk.parse("d > date'2024-01-31' + interval 1 month"), pa.schema({"d": pa.date32()}))
    Predicate("d > '2024-02-29'")
    """
    if not has_calls(predicate):
        return predicate
    from skipstone.core.filter.constants import settle_value

    return condition(settle_value(predicate, schema, case_sensitive=case_sensitive))
