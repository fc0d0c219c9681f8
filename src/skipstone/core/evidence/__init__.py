"""The type of what metadata says: columnar facts about N units. Each source room makes its own."""

from __future__ import annotations

from skipstone.core.evidence.facts import Array, Bounds, ColumnFacts, Evidence, Stated, is_ascending, widest

__all__ = ["Array", "Bounds", "ColumnFacts", "Evidence", "Stated", "is_ascending", "widest"]
