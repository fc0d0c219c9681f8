"""Skipstone: a data-skipping engine for Parquet lakes.

>>> import skipstone as sk
>>> sk.parse("user_id = 42")
Predicate("user_id = 42")
"""

from __future__ import annotations

# Eager, so that the functions ``predicate`` and ``prune`` stand here and not the rooms of the same name.
from skipstone.api import (
    BloomProvider,
    BloomRequest,
    Bound,
    ColumnDomain,
    ColumnHandle,
    Compiled,
    Diagnostic,
    Domain,
    Expr,
    Marker,
    ParquetMetadata,
    Predicate,
    PruneOptions,
    PruneResult,
    Pruner,
    Range,
    RowSet,
    SkipstoneError,
    Trace,
    Verdict,
    col,
    lit,
    parse,
    predicate,
    prune,
    read_metadata,
    udf,
)

__version__ = "0.1.0"

__all__ = [
    "BloomProvider",
    "BloomRequest",
    "Bound",
    "ColumnDomain",
    "ColumnHandle",
    "Compiled",
    "Diagnostic",
    "Domain",
    "Expr",
    "Marker",
    "ParquetMetadata",
    "Predicate",
    "PruneOptions",
    "PruneResult",
    "Pruner",
    "Range",
    "RowSet",
    "SkipstoneError",
    "Trace",
    "Verdict",
    "__version__",
    "col",
    "lit",
    "parse",
    "predicate",
    "prune",
    "read_metadata",
    "udf",
]

