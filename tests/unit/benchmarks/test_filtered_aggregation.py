"""Aggregates of a tiny lake of sales by every engine, in every form of question; no clock is looked at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from rich.console import Console

ROOT = Path(__file__).resolve().parents[3]
ROWS, FILES, SEED = 20_000, 5, 5


@pytest.fixture(autouse=True)
def _found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The benchmarks are no part of the package: they are found from the repository's root."""
    monkeypatch.syspath_prepend(str(ROOT))


def test_sales_are_as_described(tmp_path: Path) -> None:
    from benchmarks.sales import NOISE, REGIONS, SECOND, Sales, sales_lake

    sales = Sales(ROWS, FILES, SEED)
    lake = sales_lake(sales, tmp_path, Console(quiet=True))
    assert len(lake.files) == FILES
    table = pa.concat_tables(pq.read_table(path) for path in lake.files)
    assert table["id"].to_pylist() == list(range(ROWS))
    assert table.equals(pa.concat_tables(sales.block(n) for n in range(FILES)))
    late = table["ts"].cast(pa.int64()).to_numpy() - int(sales.time(0).timestamp()) * SECOND
    late -= np.arange(ROWS) * SECOND
    assert 0 <= late.min() < late.max() < NOISE
    assert set(pc.unique(table["region"]).to_pylist()) == set(REGIONS)
    assert set(pc.unique(table["quantity"]).to_pylist()) == set(range(1, 101))
    assert pc.count_distinct(table["customer"]).as_py() <= sales.customers == ROWS // 10
    metadata = pq.read_metadata(lake.files[0])
    assert metadata.num_row_groups == 4
    group = metadata.row_group(0)
    assert all(group.column(n).has_offset_index for n in range(group.num_columns))


@pytest.mark.slow
def test_every_engine_gives_the_same_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from benchmarks import filtered_aggregation, harness
    from benchmarks.sales_questions import SHAPES

    monkeypatch.setattr(filtered_aggregation, "FILES", FILES)
    file = tmp_path / "found.json"
    given = ["--here", "--threads", "2", "--rows", str(ROWS), "--data", str(tmp_path), "--json", str(file)]
    filtered_aggregation.main(given, harness.Pace(0.0, 1, 1))
    cases = {case["case"]: case["contenders"] for case in json.loads(file.read_text())["cases"]}
    assert list(cases) == [f"{shape.name}, 2 threads" for shape in SHAPES]
    for name, found in cases.items():
        filtered = {"unfiltered read"} if "no filter" not in name else set()
        assert set(found) == {"skipstone", "nothing cached", "duckdb", "datafusion", "polars"} | filtered
        rows = {one["rows"] for contender, one in found.items() if contender != "unfiltered read"}
        assert len(rows) == 1, name
        assert all(one["parts"]["cpu"] > 0 for one in found.values())
    whole = cases["full, no filter, 2 threads"]
    assert (whole["skipstone"]["bytes"], whole["skipstone"]["rows"]) == (0, ROWS)
    every = whole["nothing cached"]["bytes"]
    run = cases["clustered, one run of 30 % of ids, 2 threads"]
    assert run["skipstone"]["rows"] == ROWS * 3 // 10
    # Two row groups of 20 are at the edges.
    assert 0 < run["skipstone"]["bytes"] < 0.15 * every
    assert 0.2 * every < run["nothing cached"]["bytes"] < 0.6 * every
    assert cases["spread, 50 % of ids, 2 threads"]["skipstone"]["bytes"] >= 0.9 * every
    shown = capsys.readouterr().out
    for line in ("≥ 20 × the best peer: ", "≥ 1 × the best peer: ", "≤ 1.3 × unfiltered read: "):
        assert line in shown
    assert "index of sales: built in" in shown
    assert "5 files" in shown


def test_answers_are_equal_or_close() -> None:
    from benchmarks.filtered_aggregation import Close

    assert Close((1, 2.0, None)) == Close((1, 2.0 + 1e-10, None))
    for other in ((2, 2.0, None), (1, 2.0 + 1e-8, None), (1, 2.0, 0.0), (1, None, None)):
        assert Close((1, 2.0, None)) != Close(other)


def test_runs_begin_at_no_edge() -> None:
    from benchmarks.sales import Sales
    from benchmarks.sales_questions import SHAPES

    sales = Sales(ROWS, FILES, SEED)
    shapes = {shape.name: shape for shape in SHAPES}
    for seed in range(20):
        rng = np.random.default_rng(seed)
        run = shapes["clustered, one run of 30 % of ids"].make(sales, rng)
        assert run.ids is not None
        assert (run.ids[0] % 2, len(run.ids)) == (1, ROWS * 3 // 10)
        both = shapes["clustered AND range, a run of 30 % and ts"].make(sales, rng)
        assert both.ids is not None
        assert both.span is not None
        first, last = int(both.ids[0]), int(both.ids[-1])
        assert sales.time(first) < both.span.low < sales.time(last) < both.span.high
        assert last < ROWS


@pytest.mark.slow
def test_each_number_of_threads_has_a_process(tmp_path: Path) -> None:
    from benchmarks import filtered_aggregation

    file = tmp_path / "found.json"
    given = ["--quick", "--threads", "1", "2", "--rows", str(ROWS), "--only", "full", "--json", str(file)]
    filtered_aggregation.main([*given, "--data", str(tmp_path)])
    cases = json.loads(file.read_text())["cases"]
    assert [case["case"] for case in cases] == [
        "full, no filter, 1 thread",
        "full, no filter, 2 threads",
    ]


@pytest.mark.slow
def test_load_tiny(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from benchmarks import filtered_aggregation

    file = tmp_path / "found.json"
    given = ["--load", "--rows", str(ROWS), "--data", str(tmp_path), "--json", str(file)]
    filtered_aggregation.main(given)
    found: dict[str, dict[str, Any]] = {case["case"]: case for case in json.loads(file.read_text())["cases"]}
    kinds = ("no filter", "spread, 10% of ids")
    assert list(found) == [f"{kind}, {how}" for kind in kinds for how in ("index", "nothing cached")]
    for kind in kinds:
        assert found[f"{kind}, index"]["values"] == found[f"{kind}, nothing cached"]["values"]
    assert found["no filter, index"]["values"][0] == ROWS
    assert 0.08 * ROWS < found["spread, 10% of ids, index"]["values"][0] < 0.12 * ROWS
    assert "extra MB" in capsys.readouterr().out
