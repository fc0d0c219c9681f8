"""One lake for each writer, with every type that it can write and Spark can read, and NULLs everywhere."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.spark._questions import BYTES, DAY, DECIMAL, FLAG, NULLS, REAL, STAMP, TEXT, UNSIGNED, WHOLE, Kind
from tests.spark._reads import conf

FILES, ROWS = 2, 150
_RESTS = (0, 1_500, 86_399_999_000, 19_800_000_000, 9_000_123_000)
_DAYS = (-1, 0, 18_262, 18_264, 18_266, 18_329, 18_567, 20_000)
STAMPS = [day * 86_400_000_000 + rest for day in _DAYS for rest in _RESTS]
NAN, INF = math.nan, math.inf

POOLS: dict[str, tuple[pa.DataType, Sequence[Any], Kind]] = {
    "i8": (pa.int8(), [-128, -1, 0, 1, 3, 7, 100, 127], WHOLE),
    "i16": (pa.int16(), [-32768, -1, 0, 1, 3, 7, 200], WHOLE),
    "i32": (pa.int32(), [-(2**31), -1, 0, 1, 2, 3, 7, 100, 2**31 - 1], WHOLE),
    "i64": (pa.int64(), [-(2**63), -1, 0, 1, 3, 7, 9999999999, 2**63 - 1], WHOLE),
    "u8": (pa.uint8(), [0, 1, 3, 200, 255], UNSIGNED),
    "u16": (pa.uint16(), [0, 1, 3, 200, 65535], UNSIGNED),
    "u32": (pa.uint32(), [0, 1, 3, 200, 2**32 - 1], UNSIGNED),
    "u64": (pa.uint64(), [0, 1, 3, 200, 2**63, 2**64 - 1], UNSIGNED),
    "f32": (pa.float32(), [NAN, -0.0, 0.0, 0.1, 1.0, 2.5, -2.5, INF, -INF, 16777216.0], REAL),
    "f64": (pa.float64(), [NAN, -0.0, 0.0, 0.1, 1.5, 2.5, -2.5, INF, -INF, 1e300, 5e-324], REAL),
    "flag": (pa.bool_(), [True, False], FLAG),
    "text": (pa.string(), ["", "a", "ab", "a%b", "a_b", "aXb", "Ä", "zz", "it's", "漢字", "B", "a\\b"], TEXT),
    "blob": (pa.binary(), [b"", b"a", b"ab", b"\x00", b"\xff", b"\xff\xfe"], BYTES),
    "dec9": (pa.decimal128(9, 2), [Decimal(n) / 100 for n in (0, 125, -125, 101, 300, 9999999)], DECIMAL),
    "dec18": (pa.decimal128(18, 3), [Decimal(n) / 1000 for n in (0, 1005, 1250, 10**17)], DECIMAL),
    "dec38": (pa.decimal128(38, 10), [Decimal(n) / 8 for n in (0, 10, -10, 24, 10**26)], DECIMAL),
    "day": (pa.date32(), [dt.date(1970, 1, 1) + dt.timedelta(n) for n in (*_DAYS, -700_000)], DAY),
    "ntz_us": (pa.timestamp("us"), STAMPS, STAMP),
    "utc_us": (pa.timestamp("us", "UTC"), STAMPS, STAMP),
}
# What only Arrow has a word for, or stores in its own way.
ARROW_POOLS: dict[str, tuple[pa.DataType, Sequence[Any], Kind]] = {
    "large": (pa.large_string(), POOLS["text"][1], TEXT),
    "view": (pa.string_view(), POOLS["text"][1], TEXT),
    "dict": (pa.dictionary(pa.int32(), pa.string()), POOLS["text"][1], TEXT),
    "large_blob": (pa.large_binary(), POOLS["blob"][1], BYTES),
    "fixed": (pa.binary(3), [b"\x00\x00\x00", b"abc", b"\xff\xff\xff"], BYTES),
    "day64": (pa.date64(), POOLS["day"][1], DAY),
    "ntz_ms": (pa.timestamp("ms"), STAMPS, STAMP),
    "utc_ms": (pa.timestamp("ms", "UTC"), STAMPS, STAMP),
    "paris": (pa.timestamp("us", "Europe/Paris"), STAMPS, STAMP),
    "took": (pa.duration("us"), [-1, 0, 1, 10**12], NULLS),
    "nothing": (pa.null(), [None], NULLS),
}
NESTED: dict[str, pa.DataType] = {
    "st": pa.struct([("x", pa.int32()), ("y", pa.string()), ("f", pa.float64()), ("t", pa.timestamp("us"))]),
    "deep": pa.struct(
        [("in", pa.struct([("z", pa.int64()), ("u", pa.uint32())])), ("l", pa.list_(pa.int8()))]
    ),
    "items": pa.list_(pa.int32()),
    "parts": pa.list_(pa.struct([("n", pa.int64()), ("w", pa.string())])),
    "tags": pa.map_(pa.string(), pa.float64()),
}
INSIDE: dict[str, Kind] = {
    "st": NULLS,
    "st.x": WHOLE,
    "st.y": TEXT,
    "st.f": REAL,
    "st.t": STAMP,
    "deep.in.z": WHOLE,
    "deep": NULLS,
    "items": NULLS,
    "tags": NULLS,
}


def _drawn(rng: random.Random, pool: Sequence[Any], rows: int) -> list[Any]:
    """Values in runs, so that some pages hold few of them, and NULLs here and there."""
    values: list[Any] = []
    while len(values) < rows:
        few = rng.sample(list(pool), min(len(pool), rng.choice([1, 2, 4])))
        run = [rng.choice(few) for _ in range(rng.choice([5, 20, 40]))]
        values += (
            [None if rng.random() < 0.1 else v for v in run] if rng.random() < 0.9 else [None] * len(run)
        )
    return values[:rows]


def _array(type: pa.DataType, values: Sequence[Any]) -> pa.Array:
    if pa.types.is_timestamp(type):
        scale = {"ms": 1_000, "us": 1}[type.unit]
        return pa.array([None if v is None else v // scale for v in values], pa.int64()).view(type)
    if pa.types.is_string_view(type):
        return pa.array(values, pa.string()).cast(type)
    return pa.array(values, type)


def _value(rng: random.Random, type: pa.DataType) -> Any:
    if rng.random() < 0.15:
        return None
    if pa.types.is_struct(type):
        return {part.name: _value(rng, part.type) for part in type}
    if pa.types.is_map(type):
        return [(key, _value(rng, type.item_type)) for key in rng.sample("abcd", rng.randrange(4))]
    if pa.types.is_list(type):
        return [_value(rng, type.value_type) for _ in range(rng.randrange(4))]
    pools = {
        pa.int8(): "i8",
        pa.int32(): "i32",
        pa.int64(): "i64",
        pa.uint32(): "u32",
        pa.float64(): "f64",
        pa.string(): "text",
    }
    value = rng.choice(POOLS[pools[type]][1]) if type in pools else rng.choice(STAMPS)
    return dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=value) if type not in pools else value


def tables(seed: object, pools: dict[str, Any], nested: Sequence[str] = tuple(NESTED)) -> list[pa.Table]:
    """Files' worth of rows, each with a number of its own."""
    rng = random.Random(str(seed))
    found = []
    for file in range(FILES):
        columns = {"rid": pa.array(range(file * 1000, file * 1000 + ROWS), pa.int64())}
        columns |= {name: _array(type, _drawn(rng, pool, ROWS)) for name, (type, pool, _) in pools.items()}
        columns |= {
            name: pa.array([_value(rng, NESTED[name]) for _ in range(ROWS)], NESTED[name]) for name in nested
        }
        found.append(pa.table(columns))
    return found


def kinds(names: Sequence[str], nested: Sequence[str] = tuple(NESTED)) -> dict[str, Kind]:
    """The kinds of the named columns, and of what is inside nested ones."""
    every = {**POOLS, **ARROW_POOLS}
    inside = {path: kind for path, kind in INSIDE.items() if path.partition(".")[0] in nested}
    return {"rid": WHOLE, **{name: every[name][2] for name in names}, **inside}


# -- writers -----------------------------------------------------------------------------------


def write_pyarrow(_spark: SparkSession, root: Path) -> dict[str, Kind]:
    """Every type, small pages, a page index."""
    pools = {**POOLS, **ARROW_POOLS}
    for number, table in enumerate(tables("pyarrow", pools)):
        pq.write_table(
            table,
            root / f"{number}.parquet",
            row_group_size=60,
            write_page_index=True,
            max_rows_per_page=20,
            write_batch_size=10,
            data_page_version=("1.0", "2.0")[number % 2],
        )
    return kinds(list(pools))


def write_pyarrow_old(_spark: SparkSession, root: Path) -> dict[str, Kind]:
    """INT96, and lists of the oldest form."""
    pools = {name: POOLS[name] for name in ("i32", "text", "utc_us", "day")}
    for number, table in enumerate(tables("old", pools, ["items", "st"])):
        pq.write_table(
            table,
            root / f"{number}.parquet",
            row_group_size=40,
            use_deprecated_int96_timestamps=True,
            use_compliant_nested_type=False,
            version="1.0",
        )
    return kinds(list(pools), ["items", "st"])


def _by_spark(spark: SparkSession, root: Path, stamps: str, **settings: str) -> dict[str, Kind]:
    signed = {name: pool for name, pool in POOLS.items() if not name.startswith("u") or name == "utc_us"}
    nested = ["st", "items", "parts", "tags"]
    for number, table in enumerate(tables(stamps, signed, nested)):
        frame = spark.createDataFrame(table)
        # From Arrow both kinds of timestamps come as instants.
        frame = frame.withColumn("ntz_us", F.expr("cast(ntz_us as timestamp_ntz)"))
        frame = frame.withColumn("took", F.expr("make_dt_interval(0, 0, 0, cast(rid as decimal(18, 6)))"))
        with conf(spark, spark__sql__parquet__outputTimestampType=stamps):
            frame.coalesce(1).write.options(**settings).parquet(str(root / f"part{number}"))
    found = kinds(list(signed), nested)
    return {**found, "took": NULLS}


def write_spark(spark: SparkSession, root: Path) -> dict[str, Kind]:
    """Spark's own files, of small row groups."""
    return _by_spark(spark, root, "TIMESTAMP_MICROS", **{"parquet.block.size": "8192"})


def write_spark_int96(spark: SparkSession, root: Path) -> dict[str, Kind]:
    """As Spark wrote instants for years."""
    return _by_spark(spark, root, "INT96", compression="gzip")


def write_spark_millis(spark: SparkSession, root: Path) -> dict[str, Kind]:
    """Instants of milliseconds."""
    return _by_spark(spark, root, "TIMESTAMP_MILLIS", compression="none")


def write_duckdb(_spark: SparkSession, root: Path) -> dict[str, Kind]:
    """DuckDB's files."""
    import duckdb

    nested = ["st", "deep", "items", "parts", "tags"]
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        for number, table in enumerate(tables("duckdb", POOLS, nested)):
            connection.register("given", table)
            connection.execute(f"copy given to '{root}/{number}.parquet' (format parquet, row_group_size 64)")
            connection.unregister("given")
    return kinds(list(POOLS), nested)


def write_polars(_spark: SparkSession, root: Path) -> dict[str, Kind]:
    """Polars' files."""
    import polars as pl

    extra = {name: ARROW_POOLS[name] for name in ("dict", "ntz_ms", "utc_ms")}
    nested = ["st", "deep", "items", "parts"]
    for number, table in enumerate(tables("polars", {**POOLS, **extra}, nested)):
        frame = pl.from_arrow(table)
        assert isinstance(frame, pl.DataFrame)
        frame.write_parquet(root / f"{number}.parquet", row_group_size=50, data_page_size=256)
    return kinds([*POOLS, *extra], nested)


Writer = Callable[[SparkSession, Path], dict[str, Kind]]
WRITERS: dict[str, Writer] = {
    "pyarrow": write_pyarrow,
    "pyarrow of old": write_pyarrow_old,
    "spark": write_spark,
    "spark int96": write_spark_int96,
    "spark millis": write_spark_millis,
    "duckdb": write_duckdb,
    "polars": write_polars,
}
