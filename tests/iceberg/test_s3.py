"""Tables in a bucket: opened by catalog and by metadata file, with an index in the bucket."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pytest
from obstore.store import S3Store

import skipstone as sk
from skipstone.errors import ReadError
from skipstone.iceberg.catalogs import storage_options, table_name
from skipstone.iceberg.manifests.reading import clear_cache
from tests.iceberg._maker import Maker
from tests.iceberg._watch import watch

SCHEMA = pa.schema([("id", pa.int64()), ("region", pa.string()), ("text", pa.string())])
Open = Callable[[], sk.Catalog]


@pytest.fixture(scope="module")
def catalog(s3: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Open:
    """Opens one and the same catalog of tables in the bucket; ``db.events`` has four files."""
    root = tmp_path_factory.mktemp("s3")
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{root}/catalog.db",
        "warehouse": "s3://bucket/warehouse",
        "s3.endpoint": s3["aws_endpoint"],
        "s3.access-key-id": s3["aws_access_key_id"],
        "s3.secret-access-key": s3["aws_secret_access_key"],
        "s3.region": s3["aws_region"],
    }
    made = sk.catalog(properties).create_table("db.events", SCHEMA, partition_by=["region"])
    for first in (0, 100):
        made.table.append(rows(first, first + 100))
    return lambda: sk.catalog(properties)


def rows(first: int, last: int) -> pa.Table:
    ids = range(first, last)
    columns = [ids, ["north" if n % 2 else "south" for n in ids], [f"text {n}" for n in ids]]
    return pa.table(dict(zip(SCHEMA.names, columns, strict=True)), schema=SCHEMA)


def by_id(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: row["id"])


def bucket(s3: dict[str, str]) -> Any:
    return S3Store("bucket", config={name.removeprefix("aws_"): value for name, value in s3.items()})


def test_a_table_is_opened_through_its_catalog_and_pruned(catalog: Open) -> None:
    lake = catalog().open("db.events")
    assert lake.uri == "s3://bucket/warehouse/db/events"
    assert by_id(lake.scan().to_arrow()) == rows(0, 200).to_pylist()
    scan = lake.scan("id between 150 and 152 and region = 'south'")
    assert [row["id"] for row in by_id(scan.to_arrow())] == [150, 152]
    assert (len(lake.files), scan.plan().trace.tasks) == (4, 1)


def test_a_table_is_opened_by_its_metadata_file(catalog: Open, s3: dict[str, str]) -> None:
    location = catalog().open("db.events").table.metadata_location
    lake = sk.open(location, storage_options=s3)
    assert by_id(lake.scan("id < 2").to_arrow()) == rows(0, 2).to_pylist()
    assert lake.scan("id < 2").plan().trace.tasks == 2
    moved = pickle.loads(pickle.dumps(sk.with_credentials(lake)))
    assert moved.scan("id < 2").count() == 2
    with pytest.raises(ReadError, match=r"nope\.metadata\.json: .*newest"):
        sk.open(f"{location.rpartition('/')[0]}/nope.metadata.json", storage_options=s3)


def test_options_that_are_given_stand_before_the_catalogs_under_any_name(
    catalog: Open, s3: dict[str, str]
) -> None:
    table = catalog().open("db.events").table
    assert {*storage_options(table)} == {
        "endpoint",
        "access_key_id",
        "secret_access_key",
        "region",
        "allow_http",
    }
    named = {"AWS_ENDPOINT_URL": s3["aws_endpoint"], "aws_default_region": "us-east-1", "timeout": "9s"}
    merged = storage_options(table, named)
    assert {*merged} == {*named, "access_key_id", "secret_access_key", "allow_http"}
    assert catalog().open("db.events", storage_options=s3).scan("id = 7").count() == 1
    assert table_name(table.name()) == "db.events"


def test_a_point_query_with_a_warm_index_opens_no_manifest_and_no_footer(
    catalog: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = "id = 121 and region = 'north'"
    built = catalog().open("db.events")
    sizes = {file.path: file.size for file in built.files}
    reads = watch(monkeypatch)

    def ask(lake: sk.Table) -> int:
        reads.restart()
        before = lake.io.requests
        assert lake.scan(question).to_arrow()["text"].to_pylist() == ["text 121"]
        return lake.io.requests - before

    ask(catalog().open("db.events"))
    assert len(reads.lists) == 1
    assert 1 <= len(reads.manifests) <= 2
    assert len(reads.footers(sizes)) == len(reads.data) == 1

    built.index.build(engine="local")
    assert built.index.uri == f"{built.uri}/_skipstone"
    lake = catalog().open("db.events")
    first = ask(lake)
    # Not even the manifest list: the index keeps what it says.
    assert (len(reads.lists), len(reads.data)) == (0, 1)
    assert not reads.manifests | reads.footers(sizes)
    # All that is known stays with the lake: only pages are read.
    assert 1 <= ask(lake) <= 2 < first
    assert not reads.manifests | reads.lists | reads.footers(sizes)
    assert len(reads.data) == 1


def test_a_refresh_reads_the_new_manifests_and_files_only(
    catalog: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = catalog().create_table("db.growing", SCHEMA)
    made.table.append(rows(0, 10))
    lake = catalog().open("db.growing")
    lake.index.build(engine="local")
    before = {file.path for file in lake.files}
    catalog().open("db.growing").table.append(rows(10, 20))
    reads = watch(monkeypatch)
    reads.restart()
    report = lake.index.refresh(engine="local")
    assert (report.indexed, report.already_indexed) == (1, 1)
    assert len(reads.manifests) == 1
    assert reads.data == {file.path for file in lake.files} - before
    reads.restart()
    lake = catalog().open("db.growing")
    assert by_id(lake.scan("id in (3, 15)", columns=["id"]).to_arrow()) == [{"id": 3}, {"id": 15}]
    assert not reads.manifests


@pytest.mark.parametrize("version", [2, 3])
def test_deletes_in_a_bucket_are_applied(version: int, s3: dict[str, str], tmp_path: Path) -> None:
    columns, scheme = [("id", "long"), ("p", "string")], "s3://bucket"
    maker = Maker(tmp_path, columns, [("p", "identity")], format_version=version, seed=version, scheme=scheme)
    maker.append([{"id": n, "p": "a b#%é"[n % 3 :: 3]} for n in range(60)])
    first = maker.places()
    if version == 2:
        maker.delete_positions(first[::7], scope="partition")
        maker.delete_equal([maker.field("id").id], [(5,), (6,)])
    else:
        maker.delete_vector({first[0][0]: [0, 3], first[-1][0]: [1]})
    for path in maker.root.rglob("*.*"):
        obstore.put(bucket(s3), str(path)[1:], path.read_bytes())
    location = f"{scheme}{maker.metadata_location}"
    wanted = {row["id"] for row in maker.rows()}
    assert 40 < len(wanted) < 60
    lake = sk.open(location, storage_options=s3)
    assert {*lake.scan().to_arrow()["id"].to_pylist()} == wanted
    lake.index.build(engine="local")
    clear_cache()
    lake = sk.open(location, storage_options=s3)
    assert {*lake.scan().to_arrow()["id"].to_pylist()} == wanted
    for n in range(0, 60, 10):
        assert lake.scan(f"id = {n}").count() == (n in wanted)
    lake.index.drop()
    assert not [*lake.index.store.list_prefix("")]
    assert lake.scan().count() == len(wanted)


def test_a_data_file_that_is_gone_is_named(catalog: Open, s3: dict[str, str]) -> None:
    made = catalog().create_table("db.gone", SCHEMA, partition_by=["region"])
    made.table.append(rows(0, 10))
    lake = catalog().open("db.gone")
    victim = next(file for file in lake.files if file.partition == {"region": "south"})
    obstore.delete(bucket(s3), victim.path.removeprefix("s3://bucket/"))
    assert lake.scan("region = 'north'").to_arrow().num_rows == 5
    with pytest.raises(ReadError) as refused:
        lake.scan().to_arrow()
    assert refused.value.path == victim.path
    assert refused.value.hint


def test_the_environment_serves_pyiceberg_too(
    s3: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables are created, written and read with nothing but AWS_* variables."""
    for name, value in s3.items():
        monkeypatch.setenv(name.upper(), value)
    catalog = sk.catalog(
        {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": "s3://bucket/environment"}
    )
    catalog.create_table("db.events", SCHEMA).table.append(rows(0, 9))
    assert catalog.open("db.events").scan("id > 5").count() == 3
    location = catalog.open("db.events").table.metadata_location
    assert sk.open(location).scan("id > 5").count() == 3
