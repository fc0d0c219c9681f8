"""Random files, random slices of them: the rows and the schema that pyarrow gives for the whole row group."""

from __future__ import annotations

import datetime
import decimal
import io
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.property._layouts import WRITERS, Writer
from tests.property._slices import Lake, random_rows
from tests.support.samples import sample

FILES = sample("slices, files")
READS = 12
NESTED = 3 * FILES
ENCODED = FILES

LEAVES: tuple[tuple[pa.DataType, Any], ...] = (
    (pa.int32(), lambda rng: rng.randrange(-99, 99)),
    (pa.int64(), lambda rng: rng.randrange(5)),
    (pa.uint8(), lambda rng: rng.randrange(255)),
    (pa.float64(), lambda rng: rng.choice([0.0, -0.0, 1.5, float("nan")])),
    (pa.bool_(), lambda rng: rng.random() < 0.5),
    (pa.string(), lambda rng: rng.choice(["", "é", "text " * rng.randrange(9)])),
    (pa.large_string(), lambda rng: f"{rng.random()}"),
    (pa.string_view(), lambda rng: f"{rng.random()}" * rng.randrange(3)),
    (pa.binary_view(), lambda rng: bytes(rng.randrange(20))),
    (pa.binary(), lambda rng: bytes(rng.randrange(9))),
    (pa.binary(3), lambda rng: bytes([rng.randrange(256)]) * 3),
    (pa.decimal128(12, 2), lambda rng: decimal.Decimal(rng.randrange(-999, 999)).scaleb(-2)),
    (pa.timestamp("us", "Europe/Paris"), lambda rng: rng.randrange(10**15)),
    (pa.timestamp("ns"), lambda rng: rng.randrange(10**18)),
    (pa.date32(), lambda rng: datetime.date(2026, 1, 1 + rng.randrange(28))),
    (pa.dictionary(pa.int32(), pa.string()), lambda rng: rng.choice("abc")),
    (pa.uuid(), lambda rng: bytes([rng.randrange(256)]) * 16),
    (pa.null(), lambda rng: None),
)


def random_type(rng: random.Random, depth: int) -> tuple[pa.DataType, Any]:
    """A type, and a function that makes values of it."""
    style = rng.choice(["leaf", "struct", "struct", "list", "list", "map", "fixed"]) if depth else "leaf"
    if style == "leaf":
        return rng.choice(LEAVES)
    if style == "struct":
        parts = [
            (f"f{i}", *random_type(rng, depth - 1), rng.random() < 0.7) for i in range(rng.randrange(1, 4))
        ]
        type = pa.struct([pa.field(n, t, nullable=null or t == pa.null()) for n, t, _, null in parts])
        return type, lambda rng: {
            n: (None if null and rng.random() < 0.2 else make(rng)) for n, _, make, null in parts
        }
    inner, make = random_type(rng, depth - 1)
    if style == "map":
        key, make_key = rng.choice([LEAVES[0], LEAVES[5], LEAVES[10]])
        return pa.map_(key, inner), lambda rng: [
            (make_key(rng), make(rng)) for _ in range(rng.choice([0, 1, 2, 5]))
        ]
    if style == "fixed":
        return pa.list_(inner, 2), lambda rng: [make(rng), make(rng)]
    build = rng.choice([pa.list_, pa.list_, pa.large_list, pa.list_view])
    return build(inner), lambda rng: [
        None if rng.random() < 0.1 else make(rng) for _ in range(rng.choice([0, 0, 1, 3, 20]))
    ]


def random_nested(rng: random.Random) -> pa.Table:
    rows = rng.randrange(1, 250)
    fields, arrays = [], []
    for number in range(rng.randrange(1, 5)):
        type, make = random_type(rng, rng.choice([1, 2, 3]))
        nulls = 0.0 if rng.random() < 0.3 else 0.15
        values = [None if rng.random() < nulls else make(rng) for _ in range(rows)]
        try:
            arrays.append(pa.array(values, type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
            continue  # a type that pyarrow can't make of Python values
        fields.append(pa.field(f"c{number}", type, metadata={"k": "v"} if rng.random() < 0.3 else None))
    fields.append(pa.field("id", pa.int64(), nullable=False))
    arrays.append(pa.array(range(rows), pa.int64()))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def check_file(lake: Lake, rng: random.Random, reads: int) -> int:
    """Some random slices of every row group; how many columns were read."""
    metadata = lake.metadata
    columns = 0
    for group in range(min(metadata.row_group_count, 3)):
        total = int(metadata.row_group_rows[group])
        if not total:
            continue
        indexes = lake.indexes(group)
        for _ in range(reads):
            fields = rng.sample(
                range(len(metadata.arrow_schema)), rng.randrange(1, len(metadata.arrow_schema) + 1)
            )
            leaves = None
            if rng.random() < 0.4:
                leaves = {leaf for leaf in range(len(metadata.leaves)) if rng.random() < 0.5}
            some = {leaf: index for leaf, index in indexes.items() if rng.random() < 0.9}
            checksums = rng.random() < 0.2
            lake.check(group, fields, random_rows(rng, total), some, leaves=leaves, checksums=checksums)
            columns += len(fields)
    return columns


@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.name)
def test_slices_of_flat_files(writer: Writer, tmp_path: Path) -> None:
    columns = 0
    for number in range(FILES if writer.name == "pyarrow" else FILES // 2):
        layout = writer.file(number, tmp_path)
        lake = Lake(layout.path.read_bytes(), f"{writer.name}:{number} {layout.words}")
        columns += check_file(lake, random.Random(number), READS)
    assert columns > 10 * FILES


def test_slices_of_nested_files() -> None:
    columns = written = 0
    for number in range(NESTED):
        rng = random.Random(f"nested:{number}")
        table = random_nested(rng)
        settings: dict[str, Any] = {
            "row_group_size": rng.choice([50, 1000]),
            "use_dictionary": rng.random() < 0.6,
            "compression": rng.choice(["none", "snappy", "zstd"]),
            "data_page_version": rng.choice(["1.0", "2.0"]),
            "write_page_index": rng.random() < 0.9,
            "data_page_size": rng.choice([1, 40, 300, 2000]),
            "write_batch_size": rng.choice([1, 4, 16]),
            "max_rows_per_page": rng.choice([1, 7, 20, 1000]),
            "use_compliant_nested_type": rng.random() < 0.8,
            "store_schema": rng.random() < 0.8,
            "write_page_checksum": rng.random() < 0.3,
            "dictionary_pagesize_limit": rng.choice([20, 1 << 20]),
        }
        sink = io.BytesIO()
        try:
            pq.write_table(table, sink, **settings)
            pq.read_table(pa.BufferReader(sink.getvalue()))
        except (pa.ArrowException, OSError):
            continue  # a type that Parquet or its reader doesn't have
        written += 1
        columns += check_file(Lake(sink.getvalue(), f"nested:{number} {settings}"), rng, READS)
    assert written > NESTED // 2
    assert columns > 10 * NESTED


ENCODINGS: dict[str, tuple[pa.DataType, tuple[str, ...]]] = {
    "i32": (pa.int32(), ("DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT", "PLAIN")),
    "i64": (pa.int64(), ("DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT")),
    "f32": (pa.float32(), ("BYTE_STREAM_SPLIT", "PLAIN")),
    "f64": (pa.float64(), ("BYTE_STREAM_SPLIT",)),
    "fixed": (pa.binary(3), ("BYTE_STREAM_SPLIT", "DELTA_BYTE_ARRAY", "PLAIN")),
    "text": (pa.string(), ("DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY", "PLAIN")),
    "blob": (pa.binary(), ("DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY")),
    "flag": (pa.bool_(), ("RLE", "PLAIN")),
}


def test_slices_of_every_encoding() -> None:
    columns = 0
    for number in range(ENCODED):
        rng = random.Random(f"encoded:{number}")
        rows = rng.randrange(1, 300)
        makers = dict(LEAVES)
        makers[pa.float32()] = makers[pa.float64()]
        table = pa.table(
            {
                name: pa.array([None if rng.random() < 0.1 else makers[type](rng) for _ in range(rows)], type)
                for name, (type, _) in ENCODINGS.items()
            }
        )
        sink = io.BytesIO()
        pq.write_table(
            table,
            sink,
            use_dictionary=False,
            column_encoding={name: rng.choice(options) for name, (_, options) in ENCODINGS.items()},
            compression=rng.choice(["none", "snappy", "zstd", "gzip", "lz4", "brotli"]),
            data_page_version=rng.choice(["1.0", "2.0"]),
            write_page_index=True,
            max_rows_per_page=rng.choice([1, 10, 33]),
            write_page_checksum=rng.random() < 0.5,
        )
        columns += check_file(Lake(sink.getvalue(), f"encoded:{number}"), rng, READS)
    assert columns > 10 * ENCODED
