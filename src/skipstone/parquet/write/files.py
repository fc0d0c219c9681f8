"""Write a stream of rows as Parquet files of a target size, each of one partition."""

from __future__ import annotations

import contextlib
import math
import os
import re
import tempfile
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from skipstone.errors import SchemaError, SkipstoneError, UsageError, WriteError
from skipstone.parquet.write.columns import conform, stored_schema
from skipstone.parquet.write.layout import PageLayout
from skipstone.parquet.write.order import sort_batch
from skipstone.parquet.write.partition import Split, split_rows
from skipstone.parquet.write.profile import Profile, writer_options
from skipstone.store.local import make_directories, sync_file
from skipstone.store.store import Store

__all__ = ["WrittenFile", "sort_batch", "staged_as", "write_files"]

_MOST_OPEN = 64
# The last file may exceed the target by this factor, rather than leave a tiny file.
_STRETCH = 1.5
# Memory of an array besides its values, which matters for parts of a row or two.
_ARRAY_BYTES = 300
# A file this close to its limit is full: another row group would be tiny.
_SLACK = 0.05
# The last row group of a file ends at a page boundary if it has this many pages.
_MANY_PAGES = 20


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A written file; ``partition`` is its directory, "" without partitions.

    ``note`` is the result of the shape's tally.
    """

    key: str
    rows: int
    bytes: int
    row_groups: int
    partition: str
    note: Any = None


def write_files(
    batches: Iterable[pa.RecordBatch],
    stage: Store,
    job: str,
    task: str,
    layout: PageLayout,
    profile: Profile,
    *,
    expected_bytes: float | None = None,
    expected_rows: int | None = None,
    metadata: Mapping[str, str] | None = None,
    shape: FileShape | None = None,
) -> list[WrittenFile]:
    """Write rows in their order to ``part-<task>-<n>-<job>.parquet``.

    The default ``shape`` is a directory's: staged files have the key :func:`staged_as`.

    A file ends near the layout's target. With ``expected_bytes``, the total that this call will write, the
    last file may exceed it by half. With ``expected_rows``, the number of rows that this call will write to
    one partition, they are divided evenly among files, by the bytes that rows written so far have taken.
    Contiguous rows of a partition make the fewest files. After a failure all
    files are deleted.
    """
    if not re.fullmatch("[0-9a-f]+", job):
        raise UsageError(f"invalid job id {job!r}", hint="use lower-case hexadecimal digits")
    if not re.fullmatch(r"[0-9A-Za-z_.]+(-[0-9A-Za-z_.]+)*", task):
        raise UsageError(f"invalid task id {task!r}", hint="use letters, digits and hyphens")
    work = _Work(
        stage, job, task, layout, profile, expected_bytes, expected_rows, metadata, shape or Folders(layout)
    )
    try:
        for batch in batches:
            work.add(batch)
        work.finish()
    except BaseException:
        work.abandon()
        raise
    return work.written


@dataclass(slots=True)
class _Output:
    """One partition: rows held for the next row group, and the open file."""

    partition: Hashable
    held: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0
    sink: Sink | None = None
    tally: Tally | None = None
    key: str = ""
    limit: float = 0.0
    file_rows: int = 0
    groups: int = 0
    due: int = 0
    """Target rows of the next row group."""


class _Work:
    """One call of :func:`write_files`."""

    def __init__(
        self,
        stage: Store,
        job: str,
        task: str,
        layout: PageLayout,
        profile: Profile,
        expected: float | None,
        expected_rows: int | None,
        metadata: Mapping[str, str] | None,
        shape: FileShape,
    ) -> None:
        self.written: list[WrittenFile] = []
        self._stage, self._job, self._task = stage, job, task
        self._layout, self._profile = layout, profile
        self._expected, self._expected_rows, self._metadata = expected, expected_rows, metadata
        self._shape = shape
        # Least recently used first.
        self._outputs: OrderedDict[Hashable, _Output] = OrderedDict()
        self._left: set[Hashable] = set()
        self._sorted = True
        self._measured: float | None = None
        self._opened = self._held_rows = self._held_bytes = 0
        self._keys: list[str] = []

    # -- rows ----------------------------------------------------------------------------------

    def add(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        split = self._shape.split(batch)
        self._sorted = self._sorted and split.runs
        for partition, rows in split.parts:
            output = self._output(partition)
            self._add(output, rows)
            self._relieve()

    def _output(self, partition: Hashable) -> _Output:
        if partition in self._left:
            self._sorted = False
        if self._sorted:
            # No more rows of earlier partitions are expected.
            for other in [other for other in self._outputs if other != partition]:
                self._close(self._outputs[other])
        output = self._outputs.setdefault(partition, _Output(partition))
        self._outputs.move_to_end(partition)
        return output

    def _add(self, output: _Output, rows: pa.RecordBatch) -> None:
        while rows.num_rows:
            if not output.held:
                output.due = self._plan(output)
            size = rows.nbytes / rows.num_rows
            fitting = max(self._layout.row_group_bytes - output.bytes, 0) / max(size, 1 / 8)
            count = min(output.due - output.rows, max(int(fitting), 1), rows.num_rows)
            output.held.append(rows.slice(0, count))
            output.rows += count
            held = math.ceil(size * count) + rows.num_columns * _ARRAY_BYTES
            output.bytes += held
            self._held_rows += count
            self._held_bytes += held
            rows = rows.slice(count)
            if output.rows >= output.due or output.bytes >= self._layout.row_group_bytes:
                self._flush(output)

    def _relieve(self) -> None:
        """Write the largest parts until at most one row group is held in total."""
        layout = self._layout
        while self._held_rows > layout.row_group_rows or self._held_bytes > layout.row_group_bytes:
            self._flush(max(self._outputs.values(), key=lambda output: (output.bytes, output.rows)))

    # -- sizes ---------------------------------------------------------------------------------

    def _plan(self, output: _Output) -> int:
        """Rows of the next row group: the rest of the file, in groups of equal size."""
        limit = output.limit if output.sink is not None else self._limit(output)
        left = (limit - self._size(output)) / self._bytes_per_row(output)
        count = left / max(math.ceil(left / self._layout.row_group_rows), 1)
        if self._measured is None:
            # The profile may be wrong: measure half a file first.
            count = min(count, left / 2)
        pages = count / self._layout.page_rows
        if pages >= (_MANY_PAGES if count > left * (1 - _SLACK) else 1):
            count = min(round(pages) * self._layout.page_rows, self._layout.row_group_rows)
        return max(int(count), 1)

    def _limit(self, output: _Output) -> float:
        """Maximum bytes of the next file, or of the open one if all rows are divided evenly."""
        target = self._layout.target_file_bytes
        if self._expected_rows is not None:
            rows = self._expected_rows - sum(file.rows for file in self.written)
            rest = rows * self._bytes_per_row(output)
            files = max(round(rest / target), 1)
            return rest / files if files > 1 else max(rest, target) * _STRETCH
        if self._expected is None:
            return target
        rest = self._expected - sum(file.bytes for file in self.written)
        rest -= sum(output.sink.position for output in self._outputs.values() if output.sink is not None)
        return target * _STRETCH if 0 < rest < target * _STRETCH else target

    def _size(self, output: _Output) -> float:
        """Estimated size of the open file if it ended now."""
        if output.sink is None:
            return 0.0
        tail = self._profile.tail_bytes(self._layout, output.file_rows, output.groups)
        return output.sink.position + tail

    def _bytes_per_row(self, output: _Output) -> float:
        """Bytes per row of the latest row group, or of the profile, with the file's tail."""
        pages = self._profile.bytes_per_row if self._measured is None else self._measured
        rows = max(output.file_rows, self._layout.page_rows)
        tail = self._profile.tail_bytes(self._layout, rows, max(output.groups, 1)) / rows
        return max(pages + tail, 1e-3)

    # -- files ---------------------------------------------------------------------------------

    def _flush(self, output: _Output) -> None:
        """Write the held rows as one row group, and end the file if it is full."""
        sink = output.sink or self._open(output)
        rows = pa.Table.from_batches(output.held, self._shape.schema)
        self._held_rows -= output.rows
        self._held_bytes -= output.bytes
        output.held, output.rows, output.bytes = [], 0, 0
        size = sink.write(rows) / rows.num_rows
        if output.tally is not None:
            output.tally.add(rows)
        # In a small row group the constant bytes of chunks would dominate.
        if rows.num_rows >= min(output.due, self._layout.page_rows):
            self._measured = size
        output.file_rows += rows.num_rows
        output.groups += 1
        if self._expected_rows is not None:
            output.limit = self._limit(output)
        if self._size(output) >= output.limit - self._layout.target_file_bytes * _SLACK:
            self._end(output)

    def _open(self, output: _Output) -> Sink:
        output.limit = self._limit(output)
        opened = [other for other in self._outputs.values() if other.sink is not None]
        if len(opened) >= _MOST_OPEN:
            self._close(opened[0])
        shape = self._shape
        folder = shape.folder(output.partition)
        name = f"part-{self._task}-{self._opened:05d}-{self._job}.parquet"
        key = f"{folder}/{name}" if folder else name
        options = writer_options(self._layout, self._profile, shape.schema)
        self._opened += 1
        self._keys.append(shape.stored_as(key))
        output.sink = Sink(self._stage, shape.stored_as(key), options, self._metadata)
        output.tally = shape.tally(output.partition)
        output.key = key
        return output.sink

    def _end(self, output: _Output) -> None:
        assert output.sink is not None
        size = output.sink.close()
        note = None if output.tally is None else output.tally.end(output.sink.footer)
        folder = self._shape.folder(output.partition)
        self.written.append(WrittenFile(output.key, output.file_rows, size, output.groups, folder, note))
        output.sink, output.file_rows, output.groups = None, 0, 0

    def _close(self, output: _Output) -> None:
        if output.held:
            self._flush(output)
        if output.sink is not None:
            self._end(output)
        self._outputs.pop(output.partition, None)
        self._left.add(output.partition)

    def finish(self) -> None:
        """Write the held rows, and end all files."""
        for output in list(self._outputs.values()):
            self._close(output)

    def abandon(self) -> None:
        """Delete all files, including finished ones: a retry writes them again."""
        for output in self._outputs.values():
            if output.sink is not None:
                output.sink.abandon()
        # The original error is the one to raise.
        with contextlib.suppress(SkipstoneError):
            self._stage.delete(self._keys)


class Tally(Protocol):
    """Collects facts about one file while it is written."""

    def add(self, rows: pa.Table) -> None:
        """Add one row group."""

    def end(self, footer: pq.FileMetaData) -> Any:
        """Return the picklable result."""


class FileShape(Protocol):
    """Requirements of a lake on its files."""

    @property
    def schema(self) -> pa.Schema:
        """Schema of the files; available after the first split."""

    def split(self, batch: pa.RecordBatch) -> Split:
        """Convert the rows of a batch to the files' schema, and split them by partition."""

    def folder(self, partition: Hashable) -> str:
        """Return the directory of a partition's files, "" for none."""

    def stored_as(self, key: str) -> str:
        """Return the key under which a file is written before it is published."""

    def tally(self, partition: Hashable) -> Tally | None:
        """Return a collector of facts about one file; None if there are none to collect."""


def staged_as(key: str) -> str:
    """Return the key of a staged file, which readers don't recognize as a Parquet file."""
    return f"{key}.staged"


class Folders:
    """The shape of a lake directory: staged files, one directory per partition."""

    def __init__(self, layout: PageLayout) -> None:
        self._layout = layout
        self._schema: pa.Schema | None = None

    @property
    def schema(self) -> pa.Schema:
        """Columns of the first batch, except partition columns."""
        assert self._schema is not None
        return self._schema

    def split(self, batch: pa.RecordBatch) -> Split:
        """Split the rows by partition directory."""
        names = self._layout.partition_by
        if self._schema is None:
            self._layout.check(batch.schema)
            self._schema = stored_schema(self._layout.stored_part(batch.schema))
        lost = [name for name in names if len(batch.schema.get_all_field_indices(name)) != 1]
        if lost:
            hint = "use the same columns in all batches"
            raise SchemaError("batch lacks the partition column", column=lost[0], hint=hint)
        stored = [at for at, name in enumerate(batch.schema.names) if name not in names]
        rows = conform(batch.select(stored), self._schema)
        if not names:
            return Split([("", rows)], runs=True)
        return split_rows([(name, batch.column(name)) for name in names], rows)

    def folder(self, partition: Hashable) -> str:
        """Return the partition, which is its directory."""
        return str(partition)

    def stored_as(self, key: str) -> str:
        """Return the key of the staged file."""
        return staged_as(key)

    def tally(self, partition: Hashable) -> Tally | None:  # noqa: ARG002
        """Return None."""
        return None


_PART = 8 << 20


class Sink:
    """An open file for row groups; all failures are WriteErrors with its path."""

    def __init__(
        self, stage: Store, key: str, options: Mapping[str, Any], metadata: Mapping[str, str] | None = None
    ) -> None:
        self.key = key
        self._stage = stage
        self._metadata = metadata
        self._footers: list[pq.FileMetaData] = []
        with self._failing():
            if stage.local:
                self._path = Path(stage.path(key))
                make_directories(self._path.parent)
            else:
                handle, name = tempfile.mkstemp(prefix="skipstone-", suffix=".parquet")
                os.close(handle)
                self._path = Path(name)
            self._file: pa.NativeFile = pa.OSFile(str(self._path), "wb")
            try:
                self._writer = pq.ParquetWriter(self._file, **options, metadata_collector=self._footers)
            except BaseException:
                self._drop()
                raise

    @property
    def position(self) -> int:
        """Bytes written so far."""
        return int(self._file.tell())

    @property
    def footer(self) -> pq.FileMetaData:
        """The file's footer, after ``close``."""
        return self._footers[0]

    def write(self, rows: pa.Table) -> int:
        """Write one row group, and return its bytes."""
        with self._failing():
            before = self.position
            self._writer.write_table(rows, row_group_size=rows.num_rows)
            return self.position - before

    def close(self) -> int:
        """Finish the file, make it durable, and return its size."""
        with self._failing():
            if self._metadata:
                # Schema metadata would be written only together with the Arrow schema.
                self._writer.add_key_value_metadata(dict(self._metadata))
            self._writer.close()
            size = self.position
            self._file.close()
            if self._stage.local:
                sync_file(self._path)
                return size
        try:
            with self._failing():
                self._stage.write(self.key, _parts(self._path))
        finally:
            self._path.unlink(missing_ok=True)
        return size

    def abandon(self) -> None:
        """Delete the file."""
        # Otherwise the writer would write a footer when it is garbage-collected.
        self._writer.is_open = False
        self._drop()

    def _drop(self) -> None:
        with contextlib.suppress(pa.ArrowException, OSError):
            self._file.close()
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowException, ValueError) as error:
            text = getattr(error, "strerror", None) or str(error)
            raise WriteError(text[:1].lower() + text[1:], path=self._stage.path(self.key)) from error


def _parts(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while part := file.read(_PART):
            yield part
