"""Position delete files: one per partition or per data file, sorted by path and position.

Bounds of the path are exact, so that a delete file is read only for data files between them.
"""

from __future__ import annotations

import secrets
from typing import Final

import numpy as np
import pyarrow as pa
from pyiceberg.types import LongType, StringType

from skipstone.core.evidence import Array
from skipstone.iceberg.deletes.match import PATH_ID, POS_ID
from skipstone.iceberg.manifests.entries import Entries
from skipstone.iceberg.partitions.values import PartitionKey
from skipstone.iceberg.writing.metrics import FileTally, MetricsColumn
from skipstone.iceberg.writing.target import NewFile, Target
from skipstone.parquet.write.files import Sink

_NAMES: Final = ("file_path", "pos")
_IDS: Final = {"file_path": PATH_ID, "pos": POS_ID}
_SCHEMA: Final = pa.schema(
    [
        pa.field("file_path", pa.string(), False, {b"PARQUET:field_id": str(PATH_ID).encode()}),
        pa.field("pos", pa.int64(), False, {b"PARQUET:field_id": str(POS_ID).encode()}),
    ]
)
_COLUMNS: Final = (
    MetricsColumn(PATH_ID, ("file_path",), StringType(), "bounds", None),
    MetricsColumn(POS_ID, ("pos",), LongType(), "bounds", None),
)
_GROUP_ROWS: Final = 1 << 20


def write_deletes(
    target: Target, entries: Entries, owners: Array, positions: Array, job: str, *, by_file: bool = False
) -> list[NewFile]:
    """Write the positions of deleted rows, by partition or by data file.

    ``owners`` are the indices of the data files in ``entries``.
    """
    codes = np.arange(len(entries)) if by_file else entries.partitions
    groups = codes[owners]
    paths = entries.paths.cast(pa.string())
    written: list[NewFile] = []
    try:
        for number, group in enumerate(np.unique(groups).tolist()):
            mine = np.flatnonzero(groups == group)
            part = f"{number:05d}-{secrets.token_hex(4)}"
            # Strings sort by their UTF-8 bytes, as in manifests.
            rows = pa.table([paths.take(pa.array(owners[mine])), pa.array(positions[mine])], schema=_SCHEMA)
            rows = rows.sort_by([(name, "ascending") for name in _NAMES])
            key = entries.keys[int(entries.partitions[owners[mine[0]]])]
            written.append(_write(target, key, rows, f"{part}-deletes-{job}.parquet"))
    except BaseException:
        target.delete(written)
        raise
    return written


def _write(target: Target, key: PartitionKey, rows: pa.Table, name: str) -> NewFile:
    folder = target.folder(key)
    stored = target.stored_as(f"{folder}/{name}" if folder else name)
    options = {
        "schema": _SCHEMA,
        "compression": "zstd",
        "use_dictionary": ["file_path"],
        "write_page_index": True,
        "store_schema": False,
    }
    sink = Sink(target.store, stored, options)
    tally = FileTally(key, _COLUMNS, _IDS)
    try:
        for start in range(0, len(rows), _GROUP_ROWS):
            group = rows.slice(start, _GROUP_ROWS)
            sink.write(group)
            tally.add(group)
        size = sink.close()
    except BaseException:
        sink.abandon()
        raise
    return NewFile(f"{target.root}/{stored}", size, tally.end(sink.footer), content=1)
