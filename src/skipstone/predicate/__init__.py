"""Predicates: one tree, SQL in and out, and an adapter for each foreign expression library."""

from __future__ import annotations

from skipstone.predicate.coerce import parse, predicate
from skipstone.predicate.tree import Expr, Predicate, col, lit, udf

__all__ = ["Expr", "Predicate", "col", "lit", "parse", "predicate", "udf"]
