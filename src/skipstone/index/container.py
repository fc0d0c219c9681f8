"""A segment's file: plain arrays one after the other, and at the end a directory of them with checksums.

An array is found by column and name, so that a reader fetches or maps only what it uses. Every 64 KiB of an
array (a *sheet*) have a checksum of their own, tested when they are first touched: a flipped bit is a
:class:`BadIndex`, never another answer, and a few rows of a long array cost a few sheets.
"""

from __future__ import annotations

import json
import mmap
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np
from xxhash import xxh3_64_intdigest

from skipstone.errors import ReadError
from skipstone.evidence import Array
from skipstone.store.cache import Cache
from skipstone.store.ranges import ByteRange

FORMAT: Final = 2
COMMON: Final = 0xFFFFFFFF
"""The column number of arrays that belong to no column."""

_MAGIC: Final = b"SKIPSTON"
_TRAILER: Final = struct.Struct("<8sIIQQQQ8s")
_SHEET: Final = 64 * 1024
_ALIGN: Final = 64
_ENTRY: Final = np.dtype(
    [("column", "<u4"), ("name", "<u2"), ("type", "<u2"), ("start", "<i8"), ("size", "<i8"), ("sum", "<i8")]
)
# Up to this size an array of a remote index is fetched whole, and kept.
_WHOLE: Final = 256 * 1024

Key = tuple[int, str]


class BadIndex(Exception):
    """A part of an index that can't be used; never fatal, the reader does without it and says why."""

    def __init__(self, reason: str, name: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.name = name


# -- writing -----------------------------------------------------------------------------------


class Writer:
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

    def view(self) -> memoryview | None:
        """All bytes as they lie in memory, or None where they must be fetched."""

    def fetch(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """Some bytes."""


@dataclass(frozen=True, slots=True)
class Mapped:
    """A local file, mapped: what is never touched is never read."""

    path: str

    def view(self) -> memoryview:
        """The file's bytes."""
        with open(self.path, "rb") as file:  # noqa: PTH123
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if hasattr(mmap, "MADV_RANDOM"):
            # What lies next to a few bytes is not wanted; what is wanted whole is asked for as such.
            mapped.madvise(mmap.MADV_RANDOM)
        return memoryview(mapped)

    def fetch(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """Not needed: there is a view."""
        raise AssertionError(ranges)


@dataclass(frozen=True, slots=True)
class Held:
    """A file that was fetched whole."""

    data: bytes

    def view(self) -> memoryview:
        """The file's bytes."""
        return memoryview(self.data)

    def fetch(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """Not needed: there is a view."""
        raise AssertionError(ranges)


@dataclass(frozen=True, slots=True)
class Fetched:
    """A file elsewhere, fetched by ranges."""

    name: str
    read: Callable[[Sequence[ByteRange]], list[bytes]]

    def view(self) -> None:
        """There is none."""
        return

    def fetch(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """Some bytes."""
        try:
            return self.read(ranges)
        except ReadError as error:
            raise BadIndex(f"it can't be read: {error.message}", self.name) from error


@dataclass(frozen=True, slots=True)
class _Entry:
    dtype: np.dtype[Any]
    start: int
    size: int
    sum: int


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
    """Keeps what was fetched; a mapped file needs none."""
    _view: memoryview | None
    _entries: dict[Key, _Entry]
    _sums: Array
    _good: Array
    """Which sheets have passed their test."""
    _arrays: dict[Key, Array] = field(default_factory=dict)

    @classmethod
    def open(cls, name: str, bytes: Bytes, size: int, tail: int, cache: Cache[Any, Any]) -> Container:
        """Read the directory; ``tail`` is what :meth:`Writer.parts` said."""
        try:
            return cls._open(name, bytes, size, tail, cache)
        except (ValueError, KeyError, IndexError, TypeError, struct.error, zlib.error, OSError) as error:
            raise BadIndex(f"its directory can't be read: {error}") from error

    @classmethod
    def open_alone(cls, name: str, bytes: Bytes, size: int, cache: Cache[Any, Any]) -> Container:
        """Open a container of which only the size is known."""
        try:
            view = bytes.view()
            end = ByteRange(max(size - _TRAILER.size, 0), size)
            last = view[end.start :] if view is not None else bytes.fetch([end])[0]
            tail = sum(_TRAILER.unpack(last)[3:6]) + _TRAILER.size
        except (ValueError, struct.error, OSError) as error:
            raise BadIndex(f"its directory can't be read: {error}") from error
        if tail > size:
            raise BadIndex("its directory is damaged")
        return cls.open(name, bytes, size, tail, cache)

    @classmethod
    def _open(cls, name: str, bytes: Bytes, size: int, tail: int, cache: Cache[Any, Any]) -> Container:
        view = bytes.view()
        if view is not None and len(view) != size:
            raise BadIndex(f"it has {len(view):,} bytes instead of {size:,}")
        start = size - tail
        end: Any = view[start:] if view is not None else bytes.fetch([ByteRange(start, size)])[0]
        magic, version, _, *lengths, check, last = _TRAILER.unpack(end[-_TRAILER.size :])
        if magic != _MAGIC or last != _MAGIC:
            raise BadIndex("it is no segment of an index")
        if version != FORMAT:
            raise BadIndex(f"its format is {version}, this version of Skipstone reads {FORMAT}")
        if sum(lengths) + _TRAILER.size != tail or xxh3_64_intdigest(end[: -_TRAILER.size]) != check:
            raise BadIndex("its directory is damaged")
        told, table, sums = lengths
        parts = memoryview(end)
        head = json.loads(zlib.decompress(parts[:told]))
        packed = zlib.decompress(parts[told : told + table])
        count, at, columns = len(packed) // _ENTRY.itemsize, 0, []
        for part in _ENTRY.names or ():
            dtype = _ENTRY[part]
            columns.append(np.frombuffer(packed, dtype=dtype, count=count, offset=at).tolist())
            at += count * dtype.itemsize
        marks = np.frombuffer(end, dtype="<u8", count=sums // 8, offset=told + table)
        names, types = head.pop("names"), [np.dtype(type) for type in head.pop("types")]
        known = {
            (column, names[kind]): _Entry(types[type], start, length, first)
            for column, kind, type, start, length, first in zip(*columns, strict=True)
        }
        return cls(
            name, bytes, tail, check, head, cache, view, known, marks, np.zeros(len(marks), dtype=bool)
        )

    def __contains__(self, key: Key) -> bool:
        return key in self._entries

    def arrays(self) -> Iterable[Key]:
        """All arrays there are."""
        return self._entries.keys()

    def size(self, key: Key) -> int:
        """Bytes of an array."""
        return self._entries[key].size

    def count(self, key: Key) -> int:
        """Length of an array."""
        entry = self._entries[key]
        return entry.size // entry.dtype.itemsize

    def load(self, keys: Iterable[Key]) -> None:
        """Fetch arrays that will be needed whole, together."""
        if self._view is not None:
            return
        wanted = [
            key for key in keys if key in self._entries and self.cache.get((self.check_sum, key)) is None
        ]
        ranges = [self._range(self._entries[key]) for key in wanted]
        if not ranges:
            return
        for key, body in zip(wanted, self.bytes.fetch(ranges), strict=True):
            entry = self._entries[key]
            self._test(entry, memoryview(body), 0)
            self.cache.put((self.check_sum, key), np.frombuffer(body, dtype=entry.dtype), len(body))

    def whole(self, key: Key) -> Array:
        """An array, tested."""
        found = self._arrays.get(key)
        if found is not None:
            return found
        entry = self._entries[key]
        if self._view is None:
            self.load([key])
            kept: Array | None = self.cache.get((self.check_sum, key))
            if kept is not None:
                return kept
            # Too large for the cache.
            large = self.bytes.fetch([self._range(entry)])[0] if entry.size else b""
            self._test(entry, memoryview(large), 0)
            return np.frombuffer(large, dtype=entry.dtype)
        body = self._view[entry.start : entry.start + entry.size]
        self._want(entry.start, entry.size)
        self._test(entry, body, 0)
        found = self._arrays[key] = np.frombuffer(body, dtype=entry.dtype)
        return found

    def slices(self, wanted: Sequence[tuple[Key, int, int]]) -> list[Array]:
        """Parts of arrays, ``start`` to ``stop``, of which only the sheets they lie in are touched."""
        if self._view is None:
            return self._fetched(wanted)
        self.check()
        return [self._mapped(key, start, stop) for key, start, stop in wanted]

    def take(self, key: Key, rows: Array) -> Array:
        """Elements of an array, of which only the sheets they lie in are touched."""
        if self._view is None or key in self._arrays:
            return self.whole(key)[rows]
        entry = self._entries[key]
        body = self._view[entry.start : entry.start + entry.size]
        array = np.frombuffer(body, dtype=entry.dtype)
        if len(rows):
            width = entry.dtype.itemsize
            if not self._good[entry.sum : entry.sum + self._sheets(entry)].all():
                for sheet in np.unique(rows * width // _SHEET).tolist():
                    self._test_sheet(entry, sheet, body[sheet * _SHEET : (sheet + 1) * _SHEET])
        return array[rows]

    def check(self) -> None:
        """Refuse a mapped file that was cut short, since touching what is gone kills the process."""
        mapped = None if self._view is None else self._view.obj
        if isinstance(mapped, mmap.mmap) and mapped.size() != len(mapped):
            raise BadIndex("it was changed while it was in use", self.name)

    def _mapped(self, key: Key, start: int, stop: int) -> Array:
        entry, view = self._entries[key], self._view
        assert view is not None
        width = entry.dtype.itemsize
        first, last = start * width // _SHEET, -(-stop * width // _SHEET)
        if not self._good[entry.sum + first : entry.sum + last].all():
            self._test(entry, view[entry.start + first * _SHEET : self._stop(entry, last)], first)
        return np.frombuffer(view, dtype=entry.dtype, count=stop - start, offset=entry.start + start * width)

    def _fetched(self, wanted: Sequence[tuple[Key, int, int]]) -> list[Array]:
        """Small arrays are fetched whole and kept, of large ones the sheets that are needed."""
        self.load(key for key, _, _ in wanted if self._entries[key].size <= _WHOLE)
        ranges: list[ByteRange] = []
        places: dict[int, tuple[_Entry, int]] = {}
        for number, (key, start, stop) in enumerate(wanted):
            entry = self._entries[key]
            if entry.size > _WHOLE and stop > start:
                width = entry.dtype.itemsize
                first, last = start * width // _SHEET, -(-stop * width // _SHEET)
                places[number] = entry, first
                ranges.append(ByteRange(entry.start + first * _SHEET, self._stop(entry, last)))
        bodies = iter(self.bytes.fetch(ranges) if ranges else ())
        found = []
        for number, (key, start, stop) in enumerate(wanted):
            if number not in places:
                found.append(self.whole(key)[start:stop])
                continue
            entry, first = places[number]
            body = next(bodies)
            self._test(entry, memoryview(body), first)
            offset = start * entry.dtype.itemsize - first * _SHEET
            found.append(np.frombuffer(body, dtype=entry.dtype, count=stop - start, offset=offset))
        return found

    def _want(self, start: int, size: int) -> None:
        """Have a part of a mapped file read in one go, before it is touched page by page."""
        mapped = None if self._view is None else self._view.obj
        if isinstance(mapped, mmap.mmap) and size and hasattr(mmap, "MADV_WILLNEED"):
            inside = start % mmap.PAGESIZE
            mapped.madvise(mmap.MADV_WILLNEED, start - inside, size + inside)

    # -- checksums ---------------------------------------------------------------------------

    @staticmethod
    def _range(entry: _Entry) -> ByteRange:
        return ByteRange(entry.start, entry.start + entry.size)

    @staticmethod
    def _sheets(entry: _Entry) -> int:
        return -(-entry.size // _SHEET)

    @staticmethod
    def _stop(entry: _Entry, sheet: int) -> int:
        return entry.start + min(sheet * _SHEET, entry.size)

    def _test(self, entry: _Entry, body: memoryview, first: int) -> None:
        """Test the sheets of ``body``, which begins with the sheet ``first``."""
        for number, at in enumerate(range(0, len(body), _SHEET)):
            self._test_sheet(entry, first + number, body[at : at + _SHEET])

    def _test_sheet(self, entry: _Entry, sheet: int, body: memoryview) -> None:
        at = entry.sum + sheet
        if self._view is not None and self._good[at]:
            return
        self._want(entry.start + sheet * _SHEET, len(body))
        if xxh3_64_intdigest(body) != int(self._sums[at]):
            raise BadIndex("a part of it is damaged: the checksum is another", self.name)
        self._good[at] = True
