"""Embedded catalogs: made, reopened, shared by processes; tables made in them are filled and scanned."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import skipstone as sk
from skipstone.errors import ConflictError, ReadError, UsageError

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us")), ("s", pa.string())])


def rows(count: int) -> pa.Table:
    ids = range(count)
    times = [dt.datetime(2026, 1, 1) + dt.timedelta(hours=7 * n) for n in ids]
    return pa.table([pa.array(ids, pa.int64()), times, [f"s{n % 5}" for n in ids]], schema=SCHEMA)


def test_a_catalog_is_made_and_opened_again(tmp_path: Path) -> None:
    warehouse = tmp_path / "deep" / "warehouse"
    made = sk.catalog(warehouse).create_table("db.events", SCHEMA)
    assert isinstance(made, sk.Table)
    assert made.uri == f"file://{warehouse}/db/events"
    made.table.append(rows(10))
    for catalog in (warehouse, str(warehouse), sk.catalog(warehouse), sk.catalog(warehouse).iceberg):
        assert sk.open("db.events", catalog=catalog).scan("id > 6").count() == 3
    assert sk.open(sk.catalog(warehouse).open("db.events").table).scan().count() == 10
    with pytest.raises(ReadError, match="no embedded catalog in this directory"):
        sk.open("db.events", catalog=tmp_path / "elsewhere")


def test_a_table_with_every_transform_is_pruned_by_it(tmp_path: Path) -> None:
    catalog = sk.catalog(tmp_path)
    texts = [
        "id",
        "bucket(4, id)",
        "truncate(10, id)",
        "truncate(1, s)",
        "year(ts)",
        "month(ts)",
        "day(ts)",
        "hour(ts)",
        "void(s)",
    ]
    for number, text in enumerate(texts):
        name = f"db.t{number}"
        catalog.create_table(name, SCHEMA, partition_by=[text], sort_by=["ts desc", "id"]).table.append(
            rows(12)
        )
        lake = catalog.open(name)
        scan = lake.scan("id = 7 and ts = '2026-01-03 01:00:00'")
        assert scan.to_arrow()["id"].to_pylist() == [7], text
        assert scan.plan().trace.tasks == 1, text
        assert lake.scan().count() == 12, text
    assert catalog.tables() == catalog.tables("db") == sorted(f"db.t{n}" for n in range(len(texts)))


def test_namespaces_inside_others_are_found(tmp_path: Path) -> None:
    catalog = sk.catalog(tmp_path)
    for name in ("a.t", "a.b.t", "a.b.c.t"):
        catalog.create_table(name, SCHEMA)
    assert catalog.tables() == ["a.b.c.t", "a.b.t", "a.t"]
    assert catalog.tables("a.b") == ["a.b.t"]
    assert catalog.open("a.b.c.t").scan().to_arrow().schema.names == SCHEMA.names


def test_what_is_not_there_is_named_with_what_is(tmp_path: Path) -> None:
    catalog = sk.catalog(tmp_path)
    with pytest.raises(ReadError, match="catalog has no namespaces"):
        catalog.open("db.events")
    catalog.create_table("db.events", SCHEMA)
    with pytest.raises(ReadError, match=r"db\.event: .*no such table \(did you mean db\.events\?\)"):
        catalog.open("db.event")
    with pytest.raises(ReadError, match=r"other\.events: .*available namespaces: db"):
        catalog.open("other.events")
    with pytest.raises(ReadError, match=r"other: .*no such namespace \(available namespaces: db\)"):
        catalog.tables("other")
    with pytest.raises(ReadError, match=r"db\.nope: .*no such table"):
        catalog.drop_table("db.nope")
    with pytest.raises(ConflictError, match="already exists"):
        catalog.create_table("db.events", SCHEMA)
    catalog.drop_table("db.events")
    with pytest.raises(ReadError, match="the namespace is empty"):
        catalog.open("db.events")


def test_what_makes_no_table_leaves_none(tmp_path: Path) -> None:
    catalog = sk.catalog(tmp_path)
    with pytest.raises(UsageError, match=r"schema must be a pyarrow\.Schema, got dict"):
        catalog.create_table("db.t", {"id": "long"})  # type: ignore[arg-type]
    for properties in ({"format-version": "3"}, {"format-version": "9"}, {"x": None}):
        with pytest.raises(ReadError, match=r"db\.t: ") as refused:
            catalog.create_table("db.t", SCHEMA, properties=properties)  # type: ignore[arg-type]
        assert refused.value.hint
    assert catalog.tables() == []
    made = catalog.create_table("db.t", SCHEMA, location=f"{tmp_path}/else where", properties={"a": "b"})
    made.table.append(rows(3))
    assert catalog.open("db.t").uri == f"{tmp_path}/else where"
    assert catalog.open("db.t").scan("id = 2").count() == 1
    assert made.metadata.properties["a"] == "b"


OTHER = """
import sys, time
import pyarrow as pa
import skipstone as sk
import skipstone.tables
warehouse, number = sys.argv[1:]
print("ready", flush=True)
sys.stdin.readline()
table = sk.catalog(warehouse).create_table(f"db.t{number}", pa.schema([("id", pa.int64())]))
for n in range(3):
    table.table.append(pa.table({"id": [n]}))
print(sk.open(f"db.t{number}", catalog=warehouse).scan().count(), flush=True)
"""


@pytest.mark.slow
def test_processes_that_make_a_catalog_together_share_it(tmp_path: Path) -> None:
    warehouse = tmp_path / "warehouse"
    others = [
        subprocess.Popen(
            [sys.executable, "-c", OTHER, str(warehouse), str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    for other in others:
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
    for other in others:
        assert other.stdin is not None
        other.stdin.write("go\n")
        other.stdin.flush()
    said = [other.communicate(timeout=600)[0] for other in others]
    assert said == ["3\n", "3\n"]
    assert sk.catalog(warehouse).tables() == ["db.t0", "db.t1"]


def test_a_writer_elsewhere_is_seen_after_a_refresh(tmp_path: Path) -> None:
    sk.catalog(tmp_path).create_table("db.t", SCHEMA)
    mine, theirs = (sk.open("db.t", catalog=tmp_path) for _ in range(2))
    theirs.table.append(rows(5))
    assert mine.scan().count() == 0
    assert mine.snapshot is None
    mine.refresh()
    assert (mine.scan().count(), len(mine.snapshots())) == (5, 1)
    sk.catalog(tmp_path).drop_table("db.t")
    with pytest.raises(ReadError, match=r"db\.t: .*no such table"):
        mine.refresh()
    assert mine.scan().count() == 5


def test_a_table_without_its_catalog_is_pointed_to_one() -> None:
    with pytest.raises(ReadError, match="pass catalog= or --catalog to open a table"):
        sk.open("db.events")
    with pytest.raises(ReadError) as caught:
        sk.open("no/such/events.parquet")
    assert "catalog" not in str(caught.value)


def test_an_index_beside_the_warehouse(tmp_path: Path) -> None:
    catalog = sk.catalog(tmp_path / "warehouse")
    made = catalog.create_table("db.t", pa.schema([("id", pa.int64())]))
    made.table.append(pa.table({"id": [1, 2]}))
    table = catalog.open("db.t", index_root=tmp_path / "index")
    table.index.build(engine="local")
    assert table.index.uri == str(tmp_path / "index")
    assert catalog.open("db.t", index_root=tmp_path / "index").scan("id = 2").count() == 1
