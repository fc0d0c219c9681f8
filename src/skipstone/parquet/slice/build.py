"""A valid Parquet file in memory, made of pages as they are and a fresh footer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from skipstone.core.rows.rowset import RowSet
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.slice import compact as c
from skipstone.parquet.slice.pages import Chunk
from skipstone.parquet.slice.projection import Projection

_MAGIC: Final = b"PAR1"
_FILE_OFFSET: Final = (2, c.I64, c.integer(0))


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Chosen pages of one row group, at hand and checked, and the rows that are wanted of them."""

    metadata: ParquetMetadata
    group: int
    projection: Projection
    chunks: Mapping[int, Chunk]
    rows: RowSet


def build_file(projection: Projection, parts: Iterable[tuple[Part, int]]) -> bytes:
    """The file that holds each part as a row group of so many rows; columns of one may differ in length.

    pyarrow gives at most that many rows of a column, and all rows of a column that has fewer.
    """
    pieces = [_MAGIC]
    position = len(_MAGIC)
    total = 0
    groups = []
    for part, rows in parts:
        columns = []
        before = position
        for leaf, wanted in projection.slots:
            if not wanted:
                columns.append(_chunk(_prefix(part.metadata, leaf, codec=0), 0, 0, len(_MAGIC)))
                continue
            chunk = part.chunks[leaf]
            size = sum(map(len, chunk.pieces))
            prefix = _prefix(part.metadata, leaf, part.metadata.chunks(leaf)[part.group].codec)
            columns.append(_chunk(prefix, chunk.values, size, position))
            pieces += chunk.pieces
            position += size
        groups.append(_row_group(columns, position - before, rows))
        total += rows
    return _closed(pieces, projection, _row_groups(groups, total))


def schema_file(projection: Projection) -> bytes:
    """A file of the same schema without a row group."""
    return build_file(projection, ())


def _closed(parts: list[bytes], projection: Projection, row_groups: bytes) -> bytes:
    # All in one join, since these can be many bytes.
    footer = (projection.head, row_groups, projection.tail)
    return b"".join((*parts, *footer, sum(map(len, footer)).to_bytes(4, "little"), _MAGIC))


def _prefix(metadata: ParquetMetadata, leaf: int, codec: int) -> bytes:
    """A column chunk's fields that don't depend on its pages."""
    key = ("slice prefix", leaf, codec)
    found: bytes | None = metadata.kin.memo.get(key)
    if found is None:
        column = metadata.leaves[leaf]
        path = [c.binary(step.encode()) for step in column.path]
        fields = [
            (1, c.I32, c.integer(column.physical)),
            (2, c.LIST, c.list_head(c.I32, 0)),
            (3, c.LIST, c.listing(c.BINARY, path)),
            (4, c.I32, c.integer(codec)),
        ]
        found = c.opened([_FILE_OFFSET, (3, c.STRUCT, c.opened(fields))])
        metadata.kin.memo[key] = found
    return found


def _chunk(prefix: bytes, values: int, size: int, offset: int) -> bytes:
    """A column chunk: the end of its metadata, fields 5, 6, 7 and 9, and its own end."""
    length = c.integer(size)
    return b"".join(
        (
            prefix,
            b"\x16",
            c.integer(values),
            b"\x16",
            length,
            b"\x16",
            length,
            b"\x26",
            c.integer(offset),
            b"\0\0",
        )
    )


def _row_group(columns: list[bytes], size: int, rows: int) -> bytes:
    return c.structure(
        [(1, c.LIST, c.listing(c.STRUCT, columns)), (2, c.I64, c.integer(size)), (3, c.I64, c.integer(rows))]
    )


def _row_groups(groups: list[bytes], rows: int) -> bytes:
    """Fields 3 and 4 of a footer: the row count, and the row groups."""
    return b"".join((b"\x16", c.integer(rows), b"\x19", c.listing(c.STRUCT, groups)))
