"""A process that writes to the tail of a table, and gets a signal at one of its steps.

As in ``_kills``, a process takes orders, and has a fork of itself do each.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from sqlalchemy import event
from sqlalchemy.orm import Session

import skipstone as sk
import skipstone.table.tail.writer
import skipstone.tables

TABLE = "db.t"
SCHEMA = pa.schema({"id": pa.int64(), "v": pa.int64()})
IDS = 30
PATIENCE = 500
"""Seconds after which a process is taken to hang."""
Rows = dict[int, int]
Call = tuple[str, list[tuple[int, int]]]
"""What is called, and its rows, or keys with any value."""
_KINDS = {
    ".wal": "log",
    ".avro": "manifest",
    ".metadata.json": "metadata",
}


def calls(seed: int) -> list[Call]:
    """What a process writes."""
    chance = random.Random(seed)
    chosen: list[Call] = []
    for _ in range(chance.randint(4, 7)):
        ids = chance.sample(range(IDS), chance.randint(1, 6))
        name = chance.choices(["upsert", "delete", "flush", "direct", "transaction"], [6, 4, 4, 1, 1])[0]
        chosen.append((name, [] if name == "flush" else [(n, chance.randrange(10**6)) for n in ids]))
    return [*chosen, ("upsert", [(chance.randrange(IDS), seed)]), ("flush", [])]


def after(rows: Rows, made: Sequence[Call]) -> Rows:
    """The rows after some calls."""
    rows = dict(rows)
    for name, pairs in made:
        put, deleted = parts(name, pairs)
        rows.update(put)
        for number, _ in deleted:
            rows.pop(number, None)
    return rows


def parts(name: str, pairs: list[tuple[int, int]]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """The rows that a call puts and deletes: a transaction does both."""
    put = {"delete": 0, "transaction": (len(pairs) + 1) // 2}.get(name, len(pairs))
    return pairs[:put], pairs[put:]


def write(root: Path, made: Sequence[Call], sync: Any, log: int) -> None:
    """Make the calls, and write down each that has returned."""
    table = sk.open(TABLE, catalog=root)
    assert isinstance(table, sk.Table)
    with table.writer(sync=sync, flush_seconds=None) as writer:
        for name, pairs in made:
            put, deleted = parts(name, pairs)
            rows = pa.table([[number for number, _ in put], [v for _, v in put]], schema=SCHEMA)
            keys = [number for number, _ in deleted]
            if name == "upsert":
                writer.upsert(rows)
            elif name == "delete":
                writer.delete(keys=keys)
            elif name == "direct":
                table.upsert(rows)
            elif name == "transaction":
                with table.transaction() as changes:
                    changes.upsert(rows)
                    changes.delete(keys=keys)
            else:
                writer.flush()
            os.write(log, b"+")
        writer.close(flush=False)


# -- steps ---------------------------------------------------------------------------------------


class Killer:
    """Counts steps, and sends the process signals: at the step of a number, or of a name, and maybe later."""

    def __init__(
        self, names: int, last: int | str | None, sent: int = signal.SIGKILL, times: int = 1
    ) -> None:
        self.names, self.last, self.count = names, last, 0
        self.sent, self.left = sent, times
        self.has_begun = False

    def __call__(self, name: str) -> None:
        os.write(self.names, f"{name}\n".encode())
        self.has_begun = self.has_begun or self.last in (name, self.count)
        self.count += 1
        if self.has_begun and self.left:
            self.left -= 1
            os.kill(os.getpid(), self.sent)


def kind_of(path: str) -> str | None:
    """What a file is."""
    if path.endswith(".parquet"):
        return "deletes" if "-deletes-" in path else "data"
    return next((kind for suffix, kind in _KINDS.items() if path.endswith(suffix)), None)


def purpose_of(path: Path, to: Path) -> str:
    """What a new file of a tail is for."""
    if to.suffix == ".wal":
        return "segment"
    new = json.loads(path.read_bytes())
    old = json.loads(to.read_bytes()) if to.exists() else {"token": 0}
    if new["token"] != old["token"]:
        return "lease"
    return "floor" if new["intent"] is None else "intent"


def arm(step: Killer) -> None:
    """Take steps around all that changes files, and around commits of the catalog."""
    sync, data_sync, append, replace, unlink = os.fsync, os.fdatasync, os.writev, os.replace, os.unlink

    def synced(descriptor: int) -> None:
        kind = kind_of(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        if kind is not None:
            step(f"{kind} written")
        sync(descriptor)

    def log_synced(descriptor: int) -> None:
        step("log sync")
        data_sync(descriptor)
        step("log synced")

    def appended(descriptor: int, parts: Sequence[Any]) -> int:
        step("log append")
        whole = b"".join(bytes(part) for part in parts)
        # Two writes, and a kill between them leaves a torn frame.
        half = len(whole) * step.count % len(whole)
        done = append(descriptor, [whole[:half]]) if half else 0
        step("log torn")
        done += append(descriptor, [whole[half:]])
        step("log appended")
        return done

    def replaced(path: Any, to: Any, **options: Any) -> None:
        name = purpose_of(Path(path), Path(to))
        step(f"{name} before")
        replace(path, to, **options)
        step(f"{name} after")

    def unlinked(path: Any, **options: Any) -> None:
        if kind_of(str(path)) == "log":
            step("log trim")
        unlink(path, **options)

    os.fsync, os.fdatasync, os.writev = synced, log_synced, appended  # type: ignore[assignment]
    os.replace, os.unlink = replaced, unlinked  # type: ignore[assignment]
    event.listen(Session, "before_commit", lambda _: step("catalog before"))
    event.listen(Session, "after_commit", lambda _: step("catalog after"))


def do(order: dict[str, Any], log: int, names: int) -> int:
    """Do an order, and return an exit code: 130 for an interrupt, and its notes go to the log's end."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Ends a process that hangs.
    signal.alarm(PATIENCE)
    arm(Killer(names, order["last"], order["signal"], order["times"]))
    try:
        write(Path(order["root"]), calls(order["seed"]), order["sync"], log)
    except KeyboardInterrupt as interrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.write(names, "".join(f"note: {one}\n" for one in getattr(interrupt, "__notes__", ())).encode())
        return 130
    return 0


def main() -> None:
    """Do orders until there are no more."""
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if not child:
            log, names = (os.open(order[name], os.O_WRONLY | os.O_CREAT, 0o644) for name in ("log", "names"))
            os._exit(do(order, log, names))
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(json.dumps(status), flush=True)
