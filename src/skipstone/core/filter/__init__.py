"""Row filters and values: evaluate predicates and expressions on Arrow batches with Spark SQL's semantics."""

from __future__ import annotations

from skipstone.core.filter.plan import RowFilter, RowValues

__all__ = ["RowFilter", "RowValues"]
