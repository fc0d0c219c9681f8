"""Verification: silent where skipping is right; where it isn't, the rows lost and what lost them."""

from __future__ import annotations

import dataclasses
import importlib
import json
import pickle
import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from skipstone.core.evidence import ColumnFacts
from skipstone.core.rows import RowSet
from skipstone.errors import CorruptFileError, PredicateError
from skipstone.scan.execute import Work
from skipstone.scan.verify import differences
from tests.property._lakes import random_lake, under
from tests.property._patch import BINARY, Struct, chunks, patch_column_index, patch_footer
from tests.property._predicates import Predicates, is_drawn
from tests.support.samples import sample

ROWS, GROUP, PAGE = 2_000, 500, 100
LAKES = sample("verify")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for number in range(2):
        write(tmp_path / f"part-{number}.parquet", number * ROWS)
    return tmp_path


def write(path: Path, first: int) -> None:
    ids = range(first, first + ROWS)
    table = pa.table({"id": ids, "kind": [f"kind {n % 7}" for n in ids], "f": [n * 1.5 for n in ids]})
    pq.write_table(table, path, row_group_size=GROUP, max_rows_per_page=PAGE, write_page_index=True)


# -- nothing wrong -----------------------------------------------------------------------------


def test_a_selective_scan(root: Path) -> None:
    lake = sk.open(root)
    found = lake.scan("id between 650 and 720", columns=["kind"]).verify()
    assert found.ok
    assert (found.files, found.rows_matching, found.rows_proven) == (2, 71, 0)
    assert (found.rows_read_with, found.rows_read_without) == (200, 2 * ROWS)
    assert 0 < found.bytes_with < found.bytes_without
    assert found.seconds_with > 0
    assert found.seconds_without > 0
    assert found.differences == ()
    assert pickle.loads(pickle.dumps(found)) == found
    lines = str(found).splitlines()
    assert lines[1].startswith("├─ compared  2 files, 4,000 rows")
    assert lines[2] == "├─ matching  71 rows, 0 of them proven by metadata"
    assert "200 instead of 4,000 (5 %)" in lines[3]
    assert lines[-1] == "└─ ✓ no difference: the same rows with the same values"
    data = json.loads(json.dumps(found.to_json()))
    assert (data["ok"], data["rows_matching"], data["differences"]) == (True, 71, [])


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"where": "id >= 0"},
        {"where": "id < 0"},
        {"where": "id > 300 and kind = 'kind 3'", "limit": 7},
        {"where": "id > 300", "limit": 7},
        {"limit": 7},
        {"limit": 0},
        {"where": "kind > 'kind 3'", "limit": 10_000},
        {"where": "id > 300", "order_by": ["kind desc", "f"]},
        {"where": "id > 300", "order_by": "f desc", "limit": 5, "columns": ["id"]},
        {"where": "kind = 'kind 1'", "order_by": "kind", "limit": 30},
        {"where": "id < 900", "skipping": False},
        {"where": "id < 900", "route": "slice", "materialise": "late", "threads": 3, "batch_rows": 64},
        {"where": "id > 300", "columns": []},
    ],
)
def test_other_questions(root: Path, asked: dict[str, Any]) -> None:
    found = sk.open(root).scan(**asked).verify()
    assert found.ok, str(found)
    assert found.rows_read_without == 2 * ROWS


def test_an_empty_lake(tmp_path: Path) -> None:
    found = sk.open(tmp_path, schema=pa.schema({"a": pa.int64()})).scan("a = 1").verify()
    assert (found.ok, found.files, found.rows_matching) == (True, 0, 0)
    assert str(found).endswith("the same values")


def test_an_object_store() -> None:
    from obstore.store import MemoryStore

    store = MemoryStore()
    for number in range(2):
        body = pa.BufferOutputStream()
        pq.write_table(pa.table({"id": range(number * 100, number * 100 + 100)}), body, row_group_size=30)
        store.put(f"lake/{number}.parquet", body.getvalue().to_pybytes())
    found = sk.open("lake", store=store).scan("id between 50 and 60").verify()
    assert (found.ok, found.rows_matching, found.files) == (True, 11, 2)


def test_random_lakes(tmp_path: Path) -> None:
    verified = skipped = 0
    for number in range(LAKES):
        root = tmp_path / str(number)
        made = random_lake(f"verify:{number}", root)
        lake = sk.open(root, schema=made.schema if made.explicit else None)
        rng = random.Random(number)
        pools = under(lake.schema.remove_metadata(), made.made)
        for _ in range(2):
            predicate = Predicates(rng, pools, is_drawn).tree()
            limit = rng.choice([None, None, 1, 20])
            order = rng.choice([None, None, ["rid desc"]])
            try:
                found = lake.scan(predicate, limit=limit, order_by=order).verify()
            except PredicateError:
                continue
            assert found.ok, f"lake {number}: {predicate} limit {limit} order {order}\n{found}"
            verified += 1
            skipped += found.rows_read_with < found.rows_read_without
        shutil.rmtree(root)
    assert verified > 1.5 * LAKES
    assert skipped > LAKES / 2


# -- metadata that lies ------------------------------------------------------------------------


def lying(monkeypatch: pytest.MonkeyPatch, **lies: int) -> None:
    """From now on the bounds of ``id`` in row group 1 of the first file are these."""
    survey = importlib.import_module("skipstone.prune.survey")
    true = survey.lake_facts

    def told(files: Any, ref: Any) -> ColumnFacts:
        facts: ColumnFacts = true(files, ref)
        first = 0
        for file in files:
            if ref.path == ("id",) and file.path.endswith("part-0.parquet"):
                changed = {name: getattr(facts, name).copy() for name in lies}
                for name, value in lies.items():
                    changed[name][first + 1] = value
                return dataclasses.replace(facts, **changed)
            first += file.row_group_count
        return facts

    monkeypatch.setattr(survey, "lake_facts", told)


def test_a_bound_too_high_loses_rows(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lying(monkeypatch, lower=900)
    found = sk.open(root).scan("id between 650 and 720").verify()
    assert not found.ok
    (lost,) = found.differences
    assert (lost.kind, lost.path, lost.row_group) == ("lost", f"{root}/part-0.parquet", 1)
    assert lost.rows == RowSet.from_ranges(ROWS, [(650, 721)])
    assert lost.why is not None
    assert lost.why.steps[-1].evidence == "id: min 900, max 999, 0 nulls (row-group statistics)"
    assert lost.why.verdict is sk.Verdict.NONE
    drawn = " ".join(str(found).split())
    assert "✗ 1 difference" in drawn
    assert "lost: matching rows are missing: 71 rows: " in drawn
    assert "id: min 900, max 999" in drawn
    data = json.loads(json.dumps(found.to_json()))
    assert data["differences"][0]["rows"] == [[650, 721]]
    assert data["differences"][0]["why"]["steps"][-1]["cause"] == "bounds"


def test_a_bound_too_high_proves_falsely(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lying(monkeypatch, lower=900)
    found = sk.open(root).scan("id >= 700").verify()
    (wrong,) = found.differences
    assert (wrong.kind, wrong.row_group) == ("false proof", 1)
    assert wrong.rows == RowSet.from_ranges(ROWS, [(500, 700)])
    assert wrong.why is not None
    assert wrong.why.verdict is sk.Verdict.ALL
    assert found.rows_matching == 2 * ROWS - 700


@pytest.mark.parametrize("asked", [{"limit": 20}, {"order_by": "id"}, {"order_by": "id", "limit": 3}])
def test_limits_and_orders_hide_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any]
) -> None:
    lying(monkeypatch, lower=900)
    found = sk.open(root).scan("id between 650 and 720", **asked).verify()
    assert [d.kind for d in found.differences] == ["lost"]


def test_a_footer_with_wrong_bounds(root: Path) -> None:
    path = root / "part-1.parquet"

    def raise_min(footer: Struct) -> None:
        stats = chunks(footer)[0][12][1]  # id in row group 0: 2,000 to 2,499
        stats[6] = [BINARY, (2_400).to_bytes(8, "little")]
        stats.pop(2, None)

    patch_footer(path, raise_min)
    found = sk.open(root).scan("id in (2100, 2450, 2600)").verify()
    (lost,) = found.differences
    assert (lost.kind, lost.path, lost.row_group) == ("lost", str(path), 0)
    assert lost.rows == RowSet.from_positions(ROWS, [100])
    assert lost.why is not None
    # The row group is kept for 2450; the page of 2100 went by the bounds it shares with its row group.
    assert lost.why.rows == (100, 200)
    assert found.rows_matching == 3


def test_a_page_index_with_wrong_bounds(root: Path) -> None:
    path = root / "part-0.parquet"

    def raise_second(index: Struct) -> None:
        kind, values = index[2][1]
        if len(values) == GROUP // PAGE and len(values[1]) == 8:
            number = int.from_bytes(values[1], "little") + 50
            index[2][1] = (kind, [values[0], number.to_bytes(8, "little"), *values[2:]])

    patch_column_index(path, raise_second)
    found = sk.open(root).scan("id = 120").verify()
    (lost,) = found.differences
    assert lost.why is not None
    assert lost.why.steps[-1].level == "pages"
    assert lost.why.steps[-1].evidence == "id: min 150, max 199, 0 nulls in page 1 (rows 100–199)"


def test_many_differences_are_bounded(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skipstone.scan.verify._MAX_DIFFERENCES", 2)

    def lie(footer: Struct) -> None:  # every row group says that its ids are a million
        for chunk in chunks(footer)[::3]:
            chunk[12][1].update({end: [BINARY, (10**6).to_bytes(8, "little")] for end in (5, 6)})

    for number in range(2):
        patch_footer(root / f"part-{number}.parquet", lie)
    found = sk.open(root).scan("id < 5000").verify()
    assert [d.kind for d in found.differences] == ["lost", "lost"]
    assert found.left_out == 6
    assert "✗ 8 differences" in str(found)
    assert str(found).endswith("6 more")


# -- reading that is wrong ---------------------------------------------------------------------


def broken(monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    """From now on tables of the first file's row group 1 come back changed."""
    true = Work.table

    def table(self: Work, pieces: Any) -> pa.Table:
        (piece,) = pieces
        found = true(self, pieces)
        wrong = piece.group == 1 and self.plan.tasks[piece.task].path.endswith("part-0.parquet")
        return change(found) if wrong else found

    monkeypatch.setattr(Work, "table", table)
    work = importlib.import_module("skipstone.scan.execute")
    monkeypatch.setattr(work, "bundled", lambda pieces, _: ((piece,) for piece in pieces))


def other_value(table: pa.Table) -> pa.Table:
    values = table["f"].to_pylist()
    values[3] = -1.0
    return table.set_column(table.column_names.index("f"), "f", pa.array(values))


def test_wrong_values(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch, other_value)
    found = sk.open(root).scan("id >= 600 and kind >= ''").verify()
    (wrong,) = found.differences
    assert (wrong.kind, wrong.row_group, wrong.why) == ("wrong values", 1, None)
    assert wrong.rows is not None
    assert len(wrong.rows) == 1
    assert wrong.detail == "columns f; the first has f = -1.0 instead of 904.5"
    assert "✗ 1 difference" in str(found)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda table: table.slice(1), "lost"),
        (lambda table: pa.concat_tables([table, table.slice(0, 2)]), "extra rows"),
        (lambda table: table.take(pc.sort_indices(table, [("id", "descending")])), "wrong values"),
    ],
)
def test_wrong_rows(root: Path, monkeypatch: pytest.MonkeyPatch, change: Any, kind: str) -> None:
    broken(monkeypatch, change)
    found = sk.open(root).scan("id >= 600 and kind >= ''").verify()
    # The row groups after it are right, though the answer as a whole is out of step.
    assert [(d.kind, d.row_group) for d in found.differences] == [(kind, 1)]


def test_rows_after_the_last_one(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    execution = importlib.import_module("skipstone.scan.execute").Execution
    true = execution.to_batches

    def more(self: Any) -> Any:
        last = None
        for batch in true(self):
            yield batch
            last = batch
        if last is not None:
            yield last.slice(0, 1)

    monkeypatch.setattr(execution, "to_batches", more)
    found = sk.open(root).scan("id between 650 and 720").verify()
    assert [d.kind for d in found.differences] == ["extra rows"]


def test_a_wrong_order(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sort = importlib.import_module("skipstone.scan.sort")
    true = sort.sort_positions
    monkeypatch.setattr(sort, "sort_positions", lambda *args: true(*args)[::-1])
    found = sk.open(root).scan("id between 650 and 720", order_by="id").verify()
    assert [d.kind for d in found.differences] == ["wrong order"]
    assert "by id" in found.differences[0].detail


def test_a_file_that_only_skipping_can_read(root: Path) -> None:
    path = root / "part-1.parquet"
    body = bytearray(path.read_bytes())
    start = pq.read_metadata(path).row_group(1).column(0).data_page_offset
    body[start : start + 60] = b"\xff" * 60
    path.write_bytes(body)
    scan = sk.open(root).scan("id = 3")
    assert scan.count() == 1
    with pytest.raises(CorruptFileError, match=r"part-1\.parquet, row group 1: pyarrow can't read the file"):
        scan.verify()


# -- values ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "theirs", "rows"),
    [
        (pa.array([1, None, 3]), pa.array([1, 2, 3]), [1]),
        (pa.array([float("nan"), 0.0, None, 1.0]), pa.array([float("nan"), -0.0, None, None]), [1, 3]),
        (pa.array([[float("nan")], [1.0]]), pa.array([[float("nan")], [2.0]]), [1]),
        (pa.array([1.5, None, float("nan")], pa.float16()), pa.array([1.5, None, 2.0], pa.float16()), [2]),
        (pa.array(["a", "b"]).dictionary_encode(), pa.array(["a", "c"]).dictionary_encode(), [1]),
        (pa.array([1, 2], pa.timestamp("ns")), pa.array([1, 3], pa.timestamp("ns")), [1]),
        (pa.array([{"x": 1}, None]), pa.array([{"x": 1}, {"x": None}]), [1]),
        (pa.array(["a"], pa.string_view()), pa.array(["b"], pa.string_view()), [0]),
    ],
)
def test_values_are_compared_one_by_one(ours: pa.Array, theirs: pa.Array, rows: list[int]) -> None:
    found = differences(pa.table({"c": ours}), pa.table({"c": theirs}))
    assert found["c"].tolist() == rows
    assert not differences(pa.table({"c": ours}), pa.table({"c": ours}))


def test_other_types_and_numbers_of_rows_differ_everywhere() -> None:
    wanted = pa.table({"a": [1, 2]})
    assert differences(pa.table({"a": pa.array([1, 2], pa.int32())}), wanted)["a"].tolist() == [0, 1]
    assert differences(wanted.slice(1), wanted)["a"].tolist() == [0, 1]
    assert differences(None, wanted)["a"].tolist() == [0, 1]
