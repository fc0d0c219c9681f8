"""What every lake is to the rooms above: numbered files, a schema, and what is known before any footer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from skipstone.core.evidence import Array, Stated
from skipstone.core.ir.nodes import Node
from skipstone.core.rows import RowSet
from skipstone.engine.jobs import Engine
from skipstone.lake.files import Files, Io
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.naming import Naming
from skipstone.prune.ledger import Ledger
from skipstone.prune.survey import Footers, Survey
from skipstone.report.trace.partitions import FilterStats
from skipstone.store.cache import Cache
from skipstone.store.place import Listed

if TYPE_CHECKING:
    from skipstone.lake.statistics import LakeStatistics

_SURVEYS = 4
_PLANS = 64
T = TypeVar("T")
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
class Sifted:
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


class BaseLake(ABC):
    """A lake pinned to one version of its files."""

    _access: Files
    _surveys: OrderedDict[Hashable, Any]
    plans: Cache[Any, Any]

    def _forget(self, *names: str) -> None:
        """Start anew: nothing is known, neither plans nor the named properties."""
        self._surveys = OrderedDict()
        self.plans = Cache(_PLANS)
        for name in ("all_stated", "files", *names):
            self.__dict__.pop(name, None)

    # -- what there is -----------------------------------------------------------------------

    @property
    @abstractmethod
    def uri(self) -> str:
        """The lake's root."""

    @property
    @abstractmethod
    def entries(self) -> Sequence[Listed]:
        """The files, by path."""

    @property
    @abstractmethod
    def version(self) -> str:
        """Equal for the same files in the same versions."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns of the lake with the types that reading gives."""

    @property
    @abstractmethod
    def query_schema(self) -> pa.Schema:
        """The schema that predicates are bound to."""

    @property
    @abstractmethod
    def partition_names(self) -> frozenset[str]:
        """The names of the columns that partitions give to every file."""

    @abstractmethod
    def stated(self, files: Array) -> dict[Path, Stated]:
        """What partitions say of columns in the numbered files, whatever is stored in them."""

    @abstractmethod
    def constants(self, files: Sequence[int]) -> list[Mapping[str, pa.Scalar]]:
        """The columns that each numbered file's partition gives, with their values."""

    @abstractmethod
    def files_of(self, files: Array) -> tuple[FileEntry, ...]:
        """The numbered files."""

    @abstractmethod
    def refresh(self) -> None:
        """Look anew: from now on the lake is what there is now."""

    @property
    def access(self) -> Files:
        """Sources and footers of the files."""
        return self._access

    @property
    def io(self) -> Io:
        """Requests made and bytes read through this lake so far."""
        return self._access.io()

    @cached_property
    def files(self) -> tuple[FileEntry, ...]:
        """The lake's files, by path."""
        return self.files_of(np.arange(len(self.entries)))

    @cached_property
    def all_stated(self) -> dict[Path, Stated]:
        """What partitions say of every file."""
        return self.stated(np.arange(len(self.entries)))

    # -- what an index is matched with -------------------------------------------------------

    listed_at = 0.0
    """When the lake was listed, in seconds since 1970; 0 where somebody else has done it."""
    index_naming: Naming | None = None
    """How columns are called in an index: by names that outlive the schema; None for those in the files."""

    @property
    def listed_whole(self) -> bool:
        """Whether a listing saw all that is below the root, hidden files too."""
        return False

    @property
    def is_whole(self) -> bool:
        """Whether all files below the root are meant, or some."""
        return True

    @property
    def others(self) -> Sequence[Listed]:
        """Files that were listed in hidden directories of the root."""
        return ()

    @abstractmethod
    def relist(self, engine: Engine) -> None:
        """``refresh``, with the listing done on an engine if that is worth it."""

    # -- before and after the footers --------------------------------------------------------

    @abstractmethod
    def sift(self, node: Node | None, ledger: Ledger, *, strict: bool = False) -> Sifted:
        """The files that may hold a match by what is known without their footers; ``None`` asks for all rows.

        ``strict`` refuses to keep a partition merely because it can't be judged.
        """

    def check_files(self, files: Sequence[int]) -> None:  # noqa: B027
        """Refuse files that can't be read."""

    def deletions(self, files: Sequence[int]) -> Deletions:  # noqa: ARG002
        """What is deleted of the numbered files."""
        return Deletions()

    def check(self, footers: Sequence[ParquetMetadata]) -> None:  # noqa: B027
        """Refuse a file whose columns can't be read as the lake's."""

    def footers(self, files: Array) -> Footers:
        """The numbered files as a run of a survey; one that doesn't fit the lake's schema is an error."""
        footers = self._access.footers([self.entries[number] for number in files.tolist()])
        self.check(footers)
        return Footers.of(footers)

    def survey(self, files: Array) -> Survey:
        """The footers of the numbered files, opened where they aren't known yet."""
        return self.remembered(
            files.tobytes(), lambda: Survey.joined([self.footers(files)], self.stated(files))
        )

    def remembered(self, key: Hashable, make: Callable[[], T]) -> T:
        """One of the last few surveys, or a new one."""
        found: T | None = self._surveys.get(key)
        if found is None:
            found = self._surveys[key] = make()
            while len(self._surveys) > _SURVEYS:
                self._surveys.popitem(last=False)
        return found

    def statistics(self, columns: Sequence[str] | None = None) -> LakeStatistics:
        """Rows, bytes, and for the named columns (or all) bounds and counts, from every file's footer."""
        from skipstone.lake.statistics import lake_statistics

        return lake_statistics(self, columns)
