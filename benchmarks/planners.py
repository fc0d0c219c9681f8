"""Planners on lakes of tiny files: what it takes to find the one file that a point query needs.

Each keeps what it opened and is asked for a key that no row has, in the range of one file. pyiceberg reads
its manifests (``add_files`` into a table with an embedded SQLite catalog), deltalake its log's statistics
(``file_uris`` with a predicate); DuckDB and DataFusion have no plan to show before they run, so theirs is the
time of the whole query, which gives no row: little but planning. Time per file is in the table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

import skipstone as sk
from benchmarks.harness import OURS, Bench, Case, Contender, Role, Work
from benchmarks.lakes import Lake, kept
from benchmarks.peers import DATAFUSION, DUCKDB, PEERS

ROWS = 100
STEP = 2
"""Ids are even, so that an odd one is in a file's range and in no row."""
NO_INDEX = "skipstone, no index"
ICEBERG, DELTA = "pyiceberg", "deltalake"


# -- the lakes ---------------------------------------------------------------------------------


def tiny_lake(files: int, seed: int, data: Path, console: Console) -> Lake:
    """Files of 100 rows, ranges of ids in no order."""
    folder = data / f"tiny-{files}-{seed}"
    return Lake(folder.name, kept(folder, lambda partial: _write(partial, files, seed), console))


def _write(folder: Path, files: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for number, place in enumerate(rng.permutation(files).tolist()):
        ids = np.arange(place * ROWS, (place + 1) * ROWS) * STEP
        table = pa.table(
            {
                "id": ids,
                "ts": pa.array(number * 1_000_000 + np.arange(ROWS), pa.timestamp("us")),
                "user_id": rng.integers(0, 1 << 40, ROWS),
                "name": pa.array([f"n{value:x}" for value in rng.integers(0, 1 << 30, ROWS).tolist()]),
            }
        )
        pq.write_table(table, folder / f"part-{number:06d}.parquet")


def keys_of(files: int, seed: int) -> Callable[[], int]:
    """A new key at each call."""
    rng = np.random.default_rng((seed, files))
    return lambda: int(rng.integers(0, files * ROWS)) * STEP + 1


# -- planners ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Planner:
    """A way to open a lake once, to plan a point query, and to count the files it is left with."""

    name: str
    role: Role
    open: Callable[[Lake], Any]
    plan: Callable[[Any, int], Any]
    files: Callable[[Any], int | None] = lambda _planned: None


def _open_indexed(lake: Lake) -> Any:
    root = lake.folder.with_name(f"index-{lake.folder.name}")
    opened = sk.open(str(lake.folder), index_root=str(root))
    opened.index.build(engine="local")
    return opened


def _plan_ours(lake: Any, key: int) -> Any:
    return lake.scan(where=f"id = {key}").plan()


def _open_iceberg(lake: Lake) -> Any:
    from pyiceberg.catalog.sql import SqlCatalog

    home = lake.folder.with_name(f"iceberg-{lake.folder.name}")
    new = not home.exists()
    home.mkdir(exist_ok=True)
    catalog = SqlCatalog("bench", uri=f"sqlite:///{home}/catalog.db", warehouse=f"file://{home}")
    if new or not catalog.table_exists("lake.points"):
        catalog.create_namespace_if_not_exists("lake")
        table = catalog.create_table("lake.points", lake.schema)
        table.add_files(lake.files)
    return catalog.load_table("lake.points")


def _plan_iceberg(table: Any, key: int) -> Any:
    return list(table.scan(row_filter=f"id = {key}").plan_files())


def _open_delta(lake: Lake) -> Any:
    from deltalake import DeltaTable

    home = lake.folder.with_name(f"delta-{lake.folder.name}")
    if not home.exists():
        _write_delta(lake, home)
    return DeltaTable(str(home))


def _write_delta(lake: Lake, home: Path) -> None:
    """A log over the same files: they are linked, since a table's files lie below it."""
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction

    table = DeltaTable.create(str(home), lake.schema)
    actions = []
    for path in map(Path, lake.files):
        metadata = pq.read_metadata(path)
        group = metadata.row_group(0)
        columns = {
            group.column(n).path_in_schema: group.column(n).statistics for n in range(group.num_columns)
        }
        told = {name: found for name, found in columns.items() if name != "ts"}
        statistics = {
            "numRecords": metadata.num_rows,
            "minValues": {name: found.min for name, found in told.items()},
            "maxValues": {name: found.max for name, found in told.items()},
            "nullCount": {name: found.null_count for name, found in told.items()},
        }
        (home / path.name).hardlink_to(path)
        size = path.stat().st_size
        actions.append(AddAction(path.name, size, {}, 0, True, json.dumps(statistics)))
    table.create_write_transaction(actions, "append", lake.schema)
    table.create_checkpoint()


def _plan_delta(table: Any, key: int) -> Any:
    return table.file_uris(file_pruning_predicate=f"id = {key}")


def _asked(name: str) -> Planner:
    engine = next(engine for engine in PEERS if engine.name == name)

    def plan(opened: Any, key: int) -> Any:
        found = opened.sql(f"SELECT * FROM lake WHERE id = {key}").to_arrow_table()
        assert not len(found)
        return found

    return Planner(f"{name} (runs it)", Role.PEER, engine.open, plan)


PLANNERS = (
    Planner(OURS, Role.OURS, _open_indexed, _plan_ours, lambda plan: len(plan.tasks)),
    Planner(
        NO_INDEX,
        Role.REFERENCE,
        lambda lake: sk.open(str(lake.folder)),
        _plan_ours,
        lambda plan: len(plan.tasks),
    ),
    Planner(ICEBERG, Role.PEER, _open_iceberg, _plan_iceberg, len),
    Planner(DELTA, Role.PEER, _open_delta, _plan_delta, len),
    _asked(DUCKDB),
    _asked(DATAFUSION),
)


# -- running -----------------------------------------------------------------------------------


def planner_case(lake: Lake, files: int, seed: int, console: Console) -> Case:
    """A point query on a lake that everyone has open."""
    contenders = []
    for planner in PLANNERS:
        with console.status(f"{planner.name} opens {files:,} files"):
            opened = planner.open(lake)
        contenders.append(_contender(planner, opened, keys_of(files, seed)))
    return Case(f"warm point, {files:,} tiny files", contenders, figure=lambda ms: f"{ms * 1e3 / files:,.2f}")


def _contender(planner: Planner, opened: Any, key: Callable[[], int]) -> Contender:
    def work(planned: Any) -> Work:
        files = planner.files(planned)
        assert files is None or files <= 1, f"{planner.name} keeps {files} files of one key"
        return Work(rows=files)

    return Contender(planner.name, lambda k: planner.plan(opened, k), planner.role, prepare=key, work=work)


def run_planners(bench: Bench, sizes: Sequence[int]) -> None:
    """Every size."""
    for files in sizes:
        lake = tiny_lake(files, bench.seed, bench.given.data, bench.console)
        title = f"{files:,} tiny files: plan of a point query (rows: files that are left)"
        bench.section(title, [planner_case(lake, files, bench.seed, bench.console)], "µs per file")
