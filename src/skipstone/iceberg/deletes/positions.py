"""Position delete files: which rows of which data files they delete, reading only what can name these."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from skipstone.core.domain.keys import is_binary, is_text
from skipstone.core.evidence import Array
from skipstone.core.filter.rows import plain
from skipstone.core.rows import RowSet
from skipstone.engine.jobs import gather
from skipstone.errors import CorruptFileError, SchemaError
from skipstone.iceberg.deletes.index import PATH_ID, POS_ID
from skipstone.iceberg.deletes.leaves import leaf_of, open_deletes, read_leaves
from skipstone.iceberg.deletes.matched import Open, PositionNeed
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.schema import LeafColumn
from skipstone.predicate.tree import col
from skipstone.prune import Pruner
from skipstone.store.source import Source

# More paths than this are looked for between the first and the last of them.
_MANY_PATHS: Final = 1_000


def read_positions(needs: Sequence[PositionNeed], open: Open, *, threads: int = 1) -> dict[str, Array]:
    """The deleted positions of each data file that has any: rising, without repeats.

    Every delete file is read once, side by side, for all of the data files that it is wanted for.
    """
    parts: dict[str, list[Array]] = {}
    for found in gather(lambda need: _read(need, open), needs, threads=threads):
        for path, positions in found.items():
            parts.setdefault(path, []).append(positions)
    return {
        path: some[0] if len(some) == 1 else _rising(np.concatenate(some)) for path, some in parts.items()
    }


def deleted_rows(total: int, positions: Array | BitMap64) -> RowSet:
    """Deleted positions as a row set of their data file; those past its end delete nothing."""
    if isinstance(positions, BitMap64):
        if positions and positions.max() >= total:
            positions = positions & BitMap64(range(total))
        return RowSet.from_bitmap(total, positions)
    return RowSet.from_positions(total, positions[: np.searchsorted(positions, total)])


def _read(need: PositionNeed, open: Open) -> dict[str, Array]:
    if not need.paths:
        return {}
    source, metadata = open_deletes(need.file, open)
    path, pos = leaf_of(metadata, PATH_ID, "file_path"), leaf_of(metadata, POS_ID, "pos")
    kept, proven = _candidates(source, metadata, path, need.paths)
    wanted = pa.array(need.paths, pa.large_string()).unique()
    parts: dict[int, list[Array]] = {}
    for group, (first, rows) in enumerate(
        zip(metadata.row_group_starts.tolist(), metadata.row_group_rows.tolist(), strict=True)
    ):
        some = kept.slice(first, first + rows)
        if some.is_empty:
            continue
        if len(wanted) == 1 and some.issubset(proven.slice(first, first + rows)):
            # Statistics say that every row names the one path that is wanted.
            (numbers,) = read_leaves(source, metadata, group, [pos], some)
            parts.setdefault(0, []).append(_positions(numbers, metadata, group, pos))
            continue
        names, numbers = read_leaves(source, metadata, group, [path, pos], some)
        positions = _positions(numbers, metadata, group, pos)
        for owner, mine in _split(_owners(names, wanted, metadata, group, path), positions):
            parts.setdefault(owner, []).append(mine)
    paths = wanted.to_pylist()
    return {paths[owner]: _rising(np.concatenate(some)) for owner, some in parts.items()}


def _candidates(
    source: Source, metadata: ParquetMetadata, leaf: LeafColumn, paths: Sequence[str]
) -> tuple[RowSet, RowSet]:
    """The rows that may name one of the paths, and those that are proven to."""
    column, name = col(leaf.path[0]), leaf.path[0]
    if not is_text(metadata.arrow_schema.field(name).type):
        return RowSet.all(metadata.num_rows), RowSet.none(metadata.num_rows)
    if len(paths) <= _MANY_PATHS:
        found = Pruner(column.isin(paths)).prune(source, metadata=metadata)
        return found.rows, found.proven
    # Python orders strings by code point, which is the order of their UTF-8 bytes.
    found = Pruner(column.between(min(paths), max(paths))).prune(source, metadata=metadata)
    return found.rows, RowSet.none(metadata.num_rows)


def _positions(column: pa.ChunkedArray, metadata: ParquetMetadata, group: int, leaf: LeafColumn) -> Array:
    numbers = _whole(column, pa.int64(), metadata, group, leaf).to_numpy()
    if numbers.min(initial=0) < 0:
        raise _corrupt(f"it deletes row {numbers.min()}", metadata, group, leaf)
    return np.asarray(numbers)


def _owners(
    column: pa.ChunkedArray, wanted: pa.Array, metadata: ParquetMetadata, group: int, leaf: LeafColumn
) -> Array:
    """Which of the wanted paths each row names, -1 for none of them."""
    names = _whole(column, pa.large_string(), metadata, group, leaf)
    return np.asarray(pc.index_in(names, value_set=wanted).fill_null(-1))


def _whole(
    column: pa.ChunkedArray, type: pa.DataType, metadata: ParquetMetadata, group: int, leaf: LeafColumn
) -> pa.Array:
    """A column as one array without NULL."""
    if column.null_count:
        raise _corrupt("a position delete without a path or a position", metadata, group, leaf)
    array = plain(pa.concat_arrays(column.chunks))
    # A cast would make positions of texts and flags.
    own = array.type
    if not (is_text(own) or is_binary(own) if is_text(type) else own in (pa.int32(), pa.int64())):
        raise SchemaError(
            f"position deletes of type {own} don't fit the column's type {type}",
            path=metadata.path,
            unit=f"row group {group}",
            column=leaf.name,
            hint="the delete file was not written by an Iceberg writer: restore it, or roll the table back",
        )
    try:
        return array.cast(type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise _corrupt(str(error), metadata, group, leaf) from error


def _split(owners: Array, positions: Array) -> list[tuple[int, Array]]:
    """The positions of each owner, by owner."""
    named = owners >= 0
    if not named.all():
        owners, positions = owners[named], positions[named]
    if (owners[1:] < owners[:-1]).any():
        order = np.argsort(owners, kind="stable")
        owners, positions = owners[order], positions[order]
    firsts = np.flatnonzero(np.diff(owners, prepend=-1))
    edges = [*firsts.tolist(), len(owners)]
    return [(int(owners[first]), positions[first:last]) for first, last in pairwise(edges)]


def _rising(positions: Array) -> Array:
    return positions if (positions[1:] > positions[:-1]).all() else np.unique(positions)


def _corrupt(reason: str, metadata: ParquetMetadata, group: int, leaf: LeafColumn) -> CorruptFileError:
    hint = "the delete file is damaged: restore it, or roll the table back"
    unit = f"row group {group}"
    return CorruptFileError(reason, path=metadata.path, unit=unit, column=leaf.name, hint=hint)
