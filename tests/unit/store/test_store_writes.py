"""Writes to a store: atomic files, one winner among exclusive writers, listing by parts."""

import errno
import os
import pickle
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.store import MemoryStore

from benchmarks.far_store import SlowStore
from skipstone.errors import ConflictError, FileError, ReadError, WriteError
from skipstone.store.local import LocalStore
from skipstone.store.objects import LARGE
from skipstone.store.options import with_credentials
from skipstone.store.store import Store, open_store

KINDS = ["local", "memory", "s3"]


@pytest.fixture
def store_at(tmp_path: Path, s3: dict[str, str]) -> Callable[[str, str], Store]:
    """An empty store of one kind."""

    def make(kind: str, name: str) -> Store:
        if kind == "local":
            return LocalStore(str(tmp_path)).child(name)
        if kind == "memory":
            return open_store("*", store=MemoryStore())[0].child(name)
        return open_store("s3://bucket/*", storage_options=s3)[0].child(name)

    return make


def content(store: Store, key: str) -> bytes:
    return store.open(key).tail(1 << 30)[0]


def keys(files: list[Any]) -> list[str]:
    return [file.key for file in files]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_is_read(store_at: Any, kind: str) -> None:
    store = store_at(kind, "written")
    store.write("a/b/f", [b"012", memoryview(b"xx345yy")[2:5], b""])
    assert content(store, "a/b/f") == b"012345"
    store.write("a/b/f", iter([b"new"]))
    assert content(store, "a/b/f") == b"new"
    store.write("empty", [])
    assert [(file.key, file.size) for file in store.list()] == [("a/b/f", 3), ("empty", 0)]
    assert content(store.child("a").child("b"), "f") == b"new"
    assert store.child("a").path("b/f") == store.path("a/b/f")


@pytest.mark.parametrize("kind", KINDS)
def test_odd_names(store_at: Any, kind: str) -> None:
    store = store_at(kind, "written odd %41=é")
    names = ["day=2026-01-01 00%3A00%3A00/f", "naïve=ü/雪 #1", "p=100%/a+b&c", "~x/..y/$z!"]
    for name in names:
        store.write(name, [name.encode()], exclusive=True)
    assert keys(store.list()) == sorted(names)
    assert [content(store, name).decode() for name in names] == names
    assert store.list_directories() == sorted(name.split("/")[0] for name in names)
    store.delete(names)
    assert store.list_prefix("p=100%") == []


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_a_large_file(store_at: Any, kind: str) -> None:
    store = store_at(kind, "large")
    part = os.urandom(LARGE // 2 + 1)
    store.write("f", [part, part])
    assert content(store, "f") == part + part
    store.write("g", [part, part], exclusive=True)
    assert store.list()[1].size == 2 * len(part)


@pytest.mark.parametrize("kind", KINDS)
def test_one_of_many_exclusive_writers_wins(store_at: Any, kind: str) -> None:
    store = store_at(kind, "race")
    start = threading.Barrier(16)

    def attempt(number: int) -> str | int:
        start.wait()
        try:
            store.write("deep/commit", [b"%d" % number] * 1000, exclusive=True)
        except ConflictError as error:
            return str(error)
        return number

    with ThreadPoolExecutor(16) as pool:
        outcomes = list(pool.map(attempt, range(16)))
    (winner,) = (outcome for outcome in outcomes if isinstance(outcome, int))
    assert content(store, "deep/commit") == b"%d" % winner * 1000
    assert {outcome for outcome in outcomes if outcome != winner} == {
        f"{store.path('deep/commit')}: {'file' if store.local else 'object'} already exists"
    }
    # Whoever does not ask to be alone replaces it.
    store.write("deep/commit", [b"other"])
    assert content(store, "deep/commit") == b"other"
    assert keys(store.list()) == ["deep/commit"]


def test_a_conflict_is_not_a_failed_write() -> None:
    # A writer that falls back to another store on a WriteError must not hide that somebody was first.
    assert issubclass(ConflictError, FileError)
    assert not issubclass(ConflictError, WriteError)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("exclusive", [False, True])
def test_a_failure_midway_leaves_the_old_file_and_nothing_else(
    store_at: Any, kind: str, exclusive: bool
) -> None:
    store = store_at(kind, f"midway {exclusive}")

    def parts() -> Iterator[bytes]:
        yield b"x" * 100_000
        raise ReadError("the source broke")

    store.write("old", [b"old"])
    with pytest.raises(ReadError, match="the source broke"):
        store.write("new", parts(), exclusive=exclusive)
    with pytest.raises(ReadError, match="the source broke"):
        store.write("old", parts())
    assert keys(store.list()) == ["old"]
    assert content(store, "old") == b"old"


@pytest.mark.parametrize("kind", KINDS)
def test_readers_see_one_version_or_the_other(store_at: Any, kind: str) -> None:
    store = store_at(kind, "atomic")
    versions = [bytes([digit]) * 300_000 for digit in b"01"]
    store.write("f", [versions[0]])
    done = threading.Event()
    torn: list[bytes] = []
    refused: set[str] = set()
    seen = 0

    def watch() -> None:
        nonlocal seen
        while not done.is_set():
            try:
                found = content(store, "f")
            except ReadError as error:
                # Replaced between the two requests of a read, which the source notices.
                refused.add(error.message)
                continue
            seen += 1
            if found not in versions:
                torn.append(found)

    reader = threading.Thread(target=watch)
    reader.start()
    for number in range(100 if store.local else 30):
        store.write("f", (versions[number % 2][at : at + 1000] for at in range(0, 300_000, 1000)))
    done.set()
    reader.join()
    assert seen > 0
    assert torn == []
    assert refused <= {"file changed while it was being read"}


# Newer Pythons warn of a fork beside the threads of other tests.
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_directory_that_may_not_be_written_to() -> None:
    # In a folder that anybody may enter, for root may write everywhere, so a child becomes somebody else.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        closed = Path(folder) / "closed"
        closed.mkdir(mode=0o555)
        (closed / "f").write_bytes(b"1")
        child = os.fork()
        if not child:
            if not os.geteuid():
                os.setuid(65534)
            store = LocalStore(str(closed))
            failed = 0
            for attempt in (
                lambda: store.write("f", [b"2"]),
                lambda: store.write("f", [b"2"], exclusive=True),
                lambda: store.write("new/f", [b"2"]),
                lambda: store.delete(["f"]),
            ):
                try:
                    attempt()
                except WriteError as error:
                    failed += error.message == "permission denied" and bool(error.hint)
            os._exit(0 if failed == 4 else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert [(p.name, p.read_bytes()) for p in closed.iterdir()] == [("f", b"1")]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (errno.EROFS, "read-only file system (write to another file system)"),
        (errno.ENOSPC, "no space left on device (free some space, or write to another file system)"),
        (errno.EIO, "input/output error"),
    ],
)
def test_a_failing_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, message: str
) -> None:
    def fail(_: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fail)
    store = LocalStore(str(tmp_path))
    with pytest.raises(WriteError) as caught:
        store.write("f", [b"1"])
    assert str(caught.value) == f"{tmp_path}/f: {message}"
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(Path, "hardlink_to", fail)
    with pytest.raises(WriteError, match="hard links"):
        LocalStore(str(tmp_path)).write("f", [b"1"], exclusive=True)
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_way(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    store.write("f", [b"1"])
    (tmp_path / "folder").mkdir()
    for key in ("f/x", "folder"):
        with pytest.raises(WriteError, match=f"{tmp_path}/{key}: "):
            store.write(key, [b"2"])
    with pytest.raises(WriteError, match="folder"):
        store.delete(["folder"])
    store.delete(["f/x"])
    assert keys(store.list()) == ["f"]


def test_a_store_that_refuses(s3: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store("s3://no-such-bucket/*", storage_options=s3)[0]
    with pytest.raises(WriteError, match=r"s3://no-such-bucket/f: bucket does not exist"):
        store.write("f", [b"1"])

    def refuse(*_: Any, **__: Any) -> Any:
        raise obstore.exceptions.PermissionDeniedError("403")

    monkeypatch.setattr(obstore, "put", refuse)
    monkeypatch.setattr(obstore, "delete", refuse)
    with pytest.raises(WriteError, match=r"-bucket/f: permission denied \(set AWS_PROFILE"):
        store.write("f", [b"1"])
    with pytest.raises(WriteError, match="permission denied"):
        store.delete(["f"])


@pytest.mark.parametrize("kind", KINDS)
def test_deleting(store_at: Any, kind: str) -> None:
    store = store_at(kind, "deleting")
    for key in ("a/1", "a/2", "b", "c"):
        store.write(key, [b"1"])
    store.delete(key for key in ("a/1", "gone", "a/2", "no/such/folder/f", "b"))
    assert keys(store.list()) == ["c"]
    store.delete([])
    store.delete(["c", "c"])
    assert store.list_prefix("a") == []


def test_a_store_that_misses_what_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    # As Google's and Azure's do; it stops at the first.
    bucket = MemoryStore()
    store = open_store("*", store=bucket)[0]
    really = obstore.delete

    def strict(bucket: Any, names: list[str]) -> None:
        for name in names:
            obstore.head(bucket, name)
            really(bucket, name)

    monkeypatch.setattr(obstore, "delete", strict)
    for key in ("a", "b"):
        store.write(key, [b"1"])
    store.delete(["a", "gone", "b"])
    assert store.list() == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_parts_of_a_place_are_the_whole(store_at: Any, kind: str) -> None:
    store = store_at(kind, "parts")
    names = ["a/b/c", "a/z", "a-1", "b=1/f", "b=10/g", ".hidden/x", "_log/0.json", "top", "zzz"]
    for name in names:
        store.write(name, [name.encode()])
    assert store.list_directories() == [".hidden", "_log", "a", "b=1", "b=10"]
    assert keys(store.list_files()) == ["a-1", "top", "zzz"]
    assert keys(store.list_prefix("a")) == keys(store.list_prefix("a/")) == ["a/b/c", "a/z"]
    assert keys(store.list_prefix("a/b")) == ["a/b/c"]
    assert keys(store.list_prefix("b=1")) == ["b=1/f"]
    assert store.list_prefix("") == store.list()
    assert [store.list_prefix(nothing) for nothing in ("nothing", "no/thing", "top", "a/z/y")] == [[]] * 4
    parts = [
        *store.list_files(),
        *(file for name in store.list_directories() for file in store.list_prefix(name)),
    ]
    assert sorted(parts, key=lambda file: file.key) == store.list()


def test_links_are_in_the_parts_as_in_the_whole(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path)).child("lake")
    for key in ("a/f", "b/c/g"):
        store.write(key, [b"1"])
    LocalStore(str(tmp_path)).write("elsewhere/h", [b"1"])
    lake = tmp_path / "lake"
    (lake / "a" / "up").symlink_to(lake)
    (lake / "b" / "c" / "up").symlink_to(lake / "b")
    (lake / "here").symlink_to(".")
    (lake / "linked").symlink_to(tmp_path / "elsewhere")
    (lake / "lost").symlink_to("nothing")
    assert store.list_directories() == ["a", "b", "linked"]
    assert keys(store.list_files()) == ["lost"]
    parts = [
        *store.list_files(),
        *(file for name in store.list_directories() for file in store.list_prefix(name)),
    ]
    assert sorted(parts, key=lambda file: file.key) == store.list()
    assert keys(store.list()) == ["a/f", "b/c/g", "linked/h", "lost"]
    assert store.list_prefix("here") == store.list_prefix("a/up") == []


# -- names that lead out of the root -----------------------------------------------------------

OUTSIDE = ["", "/", "..", "../f", "a/../../f", "a/..", "./f", "a//f", "f/", "/f", "f\0", "\ud800"]
CHANGES: dict[str, Callable[[Store, str], object]] = {
    "write": lambda store, key: store.write(key, [b"2"]),
    "write exclusive": lambda store, key: store.write(key, [b"2"], exclusive=True),
    "delete": lambda store, key: store.delete(["a/g", key]),
    "move": lambda store, key: store.move(key, "moved"),
    "move to": lambda store, key: store.move("a/g", key),
    "clear": lambda store, key: store.clear(key),
}
READS: dict[str, Callable[[Store, str], object]] = {
    "open": lambda store, key: store.open(key).tail(9),
    "child": lambda store, key: store.child(key).list_files(),
    "path": lambda store, key: store.path(key),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", OUTSIDE)
def test_names_outside_the_root_are_refused(store_at: Any, kind: str, name: str) -> None:
    """Whoever forges a record that names files can't have others opened, moved or deleted."""
    above = store_at(kind, f"outside {OUTSIDE.index(name)}")
    for key in ("f", "lake/a/g"):
        above.write(key, [b"1"])
    store = above.child("lake")
    for key in {name, f"{above.path('f')}" if store.local else name}:
        for does in CHANGES.values():
            with pytest.raises(WriteError, match="not below the root"):
                does(store, key)
        for does in READS.values():
            with pytest.raises(ReadError, match="not below the root"):
                does(store, key)
    with pytest.raises(ReadError, match="not below the root"):
        store.list_prefix(f"{name}/x")
    assert {file.key: content(above, file.key) for file in above.list()} == {"f": b"1", "lake/a/g": b"1"}


@pytest.mark.parametrize("kind", KINDS)
def test_names_that_only_look_as_if_they_led_out(store_at: Any, kind: str) -> None:
    store = store_at(kind, "looks")
    names = ["%2e%2e/f", "C:\\..\\f", "...", "a/..b", "~/f", "a:b/f"]
    for name in names:
        store.write(name, [b"1"])
    assert keys(store.list()) == sorted(names)
    store.delete(names)
    assert store.list() == []


def test_changes_follow_no_link_out_of_the_root(tmp_path: Path) -> None:
    lake, other = tmp_path / "lake", tmp_path / "other"
    root = LocalStore(str(lake))
    for key in ("in/f", "g"):
        root.write(key, [b"1"])
    LocalStore(str(other)).write("f", [b"1"])
    (lake / "out").symlink_to(other)
    (lake / "file").symlink_to(other / "f")
    (lake / "linked").symlink_to("in")
    for store, prefix in ((root, "out/"), (root.child("out"), "")):
        for name, does in CHANGES.items():
            if name != "move to":
                with pytest.raises(WriteError, match=rf"a link leads out of {lake}"):
                    does(store, f"{prefix}f")
        with pytest.raises(WriteError, match=rf"a link leads out of {lake}"):
            store.move(f"{prefix}f", f"{prefix}h")
    with pytest.raises(WriteError, match=rf"a link leads out of {lake}"):
        root.move("g", "out/g")
    # Reads follow links, and a link that is deleted or replaced is not followed.
    assert content(root, "out/f") == content(root, "file") == b"1"
    root.delete(["file", "linked/f"])
    root.write("linked/new", [b"2"])
    (lake / "file").symlink_to(other / "f")
    root.write("file", [b"3"])
    assert keys(root.list()) == ["file", "g", "in/new", "linked/new", "out/f"]
    assert [(path.name, path.read_bytes()) for path in other.iterdir()] == [("f", b"1")]
    # The root itself may be reached by a link.
    (tmp_path / "way").symlink_to(lake)
    LocalStore(str(tmp_path / "way")).delete(["in/new"])
    assert keys(root.list_prefix("in")) == []


def test_marks_of_folders_are_in_the_parts_as_in_the_whole(s3: dict[str, str]) -> None:
    from moto.backends import get_backend

    backend = get_backend("s3")["123456789012"]["aws"]
    for key in ("marks/", "marks/a/", "marks/a/f", "marks/b/", "marks/f"):
        backend.put_object("bucket", key, b"")
    store, _ = open_store("s3://bucket/marks", storage_options=s3)
    assert store.list_directories() == ["a", "b"]
    parts = [
        *store.list_files(),
        *(file for name in store.list_directories() for file in store.list_prefix(name)),
    ]
    assert sorted(parts, key=lambda file: file.key) == store.list()


@pytest.mark.parametrize("kind", KINDS)
def test_one_file_is_all_there_is(store_at: Any, kind: str, s3: dict[str, str]) -> None:
    store = store_at(kind, "alone")
    for key in ("f", "g", "sub/h"):
        store.write(key, [b"1"])
    options: dict[str, Any] = {"storage_options": s3}
    name = store.path("f")
    if kind == "memory":
        options, name = {"store": store.client}, "alone/f"
    alone, _ = open_store(name, **options)
    assert keys(alone.list()) == keys(alone.list_files()) == keys(alone.list_prefix("")) == ["f"]
    assert (alone.list_directories(), alone.list_prefix("sub")) == ([], [])
    assert keys(alone.child("sub").list()) == ["h"]


def test_a_child_that_does_not_exist(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    for look in (store.child("no").list, store.child("no").list_directories, store.child("no").list_files):
        with pytest.raises(ReadError, match=f"{tmp_path}/no: no such file or directory"):
            look()
    assert store.list_prefix("no") == []


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_a_child_is_pickled(store_at: Any, kind: str) -> None:
    store = store_at(kind, "child pickled").child("index")
    again = pickle.loads(pickle.dumps(with_credentials(store)))
    assert again == store
    again.write("f", [b"1"])
    assert keys(store.list()) == ["f"]
    assert store.uri.endswith("child pickled/index")


def test_the_errors_are_pickled() -> None:
    for kind in (ConflictError, WriteError):
        error = pickle.loads(pickle.dumps(kind("why", path="p", hint="h")))
        assert (type(error), str(error)) == (kind, "p: why (h)")


def test_a_slow_place_waits_for_each_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    slow = SlowStore(LocalStore(str(tmp_path)), 0.5, bytes_per_second=10).child("x")
    slow.write("sub/f", [b"12345"], exclusive=True)
    with pytest.raises(ConflictError):
        slow.write("sub/f", [], exclusive=True)
    slow.write("g", [])
    assert slept == [1.0, 0.5, 0.5]
    assert (slow.list_directories(), keys(slow.list_files()), keys(slow.list_prefix("sub"))) == (
        ["sub"],
        ["g"],
        ["sub/f"],
    )
    slow.delete(["g"])
    assert slept[3:] == [0.5] * 4
    assert keys(slow.store.list()) == ["sub/f"]


# -- moving and clearing -----------------------------------------------------------------------


@pytest.mark.parametrize("slow", [False, True], ids=["", "slow"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_is_moved(store_at: Any, kind: str, slow: bool) -> None:
    store = store_at(kind, f"moved{slow}")
    store = SlowStore(store, 0.0) if slow else store
    store.write("a/b/f", [b"012"])
    store.write("a/g", [b"3"])
    before = store.list_prefix("a/b")[0]
    store.move("a/b/f", "c/d/f")
    assert keys(store.list()) == ["a/g", "c/d/f"]
    assert content(store, "c/d/f") == b"012"
    after = store.list_prefix("c")[0]
    assert after.size == 3
    if kind == "local":
        assert after.version[1] > before.version[1], "the time at which it came there"
    with pytest.raises(ConflictError, match="already exists") as caught:
        store.move("a/g", "c/d/f")
    assert caught.value.path == store.path("c/d/f")
    assert content(store, "c/d/f") == b"012"
    assert keys(store.list()) == ["a/g", "c/d/f"]
    with pytest.raises(WriteError, match="no such") as missing:
        store.move("gone", "h")
    assert missing.value.path == store.path("gone")


@pytest.mark.parametrize("slow", [False, True], ids=["", "slow"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_directory_is_cleared(store_at: Any, kind: str, slow: bool) -> None:
    store = store_at(kind, f"cleared{slow}")
    store = SlowStore(store, 0.0) if slow else store
    for key in ("a/f", "a/b/c/g", "ab/f", "f"):
        store.write(key, [b"x"])
    store.clear("a")
    assert keys(store.list()) == ["ab/f", "f"]
    assert "a" not in store.list_directories()
    store.clear("a")
    store.clear("never/was")
    assert keys(store.list()) == ["ab/f", "f"]


def test_a_directory_that_can_not_be_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(str(tmp_path))
    store.write("a/f", [b"x"])

    def refused(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "unlink", refused)
    with pytest.raises(WriteError, match="permission denied") as caught:
        store.clear("a")
    assert caught.value.path == store.path("a")
    monkeypatch.setattr(os, "utime", refused)
    with pytest.raises(WriteError, match="permission denied"):
        store.move("a/f", "g")


@pytest.mark.parametrize("slow", [False, True], ids=["", "slow"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_place_above(store_at: Any, kind: str, slow: bool) -> None:
    store = store_at(kind, "above")
    store = SlowStore(store, 0.0) if slow else store
    below = store.child("a").child("b")
    up = below.parent()
    assert up is not None
    assert up.uri == store.child("a").uri
    above = up.parent()
    assert above is not None
    assert above.uri == store.uri
    above.write("a/b/f", [b"x"])
    assert keys(below.list()) == ["f"]
    top, steps = store, 0
    while (higher := top.parent()) is not None:
        assert len(higher.uri) < len(top.uri)
        top, steps = higher, steps + 1
    assert 1 <= steps < 30


@pytest.mark.parametrize(("code", "fatal"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_a_directory_that_can_not_be_synced(
    code: int, fatal: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some file systems have no way to do it, which is fine; a failure is told."""
    sync = os.fsync

    def refuse(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(code, os.strerror(code))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse)
    store = LocalStore(str(tmp_path))
    for act in (lambda: store.write("a", [b"1"]), lambda: store.move("a", "b")):
        if not fatal:
            act()
            continue
        with pytest.raises(WriteError) as refused:
            act()
        assert refused.value.path in (store.path("a"), store.path("b"))
    assert store.open("b").tail(1)[0] == b"1"
