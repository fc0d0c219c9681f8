"""The lakes' generators and every engine's form of every query, on tiny lakes; no clock is looked at."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from rich.console import Console

ROOT = Path(__file__).resolve().parents[3]
ROWS, BLOCKS, FILES, SEED = 8_000, 8, 4, 5


@pytest.fixture(autouse=True)
def _found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The benchmarks are no part of the package: they are found from the repository's root."""
    monkeypatch.syspath_prepend(str(ROOT))


@pytest.fixture
def events(_found: None) -> Any:
    from benchmarks.lakes import Events

    return Events(ROWS, BLOCKS, SEED)


@pytest.fixture
def lake(events: Any, tmp_path: Path) -> Any:
    from benchmarks.lakes import events_lake

    return events_lake(events, FILES, tmp_path, Console(quiet=True), "events100")


def test_events_are_as_described(events: Any, lake: Any) -> None:
    table = pa.concat_tables(pq.read_table(path) for path in lake.files)
    assert len(lake.files) == FILES
    assert table.num_rows == ROWS
    assert table.equals(pa.concat_tables(events.block(n) for n in range(BLOCKS)))
    for name in ("event_id", "ts"):
        column = table[name].cast(pa.int64()).to_numpy()
        assert (column[1:] > column[:-1]).all()
    assert 0.03 < table["amount"].null_count / ROWS < 0.07
    assert pc.count_distinct(table["session"]).as_py() == ROWS
    assert pc.count_distinct(table["kind"]).as_py() <= 10
    lengths = pc.binary_length(table["payload"])
    assert pc.min(lengths).as_py() > 40
    assert 60 < pc.mean(lengths).as_py() < 100
    assert events.row(4_321) == table.slice(4_321, 1).to_pylist()[0]


def test_files_have_indexes_and_blooms(lake: Any) -> None:
    group = pq.read_metadata(lake.files[0]).row_group(0)
    columns = {group.column(n).path_in_schema: group.column(n) for n in range(group.num_columns)}
    assert all(column.has_column_index and column.has_offset_index for column in columns.values())
    blooms = {name for name, column in columns.items() if column.bloom_filter_offset is not None}
    assert blooms == {"user_id", "session"}


def test_a_lake_is_made_once(events: Any, lake: Any, tmp_path: Path) -> None:
    from benchmarks.lakes import events_lake

    before = [Path(path).stat().st_mtime_ns for path in lake.files]
    again = events_lake(events, FILES, tmp_path, Console(quiet=True), "events100")
    assert [Path(path).stat().st_mtime_ns for path in again.files] == before


def agreed(lake: Any, queries: Iterator[Any]) -> dict[str, int]:
    """Rows of each query, once everyone has given the same answer."""
    from benchmarks.answers import answer_of
    from benchmarks.peers import PEERS, ours

    engines = (*PEERS, ours(threads=2), ours("off", skipping=False))
    opened = [(engine, engine.open(lake)) for engine in engines]
    rows = {}
    for query in queries:
        answer = answer_of(query, lake.schema)
        tables = {engine.name: engine.ask(handle, query) for engine, handle in opened}
        first = answer(tables["duckdb"])
        for name, table in tables.items():
            assert answer(table) == first, (query.name, name)
        rows[query.name] = tables["duckdb"].num_rows
    return rows


def test_everyone_agrees_on_events(events: Any, lake: Any) -> None:
    from benchmarks.queries import event_queries

    rows = agreed(lake, event_queries(events))
    assert (
        rows["point, event_id"] == rows["point, bloom, session"] == rows["point OR, event_id or session"] == 1
    )
    assert 1 <= rows["point AND, user_id and ts"] <= rows["point, bloom, user_id"] < 20
    assert {count for name, count in rows.items() if name.startswith("absent")} == {0}
    assert (rows["range, 1,000 rows"], rows["range, 1 %"], rows["range, 30 %"]) == (1_000, 80, 2_400)
    assert rows["full scan"] == ROWS
    assert rows["limit 10"] == rows["top 10 by ts"] == rows["top 10 by amount, refunds"] == 10
    assert rows["point IN (800), spread"] == rows["point IN (800), clustered"] == 800


@pytest.mark.slow
def test_everyone_agrees_on_lineitem(tmp_path: Path) -> None:
    from benchmarks.lakes import lineitem_lake
    from benchmarks.queries import lineitem_queries

    lake = lineitem_lake(0.002, tmp_path, Console(quiet=True), parts=2)
    rows = agreed(lake, lineitem_queries(lake))
    assert 1 <= rows["point, l_orderkey"] <= 7
    assert 0 < rows["range, l_shipdate, one month"] < rows["full scan, two columns"]
    assert 0 < rows["range, as in Q6"] < rows["full scan, two columns"]


def test_many_rows_agree_by_digest(events: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks import answers
    from benchmarks.queries import Query

    monkeypatch.setattr(answers, "SORTED_ROWS", 10)
    table = events.block(0)
    answer = answers.answer_of(Query("full scan"), table.schema)
    assert answer(table.sort_by("session")) == answer(table)
    assert answer(table.slice(1)) != answer(table)
    swapped = table.set_column(0, "event_id", table["event_id"].take(list(range(len(table)))[::-1]))
    assert answer(swapped) != answer(table)


def test_far_files_are_counted(lake: Any, events: Any) -> None:
    from benchmarks.latency import far_dataset
    from benchmarks.peers import ask_dataset
    from benchmarks.queries import event_queries

    dataset, traffic = far_dataset(lake)
    assert (traffic.requests, traffic.bytes) == (1, 0)  # is the path a folder?
    everything = sum(Path(path).stat().st_size for path in lake.files)
    ask_dataset(dataset, next(event_queries(events)))
    assert FILES < traffic.requests <= 2 * FILES + 1
    assert 0 < traffic.bytes < 2 * everything


@pytest.mark.slow
def test_selective_reads_tiny(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from benchmarks import harness, selective_reads

    sizes = selective_reads.Sizes(ROWS, BLOCKS, (FILES, BLOCKS), 0.002, 0.0, harness.Pace(0.0, 1, 1))
    file = tmp_path / "found.json"
    given = ["--quick", "--only", "point, event_id", "--lake", "events100", "events1000"]
    selective_reads.main([*given, "--data", str(tmp_path), "--json", str(file)], sizes)
    cases = {case["case"]: case["contenders"] for case in json.loads(file.read_text())["cases"]}
    assert set(cases) == {
        *(
            f"{kind} point, event_id, {name}"
            for kind in ("warm", "cold")
            for name in ("events100", "events1000")
        ),
        *(f"{kind} point, event_id, events100, 0 ms a request" for kind in ("warm", "cold")),
    }
    for name, contenders in cases.items():
        assert {contender["rows"] for contender in contenders.values()} == {1}, name
        for contender in ("skipstone", "pyarrow.dataset"):
            assert contenders[contender]["bytes"] > 0
            assert contenders[contender]["requests"] > 0
        plain, indexed = contenders["skipstone"], contenders["skipstone, index"]
        # From far away a tiny lake's index is more than its footers.
        assert 0 < indexed["bytes"] <= plain["bytes"] or "ms a request" in name, name
    cold = cases["cold point, event_id, events100"]
    assert cold["skipstone, index"]["requests"] < cold["skipstone"]["requests"]
    assert cases["warm point, event_id, events100"]["pyarrow.dataset"]["requests"] == 1
    shown = capsys.readouterr().out
    assert "events100, kept open: 4 files" in shown
    assert "index of events100: built in" in shown
    assert "index ≥ 2 × the best peer" in shown
    assert "index ≥ 10 × the best peer" in shown


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bare100", "duckdb100"])
def test_files_without_page_index(name: str, tmp_path: Path) -> None:
    from benchmarks import harness, selective_reads

    rows = 80_000  # DuckDB's row groups have at least 2,048
    sizes = selective_reads.Sizes(rows, BLOCKS, (FILES, BLOCKS), 0.002, 0.0, harness.Pace(0.0, 1, 1))
    file = tmp_path / "found.json"
    given = ["--quick", "--only", "point, ", "--lake", name, "--part", "warm", "--data", str(tmp_path)]
    selective_reads.main([*given, "--json", str(file)], sizes)
    cases = {case["case"]: case["contenders"] for case in json.loads(file.read_text())["cases"]}
    assert set(cases) == {
        f"warm point, {column}, {name}" for column in ("event_id", "bloom, user_id", "bloom, session")
    }
    for contenders in cases.values():
        assert len({contender["rows"] for contender in contenders.values()}) == 1
    for column, most in (("bloom, user_id", 1), ("bloom, session", 0.5)):
        found = cases[f"warm point, {column}, {name}"]
        # Only the index has filters of these columns.
        assert 0 < found["skipstone, index"]["bytes"] < found["skipstone"]["bytes"] * most
    found = cases[f"warm point, event_id, {name}"]
    pages = found["skipstone, index"]["bytes"] / found["skipstone"]["bytes"]
    assert 0.5 < pages < 0.8 if name == "bare100" else pages == 1


def test_an_index_that_cannot_be_used_is_built_again(lake: Any, tmp_path: Path) -> None:
    from benchmarks.peers import built_index, open_indexed

    console = Console(quiet=True)
    root = built_index(lake, tmp_path, console)
    before = sorted(path.stat().st_mtime_ns for path in root.iterdir())
    assert (
        sorted(path.stat().st_mtime_ns for path in built_index(lake, tmp_path, console).iterdir()) == before
    )
    for path in root.glob("*.skip"):
        path.write_bytes(b"nothing")
    with pytest.raises(AssertionError, match="segment-"):
        open_indexed(lake, root)
    assert open_indexed(lake, built_index(lake, tmp_path, console)).index.coverage.covered == FILES


def test_a_target_has_a_side() -> None:
    from benchmarks.harness import Target

    most = Target("≤ 2", 2.0, lambda _result: 0.0)
    least = Target("≥ 2", 2.0, lambda _result: 0.0, least=True)
    assert [most.met(x) for x in (1.0, 2.0, 3.0)] == [True, True, False]
    assert [least.met(x) for x in (1.0, 2.0, 3.0)] == [False, True, True]


@pytest.mark.slow
def test_memory_tiny(tmp_path: Path) -> None:
    from benchmarks import memory

    shapes = [memory.Shape("small row groups", 2_000, 500, 40, indexed=True)]
    file = tmp_path / "memory.json"
    memory.main(["--quick", "--data", str(tmp_path), "--json", str(file)], shapes)
    cases = json.loads(file.read_text())["cases"]
    assert [case["case"].rsplit(", ", 1)[1] for case in cases] == ["quick consumer", "slow consumer"]
    for case in cases:
        assert set(case["contenders"]) == {"skipstone", "pyarrow.dataset"}
        for streamed in case["contenders"].values():
            assert streamed["rows"] == 4 * 2_000
            assert streamed["decoded"] > 0
