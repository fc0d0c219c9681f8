"""Build and refresh an index: groups of files become one segment each, then one commit adds them all.

A segment's name is a digest of its files' marks and of the spec, so a retried task writes the same file
again, and a new job adopts the segments of an interrupted one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np
from xxhash import xxh3_128_hexdigest

from skipstone.core.evidence import Array
from skipstone.engine.jobs import EngineChoice, EngineUse, check_stop
from skipstone.errors import ChangedFileError, FileError, MissingFileError, ReadError, SchemaError
from skipstone.index.container import BadIndex, Container, MemoryFile
from skipstone.index.draft import Draft
from skipstone.index.manifest import (
    Manifest,
    SegmentNote,
    commit,
    is_segment,
    read_manifest,
)
from skipstone.index.marks import marks_of, match
from skipstone.index.opening import adopt_segment, open_segment
from skipstone.index.record import record_files
from skipstone.index.results import IndexReport, SkippedFile
from skipstone.index.segment import Segment
from skipstone.index.spec import LISTS, Path, Spec
from skipstone.lake.files import Files, Io
from skipstone.parquet.naming import Naming
from skipstone.store.cache import Cache
from skipstone.store.retry import RetryPolicy
from skipstone.store.source import ByteRange
from skipstone.store.store import ListedFile, Store

if TYPE_CHECKING:
    from skipstone.engine.jobs import Engine

# Limits of a group: bytes of footers (of data if values are read), and files.
_GROUP_FILES: Final = 2_000
_GROUP_BYTES: Final = 512 * 1024 * 1024
_LEAST_GROUPS: Final = 8
_FOOTER_GUESS: Final = 64 * 1024
# Segments are merged if there are more than this, up to these numbers of files and bytes.
MANY_SEGMENTS: Final = 4
_SEGMENT_FILES: Final = 1 << 20
_SEGMENT_BYTES: Final = 1 << 30
_TIER: Final = 4
# Files recorded together: about this many bytes of footers, and at most so many files.
_TOGETHER_BYTES: Final = 4 * 1024 * 1024
_TOGETHER: Final = 128
_LIVE_SHARE: Final = 0.75
_TRIES: Final = 5

Progress = Callable[[int, int], None]
"""Called with the number of files done and the total."""


@dataclass(frozen=True, slots=True)
class Group:
    """A task: the files of one new segment."""

    lake: Store
    index: Store
    entries: tuple[ListedFile, ...]
    spec: Spec
    retry: RetryPolicy
    naming: Naming | None


@dataclass(frozen=True, slots=True)
class GroupResult:
    """The segment of a group, and files that could not be indexed; no segment if none could."""

    segment: SegmentNote | None
    skipped: tuple[SkippedFile, ...]
    io: Io


# -- one group ---------------------------------------------------------------------------------


def index_group(group: Group) -> GroupResult:
    """Read the files of a group and write their segment."""
    files = Files(group.lake, retry=group.retry, naming=group.naming)
    drafts: list[Draft] = []
    skipped: list[SkippedFile] = []
    waiting = list(group.entries)
    together = 1
    while waiting:
        check_stop()
        entries, waiting = waiting[:together], waiting[together:]
        try:
            drafts.append(record_files(files, entries, group.spec))
            together = max(min(_TOGETHER_BYTES // files.footer(entries[0]).footer_size, _TOGETHER), 1)
        except (FileError, SchemaError) as error:
            if len(entries) > 1:
                # Retry individually, to skip only the files that can't be indexed.
                waiting, together = entries + waiting, 1
                continue
            if isinstance(error, ReadError) and not isinstance(error, ChangedFileError | MissingFileError):
                raise  # a problem of the store, not of the file: the task is retried
            skipped.append(SkippedFile(files.path(entries[0]), error.message))
    note = None
    if drafts:
        draft = Draft.concat(drafts)
        note = write_segment(group.index, draft, group.spec.digest, own_blooms=group.spec.own_blooms)
    return GroupResult(note, tuple(skipped), files.io())


def write_segment(store: Store, draft: Draft, spec: str, *, own_blooms: bool) -> SegmentNote:
    """Write a segment; its name is a digest of its content."""
    parts, tail = draft.write(spec, own_blooms=own_blooms)
    types = types_digest((path, column.type) for path, column in draft.columns.items())
    name = f"segment-{xxh3_128_hexdigest(draft.marks.tobytes() + f'{spec} {types}'.encode())}.skip"
    store.write(name, parts)
    size = sum(map(len, parts))
    files, groups = len(draft), len(draft.group_rows)
    return SegmentNote(name, size, tail, files, files, groups, spec, types, time.time())


def segment_note(name: str, size: int, segment: Segment) -> SegmentNote:
    """Return the manifest entry of an open segment."""
    types = types_digest((path, column.type) for path, column in segment.columns.items())
    tail, files = segment.container.tail, len(segment)
    return SegmentNote(name, size, tail, files, files, segment.groups, segment.spec, types, time.time())


def types_digest(columns: Iterable[tuple[Path, object]]) -> str:
    """Return a digest of columns and their types."""
    return xxh3_128_hexdigest(";".join(f"{path}:{type}" for path, type in columns).encode())


# -- the job -----------------------------------------------------------------------------------


@dataclass(slots=True)
class Job:
    """One build or refresh for the files of a lake's listing."""

    lake: Files
    index: Store
    entries: Sequence[ListedFile]
    spec: Spec
    engine: EngineChoice
    fresh: bool
    """Whether to ignore the existing index."""
    progress: Progress | None = None
    memory: Cache[object, object] = field(default_factory=lambda: Cache(64 * 1024 * 1024))
    naming: Naming | None = None
    """Column names in the index, if they differ from the files'."""
    listed_at: float = 0.0
    """When the lake was listed: later segments may have files that the listing lacks."""

    def run(self) -> IndexReport:
        """Index missing files and commit; repeat if a concurrent job has deleted committed segments."""
        for _ in range(_TRIES):
            report = self._run_once()
            files = {entry.key: entry for entry in self.index.list_prefix("")}
            # In the newest manifest: another job may have adopted what this one has just deleted.
            if all(note.name in files for note in self._read(files).segments):
                break
        return report

    def _run_once(self) -> IndexReport:
        began = time.perf_counter()
        marks = marks_of(self.entries, self.naming)
        access = Files(self.index, retry=self.lake.retry)
        listed = {entry.key: entry for entry in self.index.list_prefix("")}
        before = self._read(listed)
        current = [] if self.fresh else self._open(access, listed, before.segments)
        covered = _is_covered(current, marks)
        adopted = self._adopt(access, listed, {note.name for note in before.segments}, marks[~covered])
        missing = np.flatnonzero(~covered & ~_is_covered(adopted, marks))
        groups = self._groups(missing)
        choice = self.engine.for_input(sum([entry.size for group in groups for entry in group.entries]))
        with choice.open() as engine:
            results = self._map(engine, groups, len(missing))
            notes = [result.segment for result in results if result.segment is not None]
            notes += [note for note, _ in adopted]
            manifest, dropped, merged = self._commit(engine, access, notes, marks)
        skipped = tuple(file for result in results for file in result.skipped)
        already_indexed = int(covered.sum())
        return IndexReport(
            version=manifest.number,
            indexed=len(missing) - len(skipped),
            already_indexed=already_indexed,
            dropped=dropped,
            adopted=len(marks) - already_indexed - len(missing),
            segments=len(manifest.segments),
            requests=sum(result.io.requests for result in results),
            bytes=sum(result.io.bytes for result in results),
            seconds=time.perf_counter() - began,
            skipped=skipped,
            merged=merged,
            engine=EngineUse(engine.name, choice.reason).compared(files=len(missing)),
        )

    def _read(self, listed: dict[str, ListedFile]) -> Manifest:
        try:
            return read_manifest(self.index, listed.values())
        except (BadIndex, ReadError):
            return Manifest()

    def _open(
        self,
        access: Files,
        listed: dict[str, ListedFile],
        notes: Sequence[SegmentNote],
        *,
        any_spec: bool = False,
    ) -> list[tuple[SegmentNote, Segment]]:
        """Open the readable segments of this spec, or of any; all others are built again."""
        segments = []
        for note in notes:
            entry = listed.get(note.name)
            if entry is None or (note.spec != self.spec.digest and not any_spec):
                continue
            try:
                segment = open_segment(access, entry, note, self.memory)
                assert segment.marks is not None
                segments.append((note, segment))
            except (BadIndex, ReadError):
                continue
        return segments

    def _adopt(
        self, access: Files, listed: dict[str, ListedFile], named: set[str], wanted: Array
    ) -> list[tuple[SegmentNote, Segment]]:
        """Open segments that no job has committed, if all of their files are wanted."""
        segments: list[tuple[SegmentNote, Segment]] = []
        for key, entry in listed.items():
            if self.fresh or key in named or not is_segment(key) or not len(wanted):
                continue
            try:
                segment = adopt_segment(access, entry, self.memory)
                if segment.spec != self.spec.digest or (match(wanted, segment.marks) < 0).any():
                    continue
            except (BadIndex, ReadError):
                continue
            segments.append((segment_note(key, entry.size, segment), segment))
            wanted = wanted[match(segment.marks, wanted) < 0]
        return segments

    def _groups(self, missing: Array) -> list[Group]:
        """Split the missing files into runs of about equal weight, enough of them for every core."""
        if not len(missing):
            return []
        sizes = np.array([self.entries[number].size for number in missing.tolist()], dtype=np.int64)
        reads = any(getattr(self.spec, name) for name in LISTS)
        weights = sizes if reads else np.minimum(sizes, _FOOTER_GUESS)
        limit = min(_GROUP_BYTES, max(int(weights.sum()) // _LEAST_GROUPS, 1))
        starts = np.cumsum(weights) - weights
        numbers = np.maximum.accumulate(np.maximum(starts // limit, np.arange(len(missing)) // _GROUP_FILES))
        cuts = np.flatnonzero(np.diff(numbers)) + 1
        return [
            Group(
                self.lake.store,
                self.index,
                tuple(self.entries[number] for number in run.tolist()),
                self.spec,
                self.lake.retry,
                self.naming,
            )
            for run in np.split(missing, cuts)
        ]

    def _map(self, engine: Engine, groups: list[Group], total: int) -> list[GroupResult]:
        if not groups:
            return []
        ends = np.cumsum([len(group.entries) for group in groups])

        def on_done(done: int) -> None:
            if self.progress is not None and done:
                self.progress(int(ends[min(done, len(ends)) - 1]), total)

        return engine.map(index_group, groups, on_done=on_done)

    def _commit(
        self, engine: Engine, access: Files, notes: list[SegmentNote], marks: Array
    ) -> tuple[Manifest, int, int]:
        """Add segments, drop those without a live file, and merge if there are many.

        After a concurrent commit, a merged segment replaces its parts only if all of them are still in the
        manifest. Return the new manifest, the number of files dropped and the number of segments merged.
        """
        swaps: list[tuple[set[str], SegmentNote]] | None = None
        dropped = 0

        def change(before: Manifest) -> Manifest | None:
            nonlocal swaps, dropped
            listed = {entry.key: entry for entry in self.index.list_prefix("")}
            fresh = {note.name for note in notes}
            others = [note for note in before.segments if note.name not in fresh]
            newer = [note for note in others if note.written > self.listed_at]
            old = [note for note in others if note not in newer]
            live = self._live(access, listed, old, marks)
            alive = [replace(note, live=live[note.name]) for note in old if live.get(note.name)]
            dropped = 0
            if sum(note.live for note in old) > sum(live.values()):
                dropped = self._gone(access, listed, old, marks)
            segments = [*alive, *newer, *notes]
            if swaps is None:
                swaps = self._merge(engine, access, listed, [*alive, *notes], marks)
            for group, note in swaps:
                if group <= {part.name for part in segments}:
                    segments = [*(part for part in segments if part.name not in group), note]
            if tuple(segments) == before.segments and before.spec == self.spec.to_json():
                return None
            return replace(before, segments=tuple(segments), spec=self.spec.to_json())

        # Merged segments are left to the sweep: another job may be committing a segment of the same name.
        after = commit(self.index, change)
        merged = sum(len(group) for group, note in swaps or () if note in after.segments)
        return after, dropped, merged

    def _gone(
        self, access: Files, listed: dict[str, ListedFile], notes: Sequence[SegmentNote], marks: Array
    ) -> int:
        """Count the files of segments that were deleted or have changed, each once.

        Segments of another spec may have the same files.
        """
        lost, gone = 0, set[tuple[int, ...]]()
        for note, segment in self._open(access, listed, notes, any_spec=True):
            left = match(marks, segment.marks) >= 0
            lost += max(note.live - int(left.sum()), 0)
            gone.update(map(tuple, segment.marks[~left].tolist()))
        return min(lost, len(gone))

    def _live(
        self, access: Files, listed: dict[str, ListedFile], notes: Sequence[SegmentNote], marks: Array
    ) -> dict[str, int]:
        """Count the live files per segment; none for segments of another spec, or in a rebuild."""
        if self.fresh:
            return {}
        opened = self._open(access, listed, notes)
        return {note.name: int((match(marks, segment.marks) >= 0).sum()) for note, segment in opened}

    def _merge(
        self,
        engine: Engine,
        access: Files,
        listed: dict[str, ListedFile],
        notes: Sequence[SegmentNote],
        marks: Array,
    ) -> list[tuple[set[str], SegmentNote]]:
        """Merge groups of small segments, and rewrite segments with many deleted files."""
        groups = merge_groups(notes) if len(notes) > MANY_SEGMENTS else []
        grouped = {note.name for group in groups for note in group}
        stale = [note for note in notes if note.name not in grouped and note.live < _LIVE_SHARE * note.files]
        tasks, names = [], []
        for group in [*groups, *([note] for note in stale)]:
            opened = self._open(access, listed, group)
            if len(opened) < len(group):
                continue
            parts = tuple(
                (listed[note.name], note, np.packbits(match(marks, segment.marks) >= 0).tobytes())
                for note, segment in opened
            )
            tasks.append(Merge(self.index, parts, self.lake.retry))
            names.append({note.name for note in group})
        merged = engine.map(merge_group, tasks) if tasks else []
        return [(group, note) for group, note in zip(names, merged, strict=True) if note is not None]


# -- merging -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Merge:
    """A task: segments that become one."""

    index: Store
    parts: tuple[tuple[ListedFile, SegmentNote, bytes], ...]
    """Segments, each with a bitmap of its live rows."""
    retry: RetryPolicy


def merge_group(task: Merge) -> SegmentNote | None:
    """Merge segments, sorted by path and without deleted files; None if a segment can't be read."""
    access = Files(task.index, retry=task.retry)
    cache: Cache[object, object] = Cache(0)
    drafts = []
    own_blooms = True
    try:
        for entry, note, bits in task.parts:
            # The full segment is needed, so it is fetched in one request.
            body = access.source(entry).read_ranges([ByteRange(0, entry.size)])[0]
            segment = Segment(Container.open(note.name, MemoryFile(body), note.size, note.tail, cache))
            own_blooms = own_blooms and segment.own_blooms
            live = np.flatnonzero(np.unpackbits(np.frombuffer(bits, dtype=np.uint8), count=len(segment)))
            draft = segment.draft()
            drafts.append(draft if len(live) == len(draft) else draft.take(live))
    except (BadIndex, ReadError):
        return None
    merged = Draft.concat([draft for draft in drafts if len(draft)])
    order = np.array(sorted(range(len(merged)), key=merged.keys.__getitem__), dtype=np.int64)
    return write_segment(task.index, merged.take(order), task.parts[0][1].spec, own_blooms=own_blooms)


def merge_groups(notes: Sequence[SegmentNote]) -> list[list[SegmentNote]]:
    """Group segments to merge: of one spec, about one size, and not too large in total.

    A large segment waits until the small ones have grown, so that no segment is rewritten too often.
    """
    by_spec: dict[tuple[str, str], list[SegmentNote]] = {}
    for note in sorted(notes, key=lambda note: note.files):
        by_spec.setdefault((note.spec, note.types), []).append(note)
    groups: list[list[SegmentNote]] = []
    for same in by_spec.values():
        bins: list[list[SegmentNote]] = [[]]
        for note in same:
            files, size = sum(n.files for n in bins[-1]), sum(n.size for n in bins[-1])
            apart = note.files > _TIER * files or files + note.files > _SEGMENT_FILES
            if bins[-1] and (apart or size + note.size > _SEGMENT_BYTES):
                bins.append([])
            bins[-1].append(note)
        groups += [group for group in bins if len(group) > 1]
    return groups


def _is_covered(segments: Sequence[tuple[SegmentNote, Segment]], marks: Array) -> Array:
    """For each mark, whether a segment has it."""
    covered = np.zeros(len(marks), dtype=bool)
    for _, segment in segments:
        covered |= match(segment.marks, marks) >= 0
    return covered
