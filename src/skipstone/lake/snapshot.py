"""Snapshot: what there is to read, from a directory's listing or a table's metadata."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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
    """A file of a lake: its path, its size in bytes, and its partition's values by name."""

    path: str
    size: int
    partition: Mapping[str, Any]
    rows: int | None = None
    """Rows of the whole file, where the question needed them."""
    row_groups: tuple[int, ...] | None = None
    """The row groups that may hold a match, where one was asked for."""


@dataclass(frozen=True, slots=True, eq=False)
class PrunedFiles:
    """What a lake's own metadata leaves of its files, before any footer is opened."""

    files: Array | None = None
    """Numbers of the files that may hold a match; None for all."""
    judged: bool = False
    """Whether files were judged one by one, so that row groups are next."""
    whole: Array | None = None
    """Per file, whether it needs no further look, since every row matches; None if none does."""
    rows: Array | None = None
    """Per file its rows, where it was judged."""
    dropped: int = 0
    """Rows of the files that are dropped, as far as they are known."""
    partitions: FilterStats | None = None
    """How far partitions could be judged, in a table whose partitioning may have changed."""

    @property
    def proven(self) -> tuple[Array, Array]:
        """The numbers of the files in which every row matches, and their rows."""
        if self.files is None or self.whole is None or self.rows is None:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        return self.files[self.whole], self.rows[self.whole]

    @property
    def others(self) -> Array | None:
        """The numbers of the files that must be looked into; None for all."""
        return self.files if self.files is None or self.whole is None else self.files[~self.whole]

    @property
    def empty(self) -> Array:
        """The numbers of the files that the metadata says have no rows, which only their footers prove."""
        if self.files is None or self.rows is None:
            return np.zeros(0, dtype=np.int64)
        return np.asarray(self.files[self.rows == 0])


class AntiJoin(ABC):
    """Rows of a file that are deleted by their values: tells them apart in a table of the lake's columns."""

    @property
    @abstractmethod
    def columns(self) -> tuple[Path, ...]:
        """The columns it looks at; some may be no part of the lake's schema."""

    @property
    @abstractmethod
    def types(self) -> tuple[pa.DataType, ...]:
        """Their types."""

    @abstractmethod
    def deleted(self, table: pa.Table, files: Files, places: Callable[[], Array]) -> Array:
        """Per row, whether it is deleted; ``places`` tells where in the file the rows are."""


@dataclass(frozen=True, slots=True, eq=False)
class Deletions:
    """What is deleted of some files, by their numbers: rows at known places, and rows by their values."""

    rows: Mapping[int, RowSet] = field(default_factory=dict)
    values: Mapping[int, tuple[AntiJoin, ...]] = field(default_factory=dict)
    files: int = 0
    """Delete files that there are."""
    applied: int = 0
    """Those that bear on one of the files."""


class Records(Protocol):
    """What an index has recorded of a snapshot, and need not be read from its files."""

    def kinds(self) -> tuple[list[ParquetMetadata], Array] | None:
        """A file of every recorded kind, and the numbers of those that aren't; None if none is."""

    def manifests(self, version: str) -> tuple[Any, Any] | None:
        """Entries of a table's manifests, of data and of deletes; ``version`` names their list."""


class Snapshot(Protocol):
    """One version of a lake: numbered files, a schema, and what is known of the files without their footers.

    It never changes. What is worked out of it is kept with it, plans included.
    """

    plans: Cache[Any, Any]
    listed_at: float
    """When it was listed, in seconds since 1970; 0 where somebody else has done it."""
    index_naming: Naming | None
    """How columns are called in an index: by names that outlive the schema; None for those in the files."""
    has_own_schema: bool
    """Whether the schema was given by the caller, so that files may not fit it."""

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

    @property
    def numbers(self) -> Mapping[ListedFile, int]:
        """The files' numbers."""

    @property
    def schema(self) -> pa.Schema:
        """The columns with the types that reading gives."""

    @property
    def query_schema(self) -> pa.Schema:
        """The schema that predicates are bound to."""

    @property
    def partition_names(self) -> frozenset[str]:
        """The names of the columns that partitions give to every file."""

    @property
    def all_overrides(self) -> dict[Path, FactOverride]:
        """What partitions say of every file."""

    @property
    def is_whole(self) -> bool:
        """Whether all files below the root are meant, or some."""

    @property
    def listed_whole(self) -> bool:
        """Whether a listing saw all that is below the root, hidden files too."""

    @property
    def others(self) -> Sequence[ListedFile]:
        """Files that were listed in hidden directories of the root."""

    def use(self, records: Records) -> None:
        """Ask an index first for what it has recorded; to be called before anything is asked."""

    def latest(self, engine: Engine | None = None) -> Snapshot:
        """What there is now; a large directory is listed by the engine's tasks."""

    def files_of(self, files: Array) -> tuple[FileEntry, ...]:
        """The numbered files."""

    def overrides(self, files: Array) -> dict[Path, FactOverride]:
        """What partitions say of columns in the numbered files, whatever is stored in them."""

    def constants(self, files: Sequence[int]) -> list[Mapping[str, pa.Scalar]]:
        """The columns that each numbered file's partition gives, with their values."""

    def prune_files(self, node: Node | None, ledger: Ledger, *, strict: bool = False) -> PrunedFiles:
        """The files that may hold a match by what is known without their footers; ``None`` asks for all rows.

        ``strict`` refuses to keep a partition merely because it can't be judged.
        """

    def deletions(self, files: Sequence[int]) -> Deletions:
        """What is deleted of the numbered files."""

    def check_files(self, files: Sequence[int]) -> None:
        """Refuse files that can't be read."""

    def check(self, footers: Sequence[ParquetMetadata]) -> None:
        """Refuse a file whose columns can't be read as the lake's."""
