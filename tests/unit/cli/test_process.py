"""The program as a process: pipes, readers that go away, Ctrl-C, terminals."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

COMMAND = [sys.executable, "-W", "error", "-m", "skipstone.cli"]


def environment(**more: str) -> dict[str, str]:
    names = ("COLUMNS", "FORCE_COLOR", "NO_COLOR")
    return {name: value for name, value in os.environ.items() if name not in names} | more


def process(*args: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*COMMAND, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    )


@pytest.mark.parametrize("format", ["csv", "json", "jsonl", "arrow"])
def test_a_reader_that_goes_away_stops_the_reading(broken_end: Path, format: str) -> None:
    # Were everything read, the broken file at the end would be met.
    with process("query", broken_end, "--format", format) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert len(running.stdout.read(4)) == 4
        running.stdout.close()
        assert running.stderr.read() == b""
        assert running.wait(600) == 0


def test_control_c_while_the_reader_waits(broken_end: Path) -> None:
    with process("query", broken_end, "--format", "csv") as running:
        assert running.stdout is not None
        assert running.stderr is not None
        # The pipe is never emptied, so the program can't get ahead, nor may it wait for that at its end.
        assert running.stdout.read(1) == b"i"
        time.sleep(0.5)
        running.send_signal(signal.SIGINT)
        assert running.wait(600) == 130
        assert running.stderr.read() == b""


def test_control_c_while_a_file_is_written(hive: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    # A program that interrupts itself when the first batch is there: no clock decides.
    code = (
        "import os, signal, skipstone.scan.formats as f\n"
        "from skipstone.cli.main import run\n"
        "f.Csv.write = lambda self, batch: os.kill(os.getpid(), signal.SIGINT)\n"
        "run()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "query", str(hive), "--format", "csv", "--output", str(out)],
        capture_output=True,
        check=False,
        timeout=600,
        env=environment(),
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")
    assert list(tmp_path.iterdir()) == []


def terminal(*command: object, width: int = 80) -> tuple[int, str]:
    """Run on a terminal of its own."""
    pid, fd = pty.fork()
    if pid == 0:
        # The size is set before anything looks at it.
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
        os.execve(sys.executable, list(map(str, command)), environment(TERM="xterm-256color"))
    found = b""
    try:
        while data := os.read(fd, 65_536):
            found += data
    except OSError:
        pass  # how Linux tells the end of a terminal
    os.close(fd)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), found.decode()


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


def test_a_terminal_gets_colours_and_its_width(events: Path) -> None:
    code, text = terminal(*COMMAND, "query", events, "--limit", "2", width=72)
    assert code == 0
    assert "\x1b[1mid\x1b[0m" in text
    lines = plain(text).splitlines()
    assert max(map(len, lines)) <= 72
    assert "more column" in text
    assert "\x1b[31m" not in text  # the name of a column


@pytest.mark.parametrize("format", ["arrow", "parquet"])
def test_no_binary_on_a_terminal(events: Path, format: str) -> None:
    code, text = terminal(*COMMAND, "query", events, "--format", format)
    assert code == 2
    assert f"{format} can't be written to a terminal" in plain(text)
    assert "PAR1" not in text


def test_progress(hive: Path, tmp_path: Path) -> None:
    # The bar waits for half a second, and so does every batch.
    code = (
        "import time, skipstone.scan.formats as f\n"
        "from skipstone.cli.main import run\n"
        "write = f.Csv.write\n"
        "f.Csv.write = lambda self, batch: (write(self, batch), time.sleep(1))\n"
        "run()"
    )
    out = tmp_path / "out.csv"
    command = [sys.executable, "-c", code, "query", hive, "--format", "csv", "--output", out]
    status, found = terminal(*command, width=120)
    assert status == 0
    text = plain(found)
    assert "reading" in text
    assert "of 1,600 rows, read " in text
    assert f"1,600 rows in {out}, " in text
    assert len(out.read_text().splitlines()) == 1601


def test_answers_improve_in_place(hive: Path) -> None:
    status, text = terminal(*COMMAND, "agg", hive, "count(*)", "--stream", "--no-cached")
    assert status == 0
    assert "\x1b[1A" in text  # back to the line above
    assert "rows to go" in text
    assert "read 1,600 of 1,600 rows that may qualify" in plain(text).splitlines()[-1]


def test_no_progress_in_pipes(hive: Path, tmp_path: Path) -> None:
    running = process("query", hive, "--format", "parquet", "--output", tmp_path / "out.parquet")
    out, err = running.communicate(timeout=600)
    assert (running.returncode, err) == (0, b"")
    assert out.startswith(b"1,600 rows in ")
    assert pq.read_table(tmp_path / "out.parquet").num_rows == 1600


def test_rows_are_utf8_whatever_the_locale(odd: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "query", str(odd), "--format", "jsonl", "--columns", "text"],
        capture_output=True,
        check=True,
        timeout=600,
        env=environment(PYTHONIOENCODING="ascii"),
    )
    assert "日本 שלום" in done.stdout.decode()
