"""One module per predicate family: for which values of a column is a condition TRUE, FALSE, NULL.

Importing this package registers them with :func:`skipstone.core.ir.lower.lower_node`.
"""

from __future__ import annotations

from skipstone.core.ir.families import compare, members, nulls, patterns

__all__ = ["compare", "members", "nulls", "patterns"]
