"""Overlays by example: what they return, what they read, and what is said about it."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import skipstone as sk
from skipstone.errors import UsageError
from skipstone.table.overlay import Layer, MemoryFile, OverlayTable, overlay
from tests.support.calls import calls

ROWS = 4_000
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.float64()), ("name", pa.string())])
Make = Callable[..., OverlayTable]


def rows(keys: Any, value: float | None = None) -> pa.Table:
    keys = list(keys)
    values = [float(k if value is None else value) for k in keys]
    return pa.table([keys, values, [f"name {k % 7}" for k in keys]], schema=SCHEMA)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> sk.Table:
    """Four files of 1,000 rows with pages of 100 rows, indexed with sums."""
    root = tmp_path_factory.mktemp("overlay")
    catalog = sk.catalog(root / "warehouse")
    catalog.create_table("db.t", SCHEMA)
    for first in range(0, ROWS, 1_000):
        part = rows(range(first, first + 1_000))
        sk.ingest(part, "db.t", catalog=catalog, page_rows=100, index=False, engine="local")
    opened = catalog.open("db.t")
    opened.index.build(sums=True, engine="local")
    return opened


@pytest.fixture
def changed(table: sk.Table) -> Make:
    """Hide rows by key, and add others."""

    def make(hidden: Any = (), added: pa.Table | None = None, name: str = "transaction") -> OverlayTable:
        wanted: dict[str, list[int]] = {}
        for key in hidden:
            wanted.setdefault(file_of(table, key), []).append(key % 1_000)
        gone = {path: sk.RowSet.from_positions(1_000, keys) for path, keys in wanted.items()}
        return overlay(table, gone, SCHEMA.empty_table() if added is None else added, name=name)

    return make


def file_of(table: sk.Table, key: int) -> str:
    """The file of a key, as the manifests spell it."""
    (task,) = table.scan(f"k = {key}").plan().tasks
    return task.entry.key


def keys_of(scan: Any) -> list[int]:
    return sorted(scan.to_arrow()["k"].to_pylist())


def test_replaced_rows_are_not_found_by_old_values(changed: Make) -> None:
    # Filter v > 50 on k = 100, v = 100, which was replaced by k = 100, v = 5: the old row must not be back.
    made = changed([100], rows([100], 5.0))
    assert keys_of(made.scan("v > 98 and v < 102")) == [99, 101]
    assert made.scan("k = 100").to_arrow()["v"].to_pylist() == [5.0]
    assert made.scan().count() == len(made) == ROWS
    assert 100 not in keys_of(made.scan("v > 50"))


def test_plan_uses_the_index_and_judges_rows_in_memory_by_pages(table: sk.Table, changed: Make) -> None:
    made = changed([5, 6], rows(range(ROWS, ROWS + 20_000)))
    plan = made.scan(f"k between 2490 and 2505 or k = {ROWS + 10_000}").plan()
    base, own = plan.tasks
    assert (len(base.rows), base.number < 4) == (200, True)
    # One page of three.
    assert (len(own.rows), own.number) == (8_192, 4)
    assert plan.trace.index is not None
    assert plan.trace.index.covered == 4
    assert {level.name: (level.units, level.kept) for level in plan.trace.levels}["row groups"] == (2, 2)
    assert plan.trace.rows == ROWS + 20_000
    # Hidden rows of pages that are not read do not count as work.
    assert sk.execute(plan).to_arrow().num_rows == 17
    other = made.scan("k < 100").plan()
    assert [task.number for task in other.tasks] == [base_number(made, 0)]
    assert len(other.tasks[0].rows) == 98
    assert keys_of(made.scan("k < 10")) == [0, 1, 2, 3, 4, 7, 8, 9]


def base_number(made: OverlayTable, key: int) -> int:
    (task,) = made.base.scan(f"k = {key}").plan().tasks
    return task.number


def test_rows_in_memory_cost_no_requests(changed: Make) -> None:
    made = changed([], rows(range(ROWS, ROWS + 1_000)))
    assert made.scan(f"k >= {ROWS}").to_arrow().num_rows == 1_000
    before = made.io
    assert made.scan(f"k >= {ROWS} and v >= 0").to_arrow().num_rows == 1_000
    assert (made.io - before).requests == 0
    assert made.scan("k = 7 and v >= 0").to_arrow().num_rows == 1
    assert (made.io - before).requests == 1


def test_rows_in_memory_are_not_decoded(table: sk.Table, changed: Make) -> None:
    made = changed([5], rows(range(ROWS, ROWS + 20_000)))
    alone, both = (lake.scan().execute() for lake in (table, made))
    assert (alone.to_arrow().num_rows, both.to_arrow().num_rows) == (ROWS, ROWS + 20_000 - 1)
    (own,), (joined,) = alone.trace.run.phases, both.trace.run.phases
    assert joined.rows == own.rows + 20_000 - 1
    assert 0 < joined.bytes <= own.bytes
    # After pickling, only their bytes are known.
    sent = pickle.loads(pickle.dumps(made))
    assert sent.scan("v >= 3999").to_arrow().equals(made.scan("v >= 3999").to_arrow())
    assert sent.scan("v >= 3999").count() == 20_001


def test_keys_that_are_not_in_memory_end_at_a_bloom_filter(tmp_path: Path) -> None:
    table = sk.catalog(tmp_path).create_table("db.t", SCHEMA, key="k")
    table.append(rows(range(0, 2 * ROWS, 2)))
    made = overlay(table, {}, rows([1, *range(ROWS, 5 * ROWS, 3), 10 * ROWS]))
    for scan in (made.scan("k = 5000"), made.scan("k = 5000 and v = 5000")):
        levels = {level.name: (level.units, level.kept) for level in scan.trace().levels}
        assert (levels["row groups"], levels["bloom filters"]) == ((2, 2), (2, 1))
        assert scan.to_arrow()["k"].to_pylist() == [5_000]
    assert made.scan("k = 4003").to_arrow()["k"].to_pylist() == [4_003]
    assert made.scan("k in (4003, 5000)").count() == 2
    assert table.scan("k = 5000").count() == 1
    few, more = (calls(lake.scan("k = 5006").to_arrow) for lake in (table, made))
    assert few < more < 1.6 * few


def test_cached_aggregates_are_void_only_where_rows_are_hidden(changed: Make) -> None:
    made = changed([0, 1_500], rows([0, 1_500], 1.0))
    answer = made.scan().aggregate(sk.count(), sk.sum("v"), sk.max("v"))
    expected = sum(range(ROWS)) - 1_500 + 2
    assert answer.to_pylist() == [{"count": ROWS, "sum(v)": float(expected), "max(v)": float(ROWS - 1)}]
    count, values = answer.trace.columns
    assert count.read == 0
    # The two files without hidden rows, and all pages of the others but the two with hidden rows.
    assert values.read == 99 + 99 + 2
    assert values.rows_answered == ROWS - 200
    plain = made.scan().aggregate(sk.count(), sk.sum("v"), sk.max("v"), use_cached=False)
    assert plain.to_pylist() == answer.to_pylist()
    some = made.scan().aggregate(sk.sum("v"), within=[0, 2, 1_500], id_column="k")
    assert some.to_pylist() == [{"sum(v)": 4.0}]


def test_explanations_say_what_is_not_committed(changed: Make) -> None:
    made = changed([3, 4, 5], rows([3, 4], 9_000.0), name="tail")
    scan = made.scan("v > 3990")
    text = "tail: 2 of 2 uncommitted rows may match; 3 rows of the snapshot hidden"
    assert text in scan.explain()
    assert text in scan.explain(analyze=True)
    assert text in scan.aggregate(sk.count()).explain()
    said = json.loads(scan.explain("json"))["overlay"]
    assert said == {"name": "tail", "rows": 2, "kept": 2, "hidden": 3}
    assert "overlay" in json.loads(made.base.scan().explain("json"))
    none = changed([3]).scan("k = 1").trace().overlay
    assert str(none) == "transaction: no uncommitted rows; 1 row of the snapshot hidden"


def test_why_and_verify(changed: Make) -> None:
    made = changed([7], rows([7], 100_000.0))
    plan = made.scan("v > 50000").plan()
    (task,) = plan.tasks
    assert task.path.startswith("uncommitted://000000-")
    assert plan.why(task.path).conclusion == "kept: every row matches, none needs a test"
    dropped = made.scan("v between 10 and 20").plan().why(task.path)
    assert dropped.conclusion == "dropped: no row can match"
    for where in ("v > 50000", "k = 7", "name = 'name 3' and v < 2000", None):
        assert made.scan(where).verify().ok


def test_limits_and_orders(changed: Make) -> None:
    made = changed(range(10), rows(range(5), -1.0))
    best = made.scan(order_by="v", limit=6).to_arrow()
    assert best["v"].to_pylist() == [-1.0] * 5 + [10.0]
    assert made.scan(order_by="k desc").to_arrow()["k"].to_pylist() == [
        *range(ROWS - 1, 9, -1),
        *range(4, -1, -1),
    ]
    assert made.scan("v < 15", limit=7).to_arrow().num_rows == 7
    assert made.scan("v < 15").count() == 10
    assert made.head(3).num_rows == 3


def test_plans_and_overlays_can_be_pickled(changed: Make) -> None:
    made = changed([3], rows([3, ROWS], 0.5))
    plan = made.scan("v < 2").plan()
    again = pickle.loads(pickle.dumps(plan))
    assert again == plan
    assert sorted(sk.execute(again, columns=["k"]).to_arrow()["k"].to_pylist()) == [0, 1, 3, ROWS]
    other = pickle.loads(pickle.dumps(made))
    assert (other.version, other.scan("v < 2").count()) == (made.version, 4)
    assert made.version != changed([4], rows([3, ROWS], 0.5)).version != made.base.version


def test_frames(changed: Make) -> None:
    made = changed([3], rows([3, ROWS], 0.5))
    scan = made.scan("v < 2", columns=["k", "v"])
    assert sorted(scan.to_polars()["k"].to_list()) == [0, 1, 3, ROWS]
    assert sorted(scan.to_pandas()["k"].tolist()) == [0, 1, 3, ROWS]
    assert pa.table(scan).num_rows == 4


def test_layers(table: sk.Table) -> None:
    first, second = rows([ROWS, ROWS + 1]), rows([ROWS + 1], 0.0)
    made = overlay(
        table,
        {},
        [
            Layer(MemoryFile.of(table, first), sk.RowSet.from_positions(2, [1])),
            Layer(MemoryFile.of(table, second)),
            Layer(MemoryFile.of(table, second), sk.RowSet.all(1)),
        ],
    )
    assert len(made.files) == 6
    assert sorted(made.scan(f"k >= {ROWS}").to_arrow()["v"].to_pylist()) == [0.0, float(ROWS)]
    assert (len(made), made.statistics(["k"]).rows) == (ROWS + 2, ROWS + 2)
    assert made.files[-1].rows == 1


def test_rows_in_memory_need_not_have_the_tables_types(table: sk.Table) -> None:
    narrow = pa.table({"name": ["x"], "k": pa.array([ROWS], pa.int16())})
    made = overlay(table, {}, narrow)
    assert made.scan("name = 'x'").to_arrow().to_pylist() == [{"k": ROWS, "v": None, "name": "x"}]


def test_hidden_rows_of_an_unknown_file(table: sk.Table) -> None:
    with pytest.raises(UsageError, match=r"db\.t: snapshot has no such file: other.parquet"):
        overlay(table, {"other.parquet": sk.RowSet.all(1)}, SCHEMA.empty_table())


def test_other_snapshots_have_no_changes(changed: Make) -> None:
    made = changed([1], rows([1], 7_000.0))
    assert made.at(made.base.snapshot).scan("v = 7000").count() == 0
    assert made.scan("v = 7000", snapshot=made.base.snapshot).count() == 0
    assert made.refresh().scan("v = 7000").count() == 1


def test_tables_without_rows(tmp_path: Path) -> None:
    empty = sk.catalog(tmp_path / "warehouse").create_table("db.t", SCHEMA)
    made = overlay(empty, {}, rows(range(5)))
    assert (made.scan("v >= 3").count(), made.scan().to_arrow().num_rows) == (2, 5)
    assert made.scan().aggregate(sk.max("k")).to_pylist() == [{"max(k)": 4}]


def test_position_deletes_are_read_once(tmp_path: Path) -> None:
    keyed = sk.catalog(tmp_path / "warehouse").create_table("db.t", SCHEMA, key="k")
    keyed.append(rows(range(1_000)))
    keyed.delete(keys=[3, 4])
    made = overlay(keyed, {keyed.entries[0].key: sk.RowSet.from_positions(1_000, [5])}, rows([5], 0.5))
    for lake in (keyed, made):
        before = lake.io.requests
        assert lake.scan("k < 10").count() == 8
        # The footer, a page index, pages, and the footer and the pages of the delete file.
        assert lake is made or lake.io.requests - before >= 4
        lake.plans.clear()
        before = lake.io.requests
        assert lake.scan("k < 10").count() == 8
        assert lake.io.requests - before == 1
    trace = made.scan("k < 10").trace()
    assert trace.deletes is not None
    assert (trace.deletes.files, trace.deletes.applied, trace.deletes.rows) == (1, 1, 2)
    assert trace.overlay is not None
    assert (trace.overlay.hidden, trace.overlay.kept) == (1, 1)
