"""Thrift's compact protocol by hand, where a decoder would make objects of everything.

Footers are walked to copy their schema as it is, whatever logical types it uses, and written for slices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

I32: Final = 5
I64: Final = 6
BINARY: Final = 8
LIST: Final = 9
STRUCT: Final = 12
STOP: Final = b"\0"
_SET: Final = 10
_FIXED: Final = {1: 0, 2: 0, 3: 1, 7: 8}
_VARINTS: Final = (4, I32, I64)
_LAST_KEPT, _ROWS = 2, 3
_LONG_LIST: Final = 15
_LONGEST_VARINT: Final = 70


# -- writing -----------------------------------------------------------------------------------


def varint(value: int) -> bytes:
    """An unsigned integer, seven bits a byte."""
    # Nearly all are as short as these.
    if value < 1 << 7:
        return bytes((value,))
    if value < 1 << 14:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 1 << 21:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def integer(value: int) -> bytes:
    """A count or an offset, never negative, as a field of 32 or 64 bits holds it."""
    return varint(value << 1)


def binary(data: bytes) -> bytes:
    """A string with its length."""
    return varint(len(data)) + data


def listing(kind: int, items: Sequence[bytes]) -> bytes:
    """A list of encoded items."""
    return list_head(kind, len(items)) + b"".join(items)


def list_head(kind: int, size: int) -> bytes:
    """What stands before a list's items."""
    if size < _LONG_LIST:
        return bytes((size << 4 | kind,))
    return bytes((_LONG_LIST << 4 | kind,)) + varint(size)


def structure(fields: Iterable[tuple[int, int, bytes]]) -> bytes:
    """A struct of (number, kind, encoded value) fields in ascending order.

    >>> structure([(1, I32, integer(2))]).hex()
    '150400'
    """
    return opened(fields) + STOP


def opened(fields: Iterable[tuple[int, int, bytes]]) -> bytes:
    """The same without its end, so that higher fields can follow."""
    parts = []
    last = 0
    for number, kind, value in fields:
        parts += [bytes(((number - last) << 4 | kind,)), value]
        last = number
    return b"".join(parts)


def pair(key: bytes, value: bytes | None) -> bytes:
    """A key-value pair of a footer."""
    return b"\x18" + binary(key) + (b"" if value is None else b"\x18" + binary(value)) + STOP


# -- walking -----------------------------------------------------------------------------------


class UnusualFooter(Exception):
    """The fields stand in another order, or a type is not known."""


def rows_at(data: bytes) -> int:
    """Where the number of rows begins, with fields 1 and 2 before it in this order."""
    position, field = 0, 0
    while True:
        head = data[position]
        step, kind = head >> 4, head & 0x0F
        if not step:
            raise UnusualFooter
        field += step
        if field == _ROWS and step == 1:
            return position
        if field > _LAST_KEPT:
            raise UnusualFooter
        position = skip(data, position + 1, kind)


def struct_fields(data: bytes, position: int) -> Iterator[tuple[int, int, int]]:
    """The fields of an encoded struct, one by one: number, kind, and where the value begins."""
    number = 0
    while data[position]:
        head = data[position]
        step, kind = head >> 4, head & 0x0F
        position += 1
        if step:
            number += step
        else:
            written, position = read_varint(data, position)
            number = written >> 1
        yield number, kind, position
        position = skip(data, position, kind)


def skip(data: bytes, position: int, kind: int) -> int:
    """Where a value of some kind ends."""
    if kind in _VARINTS:
        return read_varint(data, position)[1]
    if kind in _FIXED:
        return position + _FIXED[kind]
    if kind == BINARY:
        length, position = read_varint(data, position)
        return position + length
    if kind == STRUCT:
        while data[position]:
            head = data[position]
            position += 1
            if not head >> 4:
                position = read_varint(data, position)[1]
            position = skip(data, position, head & 0x0F)
        return position + 1
    if kind in (LIST, _SET):
        head = data[position]
        size, position = head >> 4, position + 1
        if size == 15:
            size, position = read_varint(data, position)
        if size > len(data):
            raise UnusualFooter
        element = head & 0x0F
        for _ in range(size):
            # A boolean takes a byte in a list, though none as a field.
            position = position + 1 if element in (1, 2) else skip(data, position, element)
        return position
    raise UnusualFooter


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """An unsigned integer, and where it ends."""
    value = 0
    for shift in range(0, _LONGEST_VARINT, 7):
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position += 1
        if byte < 0x80:
            return value, position
    raise UnusualFooter
