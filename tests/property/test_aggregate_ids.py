"""Sets of ids over columns that count up, or nearly do: gaps, repeats, NULLs and turns change what counts.

``SKIPSTONE_CASES`` sets how many lakes are made.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap, BitMap64

import skipstone as sk
from tests.support.samples import sample

PER_LAKE = 4
TYPES = (*[pa.int64()] * 3, pa.int32(), pa.uint32(), pa.uint64(), pa.int16(), pa.uint8(), pa.int8())
FIRST = (0, 0, -5, 100, 250, 10**6, 2**31 - 100, 2**32 - 20, 2**63 - 300)
Ids = list[int | None]
FAULTS: tuple[Callable[[random.Random, Ids, int], Ids], ...] = (
    lambda rng, ids, at: [*ids[:at], None, *ids[at + 1 :]],
    lambda rng, ids, at: [
        *ids[:at],
        None if ids[at] is None else ids[at] + rng.choice([1, -1, 7]),
        *ids[at + 1 :],
    ],
    lambda rng, ids, at: [*ids[:at], ids[at], *ids[at:]],
    lambda rng, ids, at: [*ids[:at], *ids[at + 1 :]],
    lambda rng, ids, at: [*ids[:at], *reversed(ids[at:])],
    lambda rng, ids, at: [*ids[:at], *[None] * rng.randrange(1, 40), *ids[at:]],
    lambda rng, ids, at: [*ids[at:], *ids[:at]],
)
CONDITIONS: dict[str | None, Callable[[int | None], bool]] = {
    None: lambda x: True,
    "x > 0": lambda x: x is not None and x > 0,
    "x is null": lambda x: x is None,
    "x between -50 and 50": lambda x: x is not None and -50 <= x <= 50,
}


def make(rng: random.Random, root: Path) -> list[tuple[int | None, int | None]]:
    """Write the files of a lake; its rows."""
    root.mkdir()
    type, first, rows = rng.choice(TYPES), rng.choice(FIRST), []
    top = 2 ** (type.bit_width - pa.types.is_signed_integer(type)) - 1
    low = -top - 1 if pa.types.is_signed_integer(type) else 0
    for number in range(rng.choice([1, 1, 2, 3])):
        count = rng.randrange(1, 300)
        ids: Ids = list(range(first, first + count))
        first += count if rng.random() < 0.7 else rng.randrange(-20, 20)
        for _ in range(rng.choice([0, 0, 0, 1, 2, 5])):
            if ids:
                ids = rng.choice(FAULTS)(rng, ids, rng.randrange(len(ids)))
        ids = [v if v is not None and low <= v <= top else None for v in ids]
        values = [rng.choice([None, rng.randrange(-100, 100)]) for _ in ids]
        write(
            rng,
            pa.table({"id": pa.array(ids, type), "x": pa.array(values, pa.int64())}),
            root / f"{number}.parquet",
        )
        rows += zip(ids, values, strict=True)
    return rows


def write(rng: random.Random, table: pa.Table, path: Path) -> None:
    settings: dict[str, Any] = {"row_group_size": rng.choice([10, 50, 1000])}
    if rng.random() < 0.25:
        pl.from_arrow(table).write_parquet(path, data_page_size=rng.choice([1, 64, 1024]), **settings)  # type: ignore[union-attr]
        return
    settings |= {"write_page_index": rng.random() < 0.6, "use_dictionary": rng.random() < 0.5}
    settings |= {"max_rows_per_page": rng.choice([3, 10, 40]), "write_batch_size": rng.choice([1, 5])}
    pq.write_table(table, path, **settings)


def some_ids(rng: random.Random, there: list[int]) -> set[int]:
    """Runs of ids that are there or beside, and some without neighbours."""
    chosen: set[int] = set()
    for _ in range(rng.choice([1, 1, 2, 4]) if there else 0):
        start = rng.choice(there) - rng.choice([0, 0, 1, 5])
        chosen |= {*range(max(start, 0), start + rng.choice([1, 3, 10, 60, 400]))}
    if rng.random() < 0.3:
        chosen |= {*rng.sample(there, min(len(there), 5))}
    if rng.random() < 0.2:
        chosen -= {*rng.sample(sorted(chosen), min(len(chosen), 3))}
    return {v for v in chosen if v < 2**64}


def as_set(rng: random.Random, ids: set[int]) -> Any:
    if rng.random() < 0.3:
        return np.array(sorted(ids), dtype=np.uint64)
    return BitMap64(ids) if rng.random() < 0.5 or max(ids, default=0) >= 2**32 else BitMap(ids)


def ask(rng: random.Random, lake: Any, rows: list[tuple[int | None, int | None]]) -> int:
    """One set, from metadata and without; how often ids were not read, but followed from their places."""
    by_place = 0
    ids = some_ids(rng, sorted({i for i, _ in rows if i is not None and i >= 0}))
    denied, where = rng.random() < 0.3, rng.choice([None, *CONDITIONS])
    kept = [x for i, x in rows if CONDITIONS[where](x) and (i is not None and i in ids) != denied]
    some = [x for x in kept if x is not None]
    wanted = [
        len(kept),
        len(some),
        sum(some) if some else None,
        min(some, default=None),
        max(some, default=None),
    ]
    functions = (sk.count(), sk.count("x"), sk.sum("x"), sk.min("x"), sk.max("x"))
    given = {"without" if denied else "within": as_set(rng, ids), "id_column": "id"}
    for cached in (True, False):
        switches: dict[str, Any] = {
            "threads": rng.choice([1, 3]),
            "route": rng.choice(["auto", "slice", "pyarrow"]),
            "materialise": rng.choice(["auto", "late", "one-pass"]),
            "memory": rng.choice([3_000, 20_000, 10**8]),
        }
        answer = lake.scan(where, **switches).aggregate(*functions, **given, use_cached=cached)
        found = [answer[f.name] for f in functions]
        words = f"cached {cached}, {switches}, {where}, denied {denied}, {len(ids)} from {sorted(ids)[:9]}"
        assert found == wanted, words
        trace = answer.trace
        by_place += trace.run.pieces > 0 and any("ids are not read" in line for line in trace.members.sets)
    return by_place


def test_sets_of_ids_that_nearly_count_up(tmp_path: Path) -> None:
    by_place = 0
    for number in range(sample("ids")):
        rng = random.Random(f"ids:{number}")
        root = tmp_path / str(number)
        rows = make(rng, root)
        if rng.random() < 0.85:
            choice = {
                "sums": rng.choice([True, False, ["x"]]),
                "values": rng.choice([True, True, None, False]),
            }
            sk.open(root).index.build(engine="local", pages=rng.random() < 0.85, **choice)
        for case in range(PER_LAKE):
            try:
                by_place += ask(rng, sk.open(root), rows)
            except Exception as error:
                raise AssertionError(f"ids:{number}:{case}: {error}\n  {[i for i, _ in rows]}") from error
    print(f"\nby place: {by_place}")
    assert by_place > 0
