"""Where data comes from: files that Spark can read, and which of them a lake has taken in already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from skipstone.errors import UsageError
from skipstone.lake.append import Source
from skipstone.lake.directory import is_visible
from skipstone.lake.journal import ingested
from skipstone.store.place import Listed, Place, open_place

FORMATS: Final = {
    "parquet": ("parquet",),
    "csv": ("csv", "tsv"),
    "json": ("json", "jsonl", "ndjson"),
    "orc": ("orc",),
}
"""Formats that Spark reads, and how names of such files end."""
_PACKED: Final = ("gz", "bz2", "zst", "zstd", "snappy", "lz4", "deflate")


@dataclass(frozen=True, slots=True)
class Sources:
    """The files of a source, by path: new ones, known ones, and those that have changed since."""

    place: Place
    format: str
    new: tuple[Listed, ...]
    known: int
    changed: tuple[str, ...]

    def uri(self, entry: Listed) -> str:
        """A file's name for Spark."""
        path = self.place.path(entry.key)
        return f"file://{path}" if self.place.local else path

    def noted(self, entries: Sequence[Listed]) -> list[Source]:
        """What the lake is to remember of files that were taken in."""
        return [_source(self.place, entry) for entry in entries]

    def batches(self, most: int) -> list[list[Listed]]:
        """The new files in runs of so many bytes, or one file."""
        found: list[list[Listed]] = []
        size = 0
        for entry in self.new:
            if not found or size + entry.size > most:
                found.append([])
                size = 0
            found[-1].append(entry)
            size += entry.size
        return found


def find_sources(
    source: Any, lake: Place, format: str | None = None, storage_options: dict[str, str] | None = None
) -> Sources:
    """List a source, and compare it with what the lake has taken in."""
    place, pattern = open_place(source, storage_options=storage_options)
    if f"{lake.uri}/".startswith(f"{place.uri}/") and not pattern:
        raise UsageError("the lake lies in its own source", path=lake.uri, hint="put it somewhere else")
    listed = [entry for entry in place.list() if is_visible(entry, pattern)]
    found = format or _format(place, listed)
    if found not in FORMATS:
        raise UsageError(f"there is no format {found!r}", hint=f"give one of {', '.join(FORMATS)}")
    done = ingested(lake)
    before = {one.uri: one for one in done}
    new, known, changed = [], 0, []
    for entry in listed:
        one = _source(place, entry)
        if one in done:
            known += 1
        elif one.uri in before:
            changed.append(one.uri)
        else:
            new.append(entry)
    return Sources(place, found, tuple(new), known, tuple(changed))


def _source(place: Place, entry: Listed) -> Source:
    return Source(place.path(entry.key), entry.size, repr(entry.version))


def _format(place: Place, listed: Sequence[Listed]) -> str:
    """The one format that the names of the files tell."""
    found = {_ending(entry.key) for entry in listed}
    if len(found) == 1 and None not in found:
        return str(found.pop())
    if not found:
        raise UsageError("there is no file in it", path=place.uri, hint="hidden and empty files don't count")
    words = ", ".join(sorted(one or "unknown" for one in found))
    raise UsageError(
        f"the files are of several formats: {words}", path=place.uri, hint="name one with format="
    )


def _ending(key: str) -> str | None:
    parts = key.rpartition("/")[2].lower().split(".")[1:]
    if parts and parts[-1] in _PACKED:
        parts.pop()
    return next((name for name, ends in FORMATS.items() if parts and parts[-1] in ends), None)
