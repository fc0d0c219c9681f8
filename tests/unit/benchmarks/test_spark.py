"""Benchmarks on Spark: what they are made of without it, and both of them on tiny lakes with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
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


def cases_of(file: Path) -> dict[str, Any]:
    return {case["case"]: case["contenders"] for case in json.loads(file.read_text())["cases"]}


def test_shuffled_rows_are_all_there_in_no_order(events: Any, tmp_path: Path) -> None:
    from benchmarks.shuffled import shuffled_lake

    lake = shuffled_lake(events, tmp_path, Console(quiet=True), files=3)
    tables = [pq.read_table(path) for path in lake.files]
    assert [len(table) for table in tables] == [2_672, 2_664, 2_664]
    every = pa.concat_tables(events.block(n) for n in range(BLOCKS))
    assert pa.concat_tables(tables).sort_by("event_id").equals(every)
    for table in tables:
        ids = table["event_id"].to_numpy()
        assert ids.min() < ROWS and ids.max() > 9 * ROWS  # noqa: PT018
        assert 0.4 < (ids[1:] > ids[:-1]).mean() < 0.6


def test_plain_queries_are_the_first_ones(events: Any) -> None:
    from benchmarks import ingest
    from benchmarks.queries import event_queries, plain_queries

    plain = list(plain_queries(events, 3))
    assert plain == list(event_queries(events, 3))[:11]
    assert plain[-1].name == "full scan, two columns"
    assert [query.name for query in ingest.queries(events, 3)] == [query.name for query in plain[:8]]
    assert {name.split(",")[0] for name in ingest._promises(events)} == {"point", "absent"}


def test_parts_of_a_repetition_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    from benchmarks import harness

    laps = iter([9.0, 1.0, 5.0])
    told = harness.Contender(
        "skipstone", lambda _given: None, harness.Role.OURS, parts=lambda _result: {"tasks": next(laps)}
    )
    other = harness.Contender("peer", lambda _given: None)
    found = harness.measure(harness.Case("point", [told, other]), harness.Pace(0.0, 3, 3), 0)
    assert found.contenders["skipstone"].parts == {"tasks": 5.0}
    figures = harness.as_json("any", [found])["cases"][0]["contenders"]
    assert figures["skipstone"]["parts"] == {"tasks": 5.0}
    assert "parts" not in figures["peer"]
    harness.draw(Console(width=132), "title", [found])
    shown = capsys.readouterr().out
    assert "tasks" in shown
    assert "5.000" in shown


def test_an_ingested_lake_without_an_index_is_made_again(events: Any, tmp_path: Path) -> None:
    from benchmarks import ingest
    from benchmarks.lakes import events_lake

    assert not ingest.is_usable(tmp_path / "nothing")
    lake = events_lake(events, FILES, tmp_path, Console(quiet=True), "events100")
    assert not ingest.is_usable(lake.folder)


@pytest.mark.slow
@pytest.mark.spark
def test_spark_reads_tiny(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from benchmarks import harness, spark_reads

    file = tmp_path / "found.json"
    sizes = spark_reads.Sizes(ROWS, BLOCKS, FILES, harness.Pace(0.0, 1, 1))
    given = ["--quick", "--only", "point, event_id", "--data", str(tmp_path), "--json", str(file)]
    spark_reads.main(given, sizes)
    (contenders,) = cases_of(file).values()
    ours = ("skipstone", *(f"skipstone, {route}" for route in spark_reads.ROUTES))
    assert set(contenders) == {*ours, "data source", "spark"}
    assert {found["rows"] for found in contenders.values()} == {1}
    assert 0 < contenders["skipstone"]["bytes"] < contenders["spark"]["bytes"]
    for name, found in contenders.items():
        parts = found["parts"]
        assert 0 < parts["frame"] < found["ms"], name
        assert 0 < parts["jobs"] < found["ms"], name
    shown = capsys.readouterr().out
    assert "point, event_id: driver" in shown
    assert "≥ 5 × Spark's own reader" in shown


def test_tiny_files_are_ingested_beside_the_peers(tmp_path: Path) -> None:
    from benchmarks import harness, ingest

    file = tmp_path / "found.json"
    sizes = ingest.Sizes(ROWS, BLOCKS, pace=harness.Pace(0.0, 1, 1), tiny_files=8)
    ingest.main(["--quick", "--part", "tiny", "--data", str(tmp_path), "--json", str(file)], sizes)
    (contenders,) = cases_of(file).values()
    assert set(contenders) == {"duckdb", "polars", "skipstone", "skipstone, no index"}
    assert all(found["bytes"] > 0 for found in contenders.values())
    (source,) = tmp_path.glob("tiny-8-*")
    assert len(list(source.iterdir())) == 8


@pytest.mark.slow
@pytest.mark.spark
def test_ingest_tiny(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from benchmarks import harness, ingest

    file = tmp_path / "found.json"
    sizes = ingest.Sizes(ROWS, BLOCKS, FILES, 1, harness.Pace(0.0, 1, 1), warm_up=False, tiny_files=8)
    given = ["--quick", "--only", "point, event_id", "--data", str(tmp_path), "--json", str(file)]
    ingest.main(given, sizes)
    cases = cases_of(file)
    few = {"small ingest, local threads", "small ingest, Spark", "ingest of tiny files"}
    assert set(cases) == {"full ingest", "warm point, event_id, ingested100", *few}
    written = cases["full ingest"]
    assert {found["rows"] for found in written.values()} == {ROWS}
    assert written["skipstone"]["bytes"] > written["skipstone, no index, no blooms"]["bytes"] > 0
    assert list(written["skipstone"]["parts"]) == ["survey", "write", "publish", "index"]
    looked_up = cases["warm point, event_id, ingested100"]
    assert {found["rows"] for found in looked_up.values()} == {1}
    assert looked_up["skipstone, index"]["requests"] < looked_up["skipping off"]["requests"]
    (kept,) = tmp_path.glob("ingested*")
    assert len(list(kept.glob("*.parquet"))) == FILES
    assert "rows/s" in capsys.readouterr().out

    # A lake that is there is asked without Spark.
    ingest.main([*given, "--part", "queries"], sizes)
    assert set(cases_of(file)) == {"warm point, event_id, ingested100"}
