"""What callers say, of a layout and of a place; no Spark is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from skipstone.bridge.spark.sink import write_options
from skipstone.engine.jobs import LocalEngine
from skipstone.errors import SchemaError, UsageError
from skipstone.index.lake import IndexedLake
from skipstone.ingest.job import make_layout
from skipstone.ingest.lakes import (
    check_fits,
    check_names,
    check_place,
    fitted,
    index_new,
    opened,
    refuse_overwrite,
    refuse_stream,
)
from skipstone.ingest.tables import frame_of
from skipstone.lake.append import Append
from skipstone.store.place import open_root
from skipstone.write.layout import Layout


def layout(**words: Any) -> Layout:
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
    assert found == Layout(
        partition_by=("p",), cluster_by=("a", "b"), cluster="hilbert", blooms=("c",), page_rows=7
    )
    assert layout() == Layout()
    assert layout(target_file_bytes=5).target_file_bytes == 5


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ({"target_file_byte": 3}, r"a layout has no target_file_byte \(there are target_file_bytes, "),
        ({"partition_by": "day"}, r"partition_by='day' \(give a list"),
        ({"cluster_by": "day"}, "cluster_by='day'"),
        ({"blooms": "day"}, "blooms='day'"),
        ({"target_file_bytes": 0}, "target_file_bytes is 0"),
        ({"cluster": "peano", "cluster_by": ["a"]}, "there is no order 'peano'"),
        ({"cluster": "zorder"}, "a zorder order of 0 columns"),
        ({"mode": "overwrite"}, "can only be appended to .*an Iceberg table can be overwritten"),
    ],
)
def test_words_that_make_no_sense(words: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        layout(**words)


def test_options_of_the_data_source(tmp_path: Path) -> None:
    place, found, index = write_options(
        {
            "path": str(tmp_path),
            "partition_by": "p",
            "cluster_by": " a , b ",
            "cluster": "zorder",
            "blooms": "c",
            "dictionary": "d,e",
            "target_file_bytes": "1000",
            "page_rows": "10",
            "bloom_fpp": "0.05",
            "compression": "snappy",
            "index": "False",
            "storage.aws_region": "x",
        }
    )
    assert (place.uri, index) == (str(tmp_path), False)
    assert found == Layout(
        partition_by=("p",),
        cluster_by=("a", "b"),
        cluster="zorder",
        blooms=("c",),
        dictionary=("d", "e"),
        target_file_bytes=1000,
        page_rows=10,
        bloom_fpp=0.05,
        compression="snappy",
    )
    assert write_options({"path": str(tmp_path)})[1:] == (Layout(), True)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "there is no path"),
        ({"path": "x", "cluster_bye": "a"}, "a layout has no cluster_bye"),
        ({"path": "x", "page_rows": "many"}, r"page_rows is 'many' \(give a whole number"),
        ({"path": "x", "bloom_fpp": "low"}, r"bloom_fpp is 'low' \(give a share"),
        ({"path": "x", "index": "no"}, r"index is 'no' \(give true or false"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, str], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        write_options(options)


def test_what_a_directory_can_t_do() -> None:
    assert "p: a directory can only be appended to" in str(refuse_overwrite("p"))
    assert "Iceberg" in str(refuse_overwrite("p"))
    assert "foreachBatch; an Iceberg table can be" in str(refuse_stream("p"))


# -- places ------------------------------------------------------------------------------------


def test_places_where_no_lake_can_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "dangling").symlink_to(tmp_path / "gone")
    for name in ("file", "dangling"):
        with pytest.raises(UsageError, match=rf"{name}: it is a file \(name a directory"):
            check_place(open_root(tmp_path / name))
    with Append.begin(open_root(tmp_path / "lake")) as append:
        append.publish([])
    for name in ("lake/sub", "lake/day=1", "lake/a/b/c"):
        with pytest.raises(UsageError, match=r"it lies in another lake \(take rows into .*/lake, or"):
            check_place(open_root(tmp_path / name))
    for name in ("lake", "lake2", "other/deep/down"):
        check_place(open_root(tmp_path / name))
        assert opened(open_root(tmp_path / name)) is None


def test_names_that_readers_take_for_one() -> None:
    check_names(["a", "b", "a.b"])
    with pytest.raises(SchemaError, match=r"column ID: another one is called id \(rename one"):
        check_names(["id", "x", "ID"])
    with pytest.raises(SchemaError, match="column id: there are two of that name"):
        check_names(["id", "i" + "d"])


# -- a lake that is there ----------------------------------------------------------------------


@pytest.fixture
def lake(tmp_path: Path) -> IndexedLake:
    for day in (1, 2):
        (tmp_path / f"day={day}").mkdir()
        table = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"], "gone": [1.0, 2.0, 3.0]})
        pq.write_table(table, tmp_path / f"day={day}" / "0.parquet")
    found = sk.open(tmp_path)
    found.index.build(blooms=["name", "gone"], sums=["id"], engine="local")
    return found


NEW = pa.schema([("id", pa.int64()), ("name", pa.string()), ("day", pa.int64())])


def test_a_layout_fitted_to_a_lake(lake: IndexedLake) -> None:
    # A filter on a column that the new rows don't have is none of theirs.
    assert fitted(Layout(), lake, NEW) == Layout(partition_by=("day",), blooms=("name",))
    assert fitted(Layout(blooms=("id",)), lake, NEW).blooms == ("id",)
    with pytest.raises(UsageError, match="the lake is partitioned by day, not by id"):
        fitted(Layout(partition_by=("id",)), lake, NEW)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ([("id", pa.int64())], r"column day: the lake is partitioned by it \(add it"),
        ([("ID", pa.int64()), ("day", pa.int64())], r"column ID: the lake calls it id \(rename"),
        ([("Day", pa.int64()), ("id", pa.int64())], "column day: the lake is partitioned by it"),
        ([("id", pa.string()), ("day", pa.int64())], "column id"),
    ],
)
def test_rows_that_don_t_fit(lake: IndexedLake, fields: Any, problem: str) -> None:
    check_fits(lake, NEW)
    check_fits(lake, NEW.append(pa.field("new", pa.bool_())))
    with pytest.raises(SchemaError, match=problem):
        check_fits(lake, pa.schema(fields))


def test_new_filters_leave_the_index_as_it_was(lake: IndexedLake) -> None:
    place = open_root(lake.uri)
    found = index_new(place, Layout(blooms=("name",)), LocalEngine())
    assert found is not None
    assert found.index.coverage is not None
    before = found.index.coverage.manifest.spec
    found = index_new(place, Layout(blooms=("id",)), LocalEngine())
    assert found is not None
    assert found.index.coverage is not None
    spec = found.index.coverage.manifest.spec
    assert spec["blooms"] == [["name"], ["gone"], ["id"]]
    assert {name: value for name, value in spec.items() if name != "blooms"} == {
        name: value for name, value in before.items() if name != "blooms"
    }


# -- tables ------------------------------------------------------------------------------------


def test_tables_that_can_t_be_ingested() -> None:
    with pytest.raises(UsageError, match=r"can't ingest a list: .*\(give a Spark data frame"):
        frame_of([1, 2])
    with pytest.raises(UsageError, match="can't ingest a int"):
        frame_of(3)
    with pytest.raises(UsageError, match="the schema has no columns"):
        frame_of(pa.table({}))
    with pytest.raises(SchemaError, match=r"column t: Spark has no nanoseconds.*\(round it"):
        frame_of(pa.table({"t": pa.array([1001], pa.timestamp("ns"))}))
    with pytest.raises(SchemaError, match="column t: Spark has no times of day"):
        frame_of(pa.table({"t": pa.array([1], pa.time64("us"))}))
    with pytest.raises(SchemaError, match="column A: another one is called a"):
        frame_of(pa.table({"a": [1], "A": [2]}))
