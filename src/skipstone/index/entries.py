"""What a table's manifests say, kept in its index: one file, so that planning opens no manifest.

Manifests never change, so an entry that is found by its manifest's identity is true at every snapshot. Files
are numbered; the newest stands, and each holds all that was known when it was written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

import numpy as np
import pyarrow as pa
from pyiceberg.partitioning import PartitionSpec

from skipstone.errors import ConflictError, CorruptFileError, FileError, ReadError
from skipstone.index.container import COMMON, BadIndex, Container, Held, Mapped, Writer
from skipstone.lake.files import Files
from skipstone.lake.iceberg.entries import Entries
from skipstone.lake.iceberg.inventory import Kept, identities
from skipstone.lake.iceberg.manifests import ManifestNote
from skipstone.store.cache import Cache
from skipstone.store.place import Listed
from skipstone.store.ranges import ByteRange

_NAME: Final = re.compile(r"entries-(\d{12})\.skip")
_TABLE: Final = (COMMON, "table")
# Who has just listed may still read the one before.
_LEFT: Final = 2


def read_entries(access: Files) -> Kept | None:
    """The newest file of entries; None if there is none that can be used."""
    for _, entry in _listed(access):
        try:
            container = Container.open_alone(entry.key, _bytes(access, entry), entry.size, Cache(0))
            told = json.loads(container.head["entries"])
            table = pa.ipc.open_file(pa.py_buffer(container.whole(_TABLE))).read_all()
            entries = Entries.from_table(table)
            ranges, first = {}, 0
            for *key, count in told:
                ranges[tuple(key)] = (first, first + count)
                first += count
            if first == len(entries):
                return Kept(entries, ranges)
        except (BadIndex, ReadError, CorruptFileError, KeyError, ValueError, TypeError, pa.ArrowException):
            continue
    return None


def _bytes(access: Files, entry: Listed) -> Mapped | Held:
    if access.place.local:
        return Mapped(access.place.path(entry.key))
    return Held(access.source(entry).read_ranges([ByteRange(0, entry.size)])[0])


def write_entries(
    access: Files,
    notes: Sequence[ManifestNote],
    parts: Sequence[Entries],
    specs: Mapping[int, PartitionSpec],
) -> None:
    """Keep the entries of manifests for the next process; older files are deleted."""
    sink = pa.BufferOutputStream()
    table = Entries.concat(parts).to_table().combine_chunks()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=max(len(table), 1))
    told = [[*mine, len(part)] for mine, part in zip(identities(notes, specs), parts, strict=True)]
    made = Writer()
    made.add(*_TABLE, np.frombuffer(sink.getvalue(), dtype=np.uint8))
    body, _ = made.parts({"entries": json.dumps(told)})
    listed = _listed(access)
    number = 1 + max((number for number, _ in listed), default=0)
    # Somebody who was faster has written the same, or newer ones.
    with suppress(ConflictError):
        access.place.write(f"entries-{number:012d}.skip", body, exclusive=True)
        with suppress(FileError):
            access.place.delete([entry.key for _, entry in listed[_LEFT - 1 :]])


def _listed(access: Files) -> list[tuple[int, Listed]]:
    """Files of entries, newest first."""
    found = [(int(name[1]), e) for e in access.place.below("") if (name := _NAME.fullmatch(e.key))]
    return sorted(found, key=lambda pair: -pair[0])
