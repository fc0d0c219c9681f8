"""Ctrl-C at known steps of jobs: it stays a KeyboardInterrupt, little is done after it, no file is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import skipstone as sk
from skipstone.engine.jobs import STOP
from tests.faults._interrupted_job import SCHEMA as SCHEMA_OF_JOBS
from tests.faults._interrupted_job import rows as rows_of_jobs

ROWS, BATCH = 400_000, 1 << 17
SCHEMA = pa.schema({"id": pa.int64(), "x": pa.int64()})
NOW: dict[str, Any] = {"older_than": "0s", "allow_recent": True, "dry_run": True}


def press() -> None:
    """Press Ctrl-C; from any thread, the main one gets it, which takes until it runs next."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    stop = None if threading.current_thread() is threading.main_thread() else STOP.get()
    while stop is not None and not stop.is_set:
        time.sleep(0.001)


@pytest.fixture(autouse=True)
def no_trace_is_left() -> Iterator[None]:
    """Afterwards Ctrl-C is what it was, and no thread of a job runs."""
    # Shells let commands in the background ignore it.
    outside = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.signal(signal.SIGINT, outside) is signal.default_int_handler
    assert not [one for one in threading.enumerate() if one.name.startswith("skipstone-job")]


def rows(first: int, count: int) -> pa.Table:
    ids = range(first, first + count)
    return pa.table({"id": pa.array(ids), "x": pa.array([n * 7_919 % 100_003 for n in ids])}, schema=SCHEMA)


def filled(root: Path, files: int = 2, **options: Any) -> sk.Table:
    table = sk.catalog(root / "warehouse").create_table("db.t", SCHEMA, **options)
    for number in range(files):
        table.table.append(rows(number * ROWS // files, ROWS // files))
    return table.refresh()


def check_intact(root: Path, count: int = ROWS) -> sk.Table:
    table = sk.catalog(root / "warehouse").open("db.t")
    assert table.remove_orphans(**NOW).files == ()
    found = table.scan().to_arrow()["id"].to_pylist()
    assert sorted(found) == list(range(count))
    return table


class Pressing:
    """A progress that presses Ctrl-C once a phase has reached a share, and notes what follows."""

    def __init__(self, phase: str, share: float = 0.0) -> None:
        self.phase, self.share = phase, share
        self.after: list[tuple[str, int, int]] = []
        self.pressed = False

    def __call__(self, phase: str, done: int, total: int) -> None:
        if self.pressed:
            self.after.append((phase, done, total))
        elif phase == self.phase and done >= self.share * total:
            self.pressed = True
            self.at = done
            press()


# -- compaction ----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["binpack", "sort", "spilled"])
def test_a_group_that_is_being_rewritten(tmp_path: Path, how: str) -> None:
    table = filled(tmp_path)
    options: dict[str, Any] = (
        {"strategy": "binpack"} if how == "binpack" else {"strategy": "sort", "sort_by": ["x"]}
    )
    plan = table.plan_compaction(rewrite_all=True, **options)
    assert len(plan.groups) == 1
    progress = Pressing("rewriting", 0.1)
    memory = 1 << 20 if how == "spilled" else None
    with pytest.raises(KeyboardInterrupt, match="nothing was committed"):
        table.compact(plan, engine="local", threads=1, memory=memory, progress=progress)
    # The batch that was being written, and one that was decoded ahead.
    assert all(phase == "rewriting" for phase, _, _ in progress.after)
    assert max((done for _, done, _ in progress.after), default=0) - progress.at <= 2 * BATCH
    assert max((done for _, done, _ in progress.after), default=0) < ROWS
    again = check_intact(tmp_path)
    assert len(again.snapshots()) == 2
    assert again.compact(again.plan_compaction(rewrite_all=True, **options), engine="local").groups == 1
    check_intact(tmp_path)


def test_while_ordered_rows_are_written(tmp_path: Path) -> None:
    table = filled(tmp_path)
    plan = table.plan_compaction(rewrite_all=True, strategy="sort", sort_by=["x"])
    progress = Pressing("rewriting", 0.6)
    with pytest.raises(KeyboardInterrupt, match="nothing was committed"):
        table.compact(plan, engine="local", threads=1, progress=progress)
    assert progress.at >= 0.6 * ROWS
    assert max((done for _, done, _ in progress.after), default=0) - progress.at <= BATCH
    assert len(check_intact(tmp_path).snapshots()) == 2


def test_between_commits(tmp_path: Path) -> None:
    table = filled(tmp_path, partition_by=["bucket(4, id)"])
    plan = table.plan_compaction(
        rewrite_all=True, partial_progress_enabled=True, partial_progress_max_commits=len(table.files)
    )
    assert len(plan.groups) == 4
    progress = Pressing("committing", 0.5)
    with pytest.raises(
        KeyboardInterrupt, match=r"groups were committed as snapshots \d+, \d+, \d+; all others"
    ):
        table.compact(plan, engine="local", threads=1, progress=progress)
    assert {phase for phase, _, _ in progress.after} <= {"rewriting"}
    # What was begun is committed.
    assert len(check_intact(tmp_path).snapshots()) == 2 + 3


class InterruptedCatalog(SqlCatalog):
    """A catalog in which Ctrl-C is pressed during commits."""

    when = ""
    commits = 0

    def commit_table(self, *args: Any, **options: Any) -> Any:
        type(self).commits += 1
        if self.when == "before":
            press()
        done = super().commit_table(*args, **options)
        if self.when == "after":
            press()
        return done


def opened_by(root: Path, when: str) -> sk.Table:
    warehouse = root / "warehouse"
    catalog = InterruptedCatalog(
        "skipstone", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=f"file://{warehouse}"
    )
    table = sk.catalog(catalog).open("db.t")
    catalog.when = when
    InterruptedCatalog.commits = 0
    return table


JOBS: dict[str, tuple[Callable[[sk.Table], Any], str]] = {
    "compact": (
        lambda table: table.compact(table.plan_compaction(rewrite_all=True), engine="local"),
        "groups were committed as snapshots",
    ),
    "ingest": (
        lambda table: sk.ingest(rows(ROWS, 100), table, engine="local"),
        "rows were committed as snapshot",
    ),
    "manifests": (lambda table: table.rewrite_manifests(), "manifests were rewritten by snapshot"),
    "expire": (lambda table: table.expire(older_than="0s"), "snapshots have expired"),
}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("what", JOBS)
def test_during_a_commit(tmp_path: Path, what: str, when: str) -> None:
    table = sk.catalog(tmp_path / "warehouse").create_table("db.t", SCHEMA)
    for number in range(3):
        table.table.append(rows(number * 10, 10))
    job, outcome = JOBS[what]
    with pytest.raises(KeyboardInterrupt, match=outcome):
        job(opened_by(tmp_path, when))
    assert InterruptedCatalog.commits == 1
    again = sk.catalog(tmp_path / "warehouse").open("db.t")
    if what == "expire":
        # Its files are left, as it says, and found.
        assert len(again.snapshots()) == 1
        again.remove_orphans(older_than="0s", allow_recent=True)
    assert again.remove_orphans(**NOW).files == ()
    added = 100 if what == "ingest" else 0
    assert again.scan().count() == 30 + added


# -- ingest --------------------------------------------------------------------------------------


def stream(press_at: int, drawn: list[int]) -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(20):
            drawn.append(number)
            if number == press_at:
                press()
            yield from rows(number * 1_000, 1_000).to_batches()

    return pa.RecordBatchReader.from_batches(SCHEMA, batches())


def files_of(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file() and "parquet" in path.name]


@pytest.mark.parametrize("kind", ["directory", "table"])
def test_an_ingest_that_reads(tmp_path: Path, kind: str) -> None:
    drawn: list[int] = []
    target: Any = tmp_path / "lake"
    if kind == "table":
        target = sk.catalog(tmp_path / "warehouse").create_table("db.t", SCHEMA)
    with pytest.raises(KeyboardInterrupt, match="no row was written"):
        sk.ingest(stream(7, drawn), target, engine="local")
    # The batch in which it was pressed is the last.
    assert drawn == list(range(8))
    assert files_of(tmp_path) == []
    assert sk.ingest(rows(0, 50), target, engine="local").rows == 50
    if kind == "table":
        check_intact(tmp_path, 50)


@pytest.mark.parametrize("kind", ["directory", "table", "overwrite"])
def test_an_ingest_that_writes(tmp_path: Path, kind: str) -> None:
    target: Any = tmp_path / "lake"
    how: dict[str, Any] = {}
    if kind != "directory":
        target = sk.catalog(tmp_path / "warehouse").create_table("db.t", SCHEMA)
    if kind == "overwrite":
        target.table.append(rows(0, 50))
        how = {"mode": "overwrite", "where": "id < 20"}
    progress = Pressing("writing", 0.3)
    with pytest.raises(KeyboardInterrupt, match="no row was written"):
        sk.ingest(rows(0, ROWS), target, engine="local", threads=1, progress=progress, **how)
    assert max((done for _, done, _ in progress.after), default=0) < ROWS
    assert max((done for _, done, _ in progress.after), default=0) - progress.at <= BATCH
    if kind == "directory":
        assert files_of(tmp_path) == []
    else:
        check_intact(tmp_path, 50 if kind == "overwrite" else 0)


# -- other jobs ----------------------------------------------------------------------------------


def test_an_index_build(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    for number in range(12):
        sk.ingest(rows(number * 10, 10), root, engine="local", index=False)
    done: list[int] = []

    def progress(count: int, total: int) -> None:
        done.append(count)
        press()

    lake = sk.open(root)
    with pytest.raises(KeyboardInterrupt, match="the index is as before"):
        lake.index.build(engine="local", threads=1, progress=progress)
    assert len(done) == 1
    lake = sk.open(root)
    assert not lake.index.status().exists
    assert lake.scan("id < 15").count() == 15
    report = lake.index.build(engine="local")
    assert report.indexed + report.adopted == 12
    assert report.adopted >= 1
    assert lake.scan("id < 15").count() == 15


class FirstRemoval:
    """Presses Ctrl-C when the first file is removed below a directory."""

    root: str | None = None
    installed = False

    @classmethod
    def below(cls, root: Path) -> None:
        cls.root = str(root)
        if not cls.installed:
            sys.addaudithook(cls.hook)
            cls.installed = True

    @classmethod
    def hook(cls, event: str, arguments: tuple[Any, ...]) -> None:
        if cls.root is not None and event == "os.remove" and os.fsdecode(arguments[0]).startswith(cls.root):
            cls.root = None
            press()


@pytest.mark.parametrize("what", ["expire", "orphans"])
def test_while_files_are_deleted(tmp_path: Path, what: str) -> None:
    table = sk.catalog(tmp_path / "warehouse").create_table("db.t", SCHEMA)
    for number in range(3):
        table.table.append(rows(number * 10, 10))
        table.refresh().compact(table.plan_compaction(rewrite_all=True), engine="local")
    home = Path(table.metadata.location.removeprefix("file://"))
    left = home / "data" / "left.parquet"
    left.write_bytes(b"left over")
    FirstRemoval.below(home)
    if what == "orphans":
        with pytest.raises(KeyboardInterrupt, match="some of the orphans may have been deleted"):
            table.remove_orphans(older_than="0s", allow_recent=True)
    else:
        with pytest.raises(KeyboardInterrupt, match="snapshots have expired"):
            table.expire(older_than="0s")
    again = sk.catalog(tmp_path / "warehouse").open("db.t")
    again.remove_orphans(older_than="0s", allow_recent=True)
    check_intact(tmp_path, 30)


def test_a_third_press_does_not_wait(tmp_path: Path) -> None:
    """A step that never looks at the request can be left."""

    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(3):
            press()
        yield from rows(0, 10).to_batches()
        raise AssertionError

    with pytest.raises(KeyboardInterrupt):
        sk.ingest(pa.RecordBatchReader.from_batches(SCHEMA, batches()), tmp_path / "lake", engine="local")
    assert files_of(tmp_path) == []


def test_a_handler_of_the_caller_stays(tmp_path: Path) -> None:
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:
        report = sk.ingest(stream(3, []), tmp_path / "lake", engine="local")
    finally:
        signal.signal(signal.SIGINT, before)
    assert (report.rows, pressed) == (20_000, [signal.SIGINT])


# -- processes -----------------------------------------------------------------------------------

KINDS = ("binpack", "sort", "ingest table", "ingest directory")
COUNT, PRESSES = 300_000, 25


def interrupted(kind: str, root: Path, wait: float, presses: int) -> tuple[int, str, float]:
    """Press Ctrl-C some time after a job has begun; return the exit code, what it said, and its seconds."""
    command = [sys.executable, "-m", "tests.faults._interrupted_job", kind, str(root), str(COUNT)]
    process = subprocess.Popen(
        command,
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n", process.communicate()
    began = time.monotonic()
    time.sleep(wait)
    for _ in range(presses):
        process.send_signal(signal.SIGINT)
        time.sleep(0.02)
    output, errors = process.communicate(timeout=120)
    # Python ends by the signal if it comes when the job is over.
    assert process.returncode in (0, 130, -signal.SIGINT), errors[-2_000:]
    assert "Error" not in errors, errors[-2_000:]
    return process.returncode, output.strip(), time.monotonic() - began


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_interrupts_at_many_times(tmp_path: Path, kind: str) -> None:
    """Twenty-five of each kind, between the first step of a job and its end."""
    table = sk.catalog(tmp_path).create_table("db.t", SCHEMA_OF_JOBS)
    for number in range(3):
        table.table.append(rows_of_jobs(number * COUNT, COUNT))
    sk.ingest(rows_of_jobs(0, 10), tmp_path / "lake", engine="local")
    code, words, longest = interrupted(kind, tmp_path, 0, 0)
    assert (code, words) == (0, "")

    def counts() -> tuple[int, int]:
        table = sk.catalog(tmp_path).open("db.t")
        assert table.remove_orphans(**NOW).files == (), said
        assert not [path for path in (tmp_path / "lake").rglob("*.staged") if path.is_file()], said
        return table.scan().count(), sk.open(tmp_path / "lake").scan().count()

    said: list[tuple[int, str, float]] = []
    before = counts()
    for number in range(PRESSES):
        wait = longest * number / (PRESSES - 1)
        said.append(interrupted(kind, tmp_path, wait, 1 + number % 2))
        code, words, _ = said[-1]
        all_of_it = {
            "ingest table": (before[0] + COUNT, before[1]),
            "ingest directory": (before[0], before[1] + COUNT),
        }.get(kind, before)
        nothing = code == 130 and ("no row was written" in words or "nothing was committed" in words)
        done = code == 0 or "committed as snapshot" in words or "were published" in words
        after = counts()
        assert after in ({before} if nothing else {all_of_it} if done else {before, all_of_it}), said
        before = after
    print(kind, [(code, words.partition(": ")[2][:30]) for code, words, _ in said])
    # How far a job comes in its time depends on the machine, but the first press is always before its end.
    assert said[0][0] == 130
    found = sk.catalog(tmp_path).open("db.t").scan("id < 10000000").to_arrow()
    assert sorted(found["id"].to_pylist()) == list(range(3 * COUNT))
