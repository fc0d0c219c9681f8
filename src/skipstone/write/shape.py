"""What a kind of lake demands of its files: which rows go together, how they are called, what is noted."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from skipstone.errors import SchemaError
from skipstone.write.columns import conform, stored_schema
from skipstone.write.layout import Layout
from skipstone.write.split import Split, split_rows


class Tally(Protocol):
    """What is noted of one file while its rows are written."""

    def add(self, rows: pa.Table) -> None:
        """Take note of one row group."""

    def end(self, footer: pq.FileMetaData) -> Any:
        """All that was noted; picklable."""


class Shape(Protocol):
    """How rows become files of one lake."""

    @property
    def schema(self) -> pa.Schema:
        """The columns that files have; known when the first batch was split."""

    def split(self, batch: pa.RecordBatch) -> Split:
        """The rows of a batch as files have them, by partition."""

    def folder(self, partition: Hashable) -> str:
        """The folder of a partition's files, "" for none."""

    def stored_as(self, key: str) -> str:
        """Where a file is written that is to have this key."""

    def tally(self, partition: Hashable) -> Tally | None:
        """What takes notes of one file; None if nobody asks for them."""


def staged_as(key: str) -> str:
    """The key in the stage of a file that is to have this key: no reader takes it for a Parquet file."""
    return f"{key}.staged"


class Folders:
    """The shape of a directory: staged files, a folder for each value of the partition columns."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._schema: pa.Schema | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns of the first batch, but for those that the folders tell."""
        assert self._schema is not None
        return self._schema

    def split(self, batch: pa.RecordBatch) -> Split:
        """The rows by their folders."""
        names = self._layout.partition_by
        if self._schema is None:
            self._layout.check(batch.schema)
            self._schema = stored_schema(self._layout.stored_part(batch.schema))
        lost = [name for name in names if len(batch.schema.get_all_field_indices(name)) != 1]
        if lost:
            hint = "give all batches the same columns"
            raise SchemaError("a batch lacks this partition column", column=lost[0], hint=hint)
        kept = [at for at, name in enumerate(batch.schema.names) if name not in names]
        rows = conform(batch.select(kept), self._schema)
        if not names:
            return Split([("", rows)], runs=True)
        return split_rows([(name, batch.column(name)) for name in names], rows)

    def folder(self, partition: Hashable) -> str:
        """The partition is its folder."""
        return str(partition)

    def stored_as(self, key: str) -> str:
        """Where no reader looks."""
        return staged_as(key)

    def tally(self, partition: Hashable) -> Tally | None:  # noqa: ARG002
        """Nothing is noted."""
        return None
