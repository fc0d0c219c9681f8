"""Sets of row positions in a file, set algebra, and Parquet row selections."""

from __future__ import annotations

from skipstone.core.rows.rowset import RowSet, Selector, from_selection, to_selection

__all__ = ["RowSet", "Selector", "from_selection", "to_selection"]
