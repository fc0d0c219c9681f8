"""Index status and build reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, ClassVar

import pyarrow as pa

from skipstone.engine.jobs import EngineUse
from skipstone.report import Reported
from skipstone.report.json import record
from skipstone.report.units import percent


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of an index by content."""

    json_also: ClassVar[Mapping[str, str]] = {"total": "total"}

    blocks: int = 0
    """Statistics of blocks of files."""
    files: int = 0
    """Statistics of files, and their search order."""
    row_groups: int = 0
    pages: int = 0
    """Statistics of pages."""
    blooms: int = 0
    sums: int = 0
    sketches: int = 0
    offsets: int = 0
    """Offsets of row groups, chunks and pages."""
    names: int = 0
    """File names, versions and schemas."""
    metadata: int = 0
    """Directories of segments, and checksums."""
    other: int = 0
    """Arrays that this version of Skipstone does not recognize."""

    @property
    def total(self) -> int:
        """Total bytes."""
        return sum(getattr(self, field.name) for field in fields(self))

    def __add__(self, other: Sizes) -> Sizes:
        names = [field.name for field in fields(self)]
        return Sizes(**{name: getattr(self, name) + getattr(other, name) for name in names})


@dataclass(frozen=True, slots=True)
class Origins:
    """Number of files by the origin of a column's statistics."""

    footer: int = 0
    page_index: int = 0
    values: int = 0
    nowhere: int = 0

    def __add__(self, other: Origins) -> Origins:
        names = [field.name for field in fields(self)]
        return Origins(**{name: getattr(self, name) + getattr(other, name) for name in names})

    def __str__(self) -> str:
        counts = {"page index": self.page_index, "footer": self.footer, "values": self.values}
        counts = {name: number for name, number in counts.items() if number}
        total = sum(counts.values()) + self.nowhere
        if len(counts) == 1 and not self.nowhere:
            return next(iter(counts))
        counts |= {"none": self.nowhere} if self.nowhere else {}
        return ", ".join(f"{name} {percent(number, total)}" for name, number in counts.items()) or "–"


@dataclass(frozen=True, slots=True)
class ColumnStatus:
    """An indexed column: its type in the index, and the origin and bytes of its statistics."""

    json_names: ClassVar[Mapping[str, str]] = {"sizes": "bytes"}

    name: str
    type: pa.DataType
    origins: Origins
    sizes: Sizes


@dataclass(frozen=True, slots=True)
class SegmentStatus:
    """A segment: its files, how many of them are deleted or changed, and its bytes."""

    name: str
    files: int
    stale: int
    bytes: int
    written: float
    """Seconds since 1970."""


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """Options of the last build."""

    columns: tuple[str, ...] = ()
    pages: bool = True
    blooms: tuple[str, ...] = ()
    own_blooms: bool = True
    """Whether bloom filters in the files are copied."""
    values: tuple[str, ...] = ()
    sums: tuple[str, ...] = ()
    sketches: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class IndexStatus(Reported):
    """What an index covers, compared with the files of the lake.

    Examples:
        >>> import skipstone as sk
        >>> status = sk.open("events").index.status()
        >>> status.exists, status.files, status.covered
        (False, 4, 0)
    """

    view: ClassVar[str] = "skipstone.index.views:status_tree"

    json_names: ClassVar[Mapping[str, str]] = {"sizes": "bytes"}
    json_also: ClassVar[Mapping[str, str]] = {
        "exists": "exists",
        "unknown": "unknown",
        "next_step": "next_step",
    }

    lake: str
    location: str
    version: int
    """0 if there is no readable index."""
    format: int
    written: float
    """Commit time of the version, in seconds since 1970."""
    taken: float
    """Time of the status."""
    files: int
    """Files of the lake."""
    covered: int
    """Files of the lake that the index covers."""
    stale: int
    """Entries of the index whose file is deleted or changed."""
    stale_such_as: tuple[str, ...]
    unknown_such_as: tuple[str, ...]
    segments: tuple[SegmentStatus, ...]
    sizes: Sizes
    columns: tuple[ColumnStatus, ...]
    data_bytes: int
    """Bytes of the lake's files."""
    old_bytes: int
    """Bytes of merged segments and earlier versions, which are kept for current readers."""
    options: BuildOptions
    problems: tuple[str, ...]
    """Why parts of the index are ignored."""

    @property
    def exists(self) -> bool:
        """Whether there is an index, even a damaged one."""
        return bool(self.version or self.problems)

    @property
    def unknown(self) -> int:
        """Files of the lake that the index does not cover."""
        return self.files - self.covered

    @property
    def next_step(self) -> str:
        """Recommended action; "" if there is none."""
        if not self.exists:
            return "build the index: lake.index.build(), or skipstone index build"
        if self.problems:
            return "rebuild the index: lake.index.build(rebuild=True), or skipstone index build --rebuild"
        # Stale entries only cost some bytes until the next merge.
        if self.unknown:
            return "refresh the index: lake.index.refresh(), or skipstone index refresh"
        return ""

    def __getitem__(self, name: str) -> ColumnStatus:
        status = next((column for column in self.columns if column.name == name), None)
        if status is None:
            names = ", ".join(column.name for column in self.columns) or "none"
            raise KeyError(f"{name}: indexed columns are {names}")
        return status

    def to_json(self) -> dict[str, Any]:
        """Return the status as JSON-compatible values."""
        status = record(self)
        del status["taken"]
        status["written"] = datetime.fromtimestamp(self.written, UTC).isoformat() if self.version else None
        status["options"] = status["options"] if self.version else None
        return status


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file that could not be indexed; queries that need it raise the error."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class IndexReport(Reported):
    """What a build or a refresh of an index did.

    Examples:
        >>> import skipstone as sk
        >>> lake = sk.open("events", index_root="index")
        >>> report = lake.index.build(["event_id"], engine="local", rebuild=True)
        >>> report.indexed, report.skipped
        (4, ())
    """

    view: ClassVar[str] = "skipstone.index.views:build_tree"

    version: int
    """Version of the index after the build."""
    indexed: int
    """Files indexed."""
    already_indexed: int
    """Files that an earlier build had indexed."""
    dropped: int
    """Indexed files that are deleted or changed."""
    adopted: int
    """Files in segments that an interrupted job or an older index left behind."""
    segments: int
    requests: int
    bytes: int
    seconds: float
    skipped: tuple[SkippedFile, ...] = ()
    merged: int = 0
    """Segments that were merged into others."""
    engine: EngineUse | None = None
    """The engine that ran, and why."""
