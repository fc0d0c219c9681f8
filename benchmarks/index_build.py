"""``python -m benchmarks.index_build``: what it takes to index a lake, and how large the index is.

Three lakes: the events in 100 and in 1,000 files (``--files`` takes the first N of each), and events as
DuckDB writes them, without a page index. *Metadata only* is the default of ``build``: footers, page indexes,
bloom filters that the files have. *With values* names two columns, whose pages are then read as well. Beside
it goes what reading the same footers takes: pyarrow one by one, and DuckDB's ``parquet_metadata``. The files
are in the system's page cache. Spark's session is started beforehand; its first job is not timed.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
from rich.box import SIMPLE_HEAD
from rich.table import Table

import skipstone as sk
from benchmarks.harness import OURS, Bench, Case, CaseResult, Measured, Pace, Role, Work
from benchmarks.lakes import BLOCKS, DATA, EVENTS, QUICK_SHARE, Events, Lake, duckdb_lake, events_lake
from benchmarks.peers import THREADS

LAKES = ("events100", "events1000", "duckdb100")
ENGINES = ("local", "spark", "cluster")
VALUES = ("event_id", "user_id")
MASTERS = {"spark": f"local[{THREADS}]", "cluster": f"local-cluster[{THREADS},1,1024]"}
PYARROW, DUCKDB = "pyarrow footers", "duckdb footers"
TIMES = 3


@dataclass(frozen=True, slots=True)
class Built:
    """One way to read a lake's metadata, and what it took."""

    name: str
    role: Role
    seconds: list[float]
    bytes: int | None = None
    size: int | None = None
    """Of the index."""

    @property
    def median(self) -> float:
        """Seconds."""
        return sorted(self.seconds)[len(self.seconds) // 2]


# -- what is timed -----------------------------------------------------------------------------


def build(lake: Lake, engine: Any, **choices: Any) -> tuple[float, int, int]:
    """Seconds, bytes read, and the size of the index, which is thrown away."""
    with tempfile.TemporaryDirectory(dir=lake.folder.parent) as root:
        opened = sk.open(str(lake.folder), index_root=root)
        opened.schema  # noqa: B018  (a footer that the lake needs anyway)
        began = time.perf_counter()
        report = opened.index.build(engine=engine, **choices)
        seconds = time.perf_counter() - began
        assert report.indexed == len(lake.files)
        return seconds, report.bytes, sum(path.stat().st_size for path in Path(root).rglob("*"))


def _footers(lake: Lake) -> float:
    began = time.perf_counter()
    for path in lake.files:
        pq.read_metadata(path)
    return time.perf_counter() - began


def _duckdb(lake: Lake) -> float:
    with contextlib.closing(duckdb.connect()) as connection:
        connection.execute(f"SET threads = {THREADS}")
        began = time.perf_counter()
        connection.sql(f"SELECT * FROM parquet_metadata({lake.files!r})").to_arrow_table()
        return time.perf_counter() - began


def _footer_bytes(lake: Lake) -> int:
    return sum(pq.read_metadata(path).serialized_size + 8 for path in lake.files)


# -- engines -----------------------------------------------------------------------------------


@contextlib.contextmanager
def opened_engine(name: str) -> Iterator[Any]:
    """An engine that has run a job."""
    from skipstone.engine.jobs import open_engine

    if name == "local":
        yield "local"
        return
    folder = tempfile.mkdtemp(prefix="bench-spark-")
    conf = {
        "spark.local.dir": folder,
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.ui.enabled": "false",
    }
    try:
        with contextlib.closing(open_engine("spark", master=MASTERS[name], conf=conf)) as engine:
            engine.map(len, ["a", "b"])
            yield engine
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# -- running -----------------------------------------------------------------------------------


def ways(
    lake: Lake, engines: dict[str, Any]
) -> Iterator[tuple[str, Role, Callable[[], tuple[float, Any, Any]]]]:
    """Everything that is timed on a lake."""
    for name, engine in engines.items():
        first = name == next(iter(engines))
        label = OURS if first else f"skipstone, {MASTERS[name]}"
        yield label, Role.OURS if first else Role.REFERENCE, lambda e=engine: build(lake, e)
        if first:
            yield f"{label}, no blooms", Role.REFERENCE, lambda e=engine: build(lake, e, blooms=False)
        yield (
            f"{label}, with values",
            Role.REFERENCE,
            lambda e=engine: build(lake, e, columns=list(VALUES)),
        )
    footers = _footer_bytes(lake)
    yield PYARROW, Role.PEER, lambda: (_footers(lake), footers, None)
    yield DUCKDB, Role.PEER, lambda: (_duckdb(lake), footers, None)


def measure(bench: Bench, lake: Lake, engines: dict[str, Any]) -> list[Built]:
    """Each way a few times, in turns."""
    given = list(ways(lake, engines))
    runs: dict[str, list[tuple[float, Any, Any]]] = {name: [] for name, _, _ in given}
    for _ in range(bench.pace.least):
        for name, _, run in given:
            with bench.console.status(f"{lake.name}: {name}"):
                runs[name].append(run())
    return [
        Built(name, role, [seconds for seconds, _, _ in runs[name]], runs[name][-1][1], runs[name][-1][2])
        for name, role, _ in given
    ]


def _draw(bench: Bench, lake: Lake, found: Sequence[Built]) -> None:
    data = sum(Path(path).stat().st_size for path in lake.files)
    title = f"{lake.name}: {len(lake.files):,} files, {data / 1e6:,.0f} MB"
    table = Table(title=title, title_justify="left", title_style="bold", header_style="dim", box=SIMPLE_HEAD)
    table.add_column("how", no_wrap=True)
    for name in ("seconds", "files per second", "MB read", "MB of index", "share of data"):
        table.add_column(name, justify="right")
    for one in found:
        read = "–" if one.bytes is None else f"{one.bytes / 1e6:,.2f}"
        size = ("–", "–") if one.size is None else (f"{one.size / 1e6:,.2f}", f"{one.size / data:.2%}")
        rate = f"{len(lake.files) / one.median:,.0f}"
        table.add_row(one.name, f"{one.median:,.3f}", rate, read, *size)
    bench.console.print(table)


def _result(lake: Lake, found: Sequence[Built]) -> CaseResult:
    contenders = {
        one.name: Measured(
            one.role, one.median * 1e3, min(one.seconds) * 1e3, Work(len(lake.files), one.bytes)
        )
        for one in found
    }
    return CaseResult(Case(f"cold full build, {lake.name}", ()), contenders)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--lake", nargs="+", choices=LAKES, default=LAKES, help="which lakes")
    parser.add_argument("--engine", nargs="+", choices=ENGINES, default=ENGINES[:2], help="which engines")
    parser.add_argument("--files", type=int, metavar="N", help="only the first N files of each lake")
    parser.add_argument("--data", type=Path, default=DATA, metavar="DIR", help="where lakes are kept")


def _first(lake: Lake, files: int | None) -> Lake:
    """The lake, or one of links to its first files."""
    if files is None or files >= len(lake.files):
        return lake
    folder = lake.folder.with_name(f"{lake.folder.name}-first-{files}")
    if not folder.exists():
        folder.mkdir()
        for path in map(Path, lake.files[:files]):
            (folder / path.name).hardlink_to(path)
    return Lake(f"{lake.name}, first {files:,}", folder)


def main(argv: Sequence[str] | None = None, sizes: tuple[int, int, Sequence[int]] | None = None) -> None:
    """Build every index that is asked for; ``sizes`` (rows, blocks, files) is for tests."""
    about = "What it takes to index a lake."
    bench = Bench.of("index_build", about, argv, Pace(0.0, TIMES, TIMES), _options)
    share = QUICK_SHARE if bench.quick else 1
    rows, blocks, files = sizes or (EVENTS // share, BLOCKS, (100, 1_000))
    given, events = bench.given, Events(rows, blocks, bench.seed)
    makers = {
        "events100": lambda: events_lake(events, files[0], given.data, bench.console, "events100"),
        "events1000": lambda: events_lake(events, files[1], given.data, bench.console, "events1000"),
        "duckdb100": lambda: duckdb_lake(events, files[0], given.data, bench.console),
    }
    lakes = [_first(makers[name](), given.files) for name in given.lake]
    found: dict[str, list[Built]] = {}
    with contextlib.ExitStack() as stack:
        engines = {name: stack.enter_context(opened_engine(name)) for name in given.engine}
        for lake in lakes:
            found[lake.name] = measure(bench, lake, engines)
            _draw(bench, lake, found[lake.name])
    bench.results += [_result(lake, found[lake.name]) for lake in lakes]
    bench.finish()


if __name__ == "__main__":
    main()
