"""``python -m benchmarks.memory``: the memory it takes to stream a lake of more than 5 GB.

Two lakes of that size once decoded: files with row groups of 100,000 rows and a page index, and files of
one row group of a million rows as pyarrow writes them unasked. A few files are written and the others are
links to them: what is read and decoded is the same. Each run has a process of its own, which opens the lake,
notes its resident memory, and then takes batch after batch and drops it; the figure is the highest resident
memory since then. A *slow* consumer waits after each batch, so that reading ahead without a limit shows.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.harness import OURS, Bench
from benchmarks.lakes import DATA, QUICK_SHARE, Events, Lake, kept
from benchmarks.peers import DATASET

LIMIT_MB = 500
SLOW_SECONDS_PER_ROW = 4e-7
DISTINCT = 3
MB = 1_000_000


@dataclass(frozen=True, slots=True)
class Shape:
    """How the files of a lake are cut."""

    name: str
    rows: int
    group_rows: int
    files: int
    indexed: bool

    def write(self, folder: Path, seed: int) -> None:
        """Write a few files and link the others to them."""
        for number in range(self.files):
            path = folder / f"part-{number:04d}.parquet"
            if number >= DISTINCT:
                os.link(folder / f"part-{number % DISTINCT:04d}.parquet", path)
                continue
            pq.write_table(
                Events(self.rows * DISTINCT, DISTINCT, seed).block(number),
                path,
                compression="zstd",
                row_group_size=self.group_rows,
                write_page_index=self.indexed,
                use_dictionary=["kind"] if self.indexed else True,
            )


SHAPES = (
    Shape("row groups of 100,000 rows", 600_000, 100_000, 66, indexed=True),
    Shape("one row group of 1,000,000 rows", 1_000_000, 1_000_000, 40, indexed=False),
)


@dataclass(frozen=True, slots=True)
class Streamed:
    """What one process saw."""

    rows: int
    batches: int
    decoded: int
    seconds: float
    extra: int
    pool: int
    """The most that Arrow's own memory pool held."""


# -- the process that is measured --------------------------------------------------------------


def _ours(folder: str) -> Callable[[], Iterable[pa.RecordBatch]]:
    import skipstone as sk

    lake = sk.open(folder)
    return lambda: lake.scan().to_reader()


def _dataset(folder: str) -> Callable[[], Iterable[pa.RecordBatch]]:
    dataset = ds.dataset(folder, format="parquet")
    return lambda: dataset.scanner().to_reader()


READERS = {OURS: _ours, DATASET: _dataset}


def stream(reader: str, folder: str, pause: float) -> Streamed:
    """Take every batch of a lake in this process, which should be a fresh one."""
    batches_of = READERS[reader](folder)
    baseline = resident("VmRSS")
    forget_peak()
    rows = batches = decoded = 0
    began = time.perf_counter()
    for batch in batches_of():
        rows += batch.num_rows
        batches += 1
        decoded += batch.nbytes
        time.sleep(batch.num_rows * pause)
    seconds = time.perf_counter() - began
    pool = pa.default_memory_pool().max_memory()
    return Streamed(rows, batches, decoded, seconds, peak() - baseline, pool)


def forget_peak() -> None:
    """Let the highest resident memory begin anew."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return  # then the peak is that of the whole process, which is no less


def peak() -> int:
    """The highest resident memory since then, in bytes."""
    try:
        return resident("VmHWM")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def resident(name: str) -> int:
    """What the system says of this process's memory, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024


# -- running -----------------------------------------------------------------------------------


def in_process(reader: str, folder: Path, pause: float) -> Streamed:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.memory", "--stream", reader, str(folder), str(pause)]
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=root)
    return Streamed(**json.loads(done.stdout))


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--peers", action="store_true", help="peers only")
    parser.add_argument("--data", type=Path, default=DATA, metavar="DIR", help="where lakes are kept")


def main(argv: Sequence[str] | None = None, shapes: Sequence[Shape] = SHAPES) -> None:
    """Stream every lake through every reader, quickly and slowly; ``shapes`` is for tests."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments[:1] == ["--stream"]:
        print(json.dumps(asdict(stream(arguments[1], arguments[2], float(arguments[3])))))
        return
    bench = Bench.of("memory", "Memory taken by streaming a large lake.", argv, options=_options)
    share = QUICK_SHARE if bench.quick else 1
    found: dict[str, dict[str, Streamed]] = {}
    for shape in shapes:
        files = max(shape.files // share, 1)
        lake = _lake(shape, files, bench)
        for slow in (False, True):
            case = f"full scan, {shape.name}, {files} files, {'slow' if slow else 'quick'} consumer"
            with bench.console.status(case):
                pause = SLOW_SECONDS_PER_ROW if slow else 0.0
                readers = [name for name in READERS if name != OURS or not bench.given.peers]
                found[case] = {name: in_process(name, lake.folder, pause) for name in readers}
                assert len({streamed.rows for streamed in found[case].values()}) == 1, "rows differ"
    _draw(bench.console, found)
    if bench.json is not None:
        cases = [
            {"case": case, "contenders": {name: asdict(streamed) for name, streamed in readers.items()}}
            for case, readers in found.items()
        ]
        bench.json.write_text(json.dumps({"benchmark": "memory", "cases": cases}, indent=2) + "\n")


def _lake(shape: Shape, files: int, bench: Bench) -> Lake:
    folder = bench.given.data / f"memory-{shape.rows}-{shape.group_rows}-{files}-{bench.seed}"
    sized = Shape(shape.name, shape.rows, shape.group_rows, files, shape.indexed)
    return Lake(shape.name, kept(folder, lambda partial: sized.write(partial, bench.seed), bench.console))


def _draw(console: Console, found: dict[str, dict[str, Streamed]]) -> None:
    title = f"Peak resident memory while streaming (target: below {LIMIT_MB} MB)"
    table = Table(title=title, title_justify="left", title_style="bold", header_style="dim", box=SIMPLE_HEAD)
    table.add_column("case")
    table.add_column("contender", no_wrap=True)
    for name in ("extra MB", "Arrow's pool MB", "decoded GB", "batches", "seconds"):
        table.add_column(name, justify="right")
    table.add_column("")
    for case, readers in found.items():
        for reader, streamed in readers.items():
            met = streamed.extra < LIMIT_MB * MB
            word = Text("met", style="green") if met else Text("NOT met", style="bold red")
            figures = (
                f"{streamed.extra / MB:,.0f}",
                f"{streamed.pool / MB:,.0f}",
                f"{streamed.decoded / 1e9:,.2f}",
                f"{streamed.batches:,}",
                f"{streamed.seconds:,.1f}",
            )
            label = case if reader == next(iter(readers)) else ""
            table.add_row(label, reader, *figures, word if reader == OURS else "")
        table.add_section()
    console.print(table)


if __name__ == "__main__":
    main()
