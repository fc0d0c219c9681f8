import pickle
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone.errors import CorruptFileError, EncryptedFileError, NotParquetError
from skipstone.parquet.metadata import FileWriter, ParquetMetadata, from_pyarrow, parse_footer, read_footer
from skipstone.store.source import open_source


def read(data: Any, **options: Any) -> ParquetMetadata:
    return read_footer(open_source(data), **options)


def reframe(footer: bytes) -> bytes:
    """A file that has only a footer."""
    return b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def same_as_pyarrow(ours: ParquetMetadata, theirs: pq.FileMetaData) -> None:
    assert len(ours.leaves) == theirs.num_columns
    assert ours.row_group_count == theirs.num_row_groups
    assert ours.created_by == (theirs.created_by or "")
    assert ours.footer_size == theirs.serialized_size
    assert ours.row_group_rows.tolist() == [
        theirs.row_group(i).num_rows for i in range(theirs.num_row_groups)
    ]
    for leaf in ours.leaves:
        column = theirs.schema.column(leaf.index)
        assert leaf.name == column.path
        assert leaf.physical.name == column.physical_type
        assert leaf.max_definition == column.max_definition_level
        assert leaf.max_repetition == column.max_repetition_level
        for group, chunk in enumerate(ours.chunks(leaf.index)):
            expected = theirs.row_group(group).column(leaf.index)
            assert chunk.num_values == expected.num_values
            assert chunk.total_compressed_size == expected.total_compressed_size
            assert chunk.data_page_offset == expected.data_page_offset
            assert (chunk.dictionary_page_offset or None) == (expected.dictionary_page_offset or None)
            nulls = None if chunk.statistics is None else chunk.statistics.null_count
            stats = expected.statistics
            if stats is not None and stats.has_null_count:
                assert nulls == stats.null_count


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("index", [False, True])
def test_pyarrow_files(table: pa.Table, write: Any, version: str, index: bool) -> None:
    data = write(table, data_page_version=version, write_page_index=index)
    metadata = read(data)
    same_as_pyarrow(metadata, pq.read_metadata(pa.BufferReader(data)))
    assert metadata.num_rows == 3_000
    assert metadata.row_group_starts.tolist() == [0, 1_000, 2_000]
    assert metadata.row_group_starts.dtype == np.int64
    assert metadata.size == len(data)
    assert metadata.writer.application == "parquet-cpp-arrow"
    assert metadata.writer.version >= (26,)
    assert metadata.arrow_schema.equals(table.schema, check_metadata=False)
    assert b"ARROW:schema" in metadata.key_value_metadata


def test_bounds_are_the_stored_bytes(table: pa.Table, write: Any) -> None:
    first = read(write(table)).chunks(0)[1].statistics
    assert first is not None
    assert first.min_value == (1_000).to_bytes(8, "little")
    assert first.max_value == (1_999).to_bytes(8, "little")
    assert first.null_count == 0


def test_duckdb_files(tmp_path: Path) -> None:
    path = tmp_path / "duck.parquet"
    duckdb.sql(
        "select i, 'n' || (i % 10) s, i::decimal(9, 2) d, [i, i + 1] l, {'a': i} t, uuid() u, "
        "timestamp '2026-01-01' + interval (i) second ts from range(5000) r(i)"
    ).write_parquet(str(path), row_group_size=2_048)
    metadata = read(path)
    same_as_pyarrow(metadata, pq.read_metadata(path))
    assert metadata.num_rows == 5_000
    assert metadata.writer.application == "DuckDB"


def test_polars_files(tmp_path: Path) -> None:
    path = tmp_path / "polars.parquet"
    frame = pl.DataFrame(
        {"i": range(5_000), "s": [f"n{i % 10}" for i in range(5_000)], "l": [[i] for i in range(5_000)]}
    )
    frame.write_parquet(path, row_group_size=1_000)
    metadata = read(path)
    same_as_pyarrow(metadata, pq.read_metadata(path))
    assert metadata.row_group_count == 5


def test_a_table_without_rows_or_columns(write: Any) -> None:
    assert read(write(pa.table({"a": pa.array([], pa.int32())}))).num_rows == 0
    empty = read(write(pa.table({})))
    assert empty.leaves == ()
    assert empty.num_rows == 0


def test_one_request_for_a_footer_in_the_tail_and_two_for_a_longer_one(table: pa.Table, write: Any) -> None:
    data = write(table)
    one, two = open_source(data), open_source(data)
    assert read_footer(one).num_rows == read_footer(two, tail=100).num_rows == 3_000
    assert (one.counter.requests, one.counter.bytes) == (1, 65_536)
    length = int.from_bytes(data[-8:-4], "little")
    assert (two.counter.requests, two.counter.bytes) == (2, length + 8)


@pytest.mark.parametrize("tail", [0, 8, 9, 1_000, 10**7])
def test_any_tail_gives_the_same_metadata(table: pa.Table, write: Any, tail: int) -> None:
    data = write(table)
    metadata = read(data, tail=tail)
    assert metadata.footer == data[-8 - metadata.footer_size : -8]


def test_pickle_is_about_as_small_as_the_footer(table: pa.Table, write: Any) -> None:
    metadata = read(write(table))
    metadata.chunks(0)
    dumped = pickle.dumps(metadata)
    assert metadata.footer_size < len(dumped) < metadata.footer_size + 500
    again = pickle.loads(dumped)
    assert (again.path, again.size, again.leaves) == (metadata.path, metadata.size, metadata.leaves)
    assert again.row_group_rows.tolist() == metadata.row_group_rows.tolist()


def test_from_pyarrow(table: pa.Table, write: Any) -> None:
    data = write(table, write_page_index=True)
    theirs = pq.read_metadata(pa.BufferReader(data))
    ours = from_pyarrow(theirs, "f.parquet")
    direct = read(data)
    assert (ours.path, ours.size) == ("f.parquet", None)
    assert ours.leaves == direct.leaves
    assert ours.columns(0)[1].column_index_offset == direct.columns(0)[1].column_index_offset
    same_as_pyarrow(ours, theirs)


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    "data", [b"", b"PAR1", b"PAR1PAR1", b"hello", b"a,b\n1,2\n" * 1_000, b"PAR1" + b"x" * 20]
)
def test_other_files(data: bytes) -> None:
    with pytest.raises(NotParquetError) as info:
        read(data)
    assert info.value.path == "<buffer>"


def test_a_wrong_head_is_seen_when_the_whole_file_is_at_hand(table: pa.Table, write: Any) -> None:
    data = b"XXXX" + write(table.slice(0, 10))[4:]
    with pytest.raises(NotParquetError, match="first bytes are b'XXXX'"):
        read(data)
    assert read(data, tail=1_000).num_rows == 10


def test_an_encrypted_footer() -> None:
    with pytest.raises(EncryptedFileError, match="footer is encrypted"):
        read(b"PARE" + b"x" * 100 + (100).to_bytes(4, "little") + b"PARE")


@pytest.mark.parametrize("length", [0, 101, 2**31, 2**32 - 1])
def test_a_footer_length_that_can_not_be(length: int) -> None:
    with pytest.raises(CorruptFileError, match=f"footer length is {length} bytes in a file of 112"):
        read(b"PAR1" + b"x" * 100 + length.to_bytes(4, "little") + b"PAR1")


def test_a_truncated_file_is_no_parquet_file(table: pa.Table, write: Any) -> None:
    data = write(table)
    with pytest.raises(NotParquetError, match="check that it is a complete Parquet file"):
        read(data[: len(data) // 2])


def test_the_magic_alone_makes_no_footer() -> None:
    with pytest.raises(CorruptFileError, match="lacks a required field"):
        read(reframe(b"\x00"))


def fields(*parts: tuple[int, bytes]) -> bytes:
    """A struct whose fields follow each other: compact type and body each, field by field."""
    return b"".join(bytes([0x10 | kind]) + body for kind, body in parts) + b"\x00"


def zigzag(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def i32(number: int) -> tuple[int, bytes]:
    return 5, zigzag(number)


def i64(number: int) -> tuple[int, bytes]:
    return 6, zigzag(number)


def structs(*items: bytes) -> tuple[int, bytes]:
    return 9, bytes([len(items) << 4 | 12]) + b"".join(items)


def element(
    name: bytes, *, kind: int | None = None, repetition: int | None = 1, children: int | None = None
) -> bytes:
    out, last = b"", 0
    for number, value in ((1, kind), (3, repetition), (4, name), (5, children)):
        if value is None:
            continue
        body = bytes([len(value)]) + value if isinstance(value, bytes) else zigzag(value)
        out += bytes([(number - last) << 4 | (8 if isinstance(value, bytes) else 5)]) + body
        last = number
    return out + b"\x00"


def footer(*schema: bytes, rows: int = 0, groups: tuple[bytes, ...] = ()) -> bytes:
    return fields(i32(1), structs(*schema), i64(rows), structs(*groups))


ROOT = element(b"root", repetition=None, children=1)


def test_the_hand_made_footer_is_sound() -> None:
    metadata = parse_footer(footer(ROOT, element(b"a", kind=1)), "f", None)
    assert [leaf.path for leaf in metadata.leaves] == [("a",)]


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ((), "no root"),
        ((element(b"root", repetition=None, children=-1),), "no root"),
        ((ROOT,), "fewer elements"),
        ((ROOT, element(b"a", kind=1), element(b"b", kind=1)), "outside its root"),
        ((ROOT, element(b"a", kind=1, children=1), element(b"b", kind=1)), "malformed at a"),
        ((ROOT, element(b"a", children=-5)), "malformed at a"),
        ((ROOT, element(b"a", children=2**31 - 1), element(b"b", kind=1)), "fewer elements"),
        ((ROOT, element(b"a", kind=1, repetition=None)), "repetition"),
        ((ROOT, element(b"a", kind=1, repetition=9)), "repetition"),
        ((ROOT, element(b"a", kind=99)), "physical type 99"),
        ((ROOT, element(b"a", kind=7)), "no length"),
    ],
)
def test_a_schema_that_is_no_tree(schema: tuple[bytes, ...], reason: str) -> None:
    with pytest.raises(CorruptFileError, match=reason):
        parse_footer(footer(*schema), "f", None)


def test_a_schema_as_deep_as_the_sea() -> None:
    deep = [element(b"g", children=1)] * 10 + [element(b"a", kind=1)]
    assert parse_footer(footer(ROOT, *deep), "f", None).leaves[0].max_definition == 11
    header = b"\x15\x02\x19\xfc" + bytes([0x82, 0xCE, 0x01])
    body = ROOT + element(b"g", children=1) * 26_368 + element(b"a", kind=1)
    with pytest.raises(CorruptFileError, match="malformed"):
        parse_footer(header + body + b"\x16\x00\x19\x0c\x00", "f", None)


def test_bad_utf8_in_a_name_is_shown_and_survives() -> None:
    assert parse_footer(footer(ROOT, element(b"a\xff", kind=1)), "f", None).leaves[0].path == ("a\\xff",)


def group(rows: int, *chunks: bytes) -> bytes:
    return fields(structs(*chunks), i64(0), i64(rows))


def test_row_counts_that_contradict_each_other() -> None:
    leafless = element(b"root", repetition=None, children=0)
    assert parse_footer(footer(leafless, rows=3, groups=(group(1), group(2))), "f", None).num_rows == 3
    # Early writers left the total out.
    assert parse_footer(footer(leafless, rows=0, groups=(group(3),)), "f", None).num_rows == 3
    with pytest.raises(CorruptFileError, match="row groups have 3 rows, but the footer records 4"):
        parse_footer(footer(leafless, rows=4, groups=(group(3),)), "f", None)
    with pytest.raises(CorruptFileError, match="row group 1: row count is -2"):
        parse_footer(footer(leafless, rows=1, groups=(group(3), group(-2))), "f", None)
    with pytest.raises(CorruptFileError, match="the footer records"):
        parse_footer(footer(leafless, rows=0, groups=(group(2**62), group(2**62))), "f", None)


def test_row_groups_with_other_columns_than_the_schema() -> None:
    with pytest.raises(CorruptFileError, match="row group 0: 0 column chunks for 1 leaf columns"):
        parse_footer(footer(ROOT, element(b"a", kind=1), groups=(group(0),)), "f", None)
    with pytest.raises(CorruptFileError, match="column a: chunk has no metadata"):
        parse_footer(footer(ROOT, element(b"a", kind=1), groups=(group(0, b"\x00"),)), "f", None)


def test_chunks_are_checked_when_asked_for(table: pa.Table, write: Any) -> None:
    data = write(table.select(["id", "name"]))
    whole = read(data)
    shrunk = parse_footer(whole.footer, "f.parquet", whole.chunk_range(1, 1).stop - 1)
    with pytest.raises(CorruptFileError, match=r"f\.parquet, row group 1, column name: chunk ends"):
        shrunk.chunks(1)
    assert whole.chunk_range(0, 1).stop <= len(data)


@pytest.mark.parametrize(
    ("text", "writer"),
    [
        ("parquet-mr version 1.8.0 (build 0fda28a)", FileWriter("parquet-mr", (1, 8, 0))),
        ("DuckDB version v2.0.0 (build abc)", FileWriter("DuckDB", (2, 0, 0))),
        ("impala version 1.3.0-INTERNAL (build 8a48ddb)", FileWriter("impala", (1, 3, 0))),
        ("parquet-mr", FileWriter("parquet-mr", ())),
        ("", FileWriter("", ())),
        ("x version " + "9" * 10_000, FileWriter("x", (999_999_999,))),
    ],
)
def test_writers(text: str, writer: FileWriter) -> None:
    assert FileWriter.parse(text) == writer


def test_a_plaintext_footer_with_encrypted_columns(tmp_path: Path) -> None:
    encryption = pytest.importorskip("pyarrow.parquet.encryption")

    class Kms(encryption.KmsClient):  # type: ignore[misc,name-defined]
        def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
            return key_bytes

        def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
            return wrapped_key

    config = encryption.EncryptionConfiguration(
        footer_key="f", column_keys={"c": ["b"]}, plaintext_footer=True, double_wrapping=False
    )
    factory = encryption.CryptoFactory(lambda _: Kms())
    properties = factory.file_encryption_properties(encryption.KmsConnectionConfig(), config)
    path = tmp_path / "secret.parquet"
    table = pa.table({"a": [1, 2, 3], "b": [4, 5, 6]})
    with pq.ParquetWriter(path, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)
    metadata = read(path)
    assert metadata.num_rows == 3
    assert (metadata.encrypted(0), metadata.encrypted(1)) == ([False], [True])
    assert metadata.chunks(0)[0].statistics is not None
