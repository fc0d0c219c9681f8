"""The writer of a tail: what is seen when, flushes, recovery, limits, and errors in the background."""

from __future__ import annotations

import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import LongType, StringType

import skipstone as sk
from skipstone.errors import SkipstoneError
from tests.table.tail.conftest import Gate

SCHEMA = pa.schema({"id": pa.int64(), "v": pa.int64()})
Rows = dict[int, int | None]


@pytest.fixture
def catalog(tmp_path: Path) -> sk.Catalog:
    return sk.catalog(tmp_path / "w")


@pytest.fixture
def table(catalog: sk.Catalog) -> sk.Table:
    return catalog.create_table("db.t", SCHEMA, key=["id"])


def rows(**pairs: int) -> pa.Table:
    """Rows as in ``rows(k3=30)``."""
    return pa.table([[int(key[1:]) for key in pairs], list(pairs.values())], schema=SCHEMA)


def writer_of(table: sk.Table, **options: Any) -> sk.TailWriter:
    """A writer that flushes only when it is told to, or when it is full."""
    return table.writer(**{"flush_seconds": None, "sync": "off", **options})


def content(table: sk.Table | sk.Transaction, where: str | None = None) -> Rows:
    found = table.scan(where).to_arrow()
    ids = found["id"].to_pylist()
    assert len(set(ids)) == len(ids)
    return dict(zip(ids, found["v"].to_pylist(), strict=True))


def committed(catalog: sk.Catalog) -> Rows:
    """What everybody else sees."""
    return content(catalog.open("db.t"))


# -- what is seen ------------------------------------------------------------------------------


def test_rows_are_seen_at_once_and_committed_by_a_flush(catalog: sk.Catalog, table: sk.Table) -> None:
    with writer_of(table) as writer:
        assert writer.upsert(rows(k1=10, k2=20, k3=30)) == 3
        assert writer.delete(keys=[2, 99]) == 2
        assert content(table) == {1: 10, 3: 30}
        assert (table.scan().count(), len(table.scan())) == (2, 2)
        assert table.scan("v > 15").aggregate(sk.count(), sk.sum("v")).to_pylist()[0] == {
            "count": 1,
            "sum(v)": 30,
        }
        assert (table.get(1), table.get(2)) == ({"id": 1, "v": 10}, None)
        assert table.get_many([3, 2, 1])["v"].to_pylist() == [30, 10]
        assert "tail: 2 of 2 uncommitted rows" in table.scan().explain()
        assert (table.snapshot, committed(catalog)) == (None, {})
        number = writer.flush()
        assert number == table.snapshot == catalog.open("db.t").snapshot
        assert content(table) == committed(catalog) == {1: 10, 3: 30}
        writer.upsert(rows(k1=11))
        writer.delete(keys=3)
        assert content(table) == {1: 11}
        assert content(table.at(number)) == {1: 10, 3: 30}
    assert content(table) == committed(catalog) == {1: 11}
    assert [one.summary["skipstone.tail-floor"] for one in table.snapshots()] == ["2", "4"]


def test_a_scan_keeps_what_it_began_with(table: sk.Table) -> None:
    with writer_of(table) as writer:
        writer.upsert(rows(k1=10))
        before = table.scan()
        writer.upsert(rows(k1=11, k2=20))
        between = table.scan()
        writer.flush()
        writer.delete(keys=1)
        after = table.scan()
        assert [scan.to_arrow().num_rows for scan in (before, between, after)] == [1, 2, 1]
        assert before.to_arrow()["v"].to_pylist() == [10]
        # Plans can be executed anywhere, with the rows in memory.
        assert sorted(sk.execute(between.plan()).to_arrow()["v"].to_pylist()) == [11, 20]


def test_a_scan_without_a_tail_keeps_its_snapshot(catalog: sk.Catalog, table: sk.Table) -> None:
    """Whether it is planned before the next write or after it."""
    empty = table.scan()
    table.append(rows(k1=10))
    unplanned, planned = table.scan(), table.scan("id > 0")
    assert planned.count() == 1
    table.upsert(rows(k1=11, k2=20))
    catalog.open("db.t").delete(keys=2)
    newest = table.refresh().scan()
    scans = (empty, unplanned, planned, newest)
    assert [scan.to_arrow()["v"].to_pylist() for scan in scans] == [[], [10], [10], [11]]
    assert [len(scan.plan().tasks) for scan in scans] == [0, 1, 1, 1]
    assert (unplanned.aggregate(sk.max("v")).to_pylist(), len(unplanned)) == ([{"max(v)": 10}], 1)


def test_the_last_of_several_rows_of_a_call_wins(table: sk.Table) -> None:
    with writer_of(table) as writer:
        twice = pa.concat_tables([rows(k1=1, k2=2), rows(k1=3)])
        assert writer.upsert(twice) == 2
        assert content(table) == {1: 3, 2: 2}
        assert writer.upsert(twice.slice(0, 0)) == 0


def test_nothing_to_change_makes_no_snapshot(table: sk.Table) -> None:
    with writer_of(table) as writer:
        writer.delete(keys=[5, 6])
        assert writer.flush() is None
        assert table.tail_status().calls == 0
        writer.upsert(rows(k1=1))
    assert len(table.snapshots()) == 1
    assert table.tail_status().floor == 2


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (pa.table({"id": [None], "v": [1]}, SCHEMA), "key can't be NULL"),
        (pa.table({"id": [1], "w": [1]}), "table has no such column"),
        (pa.table({"v": [1]}), "required column is missing"),
        (pa.table({"id": ["a"], "v": [1]}), "column is string here, but int64"),
    ],
)
def test_wrong_rows_are_refused(table: sk.Table, data: pa.Table, problem: str) -> None:
    with writer_of(table) as writer:
        with pytest.raises(SkipstoneError, match=problem):
            writer.upsert(data)
        with pytest.raises(SkipstoneError):
            writer.delete(keys=[None])
        writer.upsert(pa.table({"id": [1]}))
        assert content(table) == {1: None}
        assert table.tail_status().calls == 1


@pytest.mark.parametrize(
    ("by", "column"),
    [
        ("truncate(10, v)", pa.array([-(2**31)], pa.int32())),
        ("truncate(3, v)", pa.array([-(2**63)], pa.int64())),
        ("hour(v)", pa.array([2**63 - 1], pa.int64()).view(pa.timestamp("us"))),
        ("truncate(50, v)", pa.array([Decimal("-9.99")], pa.decimal128(3, 2))),
    ],
)
def test_rows_that_no_partition_can_hold_are_refused_at_once(
    catalog: sk.Catalog, by: str, column: pa.Array
) -> None:
    """Like in any other write; no later flush could commit them, nor anything after them."""
    data = pa.table({"id": pa.array([1]), "v": column})
    table = catalog.create_table("db.parted", data.schema, key=["id"], partition_by=[by])
    nothing = data.set_column(1, "v", pa.nulls(1, column.type))
    with writer_of(table) as writer:
        for write in (writer.upsert, table.upsert):
            with pytest.raises(sk.SchemaError, match="out of range of the partition transform"):
                write(data)
        writer.upsert(nothing)
    assert table.scan().to_arrow().to_pylist() == [{"id": 1, "v": None}]


# -- other writers -----------------------------------------------------------------------------


def test_compactions_and_commits_of_others_between_flushes(catalog: sk.Catalog, table: sk.Table) -> None:
    table.append(rows(k1=1, k2=2, k3=3, k4=4))
    with writer_of(table) as writer:
        writer.upsert(rows(k1=10))
        assert content(table) == {1: 10, 2: 2, 3: 3, 4: 4}
        other = catalog.open("db.t")
        other.upsert(rows(k2=20, k9=90))
        other.compact(other.plan_compaction(rewrite_all=True), engine="local", threads=1)
        # This table object is at its own snapshot until it is refreshed.
        assert content(table) == {1: 10, 2: 2, 3: 3, 4: 4}
        assert content(table.refresh()) == {1: 10, 2: 20, 3: 3, 4: 4, 9: 90}
        other.refresh().delete(keys=[3])
        writer.upsert(rows(k3=30))
        writer.flush()
        assert content(table) == committed(catalog) == {1: 10, 2: 20, 3: 30, 4: 4, 9: 90}
        # A flush replaces rows that others committed meanwhile.
        writer.upsert(rows(k4=40))
        other.refresh().upsert(rows(k4=41))
        assert content(table)[4] == 40
    assert committed(catalog)[4] == 40


def test_other_writes_of_the_table_object_come_after_the_tail(catalog: sk.Catalog, table: sk.Table) -> None:
    with writer_of(table) as writer:
        writer.upsert(rows(k1=1, k2=2))
        table.upsert(rows(k1=10))
        assert content(table) == {1: 10, 2: 2}
        writer.upsert(rows(k3=3))
        assert table.delete("v >= 3").deleted == 2
        assert content(table) == {2: 2}
        assert len(table.snapshots()) == 4
    assert committed(catalog) == {2: 2}


def test_names_and_rollbacks_include_the_tail(catalog: sk.Catalog, table: sk.Table) -> None:
    with writer_of(table) as writer:
        writer.upsert(rows(k1=1))
        table.create_tag("one")
        assert content(table.at("one")) == {1: 1}
        writer.upsert(rows(k1=2, k2=2))
        table.rollback("one")
        assert content(table) == committed(catalog) == {1: 1}
        assert table.tail_status().calls == 0
        writer.upsert(rows(k3=3))
        assert content(table) == {1: 1, 3: 3}
    assert committed(catalog) == {1: 1, 3: 3}
    # What was rolled back is not recovered, either.
    writer_of(table).close()
    assert committed(catalog) == {1: 1, 3: 3}


def test_an_index_covers_flushed_files(table: sk.Table) -> None:
    table.append(rows(k1=1))
    table.index.build(engine="local")
    with writer_of(table) as writer:
        writer.upsert(rows(k2=2))
        writer.flush()
        assert content(table, "id = 2") == {2: 2}
    status = table.refresh().index.status()
    assert (status.covered, status.files) == (2, 2)


# -- one writer, and where its log is ----------------------------------------------------------


def test_a_table_has_one_writer(catalog: sk.Catalog, table: sk.Table) -> None:
    writer = writer_of(table)
    for other in (table, catalog.open("db.t")):
        with pytest.raises(sk.ConflictError, match=r"db\.t already has a tail writer: process"):
            writer_of(other)
    assert table.tail_status().open
    writer.upsert(rows(k1=1))
    writer.close()
    writer.close()
    for call in (writer.flush, lambda: writer.upsert(rows(k2=2)), lambda: writer.delete(keys=1)):
        with pytest.raises(sk.UsageError, match="tail writer is closed"):
            call()
    assert not table.tail_status().open
    writer_of(catalog.open("db.t")).close()


def test_rows_stay_in_the_log_until_the_next_writer(catalog: sk.Catalog, table: sk.Table) -> None:
    writer = writer_of(table)
    writer.upsert(rows(k1=1, k2=2))
    writer.flush()
    writer.upsert(rows(k1=10))
    writer.delete(keys=2)
    writer.close(flush=False)
    assert content(table) == {1: 1, 2: 2}
    later = catalog.open("db.t")
    status = later.tail_status()
    assert (status.calls, status.rows, status.deletes, status.floor, status.last) == (2, 1, 1, 1, 3)
    assert (status.open, status.torn, status.segments) == (False, 0, 1)
    assert "1 row, 1 deleted key in 2 unflushed calls" in str(status)
    for _ in range(2):
        writer = writer_of(later)
        assert content(later) == {1: 10}
        writer.close(flush=False)
    with writer_of(later) as writer:
        writer.upsert(rows(k3=3))
    assert committed(catalog) == {1: 10, 3: 3}
    assert later.tail_status().calls == 0


def test_an_error_in_the_block_keeps_rows_in_the_log(catalog: sk.Catalog, table: sk.Table) -> None:
    def fail() -> None:
        with writer_of(table) as writer:
            writer.upsert(rows(k1=1))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert (committed(catalog), table.tail_status().calls) == ({}, 1)
    writer_of(table).close()
    assert committed(catalog) == {1: 1}


def test_another_directory_is_recorded_in_the_table(
    catalog: sk.Catalog, table: sk.Table, tmp_path: Path
) -> None:
    beside = tmp_path / "w" / "db" / ".skipstone-tail"
    writer = writer_of(table)
    writer.upsert(rows(k1=1))
    assert table.tail_status().path == f"{beside}/{table.metadata.table_uuid}"
    for keeps in (True, False):
        with pytest.raises(sk.ConflictError, match=r"already has a tail writer|unflushed rows in another"):
            writer_of(catalog.open("db.t"), wal=tmp_path / "logs")
        if keeps:
            writer.close(flush=False)
    writer_of(table).close()
    writer = writer_of(table, wal=tmp_path / "logs")
    writer.upsert(rows(k2=2))
    writer.close(flush=False)
    later = catalog.open("db.t")
    assert later.tail_status().path == f"{tmp_path}/logs/{later.metadata.table_uuid}"
    writer_of(later).close()
    assert committed(catalog) == {1: 1, 2: 2}
    # On a host without the directory nobody can tell what is in it.
    (tmp_path / "logs").rename(tmp_path / "elsewhere")
    for options in ({}, {"wal": tmp_path / "other"}):
        with pytest.raises(sk.ConflictError, match="tail of the table is not in this directory on this host"):
            writer_of(catalog.open("db.t"), **options)
    with pytest.raises(sk.UsageError, match="wal= is not a local directory: s3://bucket/logs"):
        writer_of(table, wal="s3://bucket/logs")
    with pytest.raises(sk.UsageError, match="below the table's location"):
        writer_of(table, wal=tmp_path / "w" / "db" / "t" / "wal")


def test_a_property_can_not_name_any_directory(catalog: sk.Catalog, table: sk.Table, tmp_path: Path) -> None:
    """The author of a table does not say where others write files; its user does."""
    wanted = tmp_path / "precious"
    wanted.mkdir()

    def claim(**properties: str) -> None:
        with catalog.open("db.t").table.transaction() as change:
            change.set_properties({"skipstone.tail." + name: value for name, value in properties.items()})

    claim(wal=str(wanted))
    with pytest.raises(sk.ConflictError, match="tail of the table is not in this directory on this host"):
        writer_of(catalog.open("db.t"))
    claim(id="00ff")
    with pytest.raises(sk.ConflictError, match="tail of the table is not in this directory on this host"):
        writer_of(catalog.open("db.t"))
    careful = catalog.open("db.t", stay_below_root=True)
    for call in (careful.tail_status, lambda: writer_of(careful)):
        with pytest.raises(sk.UsageError, match=r"skipstone\.tail\.wal names a directory outside the table"):
            call()
    assert list(wanted.iterdir()) == []
    for name in ("relative/logs", "s3://bucket/logs", "/a\0b", ""):
        claim(wal=name)
        with pytest.raises(sk.UsageError, match="directory of the tail is not an absolute path"):
            writer_of(catalog.open("db.t"))
    with pytest.raises(sk.UsageError, match="wal= is not a local directory"):
        writer_of(catalog.open("db.t"), wal="/a\0b")


def test_a_table_that_stays_below_its_root_has_a_tail(catalog: sk.Catalog, table: sk.Table) -> None:
    careful = catalog.open("db.t", stay_below_root=True)
    with writer_of(careful) as writer:
        writer.upsert(rows(k1=1))
    assert careful.tail_status().floor == 1


def test_a_tail_that_was_moved_fences_its_writer(catalog: sk.Catalog, table: sk.Table) -> None:
    writer = writer_of(table)
    writer.upsert(rows(k1=1))
    with catalog.open("db.t").table.transaction() as change:
        change.set_properties({"skipstone.tail.wal": "/elsewhere", "skipstone.tail.id": "77"})
    with pytest.raises(sk.ConflictError, match=r"tail writer of db\.t has lost its lease"):
        writer.flush()
    assert committed(catalog) == {}
    writer.close(flush=False)


def test_tables_that_have_no_tail(catalog: sk.Catalog, table: sk.Table) -> None:
    plain = catalog.create_table("db.plain", SCHEMA)
    with pytest.raises(sk.UsageError, match="table has no key"):
        writer_of(plain)
    table.append(rows(k1=1))
    with pytest.raises(sk.UsageError, match="table was opened at snapshot"):
        writer_of(table.at(table.snapshots()[0].id))
    assert catalog.open("db.t").tail_status().holder is None


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"sync": "often"}, "unknown sync policy 'often'"),
        ({"flush_rows": 0}, "flush_rows is 0"),
        ({"flush_seconds": 0}, "flush_seconds is 0"),
        ({"memory": 100}, "flush_bytes is 67,108,864, which is more than memory=100"),
    ],
)
def test_wrong_options(table: sk.Table, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(sk.UsageError, match=problem):
        writer_of(table, **options)
    assert not table.tail_status().open


# -- changed schemas ---------------------------------------------------------------------------


def test_rows_are_recovered_under_a_later_schema(catalog: sk.Catalog) -> None:
    schema = pa.schema({"id": pa.int32(), "v": pa.int32(), "old": pa.string()})
    table = catalog.create_table("db.t", schema, key=["id"])
    writer = writer_of(table)
    writer.upsert(pa.table({"id": [1, 2], "v": [10, 20], "old": ["x", "y"]}, schema))
    writer.delete(keys=2)
    with catalog.open("db.t").table.update_schema() as change:
        change.add_column("new", StringType())
        change.rename_column("v", "value")
        change.update_column("id", LongType())
        change.delete_column("old")
    # The table object has the schema of its snapshot, and the flush that of the table.
    assert table.scan().to_arrow().to_pylist() == [{"id": 1, "v": 10, "old": "x"}]
    writer.close(flush=False)
    later = catalog.open("db.t")
    with writer_of(later):
        assert later.scan().to_arrow().to_pylist() == [{"id": 1, "value": 10, "new": None}]
    assert catalog.open("db.t").scan().to_arrow().to_pylist() == [{"id": 1, "value": 10, "new": None}]


# -- the background ----------------------------------------------------------------------------


def test_a_full_memtable_is_flushed_in_the_background(gate: Gate) -> None:
    table = sk.catalog(gate).create_table("db.t", SCHEMA, key=["id"])
    gate.opens.clear()
    gate.waiting.clear()
    with writer_of(table, flush_rows=2) as writer:
        writer.upsert(rows(k1=1))
        assert not gate.waiting.is_set()
        writer.upsert(rows(k2=2))
        assert gate.waiting.wait(60)
        # Sealed, being flushed, and not lost to readers; writes go on.
        writer.upsert(rows(k1=10))
        assert content(table) == {1: 10, 2: 2}
        gate.opens.set()
        writer.flush()
        assert content(table) == {1: 10, 2: 2}
    floors = [one.summary["skipstone.tail-floor"] for one in table.snapshots()]
    assert floors == ["2", "3"]


def test_old_rows_are_flushed_without_another_call(gate: Gate) -> None:
    table = sk.catalog(gate).create_table("db.t", SCHEMA, key=["id"])
    gate.waiting.clear()
    with writer_of(table, flush_seconds=0.001) as writer:
        writer.upsert(rows(k1=1))
        assert gate.waiting.wait(60)


def test_writes_wait_for_memory(gate: Gate) -> None:
    table = sk.catalog(gate).create_table("db.t", SCHEMA, key=["id"])
    gate.opens.clear()
    gate.waiting.clear()
    many = pa.table([list(range(1000)), [0] * 1000], schema=SCHEMA)
    writer = writer_of(table, memory=60_000, flush_bytes=60_000)
    writer.upsert(many)
    done = threading.Event()

    def write() -> None:
        for number in range(1, 4):
            writer.upsert(pa.table([list(range(1000)), [number] * 1000], schema=SCHEMA))
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    assert gate.waiting.wait(60)
    # The commit can't end, so memory can't become free.
    assert not done.wait(0.05)
    assert table.scan().count() == 1000
    gate.opens.set()
    assert done.wait(60)
    thread.join()
    writer.close()
    assert set(content(table).values()) == {3}
    assert len(table.snapshots()) > 1


def test_what_fails_in_the_background_is_raised_by_the_next_call(gate: Gate) -> None:
    table = sk.catalog(gate).create_table("db.t", SCHEMA, key=["id"])
    gate.failure = ValueError("no space left")
    writer = writer_of(table, flush_rows=1)
    gate.waiting.clear()
    writer.upsert(rows(k1=1))
    assert gate.waiting.wait(60)

    def write_on() -> None:
        for _ in range(10_000):
            writer.delete(keys=99)
            threading.Event().wait(0.002)

    with pytest.raises(SkipstoneError, match="no space left"):
        write_on()
    assert content(table) == {1: 1}
    with pytest.raises(SkipstoneError, match="no space left"):
        writer.flush()
    gate.failure = None
    writer.flush()
    writer.close()
    assert content(table) == {1: 1}


def test_a_failed_flush_at_the_end_keeps_the_rows(gate: Gate) -> None:
    catalog = sk.catalog(gate)
    table = catalog.create_table("db.t", SCHEMA, key=["id"])
    gate.failure = ValueError("no space left")
    with pytest.raises(SkipstoneError, match="no space left"), writer_of(table) as writer:
        writer.upsert(rows(k1=1))
    gate.failure = None
    later = catalog.open("db.t")
    assert not later.tail_status().open
    with writer_of(later):
        assert content(later) == {1: 1}
    assert committed(catalog) == {1: 1}


def test_many_threads_share_a_writer(table: sk.Table) -> None:
    """Readers see each call as a whole, and never less than before."""
    writer = writer_of(table, sync="every", flush_rows=40)
    failed: list[BaseException] = []

    def write(first: int) -> None:
        for number in range(1, 11):
            writer.upsert(pa.table([[first, first + 1], [number, number]], schema=SCHEMA))

    def read(stop: threading.Event) -> None:
        before: Rows = {}
        try:
            while not stop.is_set():
                now = content(table)
                assert all(now.get(key, -1) >= value for key, value in before.items())  # type: ignore[operator]
                assert all(now[key] == now[key + 1] for key in now if not key % 2)
                before = now
        except BaseException as error:
            failed.append(error)

    stop = threading.Event()
    writers = [threading.Thread(target=write, args=(2 * n,)) for n in range(3)]
    reader = threading.Thread(target=read, args=(stop,))
    for thread in (*writers, reader):
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    reader.join()
    assert not failed, failed
    writer.close()
    assert content(table) == dict.fromkeys(range(6), 10)
