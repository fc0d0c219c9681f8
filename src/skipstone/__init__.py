"""Skipstone: a data-skipping engine for Parquet lakes.

>>> import skipstone as sk
>>> sk.parse("user_id = 42")
Predicate("user_id = 42")
"""

from __future__ import annotations

import importlib
import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skipstone.aggregate.aggregation import Aggregation
    from skipstone.aggregate.functions import (
        Aggregate,
        approx_distinct,
        avg,
        count,
        count_distinct,
        first,
        histogram,
        last,
        max,  # noqa: A004
        min,  # noqa: A004
        quantile,
        stddev,
        sum,  # noqa: A004
        udaf,
        var,
    )
    from skipstone.aggregate.members import Members, members
    from skipstone.api import catalog, open, read_metadata, register, spark  # noqa: A004
    from skipstone.compact.maintenance import Maintenance, MaintenanceReport, MaintenanceTask
    from skipstone.compact.options import CompactionOptions
    from skipstone.compact.plan import (
        CompactionPlan,
        CompactionPlanner,
        CompactionPlanning,
        FileGroup,
        PlannedFile,
        SkippedGroup,
    )
    from skipstone.compact.run import CompactionReport, GroupFailure
    from skipstone.core.domain import Bound, ColumnDomain, ColumnHandle, Domain, Marker, Range
    from skipstone.core.ir import Compiled, Diagnostic
    from skipstone.core.judge import Verdict
    from skipstone.core.rows import RowSet
    from skipstone.engine.jobs import Engine
    from skipstone.errors import (
        ChangedFileError,
        ConflictError,
        CorruptFileError,
        DuplicateKeyError,
        EncryptedFileError,
        FileError,
        JobError,
        MissingFileError,
        NotExpressibleError,
        NotParquetError,
        ParseError,
        PredicateError,
        ReadError,
        RowSetError,
        SchemaError,
        SkipstoneError,
        TypeMismatchError,
        UnknownColumnError,
        UsageError,
        WriteError,
    )
    from skipstone.iceberg.metadata import SnapshotInfo
    from skipstone.index.advise.advice import Advice
    from skipstone.index.advise.layout import ColumnLayout, LakeLayout
    from skipstone.index.index import LakeIndex
    from skipstone.index.results import IndexReport, IndexStatus
    from skipstone.lake.snapshot import FileEntry
    from skipstone.parquet.metadata import ParquetMetadata
    from skipstone.predicate.coerce import parse, predicate
    from skipstone.predicate.tree import Expr, Predicate, col, lit, udf
    from skipstone.prune.pruner import Pruner, PruneResult, prune
    from skipstone.prune.survey import BloomProvider, BloomRequest, PruneOptions
    from skipstone.report.trace import FilterStats, ScanTrace, Trace
    from skipstone.scan.execute import Execution, execute
    from skipstone.scan.lake import Lake
    from skipstone.scan.options import ScanOptions
    from skipstone.scan.plan import ScanPlan
    from skipstone.scan.results import Verification, Why
    from skipstone.scan.scan import Scan
    from skipstone.scan.statistics import ColumnStatistics, LakeStatistics
    from skipstone.scan.table import Table
    from skipstone.store.options import with_credentials
    from skipstone.store.retry import RetryPolicy
    from skipstone.table.changes import TableChanges
    from skipstone.table.report import WriteReport
    from skipstone.table.tail.status import TailStatus
    from skipstone.table.tail.writer import TailWriter
    from skipstone.table.transaction import Transaction
    from skipstone.tables import Catalog
    from skipstone.write.job import ingest
    from skipstone.write.report import IngestReport, PipelineReport
    from skipstone.write.sources import ingest_new

__version__ = "0.2.0.dev0"

__all__ = [
    "Advice",
    "Aggregate",
    "Aggregation",
    "BloomProvider",
    "BloomRequest",
    "Bound",
    "Catalog",
    "ChangedFileError",
    "ColumnDomain",
    "ColumnHandle",
    "ColumnLayout",
    "ColumnStatistics",
    "CompactionOptions",
    "CompactionPlan",
    "CompactionPlanner",
    "CompactionPlanning",
    "CompactionReport",
    "Compiled",
    "ConflictError",
    "CorruptFileError",
    "Diagnostic",
    "Domain",
    "DuplicateKeyError",
    "EncryptedFileError",
    "Engine",
    "Execution",
    "Expr",
    "FileEntry",
    "FileError",
    "FileGroup",
    "FilterStats",
    "GroupFailure",
    "IndexReport",
    "IndexStatus",
    "IngestReport",
    "JobError",
    "Lake",
    "LakeIndex",
    "LakeLayout",
    "LakeStatistics",
    "Maintenance",
    "MaintenanceReport",
    "MaintenanceTask",
    "Marker",
    "Members",
    "MissingFileError",
    "NotExpressibleError",
    "NotParquetError",
    "ParquetMetadata",
    "ParseError",
    "PipelineReport",
    "PlannedFile",
    "Predicate",
    "PredicateError",
    "PruneOptions",
    "PruneResult",
    "Pruner",
    "Range",
    "ReadError",
    "RetryPolicy",
    "RowSet",
    "RowSetError",
    "Scan",
    "ScanOptions",
    "ScanPlan",
    "ScanTrace",
    "SchemaError",
    "SkippedGroup",
    "SkipstoneError",
    "SnapshotInfo",
    "Table",
    "TableChanges",
    "TailStatus",
    "TailWriter",
    "Trace",
    "Transaction",
    "TypeMismatchError",
    "UnknownColumnError",
    "UsageError",
    "Verdict",
    "Verification",
    "Why",
    "WriteError",
    "WriteReport",
    "approx_distinct",
    "avg",
    "catalog",
    "col",
    "count",
    "count_distinct",
    "execute",
    "first",
    "histogram",
    "ingest",
    "ingest_new",
    "last",
    "lit",
    "max",
    "members",
    "min",
    "open",
    "parse",
    "predicate",
    "prune",
    "quantile",
    "read_metadata",
    "register",
    "spark",
    "stddev",
    "sum",
    "udaf",
    "udf",
    "var",
    "with_credentials",
]


class _Package(types.ModuleType):
    """Loads public names on first use, so that importing the package costs nothing.

    Packages ``predicate``, ``prune`` and ``spark`` share names with public functions, which take precedence.
    """

    _functions = frozenset({"predicate", "prune", "spark"})

    def __getattr__(self, name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        # Not ``from skipstone import api``, which would call this method for ``api``.
        try:
            value = getattr(importlib.import_module("skipstone.api"), name)
        except ModuleNotFoundError as error:
            from skipstone.errors import EXTRAS, require

            # Names of tables need pyiceberg.
            require(*{str(error.name).partition(".")[0]} & EXTRAS.keys())
            raise
        super().__setattr__(name, value)
        return value

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in self._functions and isinstance(value, types.ModuleType)):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted([*__all__, "__version__"])


sys.modules[__name__].__class__ = _Package
