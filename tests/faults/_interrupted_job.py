"""A process with one job that is interrupted: it says what it knows of the outcome, and exits with 130."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

import skipstone as sk

SCHEMA = pa.schema({"id": pa.int64(), "x": pa.int64(), "s": pa.string()})


def rows(first: int, count: int) -> pa.Table:
    ids = range(first, first + count)
    values = [[*ids], [n * 7_919 % 100_003 for n in ids], [f"name {n % 999}" for n in ids]]
    return pa.table(values, schema=SCHEMA)


def run(kind: str, root: Path, count: int) -> None:
    """Run one job on the table or the directory."""
    data = rows(10_000_000, count) if kind.startswith("ingest") else None
    table: Any = None if kind == "ingest directory" else sk.open("db.t", catalog=root)
    print("ready", flush=True)
    if kind == "ingest directory":
        sk.ingest(data, root / "lake", engine="local", target_file_bytes=1 << 20)
    elif kind == "ingest table":
        sk.ingest(data, table, engine="local", cluster_by=["x"])
    else:
        how = {"strategy": "sort", "sort_by": "x"} if kind == "sort" else {}
        table.compact(table.plan_compaction(rewrite_all=True, **how), engine="local")


def main() -> None:
    """Run the job of the command line."""
    kind, root, count = sys.argv[1:]
    try:
        run(kind, Path(root), int(count))
    except KeyboardInterrupt as error:
        # A further press would end the process before it can say anything.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        print(f"interrupted: {error}", flush=True)
        sys.exit(130)


if __name__ == "__main__":
    main()
