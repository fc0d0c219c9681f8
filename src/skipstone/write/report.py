"""Reports of ingests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from skipstone.engine.jobs import EngineUse
from skipstone.report import Reported


@dataclass(frozen=True, slots=True)
class Seconds:
    """Seconds of each phase."""

    survey: float = 0.0
    write: float = 0.0
    publish: float = 0.0
    index: float = 0.0

    @property
    def total(self) -> float:
        """Seconds of all phases."""
        return self.survey + self.write + self.publish + self.index


@dataclass(frozen=True, slots=True)
class LookUps:
    """Shares of the lake's rows and files that ``column = value`` reads, averaged over sampled values."""

    column: str
    rows: float
    files: float


@dataclass(frozen=True, slots=True)
class IngestReport(Reported):
    """What one ingest did: rows, files, sizes and times.

    Examples:
        >>> import pyarrow as pa
        >>> import skipstone as sk
        >>> report = sk.ingest(pa.table({"id": range(10)}), "ids", blooms=["id"])
        >>> report.rows, report.files, report.index_problem
        (10, 1, '')
    """

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
    """Size of the lake's index after the ingest."""
    skips: tuple[LookUps, ...] = ()
    index_problem: str = ""
    """Why the index could not be updated after the rows were ingested; "" if it was."""
    snapshot: int | None = None
    """Snapshot committed to the table; None for a directory, or if nothing was committed."""
    replaced: int = 0
    """Files removed from the table because their rows were replaced or rewritten."""
    cluster_by: tuple[str, ...] = ()
    clustered_as_before: bool = False
    """Whether ``cluster_by`` was inherited from the previous ingest."""
    engine: EngineUse | None = None
    """The engine that ran, and why."""

    @property
    def files(self) -> int:
        """Number of files written."""
        return len(self.sizes)

    @property
    def bytes(self) -> int:
        """Bytes written."""
        return sum(self.sizes)


@dataclass(frozen=True, slots=True)
class PipelineReport(Reported):
    """What an ingest of new files did: one [IngestReport][skipstone.IngestReport] for each batch.

    Examples:
        >>> import skipstone as sk
        >>> report = sk.ingest_new("events", "again", cluster_by=["event_id"])
        >>> report.new, report.already_ingested, len(report.batches)
        (4, 0, 1)
    """

    view: ClassVar[str] = "skipstone.write.views:pipeline_tree"

    json_also: ClassVar[Mapping[str, str]] = {"rows": "rows", "files": "files", "bytes": "bytes"}

    lake: str
    new: int
    """Source files that were ingested."""
    already_ingested: int
    """Source files that an earlier run ingested."""
    changed: tuple[str, ...]
    """Source files that changed after they were ingested; they are skipped."""
    batches: tuple[IngestReport, ...]

    @property
    def rows(self) -> int:
        """Rows of all batches."""
        return sum(batch.rows for batch in self.batches)

    @property
    def files(self) -> int:
        """Number of files written."""
        return sum(batch.files for batch in self.batches)

    @property
    def bytes(self) -> int:
        """Bytes written."""
        return sum(batch.bytes for batch in self.batches)
