"""What callers say, of a layout and of a target; no Spark is started."""

from __future__ import annotations

import datetime as dt
import io
import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import StructType

import skipstone as sk
from skipstone.engine.jobs import LocalEngine
from skipstone.errors import SchemaError, UsageError
from skipstone.lake.append import Append, staged_as
from skipstone.lake.records import open_lake_root
from skipstone.parquet.write.files import WrittenFile
from skipstone.parquet.write.layout import PageLayout
from skipstone.parquet.write.partition import NULL_FOLDER, partition_folder
from skipstone.scan.lake import Lake
from skipstone.spark.sink import SinkWriter, WrittenFiles, write_options
from skipstone.store.store import open_root
from skipstone.write.frame import as_table, to_frame
from skipstone.write.job import make_layout
from skipstone.write.lakes import (
    check_fits,
    check_names,
    check_partitions,
    check_target,
    cluster_metadata,
    fit_layout,
    index_new_files,
    lake_store,
    open_existing,
    refuse_overwrite,
    refuse_stream,
)


def layout(**words: Any) -> PageLayout:
    given = {
        "partition_by": (),
        "cluster_by": (),
        "cluster": "sort",
        "target_file_bytes": None,
        "blooms": None,
    }
    others = {name: words.pop(name) for name in [*words] if name not in given}
    return make_layout(**{**given, **words}, others=others)


def test_a_layout_in_words() -> None:
    found = layout(partition_by=["p"], cluster_by=["a", "b"], cluster="hilbert", blooms=["c"], page_rows=7)
    assert found == PageLayout(
        partition_by=("p",), cluster_by=("a", "b"), cluster="hilbert", blooms=("c",), page_rows=7
    )
    assert layout() == PageLayout()
    assert layout(target_file_bytes=5).target_file_bytes == 5


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (
            {"target_file_byte": 3},
            r"unknown layout option: target_file_byte \(did you mean target_file_bytes",
        ),
        ({"partition_by": "day"}, "partition_by must be a list of column names, got the string 'day'"),
        ({"cluster_by": "day"}, "cluster_by must be a list of column names, got the string 'day'"),
        ({"blooms": "day"}, "blooms must be a list of column names, got the string 'day'"),
        ({"target_file_bytes": 0}, "target_file_bytes must be a positive integer, got 0"),
        ({"cluster": "peano", "cluster_by": ["a"]}, "unknown clustering 'peano'"),
        ({"cluster": "zorder"}, "zorder does not support 0 columns"),
        (
            {"mode": "overwrite"},
            "directories can't be overwritten .*Iceberg table, which supports overwrites",
        ),
    ],
)
def test_words_that_make_no_sense(words: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        layout(**words)


def test_options_of_the_data_source(tmp_path: Path) -> None:
    store, found, index = write_options(
        {
            "path": str(tmp_path),
            "partition_by": "p",
            "cluster_by": " a , b ",
            "cluster": "zorder",
            "blooms": "c",
            "dictionary": "d,e",
            "target_file_bytes": "2MiB",
            "row_group_bytes": "1 MB",
            "page_rows": "10",
            "bloom_fpp": "0.05",
            "compression": "snappy",
            "index": "False",
            "storage.aws_region": "x",
        }
    )
    assert (store.uri, index) == (str(tmp_path), False)
    assert found == PageLayout(
        partition_by=("p",),
        cluster_by=("a", "b"),
        cluster="zorder",
        blooms=("c",),
        dictionary=("d", "e"),
        target_file_bytes=2 << 20,
        row_group_bytes=1_000_000,
        page_rows=10,
        bloom_fpp=0.05,
        compression="snappy",
    )
    assert write_options({"path": str(tmp_path)})[1:] == (PageLayout(), True)
    tiny = {"path": str(tmp_path), "target_file_bytes": "64"}
    with pytest.raises(UsageError, match="target_file_bytes is 64 bytes, which is less than 1 MiB"):
        write_options(dict(tiny))
    assert write_options({**tiny, "force": "true"})[1].target_file_bytes == 64


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "path is missing"),
        ({"path": "x", "cluster_bye": "a"}, "unknown layout option: cluster_bye"),
        ({"path": "x", "page_rows": "many"}, "page_rows must be an integer, got 'many'"),
        ({"path": "x", "bloom_fpp": "low"}, "bloom_fpp must be a fraction such as 0.01, got 'low'"),
        ({"path": "x", "index": "no"}, "index must be true or false, got 'no'"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, str], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        write_options(options)


def test_what_a_directory_can_t_do() -> None:
    assert "p: directories can't be overwritten" in str(refuse_overwrite("p"))
    assert "Iceberg" in str(refuse_overwrite("p"))
    assert 'foreachBatch with mode("append"), or write to an Iceberg table' in str(refuse_stream("p"))


# -- places ------------------------------------------------------------------------------------


def test_names_of_tables_are_no_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"a": [1]}), tmp_path / "in.parquet")
    problem = r'db\.events: path looks like a table name.* \(pass a catalog .*, or use "\./db\.events" for'
    for ingest in (
        lambda: sk.ingest(pa.table({"a": [1]}), "db.events"),
        lambda: sk.ingest_new("in.parquet", "db.events"),
        lambda: write_options({"path": "db.events"}),
    ):
        with pytest.raises(UsageError, match=problem):
            ingest()
    for name in ("warehouse.db.events", "my-db.Events_2"):
        with pytest.raises(UsageError, match="looks like a table"):
            lake_store(name)
    assert [path.name for path in tmp_path.iterdir()] == ["in.parquet"]
    for name in (
        "./db.events",
        "db/events.x",
        "events",
        "events.parquet",
        "v1.2",
        ".hidden",
        Path("db.events"),
    ):
        assert lake_store(name).uri == str(tmp_path / name)
    (tmp_path / "db.events").mkdir()
    assert lake_store("db.events").uri == str(tmp_path / "db.events")
    with pytest.raises(UsageError, match="evolve=True applies to directories only"):
        sk.ingest(pa.table({"a": [1]}), "db.events", catalog=str(tmp_path), evolve=True)


def test_places_where_no_lake_can_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "dangling").symlink_to(tmp_path / "gone")
    for name in ("file", "dangling"):
        with pytest.raises(UsageError, match=rf"{name}: not a directory \(use the path of a directory"):
            check_target(open_root(tmp_path / name))
    with Append.begin(open_root(tmp_path / "lake")) as append:
        append.publish([])
    for name in ("lake/sub", "lake/day=1", "lake/a/b/c"):
        with pytest.raises(UsageError, match=r"directory is inside another lake \(ingest into .*/lake, or"):
            check_target(open_root(tmp_path / name))
    with Append.begin(open_lake_root(tmp_path / "above" / "inner")) as append:
        append.publish([])
    with pytest.raises(UsageError, match=r"directory contains lakes \(use one of them, such as .*/inner"):
        check_target(open_root(tmp_path / "above"))
    with pytest.raises(UsageError, match="path is empty"):
        lake_store("")
    for name in ("lake", "lake2", "other/deep/down"):
        check_target(open_root(tmp_path / name))
        assert open_existing(open_root(tmp_path / name)) is None


def test_names_that_readers_take_for_one() -> None:
    check_names(["a", "b", "a.b"])
    with pytest.raises(SchemaError, match=r"column ID: name differs from id only in case \(rename or drop"):
        check_names(["id", "x", "ID"])
    with pytest.raises(SchemaError, match="column id: duplicate name"):
        check_names(["id", "i" + "d"])


# -- a lake that is there ----------------------------------------------------------------------


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    for day in (1, 2):
        (tmp_path / f"day={day}").mkdir()
        table = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"], "gone": [1.0, 2.0, 3.0]})
        pq.write_table(table, tmp_path / f"day={day}" / "0.parquet")
    found = sk.open(tmp_path)
    found.index.build(blooms=["name", "gone"], sums=["id"], engine="local")
    return found


NEW = pa.schema([("id", pa.int64()), ("name", pa.string()), ("day", pa.int64())])


def test_partition_columns_keep_the_order_of_their_directories(tmp_path: Path) -> None:
    names = [f"p{n}" for n in range(8)]
    folder = tmp_path.joinpath(*(f"{name}=1" for name in names))
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"id": [1]}), folder / "f.parquet")
    schema = pa.schema([("id", pa.int64()), *((name, pa.int32()) for name in names)])
    assert fit_layout(PageLayout(), sk.open(tmp_path), schema).partition_by == tuple(names)


def test_a_layout_fitted_to_a_lake(lake: Lake) -> None:
    # A filter on a column that the new rows don't have is none of theirs.
    assert fit_layout(PageLayout(), lake, NEW) == PageLayout(partition_by=("day",), blooms=("name",))
    assert fit_layout(PageLayout(blooms=("id",)), lake, NEW).blooms == ("id",)
    with pytest.raises(UsageError, match="lake is partitioned by day, not by id"):
        fit_layout(PageLayout(partition_by=("id",)), lake, NEW)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ([("id", pa.int64())], r"column day: partition column is missing from the rows \(add the column"),
        ([("ID", pa.int64()), ("day", pa.int64())], r"column ID: the lake's column is named id \(rename"),
        ([("Day", pa.int64()), ("id", pa.int64())], "column day: partition column is missing from the rows"),
        ([("id", pa.string()), ("day", pa.int64())], "column id"),
        (
            [("id", pa.int64()), ("day", pa.string())],
            r"column day: partition column is int32 in the lake, but string in the new rows \(cast the",
        ),
    ],
)
@pytest.mark.parametrize("evolve", [False, True])
def test_rows_that_don_t_fit(lake: Lake, fields: Any, problem: str, evolve: bool) -> None:
    check_fits(lake, NEW, evolve=evolve)
    with pytest.raises(SchemaError, match=problem):
        check_fits(lake, pa.schema(fields), evolve=evolve)


@pytest.mark.parametrize(
    ("old", "type", "values", "problem"),
    [
        (
            [],
            pa.string(),
            ["1", "01"],
            r"'01' would be read back as 1 of type int32, not string \(cast .* integer",
        ),
        ([], pa.string(), ["1", "1.0"], "'1' would be read back as 1.0 of type double"),
        (
            [],
            pa.string(),
            ["2020-01-01"],
            r"as 2020-01-01 of type date, not string \(cast .* date, or",
        ),
        ([], pa.string(), ["a", "01", None], None),
        (["a"], pa.string(), ["01"], None),
        ([NULL_FOLDER], pa.string(), ["01"], "'01' would be read back as 1"),
        ([], pa.string(), [None], None),
        (["5"], pa.int64(), [2**40, None], None),
        ([], pa.uint64(), [2**63], r"type decimal\(19, 0\), not uint64 \(partition by another column"),
        (["2020-01-01"], pa.date32(), [dt.date(1, 2, 3)], None),
    ],
)
def test_partition_values_are_read_back(
    tmp_path: Path, old: list[str], type: pa.DataType, values: list[object], problem: str | None
) -> None:
    for raw in old:
        (tmp_path / f"a=1/p={raw}").mkdir(parents=True)
        pq.write_table(pa.table({"id": [1]}), tmp_path / f"a=1/p={raw}/f.parquet")
    keys = [f"{partition_folder(['a', 'p'], [1, value])}/new.parquet" for value in values]
    schema = pa.schema([("a", pa.int64()), ("p", type)])
    with nullcontext() if problem is None else pytest.raises(SchemaError, match=problem):
        check_partitions(sk.open(tmp_path) if old else None, keys, schema)


NESTED = pa.struct([("x", pa.int64()), ("list", pa.list_(pa.struct([("deep", pa.int64())])))])


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"new": pa.bool_()}, r"column new: not in the lake \(add .* evolve=True or --evolve\)"),
        ({"new": pa.bool_(), "two": pa.bool_()}, "column new: not in the lake, nor are two"),
        ({"nmae": pa.string()}, r"column nmae: .*\(did you mean name\? Otherwise add"),
        # Only a column that the new rows lack may have been meant.
        ({"nmae": pa.string(), "name": pa.string()}, r"column nmae: not in the lake \(add new"),
        ({"__index_level_0__": pa.int64()}, r"reset_index\(drop=True\)"),
        ({"s": pa.struct([("x", pa.int64()), ("y", pa.int64())])}, r"column s\.y: not in the lake"),
        (
            {"s": pa.struct([("list", pa.list_(pa.struct([("deeper", pa.int64())])))])},
            r"column s\.list\.element\.deeper: .*did you mean deep\?",
        ),
    ],
)
def test_new_columns_need_to_be_asked_for(tmp_path: Path, fields: dict[str, Any], problem: str) -> None:
    own = pa.schema([("id", pa.int64()), ("name", pa.string()), ("s", NESTED)])
    pq.write_table(own.empty_table(), tmp_path / "f.parquet")
    lake = Lake(open_root(tmp_path))
    new = pa.schema([("id", pa.int64()), *fields.items()])
    with pytest.raises(SchemaError, match=problem):
        check_fits(lake, new, evolve=False)
    check_fits(lake, new, evolve=True)
    check_fits(lake, pa.schema([("id", pa.int32()), ("s", pa.struct([("x", pa.int64())]))]), evolve=False)


def test_the_data_source_is_as_strict(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1]}), tmp_path / "f.parquet")
    schema = StructType().add("id", "long").add("new", "long")
    for evolve in ({}, {"evolve": "false"}):
        with pytest.raises(SchemaError, match="column new: not in the lake"):
            SinkWriter({"path": str(tmp_path), **evolve}, schema)
    with pytest.raises(UsageError, match="evolve must be true or false, got 'yes'"):
        SinkWriter({"path": str(tmp_path), "evolve": "yes"}, schema)
    SinkWriter({"path": str(tmp_path), "evolve": "true"}, schema).abort([])
    options = {"path": str(tmp_path / "new"), "partition_by": "p"}
    writer = SinkWriter(options, StructType().add("id", "long").add("p", "string"))
    with pytest.raises(SchemaError, match="column p: partition value '01' would be read back as 1"):
        writer.commit([WrittenFiles((WrittenFile("p=01/f.parquet", 1, 1, 1, "p=01"),))])


# -- clustering --------------------------------------------------------------------------------


def grown(root: Path, name: str, metadata: tuple[tuple[str, str], ...], at: int) -> Lake:
    """The lake with one more file of an ingest, as old as that."""
    store = open_root(root)
    with Append.begin(store) as append:
        key = f"{name}-{append.job}.parquet"
        rows = pa.table({"a": [1], "b": [2], "s": [{"x": 3}]})
        sink = pa.BufferOutputStream()
        pq.write_table(rows.replace_schema_metadata(dict(metadata)), sink)
        append.stage.write(staged_as(key), [sink.getvalue()])
        append.publish([key])
    os.utime(root / key, (at, at))
    return Lake(store)


def test_a_lake_stays_clustered_as_it_is(tmp_path: Path) -> None:
    """As the newest ingest has left it, whatever the order of the names, and unless another is asked for."""
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("s", pa.struct([("x", pa.int64())]))])
    first = PageLayout(cluster_by=("a", "s.x"), cluster="hilbert")
    assert cluster_metadata(PageLayout()) == ()
    lake = grown(tmp_path, "z", cluster_metadata(first), 1_000)
    assert fit_layout(PageLayout(), lake, schema) == first
    assert fit_layout(PageLayout(cluster_by=("b",)), lake, schema) == PageLayout(cluster_by=("b",))
    # Columns that the new rows don't have can't order them.
    assert fit_layout(PageLayout(), lake, pa.schema([("a", pa.int64())])).cluster_by == ("a",)
    assert fit_layout(PageLayout(), lake, pa.schema([("b", pa.int64())])) == PageLayout()
    lake = grown(tmp_path, "a", cluster_metadata(PageLayout(cluster_by=("b",))), 2_000)
    assert fit_layout(PageLayout(), lake, schema) == PageLayout(cluster_by=("b",))
    # A file of somebody else says nothing, one of an ingest that was not clustered does.
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    lake.refresh()
    assert fit_layout(PageLayout(), lake, schema) == PageLayout(cluster_by=("b",))
    assert fit_layout(PageLayout(), grown(tmp_path, "b", (), 3_000), schema) == PageLayout()


@pytest.mark.parametrize(
    "told",
    [
        "",
        "[",
        "1",
        "{}",
        '{"by": 1, "order": "sort"}',
        '{"by": ["a"], "order": "peano"}',
        '{"by": ["a", "a"], "order": "sort"}',
        '{"by": [["a"]], "order": "sort"}',
        '{"by": ["a"]}',
        '{"by": [null], "order": "sort"}',
    ],
)
def test_clustering_that_makes_no_sense_is_none(tmp_path: Path, told: str) -> None:
    lake = grown(tmp_path, "a", (("skipstone.cluster", told),), 1_000)
    assert fit_layout(PageLayout(), lake, pa.schema([("a", pa.int64())])) == PageLayout()


def test_new_filters_leave_the_index_as_it_was(lake: Lake) -> None:
    store = open_root(lake.uri)
    found = index_new_files(store, PageLayout(blooms=("name",)), LocalEngine())
    assert found is not None
    assert found.index.coverage is not None
    before = found.index.coverage.manifest.spec
    found = index_new_files(store, PageLayout(blooms=("id",)), LocalEngine())
    assert found is not None
    assert found.index.coverage is not None
    spec = found.index.coverage.manifest.spec
    assert spec["blooms"] == [["name"], ["gone"], ["id"]]
    assert {name: value for name, value in spec.items() if name != "blooms"} == {
        name: value for name, value in before.items() if name != "blooms"
    }


# -- tables ------------------------------------------------------------------------------------

FRAME = pd.DataFrame({"k": ["a", "b", "c"], "v": [1, 2, 3]})


@pytest.mark.parametrize(
    ("frame", "columns"),
    [
        (FRAME, ["k", "v"]),
        (FRAME.set_index("k"), ["v", "k"]),
        (FRAME.set_index(["k", "v"]), ["k", "v"]),
        (FRAME.iloc[1:], ["k", "v"]),
        (FRAME[FRAME.v > 1], ["k", "v", "__index_level_0__"]),
        (FRAME.set_index(pd.to_datetime(["2020-01-01"] * 3)), ["k", "v", "__index_level_0__"]),
        (FRAME.set_index(pd.MultiIndex.from_arrays([[1, 2, 3], [4, 5, 6]], names=["m", None])), None),
        (FRAME.set_axis(pd.RangeIndex(3, name="row")), ["k", "v", "row"]),
        (FRAME.groupby("k").sum(), ["v", "k"]),
        (FRAME.head(0).set_index("k"), ["v", "k"]),
    ],
)
def test_the_index_of_a_frame_is_kept(frame: Any, columns: list[str] | None) -> None:
    """As to_parquet keeps it, so that reset_index() gives the same rows."""
    found = as_table(frame)
    assert found.column_names == (columns or ["k", "v", "m", "__index_level_1__"])
    sink = io.BytesIO()
    frame.to_parquet(sink)
    assert set(pq.read_schema(sink).names) <= set(found.column_names)
    if "k" in found.column_names:
        assert found["k"].to_pylist() == frame.reset_index()["k"].tolist()


def test_batches_are_a_table(tmp_path: Path) -> None:
    table = pa.table({"a": [1, 2, 3]})
    assert as_table(table.to_batches(max_chunksize=1)).equals(table)
    pq.write_table(table, tmp_path / "a.parquet")
    assert as_table(sk.open(tmp_path)).equals(table)
    assert as_table(sk.open(tmp_path).scan("a > 1")).to_pylist() == [{"a": 2}, {"a": 3}]


def test_dictionaries_are_rows_with_the_columns_of_all_of_them() -> None:
    made = as_table([{"a": 1}, {"b": "x"}, {"a": None, "c": {"d": [1.5]}}])
    assert made.to_pylist() == [
        {"a": 1, "b": None, "c": None},
        {"a": None, "b": "x", "c": None},
        {"a": None, "b": None, "c": {"d": [1.5]}},
    ]
    with pytest.raises(UsageError, match=r"list can't be written as rows: .*Could not convert"):
        as_table([{"a": 1}, {"a": "x"}])


def test_tables_that_can_t_be_ingested() -> None:
    with pytest.raises(UsageError, match=r"list must hold dictionaries, but holds int \(pass a list of"):
        to_frame([1, 2])
    with pytest.raises(UsageError, match=r"list has no rows, and so no columns \(pass a list of"):
        to_frame([])
    with pytest.raises(UsageError, match=r"list has an integer that is too large \(pass integers beyond"):
        to_frame([{"a": 1}, {"a": 2**64}])
    with pytest.raises(UsageError, match=r"^int can't be written as rows \(pass"):
        to_frame(3)
    with pytest.raises(
        UsageError, match=r"^str can't be written as rows \(for files, use sk\.ingest_new\(source"
    ):
        to_frame("raw/a.csv")
    with pytest.raises(SchemaError, match=r"column p: pandas periods can't .*frame\['p'\]\.dt\.to_timestamp"):
        to_frame(pd.DataFrame({"p": pd.period_range("2026-01", periods=2, freq="M")}))
    with pytest.raises(UsageError, match=r"list can't be written as rows: Schema at index 1 was different"):
        to_frame([*pa.table({"a": [1]}).to_batches(), *pa.table({"b": [1]}).to_batches()])
    with pytest.raises(UsageError, match="data has no columns"):
        to_frame(pa.table({}))
    with pytest.raises(
        SchemaError, match=r"column t: .* would lose data: 1001 \(round the column to microseconds"
    ):
        to_frame(pa.table({"t": pa.array([1001], pa.timestamp("ns"))}))
    with pytest.raises(SchemaError, match="column t: Spark does not support times of day"):
        to_frame(pa.table({"t": pa.array([1], pa.time64("us"))}))
    with pytest.raises(SchemaError, match="column A: name differs from a only in case"):
        to_frame(pa.table({"a": [1], "A": [2]}))
