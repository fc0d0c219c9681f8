"""Snapshot: one version of a lake, from a directory listing or a table's metadata."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from skipstone.core.evidence import Array, FactOverride
from skipstone.core.ir.nodes import Node
from skipstone.core.rows import RowSet
from skipstone.engine.jobs import Engine
from skipstone.lake.files import Files
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.prune.ledger import Ledger
from skipstone.report.trace import FilterStats
from skipstone.store.cache import Cache
from skipstone.store.store import ListedFile

if TYPE_CHECKING:
    from skipstone.parquet.naming import Naming

PLANS = 64
Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file of a lake: its path, its size in bytes, and its partition values by name.

    Examples:
        >>> import skipstone as sk
        >>> sk.open("events").files[0].path
        '...events/part-0.parquet'
    """

    path: str
    size: int
    partition: Mapping[str, Any]
    rows: int | None = None
    """Rows of the file, if the query needed them."""
    row_groups: tuple[int, ...] | None = None
    """Row groups that may match, if there was a predicate."""


@dataclass(frozen=True, slots=True, eq=False)
class PrunedFiles:
    """Files left by partitions and table metadata, before any footer is opened."""

    files: Array | None = None
    """Numbers of the files that may match; None for all."""
    per_file: bool = False
    """Whether files were judged individually, so that row groups come next."""
    whole: Array | None = None
    """Per file, whether all its rows match; None if that holds for no file."""
    rows: Array | None = None
    """Row count per file, if files were judged."""
    dropped: int = 0
    """Rows of dropped files whose row count is recorded."""
    partitions: FilterStats | None = None
    """How many partitions could be judged, in tables with several specs."""

    def among(self, files: Array) -> PrunedFiles:
        """Return those of the numbered files that are left."""
        if self.files is None:
            return replace(self, files=np.sort(files))
        left = np.isin(self.files, files)
        whole, rows = (None if mask is None else mask[left] for mask in (self.whole, self.rows))
        return replace(self, files=self.files[left], whole=whole, rows=rows)

    @property
    def proven(self) -> tuple[Array, Array]:
        """Numbers and row counts of the files whose rows all match."""
        if self.files is None or self.whole is None or self.rows is None:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        return self.files[self.whole], self.rows[self.whole]

    @property
    def others(self) -> Array | None:
        """Numbers of the files whose row groups must be judged; None for all."""
        return self.files if self.files is None or self.whole is None else self.files[~self.whole]

    @property
    def empty(self) -> Array:
        """Numbers of the files recorded without rows, which only their footers can confirm."""
        if self.files is None or self.rows is None:
            return np.zeros(0, dtype=np.int64)
        return np.asarray(self.files[self.rows == 0])


class AntiJoin(ABC):
    """Finds the rows of a file that are deleted by their values."""

    @property
    @abstractmethod
    def columns(self) -> tuple[Path, ...]:
        """Columns to compare; some can be missing in the lake's schema."""

    @property
    @abstractmethod
    def types(self) -> tuple[pa.DataType, ...]:
        """Their types."""

    @abstractmethod
    def deleted(self, table: pa.Table, files: Files, positions: Callable[[], Array]) -> Array:
        """Per row, whether it is deleted; ``positions`` returns the rows' positions in the file."""


@dataclass(frozen=True, slots=True, eq=False)
class Deletions:
    """Deleted rows by file number: by position, and by value."""

    rows: Mapping[int, RowSet] = field(default_factory=dict)
    values: Mapping[int, tuple[AntiJoin, ...]] = field(default_factory=dict)
    files: int = 0
    """Number of delete files."""
    applied: int = 0
    """Number of delete files that apply."""
    hidden: Mapping[int, RowSet] = field(default_factory=dict)
    """The part of ``rows`` that an overlay hides, not delete files."""


@dataclass(frozen=True, slots=True, eq=False)
class Overlay:
    """Rows of files in memory that a snapshot has in addition, and rows of its other files that it lacks."""

    name: str
    """"transaction" or "tail"."""
    first: int
    """Number of the first file in memory; all later ones are in memory too."""
    rows: int
    """Rows of the files in memory that are not deleted."""
    hidden: int
    """Rows of other files that are hidden."""


class IndexRecords(Protocol):
    """Metadata that an index has recorded for a snapshot."""

    def kinds(self) -> tuple[list[ParquetMetadata], Array] | None:
        """One file per recorded schema, and the numbers of unrecorded files; None if no file is recorded."""

    def manifests(self, version: str) -> tuple[Any, Any] | None:
        """Data and delete entries of a table's manifests; ``version`` identifies the manifest list."""


class Snapshot(Protocol):
    """One version of a lake: numbered files, a schema, and file metadata from outside the footers.

    Immutable; caches derived from it, including plans, belong to it.
    """

    plans: Cache[Any, Any]
    listed_at: float
    """Time of the listing in seconds since 1970; 0 if it was not listed in this process."""
    index_naming: Naming | None
    """Column names in an index, which survive renames; None to use the names in the files."""
    has_own_schema: bool
    """Whether the user passed the schema, so that files might not match it."""
    overlay: Overlay | None
    """Uncommitted rows, if there are any."""

    @property
    def access(self) -> Files:
        """Sources and footers of the files."""

    @property
    def uri(self) -> str:
        """The lake's root."""

    @property
    def version(self) -> str:
        """Equal for the same files in the same versions."""

    @property
    def entries(self) -> Sequence[ListedFile]:
        """The files, by path."""

    @property
    def files(self) -> tuple[FileEntry, ...]:
        """The files with their partitions, by path."""

    def number_of(self, entry: ListedFile) -> int | None:
        """The number of a file; None if it is not listed."""

    @property
    def schema(self) -> pa.Schema:
        """Columns with the types that scans return."""

    @property
    def query_schema(self) -> pa.Schema:
        """The schema that predicates are bound to."""

    @property
    def partition_names(self) -> frozenset[str]:
        """Names of the columns that every file takes from its partition."""

    @property
    def all_overrides(self) -> dict[Path, FactOverride]:
        """Facts of partition columns for all files."""

    @property
    def is_whole(self) -> bool:
        """Whether the snapshot has all files below the root."""

    @property
    def listed_whole(self) -> bool:
        """Whether everything below the root was listed, including hidden files."""

    @property
    def others(self) -> Sequence[ListedFile]:
        """Files listed in hidden directories of the root."""

    def use(self, records: IndexRecords) -> None:
        """Read recorded metadata from an index where possible; to be called before any other method."""

    def latest(self, engine: Engine | None = None) -> Snapshot:
        """The current snapshot; tasks of the engine list a large directory."""

    def files_of(self, files: Array) -> tuple[FileEntry, ...]:
        """The numbered files."""

    def overrides(self, files: Array) -> dict[Path, FactOverride]:
        """Facts of partition columns for the numbered files, which override those of the files."""

    def constants(self, files: Sequence[int]) -> list[Mapping[str, pa.Scalar]]:
        """Partition values of each numbered file, by column."""

    def prune_files(self, node: Node | None, ledger: Ledger, *, strict: bool = False) -> PrunedFiles:
        """Files that may match according to partitions and table metadata; ``None`` matches all rows.

        ``strict`` raises instead of keeping a partition that can't be judged.
        """

    def renamed(self, column: str) -> str | None:
        """The hint for an unknown column that another version has; None if none has it."""

    def deletions(self, files: Sequence[int]) -> Deletions:
        """Deleted rows of the numbered files."""

    def check_files(self, files: Sequence[int]) -> None:
        """Refuse files that can't be read."""

    def check(self, footers: Sequence[ParquetMetadata]) -> None:
        """Refuse a file whose columns can't be converted to the lake's types."""


def opened_name(snapshot: Snapshot) -> str:
    """The directory, file or glob that was opened, or the location of a table."""
    pattern = getattr(snapshot, "pattern", "")
    return f"{snapshot.uri}/{pattern}" if pattern else snapshot.uri
