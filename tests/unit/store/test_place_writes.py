"""Writing to a place: whole files or nothing, one winner among exclusive writers, listing by parts."""

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

from benchmarks.far_store import SlowPlace
from skipstone.errors import ConflictError, FileError, ReadError, WriteError
from skipstone.store.local import LocalPlace
from skipstone.store.objects import LARGE
from skipstone.store.options import with_credentials
from skipstone.store.place import Place, open_place

KINDS = ["local", "memory", "s3"]


@pytest.fixture
def place_of(tmp_path: Path, s3: dict[str, str]) -> Callable[[str, str], Place]:
    """A place on one kind of store, with nothing in it yet."""

    def make(kind: str, name: str) -> Place:
        if kind == "local":
            return LocalPlace(str(tmp_path)).child(name)
        if kind == "memory":
            return open_place("*", store=MemoryStore())[0].child(name)
        return open_place("s3://bucket/*", storage_options=s3)[0].child(name)

    return make


def content(place: Place, key: str) -> bytes:
    return place.open(key).tail(1 << 30)[0]


def keys(files: list[Any]) -> list[str]:
    return [file.key for file in files]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_is_read(place_of: Any, kind: str) -> None:
    place = place_of(kind, "written")
    place.write("a/b/f", [b"012", memoryview(b"xx345yy")[2:5], b""])
    assert content(place, "a/b/f") == b"012345"
    place.write("a/b/f", iter([b"new"]))
    assert content(place, "a/b/f") == b"new"
    place.write("empty", [])
    assert [(file.key, file.size) for file in place.list()] == [("a/b/f", 3), ("empty", 0)]
    assert content(place.child("a").child("b"), "f") == b"new"
    assert place.child("a").path("b/f") == place.path("a/b/f")


@pytest.mark.parametrize("kind", KINDS)
def test_odd_names(place_of: Any, kind: str) -> None:
    place = place_of(kind, "written odd %41=é")
    names = ["day=2026-01-01 00%3A00%3A00/f", "naïve=ü/雪 #1", "p=100%/a+b&c", "~x/..y/$z!"]
    for name in names:
        place.write(name, [name.encode()], exclusive=True)
    assert keys(place.list()) == sorted(names)
    assert [content(place, name).decode() for name in names] == names
    assert place.folders() == sorted(name.split("/")[0] for name in names)
    place.delete(names)
    assert place.below("p=100%") == []


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_a_large_file(place_of: Any, kind: str) -> None:
    place = place_of(kind, "large")
    part = os.urandom(LARGE // 2 + 1)
    place.write("f", [part, part])
    assert content(place, "f") == part + part
    place.write("g", [part, part], exclusive=True)
    assert place.list()[1].size == 2 * len(part)


@pytest.mark.parametrize("kind", KINDS)
def test_one_of_many_exclusive_writers_wins(place_of: Any, kind: str) -> None:
    place = place_of(kind, "race")
    start = threading.Barrier(16)

    def attempt(number: int) -> str | int:
        start.wait()
        try:
            place.write("deep/commit", [b"%d" % number] * 1000, exclusive=True)
        except ConflictError as error:
            return str(error)
        return number

    with ThreadPoolExecutor(16) as pool:
        outcomes = list(pool.map(attempt, range(16)))
    (winner,) = (outcome for outcome in outcomes if isinstance(outcome, int))
    assert content(place, "deep/commit") == b"%d" % winner * 1000
    assert {outcome for outcome in outcomes if outcome != winner} == {
        f"{place.path('deep/commit')}: the {'file' if place.local else 'object'} exists already"
    }
    # Whoever does not ask to be alone replaces it.
    place.write("deep/commit", [b"other"])
    assert content(place, "deep/commit") == b"other"
    assert keys(place.list()) == ["deep/commit"]


def test_a_conflict_is_not_a_failed_write() -> None:
    # Who falls back to another place on a WriteError must not hide that somebody was first.
    assert issubclass(ConflictError, FileError)
    assert not issubclass(ConflictError, WriteError)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("exclusive", [False, True])
def test_a_failure_midway_leaves_the_old_file_and_nothing_else(
    place_of: Any, kind: str, exclusive: bool
) -> None:
    place = place_of(kind, f"midway {exclusive}")

    def parts() -> Iterator[bytes]:
        yield b"x" * 100_000
        raise ReadError("the source broke")

    place.write("old", [b"old"])
    with pytest.raises(ReadError, match="the source broke"):
        place.write("new", parts(), exclusive=exclusive)
    with pytest.raises(ReadError, match="the source broke"):
        place.write("old", parts())
    assert keys(place.list()) == ["old"]
    assert content(place, "old") == b"old"


@pytest.mark.parametrize("kind", KINDS)
def test_readers_see_one_version_or_the_other(place_of: Any, kind: str) -> None:
    place = place_of(kind, "atomic")
    versions = [bytes([digit]) * 300_000 for digit in b"01"]
    place.write("f", [versions[0]])
    done = threading.Event()
    torn: list[bytes] = []
    refused: set[str] = set()
    seen = 0

    def watch() -> None:
        nonlocal seen
        while not done.is_set():
            try:
                found = content(place, "f")
            except ReadError as error:
                # Replaced between the two requests of a read, which the source notices.
                refused.add(error.message)
                continue
            seen += 1
            if found not in versions:
                torn.append(found)

    reader = threading.Thread(target=watch)
    reader.start()
    for number in range(100 if place.local else 30):
        place.write("f", (versions[number % 2][at : at + 1000] for at in range(0, 300_000, 1000)))
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
            place = LocalPlace(str(closed))
            failed = 0
            for attempt in (
                lambda: place.write("f", [b"2"]),
                lambda: place.write("f", [b"2"], exclusive=True),
                lambda: place.write("new/f", [b"2"]),
                lambda: place.delete(["f"]),
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
    place = LocalPlace(str(tmp_path))
    with pytest.raises(WriteError) as caught:
        place.write("f", [b"1"])
    assert str(caught.value) == f"{tmp_path}/f: {message}"
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(Path, "hardlink_to", fail)
    with pytest.raises(WriteError, match="hard links"):
        LocalPlace(str(tmp_path)).write("f", [b"1"], exclusive=True)
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_way(tmp_path: Path) -> None:
    place = LocalPlace(str(tmp_path))
    place.write("f", [b"1"])
    (tmp_path / "folder").mkdir()
    for key in ("f/x", "folder"):
        with pytest.raises(WriteError, match=f"{tmp_path}/{key}: "):
            place.write(key, [b"2"])
    with pytest.raises(WriteError, match="folder"):
        place.delete(["folder"])
    place.delete(["f/x"])
    assert keys(place.list()) == ["f"]


def test_a_store_that_refuses(s3: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    place = open_place("s3://no-such-bucket/*", storage_options=s3)[0]
    with pytest.raises(WriteError, match=r"s3://no-such-bucket/f: .*(NoSuchBucket|404|not found)"):
        place.write("f", [b"1"])

    def refuse(*_: Any, **__: Any) -> Any:
        raise obstore.exceptions.PermissionDeniedError("403")

    monkeypatch.setattr(obstore, "put", refuse)
    monkeypatch.setattr(obstore, "delete", refuse)
    with pytest.raises(
        WriteError, match=r"-bucket/f: permission denied \(check the credentials: .*AWS_PROFILE"
    ):
        place.write("f", [b"1"])
    with pytest.raises(WriteError, match="permission denied"):
        place.delete(["f"])


@pytest.mark.parametrize("kind", KINDS)
def test_deleting(place_of: Any, kind: str) -> None:
    place = place_of(kind, "deleting")
    for key in ("a/1", "a/2", "b", "c"):
        place.write(key, [b"1"])
    place.delete(key for key in ("a/1", "gone", "a/2", "no/such/folder/f", "b"))
    assert keys(place.list()) == ["c"]
    place.delete([])
    place.delete(["c", "c"])
    assert place.below("a") == []


def test_a_store_that_misses_what_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    # As Google's and Azure's do; it stops at the first.
    store = MemoryStore()
    place = open_place("*", store=store)[0]
    really = obstore.delete

    def strict(store: Any, names: list[str]) -> None:
        for name in names:
            obstore.head(store, name)
            really(store, name)

    monkeypatch.setattr(obstore, "delete", strict)
    for key in ("a", "b"):
        place.write(key, [b"1"])
    place.delete(["a", "gone", "b"])
    assert place.list() == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_parts_of_a_place_are_the_whole(place_of: Any, kind: str) -> None:
    place = place_of(kind, "parts")
    names = ["a/b/c", "a/z", "a-1", "b=1/f", "b=10/g", ".hidden/x", "_log/0.json", "top", "zzz"]
    for name in names:
        place.write(name, [name.encode()])
    assert place.folders() == [".hidden", "_log", "a", "b=1", "b=10"]
    assert keys(place.files_here()) == ["a-1", "top", "zzz"]
    assert keys(place.below("a")) == keys(place.below("a/")) == ["a/b/c", "a/z"]
    assert keys(place.below("a/b")) == ["a/b/c"]
    assert keys(place.below("b=1")) == ["b=1/f"]
    assert place.below("") == place.list()
    assert [place.below(nothing) for nothing in ("nothing", "no/thing", "top", "a/z/y")] == [[]] * 4
    parts = [*place.files_here(), *(file for name in place.folders() for file in place.below(name))]
    assert sorted(parts, key=lambda file: file.key) == place.list()


def test_links_are_in_the_parts_as_in_the_whole(tmp_path: Path) -> None:
    place = LocalPlace(str(tmp_path)).child("lake")
    for key in ("a/f", "b/c/g"):
        place.write(key, [b"1"])
    LocalPlace(str(tmp_path)).write("elsewhere/h", [b"1"])
    lake = tmp_path / "lake"
    (lake / "a" / "up").symlink_to(lake)
    (lake / "b" / "c" / "up").symlink_to(lake / "b")
    (lake / "here").symlink_to(".")
    (lake / "linked").symlink_to(tmp_path / "elsewhere")
    (lake / "lost").symlink_to("nothing")
    assert place.folders() == ["a", "b", "linked"]
    assert keys(place.files_here()) == ["lost"]
    parts = [*place.files_here(), *(file for name in place.folders() for file in place.below(name))]
    assert sorted(parts, key=lambda file: file.key) == place.list()
    assert keys(place.list()) == ["a/f", "b/c/g", "linked/h", "lost"]
    assert place.below("here") == place.below("a/up") == []


# -- names that lead out of the root -----------------------------------------------------------

OUTSIDE = ["", "/", "..", "../f", "a/../../f", "a/..", "./f", "a//f", "f/", "/f", "f\0", "\ud800"]
CHANGES: dict[str, Callable[[Place, str], object]] = {
    "write": lambda place, key: place.write(key, [b"2"]),
    "write exclusive": lambda place, key: place.write(key, [b"2"], exclusive=True),
    "delete": lambda place, key: place.delete(["a/g", key]),
    "move": lambda place, key: place.move(key, "moved"),
    "move to": lambda place, key: place.move("a/g", key),
    "clear": lambda place, key: place.clear(key),
}
READS: dict[str, Callable[[Place, str], object]] = {
    "open": lambda place, key: place.open(key).tail(9),
    "child": lambda place, key: place.child(key).files_here(),
    "path": lambda place, key: place.path(key),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", OUTSIDE)
def test_names_outside_the_root_are_refused(place_of: Any, kind: str, name: str) -> None:
    """Whoever forges a record that names files can't have others opened, moved or deleted."""
    above = place_of(kind, f"outside {OUTSIDE.index(name)}")
    for key in ("f", "lake/a/g"):
        above.write(key, [b"1"])
    place = above.child("lake")
    for key in {name, f"{above.path('f')}" if place.local else name}:
        for does in CHANGES.values():
            with pytest.raises(WriteError, match="not one below the root"):
                does(place, key)
        for does in READS.values():
            with pytest.raises(ReadError, match="not one below the root"):
                does(place, key)
    with pytest.raises(ReadError, match="not one below the root"):
        place.below(f"{name}/x")
    assert {file.key: content(above, file.key) for file in above.list()} == {"f": b"1", "lake/a/g": b"1"}


@pytest.mark.parametrize("kind", KINDS)
def test_names_that_only_look_as_if_they_led_out(place_of: Any, kind: str) -> None:
    place = place_of(kind, "looks")
    names = ["%2e%2e/f", "C:\\..\\f", "...", "a/..b", "~/f", "a:b/f"]
    for name in names:
        place.write(name, [b"1"])
    assert keys(place.list()) == sorted(names)
    place.delete(names)
    assert place.list() == []


def test_changes_follow_no_link_out_of_the_root(tmp_path: Path) -> None:
    lake, other = tmp_path / "lake", tmp_path / "other"
    root = LocalPlace(str(lake))
    for key in ("in/f", "g"):
        root.write(key, [b"1"])
    LocalPlace(str(other)).write("f", [b"1"])
    (lake / "out").symlink_to(other)
    (lake / "file").symlink_to(other / "f")
    (lake / "linked").symlink_to("in")
    for place, prefix in ((root, "out/"), (root.child("out"), "")):
        for name, does in CHANGES.items():
            if name != "move to":
                with pytest.raises(WriteError, match=rf"a link leads out of {lake}"):
                    does(place, f"{prefix}f")
        with pytest.raises(WriteError, match=rf"a link leads out of {lake}"):
            place.move(f"{prefix}f", f"{prefix}h")
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
    LocalPlace(str(tmp_path / "way")).delete(["in/new"])
    assert keys(root.below("in")) == []


def test_marks_of_folders_are_in_the_parts_as_in_the_whole(s3: dict[str, str]) -> None:
    from moto.backends import get_backend

    backend = get_backend("s3")["123456789012"]["aws"]
    for key in ("marks/", "marks/a/", "marks/a/f", "marks/b/", "marks/f"):
        backend.put_object("bucket", key, b"")
    place, _ = open_place("s3://bucket/marks", storage_options=s3)
    assert place.folders() == ["a", "b"]
    parts = [*place.files_here(), *(file for name in place.folders() for file in place.below(name))]
    assert sorted(parts, key=lambda file: file.key) == place.list()


@pytest.mark.parametrize("kind", KINDS)
def test_one_file_is_all_there_is(place_of: Any, kind: str, s3: dict[str, str]) -> None:
    place = place_of(kind, "alone")
    for key in ("f", "g", "sub/h"):
        place.write(key, [b"1"])
    options: dict[str, Any] = {"storage_options": s3}
    name = place.path("f")
    if kind == "memory":
        options, name = {"store": place.store}, "alone/f"
    alone, _ = open_place(name, **options)
    assert keys(alone.list()) == keys(alone.files_here()) == keys(alone.below("")) == ["f"]
    assert (alone.folders(), alone.below("sub")) == ([], [])
    assert keys(alone.child("sub").list()) == ["h"]


def test_a_child_that_does_not_exist(tmp_path: Path) -> None:
    place = LocalPlace(str(tmp_path))
    for look in (place.child("no").list, place.child("no").folders, place.child("no").files_here):
        with pytest.raises(ReadError, match=f"{tmp_path}/no: no such file or directory"):
            look()
    assert place.below("no") == []


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_a_child_is_pickled(place_of: Any, kind: str) -> None:
    place = place_of(kind, "child pickled").child("index")
    again = pickle.loads(pickle.dumps(with_credentials(place)))
    assert again == place
    again.write("f", [b"1"])
    assert keys(place.list()) == ["f"]
    assert place.uri.endswith("child pickled/index")


def test_the_errors_are_pickled() -> None:
    for kind in (ConflictError, WriteError):
        error = pickle.loads(pickle.dumps(kind("why", path="p", hint="h")))
        assert (type(error), str(error)) == (kind, "p: why (h)")


def test_a_slow_place_waits_for_each_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    slow = SlowPlace(LocalPlace(str(tmp_path)), 0.5, bytes_per_second=10).child("x")
    slow.write("sub/f", [b"12345"], exclusive=True)
    with pytest.raises(ConflictError):
        slow.write("sub/f", [], exclusive=True)
    slow.write("g", [])
    assert slept == [1.0, 0.5, 0.5]
    assert (slow.folders(), keys(slow.files_here()), keys(slow.below("sub"))) == (["sub"], ["g"], ["sub/f"])
    slow.delete(["g"])
    assert slept[3:] == [0.5] * 4
    assert keys(slow.place.list()) == ["sub/f"]


# -- moving and clearing -----------------------------------------------------------------------


@pytest.mark.parametrize("slow", [False, True], ids=["", "slow"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_is_moved(place_of: Any, kind: str, slow: bool) -> None:
    place = place_of(kind, f"moved{slow}")
    place = SlowPlace(place, 0.0) if slow else place
    place.write("a/b/f", [b"012"])
    place.write("a/g", [b"3"])
    before = place.below("a/b")[0]
    place.move("a/b/f", "c/d/f")
    assert keys(place.list()) == ["a/g", "c/d/f"]
    assert content(place, "c/d/f") == b"012"
    after = place.below("c")[0]
    assert after.size == 3
    if kind == "local":
        assert after.version[1] > before.version[1], "the time at which it came there"
    with pytest.raises(ConflictError, match="exists already") as caught:
        place.move("a/g", "c/d/f")
    assert caught.value.path == place.path("c/d/f")
    assert content(place, "c/d/f") == b"012"
    assert keys(place.list()) == ["a/g", "c/d/f"]
    with pytest.raises(WriteError, match="no such") as missing:
        place.move("gone", "h")
    assert missing.value.path == place.path("gone")


@pytest.mark.parametrize("slow", [False, True], ids=["", "slow"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_directory_is_cleared(place_of: Any, kind: str, slow: bool) -> None:
    place = place_of(kind, f"cleared{slow}")
    place = SlowPlace(place, 0.0) if slow else place
    for key in ("a/f", "a/b/c/g", "ab/f", "f"):
        place.write(key, [b"x"])
    place.clear("a")
    assert keys(place.list()) == ["ab/f", "f"]
    assert "a" not in place.folders()
    place.clear("a")
    place.clear("never/was")
    assert keys(place.list()) == ["ab/f", "f"]


def test_a_directory_that_can_not_be_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = LocalPlace(str(tmp_path))
    place.write("a/f", [b"x"])

    def refused(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "unlink", refused)
    with pytest.raises(WriteError, match="permission denied") as caught:
        place.clear("a")
    assert caught.value.path == place.path("a")
    monkeypatch.setattr(os, "utime", refused)
    with pytest.raises(WriteError, match="permission denied"):
        place.move("a/f", "g")


@pytest.mark.parametrize("slow", [False, True], ids=["", "slow"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_place_above(place_of: Any, kind: str, slow: bool) -> None:
    place = place_of(kind, "above")
    place = SlowPlace(place, 0.0) if slow else place
    below = place.child("a").child("b")
    up = below.parent()
    assert up is not None
    assert up.uri == place.child("a").uri
    above = up.parent()
    assert above is not None
    assert above.uri == place.uri
    above.write("a/b/f", [b"x"])
    assert keys(below.list()) == ["f"]
    top, steps = place, 0
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
    place = LocalPlace(str(tmp_path))
    for act in (lambda: place.write("a", [b"1"]), lambda: place.move("a", "b")):
        if not fatal:
            act()
            continue
        with pytest.raises(WriteError) as refused:
            act()
        assert refused.value.path in (place.path("a"), place.path("b"))
    assert place.open("b").tail(1)[0] == b"1"
