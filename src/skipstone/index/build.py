"""Building and refreshing: files in groups of like size, one segment per group, then one commit.

A segment's name is made of the marks of its files and of what is recorded of them, so a task that runs again
writes the same file again, and a job that was interrupted finds what it has done.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np
from xxhash import xxh3_128_hexdigest

from skipstone.core.evidence import Array
from skipstone.errors import FileError, MissingFileError, ReadError, SchemaError
from skipstone.index.container import BadIndex, Container, Held
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
from skipstone.index.results import IndexReport, Skipped
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

# Groups are this many bytes of footers or, where values are read, of data, and at most so many files.
_GROUP_FILES: Final = 2_000
_GROUP_BYTES: Final = 512 * 1024 * 1024
_LEAST_GROUPS: Final = 8
_FOOTER_GUESS: Final = 64 * 1024
# More segments than this are merged; none grows beyond this many files or bytes.
MANY_SEGMENTS: Final = 4
_SEGMENT_FILES: Final = 1 << 20
_SEGMENT_BYTES: Final = 1 << 30
_TIER: Final = 4
# Footers of files that are recorded together have about as many bytes, and there are no more such files.
_TOGETHER_BYTES: Final = 4 * 1024 * 1024
_TOGETHER: Final = 128
_LIVE_SHARE: Final = 0.75
_TRIES: Final = 5

Progress = Callable[[int, int], None]
"""Is told how many files are done, of how many."""


@dataclass(frozen=True, slots=True)
class Group:
    """Work for one executor: the files of a segment to be."""

    lake: Store
    index: Store
    entries: tuple[ListedFile, ...]
    spec: Spec
    retry: RetryPolicy
    naming: Naming | None


@dataclass(frozen=True, slots=True)
class Indexed:
    """What became of a group; without a segment none of its files could be indexed."""

    segment: SegmentNote | None
    skipped: tuple[Skipped, ...]
    io: Io


# -- one group ---------------------------------------------------------------------------------


def index_group(group: Group) -> Indexed:
    """Read the files of a group and write their segment; runs wherever the engine runs it."""
    files = Files(group.lake, retry=group.retry, naming=group.naming)
    drafts: list[Draft] = []
    skipped: list[Skipped] = []
    waiting = list(group.entries)
    together = 1
    while waiting:
        entries, waiting = waiting[:together], waiting[together:]
        try:
            drafts.append(record_files(files, entries, group.spec))
            together = max(min(_TOGETHER_BYTES // files.footer(entries[0]).footer_size, _TOGETHER), 1)
        except (FileError, SchemaError) as error:
            if len(entries) > 1:
                # One by one, to leave out those that can't be indexed.
                waiting, together = entries + waiting, 1
                continue
            if isinstance(error, ReadError) and not isinstance(error, MissingFileError):
                raise  # the store, not the file: the task is tried again
            skipped.append(Skipped(files.path(entries[0]), error.message))
    note = None
    if drafts:
        draft = Draft.concat(drafts)
        note = write_segment(group.index, draft, group.spec.digest, own_blooms=group.spec.own_blooms)
    return Indexed(note, tuple(skipped), files.io())


def write_segment(store: Store, draft: Draft, spec: str, *, own_blooms: bool) -> SegmentNote:
    """Write a segment under the name that its content gives it."""
    parts, tail = draft.write(spec, own_blooms=own_blooms)
    types = types_digest((path, column.type) for path, column in draft.columns.items())
    name = f"segment-{xxh3_128_hexdigest(draft.marks.tobytes() + f'{spec} {types}'.encode())}.skip"
    store.write(name, parts)
    size = sum(map(len, parts))
    files, groups = len(draft), len(draft.group_rows)
    return SegmentNote(name, size, tail, files, files, groups, spec, types, time.time())


def segment_note(name: str, size: int, segment: Segment) -> SegmentNote:
    """What a manifest says of a segment, told from the segment itself."""
    types = types_digest((path, column.type) for path, column in segment.columns.items())
    tail, files = segment.container.tail, len(segment)
    return SegmentNote(name, size, tail, files, files, segment.groups, segment.spec, types, time.time())


def types_digest(columns: Iterable[tuple[Path, object]]) -> str:
    """Equal where the columns and their types are."""
    return xxh3_128_hexdigest(";".join(f"{path}:{type}" for path, type in columns).encode())


# -- the job -----------------------------------------------------------------------------------


@dataclass(slots=True)
class Job:
    """One build or refresh of the files that a lake's listing has."""

    lake: Files
    index: Store
    entries: Sequence[ListedFile]
    spec: Spec
    engine: Engine
    fresh: bool
    """Whether to do without what the index holds already."""
    progress: Progress | None = None
    memory: Cache[object, object] = field(default_factory=lambda: Cache(64 * 1024 * 1024))
    naming: Naming | None = None
    """How columns are called in the index, if not as in the files."""
    listed_at: float = 0.0
    """When the lake was listed: segments written since may hold files that the listing doesn't have."""

    def run(self) -> IndexReport:
        """Index what is missing, and commit it; again, if what the index builds on was deleted meanwhile."""
        for _ in range(_TRIES):
            report = self._once()
            there = {entry.key: entry for entry in self.index.list_prefix("")}
            # Of the newest manifest: another job may have adopted what this one has just deleted.
            if all(note.name in there for note in self._read(there).segments):
                break
        return report

    def _once(self) -> IndexReport:
        began = time.perf_counter()
        marks = marks_of(self.entries, self.naming)
        access = Files(self.index, retry=self.lake.retry)
        listed = {entry.key: entry for entry in self.index.list_prefix("")}
        before = self._read(listed)
        known = [] if self.fresh else self._open(access, listed, before.segments)
        place = _places(known, marks)
        adopted = self._adopt(access, listed, {note.name for note in before.segments}, marks[place < 0])
        missing = np.flatnonzero((place < 0) & (_places(adopted, marks) < 0))
        groups = self._groups(missing)
        done = self._map(groups, len(missing))
        notes = [found.segment for found in done if found.segment is not None]
        notes += [note for note, _ in adopted]
        manifest, dropped, merged = self._commit(access, notes, marks)
        skipped = tuple(one for found in done for one in found.skipped)
        kept = int((place >= 0).sum())
        return IndexReport(
            version=manifest.number,
            indexed=len(missing) - len(skipped),
            kept=kept,
            dropped=dropped,
            adopted=len(marks) - kept - len(missing),
            segments=len(manifest.segments),
            requests=sum(found.io.requests for found in done),
            bytes=sum(found.io.bytes for found in done),
            seconds=time.perf_counter() - began,
            skipped=skipped,
            merged=merged,
        )

    def _read(self, listed: dict[str, ListedFile]) -> Manifest:
        try:
            return read_manifest(self.index, listed.values())
        except (BadIndex, ReadError):
            return Manifest()

    def _open(
        self, access: Files, listed: dict[str, ListedFile], notes: Sequence[SegmentNote]
    ) -> list[tuple[SegmentNote, Segment]]:
        """Segments of this specification that can be read; others are made anew."""
        found = []
        for note in notes:
            entry = listed.get(note.name)
            if entry is None or note.spec != self.spec.digest:
                continue
            try:
                segment = open_segment(access, entry, note, self.memory)
                assert segment.marks is not None
                found.append((note, segment))
            except (BadIndex, ReadError):
                continue
        return found

    def _adopt(
        self, access: Files, listed: dict[str, ListedFile], named: set[str], wanted: Array
    ) -> list[tuple[SegmentNote, Segment]]:
        """Segments that a job wrote and did not live to commit, if all their files are wanted."""
        found: list[tuple[SegmentNote, Segment]] = []
        for key, entry in listed.items():
            if self.fresh or key in named or not is_segment(key) or not len(wanted):
                continue
            try:
                segment = adopt_segment(access, entry, self.memory)
                if segment.spec != self.spec.digest or (match(wanted, segment.marks) < 0).any():
                    continue
            except (BadIndex, ReadError):
                continue
            found.append((segment_note(key, entry.size, segment), segment))
            wanted = wanted[match(segment.marks, wanted) < 0]
        return found

    def _groups(self, missing: Array) -> list[Group]:
        """Runs of neighbouring files, of like weight, at least so many that every core has some."""
        if not len(missing):
            return []
        sizes = np.array([self.entries[number].size for number in missing.tolist()], dtype=np.int64)
        reads = any(getattr(self.spec, name) for name in LISTS)
        weights = sizes if reads else np.minimum(sizes, _FOOTER_GUESS)
        limit = min(_GROUP_BYTES, max(int(weights.sum()) // _LEAST_GROUPS, 1))
        places = np.cumsum(weights) - weights
        numbers = np.maximum.accumulate(np.maximum(places // limit, np.arange(len(missing)) // _GROUP_FILES))
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

    def _map(self, groups: list[Group], total: int) -> list[Indexed]:
        if not groups:
            return []
        ends = np.cumsum([len(group.entries) for group in groups])

        def told(done: int) -> None:
            if self.progress is not None and done:
                self.progress(int(ends[min(done, len(ends)) - 1]), total)

        return self.engine.map(index_group, groups, on_done=told)

    def _commit(self, access: Files, notes: list[SegmentNote], marks: Array) -> tuple[Manifest, int, int]:
        """Add segments, leave out those without a live file, and merge them if there are many.

        Whoever commits meanwhile goes first: what was merged is put in for its parts if all are still there.
        Returns what there is then, how many files were dropped, and how many segments merged.
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
            dropped = sum(note.live - live.get(note.name, 0) for note in old)
            segments = [*alive, *newer, *notes]
            if swaps is None:
                swaps = self._merge(access, listed, [*alive, *notes], marks)
            for group, note in swaps:
                if group <= {part.name for part in segments}:
                    segments = [*(part for part in segments if part.name not in group), note]
            if tuple(segments) == before.segments and before.spec == self.spec.told():
                return None
            return replace(before, segments=tuple(segments), spec=self.spec.told())

        # What was merged at once is left to the sweep: another job may be committing a segment of that name.
        after = commit(self.index, change)
        merged = sum(len(group) for group, note in swaps or () if note in after.segments)
        return after, dropped, merged

    def _live(
        self, access: Files, listed: dict[str, ListedFile], notes: Sequence[SegmentNote], marks: Array
    ) -> dict[str, int]:
        """How many files of each segment the listing has; of those made otherwise, and in a rebuild, none."""
        if self.fresh:
            return {}
        opened = self._open(access, listed, notes)
        return {note.name: int((match(marks, segment.marks) >= 0).sum()) for note, segment in opened}

    def _merge(
        self, access: Files, listed: dict[str, ListedFile], notes: Sequence[SegmentNote], marks: Array
    ) -> list[tuple[set[str], SegmentNote]]:
        """One segment for each group of small ones, and for one of which many files are gone."""
        alike = together(notes) if len(notes) > MANY_SEGMENTS else []
        taken = {note.name for group in alike for note in group}
        stale = [note for note in notes if note.name not in taken and note.live < _LIVE_SHARE * note.files]
        tasks, names = [], []
        for group in [*alike, *([note] for note in stale)]:
            opened = self._open(access, listed, group)
            if len(opened) < len(group):
                continue
            parts = tuple(
                (listed[note.name], note, np.packbits(match(marks, segment.marks) >= 0).tobytes())
                for note, segment in opened
            )
            tasks.append(Merge(self.index, parts, self.lake.retry))
            names.append({note.name for note in group})
        made = self.engine.map(merge_group, tasks) if tasks else []
        return [(group, note) for group, note in zip(names, made, strict=True) if note is not None]


# -- merging -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Merge:
    """Work for one executor: segments that become one."""

    index: Store
    parts: tuple[tuple[ListedFile, SegmentNote, bytes], ...]
    """Each with its rows that are still wanted, as bits."""
    retry: RetryPolicy


def merge_group(task: Merge) -> SegmentNote | None:
    """Write one segment instead of several, by path and without what is gone; None if one can't be read."""
    access = Files(task.index, retry=task.retry)
    cache: Cache[object, object] = Cache(0)
    drafts = []
    own_blooms = True
    try:
        for entry, note, bits in task.parts:
            # All of it is needed, so it is fetched in one go.
            body = access.source(entry).read_ranges([ByteRange(0, entry.size)])[0]
            segment = Segment(Container.open(note.name, Held(body), note.size, note.tail, cache))
            own_blooms = own_blooms and segment.own_blooms
            live = np.flatnonzero(np.unpackbits(np.frombuffer(bits, dtype=np.uint8), count=len(segment)))
            draft = segment.draft()
            drafts.append(draft if len(live) == len(draft) else draft.take(live))
    except (BadIndex, ReadError):
        return None
    whole = Draft.concat([draft for draft in drafts if len(draft)])
    order = np.array(sorted(range(len(whole)), key=whole.keys.__getitem__), dtype=np.int64)
    return write_segment(task.index, whole.take(order), task.parts[0][1].spec, own_blooms=own_blooms)


def together(notes: Sequence[SegmentNote]) -> list[list[SegmentNote]]:
    """Segments worth merging: alike, of about one size, and not too large together.

    A large segment is left alone until the small ones have grown, so that none is written again too often.
    """
    alike: dict[tuple[str, str], list[SegmentNote]] = {}
    for note in sorted(notes, key=lambda note: note.files):
        alike.setdefault((note.spec, note.types), []).append(note)
    found: list[list[SegmentNote]] = []
    for same in alike.values():
        bins: list[list[SegmentNote]] = [[]]
        for note in same:
            files, size = sum(n.files for n in bins[-1]), sum(n.size for n in bins[-1])
            apart = note.files > _TIER * files or files + note.files > _SEGMENT_FILES
            if bins[-1] and (apart or size + note.size > _SEGMENT_BYTES):
                bins.append([])
            bins[-1].append(note)
        found += [one for one in bins if len(one) > 1]
    return found


def _places(known: Sequence[tuple[SegmentNote, Segment]], marks: Array) -> Array:
    """For each mark the segment that has it, or -1."""
    found = np.full(len(marks), -1, dtype=np.int64)
    for number, (_, segment) in enumerate(known):
        found[match(segment.marks, marks) >= 0] = number
    return found
