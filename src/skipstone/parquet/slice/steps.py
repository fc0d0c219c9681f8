"""One slice from beginning to end: ranges out, bytes in, a table at last."""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping, Sequence

import pyarrow as pa

from skipstone.core.rows.rowset import RowSet
from skipstone.errors import ReadError, UsageError
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.pageindex import PageIndex
from skipstone.parquet.slice.build import Part
from skipstone.parquet.slice.decode import decode_part
from skipstone.parquet.slice.pages import Chunk, Missing, complete, open_leaf
from skipstone.parquet.slice.plan import LeafPlan, plan_leaves
from skipstone.parquet.slice.projection import projection_of
from skipstone.parquet.slice.whole import read_as_it_is
from skipstone.store.ranges import ByteRange


def slice_steps(
    metadata: ParquetMetadata,
    group: int,
    fields: Sequence[int],
    rows: RowSet,
    indexes: Mapping[int, PageIndex | None],
    *,
    leaves: Collection[int] | None = None,
    checksums: bool = False,
) -> Generator[list[ByteRange], list[bytes], pa.Table]:
    """Read some rows of some top-level fields of a row group: yields ranges, is sent their bytes.

    ``rows`` counts from the row group's first row. A leaf without a page index is read whole. ``leaves``
    prunes nested fields as pyarrow does; a field none of whose leaves is named is read whole. There is a
    second round only for a dictionary page that turns out to be needed, or for a chunk whose pages are
    not where its page index says.
    """
    distinct = tuple(dict.fromkeys(fields))
    if not distinct:
        _check_rows(metadata, group, rows)
        return pa.table({"": pa.nulls(len(rows))}).select([])
    found = yield from part_steps(
        metadata, group, distinct, rows, indexes, leaves=leaves, checksums=checksums
    )
    table = found if isinstance(found, pa.Table) else decode_part(found, checksums=checksums)
    return table if len(distinct) == len(fields) else table.select([distinct.index(f) for f in fields])


def part_steps(
    metadata: ParquetMetadata,
    group: int,
    fields: Sequence[int],
    rows: RowSet,
    indexes: Mapping[int, PageIndex | None],
    *,
    leaves: Collection[int] | None = None,
    checksums: bool = False,
) -> Generator[list[ByteRange], list[bytes], Part | pa.Table]:
    """The same up to decoding, so that several parts can be decoded as one; ``fields`` name each once.

    A row group whose schema can't be taken apart comes decoded.
    """
    _check_rows(metadata, group, rows)
    projection = projection_of(metadata, fields, leaves)
    wanted = projection.leaves if projection is not None else ()
    plans = plan_leaves(metadata, group, wanted, rows, indexes)
    ranges = [span for plan in plans for span in plan.ranges]
    bodies = yield ranges
    _check_lengths(metadata, group, ranges, bodies)
    if projection is None:
        return read_as_it_is(metadata, group, fields, plans, bodies, rows, checksums=checksums)
    chunks = yield from _collect(metadata, group, plans, bodies)
    return Part(metadata, group, projection, chunks, rows)


def _collect(
    metadata: ParquetMetadata, group: int, plans: Sequence[LeafPlan], bodies: list[bytes]
) -> Generator[list[ByteRange], list[bytes], dict[int, Chunk]]:
    """Open every leaf, and fetch what is still missing until nothing is."""
    found: dict[int, Chunk | Missing] = {}
    at = 0
    for plan in plans:
        found[plan.leaf] = open_leaf(metadata, group, plan, bodies[at : at + len(plan.ranges)])
        at += len(plan.ranges)
    while missing := {leaf: state for leaf, state in found.items() if isinstance(state, Missing)}:
        ranges = [span for state in missing.values() for span in state.ranges]
        bodies = yield ranges
        _check_lengths(metadata, group, ranges, bodies)
        at = 0
        for leaf, state in missing.items():
            found[leaf] = complete(metadata, group, state, bodies[at : at + len(state.ranges)])
            at += len(state.ranges)
    return {leaf: state for leaf, state in found.items() if isinstance(state, Chunk)}


def _check_rows(metadata: ParquetMetadata, group: int, rows: RowSet) -> None:
    total = int(metadata.row_group_rows[group])
    if rows.is_empty or rows.total != total:
        what = "no rows" if rows.is_empty else f"rows of {rows.total:,} for {total:,}"
        raise UsageError(what, path=metadata.path, unit=f"row group {group}")


def _check_lengths(
    metadata: ParquetMetadata, group: int, ranges: Sequence[ByteRange], bodies: Sequence[bytes]
) -> None:
    for span, body in zip(ranges, bodies, strict=True):
        if len(body) != span.length:
            message = f"{len(body)} bytes came back for {span}"
            raise ReadError(message, path=metadata.path, unit=f"row group {group}")
