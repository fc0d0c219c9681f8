"""``python -m benchmarks.ingest``: what it takes to lay out a lake, and what that is good for.

*Writes* (``--part``): 20 million events in no order, read by Spark from plain Parquet files, are written in
the order of their ids as 100 files, zstd at the same level. Spark does so by ``repartitionByRange``,
``sortWithinPartitions`` and ``write.parquet``; *skipstone* by ``sk.ingest`` with blooms of three keys and the
index in the same job; for reference without the index, and with neither. The same session for all, in turns,
with one small ingest and one small write before; every lake must hold the same rows.

*Queries*: look-ups in the lake that ``sk.ingest`` has laid out, by the index of the same job, against
the peers of ``selective_reads`` on the same files. The lake is kept under ``.bench/`` and made again only
when ``--again`` asks for it, or if this version can't use its index.

*Small*: ingests of some megabytes, on local threads and on Spark, and *tiny*: 5,000 files of 200 rows: see
``small_ingest``.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

import skipstone as sk
from benchmarks.harness import OURS, Bench, Case, CaseResult, Disagreement, Measured, Pace, Role, Work
from benchmarks.lakes import BLOCKS, DATA, EVENTS, QUICK_SHARE, Events, Lake
from benchmarks.peers import open_indexed
from benchmarks.queries import Query, plain_queries
from benchmarks.selective_reads import FULL_PACE, KEYS, query_cases, variants_of
from benchmarks.shuffled import shuffled_lake
from benchmarks.small_ingest import TINY_FILES, small, tiny
from benchmarks.spark_session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTS = ("writes", "queries", "small", "tiny")
SPARK, NO_INDEX, BARE = "spark", f"{OURS}, no index", f"{OURS}, no index, no blooms"
ORDER = "event_id"
# Arrow's own; Spark's would be 3, and slower.
LEVEL = 1
TIMES = 3
PHASES = ("survey", "write", "publish", "index")
LOOK_UPS = 5.0
"""How many times as fast as the best peer look-ups by a key are meant to be."""
FEW = 10_000
_WIDTH = 160


def own_files(folder: Path) -> Path:
    """Where a lake's index is."""
    return folder.parent / ".skipstone" / folder.name


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is written."""

    events: int = EVENTS
    blocks: int = BLOCKS
    files: int = 100
    times: int = TIMES
    pace: Pace | None = None
    warm_up: bool = True
    tiny_files: int = TINY_FILES


FULL = Sizes(pace=FULL_PACE)
QUICK = Sizes(EVENTS // QUICK_SHARE, times=1)


# -- writing -----------------------------------------------------------------------------------


@dataclass(slots=True)
class Written:
    """One way to write a lake, and what it took."""

    role: Role
    seconds: list[float] = field(default_factory=list)
    phases: list[Mapping[str, float]] = field(default_factory=list)
    sizes: Sequence[int] = ()

    @property
    def median(self) -> float:
        """Seconds."""
        return statistics.median(self.seconds)

    @property
    def phase_medians(self) -> dict[str, float]:
        """Seconds of each phase, where they are told apart."""
        names = self.phases[0] if self.phases else ()
        return {name: statistics.median(each[name] for each in self.phases) for name in names}


def by_spark(frame: DataFrame, folder: Path, files: int) -> Mapping[str, float]:
    """As one would without us."""
    ordered = frame.repartitionByRange(files, ORDER).sortWithinPartitions(ORDER)
    level = {"compression": "zstd", "parquet.compression.codec.zstd.level": LEVEL}
    ordered.write.options(**level).parquet(str(folder))
    return {}


def by_ours(frame: DataFrame, folder: Path, target: int, **choices: Any) -> Mapping[str, float]:
    """An ingest; the seconds of its phases."""
    report = sk.ingest(
        frame,
        str(folder),
        cluster_by=[ORDER],
        target_file_bytes=target,
        force=True,  # small sizes of --quick
        compression_level=LEVEL,
        **choices,
    )
    return {name: getattr(report.seconds, name) for name in PHASES}


Ways = dict[str, tuple[Role, Callable[["DataFrame", Path], Mapping[str, float]]]]


def ways(frame: DataFrame, files: int) -> Ways:
    """Everyone, each so that as many files come out."""
    bare, bloomed = (target_bytes(frame, files, blooms) for blooms in ((), KEYS))
    ours = partial(by_ours, target=bloomed, blooms=list(KEYS))
    return {
        SPARK: (Role.PEER, partial(by_spark, files=files)),
        BARE: (Role.REFERENCE, partial(by_ours, target=bare, index=False)),
        NO_INDEX: (Role.REFERENCE, partial(ours, index=False)),
        OURS: (Role.OURS, ours),
    }


def target_bytes(frame: DataFrame, files: int, blooms: Sequence[str]) -> int:
    """The size of file to ask for, by the estimate that an ingest makes of the same rows."""
    from skipstone.parquet.write.layout import PageLayout
    from skipstone.write.frame import survey

    layout = PageLayout(cluster_by=(ORDER,), blooms=tuple(blooms), compression_level=LEVEL)
    return max(int(survey(frame, layout).bytes / files), 1)


def timed_writes(bench: Bench, frame: DataFrame, given: Ways, times: int, keep: Path) -> dict[str, Written]:
    """Each way a few times, in turns; a lake goes before the next is made, but for one that is missed."""
    found = {name: Written(role) for name, (role, _) in given.items()}
    scratch = keep.with_name(keep.name + ".scratch")
    rows: dict[str, tuple[int, int]] = {}
    for turn, (name, (_, write)) in itertools.product(range(times), given.items()):
        _remove(scratch)
        with bench.console.status(f"{turn + 1} of {times}: {name}"):
            began = time.perf_counter()
            phases = write(frame, scratch)
            found[name].seconds.append(time.perf_counter() - began)
            if phases:
                found[name].phases.append(phases)
            found[name].sizes = [Path(path).stat().st_size for path in Lake(name, scratch).files]
            if turn == 0:
                rows[name] = _digest(frame.sparkSession, scratch)
        if name == OURS and not keep.exists():
            scratch.rename(keep)
            own_files(scratch).rename(own_files(keep))
    _remove(scratch)
    if len(set(rows.values())) > 1:
        raise Disagreement(f"not the same rows were written: {rows}")
    return found


def _remove(folder: Path) -> None:
    """Remove a lake and its index, which is beside it."""
    for each in (folder, own_files(folder)):
        shutil.rmtree(each, ignore_errors=True)


def _digest(session: SparkSession, folder: Path) -> tuple[int, int]:
    """Number of rows, and the sum of a hash of each."""
    frame = session.read.parquet(str(folder))
    row = frame.selectExpr("count(*)", "sum(cast(hash(*) AS bigint))").head()
    assert row is not None
    return row[0], row[1]


def _warm_up(few: DataFrame, given: Ways, beside: Path) -> None:
    """Everyone writes a few rows, so that what the JVM and Python load at first is there."""
    scratch = beside.with_name(beside.name + ".warm")
    for _, write in given.values():
        _remove(scratch)
        write(few, scratch)
    _remove(scratch)


def draw_writes(bench: Bench, source: Lake, rows: int, found: Mapping[str, Written]) -> None:
    """Rates, sizes and phases."""
    read = sum(Path(path).stat().st_size for path in source.files)
    title = f"{rows:,} rows from {len(source.files)} files of {read / 1e6:,.0f} MB"
    table = Table(title=title, title_justify="left", title_style="bold", header_style="dim", box=SIMPLE_HEAD)
    table.add_column("how", no_wrap=True)
    columns = ("seconds", *PHASES, "rows/s", "MB/s read", "MB/s written", "files", "MB", "MB each")
    for name in (*columns, f"against {SPARK}"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, one in found.items():
        phases = [f"{one.phase_medians[p]:,.1f}" if one.phases else "–" for p in PHASES]
        size = sum(one.sizes)
        table.add_row(
            name,
            f"{one.median:,.1f}",
            *phases,
            f"{rows / one.median:,.0f}",
            f"{read / one.median / 1e6:,.1f}",
            f"{size / one.median / 1e6:,.1f}",
            str(len(one.sizes)),
            f"{size / 1e6:,.0f}",
            f"{min(one.sizes) / 1e6:,.1f}–{max(one.sizes) / 1e6:,.1f}",
            f"{found[SPARK].median / one.median:.2f} ×",
        )
    bench.console.width = max(bench.console.width, _WIDTH)
    bench.console.print(table)


def _result(rows: int, found: Mapping[str, Written]) -> CaseResult:
    def measured(one: Written) -> Measured:
        parts = {name: seconds * 1e3 for name, seconds in one.phase_medians.items()}
        work = Work(rows, sum(one.sizes))
        return Measured(one.role, one.median * 1e3, min(one.seconds) * 1e3, work, parts)

    contenders = {name: measured(one) for name, one in found.items()}
    return CaseResult(Case("full ingest", ()), contenders)


# -- the lake that is kept ---------------------------------------------------------------------


def kept_folder(events: Events, files: int, data: Path) -> Path:
    """Where the lake is or will be."""
    return data / f"ingested{files}-{events.rows}-{events.seed}"


def is_usable(folder: Path) -> bool:
    """Whether there is a lake with an index that this version can use."""
    try:
        open_indexed(Lake("ingested", folder), own_files(folder))
    except (AssertionError, sk.SkipstoneError):
        return False
    return True


def queries(events: Events, variant: int = 0) -> Iterator[Query]:
    """Look-ups by a key or a small range."""
    return (query for query in plain_queries(events, variant) if not query.heavy)


def _promises(events: Events) -> dict[str, float]:
    return {query.name: LOOK_UPS for query in queries(events) if not query.name.startswith("range")}


# -- running -----------------------------------------------------------------------------------


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--part", nargs="+", choices=PARTS, default=PARTS, help="which parts")
    parser.add_argument("--only", metavar="TEXT", default="", help="queries with TEXT in their name")
    parser.add_argument("--again", action="store_true", help="make the lake that is kept again")
    parser.add_argument("--data", type=Path, default=DATA, metavar="DIR", help="where lakes are kept")


def main(argv: Sequence[str] | None = None, sizes: Sizes | None = None) -> None:
    """Write the lakes and ask the one that is kept; ``sizes`` is for tests."""
    about = "What it takes to lay out a lake, and what that is good for."
    bench = Bench.of("ingest", about, argv, sizes.pace if sizes else None, _options)
    if sizes is None:
        sizes = QUICK if bench.quick else FULL
        bench.pace = sizes.pace or bench.pace
    events = Events(sizes.events, sizes.blocks, bench.seed)
    keep = kept_folder(events, sizes.files, bench.given.data)
    if bench.given.again or not is_usable(keep):
        _remove(keep)
    if "writes" in bench.given.part or ("queries" in bench.given.part and not keep.exists()):
        write(bench, events, sizes, keep)
    if "queries" in bench.given.part:
        ask(bench, events, keep)
    if "small" in bench.given.part:
        small(bench, events)
    if "tiny" in bench.given.part:
        tiny(bench, events, sizes.tiny_files)
    bench.finish()


def write(bench: Bench, events: Events, sizes: Sizes, keep: Path) -> None:
    """Time the writes, or only make the lake that is asked afterwards."""
    source = shuffled_lake(events, bench.given.data, bench.console)
    with spark_session(bench.given.data) as session:
        frame = session.read.parquet(str(source.folder))
        given = ways(frame, sizes.files)
        if "writes" not in bench.given.part:
            timed_writes(bench, frame, {OURS: given[OURS]}, 1, keep)
            return
        if sizes.warm_up:
            _warm_up(session.read.parquet(source.files[0]).limit(FEW), given, keep)
        found = timed_writes(bench, frame, given, sizes.times, keep)
    draw_writes(bench, source, events.rows, found)
    bench.results.append(_result(events.rows, found))


def ask(bench: Bench, events: Events, folder: Path) -> None:
    """Look-ups in the lake that is kept."""
    lake = Lake("ingested100", folder)
    cases = query_cases(
        lake,
        variants_of(partial(queries, events)),
        bench.given.only,
        warm=True,
        index=own_files(folder),
        peers_only=False,
        promises=_promises(events),
    )
    bench.section(f"as ingested, kept open: {len(lake.files):,} files", cases)


if __name__ == "__main__":
    main()
