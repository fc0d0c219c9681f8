from __future__ import annotations

import asyncio
import threading

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from skipstone.errors import UsageError
from skipstone.parquet.slice.decode import malloc_pool, pool_for_much
from skipstone.scan import execute as module

WHERE = "x > 1.5 and kind <> 'kind 1'"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("where", [None, WHERE, "id < 100", "id < 0", "part = 1"])
@pytest.mark.parametrize("switches", [{}, {"threads": 1}, {"materialise": "late", "route": "slice"}])
def test_every_form_gives_the_same_rows(lake, where, switches):
    scan = lake.scan(where, **switches)
    table = scan.to_arrow()
    assert table.equals(lake.scan(where, skipping=False, route="pyarrow", threads=1).to_arrow())
    assert scan.to_reader().read_all().equals(table)
    assert pa.table(scan).equals(table)
    assert pa.Table.from_batches(sk.execute(scan.plan()), scan.schema).equals(table)
    assert scan.to_polars().equals(pl.from_arrow(table))
    assert scan.to_pandas().equals(table.to_pandas())
    assert scan.count() == table.num_rows
    assert scan.schema == table.schema

    async def read():
        return [batch async for batch in scan.to_batches_async()]

    assert pa.Table.from_batches(asyncio.run(read()), scan.schema).equals(table)


def test_rows_come_by_path_then_position(lake):
    table = lake.scan().to_arrow()
    parts = [i for n in (0, 2, 1, 3) for i in range(n * 10_000, (n + 1) * 10_000)]
    assert table["id"].to_pylist() == parts


@pytest.mark.parametrize("batch_rows", [1, 333, 2_500, 100_000])
def test_batches_are_no_larger_than_asked(lake, batch_rows):
    sizes = [b.num_rows for b in lake.scan("id < 12345", batch_rows=batch_rows).execute()]
    assert sum(sizes) == 12_345
    assert max(sizes) <= batch_rows
    assert len(sizes) <= 12_345 / min(batch_rows, 500) + 25


@pytest.mark.parametrize("route", ["pyarrow", "slice"])
def test_only_large_reads_are_decoded_into_malloc_memory(tmp_path, route):
    rows = 9_000_000  # more than 128 MB at 16 bytes per value
    pq.write_table(pa.table({"n": pa.repeat(pa.scalar(1, pa.int8()), rows)}), tmp_path / "f.parquet")
    lake = sk.open(tmp_path)

    def allocated(pool: pa.MemoryPool, limit: int | None) -> int:
        before = pool.bytes_allocated()
        table = lake.scan(limit=limit, route=route).to_arrow()
        assert table.num_rows == (limit or rows)
        return pool.bytes_allocated() - before

    malloc, default = pa.system_memory_pool(), pa.default_memory_pool()
    large = malloc if default.backend_name == "mimalloc" and pool_for_much() is not default else default
    assert allocated(large, None) >= rows
    assert allocated(default, 1_000) >= 1_000
    if large is not default:
        assert allocated(default, None) < rows
        assert allocated(large, 1_000) == 0


def test_a_pool_that_the_user_set_is_used(monkeypatch):
    system = pa.system_memory_pool()
    previous = pa.default_memory_pool()
    pa.set_memory_pool(system)
    try:
        assert pool_for_much().backend_name == "system"
    finally:
        pa.set_memory_pool(previous)
    monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", previous.backend_name)
    assert malloc_pool() is None


def test_small_pieces_are_joined(lake):
    sizes = [b.num_rows for b in lake.scan("kind = 'kind 1' and x > 2").execute()]
    assert len(sizes) == 1


def test_a_row_group_without_pages_too_large_for_memory_is_streamed(tmp_path, monkeypatch):
    table = pa.table({"id": range(20_000), "text": [f"row {n}" for n in range(20_000)]})
    pq.write_table(table, tmp_path / "f.parquet", row_group_size=10_000)
    lake = sk.open(tmp_path)
    streamed = []
    original = module.Work.stream

    def stream(self, piece):
        streamed.append(piece)
        return original(self, piece)

    monkeypatch.setattr(module.Work, "stream", stream)
    found = lake.scan("id % 3 = 0", memory=50_000, batch_rows=100).execute()
    assert max(batch.num_rows for batch in found.to_batches()) <= 100
    assert len(streamed) == 2
    assert found.to_arrow().equals(lake.scan("id % 3 = 0").to_arrow())


def test_little_memory_cuts_row_groups_at_pages(lake):
    run = lake.scan("id between 100 and 2400", memory=60_000, route="slice").execute()
    assert run.to_arrow().num_rows == 2301
    assert run.trace.run.pieces > 4


def test_closing_a_reader_stops_reading(lake):
    lake.scan().count()  # footers
    threads, start = threading.active_count(), lake.io.bytes
    reader = lake.scan(route="slice", memory=200_000, batch_rows=500).to_reader()
    reader.read_next_batch()
    del reader
    stopped = lake.io.bytes
    assert threading.active_count() <= threads
    assert lake.io.bytes == stopped
    assert lake.scan(route="slice").to_arrow().num_rows == 40_000
    assert lake.io.bytes - stopped > 2 * (stopped - start)


def test_what_a_run_did(lake):
    ran = lake.scan(WHERE, materialise="late").execute()
    assert ran.trace.run is None
    rows = ran.to_arrow().num_rows
    run = ran.trace.run
    assert (run.rows, run.pieces) == (rows, 16)
    assert [phase.name for phase in run.phases] == ["predicate columns", "filter", "other columns"]
    assert [phase.rows for phase in run.phases] == [40_000, rows, rows]
    assert 0 < run.phases[2].bytes < run.bytes


@pytest.mark.parametrize("route", ["slice", "pyarrow"])
def test_no_column_is_read_twice(lake, route):
    """Where every row matches, two phases read the bytes that one pass reads."""
    lake.scan().count()  # footers
    spent = {}
    for mode in ("late", "one-pass"):
        ran = lake.scan(
            "coalesce(x, 0) > -1e9 and id % 1 = 0", materialise=mode, threads=1, route=route
        ).execute()
        assert ran.to_arrow().num_rows == 40_000
        spent[mode] = ran.trace.run.bytes
        assert sum(phase.bytes for phase in ran.trace.run.phases) == spent[mode]
    assert spent["late"] == spent["one-pass"] > 0


def test_explain_has_three_forms(lake):
    scan = lake.scan(WHERE, limit=3)
    assert "kind <> 'kind 1'" in scan.explain()
    assert '"requests"' in scan.explain(format="json")
    assert scan.explain(analyze=True, format="html").startswith("<!DOCTYPE html>")
    with pytest.raises(UsageError, match="format"):
        scan.explain(format="pdf")


def test_no_rows_have_the_types_of_all(tmp_path):
    """Arrow's own empty table has no extension type inside of another type."""
    ids = pa.array([n.to_bytes(16, "big") for n in range(3)], pa.uuid())
    table = pa.table(
        {
            "id": range(3),
            "plain": ids,
            "st": pa.StructArray.from_arrays([ids], ["u"]),
            "list": pa.ListArray.from_arrays(pa.array(range(4), pa.int32()), ids),
        }
    )
    pq.write_table(table, tmp_path / "x.parquet")
    lake = sk.open(tmp_path)
    for scan in (lake.scan("id = 7"), lake.scan("id % 2 = 5"), lake.scan(limit=0)):
        found = scan.to_arrow()
        assert found.schema == lake.schema
        assert found.num_rows == 0
        assert found.to_pylist() == []
        assert found.combine_chunks().num_rows == 0
        assert scan.to_reader().read_all().schema == lake.schema
    assert lake.scan("id = 7").aggregate(sk.count("st")).to_arrow().to_pylist() == [{"count(st)": 0}]
