"""A process that changes a table and is killed at one of its steps.

``main`` takes orders, one JSON object per line, and has a fork of the process do each: starting another for
every kill would take longer than the work. Before any order it does nothing that starts a thread.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.io import OutputFile
from sqlalchemy import event
from sqlalchemy.orm import Session

import skipstone as sk
from skipstone.engine.jobs import LocalEngine
from skipstone.iceberg.writing.commit import append
from skipstone.iceberg.writing.target import DurableFileIO, Target
from skipstone.parquet.write.files import write_files
from skipstone.parquet.write.layout import PageLayout
from skipstone.parquet.write.profile import profile
from skipstone.predicate import predicate
from skipstone.write.overwrite import Overwrite, PartitionOverwrite, PredicateOverwrite, Rewriter, overwrite

TABLE = "db.t"
SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string())])
_KINDS = (
    (r"\.parquet$", "data"),
    (r"-m\d+\.avro$", "manifest"),
    (r"/snap-[^/]*\.avro$", "list"),
    (r"\.metadata\.json$", "metadata"),
)


def kind_of(path: str) -> str | None:
    """What a file of a table is."""
    return next((kind for pattern, kind in _KINDS if re.search(pattern, path)), None)


def rows(first: int, last: int, parts: str = "abcd") -> pa.Table:
    ids = range(first, last)
    return pa.table([ids, [parts[n % len(parts)] for n in ids]], schema=SCHEMA)


# -- steps ---------------------------------------------------------------------------------------


@dataclass
class Steps:
    """Writes down each step and each new file, and kills the process at one of the steps."""

    log: Path
    last: int | str | None
    """The step that is the last: its number, or its name."""
    done: list[str] = field(default_factory=list)

    def __call__(self, name: str, created: str | None = None) -> None:
        with self.log.open("a") as log:
            log.write(json.dumps([name, created]) + "\n")
        if self.last in (name, len(self.done)):
            os.kill(os.getpid(), signal.SIGKILL)
        self.done.append(name)


class SteppedIO(DurableFileIO):
    """Takes a step when a file is created."""

    steps: Steps

    def new_output(self, location: str) -> OutputFile:
        return _SteppedFile(super().new_output(location), self.steps)


class _SteppedFile(OutputFile):
    def __init__(self, made: OutputFile, steps: Steps) -> None:
        super().__init__(made.location)
        self._made, self._steps = made, steps

    def __len__(self) -> int:
        return len(self._made)

    def exists(self) -> bool:
        return bool(self._made.exists())

    def to_input_file(self) -> Any:
        return self._made.to_input_file()

    def create(self, overwrite: bool = False) -> Any:
        stream = self._made.create(overwrite)
        path = self.location.removeprefix("file://")
        self._steps(f"{kind_of(path)} created", path)
        return stream


def arm(log: Path, last: int | str | None) -> None:
    """From now on take steps: at new files, at files about to be synced, around the catalog's commit."""
    steps = SteppedIO.steps = Steps(log, last)
    sync = os.fsync

    def synced(descriptor: int) -> None:
        path = str(Path(f"/proc/self/fd/{descriptor}").readlink())
        kind = kind_of(path)
        if kind is not None:
            steps(f"{kind} written", path if kind == "data" else None)
        sync(descriptor)

    os.fsync = synced
    event.listen(Session, "before_commit", lambda _: steps("catalog before"))
    event.listen(Session, "after_commit", lambda _: steps("catalog after"))


# -- what is done --------------------------------------------------------------------------------


def change(root: Path, how: Overwrite | None, new: pa.Table, job: str) -> None:
    """Append rows, or put them in the place of others."""
    table = sk.catalog(root, **{"py-io-impl": f"{__name__}.SteppedIO"}).iceberg.load_table(TABLE)
    target, layout = Target.of(table), PageLayout()
    seen = profile(new, layout)
    found = write_files(new.to_batches(), target.store, job, "0", layout, seen, shape=target)
    files = [target.new_file(one) for one in found]
    if how is None:
        append(table, target, files)
    else:
        rewriter = Rewriter(target, layout, seen, job)
        overwrite(table, how, files, rewriter, LocalEngine(1), branch="main", properties={})


def compact(root: Path) -> None:
    """Compact all partitions, and drop the deletes that they had."""
    table = sk.catalog(root, **{"py-io-impl": f"{__name__}.SteppedIO"}).open(TABLE)
    table.compact(table.plan_compaction(min_input_files=2), engine="local", threads=1)


NEW = rows(100, 108, "ab")
OPERATIONS: dict[str, tuple[Callable[[], Overwrite | None], Callable[[int, str], bool]]] = {
    "append": (lambda: None, lambda _id, _p: False),
    "partitions": (PartitionOverwrite, lambda _id, p: p in "ab"),
    "predicate": (lambda: PredicateOverwrite(predicate("id < 10")), lambda id, _p: id < 10),
}
"""How each is done, and which rows it replaces by new ones."""


def main() -> None:
    """Do orders until there are no more."""
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if not child:
            arm(Path(order["log"]), order["last"])
            if order["operation"] == "compact":
                compact(Path(order["root"]))
            else:
                change(Path(order["root"]), OPERATIONS[order["operation"]][0](), NEW, order["job"])
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(json.dumps(status), flush=True)
