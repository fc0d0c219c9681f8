""""""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyiceberg.manifest import (
    ManifestEntry,
    write_manifest_list,
)
from pyiceberg.manifest import read_manifest_list as their_list
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import BucketTransform, IdentityTransform, VoidTransform

from skipstone.errors import CorruptFileError, SchemaError
from skipstone.iceberg.manifests.entries import Entries
from skipstone.iceberg.manifests.lists import ManifestInfo, read_manifest_list
from skipstone.iceberg.manifests.reading import Manifests, read_manifest, slicer_of
from skipstone.iceberg.partitions.values import PartitionKey
from tests.unit.iceberg import _avro as av
from tests.unit.iceberg.manifests._notes import IO, PLAIN, SPEC, av_schema, manifest_of, note_of


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
    theirs = manifest_of(tmp_path / "m.avro", version, codec, 150)
    data = (tmp_path / "m.avro").read_bytes()
    note = note_of(data, spec_id=3, sequence=theirs.sequence_number)
    entries = read_manifest(data, note, {3: SPEC})
    _assert_same(entries, theirs.fetch_manifest_entry(IO))
    assert list(entries.keys) == sorted(set(entries.keys), key=PartitionKey.sort_key)
    if version == 1:
        assert not entries.sequences.any()


def test_patterns_cut_as_reading_does(tmp_path: Path) -> None:
    """Whatever was learnt before: from one entry, from many, from another manifest."""
    manifest_of(tmp_path / "a.avro", 2, "null", 40, seed=5)
    manifest_of(tmp_path / "b.avro", 2, "null", 40, seed=6)
    note = note_of(spec_id=3)
    read = [(tmp_path / name).read_bytes() for name in ("a.avro", "b.avro")]
    slicer_of(av_schema(read[0])).patience = 1000
    plain = [read_manifest(data, note, {3: SPEC}).to_table() for data in read]
    assert slicer_of(av_schema(read[0])).matched == 0
    for patience in (1, 3, 30):
        slicer_of.cache_clear()
        slicer = slicer_of(av_schema(read[0]))
        slicer.patience = patience
        for data, expected in zip(read, plain, strict=True):
            assert read_manifest(data, note, {3: SPEC}).to_table().equals(expected, check_metadata=True)
        assert 0 < slicer.matched < 80


@pytest.mark.parametrize("version", [1, 2])
def test_a_manifest_list_reads_as_pyiceberg_reads_it(tmp_path: Path, version: int) -> None:
    manifests = [manifest_of(tmp_path / f"{n}.avro", version, "deflate", 9, seed=n) for n in range(3)]
    for made in manifests:
        made.min_sequence_number = 0 if version == 1 else 2
    target = IO.new_output(str(tmp_path / "list.avro"))
    with write_manifest_list(version, target, 70, 69, None if version == 1 else 7, "deflate") as writer:  # type: ignore[arg-type]
        writer.add_manifests(manifests)
    data = (tmp_path / "list.avro").read_bytes()
    notes = read_manifest_list(data, "list.avro")
    theirs = list(their_list(IO.new_input(str(tmp_path / "list.avro"))))
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
    sync = data[-16:]
    header = data.index(sync) + len(sync)
    assert header < len(data)
    # A cut behind the header is the one that the list itself can't tell.
    assert read_manifest_list(data[:header], "list.avro") == []
    steps = range(1, 60)
    before, after = (
        [first + (last - first) * n // 60 for n in steps]
        for first, last in ((0, header), (header, len(data)))
    )
    for cut in {*before, header - 1, header + 1, *after, len(data) - 1}:
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
    assert read_manifest_list(data, "l") == [ManifestInfo("m", 5, 2, added_files=4, first_row_id=9)]
    less = av.record("manifest_file", av.field("manifest_path", None, "string"))
    with pytest.raises(CorruptFileError, match="no length"):
        read_manifest_list(av.container(less, [[av.blob(b"m")]]), "l")


@pytest.mark.parametrize("content", [7, -1])
def test_a_manifest_of_unknown_content_is_refused(content: int) -> None:
    schema = av.record(
        "manifest_file",
        av.field("manifest_path", 500, "string"),
        av.field("manifest_length", 501, "long"),
        av.field("partition_spec_id", 502, "int"),
        av.field("content", 517, "int"),
    )
    row = {"manifest_path": "m", "manifest_length": 5, "partition_spec_id": 0, "content": content}
    with pytest.raises(CorruptFileError, match=f"l.avro: .*content of a manifest is {content}, neither"):
        read_manifest_list(av.container(schema, [[av.encode(schema, row)]]), "l.avro")


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
    found = read_manifest(data, note_of(data, first_row_id=500), {0: PLAIN})
    assert found.paths.to_pylist() == ["a", "b", "c", "d", "e"]
    assert found.sequences.tolist() == [7, 3, 0, 7, 7]
    assert found.snapshots.tolist() == [70, 5, 6, 70, 70]
    assert found.first_row_ids.tolist() == [500, 510, 1000, 520, 520]
    assert found.rows.tolist() == [10, 10, 10, 0, 10]
    unlisted = read_manifest(data, note_of(data, snapshot=-1), {0: PLAIN})
    assert unlisted.first_row_ids.tolist() == [-1, -1, 1000, -1, -1]
    assert unlisted.snapshots.tolist() == [-1, 5, 6, -1, -1]


def test_an_old_file_without_a_sequence_number() -> None:
    schema = av.entry_schema()
    data = av.manifest(schema, [av.entry(status=0)])
    with pytest.raises(CorruptFileError, match="sequence number"):
        read_manifest(data, note_of(data), {0: PLAIN})
    assert read_manifest(data, note_of(data, sequence=0), {0: PLAIN}).sequences.tolist() == [0]
    old = av.manifest(av.entry_schema(version=1), [av.entry(status=0)], version=1)
    assert read_manifest(old, note_of(old), {0: PLAIN}).sequences.tolist() == [0]


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
    found = read_manifest(data, note_of(data, content=1, first_row_id=5), {0: PLAIN})
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
    found = read_manifest(data, note_of(data, spec_id=3), {3: SPEC})
    assert found.keys == (PartitionKey(3, (9, None)), PartitionKey(3, (10, "a")))
    assert found.partitions.tolist() == [0, 1, 0]


def test_unpartitioned_is_decided_by_the_entrys_own_spec() -> None:
    schema = av.entry_schema(av.field("x", 1000, av.optional("int")))
    data = av.manifest(schema, [av.entry(partition={"x": None})])
    void = PartitionSpec(PartitionField(1, 1000, VoidTransform(), "x"), spec_id=4)
    found = read_manifest(data, note_of(data, spec_id=4), {4: void, 3: SPEC})
    assert found.keys == (PartitionKey(4, None),)
    assert found.specs.tolist() == [4]
    half = PartitionSpec(
        PartitionField(1, 1000, VoidTransform(), "x"),
        PartitionField(1, 1005, VoidTransform(), "y"),
        spec_id=4,
    )
    assert read_manifest(data, note_of(data, spec_id=4), {4: half}).keys == (PartitionKey(4, None),)


def test_partitions_without_ids_go_by_name_then_by_place() -> None:
    spec = PartitionSpec(
        PartitionField(1, 1000, BucketTransform(4), "b"),
        PartitionField(3, 1001, IdentityTransform(), "n"),
        spec_id=1,
    )
    by_name = av.entry_schema(av.field("n", None, "string"), av.field("b", None, "int"))
    data = av.manifest(by_name, [av.entry(partition={"n": "x", "b": 2})])
    assert read_manifest(data, note_of(data, spec_id=1), {1: spec}).keys == (PartitionKey(1, (2, "x")),)
    by_place = av.entry_schema(av.field("p", None, "int"), av.field("q", None, "string"))
    data = av.manifest(by_place, [av.entry(partition={"p": 2, "q": "x"})])
    assert read_manifest(data, note_of(data, spec_id=1), {1: spec}).keys == (PartitionKey(1, (2, "x")),)


def test_a_partition_that_lacks_a_field_is_not_null() -> None:
    data = av.manifest(av.entry_schema(av.field("ts_day", 1000, "int")), [av.entry(partition={"ts_day": 1})])
    with pytest.raises(CorruptFileError, match="name") as caught:
        read_manifest(data, note_of(data, spec_id=3), {3: SPEC})
    assert caught.value.path == "m.avro"


def test_an_unknown_spec_is_named() -> None:
    data = av.manifest(av.entry_schema(), [av.entry()])
    with pytest.raises(SchemaError, match="partition spec 8") as caught:
        read_manifest(data, note_of(data, spec_id=8), {0: PLAIN, 3: SPEC})
    assert caught.value.path == "m.avro"
    assert "0, 3" in caught.value.message


# -- many manifests ----------------------------------------------------------------------------


def test_manifests_are_read_once_and_joined_in_order(tmp_path: Path) -> None:
    made = [manifest_of(tmp_path / f"{n}.avro", 2, "deflate", 30, seed=n) for n in range(4)]
    asked: list[str] = []

    def read(path: str) -> bytes:
        asked.append(path)
        return Path(path).read_bytes()

    notes = [
        ManifestInfo(m.manifest_path, m.manifest_length, 3, sequence=7, snapshot=70)
        for m in (made[2], *made[:2], made[3])
    ]
    manifests = Manifests(read, {3: SPEC}, threads=3)
    found = manifests.entries(notes)
    assert sorted(asked) == sorted(n.path for n in notes)
    theirs = [e for n in (2, 0, 1, 3) for e in made[n].fetch_manifest_entry(IO)]
    _assert_same(found, theirs)
    again = Manifests(read, {3: SPEC}).each(notes[:2])
    assert len(asked) == 4
    assert [len(part) for part in again] == [len(made[n].fetch_manifest_entry(IO)) for n in (2, 0)]
    # What an entry inherits, or a spec that changed its meaning under its id, is no longer the same.
    other = PartitionSpec(
        PartitionField(2, 1000, IdentityTransform(), "ts_day"),
        PartitionField(3, 1001, IdentityTransform(), "n"),
        spec_id=3,
    )
    Manifests(read, {3: other}).entries(notes[:1])
    Manifests(read, {3: SPEC}).entries([ManifestInfo(notes[0].path, notes[0].length, 3, sequence=9)])
    assert len(asked) == 6
    assert len(manifests.entries([])) == 0


def test_a_manifest_that_can_not_be_read_is_named() -> None:
    manifests = Manifests(lambda _: b"Obj\x01nothing", {0: PLAIN})
    with pytest.raises(CorruptFileError) as caught:
        manifests.entries([note_of(), note_of()])
    assert caught.value.path == "m.avro"
    assert caught.value.hint


def test_a_manifest_cut_between_blocks_is_named() -> None:
    schema = av.entry_schema()
    data = av.container(schema, [[av.encode(schema, av.entry("a"))], [av.encode(schema, av.entry("b"))]])
    assert len(read_manifest(data, note_of(data), {0: PLAIN})) == 2
    header = data.index(data[-16:]) + 16
    second = data.index(data[-16:], header) + 16
    for cut in (header, second):
        with pytest.raises(CorruptFileError, match=f"truncated to {cut:,} of {len(data):,} bytes") as caught:
            read_manifest(data[:cut], note_of(data), {0: PLAIN})
        assert caught.value.path == "m.avro"
    # A list that counts files is checked by its counts: of a size that it gets wrong nothing depends.
    counted = replace(note_of(data), length=len(data) + 7, added_files=2, existing_files=0)
    assert len(read_manifest(data, counted, {0: PLAIN})) == 2


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
    found = read_manifest(data, note_of(data, spec_id=2), {2: spec})
    expected = PartitionKey(2, tuple(v for _, _, v in types))
    assert [found.keys[i] for i in found.partitions] == [expected, PartitionKey(2, (None,) * len(types))]
    assert np.array_equal(found.partitions, [1, 0])
