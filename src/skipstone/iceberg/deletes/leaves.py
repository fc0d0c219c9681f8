"""Leaf columns of a delete file: found by field id, read row group by row group."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.rows import RowSet
from skipstone.errors import CorruptFileError, FileError
from skipstone.iceberg.deletes.matched import DeleteFile, Open
from skipstone.parquet.footer import read_footer
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.pageindex import BadPageIndex, PageIndex, page_index_ranges, parse_page_index
from skipstone.parquet.schema import LeafColumn
from skipstone.parquet.slice import slice_steps
from skipstone.store.source import Source
from skipstone.store.steps import drive
from skipstone.store.tail import TailSource


def open_deletes(file: DeleteFile, open: Open) -> tuple[Source, ParquetMetadata]:
    """A delete file and its footer; one that is not Parquet is refused."""
    if file.format.upper() != "PARQUET":
        raise FileError(
            f"delete files in the format {file.format} can't be read",
            path=file.path,
            hint="rewrite the table's deletes as Parquet, or compact them away, with another engine",
        )
    source = TailSource(open(file))
    return source, read_footer(source)


def leaf_of(metadata: ParquetMetadata, field_id: int, name: str | None = None) -> LeafColumn:
    """The leaf with a field id or, if it has none at all, with a name; an error if there is none."""
    known = [leaf for leaf in metadata.leaves if leaf.field_id == field_id]
    named = [leaf for leaf in metadata.leaves if leaf.path == (name,) and leaf.field_id is None]
    for leaf in known or named:
        if not leaf.max_repetition:
            return leaf
    raise CorruptFileError(
        f"the delete file has no column with field id {field_id}",
        path=metadata.path,
        column=name,
        hint="it is damaged, or was not written by an Iceberg writer",
    )


def read_leaves(
    source: Source, metadata: ParquetMetadata, group: int, leaves: Sequence[LeafColumn], rows: RowSet
) -> list[pa.ChunkedArray]:
    """The values of leaves in some rows of a row group; NULL where a struct above one is."""
    names = metadata.arrow_schema.names
    fields = [names.index(leaf.path[0]) for leaf in leaves]
    indexes = {} if rows.is_full else _places(source, metadata, group, leaves)
    numbers = [leaf.index for leaf in leaves]
    steps = slice_steps(metadata, group, fields, rows, indexes, leaves=numbers)
    table = drive(steps, source.read_ranges)
    return [_inside(table.column(at), leaf.path[1:]) for at, leaf in enumerate(leaves)]


def _inside(column: pa.ChunkedArray, steps: Sequence[str]) -> pa.ChunkedArray:
    return pc.struct_field(column, list(steps)) if steps else column


def _places(
    source: Source, metadata: ParquetMetadata, group: int, leaves: Sequence[LeafColumn]
) -> dict[int, PageIndex]:
    """Where the pages are, of leaves that have a page index."""
    spans = {leaf.index: page_index_ranges(metadata, group, leaf.index)[1] for leaf in leaves}
    wanted = {leaf: span for leaf, span in spans.items() if span is not None}
    found: dict[int, PageIndex] = {}
    for leaf, body in zip(wanted, source.read_ranges(list(wanted.values())), strict=True):
        try:
            found[leaf] = parse_page_index(None, body, metadata, group, leaf)
        except BadPageIndex:
            continue  # the chunk is read whole
    return found
