from __future__ import annotations

import os
import pickle
from pathlib import Path

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.store import MemoryStore

import skipstone as sk
from skipstone.errors import NotParquetError, ParseError, ReadError, SchemaError, UsageError
from skipstone.lake import directory


def write(path, **columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def test_files_below_a_directory_by_path_without_hidden_and_empty_ones(tmp_path):
    for name in ("b.parquet", "a/z.parquet", "a/y.parquet", "_tmp/x.parquet", ".hid/x.parquet", "a/_SUCCESS"):
        write(tmp_path / name, id=[1])
    (tmp_path / "empty.parquet").touch()
    lake = sk.open(tmp_path)
    assert [os.path.relpath(f.path, tmp_path) for f in lake.files] == [
        "a/y.parquet",
        "a/z.parquet",
        "b.parquet",
    ]
    assert [f.size for f in lake.files] == [Path(f.path).stat().st_size for f in lake.files]
    assert lake.scan().count() == 3


def test_opening_reads_no_file(tmp_path):
    for n in range(5):
        write(tmp_path / f"{n}.parquet", id=[n])
    lake = sk.open(tmp_path)
    assert lake.io.requests == 0
    lake.scan("id = 3").to_arrow()
    first = lake.io.requests
    lake.scan("id = 4").to_arrow()
    assert 5 < first < lake.io.requests < first + 5


def test_a_partition_is_pruned_before_its_footers_are_opened(tmp_path):
    schema = pa.schema({"id": pa.int64(), "day": pa.int32()})
    for day in range(4):
        for n in range(3):
            write(tmp_path / f"day={day}" / f"{n}.parquet", id=[n])
    for n in range(3):
        (tmp_path / "day=1" / f"{n}.parquet").write_bytes(b"no parquet at all")
    lake = sk.open(tmp_path, schema=schema)
    plan = lake.scan("day = 2 and id = 1").plan()
    assert [task.path for task in plan.tasks] == [str(tmp_path / "day=2" / "1.parquet")]
    level = plan.trace.level("partitions")
    assert (level.units, level.kept) == (4, 1)
    assert plan.trace.level("files").units == 3
    assert plan.trace.level("files").requests == 3
    with pytest.raises(NotParquetError, match="day=1"):
        lake.scan("id = 1").plan()


def test_partition_columns_are_typed_and_come_last(tmp_path):
    write(tmp_path / "year=2026" / "kind=a%2Fb" / "f.parquet", id=[1, 2])
    write(tmp_path / "year=2025" / "kind=__HIVE_DEFAULT_PARTITION__" / "f.parquet", id=[3])
    lake = sk.open(tmp_path)
    assert lake.schema.names == ["id", "year", "kind"]
    assert lake.files[0].partition == {"year": 2025, "kind": None}
    assert lake.scan().to_arrow().to_pylist() == [
        {"id": 3, "year": 2025, "kind": None},
        {"id": 1, "year": 2026, "kind": "a/b"},
        {"id": 2, "year": 2026, "kind": "a/b"},
    ]
    assert lake.scan("kind is null").to_arrow()["id"].to_pylist() == [3]
    assert lake.scan("kind = 'a/b' and id > 1", columns=["id"]).to_arrow().to_pylist() == [{"id": 2}]
    assert lake.scan("kind <> 'x'", columns=["year"]).to_arrow().to_pylist() == [{"year": 2026}] * 2


def test_the_directory_wins_over_a_column_of_the_same_name(tmp_path):
    write(tmp_path / "day=1" / "f.parquet", day=[7, 8], id=[1, 2])
    write(tmp_path / "day=2" / "f.parquet", day=[1, 1], id=[3, 4])
    lake = sk.open(tmp_path)
    assert lake.schema.names == ["day", "id"]
    assert lake.scan("day = 1").to_arrow().to_pydict() == {"day": [1, 1], "id": [1, 2]}
    assert lake.scan("day = 7").count() == 0


def test_evolved_schemas(tmp_path):
    write(tmp_path / "1.parquet", id=pa.array([1], pa.int32()), name=["a"])
    write(tmp_path / "2.parquet", extra=[True], id=pa.array([2**40], pa.int64()))
    lake = sk.open(tmp_path)
    assert lake.schema == pa.schema({"id": pa.int64(), "name": pa.string(), "extra": pa.bool_()})
    assert lake.scan().to_arrow().to_pylist() == [
        {"id": 1, "name": "a", "extra": None},
        {"id": 2**40, "name": None, "extra": True},
    ]
    assert lake.scan("extra is null").to_arrow()["id"].to_pylist() == [1]
    assert lake.scan("id > 5 and name is null").count() == 1


def test_incompatible_files_are_both_named(tmp_path):
    write(tmp_path / "a.parquet", id=[1])
    write(tmp_path / "b.parquet", id=["x"])
    with pytest.raises(SchemaError) as caught:
        sk.open(tmp_path).scan().to_arrow()
    assert "a.parquet" in str(caught.value)
    assert "b.parquet" in str(caught.value)
    assert caught.value.column == "id"


def test_a_file_outside_the_sample_is_held_to_the_schema(tmp_path, monkeypatch):
    monkeypatch.setattr(directory, "SCHEMA_SAMPLE", 2)
    for n in range(5):
        write(tmp_path / f"{n}.parquet", id=[n])
    write(tmp_path / "2.parquet", id=["text"], more=[1])
    lake = sk.open(tmp_path)
    assert lake.schema == pa.schema({"id": pa.int64()})
    with pytest.raises(SchemaError, match=r"2\.parquet"):
        lake.scan("id = 3").to_arrow()


def test_int96_files_among_files_with_zones_are_instants(tmp_path):
    stamps = pa.array([1_000_000_000], pa.timestamp("ns", "UTC"))
    pq.write_table(pa.table({"ts": stamps}), tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    pq.write_table(pa.table({"ts": stamps}), tmp_path / "b.parquet")
    lake = sk.open(tmp_path)
    assert lake.schema.field("ts").type == pa.timestamp("ns", "UTC")
    assert lake.scan("ts = '1970-01-01T00:00:01Z'").to_arrow()["ts"].to_pylist() == stamps.to_pylist() * 2


def test_one_file_and_globs(tmp_path):
    for n in range(3):
        write(tmp_path / "x" / f"{n}.parquet", id=[n])
    assert sk.open(tmp_path / "x" / "1.parquet").scan().to_arrow()["id"].to_pylist() == [1]
    assert sk.open(f"{tmp_path}/x/[02].parquet").scan().to_arrow()["id"].to_pylist() == [0, 2]
    (tmp_path / "x" / "none.parquet").touch()
    with pytest.raises(NotParquetError, match="empty"):
        sk.open(tmp_path / "x" / "none.parquet").scan().count()


def test_nothing_there(tmp_path):
    with pytest.raises(ReadError, match="no such file or directory"):
        sk.open(tmp_path / "nowhere")
    with pytest.raises(ReadError, match="directory contains no files"):
        sk.open(tmp_path)
    with pytest.raises(ReadError, match=r"matches x\*\.parquet"):
        sk.open(tmp_path / "x*.parquet")
    schema = pa.schema({"id": pa.int64()})
    assert sk.open(tmp_path, schema=schema).scan("id = 1").to_arrow() == schema.empty_table()
    with pytest.raises(UsageError, match="schema"):
        sk.open(tmp_path, schema=["id"])


def test_a_lake_is_pinned_until_it_is_refreshed(tmp_path):
    write(tmp_path / "1.parquet", id=[1])
    lake = sk.open(tmp_path)
    version = lake.version
    write(tmp_path / "2.parquet", id=[2])
    before = lake.scan()
    assert before.count() == 1
    assert sk.open(tmp_path).version != version
    lake.refresh()
    assert lake.version != version
    assert (before.count(), lake.scan().count()) == (1, 2)
    (tmp_path / "1.parquet").unlink()
    with pytest.raises(ReadError, match=r"1\.parquet"):
        lake.scan(columns=["id"]).to_arrow()


def test_a_store_object(tmp_path):
    store = MemoryStore()
    write(tmp_path / "f.parquet", id=[1, 2])
    for day in (1, 2):
        obstore.put(store, f"lake/day={day}/f.parquet", (tmp_path / "f.parquet").read_bytes())
    lake = sk.open("lake", store=store)
    assert lake.scan("day = 2 and id = 1").to_arrow().to_pylist() == [{"id": 1, "day": 2}]


def test_plans_of_a_lake_travel(tmp_path):
    write(tmp_path / "k=1" / "f.parquet", id=[1, 2, 3])
    plan = sk.open(tmp_path).scan("id >= 2").plan()
    there = pickle.loads(pickle.dumps(plan))
    assert there == plan
    assert hash(there) == hash(plan)
    assert sk.execute(there).to_arrow() == sk.execute(plan).to_arrow()
    assert sk.execute(there, columns=["k"]).to_arrow().to_pydict() == {"k": [1, 1]}


def test_a_lake_and_its_scans_travel_with_their_listing(tmp_path):
    write(tmp_path / "1.parquet", id=[1, 2])
    lake = sk.open(tmp_path)
    scan = lake.scan("id > 1", columns=["id"], order_by="id", limit=5)
    there, asked = pickle.loads(pickle.dumps((lake, scan)))
    write(tmp_path / "2.parquet", id=[3])
    assert there.version == lake.version
    assert there.scan().count() == 2
    assert asked.to_arrow() == scan.to_arrow()
    there.refresh()
    assert there.scan().count() == 3


@pytest.mark.parametrize(
    "asked",
    [
        {"columns": 5},
        {"columns": sk.col("id")},
        {"order_by": 5},
        {"order_by": sk.col("id")},
        {"options": 5},
        {"snapshot": 3},
        {"limit": -3},
    ],
)
def test_what_can_not_be_asked(tmp_path, asked):
    write(tmp_path / "1.parquet", id=[1])
    with pytest.raises(UsageError):
        sk.open(tmp_path).scan(**asked).to_arrow()


def test_odd_questions(tmp_path):
    write(tmp_path / "1.parquet", id=[1], s=["x"])
    lake = sk.open(tmp_path)
    assert lake.scan(limit=10**30).count() == 1
    assert lake.scan(columns=(name for name in ("id",))).to_arrow().to_pydict() == {"id": [1]}
    with pytest.raises(ParseError):
        lake.scan("s = '\ud800'").to_arrow()
    for wrong in (None, lake.scan()):
        with pytest.raises(UsageError, match="pass the result of"):
            sk.execute(wrong)
    with pytest.raises(UsageError, match="columns"):
        sk.execute(lake.scan().plan(), columns=5)
    with pytest.raises(UsageError, match="pass the path of a file"):
        lake.scan().plan().why(5)
    with pytest.raises(UsageError, match="empty"):
        sk.open("")
    with pytest.raises(ReadError, match="host"):
        sk.open("file://host/x")


def test_a_name_that_occurs_twice(tmp_path):
    pq.write_table(pa.table([[1], [2], [3]], names=["a", "a", "b"]), tmp_path / "f.parquet")
    lake = sk.open(tmp_path)
    with pytest.raises(SchemaError, match="more than one column"):
        lake.scan().to_arrow()
    assert lake.scan("b = 3", columns=["b"]).to_arrow().to_pydict() == {"b": [3]}


def test_a_file_without_row_groups(tmp_path):
    pq.ParquetWriter(tmp_path / "f.parquet", pa.schema({"id": pa.int64()})).close()
    lake = sk.open(tmp_path)
    assert lake.statistics().rows == 0
    assert lake.scan("id = 1").to_arrow().num_rows == 0
    assert lake.scan().count() == 0
