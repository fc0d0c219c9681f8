"""``python -m benchmarks.iceberg_planning``: plans of whole files on Iceberg tables, beside pyiceberg's own.

Tables are metadata only (:mod:`benchmarks.tables`): files in 5, 50 or 500 manifests under two specs, with and
without 100 position delete files. Everyone begins with the table's metadata loaded, as pyiceberg has it, and
ends with the files that may hold a match and the delete files of each: pyiceberg as a list of tasks,
Skipstone as columns. Each repetition asks for another key; files and deletes must be the same.

*skipstone* is cold: the lake is opened anew, and all that the process keeps of manifests (and of the schemas
they were written with) is dropped before. pyiceberg's cache of manifests is dropped too; it has no other.
*skipstone, index* is as cold, with manifests kept in the index by an earlier process: one local
file, whose bytes are not counted. *skipstone, open* is a lake that was asked before.

Machines are shared, and a plan that waits for its turn is not slow: the verdict of a target is the ratio of
the *least CPU times* of the process, the first round included. The ratio of the least times on the clock is
drawn beside it, in the last table. Large tables are planned twice, once to agree and once for the clock;
those with deletes once, so that only the last table has their times. Then the association of delete files
alone, where all lie in one partition; with ``--quick`` it is ours only.
"""

from __future__ import annotations

import argparse
import cProfile
import math
import pstats
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from pyiceberg.io import InputFile
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFileContent, ManifestEntry, clear_manifest_cache
from pyiceberg.table import FileScanTask, StaticTable
from pyiceberg.table.delete_file_index import DeleteFileIndex
from rich.console import Console
from rich.table import Table

import skipstone as sk
from benchmarks.harness import OURS, Bench, Case, CaseResult, Contender, Pace, Role, Target, Work
from benchmarks.lakes import DATA
from benchmarks.tables import FIRST_DAY, STEP, Made, TableShape, crowded, evolved, made_table, session_of
from skipstone.iceberg.deletes.match import DeleteIndex
from skipstone.iceberg.manifests import reading as manifests
from skipstone.iceberg.plan import FilePlan

FILES, QUICK_FILES = (5_000, 50_000), (5_000,)
MANIFESTS, QUICK_MANIFESTS = (5, 50, 500), (50,)
CROWD = (2_000, 100)
INDEX, OPEN, PYICEBERG = "skipstone, index", "skipstone, open", "pyiceberg"
CPU = "CPU ms"
COLD_FACTOR, WARM_FACTOR, ASSOCIATION_MS = 3.0, 50.0, 100.0
PACE, QUICK_PACE = Pace(seconds=2.0, least=3, most=15), Pace(seconds=0.5, least=2, most=5)
# pyiceberg takes seconds for a plan of a large table, and for a crowd of deletes.
LARGE, LARGE_PACE, ONCE = 20_000, Pace(seconds=0.0, least=1, most=1), Pace(seconds=0.0, least=0, most=0)
PROFILED = 15


# -- questions ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Question:
    """A kind of filter, written so that both parse it."""

    name: str
    make: Callable[[TableShape, np.random.Generator], str | None]


def _days(share: float) -> Callable[[TableShape, np.random.Generator], str]:
    def make(shape: TableShape, rng: np.random.Generator) -> str:
        count = max(int(shape.days * share), 1)
        first = FIRST_DAY + timedelta(days=int(rng.integers(max(shape.days - count, 1))))
        return f"ts >= '{first.isoformat()}' AND ts < '{(first + timedelta(days=count)).isoformat()}'"

    return make


def _position(shape: TableShape, rng: np.random.Generator) -> int:
    return int(rng.integers(shape.files * STEP))


QUESTIONS = (
    Question("point, one day", _days(0)),
    Question("range, 10 % of the days", _days(0.1)),
    Question("point, id, by metrics and buckets", lambda shape, rng: f"id = {_position(shape, rng)}"),
    Question(
        "point, session, by metrics alone",
        lambda shape, rng: f"session = '{session_of(_position(shape, rng))}'",
    ),
    Question("full, a filter that drops nothing", lambda _shape, rng: f"amount > {rng.integers(1, 999)}.5"),
    Question("full, no filter", lambda _shape, _rng: None),
)


# -- a table, and who plans on it --------------------------------------------------------------


class CountedIO(PyArrowFileIO):
    """Remembers what was opened; pyiceberg reads every manifest whole."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []

    def new_input(self, location: str) -> InputFile:
        self.opened.append(location)
        return super().new_input(location)


@dataclass(frozen=True)
class Tabled:
    """A table with its metadata loaded, and an index of its manifests."""

    made: Made
    deletes: bool
    data: Path
    io: CountedIO = field(default_factory=CountedIO)

    @cached_property
    def table(self) -> StaticTable:
        """As pyiceberg has it."""
        found = StaticTable.from_metadata(self.made.metadata(deletes=self.deletes))
        found.io = self.io
        return found

    def lake(self, *, index: bool = False) -> Any:
        """Opened anew."""
        return self._opened(self.kept if index else self.data / "no-index")

    def _opened(self, root: Path) -> Any:
        return sk.open(self.table, index_root=str(root))

    @cached_property
    def kept(self) -> Path:
        """Where manifests are kept."""
        root = self.data / f"index-{self.made.folder.name}-{'deletes' if self.deletes else 'plain'}"
        # Made anew: it must be as this version writes it.
        shutil.rmtree(root, ignore_errors=True)
        self._opened(root).keep_manifests()
        return root

    def forget(self) -> None:
        """All that is kept of manifests in the process."""
        manifests.clear_cache()
        re.purge()
        clear_manifest_cache()
        self.io.opened.clear()


@dataclass(frozen=True, slots=True)
class Ours:
    """A plan, and the lake that made it."""

    lake: Any
    plan: FilePlan

    def answer(self) -> Any:
        """Files, and pairs of a file and a delete file."""
        table = self.plan.table
        lists = zip(table["path"].to_pylist(), table["deletes"].to_pylist(), strict=True)
        return frozenset(self.plan.paths), frozenset((path, d) for path, deletes in lists for d in deletes)

    def work(self) -> Work:
        """What it read since it was opened."""
        io = self.lake.io
        return Work(len(self.plan), io.bytes, io.requests)


def _theirs(tasks: Sequence[FileScanTask]) -> Any:
    pairs = frozenset((task.file.file_path, d.file_path) for task in tasks for d in task.delete_files)
    return frozenset(task.file.file_path for task in tasks), pairs


@dataclass(slots=True)
class Clock:
    """The least CPU time and the least time on the clock that a contender took, in ms."""

    cpu: float = math.inf
    wall: float = math.inf


Clocks = Mapping[str, Clock]


def clocked(contender: Contender, clock: Clock) -> Contender:
    """With its CPU time as a part, and both times kept."""
    run, answer, work = contender.run, contender.answer, contender.work
    assert run is not None
    assert answer is not None

    def timed(given: Any) -> tuple[Any, float]:
        wall, cpu = time.perf_counter_ns(), time.process_time_ns()
        found = run(given)
        spent = (time.process_time_ns() - cpu) / 1e6
        clock.cpu = min(clock.cpu, spent)
        clock.wall = min(clock.wall, (time.perf_counter_ns() - wall) / 1e6)
        return found, spent

    return replace(
        contender,
        run=timed,
        answer=lambda pair: answer(pair[0]),
        work=lambda pair: work(pair[0]),
        parts=lambda pair: {CPU: pair[1]},
    )


def contenders(
    tabled: Tabled, question: Question, seed: int, clocks: dict[str, Clock] | None = None
) -> list[Contender]:
    """Everyone with keys of their own, the same in the same order; their times are put in ``clocks``."""
    clocks = {} if clocks is None else clocks

    def asked(*, cold: bool = True) -> Callable[[], str | None]:
        rng = np.random.default_rng((seed, len(question.name)))

        def prepare() -> str | None:
            if cold:
                tabled.forget()
            return question.make(tabled.made.shape, rng)

        return prepare

    def ours(where: str | None, lake: Any) -> Ours:
        return Ours(lake, lake.plan_files(where))

    def theirs(where: str | None) -> list[FileScanTask]:
        scan = tabled.table.scan() if where is None else tabled.table.scan(row_filter=where)
        return list(scan.plan_files())

    def their_work(tasks: list[FileScanTask]) -> Work:
        opened = tabled.io.opened
        return Work(len(tasks), sum(Path(path).stat().st_size for path in opened), len(opened))

    shared = tabled.lake()
    shared.plan_files(question.make(tabled.made.shape, np.random.default_rng(seed)))
    read = shared.io
    judged: dict[str, Any] = {"role": Role.OURS, "answer": Ours.answer}
    everyone = (
        Contender(OURS, lambda w: ours(w, tabled.lake()), prepare=asked(), work=Ours.work, **judged),
        Contender(
            INDEX, lambda w: ours(w, tabled.lake(index=True)), prepare=asked(), work=Ours.work, **judged
        ),
        Contender(
            OPEN,
            lambda w: ours(w, shared),
            prepare=asked(cold=False),
            work=lambda o: Work(len(o.plan), (o.lake.io - read).bytes, (o.lake.io - read).requests),
            **judged,
        ),
        Contender(PYICEBERG, theirs, prepare=asked(), answer=_theirs, work=their_work),
    )
    return [clocked(contender, clocks.setdefault(contender.name, Clock())) for contender in everyone]


# -- cases -------------------------------------------------------------------------------------


PROMISED = ((OURS, COLD_FACTOR, "cold"), (INDEX, WARM_FACTOR, "warm index"))


def _faster(clocks: Clocks, name: str, factor: float, how: str) -> Target:
    def measure(_result: CaseResult) -> float:
        return clocks[PYICEBERG].cpu / clocks[name].cpu

    return Target(f"{how}: {factor:g} × pyiceberg, in CPU time", factor, measure, least=True)


def cases(tabled: Tabled, bench: Bench, kept: dict[str, Clocks]) -> Iterator[Case]:
    """Every question that is asked for."""
    shape = tabled.made.shape
    size = f"{shape.files:,} files, {shape.manifests} manifests{', deletes' if tabled.deletes else ''}"
    for question in QUESTIONS:
        if bench.given.only in question.name:
            name, clocks = f"{question.name}, {size}", dict[str, Clock]()
            kept[name] = clocks
            asked = contenders(tabled, question, bench.seed, clocks)
            yield Case(name, asked, [_faster(clocks, *promise) for promise in PROMISED])


def draw_ratios(console: Console, kept: Mapping[str, Clocks]) -> None:
    """How many times faster than pyiceberg, by CPU time and by the clock, with the times themselves."""
    table = Table("least ms, CPU (clock)", title="Against pyiceberg: × in CPU time (by the clock)")
    for name in (PYICEBERG, *(name for name, _, _ in PROMISED)):
        table.add_column(name, justify="right")
    for case, clocks in kept.items():
        theirs = clocks[PYICEBERG]
        row = [f"{theirs.cpu:,.0f} ({theirs.wall:,.0f})"]
        for name, factor, _ in PROMISED:
            ours = clocks[name]
            ratio = theirs.cpu / ours.cpu
            missed = "" if ratio >= factor else " missed"
            row.append(
                f"{ours.cpu:,.1f} ({ours.wall:,.1f}): {ratio:.1f} × ({theirs.wall / ours.wall:.1f} ×){missed}"
            )
        table.add_row(case, *row)
    console.print(table)


def _run_table(bench: Bench, made: Made, kept: dict[str, Clocks], *, deletes: bool) -> None:
    tabled = Tabled(made, deletes, bench.given.data)
    index = sum(path.stat().st_size for path in tabled.kept.iterdir()) / 1e6
    what = f"{made.shape.deletes} delete files" if deletes else "no deletes"
    title = (
        f"{made.shape.files:,} files in {made.shape.manifests} manifests, {what}: manifests of "
        f"{made.metadata_bytes / 1e6:,.1f} MB, an index of {index:,.1f} MB (rows: files that are left)"
    )
    bench.section(title, cases(tabled, bench, kept))
    if bench.given.profile:
        profile(bench, tabled)


def profile(bench: Bench, tabled: Tabled) -> None:
    """Where our time goes, for each question, cold and with an index."""
    for question in QUESTIONS:
        if bench.given.only not in question.name:
            continue
        for contender in contenders(tabled, question, bench.seed):
            if contender.role is not Role.OURS or contender.run is None:
                continue
            given = contender.prepare()
            profiler = cProfile.Profile()
            profiler.runcall(contender.run, given)
            bench.console.print(f"\n{contender.name}: {question.name}", style="bold")
            pstats.Stats(profiler).sort_stats("tottime").print_stats(PROFILED)


# -- association -------------------------------------------------------------------------------


def association(tabled: Tabled, name: str, *, alone: bool) -> Case:
    """Delete files matched to data files, when the entries of both are at hand."""

    def entries() -> list[ManifestEntry]:
        snapshot = tabled.table.current_snapshot()
        assert snapshot is not None
        listed = snapshot.manifests(tabled.io)
        return [entry for manifest in listed for entry in manifest.fetch_manifest_entry(tabled.io)]

    def theirs(given: list[ManifestEntry]) -> list[tuple[Any, Any]]:
        index = DeleteFileIndex()
        data = []
        for entry in given:
            if entry.data_file.content == DataFileContent.DATA:
                data.append(entry)
            else:
                index.add_delete_file(entry, entry.data_file.partition)
        return [
            (e.data_file, index.for_data_file(e.sequence_number or 0, e.data_file, e.data_file.partition))
            for e in data
        ]

    def opened() -> Any:
        # Anew, so that no bound has been read yet.
        tabled.forget()
        lake = tabled.lake()
        return lake, lake.inventory.everything[0], lake.delete_inventory.everything[0]

    def ours(given: Any) -> Any:
        lake, data, deletes = given
        return data, DeleteIndex.of(deletes).match(data, lake.file_facts)

    def our_pairs(found: Any) -> Any:
        data, matched = found
        owners, numbers = matched.positions.pairs(np.arange(len(data)))
        paths = data.paths.to_pylist(), matched.deletes.paths.to_pylist()
        return {(paths[0][a], paths[1][b]) for a, b in zip(owners.tolist(), numbers.tolist(), strict=True)}

    def their_pairs(found: Any) -> Any:
        return {(file.file_path, d.file_path) for file, deletes in found for d in deletes}

    limit = Target(f"association below {ASSOCIATION_MS:g} ms", ASSOCIATION_MS, lambda result: result.ms(OURS))
    everyone = [
        Contender(OURS, ours, Role.OURS, prepare=opened, answer=our_pairs),
        Contender(PYICEBERG, theirs, prepare=entries, answer=their_pairs),
    ]
    return Case(name, [clocked(one, Clock()) for one in everyone[: 1 if alone else 2]], [limit])


def _run_association(bench: Bench, files: int, deletes: int) -> None:
    def cases() -> Iterator[Case]:
        for ranges, words in ((True, "each of a range of files"), (False, "each of all files")):
            made = made_table(
                crowded(files, deletes, ranges=ranges), bench.seed, bench.given.data, bench.console
            )
            tabled = Tabled(made, True, bench.given.data)
            name = f"full, {files:,} files × {deletes} deletes, {words}"
            yield association(tabled, name, alone=bench.quick)

    title = "Association: which delete files apply to which files, all of one partition"
    bench.section(title, cases())


# -- running -----------------------------------------------------------------------------------


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--files", type=_numbers, metavar="N,N", help="sizes of the tables")
    parser.add_argument("--manifests", type=_numbers, metavar="N,N", help="into how many manifests")
    parser.add_argument("--only", metavar="TEXT", default="", help="questions with TEXT in their name")
    parser.add_argument("--profile", action="store_true", help="where our time goes")
    parser.add_argument("--data", type=Path, default=DATA, metavar="DIR", help="where tables are kept")


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.replace("_", "").split(","))


def main(argv: Sequence[str] | None = None, pace: Pace | None = None, crowd: tuple[int, int] = CROWD) -> None:
    """Every size, then the association; ``pace`` and ``crowd`` are for tests."""
    about = "Plans of whole files on Iceberg tables, against pyiceberg's plan_files."
    bench = Bench.of("iceberg_planning", about, argv, pace, _options)
    usual = QUICK_PACE if bench.quick else PACE
    kept: dict[str, Clocks] = {}
    for files in bench.given.files or (QUICK_FILES if bench.quick else FILES):
        for count in bench.given.manifests or (QUICK_MANIFESTS if bench.quick else MANIFESTS):
            made = made_table(evolved(files, count), bench.seed, bench.given.data, bench.console)
            for deletes in (False, True):
                large = ONCE if deletes else LARGE_PACE
                bench.pace = pace or (large if files >= LARGE else usual)
                _run_table(bench, made, kept, deletes=deletes)
    bench.pace = pace or LARGE_PACE
    _run_association(bench, *crowd)
    draw_ratios(bench.console, kept)
    bench.finish()


if __name__ == "__main__":
    main()
