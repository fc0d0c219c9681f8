"""The residual on Arrow batches: which rows make a predicate TRUE. Pure, columnar, Spark's meaning."""

from __future__ import annotations

from skipstone.core.filter.plan import RowFilter

__all__ = ["RowFilter"]
