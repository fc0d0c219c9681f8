"""The façade: the names a user meets. ``skipstone`` re-exports them lazily."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skipstone.domain import Bound, ColumnDomain, ColumnHandle, Domain, Marker, Range
from skipstone.errors import SkipstoneError
from skipstone.ir import Compiled, Diagnostic
from skipstone.judge import Verdict
from skipstone.parquet.footer import read_footer
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.predicate import Expr, Predicate, col, lit, parse, predicate, udf
from skipstone.prune import BloomProvider, BloomRequest, PruneOptions, Pruner, PruneResult, prune
from skipstone.rows import RowSet
from skipstone.store.source import open_source
from skipstone.trace import Trace

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
    "col",
    "lit",
    "parse",
    "predicate",
    "prune",
    "read_metadata",
    "udf",
]


def read_metadata(source: Any, storage_options: Mapping[str, Any] | None = None) -> ParquetMetadata:
    """The footer of one file, to be used again: ``prune(metadata, ...)``, ``prune(path, metadata=...)``."""
    return read_footer(open_source(source, storage_options=storage_options))
