"""What can't be read is an error that names the file, the row group and the column."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone.core.rows import RowSet
from skipstone.errors import CorruptFileError, EncryptedFileError, ReadError
from skipstone.parquet.slice import slice_ranges, slice_steps
from skipstone.store.source import ByteRange
from tests.property._slices import Lake

ROWS = 500


def lake(table: pa.Table, **options: Any) -> Lake:
    sink = io.BytesIO()
    pq.write_table(table, sink, write_page_index=True, max_rows_per_page=100, **options)
    return Lake(sink.getvalue(), "events.parquet")


FLAT = pa.table(
    {name: pa.array([f"{name} {i % 9}" for i in range(ROWS)]) for name in ("first", "second", "third")}
)


def with_bytes(file: Lake, span: ByteRange, new: bytes) -> Lake:
    broken = Lake(file.data, "events.parquet")
    broken.data = file.data[: span.start] + new + file.data[span.stop :]
    assert len(broken.data) == len(file.data)
    return broken


def test_the_guilty_column_is_named() -> None:
    file = lake(FLAT, compression="zstd")
    chunk = file.metadata.chunk_range(0, 1)
    broken = with_bytes(file, ByteRange(chunk.stop - 20, chunk.stop), b"\xff" * 20)
    with pytest.raises(CorruptFileError) as caught:
        broken.slice(0, [0, 1, 2], RowSet.all(ROWS))
    error = caught.value
    assert (error.path, error.unit, error.column) == ("events.parquet", "row group 0", "second")
    assert "ZSTD" in error.message
    # The others can be read.
    assert broken.slice(0, [0, 2], RowSet.all(ROWS))[0].equals(FLAT.select(["first", "third"]))


def test_a_guilty_leaf_is_named() -> None:
    nested = pa.table({"s": pa.array([{"x": i, "y": {"z": str(i)}} for i in range(ROWS)])})
    file = lake(nested, compression="zstd")
    chunk = file.metadata.chunk_range(0, 1)
    broken = with_bytes(file, ByteRange(chunk.stop - 20, chunk.stop), b"\xff" * 20)
    for rows in (RowSet.all(ROWS), RowSet.from_positions(ROWS, [499])):
        with pytest.raises(CorruptFileError, match=r"events\.parquet, row group 0, column s\.y\.z: "):
            broken.slice(0, [0], rows)


def test_a_flipped_bit_passes_unless_checksums_are_on() -> None:
    file = lake(
        pa.table({"n": pa.array(range(ROWS))}),
        compression="none",
        use_dictionary=False,
        write_page_checksum=True,
    )
    index = file.indexes(0)[0]
    assert index is not None
    at = int(index.offsets[1] + index.sizes[1]) - 8
    broken = with_bytes(file, ByteRange(at, at + 1), bytes([file.data[at] ^ 1]))
    rows = RowSet.from_positions(ROWS, [199])
    assert broken.slice(0, [0], rows)[0]["n"].to_pylist() == [198]
    with pytest.raises(CorruptFileError, match=r"column n: .*CRC checksum"):
        broken.slice(0, [0], rows, checksums=True)
    assert file.slice(0, [0], rows, checksums=True)[0]["n"].to_pylist() == [199]


def test_bytes_that_came_back_short() -> None:
    file = lake(FLAT)
    steps = slice_steps(file.metadata, 0, [0], RowSet.all(ROWS), {})
    (span,) = next(steps)
    with pytest.raises(ReadError, match=f"{span}: got {span.length - 1} bytes"):
        steps.send([file.data[span.start : span.stop - 1]])


def test_a_list_with_other_rows_than_its_index_says() -> None:
    """Pages of repeated values don't count rows, so only decoding can tell."""
    from dataclasses import replace

    lists = pa.table({"l": pa.array([list(range(i % 4)) for i in range(ROWS)])})
    file = lake(lists, data_page_version="1.0")
    index = file.indexes(0)[0]
    assert index is not None
    for step in (-1, 1):
        firsts = index.first_rows.copy()
        firsts[3] += step
        with pytest.raises(
            CorruptFileError, match=r"column l\.list\.element: 100 rows decoded.*page_index=False"
        ):
            file.slice(0, [0], RowSet.from_positions(ROWS, [250]), {0: replace(index, first_rows=firsts)})


def test_encrypted_columns(tmp_path: Path) -> None:
    encryption = pytest.importorskip("pyarrow.parquet.encryption")

    class Kms(encryption.KmsClient):  # type: ignore[misc,name-defined]
        def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
            return key_bytes

        def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
            return wrapped_key

    config = encryption.EncryptionConfiguration(
        footer_key="f", column_keys={"c": ["b", "s.x"]}, plaintext_footer=True, double_wrapping=False
    )
    factory = encryption.CryptoFactory(lambda _: Kms())
    properties = factory.file_encryption_properties(encryption.KmsConnectionConfig(), config)
    path = tmp_path / "secret.parquet"
    table = pa.table({"a": [1, 2, 3], "b": [4, 5, 6], "s": [{"x": i, "y": i} for i in range(3)]})
    with pq.ParquetWriter(path, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)
    file = Lake(path.read_bytes(), "secret.parquet")
    rows = RowSet.from_positions(3, [1])
    with pytest.raises(EncryptedFileError, match=r"secret\.parquet, row group 0, column b: "):
        file.slice(0, [0, 1], rows, {})
    with pytest.raises(EncryptedFileError, match=r"column s\.x: "):
        slice_ranges(file.metadata, 0, [2], rows, {})
    assert file.slice(0, [0], rows, {})[0].to_pydict() == {"a": [2]}
    assert file.slice(0, [2], rows, {}, leaves=[3])[0]["s"].to_pylist() == [{"y": 1}]
