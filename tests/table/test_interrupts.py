"""Ctrl-C in a write stays one, says what it has left, and leaves no files unless the outcome is unknown."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic_core import PydanticSerializationError

import skipstone as sk
from tests.table._keyed import content, new_table, rows
from tests.unit.cli.test_process import environment

BEFORE = "nothing was committed"
AFTER = "the change was committed"
UNKNOWN = "outcome of the commit is unknown"


def _transaction(table: sk.Table) -> None:
    with table.transaction() as changes:
        changes.update("id = 1", {"v": 5})
        changes.delete(keys=[2])


def _compact(table: sk.Table) -> None:
    table.compact(table.plan_compaction(rewrite_all=True), engine="local")


KEYED: dict[str, Callable[[sk.Table], Any]] = {
    "upsert": lambda table: table.upsert(rows([1, 50], v=3)),
    "append": lambda table: table.append(rows([50, 51])),
    "delete": lambda table: table.delete("v >= 30"),
    "update": lambda table: table.update("id = 1", {"v": 5}),
    "merge": lambda table: table.merge(rows([1, 50], v=3)),
    "transaction": _transaction,
    "ingest": lambda table: sk.ingest(rows([50, 51]), table, engine="local"),
    "compact": _compact,
    "rewrite_manifests": lambda table: table.rewrite_manifests(rewrite_all=True),
    "create_tag": lambda table: table.create_tag("new"),
    "drop_ref": lambda table: table.drop_ref("old"),
    "rollback": lambda table: table.rollback("old"),
    "expire": lambda table: table.expire(older_than="0s", retain_last=1),
}
OTHERS: dict[str, Callable[[sk.Table], Any]] = {
    "ingest into a table without a key": lambda table: sk.ingest(rows([50, 51]), table, engine="local"),
    "overwrite": lambda table: sk.ingest(rows([50]), table, engine="local", mode="overwrite", where="id = 1"),
}
WRITES = {**KEYED, **OTHERS}


@contextmanager
def commits(table: sk.Table, instead: Callable[[Callable[..., Any]], Any]) -> Iterator[list[int]]:
    """Replace the first commit of the table's catalog; yields a list of all of them."""
    catalog = table.table.catalog
    real, seen = catalog.commit_table, [0]

    def commit(*args: Any, **options: Any) -> Any:
        seen[0] += 1
        return instead(lambda: real(*args, **options)) if seen[0] == 1 else real(*args, **options)

    catalog.commit_table = commit  # type: ignore[method-assign]
    try:
        yield seen
    finally:
        del catalog.commit_table


def press() -> None:
    """Press Ctrl-C until it interrupts: jobs end at their next batch before the third time."""
    for _ in range(3):
        signal.raise_signal(signal.SIGINT)


def before(_commit: Callable[[], Any]) -> Any:
    press()


def after(commit: Callable[[], Any]) -> Any:
    done = commit()
    press()
    return done


def filled(folder: Path, name: str) -> sk.Table:
    """Two data files, a delete file, and a tag."""
    table = new_table(folder, key=() if name in OTHERS else ["id"])
    sk.ingest(rows(range(4)), table, engine="local", index=False)
    table.create_tag("old")
    sk.ingest(rows(range(4, 6)), table, engine="local", index=False)
    if name not in OTHERS:
        table.delete(keys=[3])
    return table


def shown(folder: Path) -> tuple[Any, ...]:
    """All that a write can change."""
    table = sk.open("db.t", catalog=folder)
    tags = {name: ref.snapshot_id for name, ref in table.metadata.refs.items()}
    return content(table), table.snapshot, tags, [one.id for one in table.snapshots()]


def orphans(folder: Path) -> list[str]:
    table = sk.open("db.t", catalog=folder)
    report = table.remove_orphans(older_than="0s", allow_recent=True, dry_run=True)
    return [path for path in report.files if "/.skipstone/" not in path]


@pytest.mark.sampled(11)
@pytest.mark.parametrize("when", [before, after])
@pytest.mark.parametrize("name", list(WRITES))
def test_an_interrupt_in_a_commit(name: str, when: Any, tmp_path: Path) -> None:
    table = filled(tmp_path, name)
    first = shown(tmp_path)
    with commits(table, when) as seen, pytest.raises(KeyboardInterrupt) as caught:
        WRITES[name](table)
    assert seen == [1]
    (note,) = caught.value.__notes__
    assert note.startswith(f"db.t: {BEFORE if when is before else AFTER}")
    assert (shown(tmp_path) == first) == (when is before)
    if name != "expire" or when is before:
        assert orphans(tmp_path) == []
    else:
        assert "remove_orphans" in note
    if when is before:
        WRITES[name](sk.open("db.t", catalog=tmp_path))
        assert shown(tmp_path) != first
        assert orphans(tmp_path) == []


def test_an_interrupt_while_another_process_commits(tmp_path: Path) -> None:
    """It does not make the write try again."""
    table = filled(tmp_path, "upsert")

    def meanwhile(_commit: Callable[[], Any]) -> None:
        sk.open("db.t", catalog=tmp_path).upsert(rows([77]))
        press()

    with commits(table, meanwhile) as seen, pytest.raises(KeyboardInterrupt) as caught:
        table.upsert(rows([50]))
    assert (seen, caught.value.__notes__) == ([1], [f"db.t: {BEFORE}"])
    fresh = sk.open("db.t", catalog=tmp_path)
    assert (fresh.get(50), fresh.get(77) is not None, orphans(tmp_path)) == (None, True, [])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["upsert", "create_tag", "expire"])
def test_an_interrupt_that_a_library_makes_an_error(name: str, tmp_path: Path) -> None:
    """It comes while pydantic serializes the metadata, in Python code that it calls."""
    table = filled(tmp_path, name)
    first = shown(tmp_path)

    def within(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name == "ser_model":
            sys.setprofile(None)
            press()

    def profiled(commit: Callable[[], Any]) -> Any:
        sys.setprofile(within)
        return commit()

    try:
        with commits(table, profiled), pytest.raises(KeyboardInterrupt) as caught:
            WRITES[name](table)
    finally:
        sys.setprofile(None)
    assert isinstance(caught.value.__cause__, PydanticSerializationError)
    assert caught.value.__notes__ == [f"db.t: {BEFORE}"]
    assert (shown(tmp_path), orphans(tmp_path)) == (first, [])


@pytest.mark.parametrize("name", ["upsert", "compact"])
def test_an_interrupt_with_an_unknown_outcome(name: str, tmp_path: Path) -> None:
    """The catalog can't be asked, so no file is deleted: here the commit lands later, as on a server."""
    table = filled(tmp_path, name)
    catalog, late = table.table.catalog, []

    def lost() -> Any:
        raise OSError("no connection")

    def instead(commit: Callable[[], Any]) -> None:
        late.append(commit)
        catalog.load_table = lambda *_: lost()  # type: ignore[method-assign]
        press()

    with commits(table, instead), pytest.raises(KeyboardInterrupt) as caught:
        WRITES[name](table)
    del catalog.load_table
    (note,) = caught.value.__notes__
    assert note.startswith(f"db.t: {UNKNOWN}: check whether the table has snapshot ")
    late[0]()
    fresh = sk.open("db.t", catalog=tmp_path)
    assert f"has snapshot {fresh.snapshot} before" in note
    assert len(content(fresh)) == (6 if name == "upsert" else 5)


def test_the_exit_code_and_the_message_of_a_command(tmp_path: Path) -> None:
    filled(tmp_path, "upsert")
    (tmp_path / "new.csv").write_text("id,v,s\n50,1,x\n")
    # A program that interrupts itself after the commit: no clock decides.
    code = (
        "import os, signal\n"
        "from pyiceberg.catalog.sql import SqlCatalog\n"
        "from skipstone.cli.main import run\n"
        "real = SqlCatalog.commit_table\n"
        "def commit(*args, **options):\n"
        "    done = real(*args, **options)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    return done\n"
        "SqlCatalog.commit_table = commit\n"
        "run()"
    )
    source, options = str(tmp_path / "new.csv"), ("--catalog", str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", code, "upsert", "db.t", source, *options],
        capture_output=True,
        check=False,
        text=True,
        timeout=600,
        env=environment(),
    )
    snapshot = sk.open("db.t", catalog=tmp_path).snapshot
    message = f"interrupted: db.t: {AFTER} as snapshot {snapshot}\n"
    assert (done.returncode, done.stdout, done.stderr) == (130, "", message)


@pytest.mark.slow
def test_real_signals_at_any_time(tmp_path: Path) -> None:
    """Nothing is lost or half done, and files are left only where a note says so."""
    count, random_ = 200, random.Random(7)
    new_table(tmp_path).upsert(rows([-2]))
    command = [sys.executable, "-m", "tests.table._interrupted", str(tmp_path), str(count)]
    outcomes: dict[int, tuple[str, str]] = {}
    longest = 0.2
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        # A process that hangs ends the test.
        watch = threading.Timer(900, process.kill)
        watch.start()
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            for number in range(count):
                assert process.stdout.readline() == "ready\n"
                process.stdin.write("\n")
                process.stdin.flush()
                began = time.monotonic()
                if number > 1:
                    time.sleep(random_.uniform(0, longest))
                    os.kill(process.pid, signal.SIGINT)
                done, how, outcome = json.loads(process.stdout.readline())
                if number <= 1:
                    longest = time.monotonic() - began
                assert done == number
                outcomes[number] = how, outcome
            assert process.wait() == 0
        finally:
            watch.cancel()
            process.kill()
    assert any(BEFORE in outcome for _, outcome in outcomes.values())
    found = {row["id"]: row["v"] for row in content(sk.open("db.t", catalog=tmp_path))}
    for number, (how, outcome) in outcomes.items():
        # An interrupt before the write, or after it, has no note.
        if outcome == "finished" or BEFORE in outcome or AFTER in outcome:
            assert (number in found) == (BEFORE not in outcome), (number, how, outcome)
    assert found[-1] == max(n for n in found if n >= 0)
    assert any(UNKNOWN in outcome for _, outcome in outcomes.values()) or orphans(tmp_path) == []
