"""Skipstone: a data-skipping engine for Parquet lakes.

>>> import skipstone as sk
>>> sk.parse("user_id = 42")
Predicate("user_id = 42")
"""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
        Pruner,
        PruneResult,
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


class _Package(types.ModuleType):
    """Gives the public names on first use, and keeps the rooms ``predicate`` and ``prune`` from taking
    the places of the functions so named."""

    def __getattr__(self, name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        from skipstone import api

        value = getattr(api, name)
        super().__setattr__(name, value)
        return value

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in __all__ and isinstance(value, types.ModuleType)):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*__all__, *self.__dict__})


sys.modules[__name__].__class__ = _Package
