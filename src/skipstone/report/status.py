"""What an index covers, how old and how large it is, and what it was asked to hold.

lake/.skipstone/events  version 3, format 1, written 2 days ago
├─ files  ███████████████████░  98 of 100 known
│     unknown  2 files: day=2026-01-05/part-2.parquet, day=2026-01-05/part-3.parquet
├─ size   █░░░░░░░░░░░░░░░░░░░  3.1 MB, 7 % of the lake's 44.6 MB
│     bloom filters  █████████████████░░░  2.6 MB (84 %)
│     pages          ███░░░░░░░░░░░░░░░░░  512.0 kB (17 %)
└─ asked  ts, user_id; down to pages; bloom filters that files have

column   type   known from  bounds    pages  filters    size
user_id  int64  page index  1.2 kB  40.1 kB   2.6 MB  2.7 MB
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from skipstone.report.lines import clean
from skipstone.report.units import count, percent, plural, size

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
SEGMENT_HEAD = ("segment", "files", "stale", "size")


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes by what they are for."""

    blocks: int = 0
    """Facts about blocks of files."""
    files: int = 0
    """Facts about files, and the order that they are searched by."""
    row_groups: int = 0
    pages: int = 0
    """Facts about pages."""
    blooms: int = 0
    sums: int = 0
    sketches: int = 0
    places: int = 0
    """Where row groups, chunks and pages are in the files."""
    names: int = 0
    """The files' names and versions, and the schemas that they share."""
    directories: int = 0
    """What finds all this in a segment, and checksums."""
    other: int = 0
    """What this version of Skipstone has no name for."""

    @property
    def total(self) -> int:
        """All of them."""
        return sum(getattr(self, field.name) for field in fields(self))

    def __add__(self, other: Sizes) -> Sizes:
        names = [field.name for field in fields(self)]
        return Sizes(**{name: getattr(self, name) + getattr(other, name) for name in names})

    def to_json(self) -> dict[str, int]:
        """The same by name, with their total."""
        return {**asdict(self), "total": self.total}


_WORDS = {
    "blocks": "blocks of files",
    "files": "files",
    "row_groups": "row groups",
    "pages": "pages",
    "blooms": "bloom filters",
    "sums": "sums",
    "sketches": "sketches",
    "places": "places of data",
    "names": "names of files",
    "directories": "directories",
    "other": "other",
}


@dataclass(frozen=True, slots=True)
class Origins:
    """How many files' facts about a column came from where."""

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
    """A column with facts: its type in the index, where they came from, and their bytes."""

    name: str
    type: pa.DataType
    origins: Origins
    sizes: Sizes

    def to_json(self) -> dict[str, Any]:
        """The same as strings and numbers."""
        return {
            "name": self.name,
            "type": str(self.type),
            "origins": asdict(self.origins),
            "bytes": self.sizes.to_json(),
        }


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
class Asked:
    """What the last build was asked for, by names of columns."""

    columns: tuple[str, ...] = ()
    pages: bool = True
    blooms: tuple[str, ...] = ()
    own_blooms: bool = True
    """Whether filters in the files are taken over."""
    values: tuple[str, ...] = ()
    sums: tuple[str, ...] = ()
    sketches: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()

    def __str__(self) -> str:
        named = {
            "values where footers don't tell, of": self.values,
            "bloom filters made for": self.blooms,
            "sums of": self.sums,
            "sketches of": self.sketches,
            "where ids count up, of": self.ids,
        }
        parts = [
            ", ".join(map(clean, self.columns)) or "no columns",
            "down to pages" if self.pages else "down to row groups",
            *([] if not self.own_blooms else ["bloom filters that files have"]),
            *(f"{what} {self._named(names)}" for what, names in named.items() if names),
        ]
        return "; ".join(parts)

    def _named(self, names: tuple[str, ...]) -> str:
        alike = len(names) > 1 and set(names) == set(self.columns)
        return "all of them" if alike else ", ".join(map(clean, names))


@dataclass(frozen=True, slots=True)
class IndexStatus:
    """An index beside the lake as it is listed."""

    lake: str
    place: str
    version: int
    """0 where there is no index, or none that can be read."""
    format: int
    written: float
    """When its version was committed, in seconds since 1970."""
    taken: float
    """When this was found out."""
    files: int
    """Files of the lake."""
    covered: int
    """Files of the lake that the index knows."""
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
    """Bytes of earlier versions, which are kept for a while for those who read them."""
    asked: Asked
    problems: tuple[str, ...]
    """Why parts of it are not used."""

    @property
    def exists(self) -> bool:
        """Whether there is an index, be it a damaged one."""
        return bool(self.version or self.problems)

    @property
    def unknown(self) -> int:
        """Files of the lake that the index doesn't know."""
        return self.files - self.covered

    @property
    def next_step(self) -> str:
        """What to do about it; empty where there is nothing to do."""
        if not self.exists:
            return "build it: lake.index.build(), or skipstone index build"
        if self.problems:
            return "build it anew: lake.index.build(rebuild=True), or skipstone index build --rebuild"
        # Entries that are stale cost some bytes until a merge leaves them out, and no answer.
        if self.unknown:
            return "refresh it: lake.index.refresh(), or skipstone index refresh"
        return ""

    def __getitem__(self, name: str) -> ColumnStatus:
        found = next((column for column in self.columns if column.name == name), None)
        if found is None:
            known = ", ".join(column.name for column in self.columns) or "no column"
            raise KeyError(f"{name}: there is an index of {known}")
        return found

    def to_json(self) -> dict[str, Any]:
        """Everything as dicts, lists, strings and numbers."""
        written = datetime.fromtimestamp(self.written, UTC).isoformat() if self.version else None
        return {
            "lake": self.lake,
            "place": self.place,
            "exists": self.exists,
            "version": self.version,
            "format": self.format,
            "written": written,
            "files": self.files,
            "covered": self.covered,
            "unknown": self.unknown,
            "unknown_such_as": list(self.unknown_such_as),
            "stale": self.stale,
            "stale_such_as": list(self.stale_such_as),
            "segments": [asdict(segment) for segment in self.segments],
            "bytes": self.sizes.to_json(),
            "data_bytes": self.data_bytes,
            "old_bytes": self.old_bytes,
            "columns": [column.to_json() for column in self.columns],
            "asked": asdict(self.asked) if self.version else None,
            "problems": list(self.problems),
            "next_step": self.next_step,
        }

    def __str__(self) -> str:
        from skipstone.report.status_text import draw_status

        return draw_status(self)

    def _repr_html_(self) -> str:
        from skipstone.report.status_html import status_to_html

        return status_to_html(self)


# -- words -------------------------------------------------------------------------------------


def ago(seconds: float) -> str:
    """How long something is past.

    >>> ago(0.4), ago(59), ago(150), ago(7_200), ago(200_000)
    ('just now', '59 s ago', '2 min ago', '2 h ago', '2 days ago')
    """
    # Clocks of two machines differ: what is to come has just been.
    if seconds < 1:
        return "just now"
    if seconds < _MINUTE:
        return f"{seconds:.0f} s ago" if seconds < _MINUTE - 1 else f"{_MINUTE - 1} s ago"
    if seconds < _HOUR:
        return f"{int(seconds // _MINUTE)} min ago"
    if seconds < 2 * _DAY:
        return f"{int(seconds // _HOUR)} h ago"
    return f"{plural(int(seconds // _DAY), 'day')} ago"


def about(status: IndexStatus) -> str:
    """Which version, and how old it is."""
    if not status.exists:
        return "there is no index"
    if not status.version:
        return "the index can't be used"
    age = ago(status.taken - status.written)
    return f"version {count(status.version)}, format {status.format}, written {age}"


def covers(status: IndexStatus) -> str:
    """How many files are known."""
    if not status.files:
        return "the lake has no files"
    return f"{count(status.covered)} of {count(status.files)} known"


def takes(status: IndexStatus) -> str:
    """Its bytes beside the lake's."""
    total = status.sizes.total
    share = percent(total, status.data_bytes)
    of = f", {share} of the lake's {size(status.data_bytes)}" if status.data_bytes else ""
    return f"{size(total)}{of}"


def kept_for_readers(status: IndexStatus) -> str:
    """What is left of earlier versions; empty where nothing is."""
    old = size(status.old_bytes) if status.old_bytes else ""
    return old and f"and {old} of earlier versions, kept for a while for those who read them"


def _such_as(number: int, noun: str, many: str, examples: Sequence[str]) -> str:
    said = ", ".join(map(clean, examples))
    joint = ": " if len(examples) == number else ", such as "
    return plural(number, noun, many) + (f"{joint}{said}" if said else "")


def misses(status: IndexStatus) -> list[tuple[str, str]]:
    """Files it doesn't know and entries it has in vain, as labels and values."""
    found = []
    if status.unknown and status.version:
        found.append(("unknown", _such_as(status.unknown, "file", "files", status.unknown_such_as)))
    if status.stale:
        found.append(("stale", _such_as(status.stale, "entry", "entries", status.stale_such_as)))
    return found


def levels(status: IndexStatus) -> list[tuple[str, int]]:
    """What its bytes are for, the largest first."""
    found = [(word, int(getattr(status.sizes, name))) for name, word in _WORDS.items()]
    return sorted((pair for pair in found if pair[1]), key=lambda pair: -pair[1])


def column_table(columns: Sequence[ColumnStatus]) -> tuple[list[str], list[list[str]]]:
    """Heads and cells; sums and sketches only where there are some."""
    extras = any(column.sizes.sums or column.sizes.sketches for column in columns)
    head = ["column", "type", "known from", "bounds", "pages", "filters", *["extras"] * extras, "size"]
    rows = []
    for column in columns:
        sizes = column.sizes
        numbers = [
            sizes.blocks + sizes.files + sizes.row_groups,
            sizes.pages + sizes.places,
            sizes.blooms,
            *[sizes.sums + sizes.sketches] * extras,
            sizes.total,
        ]
        texts = [column.name, str(column.type), str(column.origins)]
        rows.append([*texts, *(size(number) if number else "–" for number in numbers)])
    return head, rows


def segment_cells(segment: SegmentStatus) -> list[str]:
    """A segment as texts, below :data:`SEGMENT_HEAD`."""
    return [segment.name, count(segment.files), count(segment.stale), size(segment.bytes)]
