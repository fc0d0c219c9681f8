"""Polars expressions to predicates and back.

Polars orders NaN as Spark does. It differs in two places where the column's type, unknown here,
decides: a float literal without a type is rounded for a float32 column, and a timestamp is cut to
the column's unit. Such a comparison becomes an opaque leaf beside a wider one that can be judged.
"""

from __future__ import annotations

from skipstone.predicate.polars.read import from_polars
from skipstone.predicate.polars.write import to_polars

__all__ = ["from_polars", "to_polars"]
