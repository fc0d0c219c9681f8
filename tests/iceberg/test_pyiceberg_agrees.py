"""Tables that pyiceberg has made read the same in both; those it can't read give the oracle's rows."""

from __future__ import annotations

import datetime as dt
import decimal
import random
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table import Table
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import DoubleType, IntegerType, LongType, StringType

import skipstone as sk
from tests.iceberg._chains import random_chain
from tests.iceberg._maker import Maker
from tests.property._lakes import ROW_ID

SCHEMA = pa.schema(
    [
        pa.field(ROW_ID, pa.int64()),
        pa.field("n", pa.int32()),
        pa.field("s", pa.string()),
        pa.field("f", pa.float64()),
        pa.field("day", pa.date32()),
        pa.field("ts", pa.timestamp("us")),
        pa.field("tz", pa.timestamp("us", "UTC")),
        pa.field("dec", pa.decimal128(9, 2)),
        pa.field("flag", pa.bool_()),
        pa.field("blob", pa.binary()),
        pa.field("u", pa.uuid()),
        pa.field("st", pa.struct([("a", pa.int32()), ("b", pa.string())])),
        pa.field("items", pa.list_(pa.int64())),
    ]
)
EPOCH = dt.datetime(1970, 1, 1)
# Filters that both understand alike.
FILTERS = (
    "n > 3",
    "n is null",
    "s = 'long value number 4 of many'",
    "s > 'long value number 7'",
    "s like 'long value number 1%'",
    "f < 2.5",
    "day >= '1970-01-01'",
    "ts < '1970-01-01T00:00:00'",
    "dec = 2.50",
    "flag = true and n < 6",
    "n in (1, 2, 40) or s is null",
    "not (n = 2)",
    "rid >= 30",
)


def some_rows(start: int, count: int, seed: int = 0) -> pa.Table:
    """Rows with NULLs, NaN, negatives, empty and long texts, and times around 1970."""
    rng = random.Random(seed)

    def maybe(value: Any) -> Any:
        return None if rng.random() < 0.15 else value

    rows = []
    for rid in range(start, start + count):
        moment = EPOCH + dt.timedelta(hours=rng.randrange(-60, 60), microseconds=rng.randrange(3))
        text = rng.choice(["", "a", f"long value number {rng.randrange(12)} of many", "é" * 20])
        rows.append(
            {
                ROW_ID: rid,
                "n": maybe(rng.randrange(-9, 9)),
                "s": maybe(text),
                "f": maybe(rng.choice([float("nan"), rng.randrange(-8, 8) / 2, float("inf"), -0.0])),
                "day": maybe(moment.date()),
                "ts": maybe(moment),
                "tz": maybe(moment.replace(tzinfo=dt.UTC)),
                "dec": maybe(decimal.Decimal(rng.randrange(-9, 9)) / 2),
                "flag": maybe(rng.random() < 0.5),
                "blob": maybe(rng.randbytes(rng.randrange(20))),
                "u": uuid.UUID(int=rng.getrandbits(128)).bytes,
                "st": maybe({"a": maybe(rid % 5), "b": maybe(str(rid))}),
                "items": maybe([rid, None][: rng.randrange(3)]),
            }
        )
    return pa.Table.from_pylist(rows, schema=SCHEMA)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    made = SqlCatalog("test", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")
    made.create_namespace("db")
    yield made
    made.close()


def by_row(table: pa.Table) -> list[tuple[int, str]]:
    return sorted((row[ROW_ID], str(row)) for row in table.to_pylist())


def agree(catalog: SqlCatalog, name: str = "db.t", *, everything: bool = False) -> None:
    """Snapshots, whole and through filters, here and there."""
    table = catalog.load_table(name)
    lake = sk.open(name, catalog=catalog)
    head = table.metadata.current_snapshot_id
    assert lake.schema.names == [f.name for f in table.schema().fields]
    ids = [snapshot.snapshot_id for snapshot in table.metadata.snapshots]
    for id in {*ids[: None if everything else 1], head}:
        theirs = table.scan(snapshot_id=id).to_arrow()
        assert by_row(lake.scan(snapshot=id).to_arrow()) == by_row(theirs)
        assert lake.scan(snapshot=id).count() == theirs.num_rows
        if id != head:
            continue
        current = table.scan().to_arrow()
        assert by_row(lake.scan().to_arrow()) == by_row(current)
        some = random.Random(str(by_row(current)))
        for text in FILTERS if everything else some.sample(FILTERS, 3):
            if _speaks_of(text, lake.schema.names):
                found = by_row(lake.scan(text).to_arrow())
                assert found == by_row(table.scan(_theirs(text)).to_arrow()), text
    selected = (ROW_ID, lake.schema.names[-1])
    assert by_row(lake.scan(columns=selected).to_arrow()) == by_row(
        table.scan(selected_fields=selected).to_arrow()
    )


def _speaks_of(text: str, names: list[str]) -> bool:
    words = {"n", "s", "f", "day", "ts", "dec", "flag", ROW_ID} & {*text.replace("(", " ").split()}
    return words <= {*names}


def _theirs(text: str) -> str:
    """pyiceberg's NOT keeps rows where the column is NULL."""
    return f"{text} and n is not null" if text.startswith("not") else text


SPECS: dict[str, list[tuple[str, Any]]] = {
    "plain": [],
    "identity": [("s", IdentityTransform()), ("flag", IdentityTransform())],
    "times": [("ts", DayTransform()), ("tz", HourTransform())],
    "long times": [("day", MonthTransform()), ("ts", YearTransform())],
    "buckets": [("u", BucketTransform(4)), ("dec", BucketTransform(3))],
    "truncate": [("s", TruncateTransform(3)), ("n", TruncateTransform(4)), ("dec", TruncateTransform(50))],
}


def create(catalog: SqlCatalog, spec: str, version: int = 2) -> Table:
    table = catalog.create_table("db.t", SCHEMA, properties={"format-version": str(version)})
    with table.update_spec() as update:
        for column, transform in SPECS[spec]:
            update.add_field(column, transform, f"{column}_part")
    return table


@pytest.mark.sampled(2)
@pytest.mark.parametrize("spec", SPECS)
def test_appends_overwrites_and_deletes(catalog: SqlCatalog, spec: str) -> None:
    change(create(catalog, spec, 1 if "times" in spec else 2), 12)
    agree(catalog)


@pytest.mark.slow
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("spec", SPECS)
def test_many_appends_overwrites_and_deletes(catalog: SqlCatalog, spec: str, version: int) -> None:
    change(create(catalog, spec, version), 40)
    agree(catalog, everything=True)


def change(table: Table, rows: int) -> None:
    table.append(some_rows(0, rows))
    table.append(some_rows(rows, rows // 2, seed=1))
    table.delete("n > 5")
    table.delete("s = 'a'")
    table.overwrite(some_rows(100, rows // 3, seed=2), "n < -5")


def test_schema_evolution(catalog: SqlCatalog) -> None:
    table = create(catalog, "identity")
    table.append(some_rows(0, 12))
    with table.update_schema() as update:
        update.add_column("extra", DoubleType())
        update.add_column(("st", "c"), IntegerType())
        update.rename_column("s", "text")
        update.rename_column("st.a", "aa")
        update.update_column("n", LongType())
        update.delete_column("blob")
        update.move_first("dec")
    agree(catalog)
    rows = some_rows(30, 8, seed=3).rename_columns(["text" if n == "s" else n for n in SCHEMA.names])
    rows = rows.drop_columns(["blob", "st"]).append_column("extra", pa.array([0.5] * 8))
    struct = pa.StructArray.from_arrays([pa.array([7] * 8, pa.int32())] * 2, names=["aa", "c"])
    table.append(rows.append_column("st", struct))
    agree(catalog)
    with table.update_schema() as update:  # a new column under an old name
        update.delete_column("extra")
        update.add_column("blob", StringType())
    table.append(rows.drop_columns(["extra"]).append_column("blob", pa.array(["x"] * 8)))
    agree(catalog)


def test_spec_evolution(catalog: SqlCatalog) -> None:
    table = create(catalog, "times")
    table.append(some_rows(0, 10))
    for column, transform, gone in (
        ("s", TruncateTransform(2), "ts_part"),
        ("n", IdentityTransform(), "tz_part"),
        ("ts", MonthTransform(), "s_more"),
    ):
        with table.update_spec() as update:
            update.remove_field(gone)
            update.add_field(column, transform, f"{column}_more")
        table.append(some_rows(30 * (1 + len(table.specs())), 10, seed=4))
    table.delete("n = 2")
    agree(catalog)


def test_files_added_as_they_are_are_found_by_the_name_mapping(catalog: SqlCatalog, tmp_path: Path) -> None:
    table = create(catalog, "plain")
    rows = some_rows(0, 30).drop_columns(["u"])
    paths = []
    for number, part in enumerate((rows.slice(0, 10), rows.slice(10).select([*reversed(rows.column_names)]))):
        paths.append(f"file://{tmp_path}/added-{number}.parquet")
        pq.write_table(part, paths[-1].removeprefix("file://"), row_group_size=7, store_schema=False)
    table.add_files(paths)
    with table.update_schema() as update:
        update.rename_column("n", "number")
    table.append(some_rows(40, 5, seed=5).rename_columns(["number" if n == "n" else n for n in SCHEMA.names]))
    agree(catalog)


def test_branches_and_tags(catalog: SqlCatalog) -> None:
    table = create(catalog, "plain")
    table.append(some_rows(0, 10))
    head = table.metadata.current_snapshot_id
    assert head is not None
    table.manage_snapshots().create_tag(head, "first").create_branch(head, "side").commit()
    table.append(some_rows(10, 10, seed=6), branch="side")
    table.append(some_rows(20, 5, seed=7))
    table = catalog.load_table("db.t")
    lake = sk.open("db.t", catalog=catalog)
    assert [lake.scan(snapshot=name).count() for name in ("first", "side", "main", None)] == [10, 20, 15, 15]
    side = table.scan(snapshot_id=table.metadata.refs["side"].snapshot_id).to_arrow()
    assert by_row(lake.scan(snapshot="side").to_arrow()) == by_row(side)
    agree(catalog)


def test_an_empty_table_has_no_rows(catalog: SqlCatalog) -> None:
    create(catalog, "buckets")
    lake = sk.open("db.t", catalog=catalog)
    assert lake.scan("n = 1").to_arrow().num_rows == 0
    assert lake.scan().count() == 0
    assert lake.scan().to_arrow().schema.names == SCHEMA.names


def test_tables_that_both_read_give_the_same_rows(tmp_path: Path) -> None:
    for number in range(2):
        chain = random_chain(f"both:{number}", tmp_path / str(number), readable=True)
        table = sk.open(chain.maker.metadata_location)
        theirs = table.table.scan(AlwaysTrue()).to_arrow()
        assert by_row(table.scan().to_arrow()) == by_row(theirs), "\n".join(chain.words)


def test_equality_deletes_that_pyiceberg_refuses_give_the_oracles_rows(tmp_path: Path) -> None:
    maker = Maker(tmp_path, [(ROW_ID, "long"), ("k", "int"), ("p", "string")], [("p", "identity")])
    maker.append([{ROW_ID: n, "k": n % 7 or None, "p": "ab"[n % 2]} for n in range(40)], files=3)
    key = [maker.field("k").id]
    maker.delete_equal(key, [(2,), (None,)], partitions=[(0, ("a",))])
    maker.delete_equal([*key, maker.field(ROW_ID).id], [(3, 3), (4, 3)])
    maker.append([{ROW_ID: n, "k": 2, "p": "a"} for n in range(100, 103)])
    with pytest.raises(ValueError, match="equality deletes"):
        sk.open(maker.metadata_location).table.scan().to_arrow()
    lake = sk.open(maker.metadata_location)
    assert by_row(lake.scan().to_arrow()) == by_row(maker.table())
    assert {row[ROW_ID] for row in maker.rows() if row["k"] == 2} == {9, 23, 37, 100, 101, 102}
    assert lake.scan("k = 2").count() == 6
    assert lake.scan("p = 'a' and k is null").count() == 0
    assert sorted(lake.scan("k = 3", columns=[ROW_ID]).to_arrow()[ROW_ID].to_pylist()) == [10, 17, 24, 31, 38]
