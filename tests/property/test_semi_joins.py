"""Scans by the keys of a semi join: random columns, keys of other types, and ways to ask.

Python sets of exact values are one oracle. DuckDB is the other, where keys have the type of the column. Which
row groups are kept by their bounds is known too: those between whose bounds there is a key. Values of some
columns are so far apart that bloom filters drop most row groups for keys that no row has.
"""

from __future__ import annotations

import datetime
import decimal
import random
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap, BitMap64

import skipstone as sk
from tests.support.samples import sample

duckdb = pytest.importorskip("duckdb")

FILES, GROUPS, ROWS = 3, 4, 125
TOTAL = FILES * GROUPS * ROWS
UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
NAN = float("nan")
SPARSE = ("sparse", "code", "ratio", "digest")
"""Columns with bloom filters, whose values are far apart."""


def _decimals(type: pa.DataType, numbers: Sequence[int]) -> pa.Array:
    return pa.array([decimal.Decimal(n).scaleb(-type.scale) for n in numbers], type)


def _odd_texts(rng: random.Random) -> list[str]:
    stem = "https://example.org/the/same/long/path/of/all/"
    words = ["", "a", "a\0", "a\0b", "é", "\U0001f600", "b" * 40, "b" * 40 + "\0"]
    more = [f"{prefix}{n}" for prefix in ("", stem) for n in range(900)]
    return [rng.choice(rng.choice([words, more])) for _ in range(TOTAL)]


def _columns() -> dict[str, pa.Array]:
    rng = random.Random("semi joins")
    some = [rng.randrange(-700, 700) for _ in range(TOTAL)]
    rising = [n // 2 - 300 for n in range(TOTAL)]
    floats = [rng.choice([NAN, 0.0, -0.0, n / 4, float("inf"), n / 8]) for n in some]
    far = np.array([n * 1_000 + rng.randrange(0, 500, 2) for n in range(TOTAL)])
    columns = {
        **{name: _sparse(name, far) for name in SPARSE},
        "i32": pa.array(rising, pa.int32()),
        "i64": pa.array(some),
        "u8": pa.array([abs(n) % 256 for n in some], pa.uint8()),
        "f64": pa.array(floats),
        "f32": pa.array(floats, pa.float32()),
        "text": pa.array([f"user-{n + 1000:06d}" for n in rising]),
        "odd": pa.array(_odd_texts(rng)),
        "blob": pa.array([n.to_bytes(4, "big", signed=True) for n in some]),
        "fixed": pa.array([(n + 1000).to_bytes(3, "big") for n in rising], pa.binary(3)),
        "day": pa.array(rising, pa.date32()),
        "local": pa.array([n * 500 for n in some], pa.timestamp("us")),
        "instant": pa.array([n * 10**9 for n in rising], pa.timestamp("ns", "UTC")),
        "clock": pa.array([abs(n) for n in some], pa.time64("us")),
        "price": _decimals(pa.decimal128(9, 2), [n * 25 for n in some]),
        "wide": _decimals(pa.decimal128(30, 4), [n * 2500 for n in rising]),
        "flag": pa.array([n % 3 == 0 for n in some]),
    }
    nulls = pa.array([rng.random() < 0.05 for _ in range(TOTAL)])
    return {name: pc.if_else(nulls, pa.scalar(None, a.type), a) for name, a in columns.items()}


def _sparse(name: str, numbers: np.ndarray) -> pa.Array:
    if name == "code":
        return pa.array([f"code-{n:09d}" for n in numbers.tolist()])
    if name == "digest":
        return pa.array([b"%09d" % n for n in numbers.tolist()], pa.binary(9))
    return pa.array(numbers / 2 if name == "ratio" else numbers)


OTHER_TYPES: dict[str, tuple[pa.DataType, ...]] = {
    "i32": (pa.int64(), pa.int16(), pa.uint64(), pa.decimal128(12, 2), pa.float64(), pa.float32()),
    "i64": (pa.int32(), pa.int8(), pa.float64(), pa.decimal128(30, 3)),
    "u8": (pa.int64(), pa.uint16(), pa.decimal128(9, 0)),
    "f64": (pa.float32(), pa.int32(), pa.uint8()),
    "f32": (pa.float64(), pa.int64()),
    "text": (pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())),
    "odd": (pa.large_string(), pa.string_view()),
    "blob": (pa.large_binary(), pa.binary(4), pa.binary_view()),
    "fixed": (pa.binary(), pa.large_binary()),
    "day": (pa.date64(),),
    "local": (pa.timestamp("ns"), pa.timestamp("ms"), pa.timestamp("s")),
    "instant": (pa.timestamp("us", "Europe/Berlin"), pa.timestamp("s", "UTC")),
    "price": (pa.decimal128(12, 4), pa.decimal128(9, 0), pa.int64(), pa.decimal128(30, 2)),
    "wide": (pa.decimal128(38, 6), pa.int64(), pa.decimal128(9, 2)),
    "sparse": (pa.int32(), pa.decimal128(12, 2), pa.float64()),
    "code": (pa.large_string(),),
}


def exact(values: pa.Array) -> list[Any]:
    """Each value as one of Python that is equal for equal values: NaN equals itself, and -0.0 equals 0.0."""
    type = values.type
    if pa.types.is_dictionary(type):
        values = values.dictionary_decode()
    elif pa.types.is_timestamp(type):
        numbers = values.cast(pa.int64()).to_pylist()
        return [None if n is None else n * UNITS[type.unit] for n in numbers]
    return [_exact(value) for value in values.to_pylist()]


def _exact(value: Any) -> Any:
    if isinstance(value, float) and value != value:
        return "NaN"
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bool | bytes | datetime.date | datetime.time) or value in (None, float("inf")):
        return value
    return Fraction(value)


def random_keys(rng: random.Random, name: str, column: pa.Array) -> pa.Array:
    """Keys of the column's type or of another: values that rows have, values in between, and NULL."""
    size = rng.choice([0, 1, 6, 150, 4_000])
    low = rng.randrange(len(column))
    near = column.slice(low, rng.choice([20, 300, TOTAL]))  # of one row group, of a few, or of all
    if not size:
        return near.slice(0, 0)
    keys = near.take(pa.array([rng.randrange(len(near)) for _ in range(size)]))
    if name in SPARSE:
        # Between the values of all rows, and odd, as none of them is.
        keys = keys.slice(0, rng.choice([0, 3, size]))
        absent = _sparse(name, 1 + 2 * np.array(rng.sample(range(TOTAL * 500), size)))
    else:
        absent = _absent(rng, column.type, size)
    keys = pa.concat_arrays([keys, absent])
    type = rng.choice([column.type, *OTHER_TYPES.get(name, ())])
    if pa.types.is_dictionary(type):
        return keys.dictionary_encode()
    fits = [value for value in keys if _fits(value, type)]
    return pa.array([value.cast(type) for value in fits], type)


def _absent(rng: random.Random, type: pa.DataType, size: int) -> pa.Array:
    """Distinct values that no row has, so that there are really as many keys; none for small types."""
    numbers = rng.sample(range(10**5, 10**6), size)
    if pa.types.is_string(type):
        return pa.array([f"user-{n}x" for n in numbers])
    if pa.types.is_binary(type):
        return pa.array([b"%dx" % n for n in numbers], type)
    if pa.types.is_decimal(type):
        return _decimals(type, numbers)
    wide = pa.types.is_integer(type) or pa.types.is_floating(type) or pa.types.is_timestamp(type)
    return pa.array(numbers, pa.int64()).cast(type) if wide and type != pa.uint8() else pa.array([], type)


def _fits(value: pa.Scalar, type: pa.DataType) -> bool:
    try:
        value.cast(type)
    except pa.ArrowInvalid:
        return False
    return True


def forms(keys: pa.Array) -> list[Callable[[], Any]]:
    """The ways to pass keys that keep their values."""
    chunks = [keys.slice(0, len(keys) // 2), keys.slice(len(keys) // 2)]
    made: list[Callable[[], Any]] = [lambda: keys, lambda: pa.chunked_array(chunks, keys.type)]
    if pa.types.is_integer(keys.type):
        plain = keys.drop_null()
        made += [plain.to_numpy, plain.to_pylist]
        if len(plain) and pc.min(plain).as_py() >= 0:
            made += [lambda: BitMap64(plain.to_pylist())]
            made += [lambda: BitMap(plain.to_pylist())] if plain.type.bit_width <= 32 else []
    return made


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("semi")
    table = pa.table({"id": np.arange(TOTAL), **_columns()})
    size = TOTAL // FILES
    for file in range(FILES):
        part = table.slice(file * size, size)
        options: dict[str, Any] = {"write_page_index": True, "max_rows_per_page": 25, "write_batch_size": 25}
        options["bloom_filter_options"] = {name: {"ndv": ROWS, "fpp": 0.0001} for name in SPARSE}
        pq.write_table(part, root / f"{file}.parquet", row_group_size=ROWS, **options)
    return root


def kept_groups(column: pa.Array, keys: set[Any]) -> int:
    """How many row groups have a key between their bounds."""
    count = 0
    for group in range(FILES * GROUPS):
        values = [v for v in exact(column.slice(group * ROWS, ROWS)) if v is not None and v != "NaN"]
        low, high = min(values), max(values)
        count += any(key != "NaN" and low <= key <= high for key in keys)
    return count


def test_semi_joins_agree_with_sets_and_duckdb(lake: Path) -> None:
    table = pq.read_table(lake).combine_chunks()
    plain = sk.open(lake)
    indexed = sk.open(lake, index_root=lake.parent / "semi index")
    indexed.index.build(blooms=SPARSE, engine="local", threads=1)
    count: Counter[str] = Counter()
    with duckdb.connect() as db:
        db.execute("SET threads = 1")
        db.register("lake", table)
        for case in range(sample("semi joins")):
            run_case(case, table, (plain, indexed), db, count)
    assert count["matches"] > 0.4 * count["cases"]
    assert count["none"] > 0.05 * count["cases"]
    assert count["dropped"] > 0.3 * count["cases"]
    assert count["many"] > 0.04 * count["cases"]
    assert count["duckdb"] > 0.1 * count["cases"]
    # Bloom filters of files and of the index drop units for more than 1,000 keys.
    assert count["long list, file"] > 0.01 * count["cases"]
    assert count["long list, index"] > 0.01 * count["cases"]


def run_case(
    case: int, table: pa.Table, lakes: tuple[sk.Lake, sk.Lake], db: Any, count: Counter[str]
) -> None:
    """One join, asked in one way."""
    rng = random.Random(f"semi join:{case}")
    name = rng.choice(SPARSE if rng.random() < 0.3 else table.column_names[1:])
    column = table[name].combine_chunks()
    keys = random_keys(rng, name, column)
    wanted_keys = {*exact(keys)} - {None}
    inside = np.array([value in wanted_keys for value in exact(column)])
    where, start = rng.choice([(None, 0), ("id >= 400", 400)])
    wanted = np.flatnonzero(inside[start:]) + start
    note = f"case {case}: {name} {column.type}, {len(keys)} keys of {keys.type}, {where}"
    lake = rng.choice(lakes)
    scan = lake.scan(where, ["id"], semi_join=(name, rng.choice(forms(keys))()))
    plan = scan.plan()
    found = scan.to_arrow()["id"].to_numpy()
    assert found.tolist() == wanted.tolist(), note
    assert len(wanted) <= plan.rows, note
    assert sum(len(task.proven) for task in plan.tasks) <= len(wanted), note
    assert scan.count() == len(wanted), note
    check_way(rng, scan, wanted, note)
    if where is None and "NaN" not in wanted_keys:
        check_work(lakes[0], name, keys, column, wanted_keys, note)
    if keys.type == column.type and name != "odd":
        db.register("keys", pa.table({"k": keys}))
        answer = db.sql(f"SELECT id FROM lake SEMI JOIN keys ON lake.{name} = keys.k WHERE id >= {start}")
        assert sorted(answer.to_arrow_table()["id"].to_pylist()) == wanted.tolist(), note
        count["duckdb"] += 1
    bounds = lake.scan(where, semi_join=(name, keys), bloom_filter=False).plan().rows
    assert plan.rows <= bounds, note
    dropped = plan.rows < bounds and len(wanted_keys) > 1_000
    count["long list, index" if lake is lakes[1] else "long list, file"] += dropped
    count["cases"] += 1
    count["many"] += len(wanted_keys) > 1_500
    count["matches" if len(wanted) else "none"] += 1
    count["dropped"] += plan.rows < TOTAL - start


def check_way(rng: random.Random, scan: sk.Scan, wanted: np.ndarray, note: str) -> None:
    """One other way to ask gives the same rows."""
    way = rng.randrange(4)
    if way == 0:
        assert scan.verify().ok, note
    elif way == 1:
        assert scan.aggregate(sk.count(), sk.sum("id")).to_pylist() == [
            {"count": len(wanted), "sum(id)": int(wanted.sum()) if len(wanted) else None}
        ], note
    elif way == 2:
        counted = sum(len(task.rows) for task in scan.plan().tasks)
        assert len(scan.head(3)) == min(3, len(wanted)), note
        assert counted >= len(wanted), note


def check_work(
    lake: sk.Lake, name: str, keys: pa.Array, column: pa.Array, wanted: set[Any], note: str
) -> None:
    """Row groups are kept by their bounds alone, and pages drop some of their rows."""
    join = (name, keys)
    groups = lake.scan(semi_join=join, page_index=False, bloom_filter=False).plan()
    most = kept_groups(column, wanted) * ROWS
    if name == "odd":  # only the first bytes of many strings are compared
        assert groups.rows >= most, note
    else:
        assert groups.rows == most, note
    assert lake.scan(semi_join=join).plan().rows <= groups.rows, note
