import os
import pickle
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.store import MemoryStore, S3Store

from skipstone.errors import ReadError, UsageError
from skipstone.store.local import LocalStore
from skipstone.store.objects import ObjectStore
from skipstone.store.options import with_credentials
from skipstone.store.source import ByteRange, open_source
from skipstone.store.store import Store, matches, open_store, split_glob

# Names that stores and URIs are known to mangle.
ODD = [
    "day=2026-01-01 00%3A00%3A00/f.parquet",
    "day=2026-01-01 00:00:00/f.parquet",
    "naïve=ü/雪 #1.parquet",
    "p=100%/a+b&c.parquet",
    "q=a%2Fb/[1].parquet",
    "~x/..y/$z!.parquet",
]


def keys(store: Store, pattern: str = "") -> list[str]:
    return [file.key for file in store.list() if matches(pattern, file.key)]


def write(root: Path, *names: str, data: bytes = b"data") -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def memory(*names: str, data: bytes = b"data") -> Any:
    bucket = MemoryStore()
    for name in names:
        obstore.put(bucket, name, data)
    return bucket


# ---------------------------------------------------------------- local


def test_everything_below_a_directory_is_listed_in_order_of_the_whole_key(tmp_path: Path) -> None:
    names = ["a/b/deep.parquet", "a-1.parquet", "a/z.parquet", ".hidden", "_delta_log/0.json", "empty"]
    write(tmp_path, *names)
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "no files").mkdir()
    store, pattern = open_store(tmp_path)
    assert isinstance(store, LocalStore)
    assert (pattern, store.uri, store.local) == ("", str(tmp_path), True)
    assert keys(store) == sorted(names)
    listed = {file.key: file for file in store.list()}
    assert listed["empty"].size == 0
    assert listed["a/z.parquet"].size == 4
    assert listed["a/z.parquet"].version == open_source(tmp_path / "a/z.parquet").version()
    assert store.path("a/z.parquet") == str(tmp_path / "a" / "z.parquet")


@pytest.mark.parametrize("kind", ["str", "slash", "uri", "relative"])
def test_a_directory_by_any_name(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "my lake%20ü"
    write(root, "f.parquet")
    monkeypatch.chdir(tmp_path)
    name = {"str": str(root), "slash": f"{root}/", "uri": root.as_uri(), "relative": root.name}[kind]
    assert open_store(name) == (LocalStore(str(root)), "")


def test_links_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    write(tmp_path, "lake/a/f.parquet", "elsewhere/g.parquet")
    lake = tmp_path / "lake"
    (lake / "a" / "up").symlink_to(lake)
    (lake / "here").symlink_to(".")
    (lake / "self").symlink_to("self")
    (lake / "linked").symlink_to(tmp_path / "elsewhere")
    (lake / "one.parquet").symlink_to(tmp_path / "elsewhere" / "g.parquet")
    store, _ = open_store(lake)
    assert keys(store) == ["a/f.parquet", "linked/g.parquet", "one.parquet", "self"]


def test_a_link_to_nothing_fails_who_reads_it(tmp_path: Path) -> None:
    write(tmp_path, "f.parquet")
    (tmp_path / "lost.parquet").symlink_to("nothing")
    store, _ = open_store(tmp_path)
    lost = store.list()[1]
    assert lost.key == "lost.parquet"
    with pytest.raises(ReadError, match="no longer exists"):
        store.open(lost.key, version=lost.version).tail(1)


# Newer Pythons warn of a fork beside the threads of other tests.
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_an_unreadable_directory_is_named() -> None:
    # In a folder that anybody may enter, for root may read everything, so a child becomes somebody else.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        closed = Path(folder) / "day=1"
        closed.mkdir(mode=0)
        child = os.fork()
        if not child:
            if not os.geteuid():
                os.setuid(65534)
            try:
                open_store(folder)[0].list()
            except ReadError as error:
                os._exit(0 if (error.path, error.message) == (str(closed), "permission denied") else 2)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0


def test_one_file_is_listed_alone(tmp_path: Path) -> None:
    write(tmp_path, "f[1].parquet", "f1.parquet")
    store, pattern = open_store(tmp_path / "f[1].parquet")
    assert (store.uri, pattern) == (str(tmp_path), "f[1].parquet")
    assert keys(store, pattern) == ["f[1].parquet"]


@pytest.mark.parametrize("name", ["nothing", "nothing/*.parquet", "f.parquet/", "f.parquet/x", "f.parquet/*"])
def test_nothing_there(tmp_path: Path, name: str) -> None:
    write(tmp_path, "f.parquet")
    with pytest.raises(ReadError, match=f"{tmp_path}.*no such file or directory"):
        open_store(f"{tmp_path}/{name}")


def test_a_directory_that_vanishes_before_it_is_listed(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    store, _ = open_store(tmp_path / "lake")
    (tmp_path / "lake").rmdir()
    with pytest.raises(ReadError, match="no such file or directory"):
        store.list()


def test_something_else_is_refused() -> None:
    with pytest.raises(UsageError, match="not 3"):
        open_store(3)
    with pytest.raises(ReadError, match="'ftp'"):
        open_store("ftp://host/lake")


def test_ten_thousand_files_are_listed_quickly(tmp_path: Path) -> None:
    for number in range(100):
        folder = tmp_path / f"day={number}"
        folder.mkdir()
        for part in range(100):
            os.close(os.open(folder / f"{part}.parquet", os.O_CREAT | os.O_WRONLY))
    store, _ = open_store(tmp_path)
    started = time.process_time()
    assert len(store.list()) == 10_000
    # 0.1 s on an idle machine; the bound only catches a listing that asks several times per file.
    assert time.process_time() - started < 1


def test_nothing_is_touched_before_the_first_read(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path)
    source = store.open("missing.parquet", version=(10, 1, 1))
    assert (source.size(), source.version()) == (10, (10, 1, 1))
    with pytest.raises(ReadError, match=r"missing\.parquet.*no longer exists.*refresh"):
        source.read_ranges([ByteRange(0, 1)])
    with pytest.raises(ReadError, match="no such file"):
        store.open("missing.parquet").tail(1)


# ---------------------------------------------------------------- globs


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("a/b.parquet", ("a/b.parquet", "")),
        ("a/*.parquet", ("a", "*.parquet")),
        ("a/x*/b/c?.parquet", ("a", "x*/b/c?.parquet")),
        ("*.parquet", ("", "*.parquet")),
        ("/*", ("", "*")),
        ("a/day=*/", ("a", "day=*/**")),
    ],
)
def test_the_fixed_part_of_a_glob(name: str, split: tuple[str, str]) -> None:
    assert split_glob(name) == split


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("", ["a", "a/b"], []),
        ("*.parquet", ["a.parquet", ".parquet"], ["a/b.parquet", "a.parquet.crc", "a.parquet\n"]),
        ("**/*.parquet", ["a.parquet", "a/b/c.parquet"], ["a/b.csv"]),
        ("**", ["a", "a/b/c"], []),
        ("a/**", ["a/b", "a/b/c"], ["ab", "b/a/c"]),
        ("a/**/z", ["a/z", "a/b/c/z"], ["a/bz", "az"]),
        ("f?.x", ["f1.x", "fü.x"], ["f.x", "f/.x", "f12.x"]),
        ("f[0-9a].x", ["f1.x", "fa.x"], ["fb.x", "f-.x"]),
        ("f[!0-9].x", ["fa.x"], ["f1.x", "f/.x"]),
        ("f[]].x", ["f].x"], ["f[.x"]),
        ("f[[]1].x", ["f[1].x"], ["f1.x"]),
        ("f[^a].x", ["f^.x", "fa.x"], ["fb.x"]),
        ("f[.x*", ["f[.x", "f[.xy"], ["f.x"]),
        ("a**b", ["ab", "axb"], ["a/b"]),
        ("d=(1|2)+$*", ["d=(1|2)+$x"], ["d=1"]),
    ],
)
def test_what_a_glob_matches(pattern: str, yes: list[str], no: list[str]) -> None:
    assert [key for key in yes + no if matches(pattern, key)] == yes


def test_a_local_glob(tmp_path: Path) -> None:
    write(tmp_path, "lake/day=1/f.parquet", "lake/day=2/f.parquet", "lake/day=10/g.csv", "other/f.parquet")
    store, pattern = open_store(tmp_path / "lake" / "day=?" / "*.parquet")
    assert (store.uri, pattern) == (str(tmp_path / "lake"), "day=?/*.parquet")
    assert keys(store, pattern) == ["day=1/f.parquet", "day=2/f.parquet"]
    assert keys(*open_store(f"{tmp_path}/lake/day=1*/")) == ["day=1/f.parquet", "day=10/g.csv"]


# ---------------------------------------------------------------- objects


def test_a_store_object() -> None:
    bucket = memory("lake/b/2", "lake/a", "lakes/x", "top")
    store, pattern = open_store("lake", store=bucket)
    assert isinstance(store, ObjectStore)
    assert (pattern, store.local, store.path("b/2")) == ("", False, "memory:///lake/b/2")
    assert keys(store) == ["a", "b/2"]
    assert keys(*open_store("", store=bucket)) == ["lake/a", "lake/b/2", "lakes/x", "top"]
    assert keys(*open_store("lake/", store=bucket)) == ["a", "b/2"]
    assert keys(*open_store("lake/*/?", store=bucket)) == ["b/2"]
    store, pattern = open_store("lake/b/2", store=bucket)
    assert (store.uri, pattern, keys(store)) == ("memory:///lake/b", "2", ["2"])
    store, pattern = open_store("top", store=bucket)
    assert (pattern, keys(store)) == ("top", ["top"])


@pytest.mark.parametrize("name", ["nothing", "lak", "lake/f/", "lake/f/x", ""])
def test_no_such_object(name: str) -> None:
    bucket = memory("lake/f") if name else MemoryStore()
    with pytest.raises(ReadError, match="no such file or directory"):
        open_store(name, store=bucket)


def test_a_name_that_is_both_is_a_directory() -> None:
    store, pattern = open_store("out.parquet", store=memory("out.parquet", "out.parquet/part-0"))
    assert (pattern, keys(store)) == ("", ["part-0"])


def test_opening_an_object_costs_no_request_and_the_first_read_one() -> None:
    store, _ = open_store("lake", store=memory("lake/f", data=b"0123456789"))
    listed = store.list()[0]
    source = store.open(listed.key, version=listed.version, size=listed.size)
    assert (source.size(), source.version(), source.counter.requests) == (10, listed.version, 0)
    assert source.tail(3) == (b"789", 10)
    assert (source.counter.requests, source.counter.bytes) == (1, 3)
    assert source.version() == listed.version


def test_s3_pages(s3: dict[str, str]) -> None:
    # moto lists what it is told to store, a thousand keys a page, without a request per object here.
    from moto.backends import get_backend

    backend = get_backend("s3")["123456789012"]["aws"]
    for number in range(2_100):
        backend.put_object("bucket", f"many/{number:05}", b"x" * (number % 7))
    backend.put_object("bucket", "many/", b"")
    store, _ = open_store("s3://bucket/many", storage_options=s3)
    listed = store.list()
    assert [file.key for file in listed] == [f"{number:05}" for number in range(2_100)]
    assert [file.size for file in listed[:8]] == [0, 1, 2, 3, 4, 5, 6, 0]


def test_a_marked_directory_without_files_is_empty(s3: dict[str, str]) -> None:
    from moto.backends import get_backend

    get_backend("s3")["123456789012"]["aws"].put_object("bucket", "marked/", b"")
    for name in ("s3://bucket/marked", "s3://bucket/marked/"):
        store, pattern = open_store(name, storage_options=s3)
        assert (pattern, store.list()) == ("", [])


def test_a_key_that_can_not_be_named_is_an_error(s3: dict[str, str]) -> None:
    from moto.backends import get_backend

    get_backend("s3")["123456789012"]["aws"].put_object("bucket", "bad//key", b"")
    with pytest.raises(ReadError, match="bad//key"):
        open_store("s3://bucket/bad", storage_options=s3)


@pytest.fixture
def stores(tmp_path: Path, s3: dict[str, str]) -> Callable[[str, str], tuple[Store, Any]]:
    """A lake on one kind of store, and how to put a file in it."""

    def make(kind: str, name: str) -> tuple[Store, Any]:
        if kind == "local":

            def put(key: str, data: bytes) -> None:
                fresh = tmp_path / "fresh"
                fresh.write_bytes(data)
                (tmp_path / name / key).parent.mkdir(parents=True, exist_ok=True)
                fresh.replace(tmp_path / name / key)

            put("zero", b"0")
            return open_store(tmp_path / name)[0], (put, lambda key: (tmp_path / name / key).unlink())
        bucket = S3Store("bucket", config=s3)
        obstore.put(bucket, f"{name}/zero", b"0")
        store = open_store(f"s3://bucket/{name}", storage_options=s3)[0]
        return store, (
            lambda key, data: obstore.put(bucket, f"{name}/{key}", data),
            lambda key: obstore.delete(bucket, f"{name}/{key}"),
        )

    return make


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_odd_names_come_back(stores: Any, kind: str, tmp_path: Path, s3: dict[str, str]) -> None:
    store, (put, _) = stores(kind, "odd %41=é")
    for number, key in enumerate(ODD):
        put(key, bytes([number]) * 3)
    listed = [file for file in store.list() if file.key != "zero"]
    assert [file.key for file in listed] == sorted(ODD)
    for file in listed:
        source = store.open(file.key, version=file.version)
        assert source.tail(3) == (bytes([ODD.index(file.key)]) * 3, 3)
        name = store.path(file.key)
        assert open_source(name, storage_options=s3).tail(1)[1] == 3
        if "[" not in name:
            alone, pattern = open_store(name, storage_options=s3)
            assert keys(alone, pattern) == [name.rpartition("/")[2]]


@pytest.mark.parametrize("kind", ["local", "s3"])
@pytest.mark.parametrize("change", ["deleted", "replaced", "same size", "shorter"])
def test_a_file_that_is_not_the_listed_one_is_refused(stores: Any, kind: str, change: str) -> None:
    store, (put, delete) = stores(kind, f"stale {change}")
    put("f", b"0123456789" * 10)
    listed = store.list()[0]
    if change == "deleted":
        delete("f")
    else:
        put("f", {"replaced": b"x" * 200, "same size": b"x" * 100, "shorter": b"x"}[change])
    for read in (lambda s: s.tail(10), lambda s: s.read_ranges([ByteRange(50, 60)])):
        source = store.open("f", version=listed.version, size=listed.size)
        with pytest.raises(ReadError, match=r"f: .*refresh the lake") as info:
            read(source)
        assert info.value.path == store.path("f")
        assert not info.value.transient


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_a_file_of_another_size_is_refused(stores: Any, kind: str) -> None:
    store, (put, _) = stores(kind, "sizes")
    put("f", b"0123456789")
    assert store.open("f", size=10).tail(2) == (b"89", 10)
    for size in (0, 9, 11, 5_000):
        for read in (lambda s: s.tail(2), lambda s: s.read_ranges([ByteRange(0, 2)])):
            with pytest.raises(ReadError, match=f"10 bytes, but the table recorded {size:,}") as refused:
                read(store.open("f", size=size))
            assert "restore the file" in (refused.value.hint or "")
            assert not refused.value.transient


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_places_are_pickled(stores: Any, kind: str) -> None:
    store, (put, _) = stores(kind, "pickled")
    put("f", b"12345")
    again = pickle.loads(pickle.dumps(with_credentials(store)))
    listed = pickle.loads(pickle.dumps(store.list()))
    assert again == store
    assert again.list() == listed
    assert again.open("f", version=listed[0].version).tail(2) == (b"45", 5)


def test_a_place_of_the_callers_own_store_is_pickled_with_it(s3: dict[str, str]) -> None:
    config = {name: value for name, value in s3.items() if name != "aws_allow_http"}
    bucket = S3Store("bucket", prefix="own", config=config, client_options={"allow_http": True})
    obstore.put(bucket, "lake/f", b"1")
    store, _ = open_store("lake", store=bucket)
    assert store.uri == "s3://bucket/own/lake"
    assert keys(pickle.loads(pickle.dumps(with_credentials(store)))) == ["f"]


def test_one_object_needs_no_right_to_list(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise obstore.exceptions.PermissionDeniedError("403")

    bucket = memory("lake/f")
    monkeypatch.setattr(obstore, "list", refuse)
    assert keys(*open_store("lake/f", store=bucket)) == ["f"]
    with pytest.raises(ReadError, match="permission denied"):
        open_store("lake/", store=bucket)


def test_s3_nothing_there(s3: dict[str, str]) -> None:
    with pytest.raises(ReadError, match=r"s3://bucket/none/at/all: no such file or directory"):
        open_store("s3://bucket/none/at/all", storage_options=s3)
    with pytest.raises(ReadError, match=r"bucket does not exist"):
        open_store("s3://no-such-bucket/x", storage_options=s3)


@pytest.mark.parametrize(
    "name", ["http://127.0.0.1:1/lake/", "http://127.0.0.1:1/*.parquet", "http://127.0.0.1:1"]
)
def test_http_is_not_listed(name: str) -> None:
    with pytest.raises(ReadError, match=r"can.t list files on an HTTP server.*one file"):
        open_store(name)


def test_http_names_one_file_without_a_request() -> None:
    store, pattern = open_store("http://127.0.0.1:1/a%20b/f%20x.parquet")
    assert (store.uri, pattern) == ("http://127.0.0.1:1/a%20b", "f x.parquet")
    assert store.path(pattern) == "http://127.0.0.1:1/a%20b/f%20x.parquet"
