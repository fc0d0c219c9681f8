"""An aggregate over something unreadable fails and names it; a damaged index costs time, not the answer."""

from __future__ import annotations

import decimal
import math
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap

import skipstone as sk
from skipstone.errors import (
    CorruptFileError,
    FileError,
    ReadError,
    SkipstoneError,
    TypeMismatchError,
    UnknownColumnError,
    UsageError,
)
from tests.faults._files import FILES, ROWS, fault_table
from tests.property._patch import data_pages, page_header_size
from tests.support.samples import sample
from tests.support.stores import own_files

VICTIM = "part-1.parquet"
GROUP = 100
ALL = pa.concat_tables([fault_table(n) for n in range(FILES)])
X = ALL["x"].to_pylist()
FLIPS = sample("damaged aggregates")
WAYS: dict[str, dict[str, Any]] = {
    "one thread": {"threads": 1},
    "three threads": {"threads": 3},
    "slices": {"route": "slice"},
    "pyarrow": {"route": "pyarrow"},
    "late": {"materialise": "late"},
}


def spoil(root: Path, column: str, group: int) -> str:
    """Make noise of the first page of a column in one row group of the victim."""
    path = root / VICTIM
    page = next(p for p in data_pages(path)[column] if p.first_row == group * GROUP)
    data = bytearray(path.read_bytes())
    start = page.start + page_header_size(bytes(data), page.start)
    data[start : page.stop] = b"\xff" * (page.stop - start)
    path.write_bytes(bytes(data))
    return str(path)


def named(error: SkipstoneError, path: str, column: str, group: int) -> None:
    """The error tells the file, the row group and the column."""
    assert error.path == path
    assert error.unit is not None
    assert f"row group {group}" in error.unit
    assert error.column == column


# -- data that can't be read -------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("cached", [True, False])
def test_a_damaged_page_fails_the_aggregate(own_lake: Path, way: dict[str, Any], cached: bool) -> None:
    path = spoil(own_lake, "x", 2)
    with pytest.raises(CorruptFileError) as caught:
        sk.open(own_lake).scan(**way).aggregate(sk.sum("x"), sk.count(), use_cached=cached).to_arrow()
    assert caught.value.path == path
    assert "row group 2" in str(caught.value)
    if way.get("route") != "pyarrow":
        named(caught.value, path, "x", 2)


@pytest.mark.parametrize(
    ("column", "where", "given"),
    [
        ("id", None, {"within": BitMap(range(605, 640)), "id_column": "id"}),
        ("id", "id between 605 and 630", {}),
        ("text", None, {"group_by": ["text"]}),
        ("x", "id between 601 and 620", {}),
        ("x", None, {"within": {VICTIM: BitMap([205, 206])}}),
    ],
)
def test_a_damaged_page_of_any_column_that_is_needed(
    own_lake: Path, column: str, where: str | None, given: dict[str, Any]
) -> None:
    path = spoil(own_lake, column, 2)
    with pytest.raises(CorruptFileError) as caught:
        sk.open(own_lake).scan(where).aggregate(sk.sum("x"), **given).to_arrow()
    named(caught.value, path, column, 2)


def test_a_damaged_page_nobody_needs_is_not_missed(own_lake: Path) -> None:
    spoil(own_lake, "x", 2)  # rows 600 to 619 of the lake
    lake = sk.open(own_lake)
    wanted = math.fsum(X[620:])
    assert lake.scan("id >= 620").aggregate(sk.sum("x"))["sum(x)"] == wanted
    ids = BitMap(range(620, FILES * ROWS))
    assert lake.scan().aggregate(sk.sum("x"), within=ids, id_column="id")["sum(x)"] == wanted
    assert lake.scan().aggregate(sk.count(), sk.sum("id"))["count"] == FILES * ROWS


def test_a_stream_ends_with_the_error(own_lake: Path) -> None:
    path = spoil(own_lake, "x", 2)
    steps = []
    with pytest.raises(CorruptFileError) as caught:
        steps.extend(sk.open(own_lake).scan().aggregate(sk.sum("x")).stream())
    named(caught.value, path, "x", 2)
    assert not any(step.final for step in steps)


def test_what_the_index_knows_is_not_read(own_lake: Path) -> None:
    """Sums recorded before the damage stand for what was there, and no damage is seen without reading."""
    lake = sk.open(own_lake)
    lake.index.build(sums=True, engine="local")
    before = (own_lake / VICTIM).stat()
    path = spoil(own_lake, "x", 2)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # a rewrite that nobody can see
    lake = sk.open(own_lake)
    assert lake.scan().aggregate(sk.sum("x"))["sum(x)"] == math.fsum(X)
    with pytest.raises(CorruptFileError) as caught:
        lake.scan().aggregate(sk.sum("x"), use_cached=False).to_arrow()
    named(caught.value, path, "x", 2)


CHANGES: dict[str, Callable[[Path], object]] = {
    "vanished": lambda path: path.unlink(),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-1000]),
    "emptied": lambda path: path.write_bytes(b""),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("indexed", [False, True])
def test_a_file_that_changes_under_the_lake(
    own_lake: Path, change: Callable[[Path], object], indexed: bool
) -> None:
    lake = sk.open(own_lake)
    if indexed:
        lake.index.build(["id"], engine="local")
        lake = sk.open(own_lake)
    change(own_lake / VICTIM)
    with pytest.raises(FileError) as caught:
        lake.scan().aggregate(sk.sum("x")).to_arrow()
    assert caught.value.path == str(own_lake / VICTIM)
    assert caught.value.hint
    if indexed:  # without that file there is nothing to complain about
        found = lake.scan(f"id >= {2 * ROWS}").aggregate(sk.sum("x"))["sum(x)"]
        assert found == math.fsum(X[2 * ROWS :])


def test_a_file_that_is_no_file_any_more(own_lake: Path) -> None:
    CHANGES["truncated"](own_lake / VICTIM)
    with pytest.raises(FileError) as caught:
        sk.open(own_lake).scan().aggregate(sk.count()).to_arrow()
    assert caught.value.path == str(own_lake / VICTIM)


def test_a_pinned_lake_answers_from_its_index_what_has_vanished_since(own_lake: Path) -> None:
    """Metadata of the version that was opened answers for that version."""
    sk.open(own_lake).index.build(sums=True, engine="local")
    lake = sk.open(own_lake)
    (own_lake / VICTIM).unlink()
    assert lake.scan().aggregate(sk.count(), sk.sum("x")).to_pylist() == [
        {"count": FILES * ROWS, "sum(x)": math.fsum(X)}
    ]
    with pytest.raises(ReadError):
        lake.scan().aggregate(sk.sum("x"), use_cached=False).to_arrow()
    lake.refresh()
    left = X[:ROWS] + X[2 * ROWS :]
    assert lake.scan().aggregate(sk.sum("x"))["sum(x)"] == math.fsum(left)


# -- an index that lies ------------------------------------------------------------------------

FUNCTIONS = [
    sk.count(),
    sk.sum("x"),
    sk.sum("id"),
    sk.min("id"),
    sk.max("x"),
    sk.var("x"),
    sk.count("text"),
]


def test_a_damaged_index_changes_no_answer(own_lake: Path) -> None:
    sk.open(own_lake).index.build(sums=True, sketches=["x"], engine="local")
    within = {"within": BitMap([*range(50, 333), *range(500, 1100)]), "id_column": "id"}
    asked: list[tuple[str | None, dict[str, Any]]] = [(None, {}), ("id < 777", {}), (None, within)]
    wanted = [
        sk.open(own_lake).scan(where, index=False).aggregate(*FUNCTIONS, **given).to_pylist()
        for where, given in asked
    ]
    segments = [*own_files(own_lake).rglob("*.skip")]
    assert segments
    rng = random.Random("flips")
    for _ in range(FLIPS):
        path = rng.choice(segments)
        body = path.read_bytes()
        spoiled = bytearray(body)
        at = rng.randrange(len(body))
        spoiled[at : at + rng.choice([1, 1, 8])] = bytes([spoiled[at] ^ (1 << rng.randrange(8))])
        path.write_bytes(bytes(spoiled))
        lake = sk.open(own_lake)
        for (where, given), right in zip(asked, wanted, strict=True):
            found = lake.scan(where).aggregate(*FUNCTIONS, **given).to_pylist()
            assert found == right, f"byte {at} of {path.name} of {len(body)}"
        path.write_bytes(body)


def test_a_segment_that_is_cut_short_or_gone(own_lake: Path) -> None:
    sk.open(own_lake).index.build(sums=True, engine="local")
    wanted = sk.open(own_lake).scan(index=False).aggregate(*FUNCTIONS).to_pylist()
    for path in own_files(own_lake).rglob("*.skip"):
        body = path.read_bytes()
        for length in (0, 10, len(body) // 2, len(body) - 1):
            path.write_bytes(body[:length])
            assert sk.open(own_lake).scan().aggregate(*FUNCTIONS).to_pylist() == wanted
        path.unlink()
    assert sk.open(own_lake).scan().aggregate(*FUNCTIONS).to_pylist() == wanted


# -- numbers at their limits -------------------------------------------------------------------


def lake_of(root: Path, columns: dict[str, Any], *, sums: bool = False) -> Any:
    """A lake of one file with small row groups, its index holding sums if asked."""
    pq.write_table(pa.table(columns), root / "part-0.parquet", row_group_size=3, write_page_index=True)
    if sums:
        sk.open(root).index.build(sums=True, engine="local")
    return sk.open(root)


@pytest.mark.parametrize("sums", [False, True], ids=["read", "cached"])
def test_sums_past_64_bits(tmp_path: Path, sums: bool) -> None:
    low, high, top = -(2**63), 2**63 - 1, 2**64 - 1
    columns = {
        "i": pa.array([high] * 7 + [None], pa.int64()),
        "l": pa.array([low] * 7 + [high], pa.int64()),
        "u": pa.array([top] * 8, pa.uint64()),
    }
    answer = (
        lake_of(tmp_path, columns, sums=sums)
        .scan()
        .aggregate(*(f(name) for name in columns for f in (sk.sum, sk.min, sk.max, sk.avg, sk.var, sk.count)))
    )
    assert answer["sum(i)"] == 7 * high
    assert (answer["min(i)"], answer["max(i)"], answer["count(i)"]) == (high, high, 7)
    assert answer["sum(l)"] == 7 * low + high
    assert (answer["min(l)"], answer["max(l)"]) == (low, high)
    assert answer["sum(u)"] == 8 * top
    assert answer["max(u)"] == top
    assert answer["avg(u)"] == float(top)
    assert (answer["var(i)"], answer["var(u)"]) == (0.0, 0.0)


@pytest.mark.parametrize("sums", [False, True], ids=["read", "cached"])
def test_nulls_nans_infinities_and_zeros(tmp_path: Path, sums: bool) -> None:
    nan, inf = math.nan, math.inf
    columns = {
        "nulls": pa.array([None] * 6, pa.float64()),
        "whole": pa.array([None] * 6, pa.int64()),
        "nans": pa.array([nan] * 6),
        "some": pa.array([1.0, nan, None, -2.0, 0.5, nan]),
        "zeros": pa.array([-0.0] * 6),
        "both": pa.array([-0.0, 0.0, -0.0, 0.0, -0.0, 0.0]),
        "ends": pa.array([inf, 1.0, -inf, 2.0, 0.0, 0.0]),
        "up": pa.array([inf, 1.0, inf, 2.0, 0.0, 0.0]),
        "cancel": pa.array([1e308, 1e308, 1.0, -1e308, -1e308, 1e-300]),
    }
    lake = lake_of(tmp_path, columns, sums=sums)
    functions = (sk.sum, sk.min, sk.max, sk.avg, sk.count, sk.stddev)
    (row,) = lake.scan().aggregate(*(f(name) for name in columns for f in functions)).to_pylist()

    def told(name: str) -> list[Any]:
        names = ("sum", "min", "max", "avg", "count", "stddev")
        return ["nan" if row[f"{f}({name})"] != row[f"{f}({name})"] else row[f"{f}({name})"] for f in names]

    assert told("nulls") == told("whole") == [None, None, None, None, 0, None]
    assert told("nans") == ["nan", "nan", "nan", "nan", 6, "nan"]
    assert told("some") == ["nan", -2.0, "nan", "nan", 5, "nan"]
    assert told("zeros") == told("both") == [0.0, 0.0, 0.0, 0.0, 6, 0.0]
    assert told("ends")[:5] == ["nan", -inf, inf, "nan", 6]
    assert told("up")[:5] == [inf, 0.0, inf, inf, 6]
    assert told("cancel")[0] == 1.0
    empty = lake.scan("zeros > 5").aggregate(*(f("some") for f in functions), sk.count())
    assert empty.to_pylist() == [
        {f"{f}(some)": None for f in ("sum", "min", "max", "avg")}
        | {"count(some)": 0, "stddev(some)": None, "count": 0}
    ]


@pytest.mark.parametrize("sums", [False, True], ids=["read", "cached"])
def test_decimals_don_t_wrap(tmp_path: Path, sums: bool) -> None:
    top = decimal.Decimal(10**38 - 1)
    columns = {
        "d": pa.array([top, top, top.copy_negate()], pa.decimal128(38, 0)),
        "e": pa.array([top, top, top], pa.decimal128(38, 0)),
        "c": pa.array([decimal.Decimal("99999.99")] * 3, pa.decimal128(7, 2)),
    }
    lake = lake_of(tmp_path, columns, sums=sums)
    assert lake.scan().aggregate(sk.sum("d"))["sum(d)"] == top
    assert lake.scan().aggregate(sk.sum("c"))["sum(c)"] == decimal.Decimal("299999.97")
    with pytest.raises(SkipstoneError) as caught:
        lake.scan().aggregate(sk.sum("e")).to_arrow()
    assert caught.value.column == "e"
    assert caught.value.hint
    assert lake.scan().aggregate(sk.max("e"), sk.count("e")).to_pylist() == [{"max(e)": top, "count(e)": 3}]


# -- calls that make no sense ------------------------------------------------------------------

BAD_CALLS: dict[str, tuple[type[SkipstoneError], Callable[[Any], Any]]] = {
    "no such column": (UnknownColumnError, lambda scan: scan().aggregate(sk.sum("nothing"))),
    "no such group": (UnknownColumnError, lambda scan: scan().aggregate(sk.count(), group_by=["nothing"])),
    "no such id": (
        UnknownColumnError,
        lambda scan: scan().aggregate(sk.count(), within=BitMap([1]), id_column="nothing"),
    ),
    "sum of texts": (TypeMismatchError, lambda scan: scan().aggregate(sk.sum("text"))),
    "average of texts": (TypeMismatchError, lambda scan: scan().aggregate(sk.avg("text"))),
    "variance of texts": (TypeMismatchError, lambda scan: scan().aggregate(sk.var("text"))),
    "least list": (TypeMismatchError, lambda scan: scan().aggregate(sk.min("items"))),
    "sum of a struct": (TypeMismatchError, lambda scan: scan().aggregate(sk.sum("st"))),
    "quantile of texts": (TypeMismatchError, lambda scan: scan().aggregate(sk.quantile("text", 0.5))),
    "texts in bins": (TypeMismatchError, lambda scan: scan().aggregate(sk.histogram("text", [0, 1]))),
    "groups of lists": (TypeMismatchError, lambda scan: scan().aggregate(sk.count(), group_by=["items"])),
    "ids that are texts": (
        TypeMismatchError,
        lambda scan: scan().aggregate(sk.count(), within=BitMap([1]), id_column="text"),
    ),
    "ids that are floats": (
        TypeMismatchError,
        lambda scan: scan().aggregate(sk.count(), within=BitMap([1]), id_column="x"),
    ),
    "a limit": (UsageError, lambda scan: scan(limit=3).aggregate(sk.count())),
    "nothing": (UsageError, lambda scan: scan().aggregate()),
    "no function": (UsageError, lambda scan: scan().aggregate(len)),
    "one name twice": (UsageError, lambda scan: scan().aggregate(sk.sum("x"), sk.sum("x"))),
    "negative ids": (
        UsageError,
        lambda scan: scan().aggregate(sk.count(), within=[-1, 2], id_column="id"),
    ),
    "floats as ids": (
        UsageError,
        lambda scan: scan().aggregate(sk.count(), within=np.array([0.5]), id_column="id"),
    ),
    "booleans as ids": (
        UsageError,
        lambda scan: scan().aggregate(sk.count(), within=np.array([True]), id_column="id"),
    ),
    "a set of what": (UsageError, lambda scan: scan().aggregate(sk.count(), within="ids", id_column="id")),
    "ids of no set": (UsageError, lambda scan: scan().aggregate(sk.count(), id_column="id")),
    "an unknown engine": (UsageError, lambda scan: scan().aggregate(sk.count(), engine="nothing")),
    "falling edges": (UsageError, lambda scan: scan().aggregate(sk.histogram("x", [3, 1]))),
    "rank above one": (UsageError, lambda scan: scan().aggregate(sk.quantile("x", 1.5))),
    "degrees": (UsageError, lambda scan: scan().aggregate(sk.var("x", ddof=2))),
    "half an aggregate": (UsageError, lambda scan: scan().aggregate(sk.udaf(object(), ["x"]))),
    "places in no file": (
        UsageError,
        lambda scan: scan().aggregate(sk.count(), within={"part-9.parquet": BitMap([1])}),
    ),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_a_call_that_makes_no_sense(lake_path: Path, name: str) -> None:
    error, call = BAD_CALLS[name]
    with pytest.raises(error) as caught:
        call(sk.open(lake_path).scan).to_arrow()
    assert caught.value.hint


class Breaks:
    """An aggregate with a fault of its own."""

    def init(self) -> int:
        return 0

    def update(self, state: int, batch: pa.RecordBatch) -> int:
        raise ZeroDivisionError("a fault of the caller")

    def merge(self, a: int, b: int) -> int:
        return a + b

    def finish(self, state: int) -> int:
        return state


def test_a_fault_of_the_caller_is_told_with_the_aggregates_name(lake_path: Path) -> None:
    with pytest.raises(SkipstoneError, match="mine") as caught:
        sk.open(lake_path).scan().aggregate(sk.udaf(Breaks(), ["x"], name="mine")).to_arrow()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
