"""``python -m benchmarks.semi_joins``: rows whose key is among a thousand to ten million others.

A lake of 10 million events in 20 files, with page indexes: ids count up, customers come in no order, and a
name is a string that rises with the id. Keys are *clustered* (twice as dense as the ids of one stretch of
the lake) or *scattered* (over all ids, most of which no row has). Everyone keeps the lake open, gets the
keys as an Arrow table, and gives two columns of the matching rows as Arrow. Nobody has seen the keys
before: Skipstone's cached plans are dropped each time. DuckDB, Polars and DataFusion do a semi join,
pyarrow filters by ``is_in``.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import datafusion
import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import skipstone as sk
from benchmarks.harness import OURS, Bench, Case, Contender, Pace, Role, Work
from benchmarks.peers import DATAFUSION, DATASET, DUCKDB, POLARS, THREADS

ROWS, QUICK_ROWS, FILES, GROUPS = 10_000_000, 400_000, 20, 4
COUNTS, QUICK_COUNTS = (10**3, 10**4, 10**5, 10**6, 10**7), (10**3, 10**5)
STEP = 8
"""Every so many numbers are the id of a row."""
PACE = Pace(seconds=4.0, least=3, most=9)
COLUMNS = ["id", "amount"]
Numbers = np.ndarray[Any, Any]


def name_of(numbers: Numbers) -> pa.Array:
    """Numbers as strings that rise with them."""
    digits = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 12, "0")
    return pc.binary_join_element_wise("event", digits, "-")


def write_lake(folder: Path, rows: int, seed: int) -> None:
    """Write the files."""
    size = rows // FILES
    for number in range(FILES):
        random = np.random.default_rng((seed, number))
        ids = np.arange(number * size, (number + 1) * size) * STEP
        customers = random.permutation(rows)[:size] * STEP
        amounts = random.gamma(2.0, 20.0, size).round(2)
        part = pa.table({"id": ids, "name": name_of(ids), "customer": customers, "amount": amounts})
        path = folder / f"{number:03}.parquet"
        pq.write_table(part, path, row_group_size=size // GROUPS, write_page_index=True, compression="zstd")


def keys_of(column: str, count: int, rows: int, seed: int, *, clustered: bool) -> pa.Table:
    """Distinct keys as a table of one column; half of the clustered ones, and few of the others, exist."""
    random = np.random.default_rng((seed, count))
    last = rows * STEP
    if clustered:
        first = min(last // 3, max(last - count * STEP // 2, 0)) // STEP * STEP
        numbers = first + np.arange(count) * (STEP // 2)
    else:
        numbers = random.integers(0, max(last, 4 * count), count)
    random.shuffle(numbers)
    return pa.table({"key": name_of(numbers) if column == "name" else numbers})


# -- contenders --------------------------------------------------------------------------------


def _ours(lake: sk.Lake, column: str, keys: pa.Table, _: Any) -> pa.Table:
    lake.plans.clear()
    return lake.scan(columns=COLUMNS, semi_join=(column, keys["key"])).to_arrow()


def _duckdb(connection: duckdb.DuckDBPyConnection, column: str, keys: pa.Table, _: Any) -> pa.Table:
    connection.register("keys", keys)
    text = f"SELECT id, amount FROM lake SEMI JOIN keys ON lake.{column} = keys.key"
    return connection.sql(text).to_arrow_table()


def _datafusion(context: datafusion.SessionContext, column: str, keys: pa.Table, _: Any) -> pa.Table:
    context.deregister_table("keys")
    context.register_record_batches("keys", [keys.to_batches()])
    text = f"SELECT id, amount FROM lake LEFT SEMI JOIN keys ON lake.{column} = keys.key"
    return context.sql(text).to_arrow_table()


def _polars(frame: pl.LazyFrame, column: str, keys: pa.Table, _: Any) -> pa.Table:
    right = pl.from_arrow(keys)
    assert isinstance(right, pl.DataFrame)
    joined = frame.join(right.lazy(), left_on=column, right_on="key", how="semi")
    return joined.select(COLUMNS).collect(engine="streaming").to_arrow()


def _dataset(dataset: ds.Dataset, column: str, keys: pa.Table, _: Any) -> pa.Table:
    wanted = keys["key"].combine_chunks()
    return dataset.to_table(columns=COLUMNS, filter=ds.field(column).isin(wanted))


def _open(folder: Path) -> dict[str, tuple[Callable[..., pa.Table], Any]]:
    """What each peer keeps open."""
    connection = duckdb.connect()
    connection.execute(f"SET threads = {THREADS}; SET parquet_metadata_cache = true")
    connection.execute(f"CREATE VIEW lake AS SELECT * FROM read_parquet('{folder}/*.parquet')")
    config = datafusion.SessionConfig({"datafusion.execution.parquet.pushdown_filters": "true"})
    context = datafusion.SessionContext(config.with_target_partitions(THREADS))
    context.register_parquet("lake", str(folder))
    return {
        DUCKDB: (_duckdb, connection),
        DATAFUSION: (_datafusion, context),
        POLARS: (_polars, pl.scan_parquet(f"{folder}/*.parquet")),
        DATASET: (_dataset, ds.dataset(folder, format="parquet")),
    }


def _cases(folder: Path, rows: int, counts: Sequence[int], seed: int, only: str) -> Iterator[Case]:
    peers, lake = _open(folder), sk.open(folder)
    for column in ("id", "name", "customer"):
        for clustered in (True, False):
            for count in counts:
                name = f"{column}, {count:,} {'clustered' if clustered else 'scattered'} keys"
                if only not in name:
                    continue
                keys = keys_of(column, count, rows, seed, clustered=clustered)
                contenders = [
                    Contender(
                        OURS,
                        partial(_ours, lake, column, keys),
                        Role.OURS,
                        answer=_answer,
                        work=partial(_work, lake, column, keys),
                    ),
                    *(
                        Contender(peer, partial(ask, opened, column, keys), answer=_answer, work=_rows)
                        for peer, (ask, opened) in peers.items()
                    ),
                ]
                yield Case(name, contenders)


def _answer(result: pa.Table) -> tuple[Any, ...]:
    return result.num_rows, pc.sum(result["id"]).as_py(), round(pc.sum(result["amount"]).as_py() or 0.0, 2)


def _rows(result: pa.Table) -> Work:
    return Work(rows=result.num_rows)


def _work(lake: sk.Lake, column: str, keys: pa.Table, result: pa.Table) -> Work:
    """Rows, and the bytes and requests of one more run."""
    ran = lake.scan(columns=COLUMNS, semi_join=(column, keys["key"])).execute()
    ran.to_arrow()
    run = ran.trace.run
    assert run is not None
    return Work(rows=result.num_rows, bytes=run.bytes, requests=run.requests)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the benchmark."""

    def options(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--rows", type=int, metavar="N", help=f"rows of the lake ({ROWS:,})")
        parser.add_argument("--keys", type=int, nargs="+", metavar="N", help="how many keys")
        parser.add_argument("--only", metavar="TEXT", default="", help="cases with TEXT in their name")
        parser.add_argument("--data", type=Path, metavar="DIR", help="where to write (a temporary directory)")

    bench = Bench.of("semi_joins", str(__doc__).splitlines()[0], argv, PACE, options)
    rows = bench.given.rows or (QUICK_ROWS if bench.quick else ROWS)
    counts = bench.given.keys or (QUICK_COUNTS if bench.quick else COUNTS)
    with tempfile.TemporaryDirectory(dir=bench.given.data) as root:
        write_lake(Path(root), rows, bench.seed)
        cases = _cases(Path(root), rows, counts, bench.seed, bench.given.only)
        bench.section(f"{rows:,} rows in {FILES} files", cases)
    bench.finish()


if __name__ == "__main__":
    main()
