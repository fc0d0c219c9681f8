"""The manifest: which segments make up the index. One small file per version; the highest number stands.

A commit writes the next number and fails if somebody else has written it, so of two commits at once one wins
and the other starts again from what the winner left. Segments are never changed, and those that an earlier
manifest names stay for a while: readers are never blocked and never see half.
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
from skipstone.index.container import FORMAT, BadIndex
from skipstone.store.store import ListedFile, Store

_NAME: Final = re.compile(r"manifest-(\d{12,18})\.json")
_SEGMENT: Final = re.compile(r"segment-[0-9a-f]{32}\.skip")
_LEFT: Final = re.compile(r"\.[0-9a-f]{32}\.tmp")
ENTRIES: Final = re.compile(r"entries-(\d{12})\.skip")
"""What the manifests of a table say, and its number."""
_TRIES: Final = 100
_KEPT: Final = 4
# A segment that no manifest names may belong to a job that is still running.
_GRACE_SECONDS: Final = 24 * 3600
_SOON_SECONDS: Final = 3600


@dataclass(frozen=True, slots=True)
class SegmentNote:
    """One segment as the manifest knows it."""

    name: str
    size: int
    tail: int
    files: int
    live: int
    """Files of it that the lake still had at the last build or refresh."""
    groups: int
    spec: str
    """What was asked for when it was made; segments that differ in it are not merged."""
    types: str
    """The types of its columns, as a digest; segments that differ in it are not merged."""
    written: float
    """Seconds since 1970."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """One version of an index."""

    number: int = 0
    segments: tuple[SegmentNote, ...] = ()
    spec: dict[str, Any] = field(default_factory=dict)
    """What the last build asked for."""
    written: float = 0.0

    @property
    def files(self) -> int:
        """Files of all segments, those that are gone from the lake included."""
        return sum(segment.files for segment in self.segments)

    def encode(self) -> bytes:
        """As a file."""
        body = json.dumps(asdict(self), indent=1, sort_keys=True)
        return (
            f"skipstone index, format {FORMAT}, check {xxh3_64_hexdigest(body.encode())}\n{body}\n".encode()
        )

    @classmethod
    def decode(cls, data: bytes) -> Manifest:
        """Of a file; :class:`BadIndex` if it is damaged or of another format."""
        head, _, body = data.decode(errors="replace").partition("\n")
        found = re.fullmatch(r"skipstone index, format (\d+), check ([0-9a-f]{16})", head)
        if found is None:
            raise BadIndex("its manifest is damaged")
        if int(found[1]) != FORMAT:
            raise BadIndex(f"its format is {found[1]}, this version of Skipstone reads {FORMAT}")
        if xxh3_64_hexdigest(body.removesuffix("\n").encode()) != found[2]:
            raise BadIndex("its manifest is damaged")
        try:
            told = json.loads(body)
            manifest = cls(**{**told, "segments": tuple(SegmentNote(**note) for note in told["segments"])})
        except (ValueError, TypeError, KeyError) as error:
            raise BadIndex("its manifest is damaged") from error
        sizes = (n for s in manifest.segments for n in (s.size, s.tail, s.files, s.live, s.groups))
        numbers = [manifest.number, *sizes]
        if not all(type(number) is int and number >= 0 for number in numbers):
            raise BadIndex("its manifest makes no sense")
        return manifest


def manifest_name(number: int) -> str:
    """The file of one version."""
    return f"manifest-{number:012d}.json"


def latest(listed: Iterable[ListedFile]) -> tuple[int, ListedFile] | None:
    """The newest manifest among the files of an index, and its number."""
    found = [(int(name[1]), entry) for entry in listed if (name := _NAME.fullmatch(entry.key))]
    return max(found, key=lambda pair: pair[0], default=None)


def read_manifest(store: Store, listed: Iterable[ListedFile] | None = None) -> Manifest:
    """The newest manifest; an empty one if there is no index. :class:`BadIndex` if it can't be used."""
    newest = latest(store.list_prefix("") if listed is None else listed)
    if newest is None:
        return Manifest()
    number, entry = newest
    source = store.open(entry.key, version=entry.version, size=entry.size)
    manifest = Manifest.decode(source.tail(entry.size)[0])
    if manifest.number != number:
        raise BadIndex("its manifest is another version's")
    return manifest


def commit(store: Store, change: Callable[[Manifest], Manifest | None]) -> Manifest:
    """Apply ``change`` to the newest manifest until nobody has come in between; None changes nothing.

    A manifest that can't be read is replaced: its segments can't be found without it.
    """
    for _ in range(_TRIES):
        began, listed = time.monotonic(), store.list_prefix("")
        newest = latest(listed)
        try:
            before = read_manifest(store, listed)
        except ReadError:
            continue  # it was swept away since it was listed
        except BadIndex:
            before = Manifest(number=newest[0] if newest is not None else 0)
        changed = change(before)
        if changed is None:
            return before
        if time.monotonic() - began > _SOON_SECONDS / 2:
            # Others may have gone on, and swept away the number that would be taken now.
            continue
        after = Manifest(before.number + 1, changed.segments, changed.spec, time.time())
        try:
            store.write(manifest_name(after.number), [after.encode()], exclusive=True)
        except ConflictError:
            continue
        with suppress(FileError):  # what can't be swept now is swept next time
            sweep(store, after)
        return after
    raise ConflictError(
        f"{_TRIES} other commits came in between", path=store.uri, hint="try again when it is quiet"
    )


def sweep(store: Store, current: Manifest) -> None:
    """Delete manifests nobody reads any more, and segments that no manifest names and no job may want."""
    listed = store.list_prefix("")
    manifests = [(int(name[1]), entry) for entry in listed if (name := _NAME.fullmatch(entry.key))]
    # Not too soon: who has just listed may still read it, or be about to take the number after it.
    old = [e.key for number, e in manifests if number <= current.number - _KEPT and _age(e) > _SOON_SECONDS]
    named = named_segments(store, old)
    orphans = [e.key for e in listed if is_segment(e.key) and e.key not in named and is_old(e)]
    store.delete([*old, *orphans, *left_behind(listed)])


def left_behind(listed: Iterable[ListedFile]) -> list[str]:
    """What writers that were killed have left of files; no writer is at work on one of them any more."""
    return [entry.key for entry in listed if _LEFT.fullmatch(entry.key) and is_old(entry)]


def is_old(entry: ListedFile) -> bool:
    """Whether a file is so old that no job still wants it if no manifest names it."""
    return _age(entry) > _GRACE_SECONDS


def named_segments(store: Store, without: Collection[str] = ()) -> set[str]:
    """The segments that any manifest still names, but for some manifests."""
    named: set[str] = set()
    for entry in store.list_prefix(""):
        if is_manifest(entry.key) and entry.key not in without:
            with suppress(BadIndex, ReadError):
                body = store.open(entry.key, version=entry.version, size=entry.size).tail(entry.size)[0]
                named |= {segment.name for segment in Manifest.decode(body).segments}
    return named


def _age(entry: ListedFile) -> float:
    """Seconds since a file was written, as far as its store says; 0 where it doesn't."""
    version = entry.version
    if isinstance(version, tuple):
        return time.time() - float(version[1]) / 1e9
    modified = getattr(version, "modified", None)
    return 0.0 if modified is None else time.time() - float(modified.timestamp())


def is_manifest(key: str) -> bool:
    """Whether a file of an index is a manifest."""
    return _NAME.fullmatch(key) is not None


def is_entries(key: str) -> bool:
    """Whether a file of an index holds what the manifests of a table say."""
    return ENTRIES.fullmatch(key) is not None


def is_segment(key: str) -> bool:
    """Whether a file of an index is a segment."""
    return _SEGMENT.fullmatch(key) is not None
