"""What pruning did and why, as data: units in, what dropped them, units kept, what it cost."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

_MAX_NOTES = 100


class Cause(enum.StrEnum):
    """The kind of evidence that dropped a unit."""

    CONSTANT = "constant"
    PARTITION = "partition"
    BOUNDS = "bounds"
    NULLS = "nulls"
    BLOOM = "bloom"
    DICTIONARY = "dictionary"
    PAGE = "page"


@dataclass(frozen=True, slots=True)
class Drop:
    """Units dropped for one reason: the evidence, and the condition it refuted."""

    cause: Cause
    condition: str
    units: int


@dataclass(frozen=True, slots=True)
class Level:
    """One level of the cascade."""

    json_names: ClassVar[Mapping[str, str]] = {"whole": "proven"}
    json_also: ClassVar[Mapping[str, str]] = {"dropped": "dropped"}

    name: str
    units: int
    kept: int
    whole: int
    """Kept units in which every row is proven to match."""
    rows: int | None
    """Rows left after this level; None where no footer was read yet."""
    drops: tuple[Drop, ...] = ()
    requests: int = 0
    bytes: int = 0

    @property
    def dropped(self) -> int:
        """Units this level dropped."""
        return self.units - self.kept


@dataclass(frozen=True, slots=True)
class Note:
    """Metadata that could not be used: where, and why it was ignored."""

    unit: str
    reason: str


@dataclass(frozen=True, slots=True)
class Trace:
    """The whole cascade over one file."""

    json_names: ClassVar[Mapping[str, str]] = {"rows": "rows_total", "rows_whole": "rows_proven"}
    json_also: ClassVar[Mapping[str, str]] = {"requests": "requests", "bytes": "bytes"}

    path: str
    predicate: str
    rows: int
    rows_kept: int
    rows_whole: int
    levels: tuple[Level, ...]
    notes: tuple[Note, ...] = ()
    unsupported: tuple[str, ...] = ()

    @property
    def requests(self) -> int:
        """Reads of metadata, over all levels."""
        return sum(level.requests for level in self.levels)

    @property
    def bytes(self) -> int:
        """Bytes of metadata read, over all levels."""
        return sum(level.bytes for level in self.levels)

    def level(self, name: str) -> Level | None:
        """The level of that name, if the cascade reached it."""
        return next((level for level in self.levels if level.name == name), None)


class Notes:
    """Collects notes, each once, and no more than a bounded number."""

    __slots__ = ("_notes", "_suppressed")

    def __init__(self) -> None:
        self._notes: dict[Note, None] = {}
        self._suppressed = 0

    def add(self, unit: str, reason: str) -> None:
        """Record that something was ignored."""
        note = Note(unit, reason)
        if note in self._notes:
            return
        if len(self._notes) < _MAX_NOTES:
            self._notes[note] = None
        else:
            self._suppressed += 1

    def done(self) -> tuple[Note, ...]:
        """The notes, with a last one that counts those left out."""
        more = (Note("file", f"{self._suppressed} more notes like these"),) if self._suppressed else ()
        return (*self._notes, *more)
