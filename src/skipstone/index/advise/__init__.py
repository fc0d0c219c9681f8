"""Advice on an index: which columns, which bloom filters, which order of rows."""

from __future__ import annotations

from skipstone.index.advise.advisor import advise

__all__ = ["advise"]
