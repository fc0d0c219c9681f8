"""Files known by their full names, as the manifests of a table have them."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.store import S3Store

from skipstone.errors import ReadError
from skipstone.store.absolute import AbsoluteStore, local_name, store_at
from skipstone.store.options import with_credentials
from skipstone.store.source import ByteRange


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("/a/b", "/a/b"),
        ("file:/a/b", "/a/b"),
        ("file:///a/b", "/a/b"),
        ("file://localhost/a/b", "/a/b"),
        ("file:///a/p=1%2F2 #é?/b", "/a/p=1%2F2 #é?/b"),
        ("/a/file:/b", "/a/file:/b"),
        ("a/b", "a/b"),
        ("s3://bucket/a", None),
        ("s3a://bucket/a", None),
        ("abfss://c@account.dfs.core.windows.net/a", None),
        ("gs://bucket/a", None),
    ],
)
def test_a_locations_characters_stand_for_themselves(location: str, path: str | None) -> None:
    assert local_name(location) == path
    assert AbsoluteStore(location).local == (path is not None)
    assert AbsoluteStore("/x").path(location) == (path or location)


def test_a_scheme_that_nobody_knows_is_refused() -> None:
    for location in ("hdfs://host/a", "file://host/a"):
        with pytest.raises(ReadError) as refused:
            local_name(location)
        assert (refused.value.path, bool(refused.value.hint)) == (location, True)


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
@pytest.mark.parametrize("name", ["f.parquet", "p=a%20b/f 1.parquet", "p=100%/#?&+é.parquet"])
def test_local_files_are_read_wherever_they_lie(scheme: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"0123456789")
    store = AbsoluteStore("/somewhere/else")
    source = store.open(f"{scheme}{path}", size=10)
    assert source.read_ranges([ByteRange(2, 4), ByteRange(8, 10)]) == [b"23", b"89"]
    assert source.path == str(path)
    with pytest.raises(ReadError, match="not the committed file"):
        store.open(f"{scheme}{path}", size=11).read_ranges([ByteRange(0, 1)])


def test_nothing_is_touched_before_it_is_read(tmp_path: Path) -> None:
    source = AbsoluteStore(str(tmp_path)).open(f"file://{tmp_path}/nope", size=3)
    with pytest.raises(ReadError) as refused:
        source.read_ranges([ByteRange(0, 1)])
    assert refused.value.path == f"{tmp_path}/nope"


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_files_are_written_whole_deleted_and_listed_below(scheme: str, tmp_path: Path) -> None:
    store = AbsoluteStore(f"{scheme}{tmp_path}/t 1%")
    store.write(f"{scheme}{tmp_path}/t 1%/metadata/a.avro", [b"abc", b"def"])
    assert (tmp_path / "t 1%/metadata/a.avro").read_bytes() == b"abcdef"
    child = store.child("metadata")
    assert [(entry.key, entry.size) for entry in child.list_prefix("")] == [("a.avro", 6)]
    store.delete([f"{scheme}{tmp_path}/t 1%/metadata/a.avro", f"{scheme}{tmp_path}/t 1%/metadata/gone.avro"])
    assert [*store_at(f"{scheme}{tmp_path}/t 1%/metadata").list_prefix("")] == []
    assert store.parent() is None


def test_it_is_not_listed() -> None:
    store = AbsoluteStore("s3://bucket/t")
    asks: list[Any] = [
        store.list,
        store.list_files,
        store.list_directories,
        lambda: store.list_prefix("x"),
        lambda: store.clear("x"),
        lambda: store.move("a", "b"),
    ]
    for ask in asks:
        with pytest.raises(ReadError, match="can't list or move files of a table") as refused:
            ask()
        assert refused.value.path == "s3://bucket/t"


def test_secrets_are_not_shown_and_travel_when_asked_to() -> None:
    store = AbsoluteStore("s3://bucket/t", {"secret_access_key": "hush", "region": "eu"})
    assert "hush" not in f"{store!r} {store.options!r}"
    moved = pickle.loads(pickle.dumps(store))
    assert (moved, moved.options) == (store, {"region": "eu"})
    carried = pickle.loads(pickle.dumps(with_credentials(store)))
    assert (carried, carried.options) == (store, store.options)


def test_objects_are_read_written_and_deleted(s3: dict[str, str]) -> None:
    bucket = S3Store("bucket", config={name.removeprefix("aws_"): value for name, value in s3.items()})
    store = AbsoluteStore("s3://bucket/t", s3)
    for name in ("data/f.parquet", "data/p=a%20b/f 1.parquet", "data/p=é+&/f.parquet"):
        obstore.put(bucket, f"t/{name}", b"0123456789")
        for scheme in ("s3", "s3a"):
            source = store.open(f"{scheme}://bucket/t/{name}", size=10)
            assert source.read_ranges([ByteRange(3, 5)]) == [b"34"]
    store.write("s3://bucket/t/metadata/x", [b"abc"])
    assert [entry.key for entry in store.child("metadata").list_prefix("")] == ["x"]
    store.delete(["s3://bucket/t/metadata/x", "s3://bucket/t/metadata/gone"])
    assert [*store.child("metadata").list_prefix("")] == []
    with pytest.raises(ReadError) as refused:
        store.open("s3://bucket/t/gone").read_ranges([ByteRange(0, 1)])
    assert refused.value.path == "s3://bucket/t/gone"
