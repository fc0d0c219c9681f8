"""Tables as they were: by id, tag, branch and time, in every version of the format, expired and empty."""

from __future__ import annotations

import datetime as dt
import gzip
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import skipstone as sk
from skipstone.errors import UsageError
from tests.iceberg._maker import Maker
from tests.iceberg._table import Snapshot

COLUMNS = [("id", "long"), ("s", "string"), ("old", "int")]


def some(first: int, last: int, **more: Any) -> list[dict[str, Any]]:
    return [{"id": n, "s": f"s{n}", "old": n % 5, **more} for n in range(first, last)]


@pytest.fixture(scope="module", params=[1, 2, 3])
def made(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Maker, list[Snapshot]]:
    """Four snapshots: an append, one under another schema, an overwrite, and one of a branch."""
    version = request.param
    root = tmp_path_factory.mktemp(f"v{version}")
    maker = Maker(root, COLUMNS, [("id", "bucket[3]")], format_version=version, seed=version)
    first = maker.append(some(0, 10))
    maker.tag("first")
    maker.evolve_schema(add={"new": "int"}, rename={"s": "text"}, drop=["old"])
    second = maker.append([{"id": n, "text": f"t{n}", "new": n} for n in range(10, 20)])
    maker.branch("dev")
    gone = {one.file.path for one in maker.live()[:2]}
    third = maker.overwrite([{"id": 100, "text": "o", "new": 1}], gone)
    fourth = maker.append([{"id": 500, "text": "dev", "new": 9}], branch="dev")
    return maker, [first, second, third, fourth]


def time(snapshot: Snapshot, millis: int = 0) -> dt.datetime:
    return dt.datetime.fromtimestamp(snapshot.time / 1000, dt.UTC) + dt.timedelta(milliseconds=millis)


def test_every_way_to_name_a_snapshot(made: tuple[Maker, list[Snapshot]]) -> None:
    maker, (first, second, third, fourth) = made
    then, now = first.schema, maker.current_schema
    zone = dt.timezone(dt.timedelta(hours=5))
    ways: list[tuple[Any, Snapshot, int]] = [
        (None, third, now),
        ("main", third, now),
        ("dev", fourth, now),
        ("first", first, then),
        (first.id, first, then),
        (str(second.id), second, second.schema),
        (time(first), first, then),
        (time(second, -1), first, then),
        (time(second).isoformat(), second, second.schema),
        (time(second).astimezone(zone).isoformat(), second, second.schema),
        (time(second).replace(tzinfo=None), second, second.schema),
        (dt.date(2030, 1, 1), third, third.schema),
        ("2030-01-01", third, third.schema),
    ]
    lake = sk.open(maker.metadata_location)
    ways += [(lake.snapshots()[0], first, then)]
    for asked, snapshot, schema in ways:
        wanted = maker.table(snapshot.id, schema)
        opened = sk.open(maker.metadata_location, snapshot=asked)
        assert opened.snapshot == snapshot.id, asked
        found = opened.scan().to_arrow()
        assert found.schema.names == wanted.schema.names, asked
        assert sorted(map(str, found.to_pylist())) == sorted(map(str, wanted.to_pylist())), asked
        assert lake.scan("id < 12", snapshot=asked).count() == sum(n < 12 for n in wanted["id"].to_pylist())
        assert lake.at(asked).scan().count() == wanted.num_rows
    assert lake.snapshot == third.id


def test_the_columns_are_those_of_then(made: tuple[Maker, list[Snapshot]]) -> None:
    maker, (first, second, *_) = made
    lake = sk.open(maker.metadata_location)
    assert lake.schema.names == ["id", "text", "new"]
    assert lake.at(first.id).schema.names == ["id", "s", "old"]
    assert lake.scan("old = 3 and s = 's3'", snapshot=first.id).to_arrow()["id"].to_pylist() == [3]
    with pytest.raises(sk.SkipstoneError, match="old"):
        lake.scan("old = 3").count()
    assert lake.scan("new = 12", snapshot=second.id, columns=["text"]).to_arrow()["text"].to_pylist() == [
        "t12"
    ]


def test_what_is_no_snapshot_is_refused_with_those_there_are(made: tuple[Maker, list[Snapshot]]) -> None:
    maker, (first, *_) = made
    lake = sk.open(maker.metadata_location)
    for asked in (5, "5", "nope", "", True, 1.5, b"x", "2026-13-45", time(first, -1), dt.date(2000, 1, 1)):
        with pytest.raises(UsageError, match="unknown snapshot") as refused:
            lake.scan(snapshot=asked)
        assert refused.value.path == maker.metadata_location
        for known in ("first", "dev", str(first.id), time(first).isoformat()):
            assert known in (refused.value.hint or ""), asked


def test_snapshots_are_listed_oldest_first(made: tuple[Maker, list[Snapshot]]) -> None:
    maker, snapshots = made
    lake = sk.open(maker.metadata_location)
    listed = lake.snapshots()
    assert [one.id for one in sorted(listed, key=lambda one: one.at)] == [one.id for one in snapshots]
    by_id = {one.id: one for one in listed}
    first, second, third, fourth = (by_id[one.id] for one in snapshots)
    assert (first.parent, first.refs, first.operation) == (None, ("first",), "append")
    assert (third.refs, third.current, third.operation) == (("main",), True, "overwrite")
    assert (fourth.parent, fourth.refs, fourth.current) == (second.id, ("dev",), False)
    assert first.at == time(snapshots[0])
    assert sum(one.current for one in listed) == 1


def test_a_lake_at_a_snapshot_travels(made: tuple[Maker, list[Snapshot]]) -> None:
    maker, (first, *_) = made
    lake = pickle.loads(pickle.dumps(sk.open(maker.metadata_location, snapshot="first")))
    assert (lake.snapshot, lake.scan("id = 3").count()) == (first.id, 1)
    plan = pickle.loads(
        pickle.dumps(sk.open(maker.metadata_location).scan("id < 5", snapshot=first.id).plan())
    )
    assert sk.execute(plan).to_arrow().num_rows == 5


@pytest.mark.parametrize("version", [1, 2, 3])
def test_an_empty_table_has_columns_and_no_rows(version: int, tmp_path: Path) -> None:
    maker = Maker(tmp_path, COLUMNS, [("id", "bucket[3]")], format_version=version)
    lake = sk.open(maker.metadata_location)
    assert (lake.snapshot, lake.snapshots(), lake.files) == (None, (), ())
    assert lake.scan().to_arrow().schema.equals(lake.schema)
    assert lake.scan("id = 1", columns=["s"], order_by=["id desc"], limit=3).to_arrow().schema.names == ["s"]
    assert (lake.scan().count(), lake.scan("id = 1").count(), len(lake.plan_files("id = 1"))) == (0, 0, 0)
    assert lake.plan_files().table.num_rows == 0
    assert lake.statistics().rows == 0
    assert lake.index.build(engine="local").indexed == 0
    for asked in (5, "main", dt.datetime.now(dt.UTC)):
        with pytest.raises(UsageError, match="the table has no snapshot"):
            lake.at(asked)
    maker.append(some(0, 4))
    lake = sk.open(maker.metadata_location)
    assert lake.scan("id = 1").count() == 1
    # Everything removed again is a snapshot without files.
    maker.remove_files({one.file.path for one in maker.live()})
    lake = sk.open(maker.metadata_location)
    assert (lake.scan().to_arrow().num_rows, lake.scan("id = 1").count(), len(lake.files)) == (0, 0, 0)
    assert lake.index.refresh(engine="local").indexed == 0


def test_expired_snapshots_are_gone_and_named_ones_stay(tmp_path: Path) -> None:
    maker = Maker(tmp_path, COLUMNS)
    first = maker.append(some(0, 5))
    maker.tag("kept")
    second = maker.append(some(5, 9))
    third = maker.append(some(9, 12))
    assert maker.expire(1) == [second.id]
    lake = sk.open(maker.metadata_location)
    assert lake.scan(snapshot="kept").count() == lake.scan(snapshot=first.id).count() == 5
    assert lake.scan(snapshot=third.id).count() == 12
    for asked in (second.id, str(second.id)):
        with pytest.raises(UsageError, match="unknown snapshot"):
            lake.at(asked)
    # The log begins anew with what is left of it.
    assert lake.at(time(second)).snapshot == first.id


def test_a_rollback_makes_an_old_snapshot_the_current_one(tmp_path: Path) -> None:
    maker = Maker(tmp_path, COLUMNS)
    first = maker.append(some(0, 5))
    second = maker.append(some(5, 9))
    maker.rollback(first.id)
    lake = sk.open(maker.metadata_location)
    assert (lake.snapshot, lake.scan().count()) == (first.id, 5)
    assert lake.at(time(second)).snapshot == second.id
    assert lake.at(time(second, 10_000)).snapshot == first.id


def test_a_refresh_that_is_refused_leaves_the_lake_as_it_was(tmp_path: Path) -> None:
    table = sk.catalog(tmp_path).create_table("db.t", pa.schema([("id", pa.int64())])).table
    table.append(pa.table({"id": [1, 2]}))
    current = table.current_snapshot()
    assert current is not None
    table.manage_snapshots().create_tag(current.snapshot_id, "mine").commit()
    lake = sk.open("db.t", catalog=tmp_path, snapshot="mine")
    table.append(pa.table({"id": [3]}))
    table.manage_snapshots().remove_tag("mine").commit()
    with pytest.raises(UsageError, match="unknown snapshot 'mine'"):
        lake.refresh()
    assert (lake.scan().count(), lake.snapshot, len(lake.snapshots())) == (2, current.snapshot_id, 1)


@pytest.mark.parametrize(
    "name", ["00001-x.gz.metadata.json", "00001-x.metadata.json.gz", "v1 %20#é.metadata.json"]
)
def test_metadata_files_of_every_name_are_opened(name: str, tmp_path: Path) -> None:
    maker = Maker(tmp_path, COLUMNS)
    maker.append(some(0, 5))
    body = Path(maker.metadata_location).read_bytes()
    path = tmp_path / "metadata" / name
    path.write_bytes(gzip.compress(body) if "gz" in name else body)
    for given in (path, str(path), f"file://{path}", path.as_uri()):
        lake = sk.open(given)
        assert lake.scan("id < 2").count() == 2
        assert (lake.name, lake.uri) == (str(path), str(tmp_path))
    lake.refresh()
    assert lake.scan().count() == 5
