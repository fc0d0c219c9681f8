"""Processes that change one table at the same time: each says at the end what it did.

Appends add ids of their own, deletes take ids that a process owns, so the rows at the end are known.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import skipstone as sk
from skipstone.errors import ConflictError
from skipstone.iceberg.manifests.reading import clear_cache
from skipstone.iceberg.writing.commit import publish
from skipstone.iceberg.writing.producer import Producer
from skipstone.iceberg.writing.target import Target
from tests.compact._writers import position_file

EACH = 1_000_000
"""Ids of one process are a range of this size."""


def opened(root: Path) -> sk.Table:
    clear_cache()
    return sk.open("db.t", catalog=root)


def append(root: Path, me: int, rounds: int) -> list[int]:
    """Add files of a few rows; return the ids."""
    rng = random.Random(me)
    ids: list[int] = []
    for _ in range(rounds):
        first = me * EACH + len(ids)
        mine = range(first, first + rng.randrange(1, 9))
        ids += mine
        rows = pa.table({"id": pa.array(mine, pa.int64()), "p": ["ab"[n % 2] for n in mine]})
        sk.ingest(rows, opened(root), engine="local", index=False)
    return ids


def delete(root: Path, me: int, rounds: int) -> list[int]:
    """Delete ids by position; return them. They are those that leave this remainder by seven."""
    from pyiceberg.table.snapshots import Operation

    rng, gone = random.Random(me), []
    tries = 0
    while len(gone) < rounds and tries < rounds * 20:
        tries += 1
        table = opened(root)
        rows = table.scan(columns=["id"]).to_arrow()["id"].to_pylist()
        chosen = [n for n in rows if n % 7 == me % 7]
        if not chosen:
            continue
        id = rng.choice(chosen)
        if _delete_one(table, id, Operation.DELETE):
            gone.append(id)
    return gone


def _delete_one(table: sk.Table, id: int, operation: Any) -> bool:
    places = [
        (task.entry.key, at)
        for task in table.scan(f"id = {id}").plan().tasks
        for at, found in enumerate(pq.read_table(task.entry.key.removeprefix("file://"))["id"].to_pylist())
        if found == id
    ]
    # At every moment each row is in one file.
    ((path, position),) = places
    files = table.inventory.everything[0]
    key = files.keys[files.partitions[files.paths.to_pylist().index(path)]]
    made = position_file(table.table, key, [(path, position)])
    work = Producer(table.table, Target.of(table.table), (made,), frozenset(), {}, "main", operation)

    def validate() -> None:
        """A writer of position deletes must see that their files are still there."""
        now = sk.Table(work.table)
        if path not in now.inventory.everything[0].paths.to_pylist():
            raise ConflictError("data file is gone", path="db.t")

    try:
        return publish(work, validate) is not None
    except ConflictError:
        return False


def compact(root: Path, me: int, rounds: int) -> list[int]:
    """Compact, each time in another way; return the numbers of groups."""
    rng = random.Random(me)
    groups = []
    for _ in range(rounds):
        table = opened(root)
        options: dict[str, Any] = {"min_input_files": 2, "rewrite_all": rng.random() < 0.5}
        if rng.random() < 0.3:
            options |= {"strategy": "sort", "sort_by": "id"}
        if rng.random() < 0.3:
            options["partial_progress_enabled"] = True
        if rng.random() < 0.3:
            options["use_starting_sequence_number"] = False
        try:
            report = table.compact(table.plan_compaction(**options), engine="local", checksums=True)
            groups.append(report.groups)
        except ConflictError:
            groups.append(0)
    return groups


def main() -> None:
    """Do one kind of work."""
    kind, root, me, rounds = sys.argv[1:]
    work = {"append": append, "delete": delete, "compact": compact}[kind]
    # All begin at the same time.
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(work(Path(root), int(me), int(rounds))), flush=True)


if __name__ == "__main__":
    main()
