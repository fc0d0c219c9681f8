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

from skipstone.errors import FileError, ReadError, SchemaError
from skipstone.evidence import Array
from skipstone.index.container import BadIndex, Container, Fetched, Held, Mapped
from skipstone.index.draft import Draft
from skipstone.index.manifest import Manifest, SegmentNote, commit, is_segment, read_manifest
from skipstone.index.marks import marks_of, match
from skipstone.index.record import record_file
from skipstone.index.segment import Segment
from skipstone.index.spec import Path, Spec
from skipstone.lake.files import Files, Io
from skipstone.store.cache import Cache
from skipstone.store.place import Listed, Place
from skipstone.store.ranges import ByteRange
from skipstone.store.retry import RetryPolicy

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
_LIVE_SHARE: Final = 0.75

Progress = Callable[[int, int], None]
"""Is told how many files are done, of how many."""


@dataclass(frozen=True, slots=True)
class Group:
    """Work for one executor: the files of a segment to be."""

    lake: Place
    index: Place
    entries: tuple[Listed, ...]
    spec: Spec
    retry: RetryPolicy


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that could not be indexed; a query that needs it will say so."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Indexed:
    """What became of a group; without a segment none of its files could be indexed."""

    segment: SegmentNote | None
    skipped: tuple[Skipped, ...]
    io: Io


@dataclass(frozen=True, slots=True)
class Report:
    """What a build or a refresh did."""

    version: int
    """The index's version after it."""
    indexed: int
    """Files that were indexed."""
    kept: int
    """Files the index knew already."""
    dropped: int
    """Files it had that are gone, or have changed."""
    adopted: int
    """Files whose segments lay there already, as an interrupted job or an older index left them."""
    segments: int
    requests: int
    bytes: int
    seconds: float
    skipped: tuple[Skipped, ...] = ()
    merged: int = 0
    """Segments that were merged into others."""


# -- one group ---------------------------------------------------------------------------------


def index_group(group: Group) -> Indexed:
    """Read the files of a group and write their segment; runs wherever the engine runs it."""
    files = Files(group.lake, retry=group.retry)
    drafts: list[Draft] = []
    skipped: list[Skipped] = []
    for entry in group.entries:
        try:
            if files.footer(entry).has_secrets:
                skipped.append(Skipped(files.path(entry), "some of it is encrypted"))
                continue
            drafts.append(record_file(files, entry, group.spec))
        except (FileError, SchemaError) as error:
            if isinstance(error, ReadError) and not _settled(error):
                raise  # the store, not the file: the task is tried again
            skipped.append(Skipped(files.path(entry), error.message))
    note = (
        write_segment(group.index, Draft.concat(drafts), group.spec.digest, own_blooms=group.spec.own_blooms)
        if drafts
        else None
    )
    return Indexed(note, tuple(skipped), files.io())


def _settled(error: ReadError) -> bool:
    """Whether trying again is no use: the file is gone or another one."""
    return "no more" in error.message or "not the file" in error.message or "no such" in error.message


def write_segment(place: Place, draft: Draft, spec: str, *, own_blooms: bool) -> SegmentNote:
    """Write a segment under the name that its content gives it."""
    parts, tail = draft.write(spec, own_blooms=own_blooms)
    types = types_digest((path, column.type) for path, column in draft.columns.items())
    name = f"segment-{xxh3_128_hexdigest(draft.marks.tobytes() + f'{spec} {types}'.encode())}.skip"
    place.write(name, parts)
    size = sum(map(len, parts))
    return SegmentNote(name, size, tail, len(draft), len(draft.group_rows), spec, types, time.time())


def segment_note(name: str, size: int, segment: Segment) -> SegmentNote:
    """What a manifest says of a segment, told from the segment itself."""
    types = types_digest((path, column.type) for path, column in segment.columns.items())
    tail = segment.container.tail
    return SegmentNote(name, size, tail, len(segment), segment.groups, segment.spec, types, time.time())


def types_digest(columns: Iterable[tuple[Path, object]]) -> str:
    """Equal where the columns and their types are."""
    return xxh3_128_hexdigest(";".join(f"{path}:{type}" for path, type in columns).encode())


def open_segment(access: Files, entry: Listed, note: SegmentNote, cache: Cache[object, object]) -> Segment:
    """Open a segment that a manifest names, as it was listed."""
    if entry.size != note.size:
        raise BadIndex(f"it has {entry.size:,} bytes instead of {note.size:,}")
    return Segment(Container.open(note.name, _bytes(access, entry), note.size, note.tail, cache))


def _bytes(access: Files, entry: Listed) -> Mapped | Fetched:
    place = access.place
    if place.local:
        return Mapped(place.path(entry.key))
    return Fetched(entry.key, access.source(entry).read_ranges)


# -- the job -----------------------------------------------------------------------------------


@dataclass(slots=True)
class Job:
    """One build or refresh of the files that a lake's listing has."""

    lake: Files
    index: Place
    entries: Sequence[Listed]
    spec: Spec
    engine: Engine
    fresh: bool
    """Whether to do without what the index holds already."""
    progress: Progress | None = None
    memory: Cache[object, object] = field(default_factory=lambda: Cache(64 * 1024 * 1024))

    def run(self) -> Report:
        """Index what is missing, and commit it."""
        began = time.perf_counter()
        marks = marks_of(self.entries)
        access = Files(self.index, retry=self.lake.retry)
        listed = {entry.key: entry for entry in self.index.below("")}
        before = self._read(listed)
        known = [] if self.fresh else self._open(access, listed, before.segments)
        place = _places(known, marks)
        adopted = self._adopt(access, listed, {note.name for note in before.segments}, marks[place < 0])
        missing = np.flatnonzero((place < 0) & (_places(adopted, marks) < 0))
        groups = self._groups(missing)
        done = self._map(groups, len(missing))
        notes = [found.segment for found in done if found.segment is not None]
        notes += [note for note, _ in adopted]
        manifest, merged = self._commit(access, notes, marks)
        skipped = tuple(one for found in done for one in found.skipped)
        held = sum(note.files for note, _ in known)
        kept = int((place >= 0).sum())
        return Report(
            version=manifest.number,
            indexed=len(missing) - len(skipped),
            kept=kept,
            dropped=held - kept,
            adopted=len(marks) - kept - len(missing),
            segments=len(manifest.segments),
            requests=sum(found.io.requests for found in done),
            bytes=sum(found.io.bytes for found in done),
            seconds=time.perf_counter() - began,
            skipped=skipped,
            merged=merged,
        )

    def _read(self, listed: dict[str, Listed]) -> Manifest:
        try:
            return read_manifest(self.index, listed.values())
        except BadIndex:
            return Manifest()

    def _open(
        self, access: Files, listed: dict[str, Listed], notes: Sequence[SegmentNote]
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
        self, access: Files, listed: dict[str, Listed], named: set[str], wanted: Array
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
        reads = bool(self.spec.values or self.spec.blooms or self.spec.sums or self.spec.sketches)
        weights = sizes if reads else np.minimum(sizes, _FOOTER_GUESS)
        limit = min(_GROUP_BYTES, max(int(weights.sum()) // _LEAST_GROUPS, 1))
        places = np.cumsum(weights) - weights
        numbers = np.maximum.accumulate(np.maximum(places // limit, np.arange(len(missing)) // _GROUP_FILES))
        cuts = np.flatnonzero(np.diff(numbers)) + 1
        return [
            Group(
                self.lake.place,
                self.index,
                tuple(self.entries[number] for number in run.tolist()),
                self.spec,
                self.lake.retry,
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

    def _commit(self, access: Files, notes: list[SegmentNote], marks: Array) -> tuple[Manifest, int]:
        """Add segments, leave out those without a live file, and merge them if there are many.

        Whoever commits meanwhile goes first: what was merged is put in for its parts if all are still there.
        """
        swaps: list[tuple[list[SegmentNote], SegmentNote]] | None = None

        def change(before: Manifest) -> Manifest | None:
            nonlocal swaps
            listed = {entry.key: entry for entry in self.index.below("")}
            fresh = {note.name for note in notes}
            old = [note for note in before.segments if note.name not in fresh]
            alive = [] if self.fresh else [note for note, _ in self._alive(access, listed, old, marks)]
            segments = [*alive, *notes]
            if swaps is None:
                swaps = self._merge(access, listed, segments, marks)
            for group, note in swaps:
                if all(part in segments for part in group):
                    segments = [*(part for part in segments if part not in group), note]
            if tuple(segments) == before.segments and before.spec == self.spec.told():
                return None
            return replace(before, segments=tuple(segments), spec=self.spec.told())

        after = commit(self.index, change)
        named = {note.name for note in after.segments}
        # Nobody but this job has known of these.
        self.index.delete(note.name for note in notes if note.name not in named)
        return after, sum(len(group) for group, note in swaps or () if note.name in named)

    def _merge(
        self, access: Files, listed: dict[str, Listed], notes: Sequence[SegmentNote], marks: Array
    ) -> list[tuple[list[SegmentNote], SegmentNote]]:
        """One segment for each group of small ones."""
        live = {n.name: match(marks, s.marks) >= 0 for n, s in self._open(access, listed, notes)}
        readable = [note for note in notes if note.name in live]
        groups = together(readable) if len(readable) > MANY_SEGMENTS else []
        taken = {note.name for group in groups for note in group}
        # A segment with many files that are gone is written anew without them.
        groups += [
            [note] for note in readable if note.name not in taken and live[note.name].mean() < _LIVE_SHARE
        ]
        tasks = []
        for group in groups:
            parts = tuple((listed[n.name], n, np.packbits(live[n.name]).tobytes()) for n in group)
            tasks.append(Merge(self.index, parts, self.lake.retry))
        made = self.engine.map(merge_group, tasks) if tasks else []
        return [(group, note) for group, note in zip(groups, made, strict=True) if note is not None]

    def _alive(
        self, access: Files, listed: dict[str, Listed], notes: Sequence[SegmentNote], marks: Array
    ) -> list[tuple[SegmentNote, Segment]]:
        return [
            (note, segment)
            for note, segment in self._open(access, listed, notes)
            if (match(marks, segment.marks) >= 0).any()
        ]


def adopt_segment(access: Files, entry: Listed, cache: Cache[object, object]) -> Segment:
    """Open a segment that no manifest describes."""
    return Segment(Container.open_alone(entry.key, _bytes(access, entry), entry.size, cache))


# -- merging -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Merge:
    """Work for one executor: segments that become one."""

    index: Place
    parts: tuple[tuple[Listed, SegmentNote, bytes], ...]
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
