"""Thrift's compact protocol on bytes, where a decoder would create objects for everything.

Footers are walked to copy their schema unchanged, with any logical types, and encoded for page slices.
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
_SCHEMA, _ROWS = 2, 3
_LONG_LIST: Final = 15
_LONGEST_VARINT: Final = 70


# -- writing -----------------------------------------------------------------------------------


def varint(value: int) -> bytes:
    """Encode an unsigned integer, seven bits per byte."""
    # Nearly all integers are this short.
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
    """Encode a non-negative count or offset as a 32- or 64-bit field."""
    return varint(value << 1)


def binary(data: bytes) -> bytes:
    """Encode a string with its length."""
    return varint(len(data)) + data


def listing(kind: int, items: Sequence[bytes]) -> bytes:
    """Encode a list of encoded items."""
    return list_head(kind, len(items)) + b"".join(items)


def list_head(kind: int, size: int) -> bytes:
    """Encode the header of a list."""
    if size < _LONG_LIST:
        return bytes((size << 4 | kind,))
    return bytes((_LONG_LIST << 4 | kind,)) + varint(size)


def structure(fields: Iterable[tuple[int, int, bytes]]) -> bytes:
    """Encode a struct of (number, kind, encoded value) fields in ascending order.

    >>> structure([(1, I32, integer(2))]).hex()
    '150400'
    """
    return open_structure(fields) + STOP


def open_structure(fields: Iterable[tuple[int, int, bytes]]) -> bytes:
    """Encode a struct without its end, so that higher fields can follow."""
    parts = []
    last = 0
    for number, kind, value in fields:
        parts += [bytes(((number - last) << 4 | kind,)), value]
        last = number
    return b"".join(parts)


def pair(key: bytes, value: bytes | None) -> bytes:
    """Encode a key-value pair of a footer."""
    return b"\x18" + binary(key) + (b"" if value is None else b"\x18" + binary(value)) + STOP


# -- walking -----------------------------------------------------------------------------------


class UnusualFooter(Exception):
    """The fields are in another order, or a type is unknown."""


def rows_at(data: bytes) -> int:
    """Return the position of the number of rows, if only fields 1 and 2 precede it, in this order."""
    position, field = 0, 0
    while True:
        head = data[position]
        step, kind = head >> 4, head & 0x0F
        if not step:
            raise UnusualFooter
        field += step
        if field == _ROWS and step == 1:
            return position
        if field > _SCHEMA:
            raise UnusualFooter
        position = skip(data, position + 1, kind)


def struct_fields(data: bytes, position: int) -> Iterator[tuple[int, int, int]]:
    """Yield the fields of an encoded struct: number, kind, and position of the value."""
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
    """Return the position after a value of some kind."""
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
            # A boolean takes a byte in a list, but none as a field.
            position = position + 1 if element in (1, 2) else skip(data, position, element)
        return position
    raise UnusualFooter


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Decode an unsigned integer, and return it with the position after it."""
    value = 0
    for shift in range(0, _LONGEST_VARINT, 7):
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position += 1
        if byte < 0x80:
            return value, position
    raise UnusualFooter
