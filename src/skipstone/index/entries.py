"""What a table's manifests say, kept in its index: one file, so that planning opens no manifest.

Manifests never change, so an entry that is found by its manifest's identity is true at every snapshot. Files
are numbered; the newest stands, and each holds all that was known when it was written.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Final

import numpy as np
import pyarrow as pa

from skipstone.errors import ConflictError, FileError
from skipstone.iceberg.inventory import CachedEntries, identities
from skipstone.iceberg.manifests.entries import Entries
from skipstone.iceberg.table import TableSnapshot
from skipstone.index.container import COMMON, BadIndex, Container, ContainerWriter, Held, LocalFile, parsing
from skipstone.index.manifest import ENTRIES
from skipstone.lake.files import Files
from skipstone.lake.snapshot import Snapshot
from skipstone.store.cache import Cache
from skipstone.store.source import ByteRange
from skipstone.store.store import ListedFile

_CONTENTS: Final = ("data", "deletes")
# Who has just listed may still read the one before.
_LEFT: Final = 2


def read_entries(access: Files, version: str) -> tuple[CachedEntries, CachedEntries] | None:
    """The newest file of entries, of data and of deletes; None if there is none that can be used.

    If it was written for ``version``, the list of manifests need not be read either.
    """
    try:
        listed = _listed(access)
    except FileError:
        return None  # as if there were no index; its status and the trace say why
    for _, entry in listed:
        try:
            with parsing("entries"):
                container = Container.open_alone(entry.key, _bytes(access, entry), entry.size, Cache(0))
                own = container.head["version"] == version
                data, deletes = (_kept(container, name, own=own) for name in _CONTENTS)
        except BadIndex:
            continue
        return data, deletes
    return None


def _kept(container: Container, name: str, *, own: bool) -> CachedEntries:
    counts, entries = container.whole((COMMON, f"{name}/counts")), Entries.empty()
    if counts.any():
        table = pa.ipc.open_file(pa.py_buffer(container.whole((COMMON, name)))).read_all()
        # Offsets that lie would be followed out of the buffers.
        table.validate(full=True)
        entries = Entries.from_table(table)
    if (counts < 0).any() or counts.sum() != len(entries):
        raise ValueError("entries are missing")
    if own:
        return CachedEntries(entries, {}, counts)
    told = json.loads(container.whole((COMMON, f"{name}/manifests")).tobytes())
    stops = np.cumsum(counts)
    spans = zip((stops - counts).tolist(), stops.tolist(), strict=True)
    return CachedEntries(entries, dict(zip(map(tuple, told), spans, strict=True)))


def _bytes(access: Files, entry: ListedFile) -> LocalFile | Held:
    if access.store.local:
        return LocalFile(access.store.path(entry.key))
    return Held(access.source(entry).read_ranges([ByteRange(0, entry.size)])[0])


def keep_manifests(access: Files, snapshot: Snapshot) -> None:
    """Keep what a snapshot's manifests say for the next process; only those that are new are read."""
    assert isinstance(snapshot, TableSnapshot)
    data, deletes = snapshot.inventory, snapshot.delete_inventory
    if data.covered and deletes.covered:
        return
    made = ContainerWriter()
    for name, inventory in zip(_CONTENTS, (data, deletes), strict=True):
        told = json.dumps(identities(inventory.infos, inventory.specs)).encode()
        made.add(COMMON, name, np.frombuffer(_serialised(inventory.everything[0]), dtype=np.uint8))
        made.add(COMMON, f"{name}/counts", np.diff(inventory.firsts))
        made.add(COMMON, f"{name}/manifests", np.frombuffer(told, dtype=np.uint8))
    body, _ = made.parts({"version": snapshot.listed_in})
    listed = _listed(access)
    number = 1 + max((number for number, _ in listed), default=0)
    # Somebody who was faster has written the same, or newer ones.
    with suppress(ConflictError):
        access.store.write(f"entries-{number:012d}.skip", body, exclusive=True)
        with suppress(FileError):
            access.store.delete([entry.key for _, entry in listed[_LEFT - 1 :]])


def _serialised(entries: Entries) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    table = entries.to_table().combine_chunks()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=max(len(table), 1))
    return sink.getvalue()


def _listed(access: Files) -> list[tuple[int, ListedFile]]:
    """Files of entries, newest first."""
    found = [(int(name[1]), e) for e in access.store.list_prefix("") if (name := ENTRIES.fullmatch(e.key))]
    return sorted(found, key=lambda pair: -pair[0])
