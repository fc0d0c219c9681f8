"""kill -9 at every step of a tail: nothing acknowledged is lost, and nothing is half there or there twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

import skipstone as sk
from skipstone.iceberg.manifests.reading import clear_cache
from tests.faults._tail_kills import IDS, SCHEMA, TABLE, Rows, after, calls
from tests.support.samples import sample

STEPS = (
    *("lease before", "lease after", "segment before", "log torn", "log appended", "log synced"),
    *("intent after", "data written", "deletes written", "manifest written", "metadata written"),
    *("catalog before", "catalog after", "floor before", "log trim"),
)
"""Each is the last step of one process every day."""
EACH_TABLE = 15
"""Kills after which a new table is used: metadata grows with every commit."""


@pytest.fixture(scope="module")
def process() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", "from tests.faults._tail_kills import main; main()"]
    here = Path(__file__).parents[2]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    with subprocess.Popen(
        command, cwd=here, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as started:
        yield started
        assert started.stdin is not None
        started.stdin.close()


def order(
    process: subprocess.Popen[str],
    root: Path,
    number: int,
    last: int | str | None,
    *,
    sent: int = signal.SIGKILL,
    times: int = 1,
) -> tuple[int, int, list[str]]:
    """How a process ended, how many of its calls returned, and its steps."""
    log, names = (root.with_name(f"{root.name}-{number}.{name}") for name in ("log", "names"))
    what = {"root": str(root), "log": str(log), "names": str(names), "last": last, "seed": number}
    what |= {"signal": sent, "times": times}
    what["sync"] = ("every", "interval", "off")[number % 3] if number % 2 else "every"
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(what) + "\n")
    process.stdin.flush()
    status = json.loads(process.stdout.readline())
    return status, len(log.read_bytes()), names.read_text().splitlines()


def rows_of(table: pa.Table) -> Rows:
    ids = table["id"].to_pylist()
    assert len(ids) == len(set(ids)), "a key is there twice"
    return dict(zip(ids, table["v"].to_pylist(), strict=True))


def look(root: Path, seen: set[int], *, flush: bool) -> Rows:
    """The rows that the next writer finds; snapshots that are not ``seen`` are checked, too."""
    clear_cache()
    table = sk.open(TABLE, catalog=root)
    assert isinstance(table, sk.Table)
    new = {snapshot.id for snapshot in table.snapshots()} - seen
    seen |= new
    for snapshot in new:
        rows_of(table.at(snapshot).scan().to_arrow())
    calls_left = table.tail_status().calls
    with table.writer(sync="off", flush_seconds=None) as writer:
        found = rows_of(table.scan().to_arrow())
        writer.close(flush=flush)
    assert not list(Path(table.tail_status().path).glob(".*"))
    again = sk.open(TABLE, catalog=root)
    assert isinstance(again, sk.Table)
    if flush:
        assert rows_of(again.scan().to_arrow()) == found
    assert again.tail_status().calls == (0 if flush else calls_left)
    return found


def test_killed_tails(process: subprocess.Popen[str], tmp_path: Path) -> None:
    """One kill after another, each at a step of its own, while the table and its log live on."""
    ended: Counter[str] = Counter()
    rows: Rows = {}
    root, seen = tmp_path, set[int]()
    kills = sample("killed tails")
    for number in count():
        if ended.total() - ended["no step"] == kills:
            break
        if not number % EACH_TABLE:
            root = tmp_path / f"warehouse-{number}"
            rows = dict.fromkeys(range(IDS), -1)
            whole = pa.table([list(rows), list(rows.values())], schema=SCHEMA)
            sk.catalog(root).create_table(TABLE, SCHEMA, key=["id"]).append(whole)
        # By name every day; in longer runs also by number, at any place.
        last: int | str = STEPS[number % len(STEPS)] if number < len(STEPS) else (number * 7) % 60
        status, returned, steps = order(process, root, number, last)
        made = calls(number)
        assert status in (0, -signal.SIGKILL)
        ended[steps[-1] if status else "no step"] += 1
        found = look(root, seen, flush=number % 2 == 0)
        # The call that was being made is there as a whole, or not at all.
        options = [after(rows, made[:returned]), after(rows, made[: returned + 1])]
        assert found in options, (number, last, steps[-3:], returned)
        rows = found
    assert set(STEPS) <= set(ended)
    # Some processes come to an end before their step.
    assert ended["no step"] <= kills // 3


# -- Ctrl-C --------------------------------------------------------------------------------------

INTERRUPTED = (
    *("log synced", "log torn", "segment after", "lease after", "intent before", "floor after"),
    *("data written", "catalog before", "log sync", "catalog after", "log appended", "log trim"),
)
"""Steps at which Ctrl-C is pressed; the first ones every day."""


@pytest.mark.parametrize("count", [4, pytest.param(100, marks=pytest.mark.slow)])
def test_interrupted_tails(count: int, process: subprocess.Popen[str], tmp_path: Path) -> None:
    """Ctrl-C once or twice, anywhere: a process ends with an interrupt, and no acknowledged row is lost."""
    ended: Counter[str] = Counter()
    rows: Rows = {}
    root, seen = tmp_path, set[int]()
    for number in range(count):
        if not number % EACH_TABLE:
            root = tmp_path / f"warehouse-{number}"
            rows = dict.fromkeys(range(IDS), -1)
            whole = pa.table([list(rows), list(rows.values())], schema=SCHEMA)
            sk.catalog(root).create_table(TABLE, SCHEMA, key=["id"]).append(whole)
        last: int | str = INTERRUPTED[number] if number < len(INTERRUPTED) else (number * 7) % 60
        times = 1 + number % 2
        status, returned, steps = order(process, root, number, last, sent=signal.SIGINT, times=times)
        made = calls(number)
        notes = [step for step in steps if step.startswith("note: ")]
        assert status == 130 or (status == 0 and last not in steps), (number, last, status, steps[-5:])
        ended[str(last) if status else "no step"] += 1
        found = look(root, seen, flush=number % 2 == 0)
        options = [after(rows, made[:returned]), after(rows, made[: returned + 1])]
        assert found in options, (number, last, steps[-3:], returned)
        if "note: the rows of the interrupted call are in the write-ahead log" in notes:
            assert found == options[1]
        if "note: nothing of the interrupted call was written" in notes:
            assert found == options[0]
        rows = found
    assert ended["no step"] <= count // 3
