"""A process that writes, and says what each interrupt has left; ``test_interrupts`` sends the signals."""

from __future__ import annotations

import json
import signal
import sys
from typing import Any

import pyarrow as pa

import skipstone as sk

armed = False


def interrupt(_number: int, _frame: Any) -> None:
    global armed
    if armed:
        armed = False
        raise KeyboardInterrupt


def rows(number: int) -> pa.Table:
    """One row that every write changes, and one of its own."""
    return pa.table({"id": [-1, number], "v": [number, number], "s": ["x", "y"]})


def write(table: sk.Table, how: str, number: int) -> None:
    if how == "upsert":
        table.upsert(rows(number))
    else:
        with table.transaction() as changes:
            changes.upsert(rows(number))
            changes.delete(keys=[-2])


def main(warehouse: str, count: int) -> None:
    global armed
    table = sk.open("db.t", catalog=warehouse)
    signal.signal(signal.SIGINT, interrupt)
    for number in range(count):
        how, outcome = ("upsert", "transaction")[number % 2], "finished"
        print("ready", flush=True)
        sys.stdin.readline()
        try:
            armed = True
            write(table, how, number)
            armed = False
        except KeyboardInterrupt as error:
            outcome = "\n".join(getattr(error, "__notes__", ["nothing is known"]))
        armed = False
        print(json.dumps([number, how, outcome]), flush=True)
        try:
            table.refresh()
        except KeyboardInterrupt:
            raise AssertionError("an interrupt came late") from None


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
