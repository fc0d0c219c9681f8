"""Nested columns arrive in every engine, from every kind of result, as they are in the files.

Engines import slices of some nested arrays wrongly or not at all, so the rows of a lake are asked for by
conditions, limits and batch sizes that cut arrays at odd places. Types and values are random; a case is
seeded by its number.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from tests.support.samples import sample

# The last one not in lists: DuckDB refuses batches with only empty lists of dictionaries, and takes the
# indices of dictionaries in fixed-size lists for values.
LEAVES = (
    pa.int64(),
    pa.int32(),
    pa.bool_(),
    pa.string(),
    pa.binary(),
    pa.date32(),
    pa.float64(),
    pa.dictionary(pa.int32(), pa.string()),
)


def draw_type(rng: random.Random, depth: int, leaves: Sequence[pa.DataType] = LEAVES) -> pa.DataType:
    if not depth or rng.random() < 0.2:
        return rng.choice(leaves)
    kind = rng.randrange(8)
    if kind == 0:
        return pa.list_(draw_type(rng, depth - 1, LEAVES[:-1]), rng.randrange(1, 4))
    if kind == 1:
        return rng.choice([pa.list_, pa.large_list])(draw_type(rng, depth - 1, LEAVES[:-1]))
    if kind == 2:
        return pa.map_(pa.string(), draw_type(rng, depth - 1, LEAVES[:-1]))
    fields = [draw_type(rng, depth - 1, leaves) for _ in range(rng.randrange(1, 4))]
    return pa.struct([(f"f{number}", type) for number, type in enumerate(fields)])


def draw_value(rng: random.Random, type: pa.DataType) -> Any:
    """A value of the type: NULL at every level, empty lists and maps among them."""
    if rng.random() < 0.15:
        return None
    if pa.types.is_struct(type):
        return {field.name: draw_value(rng, field.type) for field in type}
    if pa.types.is_map(type):
        return [(f"k{number}", draw_value(rng, type.item_type)) for number in range(rng.choice([0, 1, 3]))]
    if pa.types.is_fixed_size_list(type):
        return [draw_value(rng, type.value_type) for _ in range(type.list_size)]
    if pa.types.is_list(type) or pa.types.is_large_list(type):
        return [draw_value(rng, type.value_type) for _ in range(rng.choice([0, 0, 1, 2, 5]))]
    number = rng.randrange(100)
    if pa.types.is_date(type):
        return date(2026, 1, 1) + timedelta(days=number)
    if pa.types.is_binary(type):
        return bytes([number, 0, 255])
    if pa.types.is_boolean(type):
        return number % 2 == 0
    if pa.types.is_integer(type) or pa.types.is_floating(type):
        return number
    return f"text {number}"


def make_lake(root: Path, rng: random.Random, types: list[pa.DataType], rows: int = 90) -> sk.Lake:
    columns = {"id": pa.array(range(rows), pa.int64())}
    for number, type in enumerate(types):
        columns[f"c{number}"] = pa.array([draw_value(rng, type) for _ in range(rows)], type)
    root.mkdir()
    table, cut = pa.table(columns), rng.randrange(1, rows)
    for name, part in (("a", table.slice(0, cut)), ("b", table.slice(cut))):
        options = {"row_group_size": rng.choice([20, 50, 1_000]), "write_page_index": True}
        pq.write_table(part, root / f"{name}.parquet", **options, max_rows_per_page=rng.choice([7, 1_000]))
    return sk.open(root)


# -- ways out ------------------------------------------------------------------------------------


def duckdb_ways(lake: sk.Lake, scan: sk.Scan, first: int, last: int) -> Iterator[tuple[str, Any]]:
    connection = duckdb.connect()
    lake.to_duckdb(connection, "lake", route="slices")
    chosen = f"id BETWEEN {first} AND {last}"
    yield "to_duckdb", connection.sql(f"SELECT * FROM lake WHERE {chosen}").to_arrow_table()
    made: dict[str, Any] = {
        "scan": scan,
        "to_arrow": scan.to_arrow(),
        "to_reader": scan.to_reader(),
        "execute": scan.execute(),
        "async": pa.Table.from_batches(asyncio.run(async_batches(scan)), scan.schema),
        "to_dataset": lake.to_dataset(),
    }
    for name, source in made.items():
        connection.register("source", source)
        yield name, connection.sql(f"SELECT * FROM source WHERE {chosen}").to_arrow_table()
    connection.register("source", lake.scan(f"id <= {last}", order_by="id desc", limit=last - first + 1))
    yield "limit", connection.sql("SELECT * FROM source").to_arrow_table()


def datafusion_ways(lake: sk.Lake, scan: sk.Scan, first: int, last: int) -> Iterator[tuple[str, Any]]:
    context = lake.to_datafusion(name="lake")
    context.register_dataset("dataset", lake.to_dataset())
    context.register_record_batches("batches", [list(scan)])
    context.from_arrow(scan, "scan")
    context.from_arrow(scan.to_arrow(), "to_arrow")
    for name in ("lake", "dataset", "batches", "scan", "to_arrow"):
        frame = context.sql(f"SELECT * FROM {name} WHERE id BETWEEN {first} AND {last}")
        yield name, pa.Table.from_batches(frame.collect(), frame.schema())


def polars_ways(lake: sk.Lake, scan: sk.Scan, first: int, last: int) -> Iterator[tuple[str, Any]]:
    chosen = pl.col("id").is_between(first, last)
    yield "to_polars_lazy", lake.to_polars_lazy(route="slices").filter(chosen).collect()
    yield "dataset", pl.scan_pyarrow_dataset(lake.to_dataset()).filter(chosen).collect()
    yield "to_polars", scan.to_polars()
    yield "scan", pl.DataFrame(scan)
    for batch in scan:
        frame = pl.from_arrow(batch)
        assert isinstance(frame, pl.DataFrame)
        assert as_values(frame.to_arrow()) == as_values(pa.Table.from_batches([batch]))


async def async_batches(scan: sk.Scan) -> list[pa.RecordBatch]:
    return [batch async for batch in scan.to_batches_async()]


WAYS: dict[str, Callable[..., Iterator[tuple[str, Any]]]] = {
    "duckdb": duckdb_ways,
    "datafusion": datafusion_ways,
    "polars": polars_ways,
}


def as_values(table: pa.Table | pl.DataFrame) -> list[Any]:
    """Rows by id, in Python's values; a map is a list of pairs, however an engine shows it."""
    rows = (table.to_arrow() if isinstance(table, pl.DataFrame) else table).to_pylist()
    return sorted((plain(row) for row in rows), key=lambda row: row[0][1])


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"key", "value"}:
            return [value["key"], plain(value["value"])]
        return [(name, plain(one)) for name, one in value.items()]
    return [plain(one) for one in value] if isinstance(value, list | tuple) else value


# -- tests ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", WAYS)
def test_random_types_arrive_as_they_are(engine: str, tmp_path: Path) -> None:
    for number in range(sample("nested columns")):
        rng = random.Random(f"nested:{number}")
        types = [draw_type(rng, 3) for _ in range(3)]
        lake = make_lake(tmp_path / str(number), rng, types)
        expected = as_values(pq.ParquetDataset(tmp_path / str(number)).read())
        first = rng.randrange(1, 80)
        last = rng.randrange(first, 90)
        scan = lake.scan(f"id BETWEEN {first} AND {last}", batch_rows=rng.choice([3, 13, 65_536]))
        for way, rows in WAYS[engine](lake, scan, first, last):
            assert as_values(rows) == expected[first : last + 1], (number, way, types)


NESTED = {
    "struct in struct": pa.struct([("x", pa.struct([("y", pa.int64())]))]),
    "struct in list in struct": pa.struct(
        [("x", pa.list_(pa.struct([("y", pa.struct([("z", pa.string())]))])))]
    ),
    "struct in map": pa.map_(pa.string(), pa.struct([("x", pa.struct([("y", pa.int64())]))])),
    "fixed-size list": pa.list_(pa.int64(), 2),
    "fixed-size list of structs": pa.list_(pa.struct([("x", pa.int64())]), 2),
    "fixed-size list in struct": pa.struct([("x", pa.list_(pa.int32(), 3))]),
}


@pytest.mark.parametrize("type", NESTED.values(), ids=NESTED)
def test_every_engine_reads_slices(type: pa.DataType, tmp_path: Path) -> None:
    lake = make_lake(tmp_path / "lake", random.Random("slices"), [type])
    expected = as_values(pq.ParquetDataset(tmp_path / "lake").read())
    scan = lake.scan("id BETWEEN 11 AND 77", batch_rows=10)
    for ways in WAYS.values():
        for way, rows in ways(lake, scan, 11, 77):
            assert as_values(rows) == expected[11:78], way


@pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning")
def test_ibis_reads_slices(tmp_path: Path) -> None:
    import ibis

    lake = make_lake(
        tmp_path / "lake", random.Random("ibis"), [NESTED["struct in struct"], NESTED["fixed-size list"]]
    )
    expected = as_values(pq.ParquetDataset(tmp_path / "lake").read())
    connection = duckdb.connect()
    lake.to_duckdb(connection, "lake")
    for found in (
        ibis.duckdb.from_connection(connection),
        ibis.polars.connect({"lake": lake.to_polars_lazy()}),
    ):
        table = found.table("lake")
        assert as_values(table.filter(table.id.between(11, 77)).to_pyarrow()) == expected[11:78]


def test_only_slices_are_copied(tmp_path: Path) -> None:
    """Flat columns, structs of flat columns and whole arrays are passed on as they were decoded."""
    lake = make_lake(
        tmp_path / "lake", random.Random("copies"), [NESTED["struct in struct"], pa.list_(pa.string())]
    )

    def addresses(batch: pa.RecordBatch, name: str) -> tuple[int, int]:
        buffers = [one for one in batch[name].buffers() if one is not None]
        return batch[name].offset, max(one.address for one in buffers)

    batches = list(lake.scan("id < 20", batch_rows=5, threads=1))
    assert len(batches) > 3
    assert [addresses(batch, "c0")[0] for batch in batches] == [0] * len(batches)
    # Slices of one array share its buffers.
    assert len({addresses(batch, "id")[1] for batch in batches}) < len(batches)
    assert len({addresses(batch, "c1")[1] for batch in batches}) < len(batches)
    assert len({addresses(batch, "c0")[1] for batch in batches}) == len(batches)
