"""Data and delete files as several writers make them, with field ids, or without for name mappings."""

from __future__ import annotations

import json
import random
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyroaring

from tests.iceberg._types import Field, List, Map, Struct, Type, arrow_type, build

PATH_ID, POS_ID, ROW_COPY_ID = 2147483546, 2147483545, 2147483544
MAGIC = b"\xd1\xd3\x39\x64"


def table_of(fields: Sequence[Field], columns: Mapping[int, Sequence[Any]], *, ids: bool) -> pa.Table:
    """The rows as Arrow, with Parquet's field ids in the schema if asked for."""
    made = []
    for f in fields:
        meta = {"PARQUET:field_id": str(f.id)} if ids else None
        made.append(pa.field(f.name, arrow_type(f.type, ids=ids), not f.required, meta))
    arrays = [build(f.type, columns[f.id]) for f in fields]
    # The arrays' own fields have no ids: the schema gives them.
    arrays = [a if a.type == m.type else a.cast(m.type) for a, m in zip(arrays, made, strict=True)]
    return pa.Table.from_arrays(arrays, schema=pa.schema(made))


def write_data(
    path: Path,
    fields: Sequence[Field],
    columns: Mapping[int, Sequence[Any]],
    rng: random.Random,
    *,
    writer: str = "pyarrow",
    ids: bool = True,
    rows: int,
) -> str:
    """One data file; the name of the writer that could do it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = table_of(fields, columns, ids=ids)
    if not fields:
        nothing = pa.field("", pa.int32(), metadata={"PARQUET:field_id": "0"} if ids else None)
        table = pa.table([pa.nulls(rows, pa.int32())], schema=pa.schema([nothing]))
    if writer != "pyarrow" and fields and _WRITERS[writer](table, fields, path, ids):
        if _same_schema(path, table, ids):
            return writer
        path.unlink()
    _write_pyarrow(table, path, rng)
    return "pyarrow"


def _write_pyarrow(table: pa.Table, path: Path, rng: random.Random) -> None:
    some = [f.name for f in table.schema if not pa.types.is_nested(f.type) and rng.random() < 0.5]
    pq.write_table(
        table,
        path,
        row_group_size=rng.choice([7, 20, 1000, 1000]),
        data_page_version=rng.choice(["1.0", "2.0"]),
        write_page_index=rng.random() < 0.7,
        max_rows_per_page=rng.choice([3, 10, 20_000]),
        write_batch_size=rng.choice([2, 8, 1024]),
        use_dictionary=rng.random() < 0.5,
        write_statistics=rng.choice([True, True, True, False, some]),
        store_schema=rng.random() < 0.5,
        compression=rng.choice(["none", "snappy", "zstd"]),
        store_decimal_as_integer=rng.random() < 0.3,
    )


def _write_duckdb(table: pa.Table, fields: Sequence[Field], path: Path, ids: bool) -> bool:
    import duckdb

    names = {f.name.lower() for f in fields}
    if len(names) < len(fields) or any(_has(f.type, "uuid", "fixed", "timestamptz_ns") for f in fields):
        return False
    options = f", FIELD_IDS {{{_duckdb_ids(fields)}}}" if ids else ""
    with duckdb.connect() as db:
        db.register("made", table)
        db.execute(f"COPY (SELECT * FROM made) TO '{_quoted(path)}' (FORMAT PARQUET{options})")
    return True


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")


def _duckdb_ids(fields: Sequence[Field]) -> str:
    return ", ".join(f"'{f.name.replace(chr(39), chr(39) * 2)}': {_duckdb_id(f.id, f.type)}" for f in fields)


def _duckdb_id(id: int, type: Type) -> str:
    match type:
        case Struct(fields):
            return f"{{__duckdb_field_id: {id}, {_duckdb_ids(fields)}}}"
        case List(element_id, element):
            return f"{{__duckdb_field_id: {id}, element: {_duckdb_id(element_id, element)}}}"
        case Map(key_id, key, value_id, value):
            inner = f"key: {_duckdb_id(key_id, key)}, value: {_duckdb_id(value_id, value)}"
            return f"{{__duckdb_field_id: {id}, {inner}}}"
    return str(id)


def _write_polars(table: pa.Table, fields: Sequence[Field], path: Path, ids: bool) -> bool:
    import polars as pl

    if any(not isinstance(f.type, str) or _has(f.type, "uuid", "fixed", "time") for f in fields):
        return False
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    views = {pa.string(): pa.string_view(), pa.binary(): pa.binary_view()}
    schema = pa.schema([f.with_type(views.get(f.type, f.type)).with_nullable(True) for f in table.schema])
    frame.write_parquet(path, row_group_size=30, arrow_schema=schema if ids else None)
    return True


def _write_datafusion(table: pa.Table, fields: Sequence[Field], path: Path, ids: bool) -> bool:
    from datafusion import ParquetWriterOptions, SessionContext

    if any(_has(f.type, "uuid", "fixed") for f in fields) or not table.num_rows:
        return False
    options = ParquetWriterOptions(max_row_group_size=20, data_page_row_count_limit=7)
    SessionContext().from_arrow(table).write_parquet_with_options(path, options)
    if path.is_dir():
        (inner,) = path.glob("*.parquet")
        inner.rename(path.with_suffix(".moved"))
        path.rmdir()
        path.with_suffix(".moved").rename(path)
    return True


_WRITERS = {"duckdb": _write_duckdb, "polars": _write_polars, "datafusion": _write_datafusion}
WRITERS = ("pyarrow", *_WRITERS)


def _has(type: Type, *names: str) -> bool:
    match type:
        case Struct(fields):
            return any(_has(f.type, *names) for f in fields)
        case List(_, element):
            return _has(element, *names)
        case Map(_, key, _, value):
            return _has(key, *names) or _has(value, *names)
    return any(type == name or type.startswith(f"{name}[") for name in names)


def _same_schema(path: Path, table: pa.Table, ids: bool) -> bool:
    """Whether the writer has kept names, ids and types that Iceberg's readers take for the same."""
    if not path.is_file():
        return False
    read = pq.ParquetFile(path).schema_arrow
    return _alike(pa.struct([*read]), pa.struct([*table.schema]), ids)


def _alike(found: pa.DataType, wanted: pa.DataType, ids: bool) -> bool:
    if wanted.num_fields:
        if found.num_fields != wanted.num_fields or found.id != wanted.id:
            return False
        pairs = [(found.field(n), wanted.field(n)) for n in range(wanted.num_fields)]
        return all(
            (not pa.types.is_struct(wanted) or a.name == b.name)
            and _alike(a.type, b.type, ids)
            and _id(a) == (_id(b) if ids else None)
            for a, b in pairs
        )
    plain = {
        pa.large_string(): pa.string(),
        pa.string_view(): pa.string(),
        pa.large_binary(): pa.binary(),
        pa.binary_view(): pa.binary(),
    }
    return plain.get(found, found) == wanted


def _id(field: pa.Field) -> bytes | None:
    return (field.metadata or {}).get(b"PARQUET:field_id")


# -- deletes -----------------------------------------------------------------------------------


def write_positions(path: Path, places: Iterable[tuple[str, int]], rng: random.Random, *, odd: bool) -> int:
    """A position delete file, sorted as the format wants it; how many rows.

    An odd one is as careless writers make it: not sorted, with a row told twice, without ids, with a copy of
    the deleted rows.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = sorted(places, key=lambda place: (place[0].encode(), place[1]))
    if odd and rng.random() < 0.3:
        rows += rng.sample(rows, 1)
        rng.shuffle(rows)
    ids = not odd or rng.random() < 0.7
    schema = pa.schema(
        [
            pa.field("file_path", pa.string(), False, {"PARQUET:field_id": str(PATH_ID)} if ids else None),
            pa.field("pos", pa.int64(), False, {"PARQUET:field_id": str(POS_ID)} if ids else None),
        ]
    )
    table = pa.table([[p for p, _ in rows], [n for _, n in rows]], schema=schema)
    if odd and rng.random() < 0.3:
        copies = pa.array([{"a": n} for n in range(len(rows))], pa.struct([("a", pa.int64())]))
        meta = {"PARQUET:field_id": str(ROW_COPY_ID)}
        table = table.append_column(pa.field("row", copies.type, metadata=meta), copies)
    pq.write_table(
        table,
        path,
        row_group_size=rng.choice([2, 5, 1000]),
        write_page_index=rng.random() < 0.5,
        max_rows_per_page=rng.choice([2, 1000]),
        write_statistics=rng.random() < 0.8,
    )
    return len(rows)


def write_vectors(path: Path, vectors: Mapping[str, Iterable[int]]) -> dict[str, tuple[int, int]]:
    """A Puffin file of deletion vectors; where the blob of each data file is."""
    out, blobs, places = b"PFA1", [], {}
    for data, positions in vectors.items():
        found = pyroaring.BitMap64(positions)
        if len(found) % 2:  # runs are another kind of container
            found.run_optimize()
        body = MAGIC + found.serialize()
        blob = struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))
        places[data] = len(out), len(blob)
        blobs.append(
            {
                "type": "deletion-vector-v1",
                "fields": [POS_ID],
                "snapshot-id": -1,
                "sequence-number": -1,
                "offset": len(out),
                "length": len(blob),
                "properties": {"referenced-data-file": data, "cardinality": str(len(found))},
            }
        )
        out += blob
    footer = json.dumps({"blobs": blobs, "properties": {"created-by": "tests"}}).encode()
    tail = struct.pack("<I", len(footer)) + bytes(4) + b"PFA1"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(out + b"PFA1" + footer + tail)
    return places
