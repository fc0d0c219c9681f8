"""A segment's file: plain arrays one after the other, and at the end a directory of them with checksums.

An array is found by column and name, so that a reader reads only what it uses. Every 64 KiB of an array (a
*sheet*) have a checksum of their own, tested when they are first read: a flipped bit is a :class:`BadIndex`,
never another answer, and a few rows of a long array cost a few sheets. Whoever opens a container gives it a
:class:`Rule` for each array, so that an index that lies about its own structure is a :class:`BadIndex` too.

Files are read, never mapped: touching a mapped file that was truncated kills the process.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Protocol

import numpy as np
import pyarrow as pa
from xxhash import xxh3_64_intdigest

from skipstone.core.evidence import Array
from skipstone.errors import ReadError, SkipstoneError
from skipstone.store.cache import Cache
from skipstone.store.source import ByteRange

FORMAT: Final = 2
COMMON: Final = 0xFFFFFFFF
"""The column number of arrays that belong to no column."""

_MAGIC: Final = b"SKIPSTON"
_TRAILER: Final = struct.Struct("<8sIIQQQQ8s")
_SHEET: Final = 64 * 1024
_ALIGN: Final = 64
# Arrays of this size would get huge pages.
_LARGE_ARRAY: Final = 4 * 1024 * 1024
_ENTRY: Final = np.dtype(
    [("column", "<u4"), ("name", "<u2"), ("type", "<u2"), ("start", "<i8"), ("size", "<i8"), ("sum", "<i8")]
)
# Up to this size an array of a remote index is fetched whole, and kept.
_SMALL: Final = 8 * 1024 * 1024
_WHOLE: Final = 256 * 1024
# A directory unpacks to a few megabytes, even that of tables with thousands of columns.
_MOST_UNPACKED: Final = 32 * 1024 * 1024
_WIDEST: Final = 64

Key = tuple[int, str]


class BadIndex(Exception):
    """A part of an index that can't be used; never fatal, the reader does without it and says why."""

    def __init__(self, reason: str, name: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.name = name


_FAILURES: Final = (
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    OSError,
    RecursionError,
    SkipstoneError,
    TypeError,
    ValueError,
    pa.ArrowException,
    struct.error,
    zlib.error,
)


class parsing:  # noqa: N801
    """Turns whatever fails while a part of an index is taken apart into a :class:`BadIndex`."""

    __slots__ = ("name", "what")

    def __init__(self, what: str, name: str = "") -> None:
        self.what, self.name = what, name

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, _FAILURES):
            raise BadIndex(f"{self.what} can't be read: {error}", self.name) from error


# -- writing -----------------------------------------------------------------------------------


class ContainerWriter:
    """Collects arrays and lays them out; arrays of one column are added one after the other."""

    def __init__(self) -> None:
        self._arrays: list[tuple[int, str, Array]] = []

    def add(self, column: int, name: str, array: Array) -> None:
        """Take an array of plain numbers, of any shape."""
        self._arrays.append((column, name, np.ascontiguousarray(array)))

    def parts(self, head: Mapping[str, Any]) -> tuple[list[bytes | memoryview], int]:
        """The file in pieces, and how many of its last bytes must be read to open it."""
        names = list(dict.fromkeys(name for _, name, _ in self._arrays))
        types = list(dict.fromkeys(array.dtype.str for _, _, array in self._arrays))
        entries = np.zeros(len(self._arrays), dtype=_ENTRY)
        parts: list[bytes | memoryview] = [_MAGIC.ljust(_ALIGN, b"\0")]
        position = _ALIGN
        sums: list[int] = []
        for number, (column, name, array) in enumerate(self._arrays):
            body = memoryview(array.reshape(-1).view(np.uint8).data) if array.size else memoryview(b"")
            entries[number] = (
                column, names.index(name), types.index(array.dtype.str), position, len(body), len(sums)
            )  # fmt: skip
            sums += [xxh3_64_intdigest(body[at : at + _SHEET]) for at in range(0, len(body), _SHEET)]
            pad = -len(body) % _ALIGN
            parts += [body, bytes(pad)]
            position += len(body) + pad
        told = json.dumps({"names": names, "types": types, **head}).encode()
        # Column by column, since the entries of a wide table differ little from one to the next.
        table = b"".join(np.ascontiguousarray(entries[name]).tobytes() for name in _ENTRY.names or ())
        pieces = (zlib.compress(told), zlib.compress(table), np.array(sums, dtype="<u8").tobytes())
        check = xxh3_64_intdigest(b"".join(pieces))
        trailer = _TRAILER.pack(_MAGIC, FORMAT, 0, *map(len, pieces), check, _MAGIC)
        return [*parts, *pieces, trailer], sum(map(len, pieces)) + len(trailer)


# -- reading -----------------------------------------------------------------------------------


class Bytes(Protocol):
    """Where a container's bytes come from."""

    @property
    def near(self) -> bool:
        """Whether reading a sheet costs next to nothing, so that nothing is read ahead of its use."""

    def size(self) -> int | None:
        """How many bytes there are, if that is known without a request."""

    def fetch(self, ranges: Sequence[tuple[int, int]]) -> Sequence[bytes | memoryview]:
        """Some bytes."""


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A local file: what is never asked for is never read."""

    path: str
    near: ClassVar[bool] = True

    def size(self) -> int:
        """The file's size."""
        return os.stat(self.path).st_size  # noqa: PTH116

    def fetch(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Some bytes of the file as it is now."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                bodies = [os.pread(descriptor, stop - start, start) for start, stop in ranges]
                if list(map(len, bodies)) == [stop - start for start, stop in ranges]:
                    return bodies
                return [self._read(descriptor, start, stop - start) for start, stop in ranges]
            finally:
                os.close(descriptor)
        except OSError as error:
            raise BadIndex(f"segment can't be read: {error.strerror}", self._name) from error

    def _read(self, descriptor: int, start: int, length: int) -> bytes:
        body = os.pread(descriptor, length, start)
        while len(body) < length:
            more = os.pread(descriptor, length - len(body), start + len(body))
            if not more:
                raise BadIndex("segment was truncated while it was in use", self._name)
            body += more
        return body

    @property
    def _name(self) -> str:
        return os.path.basename(self.path)  # noqa: PTH119


@dataclass(frozen=True, slots=True)
class Held:
    """A file that was fetched whole."""

    data: bytes
    near: ClassVar[bool] = True

    def size(self) -> int:
        """The file's size."""
        return len(self.data)

    def fetch(self, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        """Some bytes."""
        view = memoryview(self.data)
        return [view[start:stop] for start, stop in ranges]


@dataclass(frozen=True, slots=True)
class Fetched:
    """A file elsewhere, fetched by ranges."""

    name: str
    read: Callable[[Sequence[ByteRange]], list[bytes]]
    near: ClassVar[bool] = False

    def size(self) -> None:
        """Not known without a request."""
        return

    def fetch(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Some bytes."""
        try:
            return self.read([ByteRange(*span) for span in ranges])
        except ReadError as error:
            raise BadIndex(f"segment can't be read: {error.message}", self.name) from error


@dataclass(frozen=True, slots=True)
class Rule:
    """What an array must be like: its type, its length, and between which values its elements lie."""

    dtype: np.dtype[Any]
    count: int | None = None
    low: int | None = None
    high: int | None = None
    rising: bool = False
    """Whether no element is less than the one before it; tested when the array is first used whole."""


@dataclass(frozen=True, slots=True)
class _Entry:
    dtype: np.dtype[Any]
    start: int
    size: int
    sum: int
    count: int
    """How many elements it has."""
    rule: Rule | None


@dataclass(slots=True)
class Container:
    """An open segment file."""

    name: str
    bytes: Bytes
    tail: int
    """How many of its last bytes are its directory."""
    check_sum: int
    """That of its directory, and so of everything in it."""
    head: dict[str, Any]
    cache: Cache[Any, Any]
    """Keeps what was fetched from elsewhere."""
    _entries: dict[Key, tuple[np.dtype[Any], int, int, int]]
    """The fields of an entry, of every array."""
    _sums: Array
    _good: Array
    """Which sheets of near files have been read and tested."""
    rule: Callable[[Key], Rule | None] = lambda _: None
    """What arrays must be like; those without a rule may be anything."""
    _known: dict[Key, _Entry] = field(default_factory=dict)
    """Arrays that were asked for, whose type and length are those of their rule."""
    _arrays: dict[Key, Array] = field(default_factory=dict)
    """Arrays of near files, as far as their sheets were read; memory that is never written costs nothing."""
    _whole: dict[Key, Array] = field(default_factory=dict)
    """Those that were read whole."""

    @classmethod
    def open(cls, name: str, bytes: Bytes, size: int, tail: int, cache: Cache[Any, Any]) -> Container:
        """Read the directory; ``tail`` is what :meth:`Writer.parts` said."""
        with parsing("directory"):
            return cls._open(name, bytes, size, tail, cache)

    @classmethod
    def open_alone(cls, name: str, bytes: Bytes, size: int, cache: Cache[Any, Any]) -> Container:
        """Open a container of which only the size is known."""
        with parsing("directory"):
            (last,) = bytes.fetch([ByteRange(max(size - _TRAILER.size, 0), size)])
            tail = sum(_TRAILER.unpack(last)[3:6]) + _TRAILER.size
        return cls.open(name, bytes, size, tail, cache)

    @classmethod
    def _open(cls, name: str, bytes: Bytes, size: int, tail: int, cache: Cache[Any, Any]) -> Container:
        found = bytes.size()
        if found is not None and found != size:
            raise BadIndex(f"segment has {found:,} bytes instead of {size:,}")
        if not _TRAILER.size <= tail <= size:
            raise BadIndex("directory is damaged")
        (end,) = bytes.fetch([ByteRange(size - tail, size)])
        magic, version, _, *lengths, check, last = _TRAILER.unpack(end[-_TRAILER.size :])
        if magic != _MAGIC or last != _MAGIC:
            raise BadIndex("file is not a segment of an index")
        if version != FORMAT:
            raise BadIndex(f"format is {version}, this version of Skipstone reads {FORMAT}")
        if sum(lengths) + _TRAILER.size != tail or xxh3_64_intdigest(end[: -_TRAILER.size]) != check:
            raise BadIndex("directory is damaged")
        told, table, sums = lengths
        parts = memoryview(end)
        head = json.loads(_unpacked(parts[:told]))
        packed = _unpacked(parts[told : told + table])
        count, at, columns = len(packed) // _ENTRY.itemsize, 0, []
        for part in _ENTRY.names or ():
            dtype = _ENTRY[part]
            columns.append(np.frombuffer(packed, dtype=dtype, count=count, offset=at))
            at += count * dtype.itemsize
        marks = np.frombuffer(end, dtype="<u8", count=sums // 8, offset=told + table)
        names, types = head.pop("names"), [_plain(type) for type in head.pop("types")]
        _check_layout(columns, np.array([type.itemsize for type in types]), len(marks), size - tail)
        known = {
            (column, names[kind]): (types[type], start, length, first)
            for column, kind, type, start, length, first in zip(*[c.tolist() for c in columns], strict=True)
        }
        return cls(name, bytes, tail, check, head, cache, known, marks, np.zeros(len(marks), dtype=bool))

    def __contains__(self, key: Key) -> bool:
        return key in self._entries

    def arrays(self) -> Iterable[Key]:
        """All arrays there are."""
        return self._entries.keys()

    def size(self, key: Key) -> int:
        """Bytes of an array."""
        return self._entries[key][2]

    def span(self, key: Key) -> ByteRange:
        """Where an array is in the file."""
        _, start, size, _ = self._entries[key]
        return ByteRange(start, start + size)

    def count(self, key: Key) -> int:
        """Length of an array."""
        return self._entry(key).count

    def load(self, keys: Iterable[Key]) -> None:
        """Fetch arrays that will be needed whole, together."""
        if self.bytes.near:
            return
        wanted = [
            key for key in keys if key in self._entries and self.cache.get((self.check_sum, key)) is None
        ]
        entries = [self._entry(key) for key in wanted]
        ranges = [self.span(key) for key in wanted]
        if not ranges:
            return
        for key, entry, body in zip(wanted, entries, self.bytes.fetch(ranges), strict=True):
            self.cache.put((self.check_sum, key), self._tested(key, entry, body), len(body))

    def whole(self, key: Key) -> Array:
        """An array, tested."""
        if key in self._whole:
            return self._whole[key]
        return self.wholes((key,))[0]

    def wholes(self, keys: Sequence[Key]) -> list[Array]:
        """Some arrays, tested; those that were not read before are read together."""
        if not self.bytes.near:
            self.load(keys)
            return [self._far(key) for key in keys]
        missing = [key for key in keys if key not in self._whole]
        if missing:
            entries = [self._entry(key) for key in missing]
            bodies = self.bytes.fetch([(entry.start, entry.start + entry.size) for entry in entries])
            for key, entry, body in zip(missing, entries, bodies, strict=True):
                self._whole[key] = self._tested(key, entry, body)
        return [self._whole[key] for key in keys]

    def _far(self, key: Key) -> Array:
        entry, kept = self._entry(key), self.cache.get((self.check_sum, key))
        if kept is not None:
            return kept  # type: ignore[no-any-return]
        # Too large for the cache.
        return self._tested(key, entry, self.bytes.fetch([self.span(key)])[0] if entry.size else b"")

    def slices(self, wanted: Sequence[tuple[Key, int, int]]) -> list[Array]:
        """Parts of arrays, ``start`` to ``stop``, of which only the sheets they lie in are read."""
        for key, start, stop in wanted:
            if not 0 <= start <= stop <= self._entry(key).count:
                raise self._bad(key, "is shorter than another array says")
        if not self.bytes.near:
            return self._fetched(wanted)
        return [self._part(key, start, stop) for key, start, stop in wanted]

    def are_small(self, keys: Sequence[Key]) -> bool:
        """Whether all of these arrays exist, and are better read whole than a sheet at a time."""
        sizes = [self._entries[key][2] for key in keys if key in self._entries]
        return self.bytes.near and len(sizes) == len(keys) and max(sizes) <= _SMALL

    def take(self, key: Key, rows: Array) -> Array:
        """Elements of an array, of which only the sheets they lie in are read."""
        if key in self._whole:
            found = self._whole[key]
        elif not self.bytes.near:
            found = self.whole(key)
        else:
            entry = self._entry(key)
            found = self._near(key, entry, np.unique(rows * entry.dtype.itemsize // _SHEET))
        try:
            return found[rows]
        except IndexError:
            raise self._bad(key, "is shorter than another array says") from None

    def _entry(self, key: Key) -> _Entry:
        """An array's place and rule, whose type and length are tested when it is first asked for."""
        if key not in self._known:
            if key not in self._entries:
                raise self._bad(key, "is missing")
            dtype, start, size, first_sum = self._entries[key]
            try:
                rule = self.rule(key)
            except _FAILURES as error:
                raise BadIndex(f"array {key[1]} can't be read: {error}", self.name) from error
            count = size // dtype.itemsize
            if rule is not None and dtype != rule.dtype:
                raise self._bad(key, f"is of type {dtype} instead of {rule.dtype}")
            if rule is not None and rule.count is not None and count != rule.count:
                raise self._bad(key, f"has {count:,} elements instead of {rule.count:,}")
            self._known[key] = _Entry(dtype, start, size, first_sum, count, rule)
        return self._known[key]

    def _part(self, key: Key, start: int, stop: int) -> Array:
        found = self._whole.get(key)
        if found is None:
            entry = self._entry(key)
            width = entry.dtype.itemsize
            first, last = start * width // _SHEET, -(-stop * width // _SHEET)
            found = self._arrays.get(key)
            if found is None or not self._good[entry.sum + first : entry.sum + last].all():
                found = self._load_run(key, entry, first, last)
        return found[start:stop]

    def _load_run(self, key: Key, entry: _Entry, first: int, last: int) -> Array:
        """An array of which the sheets from ``first`` up to ``last`` have been read and tested."""
        array = self._arrays.get(key)
        if array is None:
            # Of threads that come at once all get the same memory, and write the same to it.
            array = self._arrays.setdefault(key, _sparse_array(entry.count, entry.dtype))
        if first < last:
            begin, end = first * _SHEET, min(last * _SHEET, entry.size)
            (body,) = self.bytes.fetch(((entry.start + begin, entry.start + end),))
            self._test(key, entry, body, first)
            array.view(np.uint8)[begin:end] = np.frombuffer(body, dtype=np.uint8)
            self._good[entry.sum + first : entry.sum + last] = True
        return array

    def _near(self, key: Key, entry: _Entry, sheets: Array) -> Array:
        """An array of which these sheets have been read and tested."""
        array = self._load_run(key, entry, 0, 0)
        if not len(sheets):
            return array
        if not -1 < sheets[0] <= sheets[-1] < self._sheets(entry):
            raise self._bad(key, "is shorter than another array says")
        missing = sheets[~self._good[entry.sum + sheets]]
        if len(missing):
            for run in np.split(missing, np.flatnonzero(np.diff(missing) > 1) + 1):
                self._load_run(key, entry, int(run[0]), int(run[-1]) + 1)
        return array

    def _fetched(self, wanted: Sequence[tuple[Key, int, int]]) -> list[Array]:
        """Small arrays are fetched whole and kept, of large ones the sheets that are needed."""
        self.load(key for key, _, _ in wanted if self.size(key) <= _WHOLE)
        ranges: list[ByteRange] = []
        places: dict[int, int] = {}
        for number, (key, start, stop) in enumerate(wanted):
            entry = self._entry(key)
            if entry.size > _WHOLE and stop > start:
                width = entry.dtype.itemsize
                first, last = start * width // _SHEET, -(-stop * width // _SHEET)
                places[number] = first
                ranges.append(ByteRange(entry.start + first * _SHEET, self._stop(entry, last)))
        bodies = iter(self.bytes.fetch(ranges) if ranges else ())
        found = []
        for number, (key, start, stop) in enumerate(wanted):
            if number not in places:
                found.append(self.whole(key)[start:stop])
                continue
            entry, first, body = self._entry(key), places[number], next(bodies)
            self._test(key, entry, body, first)
            offset = start * entry.dtype.itemsize - first * _SHEET
            found.append(np.frombuffer(body, dtype=entry.dtype, count=stop - start, offset=offset))
        return found

    # -- tests -------------------------------------------------------------------------------

    @staticmethod
    def _sheets(entry: _Entry) -> int:
        return -(-entry.size // _SHEET)

    @staticmethod
    def _stop(entry: _Entry, sheet: int) -> int:
        return entry.start + min(sheet * _SHEET, entry.size)

    def _tested(self, key: Key, entry: _Entry, body: Any) -> Array:
        """A whole array of its bytes."""
        self._test(key, entry, body, 0)
        array: Array = np.frombuffer(body, dtype=entry.dtype)
        if entry.rule is not None and entry.rule.rising and np.logical_or.reduce(array[1:] < array[:-1]):
            raise self._bad(key, "is out of order")
        return array

    def _test(self, key: Key, entry: _Entry, body: Any, first: int) -> None:
        """Test the sheets of ``body``, which begins with the sheet ``first``: checksums, then values."""
        view, rule = memoryview(body), entry.rule
        for number, at in enumerate(range(0, view.nbytes, _SHEET)):
            if xxh3_64_intdigest(view[at : at + _SHEET]) != int(self._sums[entry.sum + first + number]):
                raise BadIndex("a part of it is damaged: the checksum is another", self.name)
        if rule is not None and (rule.low is not None or rule.high is not None) and view.nbytes:
            values = np.frombuffer(body, dtype=entry.dtype)
            low = rule.low is None or np.minimum.reduce(values) >= rule.low
            if not low or (rule.high is not None and np.maximum.reduce(values) > rule.high):
                raise self._bad(key, "has values that can't be")

    def _bad(self, key: Key, reason: str) -> BadIndex:
        column = "" if key[0] == COMMON else f" of column {key[0]}"
        return BadIndex(f"array {key[1]}{column} {reason}", self.name)


def _sparse_array(count: int, dtype: np.dtype[Any]) -> Array:
    """An array that takes memory only where it is written.

    NumPy requests huge pages for large arrays: the first write to each would clear 2 MB.
    """
    size = count * dtype.itemsize
    if size < _LARGE_ARRAY:
        return np.empty(count, dtype=dtype)
    memory = mmap.mmap(-1, size)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, dtype=dtype)


def _unpacked(packed: memoryview) -> bytes:
    """What was compressed, unless it is more than a directory could be."""
    stream = zlib.decompressobj()
    body = stream.decompress(packed, _MOST_UNPACKED)
    if not stream.eof:
        raise BadIndex("directory is too large" if stream.unconsumed_tail else "directory is damaged")
    return body


def _plain(name: str) -> np.dtype[Any]:
    """A type of fixed width without references, fields or shape."""
    found = np.dtype(name)
    if found.kind not in "biufV" or found.names or found.subdtype or not 0 < found.itemsize <= _WIDEST:
        raise BadIndex(f"directory has an array of type {found}")
    return found


def _check_layout(columns: Sequence[Array], widths: Array, sums: int, end: int) -> None:
    """Refuse entries other than arrays one after the other, as :meth:`Writer.parts` lays them out."""
    _, _, types, starts, sizes, firsts = columns
    if ((sizes < 0) | (sizes > end) | (sizes % widths[types] > 0 if len(types) else False)).any():
        raise BadIndex("directory has an array of an impossible size")
    sheets = -(-sizes // _SHEET)
    padded = sizes + -sizes % _ALIGN
    stops = _ALIGN + padded.cumsum()
    if (firsts != sheets.cumsum() - sheets).any() or sheets.sum() != sums:
        raise BadIndex("directory has other checksums than arrays")
    if (starts != stops - padded).any() or (len(stops) and stops[-1] > end):
        raise BadIndex("directory has arrays outside of the file")
