"""Manifests made from the entries of others; data files are copied as bytes, so that nothing is lost.

Only manifests with one Avro schema can be combined this way. Those of one writer under one partition spec
usually have it.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Final

import numpy as np

from skipstone.core.evidence import Array
from skipstone.errors import CorruptFileError
from skipstone.iceberg.manifests.avro import (
    AvroError,
    AvroNode,
    parse_schema,
    read_container,
    read_value,
    write_long,
)
from skipstone.iceberg.manifests.entries import Entries
from skipstone.iceberg.manifests.lists import HINT, ManifestInfo
from skipstone.iceberg.manifests.slices import FieldSlice, SliceForm, Slicer

_STATUS, _SNAPSHOT, _FILE, _SEQUENCE, _FILE_SEQUENCE = 0, 1, 2, 3, 4
_NUMBERED: Final = (_STATUS, _SNAPSHOT, _SEQUENCE, _FILE_SEQUENCE)
_EXISTING, _ADDED, _DELETED = 0, 1, 2
_BLOCK: Final = 64 << 10


@dataclass(frozen=True, slots=True, eq=False)
class RawManifest:
    """The live entries of a manifest, as bytes."""

    meta: Mapping[str, bytes]
    entries: Entries
    """The same entries as columns."""
    files: list[bytes]
    """The data file of each entry."""
    file_sequences: list[int | None]
    """File sequence numbers, inherited ones included."""

    @property
    def schema(self) -> bytes:
        """The Avro schema."""
        return self.meta["avro.schema"]


def read_raw(data: bytes, info: ManifestInfo, entries: Entries) -> RawManifest | None:
    """Read the entries of a manifest as bytes; None if they can't be copied (format version 1).

    ``entries`` are those that reading the manifest returns.
    """
    try:
        container = read_container(data)
        schema = parse_schema(container.schema)
        positions = _positions(schema)
        if positions is None or container.text("format-version") in (None, "1"):
            return None
        sites = {
            str(number): FieldSlice(((number, ""),), SliceForm.RAW)
            for number in (_STATUS, _FILE, _FILE_SEQUENCE)
        }
        cuts = Slicer(schema, sites).cut(container.body, container.blocks)
        statuses = _numbers(schema.parts[positions[_STATUS]], cuts[str(_STATUS)])
        live = [status != _DELETED for status in statuses]
        own = _numbers(schema.parts[positions[_FILE_SEQUENCE]], cuts[str(_FILE_SEQUENCE)])
    except (AvroError, RecursionError, KeyError) as error:
        raise CorruptFileError(f"manifest is corrupt: {error}", path=info.path, hint=HINT) from None
    if sum(live) != len(entries):
        raise CorruptFileError("manifest has changed while it was read", path=info.path, hint=HINT)
    sequences = [
        info.sequence if number is None and status == _ADDED else number
        for number, status in zip(own, statuses, strict=True)
    ]
    files = [cut for cut in compress(cuts[str(_FILE)], live) if cut is not None]
    return RawManifest(container.meta, entries, files, list(compress(sequences, live)))


def _positions(schema: AvroNode) -> Mapping[int, int] | None:
    """Positions of an entry's fields by id; None if they are not exactly those of version 2 and later."""
    found = {field.field_id: at for at, field in enumerate(schema.fields) if field.field_id is not None}
    if schema.kind != "record" or sorted(found) != [*range(5)] or len(schema.fields) != 5:
        return None
    kinds = {"null", "int", "long"}
    for number in _NUMBERED:
        node = schema.parts[found[number]]
        branches = node.parts if node.kind == "union" else [node]
        if not {branch.kind for branch in branches} <= kinds:
            return None
    return found


def _numbers(node: AvroNode, cuts: Sequence[bytes | None]) -> list[int | None]:
    # Distinct encodings are few, so each is decoded once.
    values = {cut: read_value(node, cut or b"", 0)[0] for cut in dict.fromkeys(cuts)}
    return [values[cut] for cut in cuts]


# -- writing -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class WrittenManifest:
    """A container, and the entries in it."""

    data: bytes
    entries: Array
    """Their numbers."""


def write_existing(manifests: Sequence[RawManifest], order: Array, most: int) -> Iterator[WrittenManifest]:
    """Write entries of manifests with one schema as existing ones, in containers of about ``most`` bytes.

    ``order`` are the numbers of the entries, counted over all manifests. The header is the first manifest's.
    """
    meta = {**manifests[0].meta, "avro.codec": b"deflate"}
    schema = parse_schema(manifests[0].schema)
    numbers = {field.field_id: at for at, field in enumerate(schema.fields)}
    files = [file for one in manifests for file in one.files]
    file_sequences = [number for one in manifests for number in one.file_sequences]
    snapshots = np.concatenate([one.entries.snapshots for one in manifests]).tolist()
    sequences = np.concatenate([one.entries.sequences for one in manifests]).tolist()
    encoders = {number: _Encoder(schema.parts[at]) for number, at in numbers.items() if number in _NUMBERED}
    status = encoders[_STATUS].encode(_EXISTING)
    by_field = [field.field_id for field in schema.fields]

    def encoded(entry: int) -> bytes:
        values = {
            _STATUS: status,
            _SNAPSHOT: encoders[_SNAPSHOT].encode(snapshots[entry] if snapshots[entry] >= 0 else None),
            _SEQUENCE: encoders[_SEQUENCE].encode(sequences[entry]),
            _FILE_SEQUENCE: encoders[_FILE_SEQUENCE].encode(file_sequences[entry]),
            _FILE: files[entry],
        }
        return b"".join([values[number] for number in by_field if number is not None])

    container = _Container(meta)
    first = 0
    for done, entry in enumerate(order.tolist(), 1):
        container.add(encoded(entry))
        if container.size >= most:
            yield WrittenManifest(container.finish(), order[first:done])
            container, first = _Container(meta), done
    if first < len(order):
        yield WrittenManifest(container.finish(), order[first:])


class _Encoder:
    """Encodes numbers of one field, with the branch of its union."""

    def __init__(self, node: AvroNode) -> None:
        branches = node.parts if node.kind == "union" else [node]
        heads = [write_long(at) if node.kind == "union" else b"" for at in range(len(branches))]
        self._null = next((h for h, b in zip(heads, branches, strict=True) if b.kind == "null"), None)
        self._head = next((h for h, b in zip(heads, branches, strict=True) if b.kind != "null"), None)

    def encode(self, number: int | None) -> bytes:
        if number is None:
            if self._null is None:
                raise AvroError("required field of an entry is missing")
            return self._null
        if self._head is None:
            raise AvroError("field of an entry can't have a value")
        return self._head + write_long(number)


class _Container:
    """An Avro container in memory."""

    def __init__(self, meta: Mapping[str, bytes]) -> None:
        self._sync = os.urandom(16)
        items = [_text(name.encode()) + _text(value) for name, value in meta.items()]
        header = b"Obj\x01" + write_long(len(items)) + b"".join(items) + b"\x00" + self._sync
        self._parts = [header]
        self._block: list[bytes] = []
        self._held = 0
        self.size = len(header)
        """Bytes of finished blocks."""

    def add(self, record: bytes) -> None:
        self._block.append(record)
        self._held += len(record)
        if self._held >= _BLOCK:
            self._flush()

    def _flush(self) -> None:
        if not self._block:
            return
        pack = zlib.compressobj(wbits=-zlib.MAX_WBITS)
        body = pack.compress(b"".join(self._block)) + pack.flush()
        block = write_long(len(self._block)) + _text(body) + self._sync
        self._parts.append(block)
        self.size += len(block)
        self._block, self._held = [], 0

    def finish(self) -> bytes:
        self._flush()
        return b"".join(self._parts)


def _text(data: bytes) -> bytes:
    return write_long(len(data)) + data
