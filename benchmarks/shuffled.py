"""The events in no order, as plain Parquet files: what an ingest is given."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.progress import Progress

from benchmarks.lakes import Events, Lake, kept

SOURCE_FILES = 20
_ROUNDS = 10


def shuffled_lake(events: Events, data: Path, console: Console, files: int = SOURCE_FILES) -> Lake:
    """Every row once, each in any of the files."""
    folder = data / f"shuffled{files}-{events.rows}-{events.seed}"
    return Lake("shuffled", kept(folder, lambda to: _scatter(events, to, files, console), console))


def _scatter(events: Events, folder: Path, files: int, console: Console) -> None:
    """Deal out the rows of some blocks at a time, so that all of them need never be held."""
    rng = np.random.default_rng((events.seed, 0, 1))
    rounds = [part for part in np.array_split(rng.permutation(events.blocks), _ROUNDS) if len(part)]
    schema = events.block(0).schema
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(os.cpu_count()))
        progress = stack.enter_context(Progress(console=console, transient=True))
        writers = [
            stack.enter_context(
                pq.ParquetWriter(folder / f"part-{number:05d}.parquet", schema, compression="zstd")
            )
            for number in range(files)
        ]
        for blocks in progress.track(rounds, description=folder.name):
            table = pa.concat_tables(pool.map(events.block, blocks.tolist()))
            dealt = np.array_split(rng.permutation(len(table)), files)
            list(pool.map(lambda writer, rows, all=table: writer.write_table(all.take(rows)), writers, dealt))
