"""Thrift's compact protocol, the writing side: the few shapes that a slice's footer is made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

I32: Final = 5
I64: Final = 6
BINARY: Final = 8
LIST: Final = 9
STRUCT: Final = 12
STOP: Final = b"\0"
_LONG_LIST: Final = 15


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
