"""The lakes that queries are timed on: made once under ``.bench/``, the same for the same seed, then reused.

*events* has seven columns of mixed types and the same rows in 100 large or 1,000 small files; *lineitem* is
TPC-H's. Events are made in a thousand blocks, each from a seed of its own, so that any row can be had again
without reading a file.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.console import Console
from rich.progress import Progress

DATA = Path(__file__).resolve().parents[1] / ".bench"
"""Where lakes are kept between runs; git ignores it."""

EVENTS, BLOCKS, QUICK_SHARE = 20_000_000, 1_000, 10
ROWS_PER_USER = 5
ID_STEP = 10
USER_STEP = 2_000_003
FIRST_DAY = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = 1_000_000
KINDS = ("view", "click", "scroll", "search", "share", "login", "logout", "cart", "purchase", "refund")
KIND_SHARES = (0.36, 0.22, 0.12, 0.10, 0.05, 0.04, 0.04, 0.04, 0.02, 0.01)
NULL_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Lake:
    """A folder of Parquet files."""

    name: str
    folder: Path

    @property
    def files(self) -> list[str]:
        """The paths in order."""
        return sorted(str(path) for path in self.folder.glob("*.parquet"))

    @property
    def schema(self) -> pa.Schema:
        """The first file's with plain strings: views can be neither filtered nor sorted by pyarrow."""
        found = pq.read_schema(self.files[0]).remove_metadata()
        return pa.schema([f.with_type(pa.string()) if f.type == pa.string_view() else f for f in found])


# -- events ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Events:
    """The rows of the events lake, in blocks."""

    rows: int = EVENTS
    blocks: int = BLOCKS
    seed: int = 0

    @property
    def block_rows(self) -> int:
        """Rows of each block."""
        return self.rows // self.blocks

    @property
    def users(self) -> int:
        """How many users there may be."""
        return max(self.rows // ROWS_PER_USER, 1)

    def block(self, number: int) -> pa.Table:
        """The rows of a block; ids and times ascend, and everything else is random."""
        rng = self._random(number)
        rows = self.block_rows
        nth = np.arange(number * rows, (number + 1) * rows)
        times = (int(FIRST_DAY.timestamp()) + nth) * SECOND
        return pa.table(
            {
                "event_id": self._ids(number, rng),
                "ts": pa.array(times + rng.integers(0, SECOND, rows), pa.timestamp("us", "UTC")),
                "user_id": rng.integers(0, self.users, rows) * USER_STEP,
                "session": _hex(rng, rows),
                "kind": pa.array(KINDS).take(rng.choice(len(KINDS), rows, p=KIND_SHARES)),
                "amount": pa.array(rng.lognormal(3.0, 1.2, rows), mask=rng.random(rows) < NULL_SHARE),
                "payload": _text(rng, rows),
            }
        )

    def row(self, nth: int) -> dict[str, Any]:
        """One row."""
        block = self.block(nth // self.block_rows)
        found: dict[str, Any] = block.slice(nth % self.block_rows, 1).to_pylist()[0]
        return found

    def ids(self, nth: np.ndarray) -> np.ndarray:
        """The ids of some rows, which ascend."""
        blocks = np.unique(nth // self.block_rows)
        parts = [
            self._ids(n, self._random(n))[nth[nth // self.block_rows == n] % self.block_rows] for n in blocks
        ]
        return np.concatenate(parts)

    def _random(self, number: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, number))

    def _ids(self, number: int, rng: np.random.Generator) -> np.ndarray:
        """The first that is drawn of a block."""
        nth = np.arange(number * self.block_rows, (number + 1) * self.block_rows)
        return nth * ID_STEP + rng.integers(0, ID_STEP - 1, self.block_rows)

    def write(self, folder: Path, files: int, console: Console, *, bare: bool = False) -> None:
        """Write the rows as that many files; ``bare`` without page index and blooms."""
        per_file = self.blocks // files
        rows = per_file * self.block_rows
        group_rows = max(rows // 4, min(rows, 10_000))
        # Without ndv pyarrow sizes each filter for a million values.
        bloom = {"ndv": group_rows, "fpp": 0.01}

        def write(number: int) -> None:
            blocks = range(number * per_file, (number + 1) * per_file)
            pq.write_table(
                pa.concat_tables(self.block(n) for n in blocks),
                folder / f"events-{number:05d}.parquet",
                compression="zstd",
                row_group_size=group_rows,
                max_rows_per_page=max(min(group_rows // 2, 10_000), 1),
                write_page_index=not bare,
                use_dictionary=["kind"],
                bloom_filter_options=None if bare else {"user_id": bloom, "session": bloom},
            )

        _in_threads(write, range(files), f"{folder.name}: {files:,} files", console)


def _hex(rng: np.random.Generator, rows: int) -> pa.Array:
    text = rng.bytes(rows * 8).hex().encode()
    offsets = np.arange(0, (rows + 1) * 16, 16, dtype=np.int32)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(text))


def _text(rng: np.random.Generator, rows: int) -> pa.Array:
    """Three phrases of a few words each, and a number."""
    words = np.random.default_rng(1).integers(16, 2**20, (4_000, 4)).tolist()
    phrases = pa.array([" ".join(f"{word:x}" for word in phrase) for phrase in words])
    taken = [phrases.take(rng.integers(0, len(phrases), rows)) for _ in range(3)]
    number = pa.array(rng.integers(0, 10**9, rows)).cast(pa.string())
    return pc.binary_join_element_wise(*taken, number, " ")


def _in_threads(work: Callable[[int], None], numbers: Iterable[int], title: str, console: Console) -> None:
    numbers = list(numbers)
    with Progress(console=console, transient=True) as progress, ThreadPoolExecutor(os.cpu_count()) as pool:
        task = progress.add_task(title, total=len(numbers))
        for _ in pool.map(work, numbers):
            progress.advance(task)


# -- on disk -----------------------------------------------------------------------------------


def events_lake(events: Events, files: int, data: Path, console: Console, name: str) -> Lake:
    """The events in that many files."""
    folder = data / f"{name}-{events.rows}-{events.seed}"
    return Lake(name, kept(folder, lambda partial: events.write(partial, files, console), console))


def ingested_lake(found: Lake, files: int, data: Path, console: Console) -> Lake:
    """The same events in about that many files, as ``sk.ingest`` writes them when sorted by id."""
    folder = data / found.folder.name.replace(found.name, "ingested100", 1)

    def write(partial: Path) -> None:
        import skipstone as sk
        from benchmarks.spark_session import spark_session

        with spark_session(data) as spark:
            frame = spark.read.parquet(str(found.folder))
            layout = {"cluster_by": ["event_id"], "blooms": ["user_id", "session"]}
            size = sum(Path(path).stat().st_size for path in found.files) // files
            sk.ingest(
                frame, str(partial / folder.name), target_file_bytes=size, force=True, index=False, **layout
            )

    return Lake("ingested100", kept(folder, write, console) / folder.name)


def bare_lake(events: Events, files: int, data: Path, console: Console) -> Lake:
    """The events with the same pages, and nothing that tells what is in them."""
    folder = data / f"bare{files}-{events.rows}-{events.seed}"
    return Lake("bare100", kept(folder, lambda to: events.write(to, files, console, bare=True), console))


def duckdb_lake(events: Events, files: int, data: Path, console: Console) -> Lake:
    """The events as DuckDB writes them: no page index, one page a chunk, blooms of dictionaries only."""
    folder = data / f"duckdb{files}-{events.rows}-{events.seed}"

    def write(partial: Path) -> None:
        import duckdb

        per_file = events.blocks // files
        group = max(per_file * events.block_rows // 4, 2_048)
        with closing(duckdb.connect()) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            for number in range(files):
                blocks = range(number * per_file, (number + 1) * per_file)
                connection.register("block", pa.concat_tables(events.block(n) for n in blocks))
                options = f"FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {group}"
                path = partial / f"events-{number:05d}.parquet"
                connection.execute(f"COPY (SELECT * FROM block) TO '{path}' ({options})")

    return Lake("duckdb100", kept(folder, write, console))


def unsorted_lake(found: Lake, files: int, data: Path, console: Console) -> Lake:
    """The events of a lake in no order, as DuckDB writes them: each row group has nearly every value."""
    folder = data / found.folder.name.replace(found.name, f"unsorted{files}", 1)

    def write(partial: Path) -> None:
        import duckdb

        with closing(duckdb.connect()) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            rows = f"SELECT *, hash(event_id) AS place FROM read_parquet('{found.folder}/*.parquet')"
            connection.execute(f"CREATE TABLE events AS {rows}")
            for number in range(files):
                part = f"SELECT * EXCLUDE place FROM events WHERE place % {files} = {number} ORDER BY place"
                path = partial / f"events-{number:05d}.parquet"
                connection.execute(f"COPY ({part}) TO '{path}' (FORMAT parquet, COMPRESSION zstd)")

    return Lake(f"unsorted{files}", kept(folder, write, console))


def lineitem_lake(scale: float, data: Path, console: Console, parts: int = 10) -> Lake:
    """TPC-H's largest table."""
    return Lake("lineitem", kept(data / f"lineitem-{scale:g}", lambda to: _tpch(to, scale, parts), console))


TPCH_KEYS = {
    "lineitem": "l_shipdate",
    "orders": "o_orderdate",
    **dict.fromkeys(("customer", "part", "supplier", "nation", "region")),
}
"""By which column each table is sorted."""


def tpch_lakes(scale: float, data: Path, console: Console, files: int = 100) -> dict[str, Lake]:
    """TPC-H's lineitem and orders by date in some files, the smaller tables in one each."""
    prefix = f"tpch-{scale:g}-{len(TPCH_KEYS)}"
    folder = kept(data / prefix, lambda to: _clustered(to, prefix, scale, files), console)
    return {name: Lake(name, folder / f"{prefix}-{name}") for name in TPCH_KEYS}


def _clustered(folder: Path, prefix: str, scale: float, files: int) -> None:
    import polars as pl

    for name, key in TPCH_KEYS.items():
        raw = folder / f"{name}.raw"
        raw.mkdir()
        _tpch(raw, scale, 1, name)
        frame = pl.read_parquet(sorted(raw.glob("*.parquet")))
        frame = frame if key is None else frame.sort(key, maintain_order=True)
        table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
        texts = [one.with_type(pa.string()) if one.type == pa.large_string() else one for one in table.schema]
        table = table.cast(pa.schema(texts))
        rows = len(table) if key is None else -(-len(table) // files)
        target = folder / f"{prefix}-{name}"
        target.mkdir()
        for number, first in enumerate(range(0, len(table), rows)):
            pq.write_table(
                table.slice(first, rows),
                target / f"{name}-{number:03d}.parquet",
                compression="zstd",
                row_group_size=150_000,
                max_rows_per_page=10_000,
                write_page_index=True,
            )
        shutil.rmtree(raw)


def _tpch(folder: Path, scale: float, parts: int, name: str = "lineitem") -> None:
    tool = Path(sys.executable).parent / "tpchgen-cli"
    options = [f"--tables={name}", f"--parts={parts}", f"--scale-factor={scale}", f"--output-dir={folder}"]
    subprocess.run([tool, "parquet", "--quiet", *options], check=True)
    if (folder / name).is_dir():
        for path in (folder / name).iterdir():
            path.rename(folder / path.name)
        (folder / name).rmdir()


def kept(folder: Path, make: Callable[[Path], None], console: Console) -> Path:
    """The folder, made under another name first so that half of it is never taken for all."""
    if not folder.exists():
        partial = folder.with_name(folder.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        console.print(f"making {folder.name} …", style="dim")
        make(partial)
        partial.rename(folder)
    return folder
