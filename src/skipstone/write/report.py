"""What an ingest did, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from skipstone.report import Reported


@dataclass(frozen=True, slots=True)
class Seconds:
    """How long each phase took."""

    survey: float = 0.0
    write: float = 0.0
    publish: float = 0.0
    index: float = 0.0

    @property
    def total(self) -> float:
        """The sum of all."""
        return self.survey + self.write + self.publish + self.index


@dataclass(frozen=True, slots=True)
class LookUps:
    """What ``column = value`` has to read, for values that the lake holds: shares of its rows and files."""

    column: str
    rows: float
    files: float


@dataclass(frozen=True, slots=True)
class IngestReport(Reported):
    """What one ingest did."""

    view: ClassVar[str] = "skipstone.write.views:ingest_tree"

    json_also: ClassVar[Mapping[str, str]] = {"files": "files", "bytes": "bytes"}

    lake: str
    rows: int
    sizes: tuple[int, ...]
    """Bytes of each file."""
    row_groups: int
    partitions: int
    seconds: Seconds
    index_bytes: int
    """Of the whole lake's index, afterwards."""
    skips: tuple[LookUps, ...] = ()
    index_problem: str = ""
    """Why the index is not up to date, though the rows were ingested; "" if nothing went wrong."""
    snapshot: int | None = None
    """The table's snapshot with the rows; None for a directory, or if nothing was done."""
    replaced: int = 0
    """Files that the table no longer has: their rows were replaced or rewritten."""
    cluster_by: tuple[str, ...] = ()
    clustered_as_before: bool = False
    """Whether these columns were taken from the previous ingest."""

    @property
    def files(self) -> int:
        """How many files were written."""
        return len(self.sizes)

    @property
    def bytes(self) -> int:
        """Bytes of the files that were written."""
        return sum(self.sizes)


@dataclass(frozen=True, slots=True)
class PipelineReport(Reported):
    """What a run over a source did."""

    view: ClassVar[str] = "skipstone.write.views:pipeline_tree"

    json_also: ClassVar[Mapping[str, str]] = {"rows": "rows", "files": "files", "bytes": "bytes"}

    lake: str
    new: int
    """Source files that were ingested."""
    known: int
    """Those that an earlier run ingested."""
    changed: tuple[str, ...]
    """Those that have changed since, and were left alone."""
    batches: tuple[IngestReport, ...]

    @property
    def rows(self) -> int:
        """Rows of all batches."""
        return sum(batch.rows for batch in self.batches)

    @property
    def files(self) -> int:
        """Files that were written."""
        return sum(batch.files for batch in self.batches)

    @property
    def bytes(self) -> int:
        """Bytes of the files that were written."""
        return sum(batch.bytes for batch in self.batches)
