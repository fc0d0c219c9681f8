"""The write-ahead log of a tail: Arrow record batches as frames with checksums, in segment files.

A segment is named after its first frame, ``00000000000000000001.wal``. It begins with a header: magic bytes,
the length and the checksum of a JSON document, and that document, with the schema of its rows. Frames follow,
numbered consecutively over all segments:

    marker    8 bytes  random, the same for all frames of a segment
    length    4        bytes of the payload
    kind      4        rows, or the keys of deleted rows
    number    8
    synced    8        the last frame that was on disk when this one was written
    checksum  8        XXH3 of all of the above and of the payload
    payload            an IPC message

A log that was not closed can end in a torn frame, which is cut off. After a power failure it can also have
a hole in frames that were not yet synced: nothing after it was acknowledged as durable, so it is the end,
too. A frame that had been synced and is damaged or missing is an error. Which ones were synced is known from
later frames, from the state of a log that was closed, and from a mark beside the segments: the number of the
last synced frame and a checksum, 8 bytes each, written after every sync and never synced itself. So the mark
is exact after the end of a process; after a power failure it can be older, or missing, which claims less.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import shutil
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal

import pyarrow as pa
from xxhash import xxh3_64, xxh3_64_intdigest

from skipstone.errors import CorruptFileError, SkipstoneError, WriteError
from skipstone.store.local import LocalStore, sync_directory, sync_file, write_error

SyncPolicy = Literal["every", "interval", "off"]
OnDamage = Literal["error", "drop"]
ON_DAMAGE: Final[tuple[OnDamage, ...]] = ("error", "drop")
POLICIES: Final[tuple[SyncPolicy, ...]] = ("every", "interval", "off")

SUFFIX: Final = ".wal"
DAMAGED: Final = ".damaged"
"""Appended to the names of files that were dropped because of damage."""
SEGMENT_BYTES: Final = 64 << 20
"""Segments of this size are closed."""
INTERVAL: Final = 0.1
"""Seconds between syncs with the policy ``interval``."""
_MAGIC: Final = b"SKIPWAL1"
_HEADER: Final = struct.Struct("<8sIQ")
_FRAME: Final = struct.Struct("<8sIIQQ")
_CHECKSUM: Final = struct.Struct("<Q")
_HEAD: Final = _FRAME.size + _CHECKSUM.size
_MARKER: Final = 8
MARK: Final = "synced"
"""The file with the number of the last synced frame."""
_MARK: Final = struct.Struct("<QQ")
LONGEST: Final = (1 << 31) - 1
"""Bytes of the largest payload."""


class Kind(IntEnum):
    """What a frame holds."""

    ROWS = 1
    KEYS = 2
    """Keys whose rows are deleted."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One acknowledged call."""

    number: int
    kind: Kind
    rows: pa.RecordBatch
    keys: tuple[str, ...]
    """The key columns when it was written."""


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """What the frames of a segment belong to."""

    tail: str
    """Id of the tail."""
    first: int
    """Number of its first frame."""
    schema: pa.Schema
    keys: tuple[str, ...]
    marker: bytes

    def encode(self) -> bytes:
        """Serialize."""
        document = {
            "tail": self.tail,
            "first": self.first,
            "keys": self.keys,
            "marker": self.marker.hex(),
            "schema": base64.b64encode(self.schema.serialize()).decode(),
        }
        body = json.dumps(document).encode()
        return _HEADER.pack(_MAGIC, len(body), xxh3_64_intdigest(body)) + body

    def columns(self, kind: Kind) -> pa.Schema:
        """The schema of frames of a kind."""
        return self.schema if kind is Kind.ROWS else pa.schema([self.schema.field(one) for one in self.keys])


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment file, as far as it is intact."""

    path: Path
    header: SegmentHeader
    frames: tuple[tuple[Kind, int, int], ...]
    """Kind, offset and length of the payloads."""
    good: int
    """Bytes up to the end of the last good frame."""
    size: int
    data: bytes

    @property
    def first(self) -> int:
        """Number of the first frame."""
        return self.header.first

    @property
    def last(self) -> int:
        """Number of the last frame; one less than ``first`` if there is none."""
        return self.first + len(self.frames) - 1

    def read(self, after: int = 0) -> Iterator[Frame]:
        """The frames with larger numbers."""
        for number in range(max(after + 1 - self.first, 0), len(self.frames)):
            yield self.frame(number)

    def frame(self, at: int) -> Frame:
        """One of the frames, by its place in the segment."""
        kind, start, length = self.frames[at]
        number = self.first + at
        try:
            body = pa.py_buffer(self.data).slice(start, length)
            rows = pa.ipc.read_record_batch(body, self.header.columns(kind))
            # Lengths and offsets, too: what a wrong one leads to can't be caught.
            rows.validate(full=True)
        except (pa.ArrowException, OSError) as error:
            raise _damaged(self.path, f"frame {number} is not a record batch: {error}") from error
        return Frame(number, kind, rows, self.header.keys)


# -- reading -----------------------------------------------------------------------------------


def segment_paths(folder: Path) -> list[Path]:
    """The segment files of a log, oldest first."""
    return sorted(path for path in folder.glob(f"*{SUFFIX}") if path.stem.isdecimal())


def read_segments(folder: Path, tail: str, floor: int = 0, durable: int = 0) -> list[Segment]:
    """Read the segments with frames after the ``floor``, and check that none of these frames is missing.

    All frames up to the ``durable`` one are on disk: if one of them can't be read, the log is damaged.
    """
    durable = max(durable, read_mark(folder, tail))
    paths = [path for path in segment_paths(folder) if path not in old_segments(folder, floor)]
    segments: list[Segment] = []
    for path in paths:
        segment = read_segment(path, last=path == paths[-1], durable=durable)
        if segment.header.tail != tail:
            raise _damaged(path, f"segment belongs to the tail {segment.header.tail}, not to {tail}")
        if segments and segment.first != segments[-1].last + 1:
            missing = f"{segments[-1].last + 1} to {segment.first - 1}"
            raise _damaged(path, f"frames {missing} are missing before this segment")
        segments.append(segment)
    first, end = (segments[0].first, segments[-1].last) if segments else (floor + 1, floor)
    if first > floor + 1 or end < durable:
        missing = f"{floor + 1} to {first - 1}" if first > floor + 1 else f"{end + 1} to {durable}"
        raise _damaged(paths[0] if paths else folder, f"frames {missing} are missing")
    return segments


def read_mark(folder: Path, tail: str) -> int:
    """The last frame that the mark says was synced; 0 without a mark, or if it is invalid."""
    path = folder / MARK
    try:
        number, checksum = _MARK.unpack(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, struct.error):
        return 0
    except OSError as error:
        raise write_error(error, path) from error
    return int(number) if checksum == _mark_digest(tail, number) else 0


def mark_of(tail: str, number: int) -> bytes:
    """The content of a mark."""
    return _MARK.pack(number, _mark_digest(tail, number))


def _mark_digest(tail: str, number: int) -> int:
    return int(xxh3_64_intdigest(f"{tail}:{number}".encode()))


def old_segments(folder: Path, floor: int) -> list[Path]:
    """The segments that later ones follow and that have no frame after the ``floor``, oldest first."""
    paths = segment_paths(folder)
    return [path for path, after in pairwise(paths) if int(after.stem) <= floor + 1]


def read_segment(path: Path, *, last: bool, durable: int = 0, salvage: bool = False) -> Segment:
    """Read a segment; only the ``last`` one of a log can end in a torn frame, after the ``durable`` ones.

    With ``salvage`` it can end in any damage.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise write_error(error, path) from error
    header, at = _read_header(path, data)
    frames: list[tuple[Kind, int, int]] = []
    while at < len(data):
        number = header.first + len(frames)
        frame = _frame_at(data, at, header.marker, number)
        if frame is None:
            if not salvage:
                _check_torn(path, data, at, header.marker, number, last=last, durable=durable)
            break
        kind, start, length, _ = frame
        frames.append((kind, start, length))
        at = start + length
    return Segment(path, header, tuple(frames), at, len(data), data)


def _read_header(path: Path, data: bytes) -> tuple[SegmentHeader, int]:
    try:
        magic, length, checksum = _HEADER.unpack_from(data)
        body = data[_HEADER.size : _HEADER.size + length]
        if (magic, len(body), xxh3_64_intdigest(body)) != (_MAGIC, length, checksum):
            raise ValueError
        document = json.loads(body)
        header = SegmentHeader(
            document["tail"],
            document["first"],
            pa.ipc.read_schema(pa.py_buffer(base64.b64decode(document["schema"]))),
            tuple(document["keys"]),
            bytes.fromhex(document["marker"]),
        )
    except (ValueError, KeyError, TypeError, OSError, struct.error, pa.ArrowException) as error:
        # Segments get their names when their headers are on disk.
        raise _damaged(path, "segment has no valid header") from error
    if header.first != int(path.stem):
        raise _damaged(path, f"segment begins with frame {header.first}, which its name contradicts")
    return header, _HEADER.size + length


def _frame_at(
    data: bytes, at: int, marker: bytes, number: int | None = None
) -> tuple[Kind, int, int, int] | None:
    """Kind, start and length of a payload, and the number of the frame synced before; None if invalid."""
    if at + _HEAD > len(data):
        return None
    begins, length, kind, actual, synced = _FRAME.unpack_from(data, at)
    start = at + _HEAD
    if begins != marker or not 0 < length <= len(data) - start or kind not in (Kind.ROWS, Kind.KEYS):
        return None
    digest = xxh3_64(memoryview(data)[at : at + _FRAME.size])
    digest.update(memoryview(data)[start : start + length])
    if digest.intdigest() != _CHECKSUM.unpack_from(data, at + _FRAME.size)[0]:
        return None
    return (Kind(kind), start, length, synced) if number is None or actual == number else None


def _check_torn(
    path: Path, data: bytes, at: int, marker: bytes, number: int, *, last: bool, durable: int
) -> None:
    """Raise if the frame that can't be read had been synced."""
    problem = f"frame {number} at byte {at:,} is damaged"
    if number <= durable:
        raise _damaged(path, f"{problem}, but had been synced")
    if not last:
        # A segment is synced before the next one begins.
        raise _damaged(path, f"{problem}, and later segments follow")
    after = data.find(marker, at + 1)
    while after >= 0:
        frame = _frame_at(data, after, marker)
        if frame is not None and frame[3] >= number:
            raise _damaged(path, f"{problem}, but had been synced, as a frame at byte {after:,} shows")
        after = data.find(marker, after + 1)


def read_intact(folder: Path, tail: str, floor: int = 0) -> tuple[list[Segment], list[Path]]:
    """Read the segments up to the first damage, whatever had been synced, and list the files after it."""
    paths = [path for path in segment_paths(folder) if path not in old_segments(folder, floor)]
    segments: list[Segment] = []
    for number, path in enumerate(paths):
        try:
            segment = _checked(read_segment(path, last=True, salvage=True), floor)
        except CorruptFileError:
            return segments, paths[number:]
        begins = segments[-1].last + 1 if segments else min(segment.first, floor + 1)
        if segment.header.tail != tail or segment.first != begins:
            return segments, paths[number:]
        segments.append(segment)
        if segment.good < segment.size:
            return segments, paths[number + 1 :]
    return segments, []


def owners(paths: Sequence[Path]) -> set[str]:
    """The tails that segments belong to, as far as their headers are valid."""
    found = set()
    for path in paths:
        with suppress(CorruptFileError):
            found.add(read_segment(path, last=True, salvage=True).header.tail)
    return found


def _checked(segment: Segment, floor: int) -> Segment:
    """The segment as far as its payloads are record batches."""
    for number in range(len(segment.frames)):
        if segment.first + number > floor:
            try:
                segment.frame(number)
            except CorruptFileError:
                _, start, _ = segment.frames[number]
                return replace(segment, frames=segment.frames[:number], good=start - _HEAD)
    return segment


def _damaged(path: Path, problem: str) -> CorruptFileError:
    hint = 'restore the file from a backup, or open the writer with on_damage="drop", which loses these rows'
    return CorruptFileError(f"write-ahead log is damaged: {problem}", path=str(path), hint=hint)


def set_aside(path: Path, *, keep: bool) -> int:
    """Rename a segment, or copy it, so that it is no longer part of the log; return its size."""
    to = path.with_name(f"{path.name}{DAMAGED}")
    try:
        size = path.stat().st_size
        if keep:
            shutil.copyfile(path, to)
        else:
            path.rename(to)
        sync_file(to)
    except OSError as error:
        raise write_error(error, path) from error
    return size


def cut(segment: Segment) -> int:
    """Cut a segment at its last good frame, durably, and delete it if none is left; return the bytes cut."""
    path = segment.path
    try:
        if not segment.frames:
            path.unlink()
            sync_directory(path.parent)
        elif segment.good < segment.size:
            descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.ftruncate(descriptor, segment.good)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
    except OSError as error:
        raise write_error(error, path) from error
    return segment.size - segment.good


# -- writing -----------------------------------------------------------------------------------


class Log:
    """Appends frames; safe for several threads, whose frames one sync covers.

    After a failed write or sync it is unknown what is on disk, so a log then refuses every call: it is opened
    again, which recovers what was acknowledged.
    """

    def __init__(
        self,
        store: LocalStore,
        tail: str,
        schema: pa.Schema,
        keys: Sequence[str],
        first: int,
        *,
        sync: SyncPolicy = "every",
        interval: float = INTERVAL,
        segment_bytes: int = SEGMENT_BYTES,
        longest: int = LONGEST,
    ) -> None:
        self._store, self._tail, self._schema, self._keys = store, tail, schema, tuple(keys)
        self.policy = sync
        self._interval, self._segment_bytes, self._longest = interval, segment_bytes, longest
        self._changed = threading.Condition()
        self._descriptor = self._marked = -1
        self._marker = b""
        self._size = 0
        self._path = Path(store.uri)
        self._next = first
        self._synced = first - 1
        self._syncing = False
        self._problem: SkipstoneError | None = None
        self._closed = False
        self._ticker: threading.Thread | None = None

    @property
    def last(self) -> int:
        """Number of the last frame."""
        return self._next - 1

    @property
    def synced(self) -> int:
        """Number of the last frame that is on disk."""
        return self._synced

    def check(self) -> None:
        """Raise what a write or sync has failed with."""
        if self._problem is not None:
            # A new one for every caller: a raised error collects tracebacks.
            first = self._problem
            raise WriteError(first.message, path=first.path, hint=first.hint) from first

    def use(self, schema: pa.Schema, keys: Sequence[str]) -> None:
        """Have the next frames in this schema, and thus in another segment if it is not that of the last."""
        with self._changed:
            self.check()
            if schema is self._schema:
                return
            if self._descriptor >= 0:
                self._end_segment()
            self._schema, self._keys = schema, tuple(keys)

    def append(self, kind: Kind, payload: pa.Buffer) -> int:
        """Write a serialized record batch and return the number of its frame.

        ``acknowledge`` waits until it is as safe as the policy says.
        """
        if payload.size > self._longest:
            problem = f"rows of one call take {payload.size:,} bytes in the write-ahead log"
            hint = f"write at most {self._longest:,} bytes at once"
            raise WriteError(problem, path=self._store.uri, hint=hint)
        with self._changed:
            self.check()
            if self._descriptor < 0 or self._size >= self._segment_bytes:
                self._begin_segment()
            head = _FRAME.pack(self._marker, payload.size, kind, self._next, self._synced)
            digest = xxh3_64(head)
            digest.update(payload)
            self._write([head + _CHECKSUM.pack(digest.intdigest()), payload])
            self._next += 1
            if self.policy == "interval" and self._ticker is None:
                self._ticker = threading.Thread(target=self._tick, name="skipstone-wal-sync", daemon=True)
                self._ticker.start()
            return self._next - 1

    def acknowledge(self, number: int) -> None:
        """Return when a frame is as safe as the policy says: on disk with ``every``."""
        if self.policy == "every":
            self.sync(number)

    def sync(self, number: int | None = None) -> None:
        """Wait until a frame, by default the last one, is on disk; one sync serves all waiting threads."""
        with self._changed:
            number = self._next - 1 if number is None else number
            while self._synced < number and self._syncing:
                self._changed.wait()
            self.check()
            if self._synced >= number:
                return
            self._syncing = True
            upto, descriptor = self._next - 1, self._descriptor
        problem: OSError | None = None
        is_synced = False
        try:
            os.fdatasync(descriptor)
            self._mark(upto)
            is_synced = True
        except OSError as error:
            problem = error
        finally:
            # Whatever ends the sync, others must not wait for it.
            with self._changed:
                self._syncing = False
                if is_synced:
                    self._synced = max(self._synced, upto)
                elif problem is not None:
                    self._fail(problem)
                self._changed.notify_all()
        self.check()

    def _mark(self, number: int) -> None:
        """Record that a frame is on disk."""
        if self._marked < 0:
            path = self._store.path(MARK)
            self._marked = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        os.pwrite(self._marked, mark_of(self._tail, number), 0)

    def rotate(self) -> None:
        """Close the segment, so that ``trim`` can delete it; the next frame begins another one."""
        with self._changed:
            self.check()
            if self._descriptor >= 0:
                self._end_segment()

    def trim(self, floor: int) -> int:
        """Delete the closed segments whose frames are all flushed; return how many."""
        folder = Path(self._store.uri)
        with self._changed:
            old = old_segments(folder, floor)
            if self._descriptor < 0 and floor >= self._next - 1:
                old = segment_paths(folder)
        self._store.delete(path.name for path in old)
        return len(old)

    def close(self) -> None:
        """Sync and close the segment; errors are raised when it is closed in any case."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            try:
                self.check()
                if self._descriptor >= 0:
                    self._end_segment()
            finally:
                self._release()
                self._forget_mark()
        if self._ticker is not None:
            self._ticker.join()

    def abandon(self) -> None:
        """Close without a sync."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            self._release()
            self._forget_mark()

    # -- with the lock held --------------------------------------------------------------------

    def _begin_segment(self) -> None:
        if self._descriptor >= 0:
            self._end_segment()
        header = SegmentHeader(self._tail, self._next, self._schema, self._keys, secrets.token_bytes(_MARKER))
        key = f"{self._next:020d}{SUFFIX}"
        encoded = header.encode()
        self._store.write(key, [encoded])
        self._path = Path(self._store.path(key))
        try:
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except OSError as error:
            raise write_error(error, self._path) from error
        self._marker, self._size = header.marker, len(encoded)

    def _end_segment(self) -> None:
        while self._syncing:
            self._changed.wait()
        self.check()
        try:
            if self._synced < self._next - 1:
                os.fdatasync(self._descriptor)
                self._mark(self._next - 1)
        except OSError as error:
            self._fail(error)
            self.check()
        self._synced = self._next - 1
        self._release()

    def _release(self) -> None:
        while self._syncing:
            self._changed.wait()
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _forget_mark(self) -> None:
        """Close the file of the mark."""
        descriptor, self._marked = self._marked, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _write(self, parts: Sequence[bytes | pa.Buffer]) -> None:
        views = [memoryview(part) for part in parts]
        size = sum(len(view) for view in views)
        done = 0
        try:
            while done < size:
                done += os.writev(self._descriptor, views)
                views = _rest(views, size - done)
        except OSError as error:
            try:
                os.ftruncate(self._descriptor, self._size)
            except OSError:
                self._fail(error)
            raise write_error(error, self._path) from error
        self._size += size

    def _fail(self, error: OSError) -> None:
        reason = error.strerror or type(error).__name__
        hint = "close the writer and open another one, which recovers the acknowledged rows"
        self._problem = WriteError(f"write-ahead log failed: {reason}", path=str(self._path), hint=hint)
        self._problem.__cause__ = error

    def _tick(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed, self._interval)
                if self._closed or self._problem is not None:
                    return
                if self._synced >= self._next - 1:
                    continue
            # The next call raises it.
            with suppress(SkipstoneError):
                self.sync()


def _rest(views: Sequence[memoryview], left: int) -> list[memoryview]:
    """The last bytes of some buffers."""
    rest: list[memoryview] = []
    for view in reversed(views):
        if left > 0:
            rest.insert(0, view[-left:] if left < len(view) else view)
            left -= len(view)
    return rest
