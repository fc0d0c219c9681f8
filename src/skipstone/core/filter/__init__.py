"""Row filters: evaluate predicates on Arrow batches with Spark SQL's semantics."""

from __future__ import annotations

from skipstone.core.filter.plan import RowFilter

__all__ = ["RowFilter"]
