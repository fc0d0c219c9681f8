"""Orphan files: what counts as one under any spelling, and what is never touched."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import ForbiddenError
from pyiceberg.table.update import SetLocationUpdate

import skipstone as sk
from skipstone.errors import UsageError
from skipstone.store.store import open_root
from tests.compact._reach import on_disk, plain
from tests.iceberg._maker import Maker

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string()), ("_q", pa.int64())])
NOW: dict[str, Any] = {"older_than": "0s", "allow_recent": True}
OLD = time.time() - 10 * 86_400


def rows(first: int, last: int) -> pa.Table:
    ids = list(range(first, last))
    return pa.table([ids, [f"p {n % 2}" for n in ids], [n % 3 for n in ids]], schema=SCHEMA)


def make(root: Path, **options: Any) -> sk.Table:
    table = sk.catalog(root / "warehouse").create_table("db.t", SCHEMA, **options)
    for first in (0, 10):
        table.table.append(rows(first, first + 10))
    return table.refresh()


def leave(folder: Path, *names: str, old: bool = True) -> set[str]:
    """Leave files, and say where."""
    made = set()
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"left over")
        if old:
            os.utime(path, (OLD, OLD))
        made.add(str(path))
    return made


def paths(files: Iterable[str]) -> set[str]:
    return {plain(path) for path in files}


def home(table: sk.Table) -> Path:
    return Path(plain(table.metadata.location))


# -- age -----------------------------------------------------------------------------------------


def test_young_files_stay(tmp_path: Path) -> None:
    table = make(tmp_path)
    young = leave(home(table), "data/new.parquet", "metadata/new-m0.avro", old=False)
    old = leave(home(table), "data/old.parquet", "other/old")
    before = on_disk(table)
    plan = table.remove_orphans(dry_run=True)
    assert (paths(plan.files), plan.recent, plan.deleted, plan.bytes) == (old, 2, 0, 18)
    assert on_disk(table) == before
    report = table.remove_orphans()
    assert (paths(report.files), report.recent, report.deleted, report.failures) == (old, 2, 2, ())
    assert report.listed == report.referenced + 4 == len(before)
    assert datetime.now(UTC) - report.older_than >= timedelta(days=3)
    assert on_disk(table) == before - old
    assert young < on_disk(table)
    assert table.scan().count() == 20


def test_a_limit_of_less_than_a_day_must_be_meant(tmp_path: Path) -> None:
    table = make(tmp_path)
    left = leave(home(table), "data/new.parquet", old=False)
    with pytest.raises(UsageError, match=r"less than a day ago.*allow_recent=True"):
        table.remove_orphans(older_than="23h")
    assert paths(table.remove_orphans(older_than="0s", dry_run=True).files) == left
    assert left < on_disk(table)
    assert table.remove_orphans(**NOW).deleted == 1


# -- names ---------------------------------------------------------------------------------------


def test_hidden_names_stay_but_for_partitions(tmp_path: Path) -> None:
    table = make(tmp_path, partition_by=["_q"])
    table.index.build(engine="local")
    hidden = leave(home(table), "_tmp/a", "data/.b", "data/_q=1/_c", "data/_other=1/d", "_q/e", "x/.y/f")
    shown = leave(home(table), "data/_q=1/g.parquet", "data/p=1/h.parquet")
    report = table.remove_orphans(**NOW)
    assert paths(report.files) == shown
    assert all(Path(path).exists() for path in hidden)
    assert table.index.status().covered == len(table.files) == 6
    assert table.scan("_q = 1").count() == 7


def test_an_index_elsewhere_in_the_location_stays(tmp_path: Path) -> None:
    make(tmp_path)
    catalog = sk.catalog(tmp_path / "warehouse")
    where = home(catalog.open("db.t")) / "indexes"
    table = sk.open("db.t", catalog=catalog, index_root=str(where))
    table.index.build(engine="local")
    assert any(where.rglob("*"))
    assert table.remove_orphans(**NOW).files == ()
    assert table.index.status().exists


@pytest.mark.parametrize("spelling", ["{0}/{1}/", "file:{0}/{1}", "{0}//{1}", "file://{0}/./{1}"])
def test_spellings_of_one_file(tmp_path: Path, spelling: str) -> None:
    root = tmp_path / "a b" / "t%20x"
    maker = Maker(root, [("id", "long")], scheme="file://")
    maker.append([{"id": 1}])
    document = Path(maker.metadata_location)
    # Only the location is spelled in another way than the files.
    location = spelling.format(tmp_path / "a b", "t%20x")
    document.write_text(document.read_text().replace(f'"file://{root}"', f'"{location}"'))
    catalog = sk.catalog(tmp_path / "catalog")
    catalog.iceberg.create_namespace("db")
    catalog.iceberg.register_table("db.t", str(document))
    table = catalog.open("db.t")
    assert table.metadata.location == location
    left = leave(root, "data/left.parquet")
    report = table.remove_orphans(older_than="5d")
    assert {os.path.normpath(plain(path).removeprefix("file:")) for path in report.files} == left
    assert report.deleted == 1
    assert table.refresh().scan().count() == 1


def test_encoded_names_are_the_same_file(tmp_path: Path) -> None:
    table = make(tmp_path, partition_by=["p"])
    data = home(table) / "data"
    first = next(data.rglob("*.parquet"))
    # Another writer's listing decodes names, or encodes them once more.
    twin = data / "p=p 0" / first.name if "p=p+0" in str(first) else data / "p=p%200" / first.name
    encoded = data / first.parent.name.replace("=", "%3D") / first.name
    kept = leave(encoded.parent, encoded.name)
    gone = leave(twin.parent, f"other-{twin.name}")
    report = table.remove_orphans(**NOW)
    assert paths(report.files) == gone
    assert all(Path(path).exists() for path in kept)


def test_links_are_followed_and_never_out_of_the_location(tmp_path: Path) -> None:
    table = make(tmp_path)
    root, outside = home(table), tmp_path / "outside"
    data = root / "data"
    # The data of the table is behind a link in its location, and its files have several names.
    (root / "real").mkdir()
    for path in list(data.rglob("*.parquet")):
        shutil.move(path, root / "real" / f"moved-{path.name}")
        path.symlink_to(root / "real" / f"moved-{path.name}")
    hard = root / "hard.parquet"
    hard.hardlink_to(next((root / "real").iterdir()))
    theirs = leave(outside, "a.parquet", "b.parquet")
    (root / "away").symlink_to(outside)
    (root / "broken").symlink_to(root / "nothing")
    (root / "link.parquet").symlink_to(outside / "a.parquet")
    mine = {str(root / "link.parquet")} | leave(root, "real/left.parquet")
    os.utime(root / "broken", (OLD, OLD), follow_symlinks=False)
    report = table.remove_orphans(older_than="5d")
    assert paths(report.files) == mine | {str(root / "broken")}
    assert report.deleted == 3
    assert all(Path(path).exists() for path in theirs)
    assert hard.exists()
    assert table.refresh().scan().count() == 20


def test_a_location_that_is_a_link(tmp_path: Path) -> None:
    table = make(tmp_path)
    root = home(table)
    shutil.move(root, tmp_path / "real")
    root.symlink_to(tmp_path / "real")
    left = leave(root, "data/left.parquet")
    report = table.remove_orphans(older_than="5d")
    assert paths(report.files) == left
    assert report.deleted == 1
    assert table.refresh().scan().count() == 20


# -- other schemes -------------------------------------------------------------------------------


def test_removal_from_a_bucket(s3: dict[str, str], tmp_path: Path) -> None:
    catalog = sk.catalog(
        {
            "type": "sql",
            "uri": f"sqlite:///{tmp_path}/catalog.db",
            "warehouse": "s3a://bucket/warehouse",
            "s3.endpoint": s3["aws_endpoint"],
            "s3.access-key-id": "testing",
            "s3.secret-access-key": "testing",
            "s3.region": "us-east-1",
        }
    )
    table = catalog.create_table("db.t", SCHEMA, partition_by=["p"])
    for first in range(0, 40, 10):
        table.table.append(rows(first, first + 10))
    table.refresh()
    table.table.delete("id < 10")
    root = table.refresh().metadata.location
    assert root.startswith("s3a://")
    store = open_root(root.replace("s3a://", "s3://"), storage_options=s3)
    for name in ("data/left.parquet", "_own/file", "data/p=p+0/left over"):
        store.write(name, [b"left"])
    old = table.snapshots()[0].id
    rewritten = table.rewrite_manifests(rewrite_all=True)
    assert rewritten.created < rewritten.replaced
    expired = table.expire(older_than="0s")
    assert (old in expired.snapshots, expired.remaining, expired.failures) == (True, 1, ())
    assert expired.deleted == len(expired.files) >= 10
    assert table.remove_orphans().files == ()
    report = table.remove_orphans(**NOW)
    found = {path.removeprefix(f"{root}/") for path in report.files}
    assert found == {"data/left.parquet", "data/p=p+0/left over"}
    assert report.deleted == 2
    keys = {entry.key for entry in store.list()}
    assert "_own/file" in keys
    assert not found & keys
    assert sum(key.startswith("data/") for key in keys) == len(table.files)
    assert table.refresh().scan().count() == table.table.scan().to_arrow().num_rows == 30


def test_another_scheme_or_authority_is_an_error(tmp_path: Path) -> None:
    maker = Maker(tmp_path / "t", [("id", "long")], scheme="")
    maker.append([{"id": 1}])
    document = Path(maker.metadata_location)
    # Old metadata is in the log under another scheme: nobody knows whether it is the same file.
    log = tmp_path / "t" / "metadata" / "v0.metadata.json"
    log.write_bytes(document.read_bytes())
    content = json.loads(document.read_text())
    content["metadata-log"] = [{"timestamp-ms": 1, "metadata-file": f"hdfs://name{log}"}]
    document.write_text(json.dumps(content))
    catalog = sk.catalog(tmp_path / "catalog")
    catalog.iceberg.create_namespace("db")
    catalog.iceberg.register_table("db.t", str(document))
    other = catalog.open("db.t")
    left = leave(tmp_path / "t", "data/left.parquet")
    os.utime(log, (OLD, OLD))
    with pytest.raises(UsageError, match=r"another scheme or authority than the listing: .*metadata\.json"):
        other.remove_orphans(older_than="5d")
    assert Path(*left).exists()
    report = other.remove_orphans(older_than="5d", prefix_mismatch="ignore")
    assert (paths(report.files), paths(report.mismatched)) == (left, {str(log)})
    assert log.exists()
    with pytest.raises(UsageError, match="unknown prefix_mismatch 'delete'"):
        other.remove_orphans(prefix_mismatch="delete")  # type: ignore[arg-type]


# -- what is not the table's -----------------------------------------------------------------------


def test_only_below_the_location(tmp_path: Path) -> None:
    table = make(tmp_path)
    left = leave(home(table), "data/x/a", "data/y/b")
    beside = leave(home(table).parent, "beside/c")
    for place in ("beside", "t/../beside", "t2"):
        with pytest.raises(UsageError, match="location is outside the table's directories"):
            table.remove_orphans(location=str(home(table).parent / place), **NOW)
    report = table.remove_orphans(location=str(home(table) / "data" / "x"), **NOW)
    assert paths(report.files) < left
    assert report.listed == 1
    assert Path(*beside).exists()
    # A directory of an index stays hidden from itself.
    leave(home(table), "_skipstone/d")
    assert table.remove_orphans(location=str(home(table) / "_skipstone"), **NOW).listed == 0
    assert table.remove_orphans(location=str(home(table) / "none"), **NOW).listed == 0


def test_a_location_with_another_table(tmp_path: Path) -> None:
    table = make(tmp_path)
    catalog = sk.catalog(tmp_path / "warehouse")
    inner = catalog.create_table("db.inner", SCHEMA, location=f"{home(table)}/data/inner")
    inner.table.append(rows(0, 5))
    left = leave(home(table), "metadata/left.avro")
    with pytest.raises(UsageError, match=r"data/inner/metadata/.*json: location contains another table"):
        table.remove_orphans(**NOW)
    assert Path(*left).exists()
    assert inner.refresh().scan().count() == 5
    assert table.remove_orphans(location=f"{home(table)}/metadata", **NOW).deleted == 1


class CountingCatalog(SqlCatalog):
    """A catalog that counts its calls, and can refuse some of them."""

    def __init__(self, root: Path) -> None:
        super().__init__("skipstone", uri=f"sqlite:///{root}/catalog.db", warehouse=f"file://{root}")
        self.loads: list[str] = []
        self.refused: set[str] = set()

    def load_table(self, identifier: Any) -> Any:
        self.loads.append(".".join(identifier) if isinstance(identifier, tuple) else identifier)
        if self.loads[-1] in self.refused:
            raise ForbiddenError(f"not allowed to load {self.loads[-1]}")
        return super().load_table(identifier)

    def list_namespaces(self, namespace: Any = ()) -> Any:
        if "list" in self.refused:
            raise ForbiddenError("not allowed to list namespaces")
        return super().list_namespaces(namespace)


def make_old(root: Path) -> None:
    """Let all files be old."""
    for path in root.rglob("*"):
        if path.is_file():
            os.utime(path, (OLD, OLD))


OTHERS = {
    "its data path": {"properties": {"write.data.path": "{home}/shared"}},
    "its storage for objects": {"properties": {"write.object-storage.path": "{home}/objects"}},
    "its location": {"location": "{home}/inner", "properties": {"write.metadata.path": "{root}/elsewhere"}},
    "the same location": {"location": "{home}", "properties": {"write.metadata.path": "{root}/elsewhere"}},
    "its metadata path": {"location": "{root}/is", "properties": {"write.metadata.path": "{home}/metadata"}},
}


@pytest.mark.parametrize("where", OTHERS)
def test_files_of_other_tables_stay(tmp_path: Path, where: str) -> None:
    table = make(tmp_path)
    name = "db.inner.deep.other" if where == "the same location" else "db.other"
    places = {"home": table.metadata.location, "root": f"file://{tmp_path}"}

    def placed(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: placed(one) for name, one in value.items()}
        return value.format(**places)

    catalog = sk.catalog(tmp_path / "warehouse")
    other = catalog.create_table(name, SCHEMA, **placed(OTHERS[where]))
    other.table.append(rows(0, 5))
    other.refresh().table.append(rows(5, 9))
    left = leave(home(table), "data/left.parquet")
    # Its own leftovers are not this table's to delete.
    expected = {"its metadata path": 7, "the same location": 2, "its storage for objects": 1}.get(where, 3)
    if where in ("its data path", "its location"):
        leave(Path(plain(other.refresh().files[0].path)).parent, "also left.parquet")
    elif where == "its storage for objects":
        # Where other engines would write.
        leave(home(table), "objects/01/02/new.parquet")
    before = on_disk(table)
    make_old(tmp_path)
    report = table.remove_orphans()
    assert paths(report.files) == left
    assert on_disk(table) == before - left
    assert (report.deleted, report.others, report.unchecked) == (1, expected, ())
    assert "other tables of the catalog" in str(report)
    assert catalog.open(name).scan().to_arrow().num_rows == 9


def test_files_that_another_table_has_adopted_stay(tmp_path: Path) -> None:
    table = make(tmp_path)
    raw = home(table) / "raw.parquet"
    pq.write_table(rows(0, 7), raw)
    catalog = sk.catalog(tmp_path / "warehouse")
    adopting = catalog.create_table("db.adopting", SCHEMA)
    adopting.table.add_files([str(raw)])
    moved = catalog.create_table("db.moved", SCHEMA, location=f"{table.metadata.location}/was")
    moved.table.append(rows(0, 3))
    with moved.refresh().table.transaction() as change:
        change._apply((SetLocationUpdate(location=f"file://{tmp_path}/is"),))
    current = plain(catalog.open("db.moved").table.metadata_location)
    assert current.startswith(f"{tmp_path}/is")
    # Only its manifest lists and its log tell that it was here.
    for path in (home(table) / "was" / "metadata").glob("*.json"):
        path.unlink()
    left = leave(home(table), "data/left.parquet")
    make_old(tmp_path)
    report = table.remove_orphans()
    assert paths(report.files) == left
    assert catalog.open("db.adopting").scan().count() == 7
    assert catalog.open("db.moved").scan().count() == 3


def test_only_tables_that_can_have_files_there_are_read(tmp_path: Path) -> None:
    catalog = CountingCatalog(tmp_path)
    tables = [sk.catalog(catalog).create_table(f"db.t{n}", SCHEMA) for n in range(4)]
    for one in tables:
        one.table.append(rows(0, 5))
    table = tables[0].refresh()
    # Nobody else's manifests are needed, or there.
    for one in tables[1:]:
        for manifest in home(one).glob("metadata/*.avro"):
            manifest.unlink()
    catalog.loads.clear()
    assert table.remove_orphans(**NOW).files == ()
    assert {*catalog.loads} <= {"db.t0"}
    leave(home(table), "data/left.parquet")
    report = table.remove_orphans(**NOW)
    assert (report.deleted, report.others, report.unchecked) == (1, 0, ())
    assert sorted({*catalog.loads}) == [f"db.t{n}" for n in range(4)]


def test_tables_that_cannot_be_compared(tmp_path: Path) -> None:
    catalog = CountingCatalog(tmp_path)
    table, secret, broken = (
        sk.catalog(catalog).create_table(f"db.{name}", SCHEMA) for name in ("t", "secret", "broken")
    )
    left = leave(home(table), "data/left.parquet")
    for refused, message in (
        ("db.secret", r"db\.t: other tables .* compared: db\.secret: not allowed to load db\.secret"),
        ("list", r"db\.t: other tables .* compared: catalog can't be listed: not allowed to list namespaces"),
    ):
        catalog.refused = {refused}
        with pytest.raises(UsageError, match=rf"{message}.*force=True"):
            table.remove_orphans(**NOW)
        assert Path(*left).exists()
        plan = table.remove_orphans(dry_run=True)
        assert (paths(plan.files), len(plan.unchecked)) == (left, 1)
        assert "not allowed" in str(plan)
    catalog.refused = set()
    Path(plain(broken.table.metadata_location)).unlink()
    with pytest.raises(UsageError, match=r"compared: db\.broken: .*force=True"):
        table.remove_orphans(**NOW)
    report = table.remove_orphans(force=True, **NOW)
    assert (paths(report.files), report.deleted, len(report.unchecked)) == (left, 1, 1)
    assert secret.scan().count() == 0


def test_a_table_whose_files_are_shared(tmp_path: Path) -> None:
    table = make(tmp_path)
    with table.table.transaction() as change:
        change.set_properties({"gc.enabled": "false"})
    left = leave(home(table), "data/left")
    for run in (table.remove_orphans, table.expire):
        with pytest.raises(UsageError, match=r"db\.t: files .* gc\.enabled is false"):
            run(older_than="5d")
    assert Path(*left).exists()


def test_an_unreadable_manifest_stops_the_removal(tmp_path: Path) -> None:
    table = make(tmp_path)
    left = leave(home(table), "data/left")
    manifest = next(home(table).glob("metadata/*-m0.avro"))
    manifest.write_bytes(manifest.read_bytes()[:-40])
    with pytest.raises(sk.CorruptFileError, match=manifest.name):
        sk.catalog(tmp_path / "warehouse").open("db.t").remove_orphans(older_than="5d")
    assert Path(*left).exists()
