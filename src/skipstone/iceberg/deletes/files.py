"""Readers of delete files: positions from Parquet, and deletion vectors.

A deletion vector is a blob of a Puffin file: its length, a magic number, a 64-bit roaring bitmap in the
portable format, and a checksum of both.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from skipstone.core.arrays import plain
from skipstone.core.domain.keys import is_binary, is_text
from skipstone.core.evidence import Array
from skipstone.core.plain import type_name
from skipstone.core.rows import RowSet
from skipstone.engine.jobs import gather
from skipstone.errors import CorruptFileError, FileError, SchemaError
from skipstone.iceberg.deletes.match import PATH_ID, POS_ID, DeleteFile, Open
from skipstone.iceberg.manifests.avro import check_plain
from skipstone.parquet.metadata import ParquetMetadata, read_footer
from skipstone.parquet.pageindex import BadPageIndex, PageIndex, page_index_ranges, parse_page_index
from skipstone.parquet.schema import LeafColumn
from skipstone.parquet.slice import slice_steps
from skipstone.predicate.tree import col
from skipstone.prune.pruner import Pruner
from skipstone.store.cache import Cache
from skipstone.store.source import ByteRange, Source, TailSource, drive


def open_deletes(file: DeleteFile, open: Open) -> tuple[Source, ParquetMetadata]:
    """Open a delete file and read its footer; it must be Parquet."""
    if file.format.upper() != "PARQUET":
        raise FileError(
            f"delete file format is {file.format}, but only Parquet is supported",
            path=file.path,
            hint="rewrite the table's deletes as Parquet, or compact the table, with another engine",
        )
    source = TailSource(open(file))
    return source, read_footer(source)


def leaf_of(metadata: ParquetMetadata, field_id: int, name: str | None = None) -> LeafColumn:
    """The leaf with a field id, or without an id and with a name; raises if there is none."""
    by_id = [leaf for leaf in metadata.leaves if leaf.field_id == field_id]
    by_name = [leaf for leaf in metadata.leaves if leaf.path == (name,) and leaf.field_id is None]
    for leaf in by_id or by_name:
        if not leaf.max_repetition:
            return leaf
    raise CorruptFileError(
        f"delete file has no column with field id {field_id}",
        path=metadata.path,
        column=name,
        hint="restore the file, or roll the table back",
    )


def read_leaves(
    source: Source, metadata: ParquetMetadata, group: int, leaves: Sequence[LeafColumn], rows: RowSet
) -> list[pa.ChunkedArray]:
    """Values of leaves in some rows of a row group; NULL under a NULL struct."""
    names = metadata.arrow_schema.names
    fields = [names.index(leaf.path[0]) for leaf in leaves]
    indexes = {} if rows.is_full else _page_indexes(source, metadata, group, leaves)
    numbers = [leaf.index for leaf in leaves]
    steps = slice_steps(metadata, group, fields, rows, indexes, leaves=numbers)
    table = drive(steps, source.read_ranges)
    return [inner_column(table.column(at), leaf.path) for at, leaf in enumerate(leaves)]


def inner_column(column: pa.ChunkedArray, path: Sequence[str]) -> pa.ChunkedArray:
    """The field of a top-level column at a path."""
    return pc.struct_field(column, list(path[1:])) if len(path) > 1 else column


def _page_indexes(
    source: Source, metadata: ParquetMetadata, group: int, leaves: Sequence[LeafColumn]
) -> dict[int, PageIndex]:
    """Page offsets of the leaves that have an offset index."""
    spans = {leaf.index: page_index_ranges(metadata, group, leaf.index)[1] for leaf in leaves}
    wanted = {leaf: span for leaf, span in spans.items() if span is not None}
    indexes: dict[int, PageIndex] = {}
    for leaf, body in zip(wanted, source.read_ranges(list(wanted.values())), strict=True):
        try:
            indexes[leaf] = parse_page_index(None, body, metadata, group, leaf)
        except BadPageIndex:
            continue  # the entire chunk is read
    return indexes


_NOTHING: Final = np.zeros(0, dtype=np.int64)
_POSITIONS_WEIGHT: Final = 500
# With more paths, a range between the first and the last is searched.
_MANY_PATHS: Final = 1_000


def read_positions(
    needs: Sequence[tuple[DeleteFile, tuple[str, ...]]],
    open: Open,
    *,
    threads: int = 1,
    cache: Cache[Any, Any] | None = None,
) -> dict[str, Array]:
    """Sorted, distinct deleted positions of each data file that has any.

    ``needs`` are delete files with the data files each is read for; they are read in parallel, unless
    ``cache`` has what they say.
    """
    parts: dict[str, list[Array]] = {}
    for by_path in gather(lambda need: _positions_of(*need, open, cache), needs, threads=threads):
        for path, positions in by_path.items():
            if len(positions):
                parts.setdefault(path, []).append(positions)
    return {
        path: some[0] if len(some) == 1 else _rising(np.concatenate(some)) for path, some in parts.items()
    }


def deleted_rows(total: int, positions: Array | BitMap64) -> RowSet:
    """Row set of deleted positions; positions beyond the end of the file are ignored."""
    if isinstance(positions, BitMap64):
        if positions and positions.max() >= total:
            positions = positions & BitMap64(range(total))
        return RowSet.from_bitmap(total, positions)
    return RowSet.from_positions(total, positions[: np.searchsorted(positions, total)])


def _positions_of(
    file: DeleteFile, data_files: tuple[str, ...], open: Open, cache: Cache[Any, Any] | None
) -> dict[str, Array]:
    """Positions of data files in a delete file, of which those that are not cached are read."""
    if cache is None:
        return _read(file, data_files, open)
    keys = [(file.path, file.size, path) for path in data_files]
    known = cache.get_all(keys)
    found: dict[str, Array] = {
        path: one for path, one in zip(data_files, known, strict=True) if one is not None
    }
    missing = tuple([path for path in data_files if path not in found])
    if missing:
        read = _read(file, missing, open)
        new = {path: read.get(path, _NOTHING) for path in missing}
        cache.put_all(
            [((file.path, file.size, path), one, one.nbytes + _POSITIONS_WEIGHT) for path, one in new.items()]
        )
        found |= new
    return found


def _read(file: DeleteFile, data_files: tuple[str, ...], open: Open) -> dict[str, Array]:
    if not data_files:
        return {}
    source, metadata = open_deletes(file, open)
    path, pos = leaf_of(metadata, PATH_ID, "file_path"), leaf_of(metadata, POS_ID, "pos")
    kept, proven = _candidates(source, metadata, path, data_files)
    wanted = pa.array(data_files, pa.large_string()).unique()
    parts: dict[int, list[Array]] = {}
    for group, (first, rows) in enumerate(
        zip(metadata.row_group_starts.tolist(), metadata.row_group_rows.tolist(), strict=True)
    ):
        some = kept.slice(first, first + rows)
        if some.is_empty:
            continue
        if len(wanted) == 1 and some.issubset(proven.slice(first, first + rows)):
            # Statistics prove that every row names the one wanted path.
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
    """The rows that may name one of the paths, and those that certainly do."""
    column, name = col(leaf.path[0]), leaf.path[0]
    if not is_text(metadata.arrow_schema.field(name).type):
        return RowSet.all(metadata.num_rows), RowSet.none(metadata.num_rows)
    if len(paths) <= _MANY_PATHS:
        result = Pruner(column.isin(paths)).prune(source, metadata=metadata)
        return result.rows, result.proven
    # Python orders strings by code point, which is the order of their UTF-8 bytes.
    result = Pruner(column.between(min(paths), max(paths))).prune(source, metadata=metadata)
    return result.rows, RowSet.none(metadata.num_rows)


def _positions(column: pa.ChunkedArray, metadata: ParquetMetadata, group: int, leaf: LeafColumn) -> Array:
    numbers = _whole(column, pa.int64(), metadata, group, leaf).to_numpy()
    if numbers.min(initial=0) < 0:
        raise _corrupt(f"position {numbers.min()} is negative", metadata, group, leaf)
    return np.asarray(numbers)


def _owners(
    column: pa.ChunkedArray, wanted: pa.Array, metadata: ParquetMetadata, group: int, leaf: LeafColumn
) -> Array:
    """Number of the wanted path that each row names, -1 if none."""
    names = _whole(column, pa.large_string(), metadata, group, leaf)
    return np.asarray(pc.index_in(names, value_set=wanted).fill_null(-1))


def _whole(
    column: pa.ChunkedArray, type: pa.DataType, metadata: ParquetMetadata, group: int, leaf: LeafColumn
) -> pa.Array:
    """A column as one array; raises if it contains NULLs."""
    if column.null_count:
        raise _corrupt("position delete has no path or no position", metadata, group, leaf)
    array = plain(pa.concat_arrays(column.chunks))
    # A cast would also parse strings and booleans.
    own = array.type
    if not (is_text(own) or is_binary(own) if is_text(type) else own in (pa.int32(), pa.int64())):
        raise SchemaError(
            f"column of a position delete file is {type_name(own)}, expected {type_name(type)}",
            path=metadata.path,
            unit=f"row group {group}",
            column=leaf.name,
            hint="restore the delete file, or roll the table back",
        )
    try:
        return array.cast(type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise _corrupt(str(error), metadata, group, leaf) from error


def _split(owners: Array, positions: Array) -> list[tuple[int, Array]]:
    """Positions by owner."""
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
    hint = "restore the delete file, or roll the table back"
    unit = f"row group {group}"
    return CorruptFileError(reason, path=metadata.path, unit=unit, column=leaf.name, hint=hint)


# -- deletion vectors --------------------------------------------------------------------------

MAGIC: Final = b"\xd1\xd3\x39\x64"
_LENGTH: Final = 4
_CHECKSUM: Final = 4
# An empty bitmap has only the count of its 32-bit bitmaps.
_SHORTEST: Final = _LENGTH + len(MAGIC) + 8 + _CHECKSUM
_LIMIT: Final = 2**63


def read_vector(file: DeleteFile, open: Open) -> BitMap64:
    """Read the blob of a deletion vector."""
    start, stop = file.offset, file.offset + file.length
    if start < 0 or file.length < _SHORTEST or stop > file.size:
        raise _bad_vector(file, f"bytes {start}-{stop} are outside the file of {file.size} bytes")
    source = open(file)
    (blob,) = source.read_ranges([ByteRange(start, stop)])
    try:
        positions = parse_vector(blob, file)
    except CorruptFileError:
        check_plain(source.read_ranges([ByteRange(0, min(start, _LENGTH))])[0], file.path)
        raise
    if len(positions) != file.rows:
        raise _bad_vector(
            file, f"vector deletes {len(positions):,} rows, but the manifest recorded {file.rows:,}"
        )
    return positions


def parse_vector(blob: bytes, file: DeleteFile) -> BitMap64:
    """Parse the bitmap in a blob; ``file`` is for messages."""
    body = blob[_LENGTH:-_CHECKSUM]
    length = int.from_bytes(blob[:_LENGTH], "big")
    if len(blob) < _SHORTEST or length != len(body):
        raise _bad_vector(file, f"blob has {len(blob)} bytes, but records a length of {length}")
    if body[: len(MAGIC)] != MAGIC:
        raise _bad_vector(file, f"blob begins with {body[: len(MAGIC)]!r} instead of {MAGIC!r}")
    if zlib.crc32(body) != int.from_bytes(blob[-_CHECKSUM:], "big"):
        raise _bad_vector(file, "checksum is wrong")
    try:
        positions = BitMap64.deserialize(body[len(MAGIC) :])
    except (ValueError, IndexError) as error:
        raise _bad_vector(file, f"not a roaring bitmap: {error}") from error
    if positions and positions.max() >= _LIMIT:
        raise _bad_vector(file, f"position {positions.max()} is beyond the end of any file")
    return positions


def _bad_vector(file: DeleteFile, reason: str) -> CorruptFileError:
    hint = "restore the file, or roll the table back"
    unit = f"deletion vector at byte {file.offset}"
    return CorruptFileError(reason, path=file.path, unit=unit, hint=hint)
