"""``python -m benchmarks.planning``: which files may hold a match, by an index of up to ten million of them.

Two parts (``--part``). *index*: indexes without a lake (:mod:`benchmarks.synthetic`, ``--files``), twenty
columns each, made once under ``.bench/``. A plan compiles the predicate and gives the files that are left and
their row groups that may match, through the code that a scan's planner runs; each answer is first checked
against arithmetic that never saw the index. *Warm*: the index is open and was asked the like for other keys;
each repetition asks for new ones. *Cold*: the first plan of a process of its own, from opening the manifest
on (imports are not counted), once after posix_fadvise has dropped the index from the system's page cache
(*dropped*; what came from disk is shown), and once more with what it touches still there (*cached*). Memory
is what that process grew by, what was read of the index included. NumPy, for scale, compares all bounds,
which it has in memory, and compiles nothing.

*peers*: lakes of 1,000 and 10,000 tiny files that all can list, and what others take to plan a point query.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.box import SIMPLE_HEAD
from rich.table import Table

import skipstone as sk
from benchmarks.harness import (
    OURS,
    Bench,
    Case,
    CaseResult,
    Disagreement,
    Measured,
    Pace,
    Role,
    Target,
    Work,
)
from benchmarks.lakes import DATA
from benchmarks.synthetic import BY_NAME, STEP, Alone, Array, Column, Synthetic, schema, synthetic_index
from skipstone.core.ir import compile_predicate
from skipstone.core.ir.nodes import ColumnRef
from skipstone.core.judge import Verdict, judge
from skipstone.predicate import predicate as to_predicate
from skipstone.prune.survey import Survey

FILES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
PEER_FILES = (1_000, 10_000)
PARTS = ("index", "peers")
KEYS = 10_000
RANGE_FILES = 100
PACE = Pace(seconds=3.0, least=21, most=41)
PEER_PACE = Pace(seconds=10.0, least=5, most=41)
BY_HAND = "numpy by hand"
COLD, DROPPED = "cold, cached", "cold, dropped"
COLD_TIMES = 3
COLD_FACTOR = 10
MEMORY = 400e6


# -- plans -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Planned:
    """The files that are left, and how many of their row groups may match."""

    files: Array
    groups: int


def plan(index: Alone, where: Any) -> Planned:
    """What the planner does, down to row groups."""
    compiled = compile_predicate(to_predicate(where), schema(), case_sensitive=False)
    node = compiled.node
    refs = list({ref.path: ColumnRef(ref.path, ref.type) for ref in node.refs()}.values())
    if index.small:
        survey, files = index.survey
    else:
        chosen = index.prune_segments(node, refs, None, {}).kept
        survey = Survey.joined([index.part(segment, rows) for segment, rows in chosen])
        numbers = [index.files_of(segment, rows) for segment, rows in chosen]
        files = np.concatenate([index.every[:0], *numbers])
    verdicts = judge(node, survey.evidence(refs)).verdicts()
    matching = verdicts != Verdict.NONE
    return Planned(files[np.unique(survey.owners[matching])], int(matching.sum()))


class Index(Alone):
    """With what the planner keeps of a small lake."""

    @cached_property
    def survey(self) -> tuple[Survey, Array]:
        """All row groups, and the number of each file."""
        known = self.rows_of(self.every)
        numbers = [self.files_of(segment, rows) for segment, rows in known]
        return Survey.joined([self.part(*pair) for pair in known]), np.concatenate(numbers)


# -- questions ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Part:
    """A column and the spans of positions that are asked for."""

    column: Column
    lows: Array
    highs: Array

    def where(self) -> Any:
        """As a predicate."""
        name = self.column.name
        if len(self.lows) > 1:
            return sk.col(name).isin(pa.array(self.lows))
        low, high = self.column.sql(int(self.lows[0])), self.column.sql(int(self.highs[0]))
        return f"{name} = {low}" if low == high else f"{name} >= {low} AND {name} <= {high}"


Asked = tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Shape:
    """A kind of question, and the promised milliseconds by the number of files."""

    name: str
    make: Callable[[Synthetic, np.random.Generator], Asked]
    promised: dict[int, float]


def _point(column: str) -> Callable[[Synthetic, np.random.Generator], Asked]:
    def make(synthetic: Synthetic, rng: np.random.Generator) -> Asked:
        at = rng.integers(0, synthetic.span, 1)
        return (Part(BY_NAME[column], at, at),)

    return make


def _range(column: str, share: float | None) -> Callable[[Synthetic, np.random.Generator], Asked]:
    def make(synthetic: Synthetic, rng: np.random.Generator) -> Asked:
        files = RANGE_FILES if share is None else max(int(synthetic.files * share), 1)
        at = rng.integers(0, max(synthetic.span - files * STEP, 1), 1)
        return (Part(BY_NAME[column], at, at + files * STEP - 1),)

    return make


def _keys(column: str) -> Callable[[Synthetic, np.random.Generator], Asked]:
    def make(synthetic: Synthetic, rng: np.random.Generator) -> Asked:
        keys = np.unique(rng.integers(0, synthetic.span, KEYS))
        return (Part(BY_NAME[column], keys, keys),)

    return make


def _both(*makers: Callable[[Synthetic, np.random.Generator], Asked]) -> Any:
    def make(synthetic: Synthetic, rng: np.random.Generator) -> Asked:
        return tuple(part for maker in makers for part in maker(synthetic, rng))

    return make


_POINT = {1_000_000: 5.0, 10_000_000: 25.0}
_IN = {1_000_000: 40.0, 10_000_000: 400.0}
_TWO = {10_000_000: 100.0}
SHAPES = (
    Shape("point, clustered, ts", _point("ts"), _POINT),
    Shape("point, spread, id", _point("id"), _POINT),
    Shape("point, spread, customer", _point("customer"), _POINT),
    Shape(f"range, clustered, ts, {RANGE_FILES} files", _range("ts", None), {}),
    Shape(f"range, spread, id, {RANGE_FILES} files", _range("id", None), {}),
    Shape(f"point IN ({KEYS:,}), clustered, seq", _keys("seq"), _IN),
    Shape(f"point IN ({KEYS:,}), spread, id", _keys("id"), _IN),
    Shape("point AND, id and 1 % of ts", _both(_point("id"), _range("ts", 0.01)), _TWO),
    Shape("range AND, 1 % of id and 1 % of ts", _both(_range("id", 0.01), _range("ts", 0.01)), _TWO),
    Shape("full AND, user_id and 1 % of ts", _both(_point("user_id"), _range("ts", 0.01)), {}),
)


def where_of(asked: Asked) -> Any:
    """Of one part its own predicate, of several their conjunction."""
    return asked[0].where() if len(asked) == 1 else " AND ".join(part.where() for part in asked)


# -- by hand -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ByHand:
    """All bounds of the columns of a question in memory, and the least array work that answers it."""

    bounds: dict[str, tuple[Array, Array]]

    @classmethod
    def of(cls, synthetic: Synthetic, asked: Asked) -> ByHand:
        columns = {part.column.name: part.column for part in asked}
        return cls({name: synthetic.bounds(column, 0, synthetic.files) for name, column in columns.items()})

    def plan(self, asked: Asked) -> Array:
        """The files that are left."""
        masks = [self._meets(part, *self.bounds[part.column.name]) for part in asked]
        return np.flatnonzero(np.logical_and.reduce(masks))

    @staticmethod
    def _meets(part: Part, low: Array, high: Array) -> Array:
        if len(part.lows) == 1:
            found: Array = (low <= part.highs[0]) & (high >= part.lows[0])
            return found
        first = np.searchsorted(part.lows, low, side="left")
        return first < np.searchsorted(part.lows, high, side="right")


def checked(shape: Shape, synthetic: Synthetic, index: Index, asked: Asked) -> Planned:
    """The plan, once it names just the files whose bounds meet the question; none may be missing or more."""
    found = plan(index, where_of(asked))
    masks = [synthetic.meets(part.column, part.lows, part.highs) for part in asked]
    expected = np.flatnonzero(np.logical_and.reduce(masks))
    # Halves of a file's range can rule a file out that its whole range doesn't: only of two columns.
    same = np.array_equal(found.files, expected)
    fewer = len(asked) > 1 and synthetic.groups > 1 and np.isin(found.files, expected).all()
    if not same and not fewer:
        counts = f"{len(found.files):,} files instead of {len(expected):,}"
        raise Disagreement(f"{shape.name}, {synthetic.files:,} files: {counts}")
    return found


# -- cold --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cold:
    """The first plan of a process."""

    open_ms: float
    plan_ms: float
    resident: int
    """Bytes that the process grew by."""
    peak: int
    disk: int | None
    """Bytes that came from the disk, where the system tells."""

    @property
    def ms(self) -> float:
        """From nothing to the plan."""
        return self.open_ms + self.plan_ms


def plan_cold(folder: Path, where: Any) -> Cold:
    """Open the index and plan once; in a process that has done nothing else."""
    before, disk = _resident(), _from_disk()
    began = time.perf_counter()
    index = Index.of(folder)
    opened = time.perf_counter()
    plan(index, where)
    done = time.perf_counter()
    after = _from_disk()
    return Cold(
        (opened - began) * 1e3,
        (done - opened) * 1e3,
        _resident() - before,
        _peak() - before,
        None if disk is None or after is None else after - disk,
    )


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _peak() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def _from_disk() -> int | None:
    try:
        return int(Path("/proc/self/io").read_text().split("read_bytes:")[1].split()[0])
    except OSError:
        return None


def drop_from_cache(folder: Path) -> None:
    """Ask the system to forget the files' pages."""
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def in_process(folder: Path, files: int, shape: int, seed: int) -> Cold:
    """A cold plan in a process of its own."""
    given = [str(folder), str(files), str(shape), str(seed)]
    command = [sys.executable, "-m", "benchmarks.planning", "--cold", *given]
    root = Path(__file__).resolve().parents[1]
    ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=root)
    return Cold(**json.loads(ran.stdout))


def _cold_main(folder: str, files: str, shape: str, seed: str) -> None:
    synthetic = Synthetic(int(files))
    asked = SHAPES[int(shape)].make(synthetic, np.random.default_rng(int(seed)))
    where = where_of(asked)
    # Both are part of starting, not of planning: parsing's first run builds the parser's tables.
    compile_predicate(to_predicate("id = 1"), schema(), case_sensitive=False)
    print(json.dumps(asdict(plan_cold(Path(folder), where))))


# -- the index part ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Found:
    """One question's figures."""

    shape: Shape
    planned: Planned
    warm: Measured
    hand: Measured
    colds: dict[str, list[Cold]]

    def cold_ms(self, kind: str) -> float:
        """The median."""
        return statistics.median(run.ms for run in self.colds[kind])

    @property
    def runs(self) -> list[Cold]:
        """All cold plans."""
        return [run for runs in self.colds.values() for run in runs]

    def result(self, synthetic: Synthetic) -> CaseResult:
        """As other benchmarks have it; memory goes for bytes of a contender that is not timed."""
        contenders = {OURS: self.warm, BY_HAND: self.hand}
        for kind, runs in self.colds.items():
            disk = max((run.disk for run in runs if run.disk is not None), default=None)
            ms = [run.ms for run in runs]
            contenders[kind] = Measured(
                Role.REFERENCE, statistics.median(ms), min(ms), Work(self.warm.work.rows, disk)
            )
        if self.colds:
            peak = max(run.peak for run in self.runs)
            contenders["cold, peak memory"] = Measured(Role.REFERENCE, None, None, Work(bytes=peak))
        name = f"{self.shape.name}, {synthetic.files:,} files"
        return CaseResult(Case(name, (), list(self.targets(synthetic))), contenders)

    def targets(self, synthetic: Synthetic) -> Iterator[Target]:
        """What is promised for this many files."""
        limit = self.shape.promised.get(synthetic.files)
        if limit is not None:
            yield Target(f"warm ≤ {limit:g} ms", limit, lambda result: result.ms(OURS))
            for kind in self.colds:
                far = COLD_FACTOR * limit
                yield Target(f"{kind} ≤ {far:g} ms", far, lambda result, kind=kind: result.ms(kind))
        one_column = len(self.shape.make(synthetic, np.random.default_rng(0))) == 1
        if self.colds and one_column and synthetic.files == FILES[-1]:
            grown = max(run.resident for run in self.runs) / 1e6
            yield Target(f"memory ≤ {MEMORY / 1e6:g} MB", MEMORY / 1e6, lambda _result: grown)


def find(bench: Bench, synthetic: Synthetic, folder: Path) -> list[Found]:
    """Every kind of question, warm, then cold: by then the index is closed, and its pages can be dropped."""
    found = list(_find_warm(bench, synthetic, folder))
    gc.collect()
    if bench.given.no_cold:
        return found
    cold = []
    for one in found:
        with bench.console.status(f"cold {one.shape.name}, {synthetic.files:,} files"):
            cold.append(replace(one, colds=_colds(bench, folder, synthetic, SHAPES.index(one.shape))))
    return cold


def _find_warm(bench: Bench, synthetic: Synthetic, folder: Path) -> Iterator[Found]:
    index = Index.of(folder)
    for number, shape in enumerate(SHAPES):
        if bench.given.only not in shape.name:
            continue
        with bench.console.status(f"warm {shape.name}, {synthetic.files:,} files"):
            rng = np.random.default_rng((bench.seed, number))
            asked = shape.make(synthetic, rng)
            planned = checked(shape, synthetic, index, asked)
            times = _warm(bench, synthetic, shape, index, rng)
            hand = _by_hand(synthetic, shape, asked, rng)
        yield Found(shape, planned, Measured(Role.OURS, *times, Work(rows=len(planned.files))), hand, {})


def _warm(
    bench: Bench, synthetic: Synthetic, shape: Shape, index: Index, rng: np.random.Generator
) -> tuple[float, float]:
    times: list[float] = []
    began = time.perf_counter()
    for done in range(bench.pace.most):
        if done >= bench.pace.least and time.perf_counter() - began > bench.pace.seconds:
            break
        where = where_of(shape.make(synthetic, rng))
        start = time.perf_counter()
        plan(index, where)
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times), min(times)


def _by_hand(synthetic: Synthetic, shape: Shape, first: Asked, rng: np.random.Generator) -> Measured:
    hand = ByHand.of(synthetic, first)
    times = []
    for asked in (first, *(shape.make(synthetic, rng) for _ in range(4))):
        start = time.perf_counter()
        found = hand.plan(asked)
        times.append((time.perf_counter() - start) * 1e3)
    return Measured(Role.REFERENCE, statistics.median(times), min(times), Work(rows=len(found)))


def _colds(bench: Bench, folder: Path, synthetic: Synthetic, shape: int) -> dict[str, list[Cold]]:
    """With the index in the page cache, and dropped from it."""
    found: dict[str, list[Cold]] = {COLD: [], DROPPED: []}
    for time_ in range(COLD_TIMES):
        drop_from_cache(folder)
        seed = bench.seed + time_
        found[DROPPED].append(in_process(folder, synthetic.files, shape, seed))
        # The same question once more: what it touches is in the page cache now.
        found[COLD].append(in_process(folder, synthetic.files, shape, seed))
    return found


# -- running -----------------------------------------------------------------------------------


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--part", nargs="+", choices=PARTS, default=PARTS, help="which parts")
    parser.add_argument("--files", type=_numbers, metavar="N,N", help="sizes of the indexes")
    parser.add_argument("--only", metavar="TEXT", default="", help="questions with TEXT in their name")
    parser.add_argument("--no-cold", action="store_true", help="warm plans only")
    parser.add_argument("--data", type=Path, default=DATA, metavar="DIR", help="where indexes are kept")


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(float(part)) for part in text.replace("_", "").split(","))


def main(argv: Sequence[str] | None = None, pace: Pace | None = None) -> None:
    """Run the parts that are asked for; ``pace`` is for tests."""
    argv = sys.argv[1:] if argv is None else argv
    if argv[:1] == ["--cold"]:
        _cold_main(*argv[1:])
        return
    about = "Plans by an index of up to ten million files, and against other planners."
    bench = Bench.of("planning", about, argv, pace or PACE, _options)
    files = bench.given.files or (FILES[:3] if bench.quick else FILES)
    if "index" in bench.given.part:
        for count in files:
            _run_index(bench, count)
    if "peers" in bench.given.part:
        from benchmarks.planners import run_planners

        bench.pace = pace or PEER_PACE
        sizes = bench.given.files or (PEER_FILES[:1] if bench.quick else PEER_FILES)
        run_planners(bench, [size for size in sizes if size <= PEER_FILES[-1]])
    bench.finish()


def _run_index(bench: Bench, count: int) -> None:
    synthetic = Synthetic(count, bench.seed)
    folder = synthetic_index(synthetic, bench.given.data, bench.console)
    found = find(bench, synthetic, folder)
    if found:
        size = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
        each = "one row group" if synthetic.groups == 1 else f"{synthetic.groups} row groups"
        title = f"{count:,} files of {each}, 20 columns: an index of {size:,.0f} MB"
        _draw(bench, title, synthetic, found)
    bench.results += [one.result(synthetic) for one in found]


def _draw(bench: Bench, title: str, synthetic: Synthetic, found: Sequence[Found]) -> None:
    table = Table(title=title, title_justify="left", title_style="bold", header_style="dim", box=SIMPLE_HEAD)
    table.add_column("question", no_wrap=True)
    heads = (
        "files kept",
        "warm ms",
        "target",
        "cached ms",
        "dropped ms",
        "target",
        "disk MB",
        "MB",
        "peak MB",
        "numpy ms",
    )
    for name in heads:
        table.add_column(name, justify="right")
    for one in found:
        limit = one.shape.promised.get(synthetic.files)
        warm, numpy_ms = one.warm.ms, one.hand.ms
        assert warm is not None
        assert numpy_ms is not None
        cold = ["–"] * 6
        if one.colds:
            disk = [run.disk for run in one.colds[DROPPED] if run.disk is not None]
            cold = [
                f"{one.cold_ms(COLD):,.1f}",
                f"{one.cold_ms(DROPPED):,.1f}",
                _promise(limit and limit * COLD_FACTOR, one.cold_ms(DROPPED)),
                f"{max(disk) / 1e6:,.1f}" if disk else "–",
                f"{max(run.resident for run in one.runs) / 1e6:,.0f}",
                f"{max(run.peak for run in one.runs) / 1e6:,.0f}",
            ]
        kept = f"{len(one.planned.files):,}"
        row = [one.shape.name, kept, f"{warm:,.2f}", _promise(limit, warm), *cold, f"{numpy_ms:,.1f}"]
        table.add_row(*row)
    bench.console.print(table)


def _promise(limit: float | None, found: float) -> str:
    if limit is None:
        return "–"
    return f"{limit:g} {'reached' if found < limit else 'NOT REACHED'}"


if __name__ == "__main__":
    main()
