"""Who plans and runs compactions: Skipstone, pyiceberg's entries walked in Python, Spark and DuckDB."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.parser import parse
from pyiceberg.expressions.visitors import expression_evaluator, inclusive_projection, manifest_evaluator
from pyiceberg.manifest import DataFile, DataFileContent, ManifestContent, ManifestEntry
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable
from pyiceberg.table.delete_file_index import DeleteFileIndex

from benchmarks.harness import OURS, Case, CaseResult, Contender, Role, Target, Work
from benchmarks.iceberg_planning import INDEX, OPEN, PYICEBERG, QUESTIONS, Question, Tabled
from benchmarks.peers import DUCKDB, THREADS
from benchmarks.small_files import LEVEL, SmallFiles, data_files, digest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STRATEGIES: Mapping[str, tuple[str, ...]] = {
    "binpack": (),
    "sort": ("user_id",),
    "zorder": ("user_id", "ts"),
    "hilbert": ("user_id", "ts"),
}
SPARK, OURS_SPARK = "spark", "skipstone, Spark"
PLANNING_FACTOR, SPARK_FACTOR = 20.0, 1.0


# -- planning ----------------------------------------------------------------------------------

TARGET = 64 << 20
LEAST, MOST, FEWEST = int(TARGET * 0.75), int(TARGET * 1.8), 5
"""The defaults for files of that size: smaller and larger ones are rewritten, groups of fewer files not."""

Group = tuple[int, tuple[Any, ...], frozenset[str]]


def walk(table: StaticTable, where: str | None, threshold: int | None) -> list[Group]:
    """The groups to rewrite, by pyiceberg's manifest entries one by one."""
    snapshot = table.current_snapshot()
    assert snapshot is not None
    schema, specs = table.schema(), table.specs()
    asked: BooleanExpression = AlwaysTrue() if where is None else parse(where)
    filters = {number: inclusive_projection(schema, spec)(asked) for number, spec in specs.items()}
    manifests = {number: manifest_evaluator(spec, schema, filters[number]) for number, spec in specs.items()}
    partitions = {
        number: expression_evaluator(Schema(*spec.partition_type(schema).fields), filters[number], True)
        for number, spec in specs.items()
    }
    deletes = DeleteFileIndex()
    entries: list[ManifestEntry] = []
    for manifest in snapshot.manifests(table.io):
        spec_id = manifest.partition_spec_id
        if manifest.content == ManifestContent.DATA and not manifests[spec_id](manifest):
            continue
        if manifest.content == ManifestContent.DELETES and threshold is None:
            continue
        for entry in manifest.fetch_manifest_entry(table.io):
            file = entry.data_file
            if file.content != DataFileContent.DATA:
                deletes.add_delete_file(entry, file.partition)
            elif partitions[spec_id](file.partition):
                entries.append(entry)
    groups: dict[tuple[int, tuple[Any, ...]], list[DataFile]] = defaultdict(list)
    burdened: set[str] = set()
    for entry in entries:
        file = entry.data_file
        if threshold is not None:
            found = deletes.for_data_file(entry.sequence_number or 0, file, file.partition)
            if len(found) >= threshold:
                burdened.add(file.file_path)
        if file.file_path in burdened or not LEAST <= file.file_size_in_bytes <= MOST:
            groups[file.spec_id, tuple(file.partition)].append(file)
    return [
        (*key, frozenset(file.file_path for file in files))
        for key, files in groups.items()
        if _is_worth_it(files, burdened)
    ]


def _is_worth_it(files: Sequence[DataFile], burdened: set[str]) -> bool:
    total = sum(file.file_size_in_bytes for file in files)
    if total > MOST or any(file.file_path in burdened for file in files):
        return True
    return len(files) > 1 and (len(files) >= FEWEST or total > TARGET)


def _plan(lake: Any, where: str | None, threshold: int | None) -> Any:
    return lake.plan_compaction(where, target_file_size_bytes=TARGET, delete_file_threshold=threshold)


def _groups(plan: Any) -> frozenset[Group]:
    return frozenset(
        (group.key.spec_id, group.key.partition or (), frozenset(group.paths.to_pylist()))
        for group in plan.groups
    )


def planning_cases(tabled: Tabled, seed: int) -> Iterator[Case]:
    """All files, and a tenth of the days; with deletes, files that have any are rewritten too."""
    shape, threshold = tabled.made.shape, 1 if tabled.deletes else None
    size = f"{shape.files:,} files, {shape.manifests} manifests{', deletes' if tabled.deletes else ''}"
    for question in QUESTIONS:
        if question.name not in ("full, no filter", "range, 10 % of the days"):
            continue
        everyone = _planners(tabled, question, seed, threshold)
        text = f"index: {PLANNING_FACTOR:g} × {PYICEBERG}, in CPU time"
        promise = Target(text, PLANNING_FACTOR, lambda found: found.cpu_speedup_of(INDEX) or 0.0, least=True)
        yield Case(f"{question.name}, {size}", everyone, [promise])


def _planners(tabled: Tabled, question: Question, seed: int, threshold: int | None) -> list[Contender]:
    """Everyone with filters of their own, the same in the same order."""

    def asked(*, cold: bool = True) -> Callable[[], str | None]:
        rng = np.random.default_rng((seed, len(question.name)))

        def prepare() -> str | None:
            if cold:
                tabled.forget()
            return question.make(tabled.made.shape, rng)

        return prepare

    def ours(name: str, lake: Callable[[], Any], *, cold: bool = True) -> Contender:
        return Contender(
            name,
            lambda where: _plan(lake(), where, threshold),
            Role.OURS,
            prepare=asked(cold=cold),
            answer=_groups,
            work=lambda plan: Work(plan.files),
        )

    shared = tabled.lake()
    return [
        ours(OURS, tabled.lake),
        ours(INDEX, partial(tabled.lake, index=True)),
        ours(OPEN, lambda: shared, cold=False),
        Contender(
            PYICEBERG,
            lambda where: walk(tabled.table, where, threshold),
            prepare=asked(),
            answer=frozenset,
            work=lambda groups: Work(sum(len(files) for _, _, files in groups)),
        ),
    ]


# -- rewriting ---------------------------------------------------------------------------------


@dataclass(slots=True)
class Copies:
    """Copies of a table that are compacted; the latest of each strategy stays."""

    made: SmallFiles
    scratch: Path
    target: int
    latest: dict[str, Any] = field(default_factory=dict)
    """Compacted tables by strategy."""
    reports: dict[str, Any] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=count)

    def folder(self) -> Path:
        """A folder for a copy."""
        return self.scratch / f"copy-{next(self._numbers)}"

    def new(self) -> Any:
        """A copy."""
        return self.made.copy(self.folder(), self.target)

    def plan(self, table: Any, strategy: str) -> Any:
        """The plan of a copy."""
        return table.plan_compaction(strategy=strategy, sort_by=STRATEGIES[strategy])

    def compact(self, strategy: str, table: Any, engine: Any) -> Any:
        """Compact a copy."""
        options = {"threads": THREADS} if engine == "local" else {}
        report = table.compact(self.plan(table, strategy), engine=engine, **options)
        name = f"{strategy}, {report.engine.name}"
        self.latest[name], self.reports[name] = table, report
        return table


def _sorting(strategy: str) -> str:
    columns = STRATEGIES[strategy]
    return f"ORDER BY {', '.join(columns)}" if columns else ""


def _by_duckdb(copies: Copies, strategy: str, folder: Path) -> list[str]:
    size = f"FILE_SIZE_BYTES '{copies.target}B'"
    to = f"TO '{folder}' (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL {LEVEL}, {size})"
    rows = f"SELECT * FROM read_parquet($1) {_sorting(strategy)}"
    with closing(duckdb.connect(config={"threads": THREADS})) as connection:
        connection.execute(f"COPY ({rows}) {to}", [copies.made.files])
    return sorted(map(str, folder.glob("*.parquet")))


def _by_spark(copies: Copies, strategy: str, session: SparkSession, files: int, folder: Path) -> list[str]:
    frame = session.read.parquet(*copies.made.files)
    columns = STRATEGIES[strategy]
    if columns:
        frame = frame.repartitionByRange(files, *columns).sortWithinPartitions(*columns)
    else:
        frame = frame.coalesce(files)
    level = {"compression": "zstd", "parquet.compression.codec.zstd.level": LEVEL}
    frame.write.options(**level).parquet(str(folder))
    return sorted(map(str, folder.glob("*.parquet")))


def rewrite_case(copies: Copies, strategies: Sequence[str], session: SparkSession) -> Case:
    """The same rows in fewer files, by everyone; peers do the same for all of these strategies."""
    made, first = copies.made, strategies[0]
    files = copies.plan(copies.new(), first).expected_files
    numbers = count()

    def folder() -> Path:
        # What was written before must not fill the disk.
        shutil.rmtree(copies.scratch / "peers", ignore_errors=True)
        found = copies.scratch / "peers" / str(next(numbers))
        found.parent.mkdir(parents=True)
        return found

    def work(paths: Sequence[str]) -> Work:
        return Work(made.events.rows, sum(Path(path).stat().st_size for path in paths))

    def ours(name: str, strategy: str, engine: Any) -> Contender:
        return Contender(
            name,
            lambda table: copies.compact(strategy, table, engine),
            Role.OURS,
            copies.new,
            lambda table: digest(data_files(table)),
            lambda table: work(data_files(table)),
        )

    own = {OURS if strategy == first else f"{OURS}, {strategy}": strategy for strategy in strategies}
    peers: dict[str, Any] = {"prepare": folder, "answer": digest, "work": work}
    everyone = [
        *(ours(name, strategy, "local") for name, strategy in own.items()),
        ours(OURS_SPARK, first, session),
        Contender(SPARK, lambda to: _by_spark(copies, first, session, files, to), **peers),
        Contender(DUCKDB, lambda to: _by_duckdb(copies, first, to), **peers),
    ]
    promises = [
        Target(f"{name} ≥ {SPARK_FACTOR:g} × spark", SPARK_FACTOR, partial(_against_spark, name), least=True)
        for name in (*own, OURS_SPARK)
    ]
    return Case(
        f"full rewrite, {' and '.join(strategies)}, {len(made.files):,} files → {files}",
        everyone,
        promises,
        figure=lambda ms: f"{made.bytes / ms / 1e3:,.1f}",
    )


def _against_spark(name: str, found: CaseResult) -> float:
    """By time or by CPU time, whichever is worse."""
    ours, spark = found.contenders[name].cpu_ms, found.contenders[SPARK].cpu_ms
    assert ours
    assert spark
    return min(found.ms(SPARK) / found.ms(name), spark / ours)
