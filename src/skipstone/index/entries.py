"""Entries of a table's manifests, cached in its index as one file, so that planning opens no manifest.

Manifests are immutable, so entries cached under a manifest's identity are valid at every snapshot. Files are
numbered; each is complete, and the newest is used.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import numpy as np
import pyarrow as pa
from xxhash import xxh3_64_digest, xxh3_64_hexdigest

from skipstone.core.evidence import Array
from skipstone.errors import ConflictError, FileError
from skipstone.iceberg.inventory import CachedEntries, identities
from skipstone.iceberg.manifests.entries import Entries
from skipstone.iceberg.table import TableSnapshot
from skipstone.index.container import (
    COMMON,
    BadIndex,
    Container,
    ContainerWriter,
    LocalFile,
    MemoryFile,
    parsing,
)
from skipstone.index.manifest import ENTRIES
from skipstone.lake.files import Files
from skipstone.lake.snapshot import Snapshot
from skipstone.store.cache import Cache
from skipstone.store.source import ByteRange
from skipstone.store.store import ListedFile

_CONTENTS: Final = ("data", "deletes")
# A reader that has just listed the index may still read the previous file.
_RETAINED: Final = 2


def read_entries(
    access: Files, version: str, problems: list[str]
) -> tuple[CachedEntries, CachedEntries] | None:
    """Read the newest usable file: entries of data and of deletes; None if there is none.

    If it was written for ``version``, the manifest list is not read either. Why files are ignored is added to
    ``problems``.
    """
    try:
        listed = _listed(access)
    except FileError:
        return None  # the index counts as missing; status and trace report the problem
    for _, entry in listed:
        try:
            with parsing("entries"):
                container = Container.open_alone(entry.key, _bytes(access, entry), entry.size, Cache(0))
                own = container.head["version"] == version
                data, deletes = (_read(container, name, own=own) for name in _CONTENTS)
        except BadIndex as error:
            problems.append(f"{entry.key}: {error.reason}")
            continue
        return data, deletes
    return None


def _read(container: Container, name: str, *, own: bool) -> CachedEntries:
    bodies = container.wholes([(COMMON, key) for key in _arrays(name)])
    if _digest(bodies) != container.head["digests"][name]:
        raise ValueError("entries don't match their counts and manifests")
    body, counts, manifests = bodies
    entries = Entries.empty()
    if counts.any():
        table = pa.ipc.open_file(pa.py_buffer(body)).read_all()
        # Wrong offsets would point outside the buffers.
        table.validate(full=True)
        entries = Entries.from_table(table)
    if (counts < 0).any() or counts.sum() != len(entries):
        raise ValueError("entries are missing")
    if own:
        return CachedEntries(entries, {}, counts)
    stops = np.cumsum(counts)
    spans = zip((stops - counts).tolist(), stops.tolist(), strict=True)
    keys = map(tuple, json.loads(manifests.tobytes()))
    return CachedEntries(entries, dict(zip(keys, spans, strict=True)))


def _arrays(name: str) -> tuple[str, str, str]:
    return name, f"{name}/counts", f"{name}/manifests"


def _digest(bodies: Sequence[Array]) -> str:
    """Checksum of arrays together, since each could be that of another version."""
    return xxh3_64_hexdigest(b"".join([xxh3_64_digest(body.tobytes()) for body in bodies]))


def _bytes(access: Files, entry: ListedFile) -> LocalFile | MemoryFile:
    if access.store.local:
        return LocalFile(access.store.path(entry.key))
    return MemoryFile(access.source(entry).read_ranges([ByteRange(0, entry.size)])[0])


def store_entries(access: Files, snapshot: Snapshot) -> None:
    """Store the entries of a snapshot's manifests for later processes; only new manifests are read."""
    assert isinstance(snapshot, TableSnapshot)
    data, deletes = snapshot.inventory, snapshot.delete_inventory
    if data.covered and deletes.covered:
        return
    writer, digests = ContainerWriter(), {}
    for name, inventory in zip(_CONTENTS, (data, deletes), strict=True):
        manifests = json.dumps(identities(inventory.infos, inventory.specs)).encode()
        body = np.frombuffer(_serialize(inventory.everything[0]), dtype=np.uint8)
        arrays = body, np.diff(inventory.firsts), np.frombuffer(manifests, dtype=np.uint8)
        for key, array in zip(_arrays(name), arrays, strict=True):
            writer.add(COMMON, key, array)
        digests[name] = _digest(arrays)
    parts, _ = writer.parts({"version": snapshot.listed_in, "digests": digests})
    listed = _listed(access)
    number = 1 + max((number for number, _ in listed), default=0)
    # A concurrent writer has written the same entries, or newer ones.
    with suppress(ConflictError):
        access.store.write(f"entries-{number:012d}.skip", parts, exclusive=True)
        with suppress(FileError):
            access.store.delete([entry.key for _, entry in listed[_RETAINED - 1 :]])


def _serialize(entries: Entries) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    table = entries.to_table().combine_chunks()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=max(len(table), 1))
    return sink.getvalue()


def _listed(access: Files) -> list[tuple[int, ListedFile]]:
    """List the files of entries, newest first."""
    files = [(int(name[1]), e) for e in access.store.list_prefix("") if (name := ENTRIES.fullmatch(e.key))]
    return sorted(files, key=lambda pair: -pair[0])
