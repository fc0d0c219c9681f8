"""``skipstone tail``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import skipstone as sk
from skipstone.cli.main import app
from skipstone.table.tail.lease import TailState


@pytest.fixture
def table(tmp_path: Path) -> sk.Table:
    schema = pa.schema({"id": pa.int64(), "v": pa.int64()})
    return sk.catalog(tmp_path / "w").create_table("db.t", schema, key=["id"])


def run(folder: Path, *args: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["tail", *args, "--catalog", f"{folder / 'w'}/"])
    assert result.exit_code == code, result.output
    return result.output


def test_status_and_flush(table: sk.Table, tmp_path: Path) -> None:
    assert "nothing to flush" in run(tmp_path, "status", "db.t")
    assert run(tmp_path, "flush", "db.t") == "db.t has nothing to flush\n"
    writer = table.writer(flush_seconds=None)
    writer.upsert(pa.table({"id": [1, 2], "v": [10, 20]}))
    writer.delete(keys=[3])
    shown = run(tmp_path, "status", "db.t")
    assert "2 rows, 1 deleted key in 2 unflushed calls" in shown
    assert "calls 1 to 2" in shown
    assert "open" in shown
    assert "already has a tail writer" in run(tmp_path, "flush", "db.t", code=4)
    writer.close(flush=False)
    status = json.loads(run(tmp_path, "status", "db.t", "--format", "json"))
    assert (status["calls"], status["rows"], status["deletes"], status["open"]) == (2, 2, 1, False)
    assert run(tmp_path, "flush", "db.t").startswith("flushed 2 calls of db.t; its snapshot is ")
    flushed = json.loads(run(tmp_path, "flush", "db.t", "--format", "json"))
    number = table.refresh().snapshot
    assert flushed == {
        "table": "db.t", "calls": 0, "snapshot": number, "dropped_bytes": 0, "lost_calls": 0
    }  # fmt: skip
    assert table.scan().count() == 2


def test_a_table_without_a_key(tmp_path: Path, table: sk.Table) -> None:
    sk.catalog(tmp_path / "w").create_table("db.plain", table.schema)
    assert "nothing to flush" in run(tmp_path, "status", "db.plain")
    assert "no such table" in run(tmp_path, "status", "db.none", code=4)


def killed(table: sk.Table, calls: int) -> Path:
    """The log of a process that was killed after some calls."""
    script = (
        "import os, sys, pyarrow as pa, skipstone as sk\n"
        "writer = sk.open('db.t', catalog=sys.argv[1]).writer(flush_seconds=None)\n"
        "for n in range(int(sys.argv[2])):\n"
        "    writer.upsert(pa.table({'id': [n], 'v': [n]}))\n"
        "os.kill(os.getpid(), 9)\n"
    )
    warehouse = Path(table.uri.removeprefix("file://")).parents[1]
    subprocess.run([sys.executable, "-W", "ignore", "-c", script, warehouse, str(calls)], check=False)
    (log,) = Path(table.tail_status().path).glob("*.wal")
    return log


def test_damage_to_synced_calls_after_a_kill(table: sk.Table, tmp_path: Path) -> None:
    """The last call, too, is known to have been synced; who accepts its loss is told what is lost."""
    log = killed(table, 3)
    data = log.read_bytes()
    log.write_bytes(data[:-9])
    shown = run(tmp_path, "flush", "db.t", code=4)
    assert "frame 3 at byte" in shown
    assert "is damaged, but had been synced" in shown
    with pytest.raises(sk.CorruptFileError, match="had been synced") as caught:
        sk.open("db.t", catalog=str(tmp_path / "w")).writer()
    assert 'on_damage="drop"' in str(caught.value.hint)
    assert log.read_bytes() == data[:-9]
    shown = run(tmp_path, "flush", "db.t", "--drop-damaged")
    begins = int(shown.split("dropped ")[1].split()[0])
    assert "flushed 2 calls of db.t" in shown
    assert "among them 1 synced call" in shown
    assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == [0, 1]
    (kept,) = log.parent.glob("*.damaged")
    assert kept.read_bytes() == data[:-9]
    assert 0 < begins < len(data)
    # The log is whole again, and its numbers go on.
    assert run(tmp_path, "flush", "db.t") == "db.t has nothing to flush\n"
    assert json.loads(run(tmp_path, "flush", "db.t", "--drop-damaged", "--format", "json"))["lost_calls"] == 0
    with table.writer() as writer:
        writer.upsert(pa.table({"id": [7], "v": [7]}))
    assert table.scan().count() == 3


def test_a_log_without_its_state_is_damaged(table: sk.Table, tmp_path: Path) -> None:
    """What is flushed is unknown: nobody says that nothing is unflushed, and nothing is dropped."""
    log = killed(table, 3)
    state, data = log.with_name("tail.json"), log.read_bytes()
    whole = state.read_bytes()
    state.unlink()
    for args in (["status", "db.t"], ["flush", "db.t"], ["flush", "db.t", "--drop-damaged"]):
        shown = run(tmp_path, *args, code=4)
        assert "state of the tail is missing, but its write-ahead log is not" in shown
        assert "restore the file from a backup" in shown
    for call in (table.tail_status, table.writer, lambda: table.writer(on_damage="drop")):
        with pytest.raises(sk.CorruptFileError, match="state of the tail is missing"):
            call()
    assert (log.read_bytes(), state.exists()) == (data, False)
    state.write_bytes(whole)
    assert "flushed 3 calls of db.t" in run(tmp_path, "flush", "db.t")
    # Without a log the directory is that of a new tail.
    state.unlink()
    assert "nothing to flush" in run(tmp_path, "status", "db.t")
    assert table.refresh().scan().count() == 3


def test_the_loss_of_a_log_with_the_state_of_another_tail_is_told(table: sk.Table, tmp_path: Path) -> None:
    log = killed(table, 3)
    log.with_name("tail.json").write_bytes(TailState("ff", str(table.metadata.table_uuid)).encode())
    for name in ("status", "flush"):
        assert "segment belongs to the tail" in run(tmp_path, name, "db.t", code=4)
    with table.writer(on_damage="drop") as writer:
        assert (writer.recovered.calls, writer.recovered.lost) == (0, 3)
        shown = str(writer.recovered)
    assert "3 synced calls" in shown
    assert "of damaged calls" in shown


def test_a_directory_without_the_tail(table: sk.Table, tmp_path: Path) -> None:
    """It can't be told from here whether anything is unflushed."""
    with table.table.transaction() as change:
        change.set_properties({"skipstone.tail.wal": str(tmp_path), "skipstone.tail.id": "00ff"})
    for name in ("status", "flush"):
        assert "tail of the table is not in this directory on this host" in run(
            tmp_path, name, "db.t", code=4
        )


def test_a_call_that_was_not_synced_is_dropped_and_reported(table: sk.Table, tmp_path: Path) -> None:
    log = killed(table, 2)
    with log.open("ab") as file:
        file.write(b"half a frame")
    assert "12 bytes of an unfinished call" in run(tmp_path, "status", "db.t")
    shown = run(tmp_path, "flush", "db.t")
    assert "flushed 2 calls of db.t" in shown
    assert "dropped 12 bytes of calls that were not synced and are not whole" in shown
    assert table.refresh().scan().count() == 2


INTERRUPT = """
import os, signal, sys
from skipstone.cli.main import app
from skipstone.table.tail.lease import TailState

signal.signal(signal.SIGINT, signal.default_int_handler)
signal.alarm(500)
sync, left = os.fsync, int(sys.argv[2])

def interrupted(descriptor):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGINT)
    sync(descriptor)

os.fsync = interrupted
app(["tail", "flush", "db.t", "--catalog", sys.argv[1]])
"""


@pytest.mark.sampled(6)
@pytest.mark.parametrize("at", [4, 1, 7, 10, 2, 14])
def test_an_interrupted_flush(at: int, table: sk.Table, tmp_path: Path) -> None:
    """Ctrl-C at one of the syncs: exit code 130, what is known on standard error, and no row is lost."""
    writer = table.writer(flush_seconds=None)
    writer.upsert(pa.table({"id": [1, 2], "v": [10, 20]}))
    writer.close(flush=False)
    command = [sys.executable, "-W", "ignore", "-c", INTERRUPT, f"{tmp_path / 'w'}/", str(at)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 130, ended
    assert "Traceback" not in ended.stderr
    if at > 3:
        assert (
            "interrupted: rows of the tail that are not committed are in its write-ahead log" in ended.stderr
        )
    assert not table.tail_status().open
    run(tmp_path, "flush", "db.t")
    assert table.refresh().scan().count() == 2
