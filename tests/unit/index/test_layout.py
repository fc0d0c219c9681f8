"""How well columns skip today, and under other orders of rows: measured against lakes that were rewritten."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import skipstone as sk
from skipstone.cli.main import app
from skipstone.prune.clustering import Layout, positions
from skipstone.report import tree_of
from skipstone.report.lines import width_of
from skipstone.report.text import to_text

ROWS, FILES, PAGE = 24_000, 12, 100
# Most of these rows are sampled, so that estimates are near.
NEAR = 0.05


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    rng = np.random.default_rng(3)
    return pa.table(
        {
            "ts": np.arange(ROWS),
            "user": rng.permutation(ROWS),
            "name": pa.array([f"n{number:05d}" for number in rng.permutation(ROWS)]),
            "tags": pa.array([[1]] * ROWS),
        }
    )


def write(root: Path, table: pa.Table, files: int = FILES) -> sk.Lake:
    root.mkdir(parents=True, exist_ok=True)
    each = len(table) // files
    for number in range(files):
        part = table.slice(number * each, each)
        path = root / f"{number:02d}.parquet"
        pq.write_table(
            part,
            path,
            row_group_size=1_000,
            max_rows_per_page=PAGE,
            write_batch_size=PAGE,
            write_page_index=True,
        )
    return sk.open(root)


@pytest.fixture(scope="module")
def lake(rows: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> sk.Lake:
    return write(tmp_path_factory.mktemp("layout") / "lake", rows)


def test_overlap_of_files_and_pages(lake: sk.Lake) -> None:
    layout = lake.layout()
    # A list has no order.
    assert [one.name for one in layout.columns] == ["ts", "user", "name"]
    ts, user = layout["ts"], layout["user"]
    assert (ts.files.units, ts.files.depth, ts.files.layout) == (FILES, 1.0, Layout.SORTED)
    assert ts.pages is not None
    assert (ts.pages.units, ts.pages.depth) == (ROWS // PAGE, 1.0)
    assert (ts.row_groups.units, user.files.layout) == (ROWS // 1_000, Layout.RANDOM)
    assert FILES * 0.98 < user.files.depth <= FILES
    assert user.pages is not None
    assert ROWS / PAGE * 0.95 < user.finest.depth <= ROWS / PAGE
    # Half of the look-ups are of a value, half of 5 % of the rows.
    assert ts.reads is not None
    assert 0.004 < ts.reads < 0.06
    assert user.reads == pytest.approx(1.0, abs=0.01)
    with pytest.raises(KeyError, match="x: columns are ts, user, name"):
        layout["x"]


def test_spans_of_files(lake: sk.Lake) -> None:
    ts, user = lake.layout(["ts", "user"]).columns
    assert len(ts.spans) == FILES
    edges = [edge for span in ts.spans if span for edge in span]
    assert edges == sorted(edges)
    assert (edges[0], edges[-1]) == (0.0, 1.0)
    assert all(span is not None and span[1] - span[0] > 0.98 for span in user.spans)
    files = sk.open(lake.uri).layout(["name"])["name"].spans
    assert all(span is not None and span[1] - span[0] > 0.97 for span in files)


@pytest.mark.parametrize("sample", [64, 4])
def test_orders_do_what_is_predicted(lake: sk.Lake, rows: pa.Table, tmp_path: Path, sample: int) -> None:
    queries = [f"user = {number}" for number in (7_000, 11_000, 17_000)] + ["user between 8000 and 9000"]
    layout = lake.layout(["user", "ts"], queries, sample=sample)
    assert (layout.sampled, layout.synthetic) == (min(sample, FILES), False)
    best = layout.best
    assert best is not None
    assert (best.columns, best.kind) == (("user",), "sort")
    sorted_lake = write(tmp_path / "sorted", rows.sort_by("user"))
    truth = np.mean([len(sorted_lake.scan(query).plan().tasks[0].rows) for query in queries[:1]]) / ROWS
    assert 0 < truth < NEAR
    after = sum(sum(len(task.rows) for task in sorted_lake.scan(q).plan().tasks) for q in queries) / 4 / ROWS
    assert 1 - best.after == pytest.approx(after, abs=NEAR)
    assert 1 - best.before > 0.99
    # Orders of columns that no query uses are not tried.
    assert [one.columns for one in layout.candidates] == [("user",)]
    assert best.by_column.keys() == {"user"}


def test_every_kind_of_order_is_tried(lake: sk.Lake) -> None:
    layout = lake.layout(["ts", "user", "name"])
    tried = {(one.kind, one.columns) for one in layout.candidates}
    pairs = [("ts", "user"), ("ts", "name"), ("user", "name"), ("ts", "user", "name")]
    assert tried == {("sort", (name,)) for name in ("ts", "user", "name")} | {
        (curve, pair) for curve in ("zorder", "hilbert") for pair in pairs
    }
    # A curve through two columns skips on both, but less than a sort on its own column.
    shares = {(one.kind, one.columns): one.by_column for one in layout.candidates}
    curve, alone = shares["hilbert", ("user", "name")], shares["sort", ("user",)]
    assert min(curve["user"], curve["name"]) > 0.5 > alone["name"]
    assert alone["user"] > curve["user"]


def test_what_is_printed(lake: sk.Lake) -> None:
    layout = lake.layout(["ts", "user"], ["user = 7"])
    lines = str(layout).splitlines()
    assert any(line.startswith("queries read") and "sort by user to read" in line for line in lines)
    assert "██░░░░░░░░░░░░░░░░░░  ████████████████████" in lines
    assert f"skipstone ingest {lake.uri} NEW_LAKE --cluster-by user" in lines
    html = layout._repr_html_()
    assert "<pre>" in html
    assert "ranges of files" in html
    from skipstone.report import tree_of

    assert all(
        width_of(line) <= 60 for line in to_text(tree_of(layout), 60).splitlines() if "skipstone" not in line
    )
    shown = layout.to_json()
    assert json.loads(json.dumps(shown))["columns"][0]["files"]["layout"] == "sorted"


def test_the_command(lake: sk.Lake) -> None:
    done = CliRunner().invoke(
        app, ["layout", lake.uri, "--columns", "user,ts", "-w", "user = 7", "--format", "json"]
    )
    assert done.exit_code == 0
    assert json.loads(done.stdout)["command"].endswith("--cluster-by user")
    both = CliRunner().invoke(app, ["layout", lake.uri, "-w", "user = 7", "--log", "x"])
    assert both.exit_code == 2


def test_small_and_empty_lakes(tmp_path: Path) -> None:
    one = write(tmp_path / "one", pa.table({"a": [1, 2, 3]}), files=1).layout()
    assert (one["a"].files.layout, one["a"].files.units, one.best) == (Layout.SINGLE, 1, None)
    none = write(tmp_path / "none", pa.table({"a": pa.array([], pa.int64())}), files=1).layout()
    assert (none.rows, none.candidates, none.command) == (0, (), "")
    assert "no other order of rows" in str(none)
    nulls = write(tmp_path / "nulls", pa.table({"a": pa.nulls(10, pa.int64())}), files=2).layout()
    assert nulls["a"].spans == (None, None)


def test_tables_are_compacted(rows: pa.Table, tmp_path: Path) -> None:
    table = sk.catalog(tmp_path / "warehouse").create_table("db.t", rows.select(["ts", "user"]).schema)
    sk.ingest(rows.select(["ts", "user"]), table, engine="local")
    layout = table.refresh().layout(queries=["user = 7"])
    assert layout.command == "skipstone compact TABLE --strategy sort --sort-by user --rewrite-all"


@pytest.mark.parametrize("sample", [0, True, None, 1.5])
def test_wrong_samples(lake: sk.Lake, sample: object) -> None:
    with pytest.raises(sk.UsageError, match="sample must be a positive integer"):
        lake.layout(sample=sample)  # type: ignore[arg-type]


def test_positions(lake: sk.Lake) -> None:
    from skipstone.core.evidence import ColumnFacts

    low, high = positions(ColumnFacts.unknown(pa.int64(), 2))
    assert np.isnan(low).all()
    assert np.isnan(high).all()


def test_orders_can_be_told_apart(tmp_path: Path) -> None:
    """However long the names of the columns are."""
    rng = np.random.default_rng(3)
    names = ["VendorID", "tpep_pickup_datetime_utc", "tpep_dropoff_datetime_utc", "PULocationIdentifier"]
    columns = {name: rng.integers(0, 5_000, 20_000) for name in names}
    found = write(tmp_path / "lake", pa.table(columns)).layout(names)
    for width in (80, 110, 160):
        lines = to_text(tree_of(found), width, color=False).splitlines()
        (header,) = [at for at, line in enumerate(lines) if re.match(r"\W*order  ", line)]
        firsts = [re.split(r"\s{2,}", line.strip(" │"))[0] for line in lines[header + 1 : header + 11]]
        assert firsts[0] == "as it is"
        shown, orders = firsts[1:], found.candidates[:9]
        assert len({*shown}) == len(orders)
        assert all(line.count(",") == len(one.columns) - 1 for line, one in zip(shown, orders, strict=True))
        assert not [line for line in shown if line.endswith(",…")]
