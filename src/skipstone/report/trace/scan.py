"""What a scan planned, and, once it has run, what it did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from skipstone.report.trace import Level, Note
from skipstone.report.trace.partitions import FilterStats


@dataclass(frozen=True, slots=True)
class Reads:
    """Data that phase two reads: planned figures are estimates, since matching rows decide about payload."""

    json_names: ClassVar[Mapping[str, str]] = {"of_bytes": "bytes_total"}

    requests: int
    bytes: int
    of_bytes: int
    """Bytes of the same columns in the whole lake, as far as footers have been opened."""


@dataclass(frozen=True, slots=True)
class Hints:
    """How phase two goes about it, and why."""

    materialise: str
    why: str
    threads: int
    batch_rows: int
    route: str


@dataclass(frozen=True, slots=True)
class Phase:
    """One part of a run: planning, reading the predicate's columns, reading the others."""

    name: str
    rows: int
    """Rows that came out of it."""
    requests: int
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Run:
    """What a run did."""

    rows: int
    batches: int
    pieces: int
    """Row groups, or parts of them, that were read."""
    seconds: float
    requests: int
    bytes: int
    phases: tuple[Phase, ...] = ()


@dataclass(frozen=True, slots=True)
class IndexUse:
    """The index that a plan used: where it is, its version, how many files it covers."""

    place: str
    version: int
    covered: int
    problems: tuple[str, ...] = ()
    """Why parts of it were not used."""


@dataclass(frozen=True, slots=True)
class DeleteUse:
    """What a table's delete files mean for a plan."""

    files: int
    """Delete files of the snapshot."""
    applied: int
    """Those that apply to files that are kept."""
    rows: int
    """Rows of kept files that are deleted by their places; they are not read."""
    tested: int
    """Kept files whose rows are compared with deleted values when they are read."""


@dataclass(frozen=True, slots=True)
class SparkUse:
    """How a scan becomes a data frame, and why."""

    route: str
    """"driver", "slices" or "reader"."""
    why: str
    tasks: int
    """Tasks that Spark is given; none for what the driver reads itself."""
    bytes: int
    """About how many compressed bytes are read."""


@dataclass(frozen=True, slots=True)
class ScanTrace:
    """The whole plan of one scan: levels from the lake down to pages, then what is left to read."""

    json_names: ClassVar[Mapping[str, str]] = {"rows": "rows_total", "rows_whole": "rows_proven"}
    json_also: ClassVar[Mapping[str, str]] = {"requests": "requests", "bytes": "bytes"}

    lake: str
    version: str
    predicate: str
    residual: str
    """What is still tested on rows; empty when metadata has proven every row that is kept."""
    columns: tuple[str, ...]
    limit: int | None
    order: tuple[str, ...]
    files: int
    rows: int
    """Rows of the files whose footers were looked at."""
    rows_kept: int
    rows_whole: int
    """Rows proven to match."""
    tasks: int
    levels: tuple[Level, ...]
    hints: Hints
    notes: tuple[Note, ...] = ()
    unsupported: tuple[str, ...] = ()
    index: IndexUse | None = None
    partitions: FilterStats | None = None
    """How far partitions could be judged, of a table whose partitioning may have changed."""
    deletes: DeleteUse | None = None
    reads: Reads | None = None
    run: Run | None = None
    spark: SparkUse | None = None

    @property
    def requests(self) -> int:
        """Reads of metadata, over all levels."""
        return sum(level.requests for level in self.levels)

    @property
    def bytes(self) -> int:
        """Bytes of metadata read, over all levels."""
        return sum(level.bytes for level in self.levels)

    def level(self, name: str) -> Level | None:
        """The level of that name, if planning reached it."""
        return next((level for level in self.levels if level.name == name), None)
