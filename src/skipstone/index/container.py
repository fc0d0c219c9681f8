"""The file format of segments: plain arrays, followed by a directory of them with checksums.

Arrays are identified by column and name, so that readers read only what they use. Every 64 KiB of an array
(a *sheet*) has its own checksum, verified when it is first read: a flipped bit is a :class:`BadIndex`, never
a wrong answer, and a few rows of a long array cost a few sheets. The opener of a container sets a
:class:`Rule` per array, so that an index with an inconsistent structure is a :class:`BadIndex` too.

Files are read, never mapped: accessing a mapped file that was truncated kills the process.
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

FORMAT: Final = 3
COMMON: Final = 0xFFFFFFFF
"""Column number of arrays that belong to no column."""

_MAGIC: Final = b"SKIPSTON"
_TRAILER: Final = struct.Struct("<8sIIQQQQ8s")
_SHEET: Final = 64 * 1024
_ALIGN: Final = 64
# Arrays of this size would get huge pages.
_LARGE_ARRAY: Final = 4 * 1024 * 1024
_ENTRY: Final = np.dtype(
    [("column", "<u4"), ("name", "<u2"), ("type", "<u2"), ("start", "<i8"), ("size", "<i8"), ("sum", "<i8")]
)
# Local arrays up to the first size, and remote ones up to the second, are read in full.
_SMALL: Final = 8 * 1024 * 1024
_WHOLE: Final = 256 * 1024
# A directory decompresses to a few megabytes, even for tables with thousands of columns.
_MOST_UNPACKED: Final = 32 * 1024 * 1024
_WIDEST: Final = 64

Key = tuple[int, str]


class BadIndex(Exception):
    """An unusable part of an index; never fatal: readers ignore that part and report the reason."""

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
    """Turns errors while parsing a part of an index into :class:`BadIndex`."""

    __slots__ = ("name", "what")

    def __init__(self, what: str, name: str = "") -> None:
        self.what, self.name = what, name

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, _FAILURES):
            raise BadIndex(f"{self.what} can't be read: {error}", self.name) from error


# -- writing -----------------------------------------------------------------------------------


class ContainerWriter:
    """Collects arrays and lays them out in the order they are added."""

    def __init__(self) -> None:
        self._arrays: list[tuple[int, str, Array]] = []

    def add(self, column: int, name: str, array: Array) -> None:
        """Add an array of numbers, of any shape."""
        self._arrays.append((column, name, np.ascontiguousarray(array)))

    def parts(self, head: Mapping[str, Any]) -> tuple[list[bytes | memoryview], int]:
        """Return the file in pieces, and the length of the tail that is read to open it."""
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
        header = json.dumps({"names": names, "types": types, **head}).encode()
        # Field by field, which compresses better: neighbouring entries differ little.
        table = b"".join(np.ascontiguousarray(entries[name]).tobytes() for name in _ENTRY.names or ())
        pieces = (zlib.compress(header), zlib.compress(table), np.array(sums, dtype="<u8").tobytes())
        check = xxh3_64_intdigest(b"".join(pieces))
        trailer = _TRAILER.pack(_MAGIC, FORMAT, 0, *map(len, pieces), check, _MAGIC)
        return [*parts, *pieces, trailer], sum(map(len, pieces)) + len(trailer)


# -- reading -----------------------------------------------------------------------------------


class Bytes(Protocol):
    """Source of a container's bytes."""

    @property
    def near(self) -> bool:
        """Whether reads are cheap, so that nothing is read ahead."""

    def size(self) -> int | None:
        """Size of the file; None if that takes a request."""

    def fetch(self, ranges: Sequence[tuple[int, int]]) -> Sequence[bytes | memoryview]:
        """Read byte ranges."""


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A local file, read by ranges."""

    path: str
    near: ClassVar[bool] = True

    def size(self) -> int:
        """Size of the file."""
        return os.stat(self.path).st_size  # noqa: PTH116

    def fetch(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read byte ranges."""
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
class MemoryFile:
    """A file in memory."""

    data: bytes
    near: ClassVar[bool] = True

    def size(self) -> int:
        """Size of the file."""
        return len(self.data)

    def fetch(self, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        """Return byte ranges."""
        view = memoryview(self.data)
        return [view[start:stop] for start, stop in ranges]


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A remote file, fetched by ranges."""

    name: str
    read: Callable[[Sequence[ByteRange]], list[bytes]]
    near: ClassVar[bool] = False

    def size(self) -> None:
        """None: the size would take a request."""
        return

    def fetch(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Fetch byte ranges."""
        try:
            return self.read([ByteRange(*span) for span in ranges])
        except ReadError as error:
            raise BadIndex(f"segment can't be read: {error.message}", self.name) from error


@dataclass(frozen=True, slots=True)
class Rule:
    """Required type, length and value range of an array."""

    dtype: np.dtype[Any]
    count: int | None = None
    low: int | None = None
    high: int | None = None
    rising: bool = False
    """Whether the elements never decrease; checked when the array is read in full."""


@dataclass(frozen=True, slots=True)
class _Entry:
    dtype: np.dtype[Any]
    start: int
    size: int
    sum: int
    count: int
    """Number of elements."""
    rule: Rule | None


@dataclass(slots=True)
class Container:
    """An open segment file."""

    name: str
    bytes: Bytes
    tail: int
    """Length of the directory at the end of the file."""
    check_sum: int
    """Checksum of the directory, and so of all content."""
    head: dict[str, Any]
    cache: Cache[Any, Any]
    """Caches arrays of remote files."""
    _entries: dict[Key, tuple[np.dtype[Any], int, int, int]]
    """Directory entry of every array."""
    _sums: Array
    _good: Array
    """Which sheets of near files have been read and verified."""
    rule: Callable[[Key], Rule | None] = lambda _: None
    """Rule of an array; None for no requirements."""
    _checked: dict[Key, _Entry] = field(default_factory=dict)
    """Entries whose type and length have been checked against their rule."""
    _arrays: dict[Key, Array] = field(default_factory=dict)
    """Arrays of near files, filled sheet by sheet; untouched memory costs nothing."""
    _whole: dict[Key, Array] = field(default_factory=dict)
    """Arrays read in full."""

    @classmethod
    def open(cls, name: str, bytes: Bytes, size: int, tail: int, cache: Cache[Any, Any]) -> Container:
        """Read the directory; ``tail`` is its length, from :meth:`ContainerWriter.parts`."""
        with parsing("directory"):
            return cls._open(name, bytes, size, tail, cache)

    @classmethod
    def open_alone(cls, name: str, bytes: Bytes, size: int, cache: Cache[Any, Any]) -> Container:
        """Open a container without knowing the length of its directory."""
        with parsing("directory"):
            (last,) = bytes.fetch([ByteRange(max(size - _TRAILER.size, 0), size)])
            tail = sum(_TRAILER.unpack(last)[3:6]) + _TRAILER.size
        return cls.open(name, bytes, size, tail, cache)

    @classmethod
    def _open(cls, name: str, bytes: Bytes, size: int, tail: int, cache: Cache[Any, Any]) -> Container:
        actual = bytes.size()
        if actual is not None and actual != size:
            raise BadIndex(f"segment has {actual:,} bytes instead of {size:,}")
        if not _TRAILER.size <= tail <= size:
            raise BadIndex("directory is damaged")
        (end,) = bytes.fetch([ByteRange(size - tail, size)])
        magic, version, _, *lengths, check, last = _TRAILER.unpack(end[-_TRAILER.size :])
        if magic != _MAGIC or last != _MAGIC:
            raise BadIndex("file is not an index segment")
        if version != FORMAT:
            raise BadIndex(f"segment has format {version}; this version of Skipstone reads format {FORMAT}")
        if sum(lengths) + _TRAILER.size != tail or xxh3_64_intdigest(end[: -_TRAILER.size]) != check:
            raise BadIndex("directory is damaged")
        header, table, checksums = lengths
        parts = memoryview(end)
        head = json.loads(_decompress(parts[:header]))
        packed = _decompress(parts[header : header + table])
        count, at, columns = len(packed) // _ENTRY.itemsize, 0, []
        for part in _ENTRY.names or ():
            dtype = _ENTRY[part]
            columns.append(np.frombuffer(packed, dtype=dtype, count=count, offset=at))
            at += count * dtype.itemsize
        sums = np.frombuffer(end, dtype="<u8", count=checksums // 8, offset=header + table)
        names, types = head.pop("names"), [_parse_dtype(type) for type in head.pop("types")]
        _check_layout(columns, np.array([type.itemsize for type in types]), len(sums), size - tail)
        entries = {
            (column, names[kind]): (types[type], start, length, first)
            for column, kind, type, start, length, first in zip(*[c.tolist() for c in columns], strict=True)
        }
        return cls(name, bytes, tail, check, head, cache, entries, sums, np.zeros(len(sums), dtype=bool))

    def __contains__(self, key: Key) -> bool:
        return key in self._entries

    def arrays(self) -> Iterable[Key]:
        """Return the keys of all arrays."""
        return self._entries.keys()

    def size(self, key: Key) -> int:
        """Bytes of an array."""
        return self._entries[key][2]

    def span(self, key: Key) -> ByteRange:
        """Byte range of an array in the file."""
        _, start, size, _ = self._entries[key]
        return ByteRange(start, start + size)

    def count(self, key: Key) -> int:
        """Length of an array."""
        return self._entry(key).count

    def load(self, keys: Iterable[Key]) -> None:
        """Fetch remote arrays into the cache with one request."""
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
            self.cache.put((self.check_sum, key), self._verified(key, entry, body), len(body))

    def whole(self, key: Key) -> Array:
        """Return an array, verified."""
        if key in self._whole:
            return self._whole[key]
        return self.wholes((key,))[0]

    def wholes(self, keys: Sequence[Key]) -> list[Array]:
        """Return arrays, verified; those not read before are read together."""
        if not self.bytes.near:
            self.load(keys)
            return [self._far(key) for key in keys]
        missing = [key for key in keys if key not in self._whole]
        if missing:
            entries = [self._entry(key) for key in missing]
            bodies = self.bytes.fetch([(entry.start, entry.start + entry.size) for entry in entries])
            for key, entry, body in zip(missing, entries, bodies, strict=True):
                self._whole[key] = self._verified(key, entry, body)
        return [self._whole[key] for key in keys]

    def _far(self, key: Key) -> Array:
        entry, cached = self._entry(key), self.cache.get((self.check_sum, key))
        if cached is not None:
            return cached  # type: ignore[no-any-return]
        # Too large for the cache.
        return self._verified(key, entry, self.bytes.fetch([self.span(key)])[0] if entry.size else b"")

    def slices(self, wanted: Sequence[tuple[Key, int, int]]) -> list[Array]:
        """Return parts of arrays, ``start`` to ``stop``; only the sheets that contain them are read."""
        for key, start, stop in wanted:
            if not 0 <= start <= stop <= self._entry(key).count:
                raise self._bad(key, "is shorter than another array requires")
        if not self.bytes.near:
            return self._fetch_slices(wanted)
        return [self._part(key, start, stop) for key, start, stop in wanted]

    def are_small(self, keys: Sequence[Key]) -> bool:
        """Whether all of these arrays exist and are small enough to read in full."""
        sizes = [self._entries[key][2] for key in keys if key in self._entries]
        return self.bytes.near and len(sizes) == len(keys) and max(sizes) <= _SMALL

    def take(self, key: Key, rows: Array) -> Array:
        """Return elements of an array; only the sheets that contain them are read."""
        if key in self._whole:
            array = self._whole[key]
        elif not self.bytes.near:
            array = self.whole(key)
        else:
            entry = self._entry(key)
            array = self._near(key, entry, np.unique(rows * entry.dtype.itemsize // _SHEET))
        try:
            return array[rows]
        except IndexError:
            raise self._bad(key, "is shorter than another array requires") from None

    def _entry(self, key: Key) -> _Entry:
        """Return an array's entry; its type and length are checked on first use."""
        if key not in self._checked:
            if key not in self._entries:
                raise self._bad(key, "is missing")
            dtype, start, size, first_sum = self._entries[key]
            try:
                rule = self.rule(key)
            except _FAILURES as error:
                raise BadIndex(f"array {key[1]} can't be read: {error}", self.name) from error
            count = size // dtype.itemsize
            if rule is not None and dtype != rule.dtype:
                raise self._bad(key, f"has type {dtype} instead of {rule.dtype}")
            if rule is not None and rule.count is not None and count != rule.count:
                raise self._bad(key, f"has {count:,} elements instead of {rule.count:,}")
            self._checked[key] = _Entry(dtype, start, size, first_sum, count, rule)
        return self._checked[key]

    def _part(self, key: Key, start: int, stop: int) -> Array:
        array = self._whole.get(key)
        if array is None:
            entry = self._entry(key)
            width = entry.dtype.itemsize
            first, last = start * width // _SHEET, -(-stop * width // _SHEET)
            array = self._arrays.get(key)
            if array is None or not self._good[entry.sum + first : entry.sum + last].all():
                array = self._load_run(key, entry, first, last)
        return array[start:stop]

    def _load_run(self, key: Key, entry: _Entry, first: int, last: int) -> Array:
        """Return an array of which the sheets ``first`` up to ``last`` are read and verified."""
        array = self._arrays.get(key)
        if array is None:
            # Concurrent threads share the memory, and write the same values to it.
            array = self._arrays.setdefault(key, _sparse_array(entry.count, entry.dtype))
        if first < last:
            begin, end = first * _SHEET, min(last * _SHEET, entry.size)
            (body,) = self.bytes.fetch(((entry.start + begin, entry.start + end),))
            self._verify(key, entry, body, first)
            array.view(np.uint8)[begin:end] = np.frombuffer(body, dtype=np.uint8)
            self._good[entry.sum + first : entry.sum + last] = True
        return array

    def _near(self, key: Key, entry: _Entry, sheets: Array) -> Array:
        """An array of which these sheets have been read and tested."""
        array = self._load_run(key, entry, 0, 0)
        if not len(sheets):
            return array
        if not -1 < sheets[0] <= sheets[-1] < self._sheets(entry):
            raise self._bad(key, "is shorter than another array requires")
        missing = sheets[~self._good[entry.sum + sheets]]
        if len(missing):
            for run in np.split(missing, np.flatnonzero(np.diff(missing) > 1) + 1):
                self._load_run(key, entry, int(run[0]), int(run[-1]) + 1)
        return array

    def _fetch_slices(self, wanted: Sequence[tuple[Key, int, int]]) -> list[Array]:
        """Fetch and cache small arrays in full, and the needed sheets of large ones."""
        self.load(key for key, _, _ in wanted if self.size(key) <= _WHOLE)
        ranges: list[ByteRange] = []
        first_sheets: dict[int, int] = {}
        for number, (key, start, stop) in enumerate(wanted):
            entry = self._entry(key)
            if entry.size > _WHOLE and stop > start:
                width = entry.dtype.itemsize
                first, last = start * width // _SHEET, -(-stop * width // _SHEET)
                first_sheets[number] = first
                ranges.append(ByteRange(entry.start + first * _SHEET, self._stop(entry, last)))
        bodies = iter(self.bytes.fetch(ranges) if ranges else ())
        parts = []
        for number, (key, start, stop) in enumerate(wanted):
            if number not in first_sheets:
                parts.append(self.whole(key)[start:stop])
                continue
            entry, first, body = self._entry(key), first_sheets[number], next(bodies)
            self._verify(key, entry, body, first)
            offset = start * entry.dtype.itemsize - first * _SHEET
            parts.append(np.frombuffer(body, dtype=entry.dtype, count=stop - start, offset=offset))
        return parts

    # -- verification ------------------------------------------------------------------------

    @staticmethod
    def _sheets(entry: _Entry) -> int:
        return -(-entry.size // _SHEET)

    @staticmethod
    def _stop(entry: _Entry, sheet: int) -> int:
        return entry.start + min(sheet * _SHEET, entry.size)

    def _verified(self, key: Key, entry: _Entry, body: Any) -> Array:
        """Return the array in the bytes of all its sheets."""
        self._verify(key, entry, body, 0)
        array: Array = np.frombuffer(body, dtype=entry.dtype)
        if entry.rule is not None and entry.rule.rising and np.logical_or.reduce(array[1:] < array[:-1]):
            raise self._bad(key, "is out of order")
        return array

    def _verify(self, key: Key, entry: _Entry, body: Any, first: int) -> None:
        """Verify the checksums, then the values of the sheets in ``body``, from the sheet ``first`` on."""
        view, rule = memoryview(body), entry.rule
        for number, at in enumerate(range(0, view.nbytes, _SHEET)):
            if xxh3_64_intdigest(view[at : at + _SHEET]) != int(self._sums[entry.sum + first + number]):
                raise BadIndex("segment is damaged: checksum mismatch", self.name)
        if rule is not None and (rule.low is not None or rule.high is not None) and view.nbytes:
            values = np.frombuffer(body, dtype=entry.dtype)
            low = rule.low is None or np.minimum.reduce(values) >= rule.low
            if not low or (rule.high is not None and np.maximum.reduce(values) > rule.high):
                raise self._bad(key, "has invalid values")

    def _bad(self, key: Key, reason: str) -> BadIndex:
        column = "" if key[0] == COMMON else f" of column {key[0]}"
        return BadIndex(f"array {key[1]}{column} {reason}", self.name)


def _sparse_array(count: int, dtype: np.dtype[Any]) -> Array:
    """Allocate an array that uses memory only where it is written.

    NumPy requests huge pages for large arrays: the first write to each would clear 2 MB.
    """
    size = count * dtype.itemsize
    if size < _LARGE_ARRAY:
        return np.empty(count, dtype=dtype)
    memory = mmap.mmap(-1, size)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, dtype=dtype)


def _decompress(packed: memoryview) -> bytes:
    """Decompress a part of a directory, up to a limit."""
    stream = zlib.decompressobj()
    body = stream.decompress(packed, _MOST_UNPACKED)
    if not stream.eof:
        raise BadIndex("directory is too large" if stream.unconsumed_tail else "directory is damaged")
    return body


def _parse_dtype(name: str) -> np.dtype[Any]:
    """Parse a type of fixed width without references, fields or shape."""
    dtype = np.dtype(name)
    if dtype.kind not in "biufV" or dtype.names or dtype.subdtype or not 0 < dtype.itemsize <= _WIDEST:
        raise BadIndex(f"directory has an array of type {dtype}")
    return dtype


def _check_layout(columns: Sequence[Array], widths: Array, sums: int, end: int) -> None:
    """Refuse entries that don't form the contiguous layout of :meth:`ContainerWriter.parts`."""
    _, _, types, starts, sizes, firsts = columns
    if ((sizes < 0) | (sizes > end) | (sizes % widths[types] > 0 if len(types) else False)).any():
        raise BadIndex("directory has an array of an impossible size")
    sheets = -(-sizes // _SHEET)
    padded = sizes + -sizes % _ALIGN
    stops = _ALIGN + padded.cumsum()
    if (firsts != sheets.cumsum() - sheets).any() or sheets.sum() != sums:
        raise BadIndex("directory has checksums that don't match its arrays")
    if (starts != stops - padded).any() or (len(stops) and stops[-1] > end):
        raise BadIndex("directory has arrays outside the file")
