"""The manifest lists the segments of an index: one small file per version; the highest number is current.

A commit writes the next number and fails if that file exists, so of two concurrent commits one wins and the
other retries on top of it. Segments are immutable, and those of earlier manifests are retained for a while:
readers are never blocked and never see a partial commit.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from xxhash import xxh3_64_hexdigest

from skipstone.errors import ConflictError, FileError, ReadError
from skipstone.index.container import FORMAT, BadIndex, parsing
from skipstone.index.spec import is_spec
from skipstone.store.store import ListedFile, Store

_NAME: Final = re.compile(r"manifest-(\d{12,18})\.json")
_SEGMENT: Final = re.compile(r"segment-[0-9a-f]{32}\.skip")
_TEMPORARY: Final = re.compile(r"\.[0-9a-f]{32}\.tmp")
ENTRIES: Final = re.compile(r"entries-(\d{12})\.skip")
"""Cached entries of a table's manifests, and their number."""
# Seconds since 1970 that can be shown as a date.
_LATEST: Final = 1e11
_TRIES: Final = 100
_RETAINED: Final = 4
# A segment in no manifest may belong to a running job.
_GRACE_SECONDS: Final = 24 * 3600
_SOON_SECONDS: Final = 3600


@dataclass(frozen=True, slots=True)
class SegmentNote:
    """The manifest's entry of a segment."""

    name: str
    size: int
    tail: int
    files: int
    live: int
    """Its files that were in the lake at the last build or refresh."""
    groups: int
    spec: str
    """Digest of its spec; only segments of one spec are merged."""
    types: str
    """Digest of its columns' types; only segments of the same types are merged."""
    written: float
    """Seconds since 1970."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """One version of an index."""

    number: int = 0
    segments: tuple[SegmentNote, ...] = ()
    spec: dict[str, Any] = field(default_factory=dict)
    """Options of the last build."""
    written: float = 0.0

    @property
    def files(self) -> int:
        """Number of files of all segments, including files deleted from the lake."""
        return sum(segment.files for segment in self.segments)

    def encode(self) -> bytes:
        """Serialize the manifest."""
        body = json.dumps(asdict(self), indent=1, sort_keys=True)
        return (
            f"skipstone index, format {FORMAT}, check {xxh3_64_hexdigest(body.encode())}\n{body}\n".encode()
        )

    @classmethod
    def decode(cls, data: bytes) -> Manifest:
        """Parse a manifest; :class:`BadIndex` if it is damaged or has another format."""
        head, _, body = data.decode(errors="replace").partition("\n")
        header = re.fullmatch(r"skipstone index, format (\d+), check ([0-9a-f]{16})", head)
        if header is None:
            raise BadIndex("manifest is damaged")
        if int(header[1]) != FORMAT:
            raise BadIndex(f"index has format {header[1]}; this version of Skipstone reads format {FORMAT}")
        if xxh3_64_hexdigest(body.removesuffix("\n").encode()) != header[2]:
            raise BadIndex("manifest is damaged")
        with parsing("manifest"):
            fields = json.loads(body)
            notes = tuple([SegmentNote(**note) for note in fields["segments"]])
            manifest = cls(**{**fields, "segments": notes})
        if not manifest._is_sound():
            raise BadIndex("manifest has invalid values")
        return manifest

    def _is_sound(self) -> bool:
        """Whether all values have their types, and names are those of segments."""
        numbers, times = [self.number], [self.written]
        texts: list[str] = []
        for note in self.segments:
            numbers += (note.size, note.tail, note.files, note.live, note.groups)
            texts += (note.name, note.spec, note.types)
            times += (note.written,)
        return (
            {*map(type, numbers)} == {int}
            and min(numbers) >= 0
            and {*map(type, texts)} <= {str}
            and all(map(_SEGMENT.fullmatch, texts[::3]))
            and {*map(type, times)} <= {int, float}
            and all([0 <= time < _LATEST for time in times])  # noqa: C419  # a list takes fewer calls
            and (self.spec == {} or is_spec(self.spec))
        )


def manifest_name(number: int) -> str:
    """Return the file name of a version."""
    return f"manifest-{number:012d}.json"


def latest(listed: Iterable[ListedFile]) -> tuple[int, ListedFile] | None:
    """Return the newest manifest among the files of an index, and its number."""
    manifests = [(int(name[1]), entry) for entry in listed if (name := _NAME.fullmatch(entry.key))]
    return max(manifests, key=lambda pair: pair[0], default=None)


def read_manifest(store: Store, listed: Iterable[ListedFile] | None = None) -> Manifest:
    """Read the newest manifest; an empty one if there is no index. :class:`BadIndex` if it is unusable."""
    newest = latest(store.list_prefix("") if listed is None else listed)
    if newest is None:
        return Manifest()
    number, entry = newest
    source = store.open(entry.key, version=entry.version, size=entry.size)
    manifest = Manifest.decode(source.tail(entry.size)[0])
    if manifest.number != number:
        raise BadIndex(f"manifest is of version {manifest.number}, not {number}")
    return manifest


def commit(store: Store, change: Callable[[Manifest], Manifest | None]) -> Manifest:
    """Commit ``change`` of the newest manifest, again after concurrent commits; None commits nothing.

    A manifest that can't be read is replaced: its segments are unreachable without it.
    """
    for _ in range(_TRIES):
        began, listed = time.monotonic(), store.list_prefix("")
        newest = latest(listed)
        try:
            before = read_manifest(store, listed)
        except ReadError:
            continue  # deleted since it was listed
        except BadIndex:
            before = Manifest(number=newest[0] if newest is not None else 0)
        changed = change(before)
        if changed is None:
            return before
        if time.monotonic() - began > _SOON_SECONDS / 2:
            # Later commits may already have swept the number that this one would write.
            continue
        after = Manifest(before.number + 1, changed.segments, changed.spec, time.time())
        try:
            store.write(manifest_name(after.number), [after.encode()], exclusive=True)
        except ConflictError:
            continue
        with suppress(FileError):  # the next commit sweeps again
            sweep(store, after)
        return after
    raise ConflictError(
        f"commit failed after {_TRIES} concurrent commits",
        path=store.uri,
        hint="retry when no other build is running",
    )


def sweep(store: Store, current: Manifest) -> None:
    """Delete old manifests, and old segments that are in no manifest."""
    listed = store.list_prefix("")
    manifests = [(int(name[1]), entry) for entry in listed if (name := _NAME.fullmatch(entry.key))]
    # After a delay: a process that has just listed may still read one, or be about to write the next number.
    last = current.number - _RETAINED
    old = [e.key for number, e in manifests if number <= last and _age(e) > _SOON_SECONDS]
    named = named_segments(store, old)
    orphans = [e.key for e in listed if is_segment(e.key) and e.key not in named and is_old(e)]
    store.delete([*old, *orphans, *leftovers(listed)])


def leftovers(listed: Iterable[ListedFile]) -> list[str]:
    """Return old temporary files of writers that were killed."""
    return [entry.key for entry in listed if _TEMPORARY.fullmatch(entry.key) and is_old(entry)]


def is_old(entry: ListedFile) -> bool:
    """Whether a file that is in no manifest is too old to belong to a running job."""
    return _age(entry) > _GRACE_SECONDS


def named_segments(store: Store, without: Collection[str] = ()) -> set[str]:
    """Return the segments of all manifests, except those in ``without``."""
    named: set[str] = set()
    for entry in store.list_prefix(""):
        if is_manifest(entry.key) and entry.key not in without:
            with suppress(BadIndex, ReadError):
                body = store.open(entry.key, version=entry.version, size=entry.size).tail(entry.size)[0]
                named |= {segment.name for segment in Manifest.decode(body).segments}
    return named


def _age(entry: ListedFile) -> float:
    """Seconds since a file was written; 0 if the store has no time."""
    version = entry.version
    if isinstance(version, tuple):
        return time.time() - float(version[1]) / 1e9
    modified = getattr(version, "modified", None)
    return 0.0 if modified is None else time.time() - float(modified.timestamp())


def is_manifest(key: str) -> bool:
    """Whether a file name is a manifest's."""
    return _NAME.fullmatch(key) is not None


def is_entries(key: str) -> bool:
    """Whether a file name is one of cached manifest entries."""
    return ENTRIES.fullmatch(key) is not None


def is_segment(key: str) -> bool:
    """Whether a file name is a segment's."""
    return _SEGMENT.fullmatch(key) is not None
