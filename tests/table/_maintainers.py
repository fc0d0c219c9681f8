"""Processes that write to, read and maintain one keyed table for a while; each says at the end what it did.

Writers own a range of keys each, so the rows at the end are known. Errors that any user must expect are
counted by type: conflicts, and files that expired while they were read. All others end the process.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

import skipstone as sk
from skipstone.errors import ConflictError, MissingFileError

SCHEMA = pa.schema({"id": pa.int64(), "v": pa.int64(), "owner": pa.int64()})
KEYS, EACH = 200, 1_000_000
EXPECTED = (ConflictError, MissingFileError)


def opened(root: Path) -> sk.Table:
    return sk.open("db.t", catalog=root)  # type: ignore[return-value]


class Writer:
    """Upserts and deletes keys of its own, and knows which rows there must be."""

    def __init__(self, root: Path, me: int) -> None:
        self.root, self.me, self.rng = root, me, random.Random(me)
        self.rows: dict[int, int] = {}
        self.written = 0

    def keys(self) -> list[int]:
        return [self.me * EACH + n for n in self.rng.sample(range(KEYS), self.rng.randrange(1, 20))]

    def upsert(self) -> None:
        self.written += 1
        keys = self.keys()
        data = pa.table([keys, [self.written] * len(keys), [self.me] * len(keys)], schema=SCHEMA)
        opened(self.root).upsert(data)
        self.rows |= dict.fromkeys(keys, self.written)

    def delete(self) -> None:
        if self.rng.random() < 0.4 or not self.rows:
            self.upsert()
            return
        keys = self.keys()
        opened(self.root).delete(keys=keys)
        for key in keys:
            self.rows.pop(key, None)


def compact(root: Path, rng: random.Random) -> None:
    table = opened(root)
    options: dict[str, Any] = {"min_input_files": 2, "rewrite_all": rng.random() < 0.3}
    if rng.random() < 0.3:
        options |= {"strategy": "sort", "sort_by": "v"}
    if rng.random() < 0.3:
        options["delete_file_threshold"] = 1
    table.compact(table.plan_compaction(**options), engine="local")


def expire(root: Path, rng: random.Random) -> None:
    opened(root).expire(older_than=f"{rng.choice([2, 5])}s", retain_last=rng.choice([1, 3]))


def orphans(root: Path, rng: random.Random) -> None:
    table = opened(root)
    left = Path(table.metadata.location.removeprefix("file://"), "data", f"left-{rng.random()}.parquet")
    left.parent.mkdir(exist_ok=True)
    left.write_bytes(b"left over")
    old = time.time() - 10 * 86_400
    os.utime(left, (old, old))
    report = table.remove_orphans(older_than="1d")
    assert report.unchecked == ()
    assert [Path(path).name for path in report.files] == [left.name], report.files
    assert not left.exists()


def manifests(root: Path, rng: random.Random) -> None:
    opened(root).rewrite_manifests(rewrite_all=rng.random() < 0.5)


def refresh_index(root: Path, rng: random.Random) -> None:
    opened(root).index.build(engine="local", rebuild=rng.random() < 0.2)


def read(root: Path, rng: random.Random) -> None:
    table = opened(root)
    owner = rng.randrange(8)
    found = table.scan(f"owner = {owner}").to_arrow()
    ids = found["id"].to_pylist()
    assert len(ids) == len({*ids}), "a key has two rows"
    assert {id // EACH for id in ids} <= {owner}
    if ids:
        (row,) = table.scan(f"id = {ids[0]}").to_arrow().to_pylist()
        assert row in found.to_pylist()


JOBS: dict[str, Callable[[Path, random.Random], None]] = {
    "compact": compact,
    "expire": expire,
    "orphans": orphans,
    "manifests": manifests,
    "index": refresh_index,
    "read": read,
}
WRITERS = ("upsert", "delete")


def run(kind: str, root: Path, me: int, goes_on: Callable[[int], bool]) -> dict[str, Any]:
    """Do one kind of work again and again; return what was done."""
    rng, writer = random.Random(me), Writer(root, me)
    done, errors = 0, Counter[str]()
    while goes_on(done + errors.total()):
        try:
            if kind in WRITERS:
                getattr(writer, kind)()
            else:
                JOBS[kind](root, rng)
            done += 1
        except EXPECTED as error:
            errors[type(error).__name__] += 1
    return {"kind": kind, "done": done, "errors": errors, "rows": [*writer.rows.items()]}


def main() -> None:
    """Do one kind of work for some seconds."""
    kind, root, me, seconds = sys.argv[1:]
    print("ready", flush=True)
    sys.stdin.readline()
    until = time.monotonic() + float(seconds)
    result = run(kind, Path(root), int(me), lambda _: time.monotonic() < until)
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
