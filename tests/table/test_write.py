"""Writes to keyed tables: rows, counts, files, and what other readers see."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.table.update import SetPropertiesUpdate

import skipstone as sk
from skipstone.table.compare import equal_rows
from tests.support.calls import calls

from ._keyed import EVERY_TYPE, ROWS, SCHEMA, as_others_read, content, new_table, rows, sorted_rows

PAIRS = pa.map_(pa.string(), pa.int64())
NESTED = {
    "list": pa.array([[n % 2, None] if n % 3 else None for n in range(ROWS)], pa.list_(pa.int64())),
    "struct": pa.array([{"a": n % 2, "b": [str(n % 5)]} if n % 4 else None for n in range(ROWS)]),
    "map": pa.array([[("k", n // 2)] if n % 5 else [] for n in range(ROWS)], PAIRS),
    "float": pa.array([float("nan") if n % 3 else n / 3 for n in range(ROWS)]),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("warehouse")


@pytest.fixture
def table(folder: Path, request: pytest.FixtureRequest) -> sk.Table:
    """A table with 100 rows."""
    name = "".join(letter if letter.isalnum() else "_" for letter in request.node.name)
    table = new_table(folder, f"db.{name}")
    assert table.append(rows(range(100))).inserted == 100
    return table


def counts(report: sk.WriteReport) -> tuple[int, int, int, int]:
    return report.inserted, report.updated, report.deleted, report.unchanged


def agree(table: sk.Table) -> None:
    """pyiceberg and Polars read the same rows."""
    expected = sorted_rows(table.scan().to_arrow(), table.schema)
    for other in as_others_read(table):
        assert sorted_rows(other, table.schema).equals(expected)


def test_upsert_replaces_and_inserts(table: sk.Table) -> None:
    before = table.snapshot
    report = table.upsert(pa.concat_tables([rows([5, 200], v=1), rows([5], v=2), rows([7])]))
    assert counts(report) == (1, 1, 0, 1)
    assert (report.files, report.delete_files, report.attempts) == (1, 1, 1)
    # One snapshot, with the new rows and the deletes.
    assert report.snapshot == table.snapshot
    assert table.metadata.current_snapshot().parent_snapshot_id == before
    assert [row for row in content(table) if row["id"] in (5, 7, 200)] == rows([5], v=2).to_pylist() + rows(
        [7]
    ).to_pylist() + rows([200], v=1).to_pylist()
    assert table.scan().count() == 101
    agree(table)


def test_upserting_the_same_rows_writes_nothing(table: sk.Table) -> None:
    before = table.table.metadata_location
    report = table.upsert(rows(range(50)))
    assert counts(report) == (0, 0, 0, 50)
    assert (report.snapshot, report.files, report.bytes) == (None, 0, 0)
    assert table.refresh().table.metadata_location == before
    report = table.upsert(rows(range(50)), compare=False)
    assert counts(report) == (0, 50, 0, 0)
    agree(table)


def test_append_refuses_keys_that_exist(table: sk.Table) -> None:
    before = set(Path(table.uri.removeprefix("file://")).rglob("*.parquet"))
    with pytest.raises(sk.DuplicateKeyError, match=r"2 keys are already in the table: id = 3; id = 4"):
        table.append(rows([3, 4, 500]))
    with pytest.raises(sk.DuplicateKeyError, match=r"new rows have a key more than once: id = 500"):
        table.append(rows([500, 501, 500]))
    assert set(Path(table.uri.removeprefix("file://")).rglob("*.parquet")) == before
    assert counts(table.append(rows([500, 501]))) == (2, 0, 0, 0)


def test_delete_by_key_and_by_condition(table: sk.Table) -> None:
    assert counts(table.delete(keys=[1, 2, 2, 999])) == (0, 0, 2, 0)
    report = table.delete("v between 100 and 190")
    assert counts(report) == (0, 0, 10, 0)
    assert (report.files, report.delete_files) == (0, 1)
    assert {row["id"] for row in content(table)} == set(range(100)) - {1, 2} - set(range(10, 20))
    agree(table)
    # A key of a deleted row can be inserted again, and nothing is written for absent keys.
    assert counts(table.append(rows([1]))) == (1, 0, 0, 0)
    assert table.delete(keys=[2, 777]).snapshot is None


def test_files_that_lose_all_rows_are_dropped(table: sk.Table) -> None:
    table.append(rows(range(100, 110)))
    report = table.delete("id >= 100")
    assert (report.deleted, report.delete_files, len(table.entries)) == (10, 0, 1)
    summary = table.metadata.current_snapshot().summary
    assert summary["deleted-data-files"] == "1"
    assert summary["total-records"] == "100"
    agree(table)


def test_update_evaluates_expressions(table: sk.Table) -> None:
    report = table.update("id < 5", {"v": "v + id", "s": sk.lit("it's")})
    assert counts(report) == (0, 5, 0, 0)
    assert content(table)[:5] == [{"id": n, "v": 11 * n, "s": "it's"} for n in range(5)]
    assert counts(table.update("id < 10", {"s": sk.lit("it's")})) == (0, 5, 0, 5)
    assert counts(table.update("id = 0", {"v": None, "s": "upper(s)"})) == (0, 1, 0, 0)
    assert content(table)[0] == {"id": 0, "v": None, "s": "IT'S"}
    agree(table)


@pytest.mark.parametrize("value", [1.9, decimal.Decimal("2.9"), True, datetime.date(2026, 1, 2), 2**70])
def test_constants_are_not_rounded(table: sk.Table, value: Any) -> None:
    before = content(table)
    with pytest.raises(sk.UsageError, match=r"column v: .* is not a value of type int64"):
        table.update("id = 1", {"v": value})
    with pytest.raises(sk.UsageError, match=r"column v: .* is not a value of type int64"):
        table.merge(rows([1]), when_matched={"v": value})
    assert content(table) == before
    assert counts(table.update("id = 1", {"v": 3.0})) == (0, 1, 0, 0)


def test_merge_applies_the_first_clause_that_is_true(table: sk.Table) -> None:
    source = pa.table(
        {"id": [1, 2, 3, 4, 500], "v": [0, 5, 30, 9, 1], "gone": [True, False, False, None, True]}
    )
    report = table.merge(
        source,
        when_matched=[
            ("source.gone", "delete"),
            ("source.v = target.v", "ignore"),
            ("source.v > 8", {"v": "source.v + target.v"}),
            (None, "update"),
        ],
    )
    assert counts(report) == (1, 2, 1, 1)
    changed = {row["id"]: (row["v"], row["s"]) for row in content(table) if row["id"] in (1, 2, 3, 4, 500)}
    assert changed == {2: (5, "a"), 3: (30, "a"), 4: (49, "a"), 500: (1, None)}
    assert counts(table.merge(rows([1, 600]), when_matched="ignore", when_not_matched="ignore")) == (
        0,
        0,
        0,
        0,
    )
    agree(table)


def test_a_token_makes_repeating_harmless(table: sk.Table) -> None:
    first = table.upsert(rows([1, 300], v=7), token="batch-1")
    table.delete(keys=300)
    again = table.upsert(rows([1, 300], v=7), token="batch-1")
    assert (again.repeated, again.snapshot) == (True, first.snapshot)
    assert counts(again) == counts(first) == (1, 1, 0, 0)
    assert table.get(300) is None
    assert not table.upsert(rows([300], v=7), token="batch-2").repeated
    # Another process repeats the call on its own, older object.
    stale = sk.open(table.name, catalog=table.table.catalog)
    table.upsert(rows([400]), token="batch-3")
    assert stale.upsert(rows([400]), token="batch-3").repeated


def test_a_token_is_kept_by_a_call_that_changes_nothing(table: sk.Table) -> None:
    """The repeated call would otherwise undo what others have written since."""
    row = rows([1])
    for token, call in {
        "upsert": lambda token: table.upsert(row, token=token),
        "delete": lambda token: table.delete("v = -5", token=token),
        "update": lambda token: table.update("v = -5", {"s": sk.lit("b")}, token=token),
    }.items():
        before = content(table)
        report = call(token)
        assert report.inserted + report.updated + report.deleted == 0
        assert report.snapshot == table.snapshot
        assert content(table) == before
        table.upsert(rows([1], v=-15))
        assert call(token).repeated
        assert table.get(1) == {"id": 1, "v": -5, "s": "a"}
        table.upsert(row)
    assert table.upsert(row).snapshot is None
    agree(table)


def test_rows_of_all_types_are_compared(folder: Path) -> None:
    data = EVERY_TYPE
    for name, values in NESTED.items():
        data = data.append_column(name, values)
    moved = data.take(pa.array([*range(1, len(data)), 0]))
    for name in data.column_names:
        # repr() tells NULL from other values, and makes NaN equal to itself.
        one, other = ([repr(value) for value in table[name].to_pylist()] for table in (data, moved))
        expected = [a == b for a, b in zip(one, other, strict=True)]
        assert equal_rows(data.select([name]), moved.select([name])).tolist() == expected, name
        assert equal_rows(data.select([name]), data.select([name])).all()
        assert equal_rows(data.slice(9).select([name]), moved.slice(8, len(data) - 9).select([name])).all()
    table = new_table(folder, "db.types", schema=data.schema, key=["big", "text"])
    table.append(data)
    assert counts(table.upsert(data)) == (0, 0, 0, len(data))
    changed = data.set_column(data.schema.get_field_index("map"), "map", moved["map"])
    assert table.upsert(changed).updated == sum(a != b for a, b in zip(*_maps(data, moved), strict=True))


def _maps(*tables: pa.Table) -> list[list[Any]]:
    return [table["map"].to_pylist() for table in tables]


def test_only_columns_that_decide_are_compared(folder: Path) -> None:
    count = 3_000
    random = np.random.default_rng(1)
    wide = [random.bytes(64).hex() if n % 7 else None for n in range(count)]
    fields = {"id": range(count), "wide": wide, "v": range(count), "f": [None] * count}
    first = pa.table(
        fields, pa.schema({"id": pa.int64(), "wide": pa.string(), "v": pa.int64(), "f": pa.float64()})
    )
    table = new_table(folder, "db.compared", schema=first.schema)
    table.append(first)

    def upsert(**changed: Any) -> tuple[tuple[int, int, int, int], int]:
        files, before = table.access, table.access.io()
        new = first
        for name, values in changed.items():
            new = new.set_column(new.schema.get_field_index(name), first.schema.field(name), [values])
        report = table.upsert(new)
        assert table.scan(order_by="id").to_arrow().cast(new.schema).equals(new)
        read = (files.io() - before).bytes
        table.upsert(first)
        return counts(report), read

    half = count // 2
    everywhere = [n + 1 for n in range(count)]
    every_row, few_bytes = upsert(v=everywhere)
    assert every_row == (0, count, 0, 0)
    none, all_bytes = upsert()
    assert none == (0, 0, 0, count)
    # The wide column is not read where another differs, except of a few rows.
    assert 64 * count < all_bytes
    assert 8 * count < few_bytes < all_bytes / 2
    assert upsert(v=[n + (n < half) for n in range(count)])[0] == (0, half, 0, half)
    assert upsert(wide=[None] * half + wide[half:])[0] == (0, half - half // 7 - 1, 0, half + half // 7 + 1)
    some, others = [*everywhere[:2_000], *range(2_000, count)], [None] * 2_500 + [0.5] * 500
    assert upsert(v=some, f=others)[0] == (0, 2_500, 0, 500)
    assert upsert(v=[0, *everywhere[1:]])[0] == (0, count - 1, 0, 1)


def test_delete_files_of_one_data_file_each(folder: Path) -> None:
    """As the native reader of Polars needs them."""
    table = new_table(folder, "db.by_file", properties={"write.delete.granularity": "file"})
    for first in (0, 10, 20):
        table.append(rows(range(first, first + 10)))
    report = table.delete(keys=[3, 4, 15, 27])
    assert (report.deleted, report.delete_files) == (4, 3)
    matches = table.plan_files().deletes
    assert matches is not None
    assert matches.positions.counts.tolist() == [1, 1, 1]
    expected = sorted_rows(table.scan().to_arrow(), table.schema)
    for other in as_others_read(table, "native"):
        assert sorted_rows(other, table.schema).equals(expected)


def test_partitions_have_delete_files_of_their_own(folder: Path) -> None:
    schema = pa.schema({"id": pa.int64(), "region": pa.string(), "v": pa.int64()})
    table = new_table(folder, "db.parts", schema=schema, partition_by=["region"])
    data = pa.table({"id": range(90), "region": ["a", "b", None] * 30, "v": range(90)}, schema)
    table.append(data)
    report = table.upsert(pa.table({"id": [0, 1, 2, 3], "region": ["a", "c", "b", "a"], "v": [0, -1, -2, 3]}))
    # Rows 1 and 2 move to another partition.
    assert counts(report) == (0, 2, 0, 2)
    assert (report.files, report.delete_files) == (2, 2)
    assert table.get(1) == {"id": 1, "region": "c", "v": -1}
    matches = table.plan_files().deletes
    assert matches is not None
    assert sorted(matches.positions.counts.tolist()) == [0, 0, 0, 1, 1]
    agree(table)


def test_other_writers_are_checked(table: sk.Table) -> None:
    other = sk.open(table.name, catalog=table.table.catalog)
    required = pa.schema([SCHEMA.field("id").with_nullable(False), *list(SCHEMA)[1:]])
    other.table.append(rows([1000, 1001]).cast(required))
    assert table.upsert(rows([1000], v=1)).updated == 1
    other.refresh().table.append(rows([1000, 1001]).cast(required))
    with pytest.raises(sk.DuplicateKeyError, match="2 keys occur more than once: id = 1000; id = 1001"):
        table.refresh().upsert(rows([5]))
    with pytest.raises(sk.DuplicateKeyError, match="id = 1001"):
        table.get(1001)


def test_a_table_of_another_engine_is_checked_once(folder: Path) -> None:
    plain = sk.catalog(folder).create_table("db.adopted", SCHEMA)
    plain.table.append(rows([1, 2, 3, 2]))
    with plain.table.update_schema(allow_incompatible_changes=True) as update:
        update.update_column("id", required=True)
        update.set_identifier_fields("id")
    table = sk.open("db.adopted", catalog=folder)
    with pytest.raises(sk.DuplicateKeyError, match="1 key occurs more than once: id = 2"):
        table.upsert(rows([9]))
    plain.refresh().table.overwrite(rows([1, 2, 3]).cast(table.table.schema().as_arrow()))
    assert table.refresh().upsert(rows([9])).inserted == 1
    requests = table.io.requests
    assert table.upsert(rows([10])).inserted == 1
    assert table.io.requests - requests < 40


def test_ingest_appends_and_checks_keys(table: sk.Table) -> None:
    report = sk.ingest(rows([300, 301]), table, engine="local", index=False)
    assert report.snapshot == table.snapshot
    assert table.metadata.current_snapshot().summary["skipstone.key"] == "1"
    files = set(Path(table.uri.removeprefix("file://")).rglob("*.parquet"))
    for ids in ([5, 400], [400, 400]):
        with pytest.raises(sk.DuplicateKeyError):
            sk.ingest(rows(ids), table, engine="local")
    assert set(Path(table.uri.removeprefix("file://")).rglob("*.parquet")) == files
    for options in ({"overwrite": "all"}, {"where": "id < 5"}):
        with pytest.raises(sk.UsageError, match="keyed table can't be overwritten"):
            sk.ingest(rows([1]), table, engine="local", mode="overwrite", **options)
    assert table.scan().count() == 102
    with pytest.raises(sk.UsageError, match="opened at snapshot"):
        sk.ingest(rows([999]), table.at(table.snapshot), engine="local")
    assert set(Path(table.uri.removeprefix("file://")).rglob("*.parquet")) == files


TWICE = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["id", "id"])
TOO_LARGE = [{"id": 2**70}]
MISTAKES: list[tuple[Callable[[sk.Table], Any], str]] = [
    (lambda t: t.upsert(pa.table({"id": pa.array([None], pa.int64())})), "key can't be NULL"),
    (lambda t: t.append(pa.table({"id": pa.array([None], pa.int64())})), "key can't be NULL"),
    (lambda t: t.merge(pa.table({"id": pa.array([None], pa.int64())})), "key can't be NULL"),
    (lambda t: t.upsert(pa.table({"v": [1]})), "required column is missing"),
    (lambda t: t.upsert(pa.table({"id": ["a"]})), "column is string here, but int64 .*cast the column"),
    (lambda t: t.upsert("new.csv"), r"str can't be written as rows.*or read them first"),
    (lambda t: t.get([1, 2]), "get takes one key, not 2"),
    (lambda t: t.get([]), "get takes one key, not 0"),
    (lambda t: t.upsert(pa.table({"id": [1], "w": [1]})), "no such column"),
    (lambda t: t.delete(), "delete needs a condition or keys"),
    (lambda t: t.delete("id = 1", keys=[1]), "delete needs a condition or keys"),
    (lambda t: t.update("id = 1", {"id": 2}), "key column can't be set"),
    (lambda t: t.update("id = 1", {"x": 2}), "no such column"),
    (lambda t: t.update("id = 1", {}), "sets no column"),
    (lambda t: t.update("id = 1", {"v": b"x"}), "is not a value of type int64"),
    (lambda t: t.merge(rows([1]), on="v"), "rows can't be matched by v"),
    (lambda t: t.merge(rows([1]), when_matched="replace"), "unknown action 'replace'"),
    (lambda t: t.merge(rows([1]), when_not_matched="update"), "unknown action 'update'"),
    (lambda t: t.merge(rows([1, 1])), "a key more than once: id = 1"),
    (lambda t: t.at(t.snapshot).upsert(rows([1])), "table was opened at snapshot"),
    (lambda t: t.upsert(rows([1]), token=""), "token must be"),
    (lambda t: t.upsert(TOO_LARGE), "integer that is too large"),
    (lambda t: t.append(TOO_LARGE), "integer that is too large"),
    (lambda t: t.merge(TOO_LARGE), "integer that is too large"),
    (lambda t: t.delete(keys=TWICE), "column id: two columns have this name"),
    (lambda t: t.get_many(TWICE), "column id: two columns have this name"),
    (lambda t: t.upsert(TWICE), "column id: two columns have this name"),
    (lambda t: t.merge(rows([1]).append_column("v", pa.array([1]))), "column v: two columns have this name"),
    (lambda t: t.append([1]), "list must hold dictionaries, but holds int"),
    (lambda t: t.upsert([{"id": 1}, (2,)]), "list must hold dictionaries, but holds tuple"),
    (lambda t: t.merge(pa.table({"id": [1], "v": ["x"]})), "but int64 in the table's schema"),
    (lambda t: t.update("id = 1", {"v": "s"}), "but int64 in the table's schema"),
]


def test_mistakes_say_what_to_do(table: sk.Table) -> None:
    before = table.snapshot
    assert table.get([7]) == table.get(7)
    for mistake, problem in MISTAKES:
        with pytest.raises(sk.SkipstoneError, match=problem) as error:
            mistake(table)
        assert error.value.hint, problem
    assert table.refresh().snapshot == before


def test_an_empty_list_has_no_rows(table: sk.Table) -> None:
    for write in (table.append, table.upsert, table.merge):
        assert counts(write([])) == (0, 0, 0, 0)
    with table.transaction() as changes:
        changes.merge([], when_matched="update")
        with pytest.raises(sk.UsageError, match="integer that is too large"):
            changes.upsert(TOO_LARGE)
    assert table.scan().count() == 100


def test_columns_without_values_have_no_type(folder: Path) -> None:
    schema = pa.schema({"id": pa.int64(), **{one.name: one.type for one in EVERY_TYPE.schema}})
    for name, values in NESTED.items():
        schema = schema.append(pa.field(name, values.type))
    table = new_table(folder, "db.untyped", schema=schema)
    nothing = dict.fromkeys(schema.names[1:])
    assert table.upsert([{"id": 1, **nothing}]).inserted == 1
    sk.ingest([{"id": 2, **nothing}], table, engine="local", index=False)
    sk.ingest(pa.Table.from_pylist([{"id": 3, **nothing}]), table, engine="local", index=False)
    assert content(table.refresh()) == [{"id": number, **nothing} for number in (1, 2, 3)]


def test_reports_are_shown(table: sk.Table) -> None:
    report = table.upsert(rows([1, 300], v=1))
    assert str(report).splitlines()[0] == "rows: 1 inserted, 1 updated"
    assert "upsert committed as snapshot" in report._repr_html_()
    data = report.to_json()
    assert data["rows"] == {"inserted": 1, "updated": 1, "deleted": 0, "unchanged": 0}
    assert data["snapshot"] == report.snapshot
    assert "nothing changed" in str(table.upsert(rows([1], v=1)))


def test_all_key_columns_decide(folder: Path) -> None:
    """Pages whose bounds prove each key column have other pairs too."""
    schema = pa.schema({"a": pa.int64(), "b": pa.string(), "v": pa.int64()})
    table = new_table(folder, "db.pairs", schema=schema, key=["a", "b"])
    pairs = [(a, b) for a in range(3) for b in "xyz"]
    table.append(
        pa.table({"a": [a for a, _ in pairs], "b": [b for _, b in pairs], "v": list(range(9))}, schema)
    )
    wanted = [(2, "x"), (0, "z"), (1, "y")]
    assert table.get_many(wanted)["v"].to_pylist() == [pairs.index(pair) for pair in wanted]
    assert table.delete(keys=wanted).deleted == 3
    assert table.get_many(pairs, ["v"])["v"].to_pylist() == [0, 1, 3, 5, 7, 8]


def test_a_warm_get_reads_only_pages_in_few_calls(table: sk.Table) -> None:
    table.index.build(engine="local")
    fresh = sk.open(table.name, catalog=table.table.catalog)
    assert fresh.get(3) is not None
    before, index = fresh.access.io(), fresh.index.access.io()
    assert fresh.get(77) == {"id": 77, "v": 770, "s": "a"}
    assert 1 <= (fresh.access.io() - before).requests <= 3
    assert (fresh.index.access.io() - index).requests == 0
    found: list[Any] = []
    assert 300 < calls(lambda: found.append(fresh.get(78))) <= 720
    # Of a key that is not there, nothing is read.
    assert 100 < calls(lambda: found.append(fresh.get(1_234_567))) <= 300
    assert found == [{"id": 78, "v": 780, "s": "a"}, None]


def test_get_and_get_many(table: sk.Table) -> None:
    assert table.get(7) == {"id": 7, "v": 70, "s": "a"}
    assert table.get({"id": 7}, ["v"]) == {"v": 70}
    assert table.get(700) is None
    found = table.get_many([50, 700, 3, 50], ["id"])
    assert found["id"].to_pylist() == [50, 3]
    assert pc.sum(table.get_many(pa.array(range(0, 300, 3)))["v"]).as_py() == sum(range(0, 100, 3)) * 10
    assert table.get_many([]).num_rows == 0


NUMBERS: list[tuple[str, str, Callable[[sk.Table], Any]]] = [
    ("write.target-file-size-bytes", "512MB", lambda t: t.compact()),
    ("write.parquet.row-group-limit", "-5", lambda t: sk.ingest(rows([600]), t, engine="local")),
    ("write.parquet.row-group-size-bytes", "", lambda t: t.compact()),
    ("write.parquet.page-row-limit", str(2**64), lambda t: t.append(rows([500]))),
    ("write.parquet.compression-level", "high", lambda t: t.append(rows([500]))),
    ("write.metadata.metrics.max-inferred-column-defaults", "all", lambda t: t.append(rows([500]))),
    ("commit.retry.num-retries", "1.5", lambda t: t.delete("id = 2")),
    ("commit.retry.min-wait-ms", "-1", lambda t: t.delete("id = 2")),
    ("commit.retry.max-wait-ms", "5s", lambda t: t.update("id = 2", {"v": 5})),
    ("commit.manifest.target-size-bytes", "8MB", lambda t: t.rewrite_manifests(rewrite_all=True)),
    ("history.expire.min-snapshots-to-keep", "0", lambda t: t.expire()),
]


@pytest.mark.parametrize(("name", "value", "write"), NUMBERS, ids=[name for name, *_ in NUMBERS])
def test_properties_that_are_no_numbers(
    name: str, value: str, write: Callable[[sk.Table], Any], folder: Path, table: sk.Table
) -> None:
    def set_property(value: str) -> sk.Table:
        # Some of them are read by pyiceberg's transactions too.
        values = {name: value, "write.parquet.compression-codec": "zstd"}
        table.refresh().table._do_commit((SetPropertiesUpdate(updates=values),), ())
        return table.refresh()

    wrong = set_property(value)
    writes = [write, lambda t: t.upsert(rows([1, 300], v=1))]
    writes = writes[: 1 if name.startswith("history") else 2]
    files = set(folder.rglob("*.parquet"))
    for one in writes:
        with pytest.raises(sk.UsageError, match=f"{name} must be an integer of .* got '{value}'") as error:
            one(wrong)
        assert error.value.path == table.name
    assert set(folder.rglob("*.parquet")) == files
    set_property("5")
    for one in writes:
        one(table.refresh())


@pytest.mark.parametrize("properties", [{"run": 7}, {"total-records": "1"}, "nightly"])
def test_properties_that_others_could_not_read(properties: Any, table: sk.Table) -> None:
    before = table.snapshot
    with pytest.raises(sk.UsageError, match="propert"):
        table.upsert(rows([1], v=9), properties=properties)
    with pytest.raises(sk.UsageError, match="propert"):
        table.transaction(properties=properties)
    assert table.refresh().snapshot == before
