import datetime as dt
import os
import pickle
import tempfile
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import obstore
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from obstore.store import MemoryStore

import skipstone as sk
from skipstone.errors import ReadError, SchemaError, UsageError, WriteError
from skipstone.parquet.write import files as files_module
from skipstone.parquet.write.files import Sink, WrittenFile, staged_as, write_files
from skipstone.parquet.write.layout import PageLayout
from skipstone.parquet.write.profile import Profile, profile
from skipstone.report.trace import Cause
from skipstone.store.local import LocalStore
from skipstone.store.store import Store, open_root
from tests.unit.parquet.write._tables import by_id, make_events, page_index, pieces

JOB = "0a1b2c"
KIB = 1 << 10


def sampled(table: pa.Table, layout: PageLayout) -> Profile:
    return profile(table.slice(0, 4_000), layout)


def write(
    table: pa.Table, stage: Store, layout: PageLayout, *, rows: int = 1_777, **options: Any
) -> list[WrittenFile]:
    return write_files(pieces(table, rows), stage, JOB, "7", layout, sampled(table, layout), **options)


def read(stage: LocalStore, table: pa.Table) -> pa.Table:
    partitions = ds.partitioning(flavor="hive", schema=table.schema)
    found = ds.dataset(stage.uri, format="parquet", partitioning=partitions, schema=table.schema).to_table()
    return found.select(table.column_names)


# -- sizes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", ["zstd", "snappy"])
@pytest.mark.parametrize("row_group_rows", [3_000, 1_000_000])
@pytest.mark.parametrize("blooms", [(), ("user", "session")])
def test_files_end_near_the_target(
    events: pa.Table, stage: LocalStore, compression: str, row_group_rows: int, blooms: tuple[str, ...]
) -> None:
    target = 400 * KIB
    layout = PageLayout(
        target_file_bytes=target,
        row_group_rows=row_group_rows,
        page_rows=500,
        compression=compression,
        blooms=blooms,
    )
    written = write(events, stage, layout)
    assert len(written) >= 4
    assert all(0.9 * target <= file.bytes <= 1.1 * target for file in written[:-1])
    assert 0 < written[-1].bytes <= 1.1 * target
    for file in written:
        metadata = pq.read_metadata(stage.path(staged_as(file.key)))
        assert (file.rows, file.row_groups) == (metadata.num_rows, metadata.num_row_groups)
        assert file.bytes == Path(stage.path(staged_as(file.key))).stat().st_size
        groups = [metadata.row_group(at).num_rows for at in range(metadata.num_row_groups)]
        assert max(groups) <= row_group_rows
        if row_group_rows > 3_000:
            assert len(groups) <= 3
    assert [file.key for file in written] == [
        f"part-7-{number:05d}-{JOB}.parquet" for number in range(len(written))
    ]
    assert sum(file.rows for file in written) == events.num_rows
    parts = [pq.read_table(stage.path(staged_as(file.key))) for file in written]
    assert pa.concat_tables(parts).equals(events)


def test_a_wrong_profile_is_put_right_by_what_is_written(events: pa.Table, stage: LocalStore) -> None:
    target = 300 * KIB
    layout = PageLayout(target_file_bytes=target, page_rows=500)
    right = sampled(events, layout)
    for factor in (0.6, 1.0, 5.0):
        wrong = Profile(right.bytes_per_row * factor, right.dictionary, (), right.leaves)
        written = write_files(pieces(events), stage.child(str(factor)), JOB, "7", layout, wrong)
        assert all(0.9 * target <= file.bytes <= 1.1 * target for file in written[:-1])


@pytest.mark.parametrize(
    ("share", "files"), [(0.4, 1), (1.0, 1), (1.4, 1), (1.6, 2), (2.4, 2), (2.6, 3), (3.2, 3), (4.7, 5)]
)
def test_no_slivers_where_the_size_is_expected(
    events: pa.Table, stage: LocalStore, share: float, files: int
) -> None:
    found = sampled(events, PageLayout(page_rows=500))
    expected = found.bytes_per_row * events.num_rows
    target = int(expected / share)
    layout = PageLayout(target_file_bytes=target, page_rows=500)
    written = write_files(pieces(events), stage, JOB, "7", layout, found, expected_bytes=expected)
    assert len(written) == files == max(1, round(share))
    assert all(0.9 * target <= file.bytes <= 1.1 * target for file in written[:-1])
    assert min(share, 0.5) * 0.9 * target <= written[-1].bytes <= 1.55 * target


def test_more_than_was_expected_makes_more_files(events: pa.Table, stage: LocalStore) -> None:
    target = 300 * KIB
    layout = PageLayout(target_file_bytes=target, page_rows=500)
    written = write(events, stage, layout, expected_bytes=1.2 * target)
    assert 1.4 * target <= written[0].bytes <= 1.6 * target
    assert len(written) >= 4
    assert all(0.9 * target <= file.bytes <= 1.1 * target for file in written[1:-1])


def test_row_groups_and_pages(events: pa.Table, stage: LocalStore) -> None:
    layout = PageLayout(row_group_rows=25_000, page_rows=2_000, blooms=("user",))
    (file,) = write(events, stage, layout, metadata={"made by": "us"})
    path = stage.path(staged_as(file.key))
    metadata = pq.read_metadata(path)
    assert [metadata.row_group(at).num_rows for at in range(3)] == [24_000, 24_000, 12_000]
    assert metadata.metadata == {b"made by": b"us"}
    for group, pages in enumerate((12, 12, 6)):
        for leaf in range(events.num_columns):
            assert page_index(path, group, leaf).row_counts.tolist() == [2_000] * pages
    # As our own reader has it: an id's page, and by bloom filters none at all of an absent user.
    assert sk.prune(path, "id = 123450").rows.ranges() == [(12_000, 14_000)]
    user = int(events["user"][777].as_py())
    assert 777 in sk.prune(path, f"user = {user}").rows
    absent = sk.prune(path, f"user = {user + 1}")
    assert absent.rows.is_empty
    assert [drop.cause for drop in absent.trace.level("bloom filters").drops] == [Cause.BLOOM]
    assert len(sk.prune(path, f"user = {user + 1}", bloom_filter=False).row_groups) == 3


def test_wide_rows_end_a_row_group_by_bytes(stage: LocalStore) -> None:
    table = pa.table({"id": range(2_000), "text": ["x" * 1_000] * 2_000})
    layout = PageLayout(row_group_bytes=300_000)
    (file,) = write(table, stage, layout, rows=2_000)
    metadata = pq.read_metadata(stage.path(staged_as(file.key)))
    groups = [metadata.row_group(at).num_rows for at in range(metadata.num_row_groups)]
    assert groups[0] == pytest.approx(300, abs=10)
    assert file.row_groups == 7


def test_no_more_is_held_than_a_row_group(stage: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_events(20_000)
    held: list[int] = []
    add = files_module._Work._relieve

    def watch(work: Any) -> None:
        add(work)
        held.append(sum(output.rows for output in work._outputs.values()))

    monkeypatch.setattr(files_module._Work, "_relieve", watch)
    write(table, stage, PageLayout(row_group_rows=2_500, partition_by=("level",)))
    assert 2_000 < max(held) <= 2_500


# -- partitions --------------------------------------------------------------------------------


def test_partitions_that_come_one_after_the_other(events: pa.Table, stage: LocalStore) -> None:
    events = events.slice(0, 10_000)
    layout = PageLayout(partition_by=("kind", "level"), page_rows=500)
    ordered = files_module.sort_batch(events, layout)
    written = write(ordered, stage, layout)
    assert len(written) == 5 * 40
    assert [file.partition for file in written[:3]] == [
        "kind=cart/level=0",
        "kind=cart/level=1",
        "kind=cart/level=2",
    ]
    assert all(file.key.startswith(f"{file.partition}/part-7-") for file in written)
    names = pq.read_schema(stage.path(staged_as(written[0].key))).names
    assert names == [name for name in events.column_names if name not in ("kind", "level")]
    assert read(stage, events).sort_by("id").equals(events)


@pytest.mark.parametrize("most_open", [64, 3])
def test_partitions_in_any_order(
    events: pa.Table, stage: LocalStore, monkeypatch: pytest.MonkeyPatch, most_open: int
) -> None:
    monkeypatch.setattr(files_module, "_MOST_OPEN", most_open)
    opened: list[int] = []
    start, end = Sink.__init__, Sink.close
    monkeypatch.setattr(Sink, "__init__", lambda *args: (opened.append(1), start(*args))[1])
    monkeypatch.setattr(Sink, "close", lambda sink: (opened.append(-1), end(sink))[1])
    layout = PageLayout(partition_by=("level",), row_group_rows=10_000, page_rows=500)
    written = write(events, stage, layout)
    assert max(np.cumsum(opened)) == min(most_open, 40)
    assert len(written) == 40 if most_open == 64 else 40 < len(written) < 200
    assert len({file.key for file in written}) == len(written)
    assert read(stage, events).sort_by("id").equals(events)
    for file in written:
        # Within a partition rows keep their order.
        assert (np.diff(np.asarray(pq.read_table(stage.path(staged_as(file.key)))["id"])) > 0).all()


def test_runs_that_turn_out_not_to_be_all(stage: LocalStore) -> None:
    table = pa.table({"p": ["a"] * 10 + ["b"] * 10 + ["a"] * 10, "id": range(30)})
    layout = PageLayout(partition_by=("p",))
    written = write(table, stage, layout, rows=10)
    assert sorted((file.partition, file.rows) for file in written) == [("p=a", 10), ("p=a", 10), ("p=b", 10)]
    assert by_id(read(stage, table)) == by_id(table)


def test_small_partitions_say_little_about_large_ones(events: pa.Table, stage: LocalStore) -> None:
    sizes = [30_000, 1, 2, 29_997]
    parts = pa.array(np.repeat(["a", "b", "c", "d"], sizes))
    table = events.append_column("p", parts)
    written = write(table, stage, PageLayout(partition_by=("p",), target_file_bytes=1 << 20))
    assert [(file.partition, file.rows) for file in written] == list(
        zip(["p=a", "p=b", "p=c", "p=d"], sizes, strict=True)
    )
    assert [file.row_groups for file in written] == [2, 1, 1, 1]


def test_many_tiny_partitions(stage: LocalStore) -> None:
    rng = np.random.default_rng(0)
    table = pa.table({"p": rng.permutation(np.repeat(np.arange(100), 6)), "id": np.arange(600)})
    # Six hundred rows of sixteen bytes would fit, if arrays of one row took no more than their values.
    written = write(table, stage, PageLayout(partition_by=("p",), row_group_bytes=60_000), rows=100)
    assert 100 <= len(written) < 300
    assert read(stage, table).sort_by("id").equals(table)


def test_partitions_of_every_type(stage: LocalStore) -> None:
    count = 400
    table = pa.table(
        {
            "id": range(count),
            "text": pa.array([("x/y=%", "01", None, "é")[row % 4] for row in range(count)]),
            "day": pa.array([(dt.date(2026, 1, 1), None)[row % 2] for row in range(count)]),
            "kind": pa.array([(-1, 2**40, None)[row % 3] for row in range(count)]),
            "code": pa.array([("a", "b")[row % 2] for row in range(count)]).dictionary_encode(),
        }
    )
    layout = PageLayout(partition_by=("text", "day", "kind", "code"))
    written = write(table, stage, layout, rows=99)
    folders = {"text=x%2Fy%3D%25", "text=01", "text=__HIVE_DEFAULT_PARTITION__", "text=é"}
    assert {file.partition.split("/")[0] for file in written} == folders
    lake = sk.open(stage.uri)
    assert lake.scan("kind is null and text = 'é'").count() == sum(
        row % 3 == 2 and row % 4 == 3 for row in range(count)
    )
    rows = lake.scan(columns=table.column_names).to_arrow().to_pylist()
    assert sorted(rows, key=lambda row: row["id"]) == table.to_pylist()
    assert len({file.partition for file in written}) == len(written)


@pytest.mark.parametrize("value", ["", "__HIVE_DEFAULT_PARTITION__"])
def test_strings_that_would_be_null(stage: LocalStore, value: str) -> None:
    table = pa.table({"p": ["a", value], "id": [1, 2]})
    with pytest.raises(SchemaError, match=rf"column p: partition value '{value}' would be read back as NULL"):
        write(table, stage, PageLayout(partition_by=("p",)))


def test_a_date_that_no_folder_can_name(stage: LocalStore) -> None:
    table = pa.table({"d": pa.array([4_000_000], pa.int32()).cast(pa.date32()), "id": [1]})
    with pytest.raises(UsageError, match=r"column d: value can't be a partition value.*years 1 to 9999"):
        write(table, stage, PageLayout(partition_by=("d",)))


# -- rows --------------------------------------------------------------------------------------


def test_every_reader_reads_the_same_rows(events: pa.Table, stage: LocalStore) -> None:
    layout = PageLayout(target_file_bytes=500 * KIB, partition_by=("kind",), cluster_by=("user",))
    ordered = files_module.sort_batch(events, layout)
    write(ordered, stage, layout)
    glob = f"{stage.uri}/**/*.parquet.staged"
    columns = ", ".join(f'"{name}"' for name in events.column_names)
    expected = events.sort_by("id")
    source = f"read_parquet('{glob}', hive_partitioning = true)"
    found = duckdb.sql(f"SELECT {columns} FROM {source} ORDER BY id").to_arrow_table()
    assert found.cast(expected.schema).equals(expected)
    frame = pl.read_parquet(glob, hive_partitioning=True).sort("id").select(events.column_names)
    assert frame.to_arrow().cast(expected.schema).equals(expected)
    assert read(stage, events).sort_by("id").equals(events)
    lake = sk.open(stage.uri).scan(columns=events.column_names).to_arrow().sort_by("id")
    assert lake.cast(expected.schema).equals(expected)


def nested(rows: int) -> pa.Table:
    rng = np.random.default_rng(0)
    return pa.table(
        {
            "id": range(rows),
            "s": pa.array([{"x": n, "l": [n] * (n % 3)} if n % 5 else None for n in range(rows)]),
            "m": pa.array(
                [[("k", n), ("l", None)][: n % 3] if n % 7 else None for n in range(rows)],
                pa.map_(pa.string(), pa.int32()),
            ),
            "l": pa.array([[{"a": str(n)}] * (n % 4) for n in range(rows)]),
            "big": pa.array(["x"] * rows, pa.large_string()),
            "zoned": pa.array(np.arange(rows), pa.timestamp("us", "Europe/Berlin")),
            "naive": pa.array(np.arange(rows), pa.timestamp("us")),
            "price": pa.array([Decimal("1.50")] * rows, pa.decimal128(10, 2)),
            "wide": pa.array([Decimal("1.50")] * rows, pa.decimal128(38, 10)),
            "coded": pa.array(["a", "b"] * (rows // 2)).dictionary_encode(),
            "view": pa.array(["a"] * rows, pa.string_view()),
            "raw": pa.array([b"\0\xff"] * rows),
            "f": pa.array(rng.random(rows), pa.float32()),
            "nothing": pa.nulls(rows, pa.int8()),
            "sd": pa.StructArray.from_arrays([pa.array(["q"] * rows).dictionary_encode()], ["d"]),
        }
    )


def test_types_as_they_come(stage: LocalStore) -> None:
    table = nested(3_000)
    layout = PageLayout(row_group_rows=1_000, page_rows=300, blooms=("s.x", "coded"), cluster_by=("s.x",))
    (file,) = write(table, stage, layout, rows=170)
    path = stage.path(staged_as(file.key))
    found = pq.read_table(path)
    assert found.to_pylist() == table.to_pylist()
    kinds = {field.name: field.type for field in found.schema}
    assert kinds["zoned"] == pa.timestamp("us", "UTC")
    assert kinds["naive"] == pa.timestamp("us")
    assert (kinds["price"], kinds["wide"]) == (pa.decimal128(10, 2), pa.decimal128(38, 10))
    assert kinds["big"] == kinds["coded"] == kinds["view"] == pa.string()
    leaves = len(pq.read_metadata(path).schema)
    assert leaves == 17
    for leaf in range(leaves):
        assert (
            page_index(path, 0, leaf).row_counts.tolist()
            == [300, 300, 300, 100][: len(page_index(path, 0, leaf))]
        )
    assert sk.open(path).scan("s.x = 1234").to_arrow().to_pylist() == table.slice(1_234, 1).to_pylist()


def test_batches_of_another_order_and_layout(stage: LocalStore) -> None:
    table = pa.table({"id": range(10), "t": ["a"] * 10, "p": ["x", "y"] * 5})
    other = table.select(["p", "t", "id"]).to_batches()[0]
    views = pa.table(
        {"t": table["t"].cast(pa.large_string()), "p": table["p"], "id": table["id"]}
    ).to_batches()[0]
    layout = PageLayout(partition_by=("p",))
    batches = [table.to_batches()[0].slice(0, 0), table.to_batches()[0], other, views, other.slice(0, 0)]
    written = write_files(iter(batches), stage, JOB, "7", layout, profile(table, layout))
    assert sum(file.rows for file in written) == 30
    assert by_id(read(stage, table)) == by_id(pa.concat_tables([table] * 3))


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (pa.table({"id": [1], "x": [1], "p": ["x"]}), "batch has the columns id, x"),
        (pa.table({"id": [1], "p": ["x"]}), "batch has the columns id"),
        (pa.table({"id": [1], "t": ["a"]}), "column p: batch lacks the partition column"),
        (
            pa.table({"id": ["no"], "t": ["a"], "p": ["x"]}),
            "column id: batch has type string instead of int64",
        ),
    ],
)
def test_batches_that_do_not_fit(stage: LocalStore, other: pa.Table, message: str) -> None:
    table = pa.table({"id": range(10), "t": ["a"] * 10, "p": ["x", "y"] * 5})
    layout = PageLayout(partition_by=("p",), row_group_rows=3)
    batches = [*table.to_batches(), *other.to_batches()]
    with pytest.raises(SchemaError, match=message):
        write_files(iter(batches), stage, JOB, "7", layout, profile(table, layout))
    assert stage.list() == []


@pytest.mark.parametrize("partition_by", [(), ("kind",)])
def test_nothing_makes_no_file(stage: LocalStore, partition_by: tuple[str, ...]) -> None:
    layout = PageLayout(partition_by=partition_by)
    empty = make_events(0)
    assert write(empty, stage, layout) == []
    batches = [make_events(1).slice(0, 0).to_batches(), pa.RecordBatch.from_pylist([], empty.schema)]
    assert write_files(iter(batches[1:]), stage, JOB, "7", layout, profile(empty, layout)) == []
    assert not Path(stage.uri).exists()


def test_one_row(stage: LocalStore) -> None:
    (file,) = write(make_events(1), stage, PageLayout(target_file_bytes=1, row_group_rows=1, page_rows=1))
    assert (file.rows, file.row_groups, file.partition) == (1, 1, "")
    assert pickle.loads(pickle.dumps(file)) == file


@pytest.mark.parametrize(
    ("job", "task"), [("ABC", "1"), ("", "1"), ("0a/..", "1"), ("0a", ""), ("0a", "../x")]
)
def test_ids_that_are_none(stage: LocalStore, job: str, task: str) -> None:
    with pytest.raises(UsageError, match="id"):
        write_files(iter([]), stage, job, task, PageLayout(), Profile(1.0, (), (), 0))


# -- places and failures -----------------------------------------------------------------------


def test_an_object_store(events: pa.Table, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    bucket = MemoryStore()
    store = open_root("lake/stage", store=bucket)
    layout = PageLayout(target_file_bytes=400 * KIB, partition_by=("kind",))
    written = write(events, store, layout)
    assert [(file.key, file.size) for file in store.list()] == sorted(
        (staged_as(f.key), f.bytes) for f in written
    )
    names = [name for name in events.column_names if name != "kind"]
    parts = [
        pq.read_table(
            pa.BufferReader(bytes(obstore.get(bucket, f"lake/stage/{staged_as(file.key)}").bytes()))
        )
        for file in written
    ]
    assert pa.concat_tables(parts).sort_by("id").equals(events.select(names))
    assert list(tmp_path.iterdir()) == []


def broken(table: pa.Table, after: int) -> Iterator[pa.RecordBatch]:
    for number, batch in enumerate(pieces(table)):
        if number == after:
            raise ReadError("the source broke")
        yield batch


@pytest.mark.parametrize("kind", ["local", "memory"])
@pytest.mark.parametrize("after", [0, 1, 20])
def test_a_source_that_breaks_leaves_nothing(
    events: pa.Table,
    stage: LocalStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    after: int,
) -> None:
    hidden = tmp_path / "tmp"
    hidden.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(hidden))
    store: Store = stage if kind == "local" else open_root("stage", store=MemoryStore())
    store.write("other", [b"1"])
    layout = PageLayout(target_file_bytes=100 * KIB, row_group_rows=1_000, partition_by=("kind",))
    with pytest.raises(ReadError, match="the source broke"):
        write_files(broken(events, after), store, JOB, "7", layout, sampled(events, layout))
    assert [file.key for file in store.list()] == ["other"]
    assert list(hidden.iterdir()) == []


# The stage's own name comes first; then of each file its bytes and its name.
@pytest.mark.parametrize(("failing", "number"), [(0, 0), (1, 0), (2, 0), (3, 1), (7, 3)])
def test_a_disk_that_fails_leaves_nothing(
    events: pa.Table, stage: LocalStore, monkeypatch: pytest.MonkeyPatch, failing: int, number: int
) -> None:
    calls = 0
    really = os.fsync

    def fail(handle: int) -> None:
        nonlocal calls
        calls += 1
        if calls > failing:
            raise OSError(28, "No space left on device")
        really(handle)

    layout = PageLayout(target_file_bytes=200 * KIB, page_rows=500)
    found = sampled(events, layout)
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(WriteError) as caught:
        write_files(pieces(events), stage, JOB, "7", layout, found)
    assert caught.value.path == stage.path(f"part-7-{number:05d}-{JOB}.parquet.staged")
    assert caught.value.message == "no space left on device"
    assert stage.list() == []


def test_a_store_that_fails_leaves_nothing(
    events: pa.Table, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    store = open_root("stage", store=MemoryStore())
    layout = PageLayout(target_file_bytes=200 * KIB, page_rows=500)
    really = obstore.put
    puts = 0

    def put(*args: Any, **options: Any) -> Any:
        nonlocal puts
        puts += 1
        if puts > 2:
            raise obstore.exceptions.PermissionDeniedError("403")
        return really(*args, **options)

    monkeypatch.setattr(obstore, "put", put)
    with pytest.raises(WriteError, match=f"part-7-00002-{JOB}.parquet.staged: permission denied"):
        write(events, store, layout)
    assert store.list() == []
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_is_none(events: pa.Table, tmp_path: Path) -> None:
    (tmp_path / "stage").write_bytes(b"a file")
    store = LocalStore(str(tmp_path / "stage"))
    with pytest.raises(WriteError, match=f"{tmp_path}/stage/part-7-00000-{JOB}.parquet.staged: "):
        write(events.slice(0, 10), store, PageLayout())


def test_nulls_where_there_may_be_none(stage: LocalStore) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    batch = pa.RecordBatch.from_arrays([pa.array([1, None])], schema=schema)
    with pytest.raises(WriteError, match=rf"part-7-00000-{JOB}.parquet.staged: .*id"):
        write_files(iter([batch]), stage, JOB, "7", PageLayout(), Profile(8.0, (), (), 1))
    assert stage.list() == []
    fine = pa.RecordBatch.from_arrays([pa.array([1, 2])], schema=schema)
    (file,) = write_files(iter([fine]), stage, JOB, "7", PageLayout(), Profile(8.0, (), (), 1))
    assert not pq.read_schema(stage.path(staged_as(file.key))).field("id").nullable
