"""A process that writes to a keyed table: ``python _writer.py WAREHOUSE NAME KIND NUMBER``."""

from __future__ import annotations

import sys

import pyarrow as pa

import skipstone as sk

KEYS = 40
"""Keys that all processes write."""
ROUNDS = 4


def upserts(table: sk.Table, number: int) -> None:
    for turn in range(ROUNDS):
        # Every row of a round has the same value, so that half a commit would be seen.
        value = 1_000 * number + turn
        own = [10_000 * number + turn]
        ids = [*range((7 * turn) % KEYS, (7 * turn) % KEYS + 15), *own]
        rows = pa.table({"id": ids, "v": [value] * len(ids), "s": [f"{number}"] * len(ids)})
        table.upsert(rows, token=f"{number}-{turn}")
        if turn % 3 == 2:
            table.delete(keys=[turn, *own], token=f"{number}-{turn}-delete")


def compactions(table: sk.Table) -> None:
    for _ in range(ROUNDS):
        table.refresh()
        table.compact(table.plan_compaction(rewrite_all=True), engine="local", threads=1)


if __name__ == "__main__":
    warehouse, name, kind, number = sys.argv[1:]
    opened = sk.open(name, catalog=warehouse)
    if kind == "upsert":
        upserts(opened, int(number))
    else:
        compactions(opened)
