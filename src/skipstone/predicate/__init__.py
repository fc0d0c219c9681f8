"""What the user asks: one tree, SQL text both ways, and one adapter per foreign expression."""

from __future__ import annotations

from skipstone.predicate.coerce import parse, predicate
from skipstone.predicate.tree import Expr, Predicate, col, lit, udf

__all__ = ["Expr", "Predicate", "col", "lit", "parse", "predicate", "udf"]
