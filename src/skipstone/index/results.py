"""What an index holds and what a build did, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, ClassVar

import pyarrow as pa

from skipstone.report import Reported
from skipstone.report.json import record
from skipstone.report.units import percent


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes by what they are for."""

    json_also: ClassVar[Mapping[str, str]] = {"total": "total"}

    blocks: int = 0
    """Statistics of blocks of files."""
    files: int = 0
    """Statistics of files, and the order that they are searched in."""
    row_groups: int = 0
    pages: int = 0
    """Statistics of pages."""
    blooms: int = 0
    sums: int = 0
    sketches: int = 0
    places: int = 0
    """Offsets of row groups, chunks and pages."""
    names: int = 0
    """File names and versions, and the schemas that they share."""
    directories: int = 0
    """Directories of segments, and checksums."""
    other: int = 0
    """What this version of Skipstone has no name for."""

    @property
    def total(self) -> int:
        """All of them."""
        return sum(getattr(self, field.name) for field in fields(self))

    def __add__(self, other: Sizes) -> Sizes:
        names = [field.name for field in fields(self)]
        return Sizes(**{name: getattr(self, name) + getattr(other, name) for name in names})


@dataclass(frozen=True, slots=True)
class Origins:
    """Where a column's statistics came from, in files."""

    footer: int = 0
    page_index: int = 0
    values: int = 0
    nowhere: int = 0

    def __add__(self, other: Origins) -> Origins:
        names = [field.name for field in fields(self)]
        return Origins(**{name: getattr(self, name) + getattr(other, name) for name in names})

    def __str__(self) -> str:
        words = {"page index": self.page_index, "footer": self.footer, "values": self.values}
        known = {name: number for name, number in words.items() if number}
        whole = sum(known.values()) + self.nowhere
        if len(known) == 1 and not self.nowhere:
            return next(iter(known))
        known |= {"nowhere": self.nowhere} if self.nowhere else {}
        return ", ".join(f"{name} {percent(number, whole)}" for name, number in known.items()) or "–"


@dataclass(frozen=True, slots=True)
class ColumnStatus:
    """A column with statistics: its type in the index, where they came from, and their bytes."""

    json_names: ClassVar[Mapping[str, str]] = {"sizes": "bytes"}

    name: str
    type: pa.DataType
    origins: Origins
    sizes: Sizes


@dataclass(frozen=True, slots=True)
class SegmentStatus:
    """A segment: its files, those among them that are gone or have changed, and its bytes."""

    name: str
    files: int
    stale: int
    bytes: int
    written: float
    """Seconds since 1970."""


@dataclass(frozen=True, slots=True)
class BuildChoices:
    """The options of the last build, by names of columns."""

    columns: tuple[str, ...] = ()
    pages: bool = True
    blooms: tuple[str, ...] = ()
    own_blooms: bool = True
    """Whether bloom filters of the files are copied."""
    values: tuple[str, ...] = ()
    sums: tuple[str, ...] = ()
    sketches: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class IndexStatus(Reported):
    """An index beside the lake as it is listed."""

    view: ClassVar[str] = "skipstone.index.views:status_tree"

    json_names: ClassVar[Mapping[str, str]] = {"sizes": "bytes"}
    json_also: ClassVar[Mapping[str, str]] = {
        "exists": "exists",
        "unknown": "unknown",
        "next_step": "next_step",
    }

    lake: str
    place: str
    version: int
    """0 where there is no index, or none that can be read."""
    format: int
    written: float
    """When its version was committed, in seconds since 1970."""
    taken: float
    """When the status was taken."""
    files: int
    """Files of the lake."""
    covered: int
    """Files of the lake that the index covers."""
    stale: int
    """Entries of the index whose file is gone or has changed."""
    stale_such_as: tuple[str, ...]
    unknown_such_as: tuple[str, ...]
    segments: tuple[SegmentStatus, ...]
    sizes: Sizes
    columns: tuple[ColumnStatus, ...]
    data_bytes: int
    """Bytes of the lake's files."""
    old_bytes: int
    """Bytes of earlier versions, which are kept for a while for their readers."""
    asked: BuildChoices
    problems: tuple[str, ...]
    """Why parts of it are ignored."""

    @property
    def exists(self) -> bool:
        """Whether there is an index, even a damaged one."""
        return bool(self.version or self.problems)

    @property
    def unknown(self) -> int:
        """Files of the lake that the index doesn't cover."""
        return self.files - self.covered

    @property
    def next_step(self) -> str:
        """What to do about it; empty where there is nothing to do."""
        if not self.exists:
            return "build it: lake.index.build(), or skipstone index build"
        if self.problems:
            return "rebuild it: lake.index.build(rebuild=True), or skipstone index build --rebuild"
        # Entries that are stale cost some bytes until a merge leaves them out, and no answer.
        if self.unknown:
            return "refresh it: lake.index.refresh(), or skipstone index refresh"
        return ""

    def __getitem__(self, name: str) -> ColumnStatus:
        found = next((column for column in self.columns if column.name == name), None)
        if found is None:
            known = ", ".join(column.name for column in self.columns) or "none"
            raise KeyError(f"{name}: indexed columns are {known}")
        return found

    def to_json(self) -> dict[str, Any]:
        """The same as dicts, lists, strings and numbers."""
        found = record(self)
        del found["taken"]
        found["written"] = datetime.fromtimestamp(self.written, UTC).isoformat() if self.version else None
        found["asked"] = found["asked"] if self.version else None
        return found


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that could not be indexed; a query that needs it will say so."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class IndexReport(Reported):
    """What a build or a refresh did."""

    view: ClassVar[str] = "skipstone.index.views:build_tree"

    version: int
    """The index's version after it."""
    indexed: int
    """Files that were indexed."""
    kept: int
    """Files that were indexed already."""
    dropped: int
    """Indexed files that are gone or have changed."""
    adopted: int
    """Files of segments that an interrupted job or an older index left behind."""
    segments: int
    requests: int
    bytes: int
    seconds: float
    skipped: tuple[Skipped, ...] = ()
    merged: int = 0
    """Segments that were merged into others."""
