"""Files of known layout, honest and otherwise, for the table of cases."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import skipstone as sk
from tests.property._patch import (
    BINARY,
    I64,
    Struct,
    chunks,
    patch_column_index,
    patch_footer,
    patch_statistics,
)

NAN, INF = math.nan, math.inf
Ranges = list[tuple[int, int]]
col, lit = sk.col, sk.lit
D = decimal.Decimal
DOUBLE = pa.float64()


def write(path: Path, table: pa.Table, group: int, page: int | None = None, **settings: Any) -> Path:
    """Row groups of ``group`` rows; with ``page``, pages of that many rows and a page index."""
    paged = (
        {}
        if page is None
        else {"write_page_index": True, "max_rows_per_page": page, "write_batch_size": page}
    )
    chosen = {"use_dictionary": False, "compression": "none", **paged, **settings}
    pq.write_table(table, path, row_group_size=group, **chosen)
    return path


# -- layouts -----------------------------------------------------------------------------------


def sorted_ints(path: Path) -> Path:
    """0…399 in 4 groups of 100, pages of 10."""
    return write(path, pa.table({"x": pa.array(range(400), pa.int64())}), 100, 10)


def overlapping_ints(path: Path) -> Path:
    """[0, 20), [10, 30), [20, 40): two groups can hold any value between."""
    return write(path, pa.table({"x": [*range(20), *range(10, 30), *range(20, 40)]}), 20)


def clustered_texts(path: Path) -> Path:
    """Ten each of ant, bee, cat, cow, dog in groups of 20, pages of 10; 'cat' and 'cow' share a group."""
    words = [w for w in ("ant", "bee", "cat", "cow", "dog", "eel") for _ in range(10)]
    return write(path, pa.table({"s": words}), 20, 10)


def null_groups(path: Path) -> Path:
    """No NULL; only NULL; half NULL. Groups of 10, pages of 5."""
    return write(path, pa.table({"x": pa.array([*range(10), *[None] * 15, *range(5)], pa.int32())}), 10, 5)


def nan_groups(path: Path, type: pa.DataType = DOUBLE) -> Path:
    """{1, NaN}, {5, 5}, {NaN, NaN}, {NULL, 2}."""
    import numpy as np

    values = [1, NAN, 5, 5, NAN, NAN, 0, 2]
    mask = np.array([False] * 6 + [True, False])
    return write(
        path, pa.table({"f": pa.array(np.array(values, type.to_pandas_dtype()), type, mask=mask)}), 2
    )


def half_nan_groups(path: Path) -> Path:
    return nan_groups(path, pa.float16())


def zeros(path: Path) -> Path:
    """{-1, -0}, {+0, 1}: the writer's bounds may have either zero; with blooms."""
    table = pa.table({"f": [-1.0, -0.0, 0.0, 1.0]})
    return write(path, table, 2, bloom_filter_options={"f": {"ndv": 10, "fpp": 0.01}})


def law_ten(path: Path) -> Path:
    """Tonbo's appendix: pages of a start at rows 0, 200 and of b at rows 0, 100, 250, in one group."""
    a = [10 + n % 11 for n in range(200)] + [30 + n % 11 for n in range(200)]
    b = ["ABC"[n % 3] * 16 for n in range(100)] + ["DEFG"[n % 4] * 8 for n in range(150)]
    b += ["HZ"[n % 2] * 4 for n in range(150)]
    schema = pa.schema(
        [pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.string(), nullable=False)]
    )
    table = pa.Table.from_arrays([pa.array(a), pa.array(b)], schema=schema)
    return write(path, table, 400, write_page_index=True, write_batch_size=50, data_page_size=1600)


def two_orders(path: Path) -> Path:
    """x rises and y falls over 100 rows; pages of x are 10 rows, of y (long texts) 4."""
    y = [f"{99 - n:03d}" + "." * 60 for n in range(100)]
    table = pa.table({"x": list(range(100)), "y": y})
    return write(path, table, 100, write_page_index=True, write_batch_size=2, data_page_size=90)


def blooms(path: Path) -> Path:
    """Even numbers in every type a bloom can hold, the same in both groups of 50; no page index."""
    even = [2 * (n % 50) for n in range(100)]
    base = dt.datetime(2026, 1, 1)
    table = pa.table(
        {
            "i8": pa.array(even, pa.int8()),
            "i16": pa.array(even, pa.int16()),
            "u8": pa.array(even, pa.uint8()),
            "u16": pa.array(even, pa.uint16()),
            "u32": pa.array([v + 2**31 for v in even], pa.uint32()),
            "i64": pa.array(even, pa.int64()),
            "f32": pa.array(even, pa.float32()),
            "f64": pa.array([v - 50.0 for v in even], pa.float64()),
            "s": pa.array([f"{v:03d}" for v in even]),
            "raw": pa.array([bytes([v, 255]) for v in even], pa.binary()),
            "fixed": pa.array([bytes([0, 0, 0, v]) for v in even], pa.binary(4)),
            "d9": pa.array([D(v) / 100 for v in even], pa.decimal128(9, 2)),
            "d30": pa.array([D(v) / 100 for v in even], pa.decimal128(30, 2)),
            "day": pa.array([base.date() + dt.timedelta(days=v) for v in even]),
            "ms": pa.array([base + dt.timedelta(seconds=v) for v in even], pa.timestamp("ms")),
        }
    )
    options = {name: {"ndv": 50, "fpp": 0.001} for name in table.column_names}
    return write(path, table, 50, bloom_filter_options=options)


def blooms_without_length(path: Path) -> Path:
    """As older writers left them: the footer doesn't say how long a filter is."""

    def drop_length(footer: Struct) -> None:
        for chunk in chunks(footer):
            del chunk[15]

    return patch_footer(blooms(path), drop_length)


def dictionaries(path: Path) -> Path:
    """a and z in the first group, a, m and z in the second; every page dictionary-encoded."""
    return write(path, pa.table({"s": ["a", "z"] * 10 + ["a", "m", "z", "z"] * 5}), 20, use_dictionary=True)


def fallen_back(path: Path) -> Path:
    """A dictionary that was given up: later pages are plain, and hold what it doesn't."""
    words = [*(["a" * 30, "z" * 30] * 20), *(f"b{n:028d}" for n in range(40)), "z" * 30]
    table = pa.table({"s": words})
    return write(
        path,
        table,
        100,
        use_dictionary=True,
        dictionary_pagesize_limit=64,
        write_batch_size=10,
        data_page_size=64,
    )


def times(path: Path) -> Path:
    """An hour a row for 20 days in every unit, from 2025-12-22; groups of 5 days, pages of 12 hours."""
    start = dt.datetime(2025, 12, 22)
    each = [start + dt.timedelta(hours=n) for n in range(480)]
    table = pa.table(
        {
            "ms": pa.array(each, pa.timestamp("ms")),
            "us": pa.array(each, pa.timestamp("us")),
            "ns": pa.array(each, pa.timestamp("ns")),
            "tz": pa.array(each, pa.timestamp("us", "UTC")),
            "day": pa.array([e.date() for e in each]),
        }
    )
    return write(path, table, 120, 12)


def numbers(path: Path) -> Path:
    """0…39 as decimals, unsigned, float32; groups of 10."""
    table = pa.table(
        {
            "d": pa.array([D(n) / 2 for n in range(40)], pa.decimal128(9, 2)),
            "wide": pa.array([D(n) / 2 for n in range(40)], pa.decimal128(38, 10)),
            "u": pa.array([n + 2**63 for n in range(40)], pa.uint64()),
            "f": pa.array([n / 10 for n in range(40)], pa.float32()),
            "x": pa.array(range(40), pa.int32()),
        }
    )
    return write(path, table, 10)


def nested(path: Path) -> Path:
    """A struct s with x, a column named 's.x', and lists that are NULL only in the last group."""
    rows = 30
    x = pa.array([None if n in (4, 5) else n for n in range(rows)], pa.int32())
    s = pa.StructArray.from_arrays([x], ["x"], mask=pa.array([n in (6, 7) for n in range(rows)]))
    lists = pa.array(
        [[1, None] if n < 20 else None if n < 25 else [] for n in range(rows)], pa.list_(pa.int32())
    )
    table = pa.table({"s": s, "s.x": pa.array(range(100, 100 + rows), pa.int32()), "l": lists})
    return write(path, table, 10, 5)


def cut_texts(path: Path) -> Path:
    """DataFusion keeps 2 bytes of each bound: {'aaaa'…'abzz'}, {'abzz'…'zzzz'}."""
    from datafusion import ParquetWriterOptions, SessionContext

    words = ["aaaa", "aabb", "abaa", "abzz", "abzz", "bbbb", "yyyy", "zzzz"]
    frame = SessionContext().from_arrow(pa.table({"s": words}))
    options = ParquetWriterOptions(
        max_row_group_size=4, statistics_truncate_length=2, column_index_truncate_length=2, write_batch_size=4
    )
    frame.write_parquet_with_options(path, options)
    return path


def high_texts(path: Path) -> Path:
    """Bounds without a successor: only 0xFF bytes; and the highest code points."""
    raw = pa.array([b"\xff" * 80, b"\xff" * 81, b"a", b"b"], pa.binary())
    text = pa.array(["\U0010ffff" * 30, "\U0010ffff" * 31, "a", "b"])
    return write(path, pa.table({"raw": raw, "text": text}), 2, 2)


def duckdb_ints(path: Path) -> Path:
    """0…8191 by DuckDB in groups of 2,048: no page index."""
    import duckdb

    with duckdb.connect() as db:
        db.execute(
            f"COPY (SELECT i AS x, i % 7 = 0 AS b FROM range(8192) r(i) ORDER BY i) TO '{path}' "
            "(FORMAT PARQUET, ROW_GROUP_SIZE 2048)"
        )
    return path


def polars_ints(path: Path) -> Path:
    """0…199 by Polars in groups of 100."""
    import polars as pl

    pl.DataFrame({"x": range(200)}).write_parquet(path, row_group_size=100, statistics=True)
    return path


# -- layouts of writers with defects -----------------------------------------------------------


def two_groups(path: Path, **settings: Any) -> Path:
    """x and s: 0…9 and '00'…'09', then 10…19 and '10'…'19'."""
    table = pa.table({"x": pa.array(range(20), pa.int32()), "s": [f"{n:02d}" for n in range(20)]})
    return write(path, table, 10, **settings)


def deprecated_bounds(path: Path) -> Path:
    def move(stats: Struct) -> None:
        stats[1], stats[2] = stats.pop(5), stats.pop(6)

    return patch_statistics(two_groups(path), move)


def old_parquet_mr(path: Path) -> Path:
    def sign(footer: Struct) -> None:
        footer[6] = [BINARY, b"parquet-mr version 1.8.1 (build abc)"]

    return patch_footer(two_groups(path), sign)


def crossed_bounds(path: Path) -> Path:
    def swap(stats: Struct) -> None:
        stats[5], stats[6] = stats[6], stats[5]

    return patch_statistics(two_groups(path), swap)


def no_column_orders(path: Path) -> Path:
    return patch_footer(two_groups(path), lambda footer: footer.pop(7) and None)


def negative_null_counts(path: Path) -> Path:
    def minus(stats: Struct) -> None:
        stats[3] = [I64, -1]

    return patch_statistics(two_groups(path), minus)


def missing_null_counts(path: Path) -> Path:
    return patch_statistics(two_groups(path), lambda stats: stats.pop(3) and None)


def inflated_null_counts(path: Path) -> Path:
    def all_null(stats: Struct) -> None:
        stats[3] = [I64, 10]

    return patch_statistics(two_groups(path), all_null)


def nan_bounds(path: Path) -> Path:
    """{1, 2} and {7, 8}, whose writer put NaN into both bounds."""

    def nan(stats: Struct) -> None:
        stats[5], stats[6] = ([BINARY, struct.pack("<d", NAN)] for _ in range(2))

    return patch_statistics(write(path, pa.table({"f": [1.0, 2.0, 7.0, 8.0]}), 2), nan)


def nan_counts(path: Path) -> Path:
    """{1, 2} and {7, 8}, whose writer counted no NaN."""

    def none(stats: Struct) -> None:
        stats[9] = [I64, 0]

    return patch_statistics(write(path, pa.table({"f": [1.0, 2.0, 7.0, 8.0]}), 2), none)


def int96_bounds(path: Path) -> Path:
    """Two days a group as INT96, with bounds as some writers made them."""
    days = [dt.datetime(2026, 1, n) for n in (1, 2, 3, 4)]
    write(path, pa.table({"t": pa.array(days, pa.timestamp("ns"))}), 2, use_deprecated_int96_timestamps=True)

    def wrong(stats: Struct) -> None:
        stats[6] = [BINARY, bytes(8) + (2_461_043).to_bytes(4, "little")]
        stats[5] = [BINARY, bytes(8) + (2_461_044).to_bytes(4, "little")]

    return patch_statistics(path, wrong)


def contradictory_null_pages(path: Path) -> Path:
    """Pages {0…4}, {5…9}, whose index says that they hold only NULL, and none."""

    def lie(index: Struct) -> None:
        index[1][1] = (index[1][1][0], [True] * len(index[1][1][1]))

    return patch_column_index(write(path, pa.table({"x": list(range(10))}), 10, 5), lie)


def wrong_boundary_order(path: Path) -> Path:
    """Pages {0…4}, {20…24}, {10…14}, said to rise."""

    def rising(index: Struct) -> None:
        index[4][1] = 1

    values = [*range(5), *range(20, 25), *range(10, 15)]
    return patch_column_index(write(path, pa.table({"x": values}), 15, 5), rising)


def short_lists(path: Path) -> Path:
    """A column index with one bound too few."""

    def shorten(index: Struct) -> None:
        index[3][1][1].pop()

    return patch_column_index(write(path, pa.table({"x": list(range(20))}), 20, 5), shorten)
