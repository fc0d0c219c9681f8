"""Footers and page indexes changed field by field: files that writers with defects have made.

A reader and writer of Thrift's compact protocol that knows no schema: a struct is a dict from field
number to ``[wire type, value]``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Struct = dict[int, list[Any]]
TRUE, FALSE, I32, I64, DOUBLE, BINARY, LIST, STRUCT = 1, 2, 5, 6, 7, 8, 9, 12


class _Reader:
    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def varint(self) -> int:
        result = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                return result
            shift += 7

    def zigzag(self) -> int:
        n = self.varint()
        return (n >> 1) ^ -(n & 1)

    def value(self, kind: int) -> Any:
        if kind in (TRUE, FALSE):
            return kind == TRUE
        if kind == 3:
            self.at += 1
            return self.data[self.at - 1]
        if kind in (4, I32, I64):
            return self.zigzag()
        if kind == DOUBLE:
            self.at += 8
            return struct.unpack_from("<d", self.data, self.at - 8)[0]
        if kind == BINARY:
            size = self.varint()
            self.at += size
            return self.data[self.at - size : self.at]
        if kind in (LIST, 10):
            head = self.data[self.at]
            self.at += 1
            size, item = head >> 4, head & 15
            if size == 15:
                size = self.varint()
            if item in (TRUE, FALSE):  # a byte each
                self.at += size
                return item, [b == TRUE for b in self.data[self.at - size : self.at]]
            return item, [self.value(item) for _ in range(size)]
        assert kind == STRUCT, kind
        return self.struct()

    def struct(self) -> Struct:
        fields: Struct = {}
        last = 0
        while True:
            head = self.data[self.at]
            self.at += 1
            if head == 0:
                return fields
            kind = head & 15
            last = last + (head >> 4) if head >> 4 else self.zigzag()
            fields[last] = [kind, self.value(kind)]


def _varint(n: int) -> bytes:
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes([*out, n])


def _value(kind: int, value: Any) -> bytes:
    if kind in (TRUE, FALSE):
        return b""
    if kind == 3:
        return bytes([value])
    if kind in (4, I32, I64):
        return _varint((value << 1) ^ (value >> 63))
    if kind == DOUBLE:
        return struct.pack("<d", value)
    if kind == BINARY:
        return _varint(len(value)) + value
    if kind in (LIST, 10):
        item, items = value
        head = (
            bytes([len(items) << 4 | item]) if len(items) < 15 else bytes([0xF0 | item]) + _varint(len(items))
        )
        if item in (TRUE, FALSE):
            return head + bytes([TRUE if v else FALSE for v in items])
        return head + b"".join(_value(item, v) for v in items)
    return encode(value)


def encode(fields: Struct) -> bytes:
    """A struct as bytes."""
    out, last = b"", 0
    for number in sorted(fields):
        kind, value = fields[number]
        if kind in (TRUE, FALSE):
            kind = TRUE if value else FALSE
        step = number - last
        out += bytes([step << 4 | kind]) if 0 < step < 16 else bytes([kind]) + _varint(number << 1)
        out += _value(kind, value)
        last = number
    return out + b"\0"


def patch_footer(path: Path, change: Callable[[Struct], None]) -> Path:
    """Rewrite the footer of a file after ``change`` has had its way with it."""
    data = path.read_bytes()
    size = int.from_bytes(data[-8:-4], "little")
    start = len(data) - 8 - size
    footer = _Reader(data, start).struct()
    change(footer)
    new = encode(footer)
    path.write_bytes(data[:start] + new + len(new).to_bytes(4, "little") + b"PAR1")
    return path


def chunks(footer: Struct) -> list[Struct]:
    """The ColumnMetaData of every chunk."""
    return [chunk[3][1] for chunk in columns(footer)]


def columns(footer: Struct) -> list[Struct]:
    """Every ColumnChunk."""
    return [chunk for group in footer[4][1][1] for chunk in group[1][1][1]]


def patch_statistics(path: Path, change: Callable[[Struct], None]) -> Path:
    """Change the statistics of every chunk (1 max, 2 min, 3 nulls, 5 max_value, 6 min_value, 9 NaNs)."""

    def each(footer: Struct) -> None:
        for chunk in chunks(footer):
            change(chunk.setdefault(12, [STRUCT, {}])[1])

    return patch_footer(path, each)


def patch_column_index(path: Path, change: Callable[[Struct], None]) -> Path:
    """Change the column index of every chunk (1 null pages, 2 min, 3 max, 4 order, 5 null counts)."""
    data = path.read_bytes()
    size = int.from_bytes(data[-8:-4], "little")
    start = len(data) - 8 - size
    footer = _Reader(data, start).struct()
    body = data[:start]
    for chunk in columns(footer):
        index = _Reader(data, chunk[6][1]).struct()
        change(index)
        new = encode(index)
        chunk[6][1], chunk[7][1] = len(body), len(new)
        body += new
    end = encode(footer)
    path.write_bytes(body + end + len(end).to_bytes(4, "little") + b"PAR1")
    return path


@dataclass(frozen=True)
class Page:
    """A page as the offset index has it: its bytes, header included, and its first row in the file."""

    start: int
    stop: int
    first_row: int
    last_row: int


def data_pages(path: Path) -> dict[str, list[Page]]:
    """The data pages of every column by its dotted path, in order, by the offset indexes of a file."""
    data = path.read_bytes()
    size = int.from_bytes(data[-8:-4], "little")
    footer = _Reader(data, len(data) - 8 - size).struct()
    found: dict[str, list[Page]] = {}
    before = 0
    for group in footer[4][1][1]:
        rows = group[3][1]
        for chunk in group[1][1][1]:
            name = ".".join(part.decode() for part in chunk[3][1][3][1][1])
            places = _Reader(data, chunk[4][1]).struct()[1][1][1]
            firsts = [place[3][1] for place in places] + [rows]
            found.setdefault(name, []).extend(
                Page(place[1][1], place[1][1] + place[2][1], before + first, before + after - 1)
                for place, first, after in zip(places, firsts, firsts[1:], strict=False)
            )
        before += rows
    return found


def dictionary_pages(path: Path) -> dict[str, list[tuple[int, int]]]:
    """The start and stop of the dictionary page of every chunk that has one, by the column's dotted path."""
    data = path.read_bytes()
    size = int.from_bytes(data[-8:-4], "little")
    footer = _Reader(data, len(data) - 8 - size).struct()
    found: dict[str, list[tuple[int, int]]] = {}
    for chunk in chunks(footer):
        if 11 in chunk:
            name = ".".join(part.decode() for part in chunk[3][1][1])
            found.setdefault(name, []).append((chunk[11][1], chunk[9][1]))
    return found


def page_header_size(data: bytes, start: int) -> int:
    """How many bytes the header of the page at ``start`` has."""
    reader = _Reader(data, start)
    reader.struct()
    return reader.at - start
