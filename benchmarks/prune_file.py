"""``python -m benchmarks.prune_file``: what it costs to find the row groups and rows of one file that matter.

The shapes are Aisle's: 10, 100 and 1,000 row groups of 1,000 rows; ``ts`` ascends (*clustered*), ``id`` is
random (*spread*) and has bloom filters. Four parts: parsing the footer, judging a footer that is parsed
(first use of a column is *cold*, repeated use *warm*), the whole way from the path, and the query with
skipping off and on. Where peers answer, they must name the same row groups or rows.

Polars prunes but tells nobody which row groups it kept, so it takes part in the last section only. Bytes
and requests of pyarrow are counted by reading through a Python file in a run of its own, which is not
timed; DuckDB's and Polars' can't be counted. Threads are the peers' own defaults.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import skipstone as sk
from benchmarks.files import ROWS, STEP, DataFile, counted, write_data, write_footer
from benchmarks.harness import OURS, Bench, Case, CaseResult, Contender, Pace, Role, Target, Work
from skipstone.parquet.metadata import ParquetMetadata, parse_footer, read_footer
from skipstone.parquet.pageindex import page_index_ranges, parse_page_index
from skipstone.store.source import open_source

FEW_CHUNKS, RATIO_FEW, RATIO_MANY = 500, 2.0, 4.0
MANY_GROUPS, EVALUATION_MS = 1_000, 1.0
LOOP, DATASET, DUCKDB, POLARS = "pyarrow loop", "pyarrow.dataset", "duckdb", "polars"


@dataclass(frozen=True, slots=True)
class Sizes:
    """Row groups of the data files, and (row groups, columns) of the files with a footer to parse."""

    groups: Sequence[int]
    footers: Sequence[tuple[int, int]]
    pace: Pace | None = None


FULL = Sizes((10, 100, 1_000), ((1, 8), (10, 8), (50, 8), (100, 20), (200, 100)))
QUICK = Sizes((10, 100, 1_000), ((1, 8), (10, 8), (50, 8), (100, 20)))


@dataclass(frozen=True, slots=True)
class Question:
    """One predicate on one column in each language; ``spans`` are its closed spans of values."""

    name: str
    sql: str
    column: str
    spans: Sequence[tuple[int, int]]

    @property
    def arrow(self) -> pc.Expression:
        """For pyarrow."""
        field = ds.field(self.column)
        (low, high), *more = self.spans
        if more:
            return field.isin([key for key, _ in self.spans])
        return field == low if low == high else (field >= low) & (field <= high)

    @property
    def polars(self) -> pl.Expr:
        """For Polars."""
        (low, high), *more = self.spans
        column = pl.col(self.column)
        return column.is_in([key for key, _ in self.spans]) if more else column.is_between(low, high)

    def bounds_sql(self) -> str:
        """For DuckDB's table of statistics, whose bounds are text."""
        low, high = (f"TRY_CAST(stats_{end}_value AS BIGINT)" for end in ("min", "max"))
        parts = (f"({low} <= {greatest} AND {high} >= {least})" for least, greatest in self.spans)
        return f"path_in_schema = '{self.column}' AND ({' OR '.join(parts)})"


# -- the footer --------------------------------------------------------------------------------


def footer_case(path: str, chunks: int) -> Case:
    """Parse a footer: ours against pyarrow's, and DuckDB's table of it."""

    def ours(_given: Any) -> ParquetMetadata:
        return read_footer(open_source(path))

    def ours_work(_metadata: ParquetMetadata) -> Work:
        source = open_source(path)
        read_footer(source)
        return Work(_metadata.num_rows, source.counter.bytes, source.counter.requests)

    def shape(metadata: Any) -> tuple[int, int]:
        groups = (
            metadata.row_group_count if isinstance(metadata, ParquetMetadata) else metadata.num_row_groups
        )
        return metadata.num_rows, groups

    connection = duckdb.connect()
    query = f"SELECT * FROM parquet_metadata('{path}')"
    limit = RATIO_FEW if chunks < FEW_CHUNKS else RATIO_MANY

    def ratio(found: CaseResult) -> float:
        return found.ms(OURS) / found.ms("pyarrow")

    return Case(
        f"cold footer of {chunks:,} chunks",
        [
            Contender(OURS, ours, Role.OURS, answer=shape, work=ours_work),
            Contender(
                "pyarrow",
                lambda _given: pq.read_metadata(path),
                answer=shape,
                work=lambda metadata: Work(metadata.num_rows, *counted(path, pq.read_metadata)),
            ),
            Contender(DUCKDB, lambda _given: connection.sql(query).to_arrow_table()),
        ],
        [Target(f"≤ {limit:g} × pyarrow", limit, ratio)],
    )


# -- questions ---------------------------------------------------------------------------------


def questions(file: DataFile, rng: np.random.Generator) -> Iterator[Question]:
    """Look-ups and ranges by the clustered and by the random column."""
    top = file.groups * ROWS * STEP
    value = top // 2 + STEP
    yield _point("point, clustered", "ts", value)
    low, high = top // 2, top // 2 + top // 10
    yield Question("range, clustered", f"ts BETWEEN {low} AND {high}", "ts", [(low, high)])
    yield _point("absent, clustered", "ts", top + 1)
    ten = sorted((rng.choice(file.groups * ROWS, size=10, replace=False) * STEP).tolist())
    listed = ", ".join(map(str, ten))
    yield Question("point IN (10), clustered", f"ts IN ({listed})", "ts", [(k, k) for k in ten])
    yield _point("full point, spread", "id", file.an_id)


def _point(name: str, column: str, value: int) -> Question:
    return Question(name, f"{column} = {value}", column, [(value, value)])


# -- judging a parsed footer -------------------------------------------------------------------


def evaluation_case(file: DataFile, question: Question, *, warm: bool) -> Case:
    """Which row groups can match, once the footer is parsed."""
    known = sk.read_metadata(file.path)
    pruner = sk.Pruner(question.sql, known.arrow_schema)
    arrow = pq.read_metadata(file.path)
    fragment = _fragment(file.path)
    connection = duckdb.connect()
    connection.execute(f"CREATE TABLE chunks AS SELECT * FROM parquet_metadata('{file.path}')")
    sql = f"SELECT row_group_id FROM chunks WHERE {question.bounds_sql()}"

    def fresh() -> ParquetMetadata:
        metadata = parse_footer(known.footer, known.path, known.size)
        assert metadata.arrow_schema is not None  # made at the first call, as the pruner's own is at hand
        return metadata

    peers = [
        Contender(
            LOOP,
            lambda metadata: loop(metadata, question),
            prepare=(lambda: arrow) if warm else (lambda: pq.read_metadata(file.path)),
            answer=list,
            work=_group_rows,
        ),
        Contender(
            DATASET,
            lambda found: found.subset(filter=question.arrow),
            prepare=(lambda: fragment) if warm else (lambda: _fragment(file.path)),
            answer=_fragment_groups,
            work=lambda found: _group_rows(_fragment_groups(found)),
        ),
    ]
    if warm:
        run = lambda _given: connection.execute(sql).fetchnumpy()["row_group_id"]  # noqa: E731
        peers.append(Contender(DUCKDB, run, answer=_sorted, work=_group_rows))
    targets = ()
    if file.groups >= MANY_GROUPS:
        targets = (Target(f"< {EVALUATION_MS:g} ms", EVALUATION_MS, lambda found: found.ms(OURS)),)
    ours = Contender(
        OURS,
        pruner.prune,
        Role.OURS,
        prepare=(lambda: known) if warm else fresh,
        answer=lambda found: found.row_groups,
        work=lambda found: Work(len(found.rows), 0, 0),
    )
    return Case(
        f"{'warm' if warm else 'cold'} {question.name}, {file.groups:,} row groups", [ours, *peers], targets
    )


def loop(metadata: pq.FileMetaData, question: Question) -> list[int]:
    """Row-group pruning as most people write it today."""
    names = [metadata.schema.column(n).path for n in range(metadata.num_columns)]
    column = names.index(question.column)
    kept = []
    for group in range(metadata.num_row_groups):
        statistics = metadata.row_group(group).column(column).statistics
        if statistics is None or not statistics.has_min_max:
            kept.append(group)
            continue
        low, high = statistics.min, statistics.max
        if any(low <= greatest and high >= least for least, greatest in question.spans):
            kept.append(group)
    return kept


def _fragment(path: str) -> ds.ParquetFileFragment:
    (fragment,) = ds.dataset(path, format="parquet").get_fragments()
    fragment.ensure_complete_metadata()
    return fragment


def _fragment_groups(fragment: ds.ParquetFileFragment) -> list[int]:
    return [group.id for group in fragment.row_groups]


def _sorted(groups: Any) -> list[int]:
    return sorted(int(group) for group in groups)


def _group_rows(groups: Sequence[int]) -> Work:
    return Work(rows=len(groups) * ROWS)


# -- from the path -----------------------------------------------------------------------------


def path_case(file: DataFile, question: Question) -> Case:
    """The whole way: open, footer, and for us the page index of what is left."""
    connection = duckdb.connect()
    sql = f"SELECT row_group_id FROM parquet_metadata('{file.path}') WHERE {question.bounds_sql()}"
    footer = counted(file.path, pq.read_metadata)
    pruner = sk.Pruner(question.sql)
    return Case(
        f"cold {question.name}, {file}",
        [
            Contender(OURS, lambda _given: pruner.prune(file.path), Role.OURS, answer=_groups, work=_pruned),
            Contender(
                LOOP,
                lambda _given: loop(pq.read_metadata(file.path), question),
                answer=list,
                work=lambda groups: Work(len(groups) * ROWS, *footer),
            ),
            Contender(
                DATASET,
                lambda _given: _fragment(file.path).subset(filter=question.arrow),
                answer=_fragment_groups,
                work=lambda found: Work(len(_fragment_groups(found)) * ROWS, *footer),
            ),
            Contender(
                DUCKDB,
                lambda _given: connection.execute(sql).fetchnumpy()["row_group_id"],
                answer=_sorted,
                work=_group_rows,
            ),
        ],
    )


def bloom_case(file: DataFile, name: str, value: int) -> Case:
    """A random id through bloom filters, which of the peers only DuckDB can look into."""
    pruner = sk.Pruner(f"id = {value}")
    question = _point(name, "id", value)
    connection = duckdb.connect()
    sql = (
        f"SELECT row_group_id FROM parquet_metadata('{file.path}') JOIN"
        f" parquet_bloom_probe('{file.path}', 'id', {value}) USING (row_group_id)"
        f" WHERE NOT bloom_filter_excludes AND {question.bounds_sql()}"
    )
    return Case(
        f"cold {name}, spread, {file}",
        [
            Contender(OURS, lambda _given: pruner.prune(file.path), Role.OURS, answer=_groups, work=_pruned),
            Contender(
                DUCKDB,
                lambda _given: connection.execute(sql).fetchnumpy()["row_group_id"],
                answer=_sorted,
                work=_group_rows,
            ),
        ],
    )


def _groups(found: sk.PruneResult) -> list[int]:
    return found.row_groups


def _pruned(found: sk.PruneResult) -> Work:
    return Work(len(found.rows), found.trace.bytes, found.trace.requests)


# -- skipping off and on -----------------------------------------------------------------------


def query_case(file: DataFile, question: Question, *, warm: bool) -> Case:
    """The rows themselves: all of the file filtered, against what pruning leaves of it.

    Cold, everyone opens the file anew in each repetition. Warm, everyone keeps what it can: we and pyarrow
    the footer, Polars its LazyFrame (which holds the footer), DuckDB its cache of footers.
    """
    metadata = sk.read_metadata(file.path)
    pruner = sk.Pruner(question.sql, metadata.arrow_schema)
    known = (metadata, pq.read_metadata(file.path)) if warm else (None, None)
    everything = metadata.footer_size + 8 + _chunk_bytes(metadata, range(metadata.row_group_count))
    connection = duckdb.connect()
    connection.execute(f"SET parquet_metadata_cache = {str(warm).lower()}")
    sql = f"SELECT * FROM read_parquet('{file.path}') WHERE {question.sql}"
    dataset = ds.dataset(file.path)
    scan = pl.scan_parquet(file.path)

    def off(_given: Any) -> pa.Table:
        return pq.ParquetFile(file.path, metadata=known[1]).read().filter(question.arrow)

    def on(_given: Any) -> pa.Table:
        groups = pruner.prune(file.path, metadata=known[0]).row_groups
        return pq.ParquetFile(file.path, metadata=known[1]).read_row_groups(groups).filter(question.arrow)

    def by_dataset(_given: Any) -> pa.Table:
        return (dataset if warm else ds.dataset(file.path)).to_table(filter=question.arrow)

    def by_polars(_given: Any) -> pl.DataFrame:
        return (scan if warm else pl.scan_parquet(file.path)).filter(question.polars).collect()

    def on_work(rows: pa.Table) -> Work:
        found = pruner.prune(file.path, metadata=known[0])
        return Work(len(rows), found.trace.bytes + _chunk_bytes(metadata, found.row_groups))

    def pages_work(_nothing: Any) -> Work:
        found = pruner.prune(file.path, metadata=known[0])
        return Work(len(found.rows), found.trace.bytes + _page_bytes(file.path, found))

    def rows(found: Any) -> list[int]:
        column = found["ts"]
        return sorted(column.to_list() if isinstance(column, pl.Series) else column.to_pylist())

    def height(found: Any) -> Work:
        return Work(len(found))

    contenders = [
        Contender("skipping off", off, Role.REFERENCE, answer=rows, work=lambda t: Work(len(t), everything)),
        Contender(OURS, on, Role.OURS, answer=rows, work=on_work),
        Contender(DATASET, by_dataset, answer=rows, work=height),
        Contender(DUCKDB, lambda _given: connection.sql(sql).to_arrow_table(), answer=rows, work=height),
        Contender(POLARS, by_polars, answer=rows, work=height),
    ]
    if file.indexed:
        contenders.insert(2, Contender("pages left (counted)", None, Role.REFERENCE, work=pages_work))
    return Case(f"{'warm' if warm else 'cold'} query, {question.name}, {file}", contenders)


def _chunk_bytes(metadata: ParquetMetadata, groups: Sequence[int]) -> int:
    leaves = range(len(metadata.leaves))
    return sum(
        metadata.chunk_range(g, leaf).stop - metadata.chunk_range(g, leaf).start
        for g in groups
        for leaf in leaves
    )


def _page_bytes(path: str, found: sk.PruneResult) -> int:
    """Bytes of the pages that hold a kept row, of every column, dictionaries included."""
    metadata = found.metadata
    source = open_source(path)
    total = 0
    for group in found.row_groups:
        first = int(metadata.row_group_starts[group])
        for leaf in range(len(metadata.leaves)):
            places = page_index_ranges(metadata, group, leaf)
            assert places[0] is not None
            assert places[1] is not None
            pages = parse_page_index(*source.read_ranges(places), metadata, group, leaf)
            starts = pages.first_rows + first
            kept = found.rows.counts(starts, starts + pages.row_counts) > 0
            head = int(pages.offsets[0]) - metadata.chunk_range(group, leaf).start
            total += int(pages.sizes[kept].sum()) + (head if kept.any() else 0)
    return total


# -- all of it ---------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None, sizes: Sizes | None = None) -> None:
    """Run it."""
    bench = Bench.of(
        "prune_file", "What it costs to find what matters in one file.", argv, sizes.pace if sizes else None
    )
    sizes = sizes or (QUICK if bench.quick else FULL)
    with tempfile.TemporaryDirectory(prefix="skipstone-bench-") as name:
        run(bench, sizes, Path(name))
    bench.finish()


def run(bench: Bench, sizes: Sizes, folder: Path) -> None:
    """Every section, with its files in ``folder``."""
    footers = (
        footer_case(write_footer(folder, groups, columns, bench.seed), groups * columns)
        for groups, columns in sizes.footers
    )
    bench.section("Footer", footers)
    files = [
        write_data(folder, groups, indexed=indexed, seed=bench.seed)
        for indexed in (True, False)
        for groups in sizes.groups
    ]
    indexed = [file for file in files if file.indexed]

    def asked(file: DataFile) -> Iterator[Question]:
        return questions(file, np.random.default_rng(bench.seed))

    for warm, title in ((False, "first use of a column"), (True, "repeated")):
        evaluations = (evaluation_case(file, q, warm=warm) for file in indexed for q in asked(file))
        bench.section(f"Row groups from a parsed footer: {title}", evaluations)
    bench.section("From the path", (path_case(f, q) for f in files for q in asked(f) if q.column == "ts"))
    blooms = (
        bloom_case(file, name, value)
        for file in files
        for name, value in (("bloom", file.an_id), ("bloom absent", file.absent_id))
    )
    bench.section("From the path, through bloom filters", blooms)
    for warm in (False, True):
        largest = (f for f in files if f.groups == max(sizes.groups))
        queries = (query_case(f, q, warm=warm) for f in largest for q in asked(f))
        title = f"The query, {'footer at hand' if warm else 'file opened anew'}: skipping off and on"
        bench.section(f"{title} (bytes: metadata read and column data left)", queries)


if __name__ == "__main__":
    main()
