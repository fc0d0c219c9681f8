"""Why a unit was kept or dropped: the right verdict, the right reason, and the statistic word for word."""

from __future__ import annotations

import json
import pickle
import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from skipstone.errors import PredicateError, UsageError
from skipstone.report.trace import Cause
from tests.property._lakes import random_lake, under
from tests.property._patch import BINARY, Struct, columns, patch_footer, patch_statistics
from tests.property._predicates import Predicates, is_drawn
from tests.support.samples import sample

ROWS, GROUP, PAGE = 4_000, 1_000, 200
LAKES = sample("reasons")
NONE, SOME, ALL = sk.Verdict.NONE, sk.Verdict.SOME, sk.Verdict.ALL


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two days of one file each: sorted ids, a few kinds with a bloom filter, a float, a struct."""
    root = tmp_path_factory.mktemp("why")
    for number, day in enumerate(("2026-01-01", "2026-01-02")):
        ids = range(number * ROWS, (number + 1) * ROWS)
        table = pa.table(
            {
                "id": ids,
                "kind": [f"kind {n % 7}" for n in ids],
                "f": [n / 10 for n in ids],
                "s": [{"x": n} if n % 4 else None for n in ids],
                "gone": pa.nulls(ROWS, pa.int32()),
            }
        )
        path = root / f"day={day}" / f"part-{number}.parquet"
        path.parent.mkdir()
        pq.write_table(
            table,
            path,
            row_group_size=GROUP,
            max_rows_per_page=PAGE,
            write_page_index=True,
            bloom_filter_options={"kind": {"ndv": 10, "fpp": 0.001}},
        )
    return root


def ask(root: Path, where: Any, file: int = 0, **unit: int) -> sk.Why:
    return sk.open(root).scan(where).plan().why(f"part-{file}.parquet", **unit)


def last(why: sk.Why) -> tuple[str, str, str, Cause | None]:
    step = why.steps[-1]
    return step.level, step.condition, step.evidence, step.cause


# -- what each level says ----------------------------------------------------------------------


def test_a_directory_rules_a_file_out(root: Path) -> None:
    lake = sk.open(root)
    plan = lake.scan("day = '2026-01-02'").plan()
    before = lake.io
    why = plan.why("part-0.parquet")
    assert lake.io == before  # the footer says nothing new
    assert (why.verdict, why.kept, why.ruled_out, why.rows, why.unit) == (NONE, False, True, None, "file")
    assert last(why) == ("partitions", "day = '2026-01-02'", "day = 2026-01-01 (partition)", Cause.PARTITION)
    assert str(why).endswith("└─ dropped: no row can match")
    kept = plan.why("part-1.parquet")
    assert (kept.verdict, kept.steps[0].verdict) == (ALL, ALL)
    assert kept.steps[0].evidence == "day = 2026-01-02 (partition)"


def test_bounds_of_a_row_group(root: Path) -> None:
    why = ask(root, "id = 1500", row_group=2)
    assert (why.verdict, why.unit, why.rows) == (NONE, "row group 2", (2000, 3000))
    said = "id: min 2,000, max 2,999, 0 nulls (row-group statistics)"
    assert last(why) == ("row groups", "id = 1500", said, Cause.BOUNDS)
    assert [step.level for step in why.steps] == ["row groups"]


def test_every_row_group_of_a_file_is_told_and_the_drawing_shortened(root: Path) -> None:
    why = ask(root, "id < 0")
    assert [(step.unit, step.verdict) for step in why.steps] == [(f"row group {n}", NONE) for n in range(4)]
    assert (why.unit, why.rows, why.verdict) == ("file", (0, ROWS), NONE)
    assert "kept 0 of 4" in str(why)
    pages = ask(root, "id % 2 = 0 and id < 3500 and f > 0.05")
    assert sum(step.level == "pages" for step in pages.steps) == 20
    assert "more kept" in str(pages)
    assert len(str(pages).splitlines()) < 60


def test_pages(root: Path) -> None:
    plan = sk.open(root).scan("id between 250 and 260").plan()
    dropped = plan.why("part-0.parquet", row=7)
    assert (dropped.verdict, dropped.rows) == (NONE, (0, 200))
    assert dropped.unit == "row group 0, rows 0–199"
    said = "id: min 0, max 199, 0 nulls in page 0 (rows 0–199)"
    assert last(dropped) == ("pages", "id >= 250 AND id <= 260", said, Cause.PAGE)
    kept = plan.why("part-0.parquet", row=255)
    assert (kept.verdict, kept.rows) == (SOME, (200, 400))
    assert kept.steps[-1].evidence == "id: min 200, max 399, 0 nulls in page 1 (rows 200–399)"
    later = plan.why("part-0.parquet", row=1_200)  # its row group went before its pages were looked at
    assert (later.verdict, later.rows, later.steps[-1].level) == (NONE, (1000, 2000), "row groups")
    both = plan.why("part-0.parquet", row_group=0, row=255)
    assert both == kept


def test_a_page_where_every_row_matches(root: Path) -> None:
    why = sk.open(root).scan("id >= 250").plan().why("part-0.parquet", row=450)
    assert why.verdict is ALL
    assert "every row matches" in why.conclusion
    assert why.steps[-1].verdict is ALL


def test_blooms(root: Path) -> None:
    why = ask(root, "kind = 'kind 3b'", row_group=1)
    said = "kind: bloom filter says 'kind 3b' is absent"
    assert last(why) == ("bloom filters", "kind = 'kind 3b'", said, Cause.BLOOM)
    assert [step.verdict for step in why.steps] == [SOME, NONE]
    found = ask(root, "kind = 'kind 3'", row_group=1)
    assert found.steps[1].evidence == "kind: bloom filter can't rule out 'kind 3'"
    assert found.verdict is SOME
    two = ask(root, "kind in ('kind 3b', 'kind 4b')", row_group=1)
    assert two.steps[-1].evidence == "kind: bloom filter says 'kind 3b', 'kind 4b' are absent"


def test_a_bloom_that_rules_out_one_side_of_an_or(root: Path) -> None:
    why = ask(root, "kind = 'kind 3b' or kind >= 'kind 6'", row_group=1)
    assert why.verdict is SOME
    assert not any("can't rule out 'kind 3b'" in step.evidence for step in why.steps)


def test_dictionaries(root: Path) -> None:
    lake = sk.open(root)
    plan = lake.scan("kind between 'kind 3a' and 'kind 3z'", dictionary=True).plan()
    why = plan.why("part-0.parquet", row_group=0)
    assert why.verdict is NONE
    assert why.steps[-1].cause is Cause.DICTIONARY
    assert why.steps[-1].evidence == "kind: no dictionary value matches"


def test_nulls_and_missing_columns(root: Path, tmp_path: Path) -> None:
    why = ask(root, "gone = 3", row_group=0)
    assert last(why) == (
        "row groups",
        "gone = 3",
        "gone: only NULL (row-group statistics)",
        Cause.NULLS,
    )
    why = ask(root, "id is null", row_group=0)
    assert last(why)[3] is Cause.NULLS
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"a": [1], "b": [2]}), tmp_path / "b.parquet")
    why = sk.open(tmp_path).scan("b = 2").plan().why("a.parquet")
    assert why.steps[-1].evidence == "b: not in the file, so NULL in every row"
    assert why.verdict is NONE


def test_struct_fields_floats_and_conditions_that_metadata_cannot_judge(root: Path) -> None:
    why = ask(root, "s.x < 0 or f > 1e9", row_group=0)
    said = (
        "s.x: min 1, max 999, 250 nulls (row-group statistics); f: min -0.0, max 99.9, 0 nulls, NaN possible"
    )
    assert why.steps[0].evidence == f"{said} (row-group statistics)"
    assert why.verdict is SOME  # NaN is above every number
    why = ask(root, "id % 2 = 0", row_group=0)
    assert why.steps[0].evidence == "no metadata applies"


def test_only_the_open_conditions_are_named(root: Path) -> None:
    why = ask(root, "day >= '2026-01-01' and id >= 0 and kind > 'kind 3'", row_group=0)
    assert [(step.level, step.condition) for step in why.steps[:2]] == [
        ("partitions", "day >= '2026-01-01'"),
        ("row groups", "kind > 'kind 3'"),
    ]


def test_a_constant(root: Path) -> None:
    why = ask(root, "1 = 2")
    assert why.verdict is NONE
    assert why.steps[-1].cause in (Cause.CONSTANT, Cause.PARTITION)


# -- metadata that is not believed -------------------------------------------------------------


def write_one(path: Path, change: Any = None, **settings: Any) -> sk.ScanPlan:
    pq.write_table(pa.table({"t": ["b", "c"], "n": [5, 7]}), path, **settings)
    if change is not None:
        change(path)
    return sk.open(path).scan("t = 'bb'").plan()


def swap(stats: Struct) -> None:
    stats[5], stats[6] = stats[6], stats[5]


def only_deprecated(stats: Struct) -> None:
    for old, new in ((1, 5), (2, 6)):
        stats[old] = stats.pop(new)


def written_by(name: bytes) -> Any:
    def change(footer: Struct) -> None:
        footer[6] = [BINARY, name]
        footer.pop(7, None)

    return lambda path: patch_footer(path, change)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda path: patch_statistics(path, swap),
            "bounds ignored: min is above max, or not a value, 0 nulls",
        ),
        (lambda path: patch_statistics(path, only_deprecated), "bounds ignored: deprecated bounds"),
        (written_by(b"parquet-mr version 1.8.0"), "bounds ignored: "),
        (
            lambda path: patch_statistics(path, lambda stats: [stats.pop(n) for n in (5, 6)]),
            "no bounds, 0 nulls",
        ),
    ],
)
def test_bounds_that_are_ignored_say_why(tmp_path: Path, change: Any, words: str) -> None:
    why = write_one(tmp_path / "a.parquet", change, write_page_index=False).why("a.parquet")
    text = next(step.evidence for step in why.steps if step.level == "row groups")
    assert f"t: {words}" in text


def test_no_statistics_and_no_page_index(tmp_path: Path) -> None:
    plan = write_one(tmp_path / "a.parquet", write_statistics=False)
    why = plan.why("a.parquet")
    assert why.steps[0].evidence.startswith("t: no statistics, no null count (row-group statistics)")
    assert "row group 0, column t: no page index" in why.notes
    assert "notes: " in str(why)


def test_a_narrower_type_without_statistics_has_no_bounds(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": pa.array([5], pa.int32())}), tmp_path / "a.parquet", write_statistics=False)
    pq.write_table(pa.table({"a": [2**40]}), tmp_path / "b.parquet")
    why = sk.open(tmp_path).scan("a = 5").plan().why("a.parquet")
    assert why.steps[0].evidence == "a: no statistics, no null count (row-group statistics)"


def test_a_null_count_that_is_not_trusted(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": [1, None]}), path)
    patch_footer(path, lambda footer: footer.update({6: [BINARY, b"parquet-rs version 4.0.0"]}))
    why = sk.open(path).scan("a > 1").plan().why("a.parquet")
    assert "null count 1 not trusted" in why.steps[0].evidence


def test_an_index_that_is_ignored_is_a_note(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": range(100)}), path, write_page_index=True, max_rows_per_page=10)

    def cut(footer: Struct) -> None:
        for chunk in columns(footer):
            chunk[7][1] -= 3

    patch_footer(path, cut)
    why = sk.open(path).scan("a = 7").plan().why("a.parquet")
    assert any("page index ignored" in note for note in why.notes)
    assert why.verdict is SOME


# -- plans that are more than their predicate --------------------------------------------------


def test_a_limit_that_other_rows_meet(root: Path) -> None:
    plan = sk.open(root).scan("id >= 0", limit=10).plan()
    why = plan.why("part-1.parquet")
    assert (why.verdict, why.ruled_out, why.conclusion) == (NONE, False, "not read")
    assert "other rows fill the limit of 10" in why.notes[0]
    assert sk.open(root).scan(limit=10).plan().why("part-1.parquet").notes == why.notes


def test_no_predicate_and_no_skipping(root: Path) -> None:
    why = sk.open(root).scan().plan().why("part-1.parquet", row_group=1)
    assert (why.verdict, why.steps[0].evidence) == (ALL, "no predicate: every row matches")
    why = sk.open(root).scan("id = 1", skipping=False).plan().why("part-1.parquet", row=3)
    assert (why.verdict, why.steps[0].evidence) == (SOME, "skipping is off: every row is read and tested")


def test_a_file_that_came_later(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    plan = sk.open(tmp_path).scan("a = 1").plan()
    pq.write_table(pa.table({"a": [1]}), tmp_path / "b.parquet")
    why = plan.why("b.parquet")
    assert (why.verdict, why.ruled_out) == (NONE, False)
    assert "it was added or changed later" in why.notes[0]


def test_an_empty_file(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}).slice(1), tmp_path / "a.parquet")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "b.parquet")
    for where in ("a = 1", None):
        why = sk.open(tmp_path).scan(where).plan().why("a.parquet")
        assert (why.verdict, why.ruled_out, why.notes) == (NONE, True, ())


def test_a_plan_from_another_process(root: Path) -> None:
    plan = sk.open(root).scan("id = 1500").plan()
    again = pickle.loads(pickle.dumps(plan)).why("part-0.parquet", row=1_500)
    assert again == plan.why("part-0.parquet", row=1_500)
    assert pickle.loads(pickle.dumps(again)) == again


# -- names -------------------------------------------------------------------------------------


def test_names_of_a_file(root: Path) -> None:
    plan = sk.open(root).scan("id = 1500").plan()
    key = "day=2026-01-01/part-0.parquet"
    found = plan.why(key)
    assert found.path == f"{root}/{key}"
    for name in (f"{root}/{key}", "part-0.parquet", "0.parquet"):
        assert plan.why(name) == found
    with pytest.raises(UsageError, match=r"matches 2 files: .*pass more of the path"):
        plan.why("parquet")
    with pytest.raises(UsageError, match=r"no file 'part-9.parquet'.*"):
        plan.why("part-9.parquet")
    with pytest.raises(UsageError, match=f"did you mean {key}"):
        plan.why("day=2026-01-01/part0.parquet")
    with pytest.raises(UsageError, match=r"no row group 4 .use a number below 4"):
        plan.why(key, row_group=4)
    with pytest.raises(UsageError, match=r"no row 4000 .use a number below 4000"):
        plan.why(key, row=ROWS)
    with pytest.raises(UsageError, match="row 5 is in row group 0, not 1"):
        plan.why(key, row_group=1, row=5)


def test_names_in_an_object_store(root: Path) -> None:
    from obstore.store import MemoryStore

    store = MemoryStore()
    for path in root.rglob("*.parquet"):
        store.put(f"lake/{path.relative_to(root)}", path.read_bytes())
    plan = sk.open("lake", store=store).scan("id = 250").plan()
    found = plan.why("part-0.parquet", row=7)
    assert plan.why(found.path, row=7) == found
    assert found.steps[-1].evidence == "id: min 0, max 199, 0 nulls in page 0 (rows 0–199)"
    assert plan.why("part-1.parquet").verdict is NONE


def test_hidden_files_are_none(root: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "_a.parquet")
    assert sk.open(tmp_path).scan("a = 1").plan().why("a.parquet").path == f"{tmp_path}/a.parquet"
    with pytest.raises(UsageError, match=r"lake has no file ._a\.parquet."):
        sk.open(tmp_path).scan("a = 1").plan().why("_a.parquet")


# -- drawn -------------------------------------------------------------------------------------


def test_drawn(root: Path) -> None:
    why = ask(root, "id = 1500 and day <= '2026-01-01'", row=3_100)
    assert str(why).splitlines()[1:] == [
        "│  row group 3, rows 3,000–3,999",
        "├─ partitions  kept",
        "│     day <= '2026-01-01': day = 2026-01-01 (partition)",
        "├─ row groups  dropped by bounds",
        "│     id = 1500: id: min 3,000, max 3,999, 0 nulls (row-group statistics)",
        "└─ dropped: no row can match",
    ]
    assert all(len(line) <= 100 for line in str(why).splitlines())


def test_as_json(root: Path) -> None:
    why = ask(root, "id = 1500", row=3_100)
    data = json.loads(json.dumps(why.to_json()))
    assert (data["verdict"], data["kept"], data["rows"]) == ("NONE", False, [3000, 4000])
    assert data["steps"][-1] == {
        "level": "row groups",
        "unit": "row group 3",
        "verdict": "NONE",
        "condition": "id = 1500",
        "evidence": "id: min 3,000, max 3,999, 0 nulls (row-group statistics)",
        "cause": "bounds",
    }


def test_names_from_files_are_made_harmless(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a\x1b[31m": ["x\ny"]}), tmp_path / "a.parquet")
    why = sk.open(tmp_path).scan(sk.col("a\x1b[31m") == "x\n").plan().why("a.parquet")
    assert "\x1b" not in str(why)


# -- random lakes ------------------------------------------------------------------------------


def test_the_reasons_agree_with_the_plan(tmp_path: Path) -> None:
    asked = dropped = 0
    for number in range(LAKES):
        root = tmp_path / str(number)
        made = random_lake(f"why:{number}", root)
        lake = sk.open(root, schema=made.schema if made.explicit else None)
        rng = random.Random(number)
        pools = under(lake.schema.remove_metadata(), made.made)
        for _ in range(2):
            predicate = Predicates(rng, pools, is_drawn).tree()
            try:
                plan = lake.scan(predicate, dictionary=rng.random() < 0.3).plan()
            except PredicateError:
                continue
            for entry in lake.entries:
                footer = lake.access.footer(entry)
                units: list[dict[str, int]] = [{}]
                if footer.num_rows:
                    units.append({"row": rng.randrange(footer.num_rows)})
                    units.append({"row_group": rng.randrange(footer.row_group_count)})
                for unit in units:
                    why = plan.why(entry.key, **unit)
                    words = f"lake {number}, {entry.key} {unit}: {predicate}\n{why}"
                    assert why.ruled_out is not why.kept, words
                    assert not [note for note in why.notes if "the plan" in note], words
                    proven = {step.verdict for step in why.steps if step.level == why.steps[-1].level}
                    assert (why.verdict is ALL) <= (ALL in proven), words
                    assert all(step.evidence for step in why.steps), words
                    asked += 1
                    dropped += not why.kept
        shutil.rmtree(root)
    assert asked > 8 * LAKES
    assert 0.1 * asked < dropped < 0.9 * asked
