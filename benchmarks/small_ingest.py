"""The small part of ``python -m benchmarks.ingest``: what an ingest of some megabytes takes.

*Local threads*: 600,000 events in no order, in memory, 36 MB as a file, are written in the order of
their ids by ``sk.ingest(..., engine="local")`` and by DuckDB's ``COPY (... ORDER BY ...)``, both with zstd at
the same level. *Tiny files*: 5,000 files of 200 events each are written as one, in the order of their ids, by
``sk.ingest_new(..., engine="local")``, DuckDB's ``COPY`` and Polars' ``sink_parquet``. *Spark*: 300,000
events from a Parquet file, in a session that has written some before, by ``sk.ingest`` and, after the same
sort, by ``write.parquet``. What is written is read back, by pyarrow, DuckDB, Polars, DataFusion and
Spark or, for tiny files, by pyarrow; all must agree.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import datafusion
import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import skipstone as sk
from benchmarks.harness import OURS, Bench, Case, CaseResult, Contender, Disagreement, Role, Target, Work
from benchmarks.lakes import Events, Lake
from benchmarks.peers import THREADS
from benchmarks.spark_session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOCAL_ROWS, SPARK_ROWS = 600_000, 300_000
TINY_FILES, TINY_ROWS = 5_000, 200
ORDER = "event_id"
LEVEL = 1
# At most so many times as long as the peer.
LOCAL_LIMIT, SPARK_LIMIT, TINY_LIMIT = 2.0, 3.0, 3.0


def rows_of(events: Events, rows: int) -> pa.Table:
    """The first events, in no order."""
    blocks = -(-rows // events.block_rows)
    table = pa.concat_tables([events.block(number) for number in range(blocks)]).slice(0, rows)
    return table.take(np.random.default_rng(events.seed).permutation(len(table))).combine_chunks()


def _readers(session: SparkSession, files: list[str]) -> Iterator[tuple[str, pa.Table]]:
    yield "pyarrow", ds.dataset(files).to_table()
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        yield "DuckDB", connection.read_parquet(files).to_arrow_table()
    yield "Polars", pl.read_parquet(files).to_arrow()
    context = datafusion.SessionContext()
    yield "DataFusion", context.read_parquet(str(Path(files[0]).parent)).to_arrow_table()
    yield "Spark", session.read.parquet(*files).toArrow()


def read_back(session: SparkSession, folder: Path, schema: pa.Schema) -> tuple[int, int]:
    """The number of rows and a hash of them, once five engines have read the same."""
    files = sorted(map(str, folder.glob("*.parquet")))
    found = {name: _hash(table, schema) for name, table in _readers(session, files)}
    if len(set(found.values())) != 1:
        raise Disagreement(f"engines read different rows: {found}")
    return found["pyarrow"]


def _hash(table: pa.Table, schema: pa.Schema) -> tuple[int, int]:
    plain = table.select(schema.names).cast(schema)
    rows = pl.from_arrow(plain.sort_by(ORDER))
    assert isinstance(rows, pl.DataFrame)
    return plain.num_rows, int(rows.hash_rows(seed=1).sum())


def _contender(
    name: str, role: Role, scratch: Path, write: Callable[[Path], Any], check: Callable[[Path], Any]
) -> Contender:
    numbers = count()

    def prepare() -> Path:
        shutil.rmtree(scratch / name, ignore_errors=True)
        folder = scratch / name / str(next(numbers))
        folder.parent.mkdir(parents=True)
        return folder

    def run(folder: Path) -> Path:
        write(folder)
        return folder

    def work(folder: Path) -> Work:
        sizes = [path.stat().st_size for path in folder.glob("*.parquet")]
        return Work(bytes=sum(sizes))

    return Contender(name, run, role, prepare, check, work)


def _by_duckdb(rows: pa.Table | str, folder: Path) -> None:
    folder.mkdir()
    with duckdb.connect(config={"threads": THREADS}) as connection:
        connection.register("rows", connection.read_parquet(rows) if isinstance(rows, str) else rows)
        to = f"TO '{folder}/rows.parquet' (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL {LEVEL})"
        connection.execute(f"COPY (SELECT * FROM rows ORDER BY {ORDER}) {to}")


def _by_spark(frame: DataFrame, folder: Path) -> None:
    ordered = frame.repartitionByRange(1, ORDER).sortWithinPartitions(ORDER)
    level = {"compression": "zstd", "parquet.compression.codec.zstd.level": LEVEL}
    ordered.write.options(**level).parquet(str(folder))


def _by_ours(data: Any, folder: Path, **options: Any) -> None:
    sk.ingest(data, str(folder), cluster_by=[ORDER], compression_level=LEVEL, **options)


def _by_polars(files: str, folder: Path) -> None:
    folder.mkdir()
    rows = pl.scan_parquet(files).sort(ORDER)
    rows.sink_parquet(folder / "rows.parquet", compression="zstd", compression_level=LEVEL)


def _by_ingest_new(source: Path, folder: Path, **options: Any) -> None:
    order = {"cluster_by": [ORDER], "compression_level": LEVEL, "engine": "local", "threads": THREADS}
    sk.ingest_new(str(source), str(folder), **order, **options)


def _limit(limit: float, peer: str) -> Target:
    def ratio(result: CaseResult) -> float:
        assert result.ours is not None
        assert result.best_peer is not None
        return result.ours / result.best_peer

    return Target(f"≤ {limit:g} × {peer}", limit, ratio)


def small(bench: Bench, events: Events, rows: tuple[int, int] = (LOCAL_ROWS, SPARK_ROWS)) -> None:
    """Time both, and read everything back."""
    scratch = bench.given.data / "small"
    table, few = (rows_of(events, min(number, events.rows)) for number in rows)
    with spark_session(bench.given.data) as session:
        check = partial(read_back, session, schema=table.schema)
        scratch.mkdir(parents=True, exist_ok=True)
        pq.write_table(few, scratch / "few.parquet")
        frame = session.read.parquet(str(scratch / "few.parquet"))
        ours = partial(_by_ours, table, engine="local", threads=THREADS)
        local = [
            _contender("duckdb", Role.PEER, scratch, partial(_by_duckdb, table), check),
            _contender(OURS, Role.OURS, scratch, ours, check),
            _contender(f"{OURS}, no index", Role.REFERENCE, scratch, partial(ours, index=False), check),
        ]
        spark = [
            _contender("spark", Role.PEER, scratch, partial(_by_spark, frame), check),
            _contender(OURS, Role.OURS, scratch, partial(_by_ours, frame), check),
        ]
        cases = [
            Case("small ingest, local threads", local, [_limit(LOCAL_LIMIT, "DuckDB")]),
            Case("small ingest, Spark", spark, [_limit(SPARK_LIMIT, "write.parquet")]),
        ]
        bench.section(f"small ingests: {len(table):,} and {len(few):,} rows", cases)
    shutil.rmtree(scratch, ignore_errors=True)


def tiny_source(events: Events, files: int, data: Path) -> Path:
    """A folder of files of a few events each, in no order; made if it is not there."""
    folder = data / f"tiny-{files}-{events.seed}"
    if not folder.exists():
        rows = rows_of(events, files * TINY_ROWS)
        making = folder.with_name(f"{folder.name}.making")
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(parents=True)
        each = len(rows) // files
        for number in range(files):
            pq.write_table(rows.slice(number * each, each), making / f"{number:05d}.parquet")
        making.rename(folder)
    return folder


def tiny(bench: Bench, events: Events, files: int = TINY_FILES) -> None:
    """Time an ingest of many tiny files."""
    scratch = bench.given.data / "tiny"
    source = tiny_source(events, files, bench.given.data)
    glob = f"{source}/*.parquet"
    schema = pq.read_schema(source / "00000.parquet")

    def check(folder: Path) -> tuple[int, int]:
        return _hash(ds.dataset(Lake("written", folder).files).to_table(), schema)

    contenders = [
        _contender("duckdb", Role.PEER, scratch, partial(_by_duckdb, glob), check),
        _contender("polars", Role.PEER, scratch, partial(_by_polars, glob), check),
        _contender(OURS, Role.OURS, scratch, partial(_by_ingest_new, source), check),
        _contender(
            f"{OURS}, no index", Role.REFERENCE, scratch, partial(_by_ingest_new, source, index=False), check
        ),
    ]
    case = Case("ingest of tiny files", contenders, [_limit(TINY_LIMIT, "the best peer")])
    bench.section(f"{files:,} files of {TINY_ROWS} rows", [case])
    shutil.rmtree(scratch, ignore_errors=True)
