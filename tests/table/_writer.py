"""A process that writes to a keyed table, or reads it.

``python _writer.py WAREHOUSE NAME KIND NUMBER ROUNDS``.
"""

from __future__ import annotations

import json
import select
import sys
import time
from collections.abc import Callable

import pyarrow as pa

import skipstone as sk

KEYS = 40
"""Keys that all processes write."""
ACCOUNTS = (9_000, 9_001)
"""Keys of which transactions move values from one to the other."""


def upserts(table: sk.Table, number: int, rounds: int) -> None:
    for turn in range(rounds):
        # Every row of a round has the same value, so that half a commit would be seen.
        value = 1_000 * number + turn
        own = [10_000 * number + turn]
        ids = [*range((7 * turn) % KEYS, (7 * turn) % KEYS + 15), *own]
        rows = pa.table({"id": ids, "v": [value] * len(ids), "s": [f"{number}"] * len(ids)})
        table.upsert(rows, token=f"{number}-{turn}")
        if turn % 3 == 2:
            table.delete(keys=[turn, *own], token=f"{number}-{turn}-delete")


def transfers(table: sk.Table, rounds: int) -> None:
    """Each transaction is made until it has no conflict."""
    for turn in range(rounds):
        while True:
            try:
                with table.transaction(token=f"transfer-{turn}") as changes:
                    for key, sign in zip(ACCOUNTS, "+-", strict=True):
                        changes.update(f"id = {key}", {"v": f"v {sign} {turn}"})
                break
            except sk.ConflictError:
                continue


def tail(table: sk.Table, rounds: int) -> None:
    """The same keys as others, and some that are inserted and deleted in one flush."""
    with table.writer(sync="off", flush_seconds=None) as writer:
        for turn in range(rounds):
            for part in range(3):
                ids = [*range((11 * turn + part) % KEYS, (11 * turn + part) % KEYS + 5), 20_000 + part]
                value = 50_000 + 10 * turn + part
                writer.upsert(pa.table({"id": ids, "v": [value] * len(ids), "s": ["tail"] * len(ids)}))
            writer.delete(keys=[20_000, 20_001, turn % KEYS])
            writer.flush()


def compactions(table: sk.Table, rounds: int) -> None:
    for _ in range(rounds):
        table.refresh()
        table.compact(table.plan_compaction(rewrite_all=True), engine="local", threads=1)


def reads(read: Callable[[], tuple[int, pa.Table]]) -> None:
    """Read until the input ends: say that the first result is there, and at the end print all that differ."""
    results: dict[int, list[list[list[object]]]] = {}
    is_ready = is_last = False
    while True:
        snapshot, rows = read()
        found = sorted(map(list, zip(*rows.select(["id", "v", "s"]).to_pydict().values(), strict=True)))
        known = results.setdefault(snapshot, [])
        if found not in known:
            known.append(found)
        if is_last:
            break
        if not is_ready:
            is_ready = True
            print("ready", flush=True)
        # The last result is read after the end of the input, so that it is that of the last snapshot.
        is_last = bool(select.select([sys.stdin], [], [], 0)[0]) and not sys.stdin.readline()
        time.sleep(0 if is_last else 0.2)
    print(json.dumps(results))


def reading(table: sk.Table) -> Callable[[], tuple[int, pa.Table]]:
    """Read what is committed with Skipstone."""

    def read() -> tuple[int, pa.Table]:
        snapshot = table.refresh().snapshot
        assert snapshot is not None
        return snapshot, table.scan().to_arrow()

    return read


def reading_with_pyiceberg(table: sk.Table) -> Callable[[], tuple[int, pa.Table]]:
    """Read what is committed with pyiceberg."""
    catalog, name = table.table.catalog, table.table.name()

    def read() -> tuple[int, pa.Table]:
        loaded = catalog.load_table(name)
        current = loaded.current_snapshot()
        assert current is not None
        return current.snapshot_id, loaded.scan().to_arrow()

    return read


if __name__ == "__main__":
    warehouse, name, kind, number, rounds = sys.argv[1:]
    opened = sk.open(name, catalog=warehouse)
    writes = {"transfer": transfers, "tail": tail, "compact": compactions}
    if kind == "upsert":
        upserts(opened, int(number), int(rounds))
    elif kind in writes:
        writes[kind](opened, int(rounds))
    else:
        reads(reading(opened) if kind == "read" else reading_with_pyiceberg(opened))
