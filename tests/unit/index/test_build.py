"""Building, refreshing, merging, resuming: what is indexed, once, by whoever comes first."""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.store import LocalStore

import skipstone as sk
import skipstone.index.build as module
from skipstone.errors import ReadError, SkipstoneError, UnknownColumnError, UsageError
from skipstone.index.manifest import read_manifest
from skipstone.store.store import open_root
from tests.support.stores import own_files


def write(root: Path, number: int, rows: int = 50, **options: Any) -> None:
    """A file of its own ids, put in place in one step."""
    ids = range(number * 1000, number * 1000 + rows)
    table = pa.table(
        {"id": pa.array(ids, pa.int64()), "text": [f"w{n}" for n in ids], "x": [n / 2 for n in ids]}
    )
    root.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, root / f".f{number}.new", row_group_size=20, **options)
    (root / f".f{number}.new").replace(root / f"f{number:03d}.parquet")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for number in range(6):
        write(tmp_path / "lake", number)
    return tmp_path / "lake"


def covered(root: Path, **options: Any) -> int:
    """How many files the index knows, having told the right rows."""
    lake = sk.open(root, **options)
    scan = lake.scan("id = 3007 or id = 1", columns=["text"])
    assert scan.to_arrow()["text"].to_pylist() == ["w1", "w3007"]
    used = scan.trace().index
    assert used is not None
    assert used.problems == ()
    return int(used.covered)


# -- reports -----------------------------------------------------------------------------------


def test_a_build_and_its_refreshes(root: Path) -> None:
    lake = sk.open(root)
    done: list[tuple[int, int]] = []
    report = lake.index.build(engine="local", progress=lambda n, total: done.append((n, total)))
    assert (report.version, report.indexed, report.already_indexed, report.dropped, report.adopted) == (
        1,
        6,
        0,
        0,
        0,
    )
    assert report.requests > 0
    assert report.bytes > 0
    assert done[-1] == (6, 6)
    assert covered(root) == 6
    again = lake.index.build(engine="local")
    assert (again.version, again.indexed, again.already_indexed, again.requests) == (1, 0, 6, 0), (
        "nothing to do"
    )
    write(root, 6)
    write(root, 0, rows=49)
    (root / "f005.parquet").unlink()
    report = lake.index.refresh(engine="local")
    assert (report.indexed, report.already_indexed, report.dropped, report.version) == (2, 4, 2, 2)
    assert covered(root) == 6
    rebuilt = lake.index.build(engine="local", rebuild=True)
    assert (rebuilt.indexed, rebuilt.already_indexed) == (6, 0)
    assert covered(root) == 6


def test_another_choice_is_another_index(root: Path) -> None:
    lake = sk.open(root)
    lake.index.build(engine="local")
    report = lake.index.build(["id"], engine="local")
    assert (report.indexed, report.already_indexed) == (6, 0)
    assert [column[0] for column in read_manifest(lake.index.store).spec["columns"]] == [["id"]]
    write(root, 7)
    assert lake.index.refresh(engine="local").indexed == 1, "with the choice that was made last"
    assert covered(root) == 7


@pytest.mark.parametrize(
    ("choice", "error"),
    [
        ({"columns": ["nowhere"]}, UnknownColumnError),
        ({"columns": 7}, UsageError),
        ({"blooms": ["nowhere"]}, UnknownColumnError),
        ({"sums": ["nowhere"]}, UnknownColumnError),
        ({"engine": "steam"}, UsageError),
        ({"threads": 0}, UsageError),
    ],
    ids=str,
)
def test_choices_that_make_no_sense(root: Path, choice: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        sk.open(root).index.build(**{"engine": "local", **choice})
    assert not own_files(root).exists()


def test_nothing_to_refresh(root: Path) -> None:
    with pytest.raises(UsageError, match="no index"):
        sk.open(root).index.refresh(engine="local")


def test_files_that_cannot_be_indexed(root: Path) -> None:
    """They are named in the report, and are the business of the query that needs them."""
    (root / "f900.parquet").write_bytes(b"PAR1 and then nothing PAR1")
    lake = sk.open(root)
    report = lake.index.build(engine="local")
    assert [(Path(s.path).name, bool(s.reason)) for s in report.skipped] == [("f900.parquet", True)]
    assert report.indexed == 6
    opened = sk.open(root)
    with pytest.raises(SkipstoneError, match="f900"):
        opened.scan("id = 3007").to_arrow()
    (root / "f900.parquet").unlink()
    assert covered(root) == 6


def test_a_file_that_goes_while_it_is_indexed(root: Path) -> None:
    lake = sk.open(root)
    assert lake.schema
    (root / "f002.parquet").unlink()
    write(root, 4, rows=10)
    report = lake.index.build(engine="local")
    assert {Path(s.path).name for s in report.skipped} == {"f002.parquet", "f004.parquet"}
    assert covered(root) == 4
    assert sk.open(root).index.refresh(engine="local").indexed == 1
    assert covered(root) == 5


@pytest.mark.parametrize("column", ["dec", "text"])
def test_sums_and_sketches_of_what_has_none(tmp_path: Path, column: str) -> None:
    """Columns without sums are left out, not a reason to fail half-way."""
    table = pa.table(
        {"dec": pa.array([1, 2, None]).cast(pa.decimal128(38, 10)), "text": ["a", None, "c"], "id": [1, 2, 3]}
    )
    pq.write_table(table, tmp_path / "f.parquet")
    report = sk.open(tmp_path).index.build(engine="local", sums=True, sketches=True, values=True)
    assert report.indexed == 1
    try:
        sk.open(tmp_path).index.build(engine="local", sums=[column])
    except SkipstoneError as error:
        assert column in str(error)  # noqa: PT017
    assert sk.open(tmp_path).scan("id = 2").count() == 1


# -- merging -----------------------------------------------------------------------------------


@pytest.mark.parametrize("remote", [False, True])
def test_many_small_refreshes_are_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remote: bool
) -> None:
    """The number of segments stays small, nothing is lost, and what is gone is left out."""
    monkeypatch.setattr(module, "MANY_SEGMENTS", 2)
    root = tmp_path / "lake"
    write(root, 0)
    write(root, 3)
    lake = sk.open("lake", store=LocalStore(tmp_path)) if remote else sk.open(root)
    lake.index.build(["id", "text"], blooms=["text"], engine="local", sums=["id"])
    merged = 0
    for number in range(10, 22):
        write(root, number)
        if number % 4 == 0:
            (root / f"f{number - 2:03d}.parquet").unlink()
        report = lake.index.refresh(engine="local")
        merged += report.merged
        assert report.indexed == 1
        assert report.segments <= 9
        coverage = lake.index.coverage
        assert coverage is not None
        assert coverage.covered == len(lake.entries)
    assert merged > 5
    for number in range(10, 22):
        wanted = 1 if (root / f"f{number:03d}.parquet").exists() else 0
        for where in (f"id = {number}007", f"text = 'w{number}007'"):
            scan = lake.scan(where)
            assert scan.count() == wanted
            assert scan.plan().rows <= 20 * wanted, "one row group at most"
    assert lake.scan("id % 10 = 3").verify().ok


@pytest.mark.parametrize("remote", [False, True], ids=["near", "far"])
def test_a_rebuild_after_a_column_was_widened(tmp_path: Path, remote: bool) -> None:
    """Segments of the old type and of the new one are told apart, also in the memory of an open lake."""
    root = tmp_path / "lake"
    root.mkdir()

    def put(name: str, values: list[str], type: pa.DataType) -> None:
        array = pa.array(values).cast(pa.decimal128(20, 6)).cast(type)
        pq.write_table(pa.table({"d": array, "n": range(len(values))}), root / name)

    put("a.parquet", ["1.25", "2.50", "90.75"], pa.decimal128(9, 2))
    put("b.parquet", ["100.25", "200.50"], pa.decimal128(9, 2))
    lake = sk.open("lake", store=LocalStore(tmp_path)) if remote else sk.open(root)
    lake.index.build(["d"], engine="local")
    assert lake.scan("d = 90.75").count() == 1
    assert lake.scan("d > 150").count() == 1
    put("c.parquet", ["5.1234", "300.5000"], pa.decimal128(12, 4))
    for rebuild in (False, True):
        lake.refresh()
        lake.index.build(["d"], engine="local", rebuild=rebuild)
        for where, wanted in [
            ("d = 90.75", 1),
            ("d = 2.5", 1),
            ("d > 150", 2),
            ("d < 6", 3),
            ("d = 5.1234", 1),
        ]:
            scan = lake.scan(where)
            assert scan.count() == wanted, (where, rebuild)
            assert scan.trace().index.covered == 3
            assert lake.scan(where, index=False).count() == wanted


# -- several at once ---------------------------------------------------------------------------


def test_threads_that_build_at_once(root: Path) -> None:
    def work() -> None:
        sk.open(root).index.build(engine="local", threads=1)

    with ThreadPoolExecutor(6) as pool:
        jobs = [pool.submit(work) for _ in range(6)]
    for job in jobs:
        job.result()
    assert covered(root) == 6


def test_a_build_deletes_no_segment_that_another_may_be_committing(root: Path) -> None:
    """Parts that were merged at once stay until they are old: other jobs find them, and build on them."""
    for number in range(10, 20):
        write(root, number)
    lake = sk.open(root)
    report = lake.index.build(engine="local")
    assert report.merged > report.segments
    parts = {*own_files(root).glob("segment-*")}
    assert len(parts) == report.merged + report.segments
    for path in parts:
        os.utime(path, (0, 0))
    write(root, 20)
    report = lake.index.refresh(engine="local")
    assert len({*own_files(root).glob("segment-*")} & parts) < len(parts), "swept once they are old"
    assert covered(root) == 17


def test_a_file_that_is_gone_is_skipped_and_a_store_that_fails_is_not(root: Path) -> None:
    """Told apart by the error's type, whatever it says."""
    lake = sk.open(root)
    schema = lake.schema
    (root / "f001.parquet").unlink()
    write(root, 2, rows=51)
    report = lake.index.build(["id"], engine="local")
    assert sorted(Path(one.path).name for one in report.skipped) == ["f001.parquet", "f002.parquet"]
    assert report.indexed == 4
    store = FailingStore(sk.open(root).access.store, "no such luck: the file is there no more")
    other = sk.Lake(store, schema=schema, index_root=open_root(root.parent / "index"))
    with pytest.raises(ReadError, match="no such luck"):
        other.index.build(["id"], engine="local")


@dataclass(frozen=True)
class FailingStore:
    """A place whose files can be listed, and not read."""

    store: Any
    message: str

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "store"), name)

    def open(self, key: str, **_: Any) -> Any:
        raise ReadError(self.message, path=self.store.path(key))


WORKER = """
import sys, random, time
import skipstone as sk, skipstone.index.build as build
root, number, turns = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
from tests.unit.index.test_build import write
from pathlib import Path
build.MANY_SEGMENTS = 2
print("ready", flush=True)
for turn in range(turns):
    write(Path(root), 100 + 50 * number + turn)
    lake = sk.open(root)
    report = lake.index.refresh(engine="local")
    assert not report.skipped, report
"""


def spawn(code: str, *arguments: str) -> subprocess.Popen[str]:
    repository = str(Path(__file__).parents[3])
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=repository,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((repository, *sys.path))},
    )


def test_two_processes_refresh_while_a_third_reads(root: Path) -> None:
    """Nobody fails, the reader's rows are always right, and in the end the index is whole."""
    sk.open(root).index.build(engine="local")
    turns = 3
    workers = [spawn(WORKER, str(root), str(n), str(turns)) for n in range(2)]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n", worker.communicate()
    reads = used = 0
    already_indexed = sk.open(root)
    while reads < 6 or any(worker.poll() is None for worker in workers):
        for lake in (sk.open(root), already_indexed):
            scan = lake.scan("id = 3007 or id = 1", columns=["text"])
            assert scan.to_arrow()["text"].to_pylist() == ["w1", "w3007"]
            reads += 1
            used += bool(scan.trace().index and scan.trace().index.covered)
        if reads % 10 == 0:
            already_indexed.refresh()
    for worker in workers:
        _, errors = worker.communicate()
        assert worker.returncode == 0, errors[-2000:]
    assert reads >= 6
    assert used == reads
    total = 6 + 2 * turns
    report = sk.open(root).index.refresh(engine="local")
    assert report.already_indexed + report.adopted + report.indexed == total
    assert covered(root) == total
    assert not [p for p in own_files(root).iterdir() if p.name.startswith(".")]


def test_a_commit_with_an_older_listing_keeps_what_is_newer(root: Path) -> None:
    """Who lists first and commits last doesn't undo the other's work."""
    sk.open(root).index.build(engine="local")
    early = sk.open(root)
    assert early.schema
    write(root, 8)
    write(root, 9)
    assert sk.open(root).index.refresh(engine="local").indexed == 2
    early.index.build(engine="local")
    assert covered(root) == 8


# -- interrupted -------------------------------------------------------------------------------

BUILDERS = """
import json, os, signal, sys
import skipstone as sk, skipstone.index.build as build
build._LEAST_GROUPS, build._GROUP_FILES = 100, 1
for line in sys.stdin:
    root, last = json.loads(line)
    def die(done, total):
        if done >= last:
            os.kill(os.getpid(), signal.SIGKILL)
    pid = os.fork()
    if pid == 0:
        sk.open(root).index.build(["id", "text"], blooms=["text"], engine="local", threads=1, progress=die)
        os._exit(0)
    print(pid, flush=True)
    # Until the order to wait its number is its own, so that it can be killed when it has ended.
    sys.stdin.readline()
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


@dataclass(frozen=True)
class Builders:
    """Processes that build an index one after the other, forked from one that has imported everything."""

    process: subprocess.Popen[str]

    def start(self, root: Path, last: int) -> int:
        """The process, which kills itself when so many files are done."""
        return int(self._order(json.dumps([str(root), last])))

    def wait(self) -> int:
        """How it ended."""
        return int(self._order("wait"))

    def _order(self, line: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(line, file=self.process.stdin, flush=True)
        return self.process.stdout.readline()


@pytest.fixture(scope="module")
def builders() -> Iterator[Builders]:
    with spawn(BUILDERS) as process:
        yield Builders(process)
        _, errors = process.communicate()
        assert (process.returncode, errors) == (0, "")


@pytest.mark.parametrize("after", [1, 4, 8])
def test_a_job_that_was_killed_is_resumed(root: Path, builders: Builders, after: int) -> None:
    """The index reads as before, and what was done is not done again."""
    sk.open(root).index.build(["id", "text"], blooms=["text"], engine="local")
    for number in range(10, 18):
        write(root, number)
    builders.start(root, after)
    assert builders.wait() == -signal.SIGKILL
    assert covered(root) == 6
    report = sk.open(root).index.build(["id", "text"], blooms=["text"], engine="local")
    assert report.already_indexed == 6
    assert report.adopted >= after
    assert report.adopted + report.indexed == 8
    assert covered(root) == 14
    assert sk.open(root).scan("text = 'w13007'").count() == 1


def test_killed_at_any_time(root: Path, builders: Builders) -> None:
    """Whenever it happens: the next reader reads, the next builder builds."""
    rng = random.Random(3)
    sk.open(root).index.build(["id", "text"], blooms=["text"], engine="local")
    for number in range(10, 30):
        write(root, number)
    for _ in range(3):
        before = len(list(own_files(root).iterdir()))
        worker = builders.start(root, 1000)
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and len(list(own_files(root).iterdir())) == before:
            time.sleep(0.005)
        time.sleep(rng.random() * 0.03)
        os.kill(worker, signal.SIGKILL)
        assert builders.wait() in (-signal.SIGKILL, 0)
        assert covered(root) in (6, 26)
    sk.open(root).index.build(["id", "text"], blooms=["text"], engine="local")
    assert covered(root) == 26


def test_a_half_written_segment_is_not_adopted(root: Path) -> None:
    lake = sk.open(root)
    lake.index.build(engine="local")
    folder = own_files(root)
    for path in folder.glob("manifest-*"):
        path.unlink()
    for path in folder.glob("segment-*"):
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    report = sk.open(root).index.build(engine="local")
    assert (report.adopted, report.indexed) == (0, 6)
    assert covered(root) == 6


def test_segments_of_another_lake_are_not_adopted(root: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(root, other)
    sk.open(other).index.build(engine="local")
    own_files(root).mkdir()
    for path in own_files(other).glob("segment-*"):
        shutil.copy2(path, own_files(root))
    report = sk.open(root).index.build(engine="local")
    assert (report.adopted, report.indexed) == (0, 6)
    assert covered(root) == 6


def test_a_group_is_picklable_work(root: Path) -> None:
    """An engine may send it anywhere, and may do it twice."""

    class Twice:
        name = "twice"

        def map(self, work: Any, tasks: Any, *, on_done: Any = None) -> list[Any]:
            again = pickle.loads(pickle.dumps((work, list(tasks))))
            [again[0](task) for task in again[1]]
            return [pickle.loads(pickle.dumps(again[0](task))) for task in again[1]]

        def close(self) -> None:
            pass

    report = sk.open(root).index.build(engine=Twice())
    assert report.indexed == 6
    assert covered(root) == 6


def test_only_files_that_are_gone_or_have_changed_are_dropped(tmp_path: Path) -> None:
    for number in range(5):
        pq.write_table(pa.table({"id": [number], "word": ["a"]}), tmp_path / f"{number}.parquet")
    # Other options and rebuilds index the same files again: none of them has changed.
    for options in ({}, {"columns": ["id"]}, {"rebuild": True}, {"blooms": ["word"]}):
        lake = sk.open(tmp_path, index_root=f"{tmp_path}-index")
        assert lake.index.build(engine="local", **options).dropped == 0  # type: ignore[arg-type]
    (tmp_path / "3.parquet").unlink()
    pq.write_table(pa.table({"id": [7, 8], "word": ["b", "c"]}), tmp_path / "4.parquet")
    report = lake.index.refresh(engine="local")
    assert (report.indexed, report.already_indexed, report.dropped) == (1, 3, 2)
    assert lake.index.refresh(engine="local").dropped == 0
