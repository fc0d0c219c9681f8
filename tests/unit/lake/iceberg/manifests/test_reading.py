from __future__ import annotations

import random
import struct
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.manifest import read_manifest_list as their_list
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, VoidTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, LongType, NestedField, StringType, TimestampType

from skipstone.errors import CorruptFileError, SchemaError
from skipstone.lake.iceberg.manifests import slices
from skipstone.lake.iceberg.manifests.decode import slicer_of
from skipstone.lake.iceberg.manifests.entries import Entries
from skipstone.lake.iceberg.manifests.reading import (
    ManifestNote,
    Manifests,
    clear_cache,
    read_manifest,
    read_manifest_list,
)
from skipstone.lake.iceberg.partitions.keys import PartitionKey
from tests.unit.lake.iceberg import _avro as av

_SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "ts", TimestampType(), required=False),
    NestedField(3, "name", StringType(), required=False),
    NestedField(4, "x", DoubleType(), required=False),
)
_SPEC = PartitionSpec(
    PartitionField(2, 1000, DayTransform(), "ts_day"),
    PartitionField(3, 1001, IdentityTransform(), "name"),
    spec_id=3,
)
_PLAIN = PartitionSpec(spec_id=0)
_IO = PyArrowFileIO()


@pytest.fixture(autouse=True)
def _fresh() -> None:
    slicer_of.cache_clear()
    clear_cache()


def _note(data: bytes = b"", **given: Any) -> ManifestNote:
    defaults: dict[str, Any] = {"spec_id": 0, "sequence": 7, "snapshot": 70}
    return ManifestNote("m.avro", len(data), **(defaults | given))


def _bounds(rng: random.Random) -> dict[int, bytes]:
    found = {
        1: struct.pack("<q", rng.randint(-(10**12), 10**12)),
        2: struct.pack("<q", rng.randint(0, 10**15)),
        3: b"n" * rng.randint(0, 16),
        4: struct.pack("<d", rng.random()),
    }
    return {i: b for i, b in found.items() if rng.random() < 0.8}


def _counts(rng: random.Random, top: int) -> dict[int, int]:
    return {i: rng.randint(0, top) for i in (1, 2, 3, 4) if rng.random() < 0.9}


def _data_file(rng: random.Random, number: int) -> DataFile:
    rows = rng.randint(0, 10**6)
    name = rng.choice([None, "a", "é", "long" * 30])
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"s3://bucket/{'d' * rng.randint(1, 90)}/{number}.parquet",
        file_format=rng.choice([FileFormat.PARQUET, FileFormat.ORC]),
        partition=Record(rng.randint(-3, 3), name),
        record_count=rows,
        file_size_in_bytes=rng.randint(0, 2**40),
        column_sizes={1: 5},
        value_counts=rng.choice([None, {}, _counts(rng, rows)]),
        null_value_counts=_counts(rng, rows),
        nan_value_counts={4: 0},
        lower_bounds=_bounds(rng),
        upper_bounds=rng.choice([None, _bounds(rng)]),
        split_offsets=[4, 99999] if rng.random() < 0.5 else None,
        sort_order_id=rng.choice([None, 0, 3]),
    )


def _write(path: Path, version: int, codec: str, files: int, seed: int = 1) -> ManifestFile:
    """A manifest by pyiceberg's writer, with entries of every status."""
    rng = random.Random(seed)
    output = _IO.new_output(str(path))
    with write_manifest(version, _SPEC, _SCHEMA, output, 70, codec) as writer:  # type: ignore[arg-type]
        for number in range(files):
            status = rng.choice(list(ManifestEntryStatus))
            added = status is ManifestEntryStatus.ADDED
            kept = None if added and rng.random() < 0.5 else rng.randint(1, 6)
            entry = ManifestEntry.from_args(
                status=status,
                snapshot_id=70 if added or version == 1 else rng.randint(1, 2**60),
                sequence_number=kept,
                file_sequence_number=kept,
                data_file=_data_file(rng, number),
            )
            writer.add_entry(entry)
    made = writer.to_manifest_file()
    made.sequence_number = 0 if version == 1 else 7
    return made


def _assert_same(entries: Entries, theirs: list[ManifestEntry]) -> None:
    assert len(entries) == len(theirs)
    metrics = {i: entries.metrics(i) for i in (1, 2, 3, 4, 5)}
    lower = {i: m.lower.to_pylist() for i, m in metrics.items()}
    upper = {i: m.upper.to_pylist() for i, m in metrics.items()}
    for at, entry in enumerate(theirs):
        file = entry.data_file
        assert entries.paths[at].as_py() == file.file_path
        assert entries.formats[at].as_py() == file.file_format.value
        assert entries.rows[at] == file.record_count
        assert entries.sizes[at] == file.file_size_in_bytes
        assert entries.contents[at] == file.content
        assert entries.specs[at] == file.spec_id
        assert entries.sequences[at] == entry.sequence_number
        assert entries.snapshots[at] == entry.snapshot_id
        assert entries.keys[entries.partitions[at]] == PartitionKey(3, (file.partition[0], file.partition[1]))
        for i, known in metrics.items():
            assert known.values[at] == (file.value_counts or {}).get(i, -1)
            assert known.nulls[at] == (file.null_value_counts or {}).get(i, -1)
            assert known.nans[at] == (file.nan_value_counts or {}).get(i, -1)
            assert lower[i][at] == (file.lower_bounds or {}).get(i)
            assert upper[i][at] == (file.upper_bounds or {}).get(i)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("codec", ["null", "deflate", "zstandard", "bzip2"])
def test_a_manifest_reads_as_pyiceberg_reads_it(tmp_path: Path, version: int, codec: str) -> None:
    theirs = _write(tmp_path / "m.avro", version, codec, 150)
    data = (tmp_path / "m.avro").read_bytes()
    note = _note(data, spec_id=3, sequence=theirs.sequence_number)
    entries = read_manifest(data, note, {3: _SPEC})
    _assert_same(entries, theirs.fetch_manifest_entry(_IO))
    assert list(entries.keys) == sorted(set(entries.keys), key=PartitionKey.sort_key)
    if version == 1:
        assert not entries.sequences.any()


def test_patterns_cut_as_a_walk_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was learnt before: from one entry, from many, from another manifest."""
    _write(tmp_path / "a.avro", 2, "null", 40, seed=5)
    _write(tmp_path / "b.avro", 2, "null", 40, seed=6)
    note = _note(spec_id=3)
    read = [(tmp_path / name).read_bytes() for name in ("a.avro", "b.avro")]
    walked = [read_manifest(data, note, {3: _SPEC}).to_table() for data in read]
    matched = 0
    for patience in (1, 3, 30):
        monkeypatch.setattr(slices, "_PATIENCE", patience)
        slicer_of.cache_clear()
        for data, expected in zip(read, walked, strict=True):
            assert read_manifest(data, note, {3: _SPEC}).to_table().equals(expected, check_metadata=True)
        slicer = slicer_of(av_schema(read[0]))
        matched += slicer._match is not None
    assert matched == 3


def av_schema(data: bytes) -> bytes:
    from skipstone.lake.iceberg.manifests.avro import read_container

    return read_container(data).meta["avro.schema"]


@pytest.mark.parametrize("version", [1, 2])
def test_a_manifest_list_reads_as_pyiceberg_reads_it(tmp_path: Path, version: int) -> None:
    manifests = [_write(tmp_path / f"{n}.avro", version, "deflate", 9, seed=n) for n in range(3)]
    for made in manifests:
        made.min_sequence_number = 0 if version == 1 else 2
    target = _IO.new_output(str(tmp_path / "list.avro"))
    with write_manifest_list(version, target, 70, 69, None if version == 1 else 7, "deflate") as writer:  # type: ignore[arg-type]
        writer.add_manifests(manifests)
    data = (tmp_path / "list.avro").read_bytes()
    notes = read_manifest_list(data, "list.avro")
    theirs = list(their_list(_IO.new_input(str(tmp_path / "list.avro"))))
    assert len(notes) == 3
    for note, one in zip(notes, theirs, strict=True):
        assert (note.path, note.length, note.spec_id) == (one.manifest_path, one.manifest_length, 3)
        assert (note.content, note.sequence, note.min_sequence) == (
            one.content,
            one.sequence_number,
            one.min_sequence_number,
        )
        assert note.snapshot == one.added_snapshot_id
        assert note.added_files == one.added_files_count
        assert note.existing_rows == one.existing_rows_count
        assert note.deleted_rows == one.deleted_rows_count
        assert [(p.contains_null, p.contains_nan, p.lower, p.upper) for p in note.partitions] == [
            (p.contains_null, p.contains_nan, p.lower_bound, p.upper_bound) for p in one.partitions or []
        ]
    for cut in range(len(data) - 400, len(data), 7):
        with pytest.raises(CorruptFileError, match=r"^list.avro: "):
            read_manifest_list(data[:cut], "list.avro")


def test_a_list_without_ids_old_names_and_version_3() -> None:
    schema = av.record(
        "manifest_file",
        av.field("manifest_path", None, "string"),
        av.field("manifest_length", None, "long"),
        av.field("partition_spec_id", None, "int"),
        av.field("added_data_files_count", None, ["int", "null"]),
        av.field("first", 520, av.optional("long")),
        av.field("key_metadata", None, av.optional("bytes")),
    )
    row = {
        "manifest_path": "m",
        "manifest_length": 5,
        "partition_spec_id": 2,
        "added_data_files_count": 4,
        "first": 9,
    }
    data = av.container(schema, [[av.encode(schema, row)]])
    assert read_manifest_list(data, "l") == [ManifestNote("m", 5, 2, added_files=4, first_row_id=9)]
    less = av.record("manifest_file", av.field("manifest_path", None, "string"))
    with pytest.raises(CorruptFileError, match="no length"):
        read_manifest_list(av.container(less, [[av.blob(b"m")]]), "l")


# -- what is inherited -------------------------------------------------------------------------


def test_entries_inherit_from_the_note() -> None:
    schema = av.entry_schema()
    written = [
        av.entry("a", status=1),
        av.entry("b", status=1, sequence_number=3, snapshot_id=5),
        av.entry("gone", status=2, sequence_number=3),
        av.entry("c", status=0, sequence_number=0, snapshot_id=6, first_row_id=1000),
        av.entry("d", status=1, record_count=0),
        av.entry("e", status=1),
    ]
    data = av.manifest(schema, written)
    found = read_manifest(data, _note(data, first_row_id=500), {0: _PLAIN})
    assert found.paths.to_pylist() == ["a", "b", "c", "d", "e"]
    assert found.sequences.tolist() == [7, 3, 0, 7, 7]
    assert found.snapshots.tolist() == [70, 5, 6, 70, 70]
    assert found.first_row_ids.tolist() == [500, 510, 1000, 520, 520]
    assert found.rows.tolist() == [10, 10, 10, 0, 10]
    unlisted = read_manifest(data, _note(data, snapshot=-1), {0: _PLAIN})
    assert unlisted.first_row_ids.tolist() == [-1, -1, 1000, -1, -1]
    assert unlisted.snapshots.tolist() == [-1, 5, 6, -1, -1]


def test_an_old_file_without_a_sequence_number() -> None:
    schema = av.entry_schema()
    data = av.manifest(schema, [av.entry(status=0)])
    with pytest.raises(CorruptFileError, match="sequence number"):
        read_manifest(data, _note(data), {0: _PLAIN})
    assert read_manifest(data, _note(data, sequence=0), {0: _PLAIN}).sequences.tolist() == [0]
    old = av.manifest(av.entry_schema(version=1), [av.entry(status=0)], version=1)
    assert read_manifest(old, _note(old), {0: _PLAIN}).sequences.tolist() == [0]


def test_delete_files_and_vectors() -> None:
    schema = av.entry_schema()
    written = [
        av.entry("p", content=1, referenced_data_file="s3://b/data.parquet"),
        av.entry("q", content=2, equality_ids=[3, 1]),
        av.entry(
            "v.puffin",
            content=1,
            file_format="puffin",
            referenced_data_file="s3://b/data.parquet",
            content_offset=4,
            content_size_in_bytes=44,
        ),
    ]
    data = av.manifest(schema, written)
    found = read_manifest(data, _note(data, content=1, first_row_id=5), {0: _PLAIN})
    assert found.contents.tolist() == [1, 2, 1]
    assert found.equality_ids == ((), (3, 1), ())
    assert found.formats.to_pylist() == ["PARQUET", "PARQUET", "PUFFIN"]
    assert found.referenced.to_pylist() == ["s3://b/data.parquet", None, "s3://b/data.parquet"]
    assert found.content_offsets.tolist() == [-1, -1, 4]
    assert found.content_sizes.tolist() == [-1, -1, 44]
    assert found.first_row_ids.tolist() == [-1, -1, -1]


# -- partitions --------------------------------------------------------------------------------


def test_partitions_follow_the_notes_spec() -> None:
    day = av.field("ts_day", 1000, av.optional({"type": "int", "logicalType": "date"}))
    name = av.field("renamed", 1001, av.optional("string"))
    schema = av.entry_schema(name, day)
    written = [
        av.entry(partition={"ts_day": 9, "renamed": None}),
        av.entry(partition={"ts_day": 10, "renamed": "a"}),
    ]
    data = av.manifest(schema, [*written, written[0]])
    found = read_manifest(data, _note(data, spec_id=3), {3: _SPEC})
    assert found.keys == (PartitionKey(3, (9, None)), PartitionKey(3, (10, "a")))
    assert found.partitions.tolist() == [0, 1, 0]


def test_unpartitioned_is_decided_by_the_entrys_own_spec() -> None:
    schema = av.entry_schema(av.field("x", 1000, av.optional("int")))
    data = av.manifest(schema, [av.entry(partition={"x": None})])
    void = PartitionSpec(PartitionField(1, 1000, VoidTransform(), "x"), spec_id=4)
    found = read_manifest(data, _note(data, spec_id=4), {4: void, 3: _SPEC})
    assert found.keys == (PartitionKey(4, None),)
    assert found.specs.tolist() == [4]
    half = PartitionSpec(
        PartitionField(1, 1000, VoidTransform(), "x"),
        PartitionField(1, 1005, VoidTransform(), "y"),
        spec_id=4,
    )
    assert read_manifest(data, _note(data, spec_id=4), {4: half}).keys == (PartitionKey(4, None),)


def test_partitions_without_ids_go_by_name_then_by_place() -> None:
    spec = PartitionSpec(
        PartitionField(1, 1000, BucketTransform(4), "b"),
        PartitionField(3, 1001, IdentityTransform(), "n"),
        spec_id=1,
    )
    by_name = av.entry_schema(av.field("n", None, "string"), av.field("b", None, "int"))
    data = av.manifest(by_name, [av.entry(partition={"n": "x", "b": 2})])
    assert read_manifest(data, _note(data, spec_id=1), {1: spec}).keys == (PartitionKey(1, (2, "x")),)
    by_place = av.entry_schema(av.field("p", None, "int"), av.field("q", None, "string"))
    data = av.manifest(by_place, [av.entry(partition={"p": 2, "q": "x"})])
    assert read_manifest(data, _note(data, spec_id=1), {1: spec}).keys == (PartitionKey(1, (2, "x")),)


def test_a_partition_that_lacks_a_field_is_not_null() -> None:
    data = av.manifest(av.entry_schema(av.field("ts_day", 1000, "int")), [av.entry(partition={"ts_day": 1})])
    with pytest.raises(CorruptFileError, match="name") as caught:
        read_manifest(data, _note(data, spec_id=3), {3: _SPEC})
    assert caught.value.path == "m.avro"


def test_an_unknown_spec_is_named() -> None:
    data = av.manifest(av.entry_schema(), [av.entry()])
    with pytest.raises(SchemaError, match="partition spec 8") as caught:
        read_manifest(data, _note(data, spec_id=8), {0: _PLAIN, 3: _SPEC})
    assert caught.value.path == "m.avro"
    assert "0, 3" in caught.value.message


# -- odd writers -------------------------------------------------------------------------------

_LIMIT = 2**63 - 1
_FILES = st.fixed_dictionaries(
    {
        "file_path": st.text(max_size=90),
        "record_count": st.integers(0, _LIMIT),
        "file_size_in_bytes": st.integers(0, _LIMIT),
        "value_counts": st.none()
        | st.dictionaries(st.integers(0, 2**31 - 1), st.integers(-5, _LIMIT), max_size=4),
        "null_value_counts": st.dictionaries(st.integers(0, 9), st.integers(0, 99), max_size=3),
        "lower_bounds": st.none() | st.dictionaries(st.integers(0, 9), st.binary(max_size=80), max_size=4),
        "upper_bounds": st.dictionaries(st.integers(0, 300), st.binary(max_size=3), max_size=3),
        "equality_ids": st.none() | st.lists(st.integers(-1, 2**31 - 1), max_size=3),
    }
)
_MAPS = ("value_counts", "null_value_counts", "lower_bounds", "upper_bounds")


def _reversed_unions(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_reversed_unions(s) for s in reversed(schema)]
    if isinstance(schema, dict):
        return {
            key: value if key == "symbols" else _reversed_fields(key, value) for key, value in schema.items()
        }
    return schema


def _reversed_fields(key: str, value: Any) -> Any:
    if key == "fields":
        return [{**f, "type": _reversed_unions(f["type"])} for f in value]
    return _reversed_unions(value) if key in ("type", "items") else value


@settings(max_examples=60, deadline=None)
@given(
    files=st.lists(_FILES, max_size=6),
    odd=st.integers(0, 2),
    turned=st.booleans(),
    patience=st.sampled_from([1, 2, 99]),
)
def test_any_entries_in_any_encoding(files, odd: int, turned: bool, patience: int) -> None:
    schema = av.entry_schema()
    schema = _reversed_unions(schema) if turned else schema
    written = [av.entry(**{**f, **{name: av.as_map(f[name]) for name in _MAPS}}) for f in files]
    blocks = [[av.encode(schema, entry, lambda: odd)] for entry in written]
    data = av.container(schema, blocks, codec="deflate", meta={"format-version": b"3"})
    slicer_of.cache_clear()
    slicer_of(av_schema(data))._patience = patience
    for _ in range(2):  # the second time with what the first has taught
        found = read_manifest(data, _note(data), {0: _PLAIN})
        assert found.paths.to_pylist() == [f["file_path"] for f in files]
        assert found.rows.tolist() == [f["record_count"] for f in files]
        assert found.equality_ids == tuple(tuple(f["equality_ids"] or ()) for f in files)
        for i in {0, 5, *(i for f in files for name in _MAPS for i in f[name] or ())}:
            metrics = found.metrics(i)
            assert metrics.values.tolist() == [max(-1, (f["value_counts"] or {}).get(i, -1)) for f in files]
            assert metrics.nulls.tolist() == [f["null_value_counts"].get(i, -1) for f in files]
            assert metrics.lower.to_pylist() == [(f["lower_bounds"] or {}).get(i) for f in files]
            assert metrics.upper.to_pylist() == [f["upper_bounds"].get(i) for f in files]


def test_other_names_other_order_extra_fields_and_other_types() -> None:
    """Fields go by their ids; what isn't known is skipped; numbers and texts may be of other widths."""
    pair = av.record("p", av.field("value", 127, av.optional("bytes")), av.field("key", 126, "long"))
    tree = av.record("tree", av.field("kids", None, {"type": "array", "items": "tree"}))
    file = av.record(
        "f",
        av.field("größe", 104, "int"),
        av.field("extra", None, {"type": "map", "values": ["null", "double", "string"]}),
        av.field("low", 125, {"type": "array", "items": pair}),
        av.field("tree", None, tree),
        av.field("where", 100, "bytes"),
        av.field("as", 101, {"type": "enum", "name": "e", "symbols": ["orc", "parquet"]}),
        av.field("empties", None, {"type": "array", "items": "null"}),
        av.field("rows", 103, ["null", "int", "long"]),
        av.field("values", 109, {"type": "map", "values": "long"}),
    )
    schema = av.record(
        "entry", av.field("flag", None, "boolean"), av.field("file", 2, file), av.field("s", 0, "long")
    )
    body = (
        b"\x01"
        + av.long(5)
        + av.block([av.blob(b"k") + av.long(1) + struct.pack("<d", 1.5), av.blob(b"l") + av.long(0)])
        + av.block([av.long(1) + av.blob(b"lo") + av.long(9), av.long(0) + av.long(8)])
        + av.block([av.block([]), av.block([av.block([])])])
        + av.blob(b"path")
        + av.long(1)
        + av.block([b"", b""])
        + av.long(2)
        + av.long(77, overlong=2)
        + av.block([av.blob(b"9") + av.long(77)])
        + av.long(1)
    )
    data = av.container(schema, [[body] * 80])
    found = read_manifest(data, _note(data), {0: _PLAIN})
    assert len(found) == 80
    assert (found.paths[79].as_py(), found.formats[0].as_py()) == ("path", "PARQUET")
    assert (found.sizes[0], found.rows[79]) == (5, 77)
    assert found.metric_fields() == (9,)
    assert found.metrics(9).lower[3].as_py() == b"lo"
    assert found.metrics(9).values[79] == 77


@pytest.mark.parametrize("missing", [0, 100, 101, 103, 104])
def test_a_field_that_must_be_there(missing: int) -> None:
    schema = av.entry_schema()
    inner = schema["fields"][-1]["type"]
    for fields in (schema["fields"], inner["fields"]):
        fields[:] = [f for f in fields if f["field-id"] != missing]
    data = av.manifest(schema, [av.entry()])
    with pytest.raises(CorruptFileError, match="no field"):
        read_manifest(data, _note(data), {0: _PLAIN})


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (av.entry(record_count=-4), "record_count"),
        (av.entry(content=3), "content"),
        (av.entry(status=3), "status"),
    ],
)
def test_an_entry_that_can_not_be(entry: dict[str, Any], words: str) -> None:
    data = av.manifest(av.entry_schema(), [entry])
    with pytest.raises(CorruptFileError, match=words):
        read_manifest(data, _note(data), {0: _PLAIN})


def test_a_path_that_is_no_text() -> None:
    schema = av.entry_schema()
    raw = av.encode(schema, av.entry("XXXX")).replace(b"XXXX", b"\xff\xfe\xfd\xfc")
    data = av.container(schema, [[raw]])
    with pytest.raises(CorruptFileError, match="text"):
        read_manifest(data, _note(data), {0: _PLAIN})


def test_long_paths() -> None:
    paths = ["p" * n for n in (0, 62, 63, 64, 65, 8191, 8192, 70_000, 1_048_575, 1_048_576)]
    data = av.manifest(av.entry_schema(), [av.entry(p) for p in paths])
    assert read_manifest(data, _note(data), {0: _PLAIN}).paths.to_pylist() == paths


def test_no_entries() -> None:
    data = av.manifest(av.entry_schema(), [])
    found = read_manifest(data, _note(data), {0: _PLAIN})
    assert len(found) == 0
    assert found.metrics(1).values.tolist() == []


# -- damage ------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_a_truncated_manifest_is_an_error(tmp_path: Path, codec: str) -> None:
    _write(tmp_path / "m.avro", 2, codec, 6)
    data = (tmp_path / "m.avro").read_bytes()
    note = _note(data, spec_id=3)
    whole = read_manifest(data, note, {3: _SPEC}).paths.to_pylist()
    for cut in range(0, len(data), 5):
        try:
            found = read_manifest(data[:cut], note, {3: _SPEC})
        except CorruptFileError:
            continue
        # Cut between blocks, which the number of files in the note gives away.
        assert found.paths.to_pylist() == whole[: len(found)]


def test_flipped_bits_never_hang_nor_crash(tmp_path: Path) -> None:
    _write(tmp_path / "m.avro", 2, "null", 6)
    data = (tmp_path / "m.avro").read_bytes()
    note = _note(data, spec_id=3)
    rng = random.Random(4)
    begun, refused = time.perf_counter(), 0
    for _ in range(800):
        broken = bytearray(data)
        broken[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        try:
            found = read_manifest(bytes(broken), note, {3: _SPEC})
            for field_id in found.metric_fields()[:6]:
                found.metrics(field_id)
        except (CorruptFileError, SchemaError):
            refused += 1
    assert refused > 80
    assert time.perf_counter() - begun < 60


# -- many manifests ----------------------------------------------------------------------------


def test_manifests_are_read_once_and_joined_in_order(tmp_path: Path) -> None:
    made = [_write(tmp_path / f"{n}.avro", 2, "deflate", 30, seed=n) for n in range(4)]
    asked: list[str] = []

    def read(path: str) -> bytes:
        asked.append(path)
        return Path(path).read_bytes()

    notes = [
        ManifestNote(m.manifest_path, m.manifest_length, 3, sequence=7, snapshot=70)
        for m in (made[2], *made[:2], made[3])
    ]
    manifests = Manifests(read, {3: _SPEC}, threads=3)
    found = manifests.entries(notes)
    assert sorted(asked) == sorted(n.path for n in notes)
    theirs = [e for n in (2, 0, 1, 3) for e in made[n].fetch_manifest_entry(_IO)]
    _assert_same(found, theirs)
    again = Manifests(read, {3: _SPEC}).each(notes[:2])
    assert len(asked) == 4
    assert [len(part) for part in again] == [len(made[n].fetch_manifest_entry(_IO)) for n in (2, 0)]
    # What an entry inherits, or a spec that changed its meaning under its id, is no longer the same.
    other = PartitionSpec(
        PartitionField(2, 1000, IdentityTransform(), "ts_day"),
        PartitionField(3, 1001, IdentityTransform(), "n"),
        spec_id=3,
    )
    Manifests(read, {3: other}).entries(notes[:1])
    Manifests(read, {3: _SPEC}).entries([ManifestNote(notes[0].path, notes[0].length, 3, sequence=9)])
    assert len(asked) == 6
    assert len(manifests.entries([])) == 0


def test_a_manifest_that_can_not_be_read_is_named() -> None:
    manifests = Manifests(lambda _: b"Obj\x01nothing", {0: _PLAIN})
    with pytest.raises(CorruptFileError) as caught:
        manifests.entries([_note(), _note()])
    assert caught.value.path == "m.avro"
    assert caught.value.hint


def test_partitions_of_every_type_are_internal() -> None:
    types: list[tuple[Any, Any, Any]] = [
        ("boolean", True, True),
        ("float", 0.5, 0.5),
        ("double", float("nan"), float("nan")),
        ({"type": "long", "logicalType": "timestamp-micros"}, -5, -5),
        ({"type": "fixed", "name": "u16", "size": 16, "logicalType": "uuid"}, bytes(16), bytes(16)),
        ("bytes", b"\xff", b"\xff"),
    ]
    partition = [av.field(f"p{i}", 1000 + i, av.optional(t)) for i, (t, _, _) in enumerate(types)]
    spec = PartitionSpec(
        *(PartitionField(i + 1, 1000 + i, IdentityTransform(), f"p{i}") for i in range(len(types))), spec_id=2
    )
    written = av.entry(partition={f"p{i}": v for i, (_, v, _) in enumerate(types)})
    data = av.manifest(av.entry_schema(*partition), [written, av.entry(partition={})])
    found = read_manifest(data, _note(data, spec_id=2), {2: spec})
    expected = PartitionKey(2, tuple(v for _, _, v in types))
    assert [found.keys[i] for i in found.partitions] == [expected, PartitionKey(2, (None,) * len(types))]
    assert np.array_equal(found.partitions, [1, 0])
