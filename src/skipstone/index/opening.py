"""Open an index: the newest manifest and its segments, matched with a lake's listing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from skipstone.engine.jobs import gather
from skipstone.errors import ReadError
from skipstone.index.container import BadIndex, Container, LocalFile, MemoryFile, RemoteFile
from skipstone.index.coverage import IndexCoverage
from skipstone.index.manifest import Manifest, SegmentNote, read_manifest
from skipstone.index.marks import marks_of
from skipstone.index.segment import Segment
from skipstone.lake.files import Files
from skipstone.lake.snapshot import Snapshot
from skipstone.parquet.naming import Naming
from skipstone.store.cache import Cache
from skipstone.store.source import ByteRange
from skipstone.store.store import ListedFile

# A remote segment up to this size is fetched in one request, which costs less than several.
_SMALL_SEGMENT: Final = 1024 * 1024


def open_coverage(
    lake: Snapshot, access: Files, listed: list[ListedFile] | ReadError, distrust: Callable[[BadIndex], None]
) -> IndexCoverage | None:
    """Open the index among listed files; None if there is none. A failed listing becomes a problem."""
    store = access.store
    try:
        if isinstance(listed, ReadError):
            raise listed
        try:
            manifest = read_manifest(store, listed)
        except ReadError:
            # A later commit has deleted the manifest since the lake was listed: use the newest one.
            listed = store.list_prefix("")
            manifest = read_manifest(store, listed)
        if not manifest.number:
            return None
        entries = {entry.key: entry for entry in listed}

        def open_or_explain(note: SegmentNote) -> Segment | str:
            entry = entries.get(note.name)
            if entry is None:
                return f"{note.name}: segment is missing"
            try:
                return open_segment(access, entry, note, lake.access.cache, lake.access.naming)
            except (BadIndex, ReadError) as error:
                return f"{note.name}: {_reason(error)}"

        results = gather(open_or_explain, manifest.segments, threads=access.threads)
        segments = [result for result in results if isinstance(result, Segment)]
        problems = [result for result in results if isinstance(result, str)]
    except (BadIndex, ReadError) as error:
        manifest, segments, problems = Manifest(), [], [_reason(error)]
    marks = marks_of(lake.entries, lake.index_naming)
    return IndexCoverage(manifest, lake.access, lake.entries, segments, problems, marks, distrust)


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None) or getattr(error, "message", None)
    return str(reason or error)


def open_segment(
    access: Files,
    entry: ListedFile,
    note: SegmentNote,
    cache: Cache[object, object],
    naming: Naming | None = None,
) -> Segment:
    """Open a listed segment of a manifest."""
    if entry.size != note.size:
        raise BadIndex(f"segment has {entry.size:,} bytes instead of {note.size:,}")
    container = Container.open(note.name, _bytes(access, entry), note.size, note.tail, cache)
    segment = Segment(container, naming)
    segment.prepare()
    return segment


def _bytes(access: Files, entry: ListedFile) -> LocalFile | RemoteFile | MemoryFile:
    store = access.store
    if store.local:
        return LocalFile(store.path(entry.key))
    if entry.size <= _SMALL_SEGMENT:
        return MemoryFile(access.source(entry).read_ranges([ByteRange(0, entry.size)])[0])
    return RemoteFile(entry.key, access.source(entry).read_ranges)


def adopt_segment(access: Files, entry: ListedFile, cache: Cache[object, object]) -> Segment:
    """Open a segment that is in no manifest."""
    return Segment(Container.open_alone(entry.key, _bytes(access, entry), entry.size, cache))
