"""``df.write.format("skipstone").mode("append")``: write files laid out for skipping, published together.

Spark passes a data source its partitions as they are, so rows are ordered within files, not across files as
with ``sk.ingest``. Options: ``partition_by``, ``cluster_by``, ``blooms`` (comma-separated names),
``cluster``, ``target_file_bytes`` and the other sizes of a layout, ``compression``, ``index`` (false: don't
update it), ``evolve`` (true: allow new columns), and ``storage.*`` for the object store. With ``catalog``
rows are written to an Iceberg table: see :mod:`skipstone.spark.table_sink`.
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

from skipstone.core.plain import as_bytes
from skipstone.engine.arrow_types import to_stored_batch
from skipstone.engine.jobs import LocalEngine
from skipstone.errors import SkipstoneError, UsageError
from skipstone.iceberg.catalogs import check_installed
from skipstone.lake.append import Append, Lease
from skipstone.parquet.write.files import WrittenFile, sort_batch, write_files
from skipstone.parquet.write.layout import PageLayout
from skipstone.parquet.write.profile import Profile, profile
from skipstone.spark.source import CATALOG, STORAGE, names_of, pop_prefixed
from skipstone.store.options import with_credentials
from skipstone.store.store import Store
from skipstone.write.frame import row_metadata, rows_schema, task_name
from skipstone.write.job import make_layout, target_size
from skipstone.write.lakes import (
    check_fits,
    check_partitions,
    check_target,
    fit_layout,
    index_new_files,
    lake_store,
    open_existing,
    refuse_overwrite,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_LISTS: Final = ("partition_by", "cluster_by", "blooms", "dictionary")
_SAMPLE: Final = 20_000
_MEMORY: Final = 512 * 1024 * 1024


@dataclass
class WrittenFiles(WriterCommitMessage):
    """The files that one task wrote."""

    files: tuple[WrittenFile, ...]


def make_writer(options: dict[str, str], schema: StructType, overwrite: bool) -> DataSourceWriter:
    """Return the writer of a batch: to a table if there is a catalog option, else to a directory."""
    if CATALOG in options:
        check_installed()
        from skipstone.spark.table_sink import TableWriter

        return TableWriter(options, schema, overwrite)
    if overwrite:
        raise refuse_overwrite(options.get("path", ""))
    return SinkWriter(options, schema)


class SinkWriter(DataSourceArrowWriter):
    """One append: the driver begins it, tasks write, the driver publishes."""

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self._evolve = is_true(options, "evolve", "false")
        self._store, layout, self._index = write_options(options)
        check_target(self._store)
        self._schema = rows_schema(schema)
        lake = open_existing(self._store)
        self._layout = layout if lake is None else fit_layout(layout, lake, self._schema)
        if lake is not None:
            check_fits(lake, self._schema, evolve=self._evolve)
        self._layout.check(self._schema)
        self._metadata = dict(row_metadata(schema, self._layout))
        owner = _java()
        self._lease = Lease.of(owner)
        self._job = Append.begin(self._store, owner=owner).job

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_store": with_credentials(self._store)}

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task to the stage."""
        files: list[WrittenFile] = []
        stage = self._append().stage
        runs = runs_of(
            map(to_stored_batch, iterator), self._layout, partitioned=bool(self._layout.partition_by)
        )
        for number, (rows, sample_profile) in enumerate(runs):
            task = f"{task_name()}-{number}"
            files += write_files(
                rows, stage, self._job, task, self._layout, sample_profile, metadata=self._metadata
            )
        return WrittenFiles(tuple(files))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish the files of successful tasks, then index them."""
        keys = [file.key for each in messages if isinstance(each, WrittenFiles) for file in each.files]
        with self._append() as append:
            lake = open_existing(self._store)
            if lake is not None:
                check_fits(lake, self._schema, evolve=self._evolve)
            if self._layout.partition_by:
                check_partitions(lake, keys, self._schema)
            append.publish(keys)
        if keys and self._index:
            # The rows are published: a stale index costs time only, and the next job updates it.
            with suppress(SkipstoneError):
                index_new_files(self._store, self._layout, LocalEngine())

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002
        """Delete the staged files."""
        self._append().abort()

    def _append(self) -> Append:
        return Append(self._store, self._job, self._lease)


def write_options(options: dict[str, str]) -> tuple[Store, PageLayout, bool]:
    """Read the options of ``option(...)`` and ``save``; an unknown option is an error."""
    storage = pop_prefixed(options, STORAGE)
    path = options.pop("path", "")
    if not path:
        raise UsageError("path is missing", hint='pass one to save(), as in .save("lake")')
    index = is_true(options, "index")
    chosen = layout_options(options)
    columns = {name: chosen.pop(name, ()) for name in ("partition_by", "cluster_by", "blooms")}
    size = chosen.pop("target_file_bytes", None)
    layout = make_layout(
        **columns, cluster=chosen.pop("cluster", "sort"), target_file_bytes=size, others=chosen
    )
    return lake_store(path, storage or None), layout, index


def is_true(options: dict[str, str], name: str, default: str = "true") -> bool:
    """Pop a boolean option."""
    value = options.pop(name, default).lower()
    if value not in ("true", "false"):
        raise UsageError(f"{name} must be true or false, got {value!r}")
    return value == "true"


def layout_options(options: dict[str, str]) -> dict[str, Any]:
    """Convert layout options from strings."""
    force = is_true(options, "force", "false")
    integers = {field.name for field in fields(PageLayout) if field.type in ("int", "int | None")}
    chosen: dict[str, Any] = {}
    for name, text in options.items():
        if name == "target_file_bytes":
            chosen[name] = target_size(text, force=force)
        elif name.endswith("_bytes"):
            chosen[name] = as_bytes(text, name)
        elif name in _LISTS:
            chosen[name] = tuple(names_of(text) or ())
        elif name in integers:
            chosen[name] = _number(name, text, int, "an integer")
        elif name == "bloom_fpp":
            chosen[name] = _number(name, text, float, "a fraction such as 0.01")
        else:
            chosen[name] = text
    return chosen


def _number(name: str, text: str, kind: Callable[[str], float], what: str) -> float:
    try:
        return kind(text)
    except ValueError:
        raise UsageError(f"{name} must be {what}, got {text!r}") from None


# -- one task ----------------------------------------------------------------------------------


def runs_of(
    batches: Iterable[pa.RecordBatch], layout: PageLayout, *, partitioned: bool
) -> Iterator[tuple[Iterable[pa.RecordBatch], Profile]]:
    """Split the rows into runs to write: one file each if rows are clustered, else a single run."""
    rest = iter(batches)
    held: list[pa.RecordBatch] = []
    sample_profile: Profile | None = None
    size = rows = 0
    for batch in rest:
        held.append(batch)
        size += batch.nbytes
        rows += batch.num_rows
        if sample_profile is None and rows >= _SAMPLE:
            sample_profile = profile(pa.Table.from_batches(held).slice(0, _SAMPLE), layout)
            if not layout.cluster_by:
                yield _chained(held, rest), sample_profile
                return
        # Rows of many partitions become one file each, so only memory ends such a run.
        full = sample_profile is not None and rows * sample_profile.bytes_per_row >= layout.target_file_bytes
        if size >= _MEMORY or (full and not partitioned):
            yield _sort(held, layout), sample_profile or profile(pa.Table.from_batches(held), layout)
            held, size, rows = [], 0, 0
    if rows:
        yield _sort(held, layout), sample_profile or profile(pa.Table.from_batches(held), layout)


def _sort(held: Sequence[pa.RecordBatch], layout: PageLayout) -> list[pa.RecordBatch]:
    batches: list[pa.RecordBatch] = sort_batch(pa.Table.from_batches(held), layout).to_batches()
    return batches


def _chained(held: list[pa.RecordBatch], rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from held
    held.clear()
    yield from rest


def _java() -> int | None:
    """Return the process id of this worker's JVM, which owns the job."""
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
