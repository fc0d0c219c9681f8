"""ORDER BY as a merge: rows against a plain sort, and what is read for the first of them."""

from __future__ import annotations

import datetime
import decimal
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from skipstone.table.overlay import overlay
from tests.support.samples import sample

FILES, ROWS, PAGE = 6, 10_000, 500
ORDERS = ("c", "c desc", "c nulls last", "c desc nulls first")
DAY = datetime.date(1969, 12, 1)
KINDS: dict[str, Any] = {
    "int": lambda n: n - 3_000,
    "float": lambda n: float("nan") if n % 41 == 40 else (n - 2_500) / 8,
    "string": lambda n: f"{n // 3:05d}é",
    "day": lambda n: DAY + datetime.timedelta(n // 50),
    "narrow": lambda n: decimal.Decimal(n - 2_000) / 100,
    "wide": lambda n: decimal.Decimal(n - 2_000) * 10**18,
    "flag": lambda n: n % 2 == 0,
}
TYPES = {
    "narrow": pa.decimal128(9, 2),
    "wide": pa.decimal128(30, 2),
    "string": pa.string(),
    "day": pa.date32(),
    "float": pa.float64(),
    "int": pa.int32(),
    "flag": pa.bool_(),
}


def numbers(random: np.random.Generator, count: int, layout: str) -> list[int]:
    """Numbers of a file's rows: rising, falling, rising in parts, or in no order."""
    some = random.integers(random.integers(1, 6_000), size=count)
    if layout == "parts":
        return np.concatenate([np.sort(part) for part in np.array_split(some, 3)]).tolist()
    ordered = np.sort(some)
    return {"up": ordered, "down": ordered[::-1], "random": some}[layout].tolist()


def plain_sort(values: list[Any], order: str) -> list[int]:
    """Positions in sort order; equal values keep their order."""
    descending = "desc" in order
    nulls_first = "first" in order or not (descending or "last" in order)

    def place(value: Any) -> tuple[bool, Any]:
        return (value != value, 0 if value != value else value)

    known = [n for n, value in enumerate(values) if value is not None]
    nulls = [n for n, value in enumerate(values) if value is None]
    ranked = sorted(known, key=lambda n: place(values[n]))
    if descending:
        ranked = [
            n for _, same in itertools.groupby(ranked, lambda n: place(values[n])) for n in [*same][::-1]
        ]
        ranked = ranked[::-1]
    return [*nulls, *ranked] if nulls_first else [*ranked, *nulls]


@pytest.mark.parametrize("seed", range(sample("sorted rows")))
def test_rows_come_as_a_plain_sort_puts_them(tmp_path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    kind = [*KINDS][seed % len(KINDS)]
    values: list[Any] = []
    for number in range(3):
        mine = [
            KINDS[kind](n) for n in numbers(random, 6_000, random.choice(["up", "down", "parts", "random"]))
        ]
        nulls = random.integers(300) if random.integers(2) else 0
        mine[:nulls] = [None] * nulls
        first = len(values)
        values += mine
        ids = pa.array(range(first, len(values)), pa.int64())
        rows = pa.table({"id": ids, "c": pa.array(mine, TYPES[kind])})
        options = {
            "max_rows_per_page": int(random.integers(100, 900)),
            "write_page_index": bool(random.integers(4)),
        }
        pq.write_table(rows, tmp_path / f"{number}.parquet", row_group_size=4_000, **options)
    lake = sk.open(tmp_path)
    for order in ORDERS:
        expected = plain_sort(values, order)
        limit = int(random.choice([1, 50, 5_000]))
        for scan, wanted in (
            (lake.scan(order_by=order, columns=["id"], batch_rows=1_000), expected),
            (lake.scan(order_by=order, columns=["id", "c"], limit=limit), expected[:limit]),
            (
                lake.scan("id % 3 = 1", order_by=order, limit=limit),
                [n for n in expected if n % 3 == 1][:limit],
            ),
        ):
            assert scan.to_arrow()["id"].to_pylist() == wanted, (seed, kind, order, limit)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> sk.Table:
    """Sorted files, one after the other, each with one row group."""
    table = sk.catalog(tmp_path_factory.mktemp("order")).create_table(
        "db.t", pa.schema({"k": pa.int64(), "v": pa.string()}), key="k"
    )
    for first in range(0, FILES * ROWS, ROWS):
        sk.ingest(rows(range(first * 2, (first + ROWS) * 2, 2)), table, page_rows=PAGE, engine="local")
    return table.refresh()


def rows(keys: Any) -> pa.Table:
    keys = list(keys)
    return pa.table({"k": keys, "v": [f"{k * 7919 % 100_003:040d}" for k in keys]})


def layered(table: sk.Table) -> Any:
    """A row in memory after every hundredth row of the files, and the first row hidden."""
    (first,) = table.scan("k = 0").plan().tasks
    return overlay(
        table, {first.entry.key: sk.RowSet.from_positions(ROWS, [0])}, rows(range(1, 2 * FILES * ROWS, 200))
    )


@pytest.mark.parametrize("order", ["k", "k desc"])
def test_the_first_rows_read_few_pages(table: sk.Table, order: str) -> None:
    every = table.scan(columns=["k"]).execute()
    every.to_arrow()
    for lake in (table, layered(table)):
        keys = sorted(lake.scan(columns=["k"]).to_arrow()["k"].to_pylist(), reverse="desc" in order)
        run = lake.scan(order_by=order, columns=["k"], limit=10, threads=1).execute()
        assert run.to_arrow()["k"].to_pylist() == keys[:10]
        # Runs of pages of a file, and the rows in memory.
        assert 1 <= run.trace.run.pieces <= 3
        assert 0 < run.trace.run.bytes < every.trace.run.bytes / 4
        some = lake.scan("v >= '0'", order_by=order, limit=2_500, threads=1).execute()
        assert some.to_arrow()["k"].to_pylist() == keys[:2_500]
        assert 1 <= some.trace.run.pieces <= 4


def test_rows_stream_without_a_limit(table: sk.Table) -> None:
    for lake in (table, layered(table)):
        before = lake.access.io().bytes
        batches = lake.scan(order_by="k", threads=1, batch_rows=4_096).execute().to_batches()
        keys = next(batches)["k"].to_pylist()
        early = lake.access.io().bytes - before
        for batch in batches:
            assert len(batch) <= 4_096
            keys += batch["k"].to_pylist()
        assert keys == sorted(lake.scan().to_arrow()["k"].to_pylist())
        assert 0 < early < (lake.access.io().bytes - before) / 4
