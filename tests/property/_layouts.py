"""Random tables and the random ways to write them as Parquet files, all from one seed."""

from __future__ import annotations

import decimal
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

DAY = 86_400
Maker = Callable[[random.Random, int], list[Any]]
"""Makes a pool of distinct-ish raw values, in order where the type has one."""


@dataclass(frozen=True)
class Family:
    """A type, and how to make values of it."""

    name: str
    type: pa.DataType
    pool: Maker


# -- pools -------------------------------------------------------------------------------------


def _ints(low: int, high: int) -> Maker:
    def make(rng: random.Random, size: int) -> list[int]:
        style = rng.randrange(5)
        if style == 0:  # dense and small
            base = max(low, min(high - size, rng.choice([0, 0, 1, low, high - size, 100])))
            return list(range(base, min(base + size, high + 1)))
        if style == 1:  # with gaps
            base, step = max(low, rng.randrange(-50, 50)), rng.randrange(2, 9)
            return [v for v in range(base, base + size * step, step) if v <= high] or [low]
        if style == 2:  # edges
            edges = [low, low + 1, -1, 0, 1, high - 1, high, 2**53, 2**53 + 1, -(2**53) - 1, high // 2 + 1]
            return sorted({v for v in edges if low <= v <= high})
        return sorted(rng.randint(low, high) for _ in range(size))

    return make


def _floats(bits: int) -> Maker:
    tiny = {16: 6e-8, 32: 1e-45, 64: 5e-324}[bits]
    big = {16: 65504.0, 32: 3.4028234663852886e38, 64: 1.7976931348623157e308}[bits]
    dtype = {16: np.float16, 32: np.float32, 64: np.float64}[bits]

    def make(rng: random.Random, size: int) -> list[float]:
        style = rng.randrange(4)
        if style == 0:
            pool = [k / 4 for k in range(-size // 2, size // 2 + 1)]
        elif style == 1:
            pool = [0.1 * k for k in range(size)]
        elif style == 2:
            pool = [-math.inf, -big, -1.0, -tiny, -0.0, 0.0, tiny, 0.1, 1.0, big, math.inf]
        else:
            pool = [rng.uniform(-1000, 1000) for _ in range(size)]
        pool = sorted({float(dtype(v)) for v in pool})
        if rng.random() < 0.3:
            pool = [v for v in pool if v != 0.0] + [rng.choice([0.0, -0.0])]
            pool.sort()
        if rng.random() < 0.5:
            pool += [math.nan] * rng.choice([1, 1, 3])
        return pool or [0.0]

    return make


_ALPHABETS = (
    "ab",
    "abcdefghij",
    "aZ09 _%\\'",
    "éüßñ€漢字🙂",
    "\U0010ffff\U0010fffe\uffff~",
    "\x00\x01\x7f\x80",
)


def _texts(rng: random.Random, size: int) -> list[str]:
    style = rng.randrange(7)
    alphabet = rng.choice(_ALPHABETS)

    def word(longest: int) -> str:
        return "".join(rng.choice(alphabet) for _ in range(rng.randrange(longest + 1)))

    if style == 0:
        pool = [f"{k:05d}" for k in range(size)]
    elif style == 1:
        pool = [word(3) for _ in range(size)]
    elif style == 2:  # long values with a shared start, so that bounds are cut
        start = rng.choice(["x" * 70, "é" * 40, "\U0010ffff" * 20, "p" * 63 + "é", "a" * 64])
        pool = [start + word(5) for _ in range(size)]
    elif style == 3:
        pool = [rng.choice("abc") * rng.randrange(0, 130) for _ in range(size)]
    elif style == 4:
        pool = ["", "a", "a%b", "a_b", "a\\b", "100%", "_", "%", "A", "ab", "abc", "\n", "a\nb"]
    elif style == 5:
        pool = [f"2026-0{k % 9 + 1}-0{k % 5 + 1}" for k in range(size)]
    else:
        pool = [word(12) for _ in range(size)]
    return sorted(set(pool), key=str.encode)


def _binaries(rng: random.Random, size: int) -> list[bytes]:
    style = rng.randrange(4)
    if style == 0:
        return sorted({bytes([rng.randrange(256) for _ in range(rng.randrange(4))]) for _ in range(size)})
    if style == 1:
        return sorted({b"\xff" * rng.randrange(0, 90) + bytes([rng.randrange(3)]) for _ in range(size)})
    if style == 2:
        return [b"", b"\x00", b"\x00\x00", b"a", b"\x7f", b"\x80", b"\xfe\xff", b"\xff", b"\xff\xff"]
    return sorted({b"k" * 66 + bytes([rng.randrange(256)]) for _ in range(size)})


def _fixed(width: int) -> Maker:
    def make(rng: random.Random, size: int) -> list[bytes]:
        some = [bytes([rng.choice([0, 1, 127, 128, 254, 255]) for _ in range(width)]) for _ in range(size)]
        return sorted({*some, b"\xff" * width, b"\x00" * width})

    return make


def _times(unit: str, day_only: bool = False) -> Maker:
    per = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]

    def make(rng: random.Random, size: int) -> list[int]:
        style = rng.randrange(5)
        base = rng.choice([0, -DAY * 400, 1_577_836_800, 1_767_225_600, -3_600]) * per
        if style == 0:
            return sorted(base + k * DAY * per for k in range(size))
        if style == 1:
            return sorted(base + k * 7 * 3600 * per + rng.randrange(per) for k in range(size))
        if style == 2:
            return sorted(base + k for k in range(-size // 2, size // 2 + 1))
        if style == 3:
            return sorted(
                base + rng.randrange(-200, 200) * DAY * per + rng.randrange(-5, 5) for _ in range(size)
            )
        return sorted(rng.randint(-(2**33), 2**33) * per // rng.choice([1, 3, 7]) for _ in range(size))

    return make


def _clock(unit: str) -> Maker:
    per = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]

    def make(rng: random.Random, size: int) -> list[int]:
        return sorted(
            {rng.randrange(DAY) * per + rng.randrange(per) for _ in range(size)} | {0, DAY * per - 1}
        )

    return make


def _dates(rng: random.Random, size: int) -> list[int]:
    base = rng.choice([0, -400, 18262, 20454, 11016])
    step = rng.choice([1, 1, 3, 31, 366])
    return [base + k * step for k in range(size)]


def _decimals(precision: int, scale: int) -> Maker:
    top = 10**precision - 1

    def make(rng: random.Random, size: int) -> list[decimal.Decimal]:
        style = rng.randrange(4)
        if style == 0:
            whole = [k * 10 ** rng.choice([0, scale]) for k in range(-size // 2, size // 2)]
        elif style == 1:
            whole = [-top, -top + 1, -1, 0, 1, top - 1, top, 10**scale, 15 * 10 ** max(0, scale - 1)]
        elif style == 2:
            whole = [rng.randint(-top, top) for _ in range(size)]
        else:
            whole = [rng.randint(-500, 500) for _ in range(size)]
        kept = sorted({max(-top, min(top, w)) for w in whole})
        return [decimal.Decimal(w).scaleb(-scale, decimal.Context(prec=80)) for w in kept]

    return make


def _bools(rng: random.Random, size: int) -> list[bool]:
    return rng.choice([[False], [True], [False, True], [False, True]])


def _stamp(unit: str, zone: str | None = None) -> Family:
    name = f"ts_{unit}{'_tz' if zone else ''}"
    return Family(name, pa.timestamp(unit, zone), _times(unit))


FAMILIES: tuple[Family, ...] = (
    *(
        Family(f"i{b}", getattr(pa, f"int{b}")(), _ints(-(2 ** (b - 1)), 2 ** (b - 1) - 1))
        for b in (8, 16, 32, 64)
    ),
    *(Family(f"u{b}", getattr(pa, f"uint{b}")(), _ints(0, 2**b - 1)) for b in (8, 16, 32, 64)),
    Family("f16", pa.float16(), _floats(16)),
    Family("f32", pa.float32(), _floats(32)),
    Family("f64", pa.float64(), _floats(64)),
    Family("flag", pa.bool_(), _bools),
    Family("text", pa.string(), _texts),
    Family("text2", pa.large_string(), _texts),
    Family("view", pa.string_view(), _texts),
    Family("blob", pa.binary(), _binaries),
    Family("fixed", pa.binary(4), _fixed(4)),
    Family("day", pa.date32(), _dates),
    Family("day64", pa.date64(), _dates),
    Family("clock_ms", pa.time32("ms"), _clock("ms")),
    Family("clock_us", pa.time64("us"), _clock("us")),
    Family("clock_ns", pa.time64("ns"), _clock("ns")),
    _stamp("s"),
    _stamp("ms"),
    _stamp("us"),
    _stamp("ns"),
    _stamp("ms", "UTC"),
    _stamp("us", "UTC"),
    _stamp("ns", "Europe/Paris"),
    _stamp("s", "UTC"),
    Family("span", pa.duration("us"), _times("us")),
    Family("dec4", pa.decimal128(4, 1), _decimals(4, 1)),
    Family("dec9", pa.decimal128(9, 2), _decimals(9, 2)),
    Family("dec18", pa.decimal128(18, 6), _decimals(18, 6)),
    Family("dec20", pa.decimal128(20, 0), _decimals(20, 0)),
    Family("dec38", pa.decimal128(38, 10), _decimals(38, 10)),
    Family("dec50", pa.decimal256(50, 5), _decimals(50, 5)),
    Family("dict", pa.dictionary(pa.int32(), pa.string()), _texts),
)


# -- columns -----------------------------------------------------------------------------------


def make_array(type: pa.DataType, values: Sequence[Any]) -> pa.Array:
    """Raw values (integers for times) as an Arrow array of ``type``."""
    if pa.types.is_dictionary(type):
        return make_array(type.value_type, values).dictionary_encode()
    if pa.types.is_float16(type):
        mask = np.array([v is None for v in values], dtype=bool)
        return pa.array(np.array([0 if v is None else v for v in values], dtype=np.float16), mask=mask)
    if pa.types.is_date64(type):
        return pa.array([None if v is None else v * 86_400_000 for v in values], pa.int64()).view(type)
    if pa.types.is_temporal(type):
        return pa.array(values, pa.int32() if type.bit_width == 32 else pa.int64()).view(type)
    return pa.array(values, type)


def arrange(rng: random.Random, pool: list[Any], rows: int) -> list[Any]:
    """Values from the pool in some order, with some pattern of NULLs."""
    style = rng.choice([0, 0, 1, 2, 2, 3, 4, 4])
    if style == 0:
        chosen = [pool[k * len(pool) // max(rows, 1)] for k in range(rows)]
    elif style == 1:
        chosen = [pool[-1 - k * len(pool) // max(rows, 1)] for k in range(rows)]
    elif style == 2:  # clustered: runs of neighbours
        chosen = []
        while len(chosen) < rows:
            at = rng.randrange(len(pool))
            near = pool[at : at + rng.randrange(1, 4)]
            chosen += [rng.choice(near) for _ in range(rng.randrange(1, 40))]
        chosen = chosen[:rows]
    elif style == 3:
        chosen = [rng.choice(pool)] * rows
    else:
        chosen = [rng.choice(pool) for _ in range(rows)]
    return add_nulls(rng, chosen)


def add_nulls(rng: random.Random, values: list[Any]) -> list[Any]:
    style = rng.randrange(8)
    rows = len(values)
    if style <= 2:
        return values
    if style == 3:
        return [None] * rows if rng.random() < 0.4 else values
    if style <= 5:
        share = rng.choice([0.02, 0.2, 0.7])
        return [None if rng.random() < share else v for v in values]
    out = list(values)
    for _ in range(rng.randrange(1, 4)):  # whole pages of NULL
        start = rng.randrange(rows + 1)
        stop = min(rows, start + rng.randrange(1, 80))
        out[start:stop] = [None] * (stop - start)
    return out


@dataclass
class Table:
    """A random table, and the pool each leaf column was made from."""

    table: pa.Table
    pools: dict[tuple[str, ...], tuple[Family, list[Any]]] = field(default_factory=dict)
    nested: list[tuple[str, ...]] = field(default_factory=list)


def random_table(
    rng: random.Random,
    families: Sequence[Family] = FAMILIES,
    *,
    rows: int | None = None,
    nested: bool = True,
    columns: int = 7,
) -> Table:
    """A few columns of random types; often one struct and one list."""
    if rows is None:
        rows = _row_count(rng)
    return _fill(rng, families, rows, nested, columns)


def _row_count(rng: random.Random) -> int:
    return rng.choice([0, 1, 7, 30]) if rng.random() < 0.12 else rng.randrange(60, 400)


def _fill(rng: random.Random, families: Sequence[Family], rows: int, nested: bool, columns: int) -> Table:
    made = Table(pa.table({}))
    names, arrays = [], []
    for family in rng.sample(list(families), min(len(families), columns)):
        # A second column of the same type with other values, for comparisons of columns.
        twins = 2 if rng.random() < 0.25 else 1
        pool = family.pool(rng, rng.choice([1, 3, 8, 20, 60]))
        for twin in range(twins):
            name = family.name + ("" if twin == 0 else "_b")
            values = arrange(rng, pool, rows)
            array = make_array(family.type, values)
            nullable = None in values or rng.random() < 0.7
            names.append(pa.field(name, array.type, nullable=nullable))
            arrays.append(array)
            made.pools[name,] = (family, pool)
    if nested and rng.random() < 0.5:
        _add_struct(rng, made, names, arrays, families, rows)
    if nested and rng.random() < 0.3:
        values = add_nulls(rng, [[rng.randrange(9) for _ in range(rng.randrange(4))] for _ in range(rows)])
        arrays.append(pa.array(values, pa.list_(pa.int32())))
        names.append(pa.field("items", arrays[-1].type))
        made.nested.append(("items",))
    if nested and rng.random() < 0.2:
        arrays.append(pa.nulls(rows))
        names.append(pa.field("nothing", pa.null()))
        made.nested.append(("nothing",))
    made.table = pa.Table.from_arrays(arrays, schema=pa.schema(names))
    return made


def _add_struct(
    rng: random.Random,
    made: Table,
    names: list[pa.Field],
    arrays: list[pa.Array],
    families: Sequence[Family],
    rows: int,
) -> None:
    plain = [f for f in families if f.name in ("i32", "i64", "f64", "text", "ts_us", "dec9", "u32", "flag")]
    if not plain:
        return
    chosen = rng.sample(plain, min(2, len(plain)))
    parts, fields = [], []
    for family in chosen:
        pool = family.pool(rng, 12)
        values = arrange(rng, pool, rows)
        parts.append(make_array(family.type, values))
        fields.append(pa.field(family.name, family.type, nullable=None in values or rng.random() < 0.6))
        made.pools["st", family.name] = (family, pool)
    style = rng.randrange(3)
    mask = [False] * rows if style == 0 else [v is None for v in add_nulls(rng, [0] * rows)]
    struct = pa.StructArray.from_arrays(parts, fields=fields, mask=pa.array(mask, pa.bool_()))
    arrays.append(struct)
    names.append(pa.field("st", struct.type, nullable=any(mask) or rng.random() < 0.6))
    made.nested.append(("st",))


# -- files -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """A written file: where it is, and in words how it was made."""

    path: Path
    words: str
    made: Table


def widened(rng: random.Random, table: pa.Table) -> pa.Table:
    """The table as a later schema sees it: wider types, and a column that the file lacks."""
    arrays, fields = [], []
    for old, column in zip(table.schema, table.columns, strict=True):
        wide = rng.choice([*_wider(old.type), old.type])
        arrays.append(column.cast(wide))
        fields.append(pa.field(old.name, wide))
    arrays.append(pa.chunked_array([pa.nulls(table.num_rows, pa.int32())]))
    fields.append(pa.field("later", pa.int32()))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _wider(type: pa.DataType) -> list[pa.DataType]:
    if pa.types.is_integer(type) and type.bit_width < 64:
        return [pa.int64(), pa.uint64()] if pa.types.is_unsigned_integer(type) else [pa.int64()]
    if pa.types.is_floating(type) and type.bit_width > 16:
        return [pa.float64()]
    if pa.types.is_timestamp(type) and type.unit in ("s", "ms"):
        return [pa.timestamp("us", type.tz)]
    if pa.types.is_decimal(type) and type.precision <= 9:
        return [pa.decimal128(18, 6), pa.decimal128(38, 10)]
    return [pa.large_string()] if pa.types.is_string(type) else []


@dataclass(frozen=True)
class Writer:
    """One engine's writer: how it writes, the types it can't, and how many rows its row groups need."""

    name: str
    write: Callable[[random.Random, Table, Path], Layout]
    without: tuple[str, ...] = ()
    rows: tuple[int | None, ...] = (None,)
    nested: bool = True

    def file(self, number: int, folder: Path) -> Layout:
        """The file of this number: the same at every call."""
        rng = random.Random(f"{self.name}:{number}")
        families = [f for f in FAMILIES if f.name not in self.without]
        made = random_table(rng, families, rows=rng.choice(self.rows), nested=self.nested)
        return self.write(rng, made, folder / f"{self.name}-{number}.parquet")


def write_pyarrow(rng: random.Random, made: Table, path: Path) -> Layout:
    """The table with random writer settings."""
    table = made.table
    names = [".".join(p) for p in made.pools]
    some = [n for n in names if rng.random() < 0.7]
    groups = rng.choice([1, 7, 20, 50, 64, 100, 100, 200])
    group_rows = max(groups, math.ceil(max(table.num_rows, 1) / 8))
    bloomed = {
        n: {"ndv": rng.choice([4, 50, 400]), "fpp": rng.choice([0.01, 0.05, 0.3])}
        for n in some
        if rng.random() < 0.6 and made.pools[tuple(n.split("."))][0].name != "flag"
    }
    settings: dict[str, Any] = {
        "row_group_size": group_rows,
        "version": rng.choice(["2.6", "2.6", "2.6", "2.4", "1.0"]),
        "use_dictionary": rng.choice([True, False, some]),
        "compression": rng.choice(["none", "snappy", "zstd", "gzip", "lz4", "brotli"]),
        "write_statistics": rng.choice([True, True, True, some, False]),
        "data_page_version": rng.choice(["1.0", "2.0"]),
        "write_page_index": rng.random() < 0.8,
        "data_page_size": rng.choice([None, 1, 40, 200, 1000]),
        "write_batch_size": rng.choice([1, 3, 8, 17, 1024]),
        "max_rows_per_page": rng.choice([None, 1, 5, 13, 20]),
        "use_compliant_nested_type": rng.random() < 0.8,
        "store_schema": rng.random() < 0.8,
        "dictionary_pagesize_limit": rng.choice([None, 30]),
        "bloom_filter_options": bloomed if rng.random() < 0.6 else None,
        "use_deprecated_int96_timestamps": rng.random() < 0.08,
        "store_decimal_as_integer": rng.random() < 0.3,
        "write_page_checksum": rng.random() < 0.2,
    }
    if any(pa.types.is_timestamp(f.type) and f.type.unit == "ns" for f in table.schema):
        settings["version"] = "2.6"  # older ones can't store nanoseconds
    if settings["dictionary_pagesize_limit"] is None:
        del settings["dictionary_pagesize_limit"]
    pq.write_table(table, path, **settings)
    return Layout(path, f"pyarrow {settings}", made)


def write_duckdb(rng: random.Random, made: Table, path: Path) -> Layout:
    """The table as DuckDB writes it: no page index, blooms where it finds a dictionary worth it."""
    import duckdb

    options = [f"ROW_GROUP_SIZE {rng.choice([2048, 4096])}"]
    options.append(f"COMPRESSION {rng.choice(['snappy', 'zstd', 'uncompressed', 'gzip'])}")
    options.append(f"PARQUET_VERSION {rng.choice(['V1', 'V2'])}")
    if rng.random() < 0.5:
        options.append(f"DICTIONARY_SIZE_LIMIT {rng.choice([1, 100, 10000])}")
    words = ", ".join(options)
    with duckdb.connect() as db:
        db.register("made", made.table)
        db.execute(f"COPY (SELECT * FROM made) TO '{path}' (FORMAT PARQUET, {words})")
    return Layout(path, f"duckdb {words}", made)


def write_polars(rng: random.Random, made: Table, path: Path) -> Layout:
    """The table as Polars writes it."""
    import polars as pl

    settings: dict[str, Any] = {
        "row_group_size": rng.choice([20, 50, 100, 200]),
        "data_page_size": rng.choice([1, 64, 256, 1024]),
        "compression": rng.choice(["snappy", "zstd", "uncompressed", "lz4"]),
        "statistics": rng.choice([True, "full", False]),
    }
    frame = pl.from_arrow(made.table)
    assert isinstance(frame, pl.DataFrame)
    frame.write_parquet(path, **settings)
    return Layout(path, f"polars {settings}", made)


def write_datafusion(rng: random.Random, made: Table, path: Path) -> Layout:
    """The table as DataFusion (arrow-rs) writes it."""
    from datafusion import ParquetWriterOptions, SessionContext

    settings: dict[str, Any] = {
        "max_row_group_size": rng.choice([20, 50, 100, 200]),
        "data_page_row_count_limit": rng.choice([1, 7, 30]),
        "write_batch_size": rng.choice([1, 5, 16]),
        "data_pagesize_limit": rng.choice([1, 100, 4096]),
        "writer_version": rng.choice(["1.0", "2.0"]),
        "dictionary_enabled": rng.random() < 0.5,
        "bloom_filter_on_write": rng.random() < 0.6,
        "bloom_filter_ndv": 60,
        "statistics_enabled": rng.choice(["page", "page", "chunk", "none"]),
        "column_index_truncate_length": rng.choice([1, 3, 64, None]),
        "statistics_truncate_length": rng.choice([1, 2, 5, None]),
        "compression": rng.choice(["snappy", "zstd(3)", "uncompressed"]),
    }
    context = SessionContext()
    frame = context.from_arrow(made.table)
    frame.write_parquet_with_options(path, ParquetWriterOptions(**settings))
    if path.is_dir():  # a directory of one file in some versions
        (inner,) = list(path.glob("*.parquet"))
        path = inner
    return Layout(path, f"datafusion {settings}", made)


WRITERS = (
    Writer("pyarrow", write_pyarrow),
    Writer("datafusion", write_datafusion, without=("f16", "dict")),
    Writer("polars", write_polars, without=("f16", "dec50", "fixed", "dict", "view"), nested=False),
    Writer(
        "duckdb", write_duckdb, without=("f16", "dec50", "span", "day64"), rows=(100, 300, 4100), nested=False
    ),
)
