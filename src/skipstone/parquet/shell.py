"""A footer without its row groups, for readers that want nothing but the schema.

pyarrow parses a whole footer to give its schema, which takes long where row groups are many. The schema
comes before the row groups in the bytes, so it is copied as it is, whatever logical types it uses; the rest
is written anew. A footer that isn't laid out so is left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

_LIST, _SET, _MAP, _STRUCT = 9, 10, 11, 12
_FIXED = {1: 0, 2: 0, 3: 1, 7: 8}
_VARINTS = (4, 5, 6)
_BINARY = 8
_LAST_KEPT, _ROWS = 2, 3


class _UnusualFooterError(Exception):
    """The fields stand in another order, or a type is not known."""


def schema_shell(
    footer: bytes,
    key_values: Iterable[tuple[bytes, bytes | None]],
    created_by: bytes,
    orders: Iterable[int] = (),
) -> bytes:
    """A footer with the same schema and key-value pairs and no row groups, or ``footer`` itself.

    ``orders`` are the columns' orders as field numbers of the format's union, 0 for one that is not known.
    """
    try:
        start = _rows_at(footer)
    except (_UnusualFooterError, IndexError, RecursionError):
        return footer
    pairs = [_pair(key, value) for key, value in key_values]
    # No rows, and a list without row groups.
    parts = [footer[:start], b"\x16\0", bytes([0x19, _STRUCT])]
    if pairs:
        parts += [b"\x19", _list_header(len(pairs)), *pairs]
    parts += [b"\x18" if pairs else b"\x28", _bytes(created_by)]
    kinds = [bytes([order << 4 | _STRUCT, 0, 0]) if order else b"\0" for order in orders]
    if kinds:
        parts += [b"\x19", _list_header(len(kinds)), *kinds]
    parts.append(b"\0")
    return b"".join(parts)


def _rows_at(data: bytes) -> int:
    """Where the number of rows begins, with fields 1 and 2 before it in this order."""
    position, field = 0, 0
    while True:
        head = data[position]
        step, kind = head >> 4, head & 0x0F
        if not step:
            raise _UnusualFooterError
        field += step
        if field == _ROWS and step == 1:
            return position
        if field > _LAST_KEPT:
            raise _UnusualFooterError
        position = _skip(data, position + 1, kind)


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
            written, position = _varint(data, position)
            number = written >> 1
        yield number, kind, position
        position = _skip(data, position, kind)


def _skip(data: bytes, position: int, kind: int) -> int:
    if kind in _VARINTS:
        return _varint(data, position)[1]
    if kind in _FIXED:
        return position + _FIXED[kind]
    if kind == _BINARY:
        length, position = _varint(data, position)
        return position + length
    if kind == _STRUCT:
        while data[position]:
            head = data[position]
            position += 1
            if not head >> 4:
                position = _varint(data, position)[1]
            position = _skip(data, position, head & 0x0F)
        return position + 1
    if kind in (_LIST, _SET):
        head = data[position]
        size, position = head >> 4, position + 1
        if size == 15:
            size, position = _varint(data, position)
        if size > len(data):
            raise _UnusualFooterError
        element = head & 0x0F
        for _ in range(size):
            # A boolean takes a byte in a list, though none as a field.
            position = position + 1 if element in (1, 2) else _skip(data, position, element)
        return position
    raise _UnusualFooterError


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position += 1
        if byte < 0x80:
            return value, position
        shift += 7


def _pair(key: bytes, value: bytes | None) -> bytes:
    return b"\x18" + _bytes(key) + (b"" if value is None else b"\x18" + _bytes(value)) + b"\0"


def _list_header(size: int) -> bytes:
    return bytes([size << 4 | _STRUCT]) if size < 15 else bytes([0xF0 | _STRUCT]) + _encoded(size)


def _bytes(data: bytes) -> bytes:
    return _encoded(len(data)) + data


def _encoded(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
