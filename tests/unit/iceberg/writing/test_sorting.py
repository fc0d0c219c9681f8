"""Manifest entries claim a sort order exactly if the rows of the file are in it."""

from __future__ import annotations

import datetime
import decimal
import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from skipstone.iceberg.writing.sorting import OrderCheck, TableOrder

VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i": (pa.int32(), [None, -3, 0, 7]),
    "f": (pa.float64(), [None, -math.inf, -1.5, -0.0, 0.0, 2.5, math.nan]),
    "s": (pa.string(), [None, "", "a", "z", "é", "𝄞"]),
    "b": (pa.binary(), [None, b"", b"\x7f", b"\x80"]),
    "x": (pa.binary(2), [None, b"ab", b"\xff\x00"]),
    "t": (pa.timestamp("us"), [None, datetime.datetime(1969, 12, 31, 23), datetime.datetime(2024, 1, 1, 5)]),
    "d": (pa.date32(), [None, datetime.date(1960, 1, 1), datetime.date(2024, 1, 1)]),
    "n": (pa.decimal128(9, 2), [None, decimal.Decimal("-1.50"), decimal.Decimal("12.25")]),
    "o": (pa.bool_(), [None, False, True]),
    "u": (pa.uuid(), [None, b"\x00" * 16, b"\xff" * 16]),
}
SCHEMA = pa.schema([(name, type) for name, (type, _) in VALUES.items()])
TERMS = ("{}", "{} desc", "{} nulls last", "{} desc nulls first")
HOURS = datetime.timedelta(hours=1)


def rank(value: Any, term: str) -> tuple[Any, ...]:
    """Sorts like a value by a term, before the direction is applied."""
    if isinstance(value, datetime.datetime) and term.startswith("day("):
        value = value.date()
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value, math.copysign(1, value))
    return (value.encode() if isinstance(value, str) else value,)


def are_in_order(one: dict[str, Any], other: dict[str, Any], terms: list[str]) -> bool:
    for term in terms:
        name = term.split()[0].removeprefix("day(").removesuffix(")")
        a, b = one[name], other[name]
        descending = " desc" in term
        nulls_first = "nulls first" in term or ("nulls last" not in term and not descending)
        if a is None or b is None:
            if (a is None) == (b is None):
                continue
            return (a is None) == nulls_first
        ranks = rank(a, term), rank(b, term)
        if ranks[0] != ranks[1]:
            return (ranks[0] < ranks[1]) != descending
    return True


@pytest.mark.parametrize("seed", range(3))
def test_rows_are_compared_as_python_compares_them(seed: int, tmp_path: Path) -> None:
    random, catalog = np.random.default_rng(seed), sk.catalog(tmp_path)
    held = 0
    for number in range(12):
        names = random.choice(
            [name for name in VALUES if name != "u"], int(random.integers(1, 3)), replace=False
        )
        terms = [str(random.choice(TERMS)).format("day(t)" if name == "t" else name) for name in names]
        order = TableOrder.of(catalog.create_table(f"db.t{number}", SCHEMA, sort_by=terms).table)
        assert order is not None
        for _ in range(12):
            rows = [
                {name: values[int(random.integers(len(values)))] for name, (_, values) in VALUES.items()}
                for _ in range(int(random.integers(1, 4)))
            ]
            table = pa.Table.from_pylist(rows, SCHEMA)
            check, cut = OrderCheck(order), int(random.integers(len(rows) + 1))
            for part in (table.slice(0, cut), table.slice(cut)):
                check.add(part)
            expected = all(are_in_order(one, other, terms) for one, other in itertools.pairwise(rows))
            assert check.holds == expected, (terms, rows, cut)
            held += expected
    assert 20 < held < 124


@pytest.mark.parametrize("terms", [[], ["u"], ["bucket(4, i)"], ["i", "truncate(2, s)"]])
def test_orders_that_rows_are_not_compared_by(terms: list[str], tmp_path: Path) -> None:
    assert TableOrder.of(sk.catalog(tmp_path).create_table("db.t", SCHEMA, sort_by=terms).table) is None


# -- all writes of a table -----------------------------------------------------------------------

ROWS = pa.schema({"id": pa.int64(), "v": pa.int64()})


def shuffled(ids: range, v: int = 0) -> pa.Table:
    some = np.random.default_rng(1).permutation(np.array(ids))
    return pa.table({"id": some, "v": some * 0 + v}, ROWS)


def _flush(table: sk.Table) -> None:
    with table.writer(sync="off", flush_seconds=None) as writer:
        writer.upsert(shuffled(range(260, 290)))


WRITES: dict[str, Callable[[sk.Table], Any]] = {
    "append": lambda table: table.append(shuffled(range(200, 260))),
    "upsert": lambda table: table.upsert(shuffled(range(50, 90), 7)),
    "update": lambda table: table.update("id >= 20 AND id < 90", {"v": 5}),
    "flush": _flush,
    "ingest": lambda table: sk.ingest(shuffled(range(300, 900)), table, engine="local", row_group_rows=100),
}


def claims(table: sk.Table) -> dict[str, int | None]:
    """The sort order that each data file claims, which its rows must be in."""
    files = table.table.refresh().inspect.files().to_pylist()
    assert all(one["sort_order_id"] is None for one in files if one["content"])
    data = [one for one in files if not one["content"]]
    for one in data:
        ids = pq.read_table(one["file_path"].removeprefix("file://"))["id"].to_pylist()
        assert (one["sort_order_id"] == 1) == (ids == sorted(ids))
    return {one["file_path"]: one["sort_order_id"] for one in data}


@pytest.mark.parametrize("partition_by", [[], ["bucket(2, id)"]])
def test_every_write_claims_the_order_that_it_makes(partition_by: list[str], tmp_path: Path) -> None:
    catalog = sk.catalog(tmp_path)
    table = catalog.create_table("db.t", ROWS, key=["id"], sort_by=["id"], partition_by=partition_by)
    table.upsert(shuffled(range(100)))
    for name, write in WRITES.items():
        before = claims(table).keys()
        write(table)
        assert {order for path, order in claims(table).items() if path not in before} == {1}, name


def test_overwrites_claim_it_too(tmp_path: Path) -> None:
    table = sk.catalog(tmp_path).create_table("db.t", ROWS, sort_by=["id"])
    sk.ingest(shuffled(range(100)), table, engine="local")
    sk.ingest(shuffled(range(200, 250)), table, engine="local", mode="overwrite", where="id < 40 OR id = 77")
    assert [*claims(table).values()] == [1, 1]
    assert table.refresh().plan_compaction(strategy="sort", min_input_files=50).groups == ()


def test_rows_in_another_order_do_not_claim_it(tmp_path: Path) -> None:
    """Neither do those whose sorted files were joined, until they are sorted together."""
    table = sk.catalog(tmp_path).create_table("db.t", ROWS, sort_by=["id"])
    for first in (0, 50):
        sk.ingest(shuffled(range(first, first + 100)), table, engine="local")
    assert [*claims(table).values()] == [1, 1]
    table.compact(table.refresh().plan_compaction(rewrite_all=True), engine="local")
    assert [*claims(table).values()] == [None]
    table.compact(table.plan_compaction(strategy="sort"), engine="local")
    assert [*claims(table).values()] == [1]
    sk.ingest(shuffled(range(100)), table, engine="local", cluster_by=["v"])
    assert sorted(claims(table).values(), key=str) == [1, None]
