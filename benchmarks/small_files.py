"""An Iceberg table of many small files: made once under ``.bench/``, and compacted again and again.

The rows are the events of :mod:`benchmarks.lakes` in the order in which they happened, as a stream leaves
them: each file has a short time and all users. pyiceberg writes the files, fifty to a commit. A copy of the
table has the same files and metadata in a catalog of its own, and puts new files in a folder of its own.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from rich.console import Console

import skipstone as sk
from benchmarks.lakes import Events

NAME = "bench.events"
COMMIT = 50
# The level that everyone writes with.
LEVEL = 1
_METADATA = "location.txt"


@dataclass(frozen=True)
class SmallFiles:
    """A table that was made."""

    events: Events
    folder: Path

    @cached_property
    def metadata(self) -> str:
        """Location of its metadata file."""
        return (self.folder / _METADATA).read_text()

    @cached_property
    def files(self) -> list[str]:
        """Its data files."""
        return sorted(str(path) for path in self.folder.glob("table/data/*.parquet"))

    @cached_property
    def bytes(self) -> int:
        """What they weigh."""
        return sum(Path(path).stat().st_size for path in self.files)

    @cached_property
    def digest(self) -> tuple[int, int]:
        """What every rewrite must hold."""
        return digest(self.files)

    def copy(self, folder: Path, target: int) -> Any:
        """The table in a catalog of its own; a rewrite of it writes below ``folder``."""
        shutil.rmtree(folder, ignore_errors=True)
        catalog = sk.catalog(folder / "catalog")
        catalog.iceberg.create_namespace_if_not_exists(NAME.partition(".")[0])
        table = catalog.iceberg.register_table(NAME, self.metadata)
        with table.transaction() as change:
            change.set_properties(
                {
                    "write.data.path": f"{folder}/data",
                    "write.metadata.path": f"{folder}/metadata",
                    "write.parquet.compression-codec": "zstd",
                    "write.parquet.compression-level": str(LEVEL),
                    "write.target-file-size-bytes": str(target),
                }
            )
        return catalog.open(NAME)


def small_files(events: Events, data: Path, console: Console) -> SmallFiles:
    """The table, made if it is not there: a file of each block of events."""
    folder = data / f"small-files-{events.rows}-{events.blocks}-{events.seed}"
    made = SmallFiles(events, folder)
    # Its metadata has absolute paths, so that it can't be made elsewhere and moved.
    if not (folder / _METADATA).exists():
        console.print(f"making {folder.name} …", style="dim")
        shutil.rmtree(folder, ignore_errors=True)
        _make(events, folder)
    return made


def _make(events: Events, folder: Path) -> None:
    catalog = sk.catalog(folder / "catalog").iceberg
    catalog.create_namespace_if_not_exists(NAME.partition(".")[0])
    table = catalog.create_table(NAME, events.block(0).schema, location=str(folder / "table"))
    for first in range(0, events.blocks, COMMIT):
        blocks = [events.block(number) for number in range(first, min(first + COMMIT, events.blocks))]
        with table.transaction() as change, change.update_snapshot().fast_append() as append:
            for block in blocks:
                for file in _dataframe_to_data_files(table.metadata, block, table.io):
                    append.append_data_file(file)
    (folder / _METADATA).write_text(table.metadata_location)


def digest(files: list[str]) -> tuple[int, int]:
    """The number of rows, and a sum over their hashes: the same rows in any order and in any files."""
    columns = "event_id, epoch_us(ts), user_id, session, kind, amount, payload"
    with closing(duckdb.connect()) as connection:
        query = f"SELECT count(*), sum(hash({columns})::HUGEINT) FROM read_parquet($1)"
        found = connection.execute(query, [files]).fetchone()
    assert found is not None
    return int(found[0]), int(found[1])


def data_files(table: Any) -> list[str]:
    """Locations of the data files of a table's snapshot."""
    paths: list[str] = table.inventory.everything[0].paths.to_pylist()
    return [path.removeprefix("file://") for path in paths]


def blocks_of(events: Events) -> Iterator[pa.Table]:
    """The rows in order."""
    return (events.block(number) for number in range(events.blocks))
