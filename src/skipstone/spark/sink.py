"""``df.write.format("skipstone").mode("append")``: files laid out for skipping, published at the end.

Spark hands a data source its partitions as they are, so rows are ordered within a file, not over all files:
``sk.ingest`` does that too. Options: ``partition_by``, ``cluster_by``, ``blooms`` (names with commas
between), ``cluster``, ``target_file_bytes`` and the other sizes of a layout, ``compression``, ``index``
(false: it stays as it is), ``evolve`` (true: new columns may come), and ``storage.*`` for the object store.
With ``catalog`` rows go into an Iceberg table: see :mod:`skipstone.spark.table_sink`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceWriter, WriterCommitMessage

from skipstone.engine.jobs import LocalEngine
from skipstone.errors import SkipstoneError, UsageError
from skipstone.lake.append import Append, Lease
from skipstone.parquet.write.files import Written, sort_batch, write_files
from skipstone.parquet.write.layout import PageLayout
from skipstone.parquet.write.profile import Profile, profile
from skipstone.spark.source import CATALOG, STORAGE, names_of, taken
from skipstone.store.options import with_credentials
from skipstone.store.store import Store
from skipstone.write.frame import as_rows, row_metadata, rows_schema, task_name
from skipstone.write.job import make_layout
from skipstone.write.lakes import (
    check_fits,
    check_store,
    fitted,
    index_new,
    lake_store,
    opened,
    refuse_overwrite,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_LISTS: Final = ("partition_by", "cluster_by", "blooms", "dictionary")
_SAMPLE: Final = 20_000
_MEMORY: Final = 512 * 1024 * 1024


@dataclass
class WrittenFiles(WriterCommitMessage):
    """What one task wrote."""

    written: tuple[Written, ...]


def make_writer(options: dict[str, str], schema: StructType, overwrite: bool) -> DataSourceWriter:
    """What writes a batch: into a table if a catalog is named, else into a directory, which only grows."""
    if CATALOG in options:
        from skipstone.spark.table_sink import TableWriter

        return TableWriter(options, schema, overwrite)
    if overwrite:
        raise refuse_overwrite(options.get("path", ""))
    return SinkWriter(options, schema)


class SinkWriter(DataSourceArrowWriter):
    """One append: begun by the driver, written by tasks, published by the driver."""

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        evolve = is_true(options, "evolve", "false")
        self._store, layout, self._index = write_options(options)
        check_store(self._store)
        self._schema = rows_schema(schema)
        lake = opened(self._store)
        self._layout = layout if lake is None else fitted(layout, lake, self._schema)
        if lake is not None:
            check_fits(lake, self._schema, evolve=evolve)
        self._layout.check(self._schema)
        self._metadata = dict(row_metadata(schema, self._layout))
        owner = _java()
        self._lease = Lease.of(owner)
        self._job = Append.begin(self._store, owner=owner).job

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_store": with_credentials(self._store)}

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task to the stage."""
        found: list[Written] = []
        stage = self._append().stage
        runs = runs_of(map(as_rows, iterator), self._layout, parted=bool(self._layout.partition_by))
        for number, (rows, seen) in enumerate(runs):
            task = f"{task_name()}-{number}"
            found += write_files(rows, stage, self._job, task, self._layout, seen, metadata=self._metadata)
        return WrittenFiles(tuple(found))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish the files of the tasks that have won, then index them."""
        keys = [file.key for each in messages if isinstance(each, WrittenFiles) for file in each.written]
        with self._append() as append:
            append.publish(keys)
        if keys and self._index:
            # The rows are in: an index that fails costs time, and the next job makes up for it.
            with suppress(SkipstoneError):
                index_new(self._store, self._layout, LocalEngine())

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002
        """Remove what was staged."""
        self._append().abort()

    def _append(self) -> Append:
        return Append(self._store, self._job, self._lease)


def write_options(given: dict[str, str]) -> tuple[Store, PageLayout, bool]:
    """What ``option(...)`` and ``save`` have said; an option that nobody knows is an error."""
    storage = taken(given, STORAGE)
    path = given.pop("path", "")
    if not path:
        raise UsageError("there is no path", hint='give one to save(), as in .save("lake")')
    index = is_true(given, "index")
    chosen = layout_options(given)
    known = {name: chosen.pop(name, ()) for name in ("partition_by", "cluster_by", "blooms")}
    size = chosen.pop("target_file_bytes", None)
    layout = make_layout(
        **known, cluster=chosen.pop("cluster", "sort"), target_file_bytes=size, others=chosen
    )
    return lake_store(path, storage or None), layout, index


def is_true(given: dict[str, str], name: str, usual: str = "true") -> bool:
    """Take an option that is true or false."""
    told = given.pop(name, usual).lower()
    if told not in ("true", "false"):
        raise UsageError(f"{name} is {told!r}", hint="give true or false")
    return told == "true"


def layout_options(given: dict[str, str]) -> dict[str, Any]:
    """Options of a layout in the types that it has."""
    whole = {field.name for field in fields(PageLayout) if field.type in ("int", "int | None")}
    chosen: dict[str, Any] = {}
    for name, text in given.items():
        if name in _LISTS:
            chosen[name] = tuple(names_of(text) or ())
        elif name in whole:
            chosen[name] = _number(name, text, int, "a whole number")
        elif name == "bloom_fpp":
            chosen[name] = _number(name, text, float, "a share such as 0.01")
        else:
            chosen[name] = text
    return chosen


def _number(name: str, text: str, kind: Callable[[str], float], what: str) -> float:
    try:
        return kind(text)
    except ValueError:
        raise UsageError(f"{name} is {text!r}", hint=f"give {what}") from None


# -- one task ----------------------------------------------------------------------------------


def runs_of(
    batches: Iterable[pa.RecordBatch], layout: PageLayout, *, parted: bool
) -> Iterator[tuple[Iterable[pa.RecordBatch], Profile]]:
    """The rows in runs that are written apart: one file each where an order is asked for, else all."""
    rest = iter(batches)
    held: list[pa.RecordBatch] = []
    seen: Profile | None = None
    size = rows = 0
    for batch in rest:
        held.append(batch)
        size += batch.nbytes
        rows += batch.num_rows
        if seen is None and rows >= _SAMPLE:
            seen = profile(pa.Table.from_batches(held).slice(0, _SAMPLE), layout)
            if not layout.cluster_by:
                yield _chained(held, rest), seen
                return
        # Rows of many partitions make a file of each.
        full = seen is not None and rows * seen.bytes_per_row >= layout.target_file_bytes
        if size >= _MEMORY or (full and not parted):
            yield _ordered(held, layout), seen or profile(pa.Table.from_batches(held), layout)
            held, size, rows = [], 0, 0
    if rows:
        yield _ordered(held, layout), seen or profile(pa.Table.from_batches(held), layout)


def _ordered(held: Sequence[pa.RecordBatch], layout: PageLayout) -> list[pa.RecordBatch]:
    found: list[pa.RecordBatch] = sort_batch(pa.Table.from_batches(held), layout).to_batches()
    return found


def _chained(held: list[pa.RecordBatch], rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from held
    held.clear()
    yield from rest


def _java() -> int | None:
    """The JVM that this worker serves: the job lives as long as it does."""
    number = os.getpid()
    while number > 1:
        try:
            if Path(f"/proc/{number}/comm").read_text().strip() == "java":
                return number
            after_name = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
            number = int(after_name[1])
        except (OSError, ValueError, IndexError):
            break
    return None
