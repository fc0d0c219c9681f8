"""How pyarrow writes an expression: Arrow IPC, its structure in the schema's metadata."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

Entries = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Node:
    """One part of a serialized expression: a column, a constant or a call, and how it was written."""

    batch: pa.RecordBatch
    entries: Entries
    name: str = ""
    args: tuple[Node, ...] = ()
    options: pa.Scalar | None = None
    path: tuple[str, ...] = ()
    scalar: pa.Scalar | None = None

    def walk(self) -> Iterator[Node]:
        """This part and every part below it."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.args))

    def option(self, name: str) -> Any:
        """One option of the call, as Python has it."""
        return None if self.options is None else self.options[name].as_py()

    def expression(self) -> pc.Expression:
        """This part alone as a pyarrow expression."""
        batch = self.batch.replace_schema_metadata(pa.KeyValueMetadata(self.entries))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        return pc.Expression._deserialize(sink.getvalue())


def decode(expr: pc.Expression) -> Node:
    """``expr`` taken apart; raises ArrowNotImplementedError for columns by position."""
    reader = pa.ipc.open_file(expr.__reduce__()[1][0])
    batch, entries = reader.get_batch(0), _metadata(reader.schema)
    done: list[Node] = []
    calls: list[tuple[int, int]] = []
    at = 0
    while at < len(entries):
        key, value = entries[at]
        if key == b"call":
            calls.append((at, len(done)))
        elif key == b"end":
            start, first = calls.pop()
            args = [n for n in done[first:] if n.options is None or n.name]
            options = next((n.options for n in done[first:] if n.options is not None and not n.name), None)
            del done[first:]
            done.append(Node(batch, entries[start : at + 1], value.decode(), tuple(args), options))
        elif key == b"nested_field_ref":
            parts = entries[at + 1 : at + 1 + int(value)]
            done.append(Node(batch, [entries[at], *parts], path=tuple(v.decode() for _, v in parts)))
            at += len(parts)
        elif key == b"field_ref":
            done.append(Node(batch, [entries[at]], path=(value.decode(),)))
        else:
            held = batch.column(int(value))[0]
            kind = {"options": held} if key == b"options" else {"scalar": held}
            done.append(Node(batch, [entries[at]], **kind))
        at += 1
    return done[0]


def _metadata(schema: pa.Schema) -> Entries:
    """The schema's metadata in order and with repeated keys, which ``schema.metadata`` drops."""
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    capsule = schema.__arrow_c_schema__()
    # ArrowSchema begins with three pointers: format, name, metadata.
    at = ctypes.cast(get_pointer(capsule, b"arrow_schema"), ctypes.POINTER(ctypes.c_void_p))[2] or 0

    def size() -> int:
        nonlocal at
        at += 4
        return int(struct.unpack("=i", ctypes.string_at(at - 4, 4))[0])

    def text() -> bytes:
        nonlocal at
        length = size()
        at += length
        return ctypes.string_at(at - length, length)

    return [(text(), text()) for _ in range(size())]
