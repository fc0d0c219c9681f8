"""Write small files with a library of any version: ``python _write_old.py library folder``.

It runs in the library's own interpreter, so it uses only what Python 3.8 has. The rows are such that
statistics which leave out NULLs, chunks of a dictionary or row groups are wrong about some of them.
"""

import datetime as dt
import sys
from pathlib import Path

NAN = float("nan")
GROUP = 3
"""Rows of a row group: one with NULLs, one without, one with NULLs only."""
NUMBERS = [3, None, 5, 7, 8, 9, None, None, None]
FLOATS = [1.5, NAN, None, NAN, NAN, -0.0, None, None, None]
STRINGS = ["c", None, "e", "x", "y", "z", None, None, None]
BYTES = [None if value is None else value.encode() for value in STRINGS]
DAYS = [None if value is None else dt.date(2020, 1, value) for value in NUMBERS]
PAGES = [None if row % 3 == 0 else row % 7 for row in range(1800)]
"""A longer column, for several pages in a row group."""


def write_pyarrow(folder):
    """Dictionaries that are whole or in chunks, which are alike or differ, and other columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def own(values, kind):
        return pa.array(values, kind).dictionary_encode()

    def shared(values):
        words = sorted({value for value in STRINGS if value is not None})
        codes = [None if value is None else words.index(value) for value in values]
        return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int8()), pa.array(words))

    def in_chunks(values, make):
        # Of one row and two rows: each row group has two chunks.
        starts = [row for row in range(len(values)) if row % GROUP < 2]
        stops = [*starts[1:], len(values)]
        return pa.chunked_array([make(values[a:b]) for a, b in zip(starts, stops)])  # noqa: B905

    fields = [shared(STRINGS), pa.array(STRINGS, pa.string())]
    columns = {
        "number": pa.array(NUMBERS, pa.int64()),
        "fraction": pa.array(FLOATS, pa.float64()),
        "string": pa.array(STRINGS, pa.string()),
        "whole": own(STRINGS, pa.string()),
        "shared": in_chunks(STRINGS, shared),
        "different": in_chunks(STRINGS, lambda values: own(values, pa.string())),
        "bytes": in_chunks(BYTES, lambda values: own(values, pa.binary())),
        "codes": in_chunks(NUMBERS, lambda values: own(values, pa.int64())),
        "record": pa.StructArray.from_arrays(fields, ["shared", "string"]),
    }
    table = pa.Table.from_arrays(list(columns.values()), names=list(columns))
    path = str(folder / "dictionary.parquet")
    try:
        pq.write_table(table, path, row_group_size=GROUP)
    except pa.ArrowInvalid:
        # Early versions write no struct of several fields.
        table = table.select(table.column_names[:-1]) if hasattr(table, "select") else table.drop(["record"])
        pq.write_table(table, path, row_group_size=GROUP)
    for name, options in (("plain", {"use_dictionary": False}), ("pages", {"data_page_version": "2.0"})):
        pq.write_table(table, str(folder / f"{name}.parquet"), row_group_size=GROUP, **options)


def write_polars(folder):
    """Strings, categories and enumerations, in small row groups and in small pages."""
    import polars as pl

    text = getattr(pl, "String", None) or pl.Utf8
    columns = {
        "number": pl.Series(NUMBERS, dtype=pl.Int64),
        "fraction": pl.Series(FLOATS, dtype=pl.Float64),
        "string": pl.Series(STRINGS, dtype=text),
        "day": pl.Series(DAYS, dtype=pl.Date),
        "category": pl.Series(STRINGS, dtype=text).cast(pl.Categorical),
        "nothing": pl.Series([None] * len(STRINGS), dtype=text).cast(pl.Categorical),
    }
    if hasattr(pl, "Binary"):
        columns["bytes"] = pl.Series(BYTES, dtype=pl.Binary)
    if hasattr(pl, "Enum"):
        words = sorted({value for value in STRINGS if value is not None})
        columns["choice"] = pl.Series(STRINGS, dtype=pl.Enum(words))
    frame = pl.DataFrame(columns)
    path = str(folder / "groups.parquet")
    try:
        frame.write_parquet(path, statistics=True, row_group_size=GROUP)
    except TypeError:
        frame.write_parquet(path, statistics=True)
    columns = {
        "number": pl.Series(PAGES, dtype=pl.Int64),
        "string": pl.Series([None if value is None else f"v{value}" for value in PAGES], dtype=text),
        "nothing": pl.Series([None] * len(PAGES), dtype=pl.Int64),
    }
    path = str(folder / "pages.parquet")
    try:
        pl.DataFrame(columns).write_parquet(path, statistics=True, data_page_size=2000)
    except TypeError:
        pl.DataFrame(columns).write_parquet(path, statistics=True)


def write_duckdb(folder):
    """Row groups of as few rows as possible, with and without NULLs."""
    import duckdb

    source = (
        "SELECT CASE WHEN i < 4096 AND i % 4 = 0 THEN NULL ELSE i // 1000 END AS number,"
        " CASE WHEN i < 100 THEN NULL WHEN i < 200 THEN 'NaN'::DOUBLE ELSE i // 1000 END AS fraction,"
        " CASE WHEN i < 2048 OR i % 3 = 0 THEN NULL ELSE 'v' || (i // 500) END AS string,"
        " CASE WHEN i % 5 = 0 THEN NULL ELSE DATE '2020-01-01' + (i // 1000)::INTEGER END AS day,"
        " i % 2 = 0 AS truth,"
        " CASE WHEN i >= 100 THEN NULL ELSE (i % 3)::DECIMAL(9, 2) END AS amount,"
        " NULL::INTEGER AS nothing,"
        " CASE WHEN i % 7 = 0 THEN NULL ELSE (i // 700)::UTINYINT END AS unsigned"
        " FROM range(6144) t(i)"
    )
    connection = duckdb.connect()
    if tuple(map(int, duckdb.__version__.split(".")[:2])) < (0, 8):
        # The operator was introduced later.
        source = source.replace("//", "/")
    source = source.replace("UTINYINT", "UINTEGER")
    path = str(folder / "groups.parquet")
    options = "FORMAT PARQUET, CODEC 'ZSTD'"
    try:
        connection.execute(f"COPY ({source}) TO '{path}' ({options}, ROW_GROUP_SIZE 2048)")
    except Exception:
        connection.execute(f"COPY ({source}) TO '{path}' ({options})")


def write_fastparquet(folder):
    """Objects, categories and numbers with NaN for NULL."""
    import fastparquet
    import pandas as pd

    frame = pd.DataFrame(
        {
            "number": pd.array(NUMBERS, dtype="Int64"),
            "fraction": FLOATS,
            "string": STRINGS,
            "day": pd.to_datetime(pd.Series(DAYS)),
            "category": pd.Series(STRINGS, dtype="category"),
            "nothing": pd.Series([None] * len(STRINGS), dtype=object),
        }
    )
    fastparquet.write(
        str(folder / "groups.parquet"),
        frame,
        row_group_offsets=list(range(0, len(frame), GROUP)),
        object_encoding="utf8",
        stats=True,
    )


def write_chdb(folder):
    """Nullable strings of low cardinality, by ClickHouse's own encoder and by Arrow's."""
    import chdb

    source = (
        "SELECT CAST(if(number % 4 = 1, NULL, number) AS Nullable(Int64)) AS whole,"
        " CAST(multiIf(number % 3 = 0, NULL, number % 3 = 1, nan, number / 2)"
        " AS Nullable(Float64)) AS fraction,"
        " CAST(if(number % 3 = 0 OR number > 5, NULL, concat('v', toString(number)))"
        " AS Nullable(String)) AS string,"
        " CAST(string AS LowCardinality(Nullable(String))) AS category"
        " FROM numbers(9) SETTINGS output_format_parquet_row_group_size = 3,"
        " output_format_parquet_string_as_string = 1, output_format_parquet_use_custom_encoder = "
    )
    for name, own in (("own", 1), ("arrow", 0)):
        body = chdb.query(source + str(own), "Parquet").bytes()
        (folder / f"{name}.parquet").write_bytes(body)


if __name__ == "__main__":
    globals()["write_" + sys.argv[1]](Path(sys.argv[2]))
