"""Plans of whole files: every spec by itself, faults kept and counted, and pyiceberg's plan beside ours."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

import skipstone as sk
from skipstone.errors import SchemaError, UnknownColumnError
from skipstone.iceberg.manifests.reading import clear_cache
from skipstone.iceberg.partitions import filter as partition_filter
from tests.iceberg._chains import random_chain
from tests.iceberg._maker import Maker
from tests.iceberg._table import partition_key
from tests.iceberg._watch import watch

DAY = dt.datetime(2026, 3, 1)


def some(first: int, last: int) -> list[dict[str, Any]]:
    return [
        {"id": n, "region": ["eu", "us", None][n % 3], "ts": DAY + dt.timedelta(hours=n)}
        for n in range(first, last)
    ]


@pytest.fixture
def evolved(tmp_path: Path) -> Maker:
    """Four specs: by day, by region, by bucket of the id, and none; each has rows of two days."""
    columns = [("id", "long"), ("region", "string"), ("ts", "timestamp")]
    maker = Maker(tmp_path, columns, [("ts", "day")], seed="evolved")
    maker.append(some(0, 48), metrics="none", merge=False)
    for number, spec in enumerate(([("region", "identity")], [("id", "bucket[4]")], [])):
        maker.evolve_spec(spec)
        maker.append(some(48 * (number + 1), 48 * (number + 2)), metrics="none", merge=False)
    return maker


def files(maker: Maker, spec: int, keep: Any = None) -> set[str]:
    return {
        one.file.path
        for one in maker.live()
        if one.file.spec.id == spec and (keep is None or keep(one.file.partition))
    }


def united(parts: Iterable[set[str]]) -> set[str]:
    return set().union(*parts)


# -- the seed's table 4.3 ------------------------------------------------------------------------


def test_plan_evolved_table_no_filter(evolved: Maker) -> None:
    lake = sk.open(evolved.metadata_location)
    plan = lake.plan_files()
    assert {*plan.paths} == {one.file.path for one in evolved.live()}
    assert (len(plan), plan.rows) == (len(evolved.live()), 192)
    assert plan.filter_stats == sk.FilterStats()
    specs = plan.table["spec_id"].to_pylist()
    assert [specs.count(spec) for spec in range(4)] == [len(files(evolved, spec)) for spec in range(4)]
    assert all(plan.table["whole"].to_pylist())
    assert plan.deletes is None
    assert {*map(str, plan.table["deletes"].to_pylist())} == {"[]"}


def test_plan_evolved_table_with_filter(evolved: Maker) -> None:
    """Each file is judged under its own spec; a spec that says nothing about the column drops nothing."""
    lake = sk.open(evolved.metadata_location)
    plan = lake.plan_files("region = 'eu'")
    by_region = files(evolved, 1, lambda key: key == ("eu",))
    assert {*plan.paths} == united([files(evolved, 0), by_region, files(evolved, 2), files(evolved, 3)])
    assert plan.filter_stats == sk.FilterStats(unconstrained_specs=3)
    whole = {path for path, all in zip(plan.paths, plan.whole.tolist(), strict=True) if all}
    assert whole == by_region

    plan = lake.plan_files(f"ts < '{DAY + dt.timedelta(days=1)}'")
    first = files(evolved, 0, lambda key: key == (evolved_day(),))
    assert len(first) == 1
    assert {*plan.paths} == united([first, *(files(evolved, spec) for spec in (1, 2, 3))])
    assert {path for path, all in zip(plan.paths, plan.whole.tolist(), strict=True) if all} == first

    plan = lake.plan_files("id = 100")
    in_bucket = {one.file.path for one in evolved.live() if 100 in ids(evolved, one.file.path)}
    buckets = files(evolved, 2) - {*plan.paths}
    assert in_bucket <= {*plan.paths}
    assert len(buckets) == 3
    with pytest.raises(UnknownColumnError):
        lake.plan_files("nobody = 1")
    assert {*lake.plan_files("REGION = 'eu'", case_sensitive=False).paths} == {
        *lake.plan_files("region = 'eu'").paths
    }


def evolved_day() -> int:
    return (DAY - dt.datetime(1970, 1, 1)).days


def ids(maker: Maker, path: str) -> list[int]:
    return maker.written[path].columns[maker.field("id").id]


def test_plan_evolved_table_fail_open_stats(evolved: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    """What can't be projected or evaluated is kept, counted and told; with strict it is an error."""
    real_project, real_evaluate = partition_filter.project_spec, partition_filter.evaluate

    def project(node: Any, spec: Any, columns: Any) -> Any:
        if spec.spec_id == 0:
            raise RuntimeError("injected projection")
        return real_project(node, spec, columns)

    def evaluated(projection: Any, partitions: Any) -> Any:
        if ("us",) in partitions:
            raise ZeroDivisionError("injected evaluation")
        return real_evaluate(projection, partitions)

    monkeypatch.setattr(partition_filter, "project_spec", project)
    monkeypatch.setattr(partition_filter, "evaluate", evaluated)
    lake = sk.open(evolved.metadata_location)
    plan = lake.plan_files("region = 'eu'")
    opened = files(evolved, 0) | files(evolved, 1, lambda key: key == ("us",))
    assert opened <= {*plan.paths}
    assert not files(evolved, 1, lambda key: key == (None,)) & {*plan.paths}
    keys = len(files(evolved, 0)) + 1
    assert plan.filter_stats == sk.FilterStats(
        unevaluable_specs=1,
        eval_errors=1,
        fail_open_partitions=keys,
        fail_open_files=len(opened),
        unconstrained_specs=2,
    )
    told = " ".join(note.reason for note in plan.notes)
    assert "injected projection" in told
    assert "injected evaluation" in told
    # Rows are what they are: the scan keeps, tests and counts.
    scan = lake.scan("region = 'eu'")
    assert scan.count() == 64
    assert scan.plan().trace.partitions == plan.filter_stats
    for ask in (
        lambda: lake.plan_files("region = 'eu'", strict=True),
        lambda: lake.scan("region = 'eu'", strict=True).plan(),
    ):
        with pytest.raises(SchemaError, match="can't be judged: injected") as refused:
            ask()
        assert refused.value.path


def test_only_candidates_count_as_files_that_failed_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file whose own metrics rule it out is no candidate, though its partition was kept."""
    maker = Maker(tmp_path, [("id", "long"), ("p", "string")], [("p", "identity")], seed="candidates")
    for first in (0, 10, 20):
        maker.append([{"id": n, "p": "a"} for n in range(first, first + 10)], merge=False)

    def project(*_: Any) -> Any:
        raise ValueError("injected")

    monkeypatch.setattr(partition_filter, "project_spec", project)
    plan = sk.open(maker.metadata_location).plan_files("p = 'a' and id = 15")
    assert len(plan) == 1
    assert plan.filter_stats == sk.FilterStats(1, 0, 1, 1, 0)


def test_plan_is_the_same_for_the_same_table(evolved: Maker) -> None:
    """In every process and however manifests were met: read, kept, or cached."""
    wanted: dict[str, pa.Table] = {}
    for index in (False, True):
        for _ in range(3):
            clear_cache()
            lake = sk.open(evolved.metadata_location)
            for question in (None, "region = 'eu'", "id between 90 and 100"):
                found = lake.plan_files(question).table
                assert found.equals(wanted.setdefault(str(question), found)), question
        if not index:
            lake.index.build(engine="local")
    assert len({table.num_rows for table in wanted.values()}) >= 2


def test_no_file_is_opened(evolved: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = watch(monkeypatch)
    reads.restart()
    plan = sk.open(evolved.metadata_location).plan_files("region = 'eu' and ts < '2026-03-01 05:00:00'")
    assert 0 < len(plan) < len(evolved.live())
    assert not reads.data
    assert len(reads.lists) == 1
    # A manifest of the first spec without a day that matches is not opened either.
    reads.restart()
    assert len(sk.open(evolved.metadata_location).plan_files("ts > '2027-01-01' and region = 'x'")) > 0
    assert len(reads.manifests) < len(evolved.head().manifests)  # type: ignore[union-attr]


# -- beside pyiceberg ----------------------------------------------------------------------------


def planned(maker: Maker, question: Any = None) -> dict[str, set[str]]:
    """pyiceberg's plan: the files, each with its delete files."""
    table = StaticTable.from_metadata(maker.metadata_location)
    scan = table.scan() if question is None else table.scan(row_filter=question)
    return {task.file.file_path: {one.file_path for one in task.delete_files} for task in scan.plan_files()}


def ours(maker: Maker, question: Any = None) -> dict[str, set[str]]:
    table = sk.open(maker.metadata_location).plan_files(question).table
    return {row["path"]: {*row["deletes"]} for row in table.select(["path", "deletes"]).to_pylist()}


def test_delete_files_are_those_of_pyiceberg(tmp_path: Path) -> None:
    maker = Maker(tmp_path, [("id", "long"), ("p", "string")], [("p", "identity")], seed="pairs")
    maker.append([{"id": n, "p": "abc"[n % 3]} for n in range(60)], files=2)
    maker.delete_positions(maker.places()[::9], scope="partition")
    maker.append([{"id": n, "p": "abc"[n % 3]} for n in range(60, 90)])
    maker.delete_positions(maker.places()[::17], scope="file")
    mine, theirs = ours(maker), planned(maker)
    assert {*mine} == {*theirs}
    named = {path: {d for d, places in positions(maker).items() if path in places} for path in mine}
    for path in mine:
        # Neither may miss a delete file that names the data file; bounds of paths may rule out others.
        assert named[path] <= mine[path] <= theirs[path]
    assert sum(map(len, mine.values())) > 5


def positions(maker: Maker) -> dict[str, set[str]]:
    return {file.path: {path for path, _ in places} for file, places in maker.positions.items()}


def needed(maker: Maker, path: str) -> set[str]:
    """Delete files without which a row would come back: a vector, or all that name the file."""
    entries = maker.head().files  # type: ignore[union-attr]
    data = next(e for e in entries if e.file.path == path)
    named = [e.file for e in entries if e.file in maker.positions and e.sequence >= data.sequence]
    named = [file for file in named if path in {at for at, _ in maker.positions[file]}]
    vectors = {file.path for file in named if file.format == "PUFFIN"}
    same = {file.path for file in named if partition_key(file) == partition_key(data.file)}
    return vectors or same


@pytest.mark.parametrize("count", [3, pytest.param(40, marks=pytest.mark.slow)])
def test_random_tables_are_planned_as_pyiceberg_plans_them(count: int, tmp_path: Path) -> None:
    """Without a filter the same files; with one, none that pyiceberg keeps for a matching row is missing."""
    compared = 0
    for number in range(count):
        chain = random_chain(f"plan:{number}", tmp_path / str(number), readable=True)
        maker = chain.maker
        theirs, mine = planned(maker), ours(maker)
        live = {one.file.path: one for one in maker.live() if one.file.records}
        # Only a file's footer proves that it is empty: such files stay in the plan.
        for one in maker.live():
            if not one.file.records:
                mine.pop(one.file.path)
        assert {*mine} == {*theirs} == {*live}, chain.words
        for path, deletes in mine.items():
            assert needed(maker, path) <= deletes <= theirs[path], chain.words
        lake = sk.open(maker.metadata_location)
        for file in list(live.values())[:6]:
            row = file.file.records // 2
            for f in maker.schema[:4]:
                values = maker.column(file.file, f)
                if (
                    not isinstance(values[row], int)
                    or isinstance(values[row], bool)
                    or f.type not in ("int", "long")
                ):
                    continue
                question = f"`{f.name}` = {values[row]}"
                assert file.file.path in lake.plan_files(question).paths, (question, chain.words)
                compared += 1
    assert compared > count
