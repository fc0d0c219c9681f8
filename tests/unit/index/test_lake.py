"""A lake with an index answers every question as one without, and lives with its index coming and going."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from obstore.store import LocalStore, MemoryStore

import skipstone as sk
import skipstone.index.coverage as coverage_module
from skipstone.errors import SkipstoneError, UsageError

FILES = 5


def table(number: int) -> pa.Table:
    ids = range(number * 100, number * 100 + 100)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "x": pa.array([float("nan") if n % 50 == 0 else n * 37 % 101 / 2 for n in ids]),
            "text": pa.array([None if n % 9 == 0 else f"w{n % 30:02d}" for n in ids]),
            "st": pa.array([{"a": n % 7, "b": f"b{n}"} for n in ids]),
        }
    )


WHOLE = pa.concat_tables([table(n) for n in range(FILES)])


def write(root: Path, number: int, name: str | None = None) -> None:
    pq.write_table(
        table(number),
        root / (name or f"f{number}.parquet"),
        row_group_size=40,
        write_page_index=True,
        max_rows_per_page=10,
        write_batch_size=10,
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "lake"
    root.mkdir()
    for number in range(FILES):
        write(root, number)
    return root


@pytest.fixture(params=["small", "large"])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "large":
        for name, value in (("_SMALL", 0), ("_FEW", 0), ("_SHARE", 1)):
            monkeypatch.setattr(coverage_module, name, value)
    return str(request.param)


def use(scan: Any) -> Any:
    return scan.plan().trace.index


def check(lake: Any) -> None:
    """Questions of every kind; the same with the index and without."""
    for index in (True, False):
        assert lake.scan("id = 123", index=index).to_arrow().equals(WHOLE.slice(123, 1))
        assert (
            lake.scan("x > 49", index=index).count() == pc.sum(pc.greater(WHOLE["x"], 49)).as_py() + 10
        )  # NaN
        assert lake.scan("text is null", index=index).count() == WHOLE["text"].null_count
        assert lake.scan("st.a = 3", index=index).count() == sum(r["a"] == 3 for r in WHOLE["st"].to_pylist())
        assert lake.scan(None, index=index).count() == 100 * FILES
        assert lake.scan(None, ["id"], limit=7, index=index).to_arrow()["id"].to_pylist() == list(range(7))
        top = lake.scan("id < 450", ["id"], order_by=["id desc"], limit=4, index=index).to_arrow()
        assert top["id"].to_pylist() == [449, 448, 447, 446]
        last = lake.scan(None, ["id"], order_by=["x desc", "id"], limit=3, index=index).to_arrow()
        assert last["id"].to_pylist() == [0, 50, 100]
        assert lake.scan("id between 95 and 104", ["text"], index=index).to_arrow().num_rows == 10
        assert lake.scan("id > 30 and x < 20", index=index).verify().ok
        assert lake.scan("id = 5", limit=0, index=index).to_arrow().num_rows == 0


def test_every_kind_of_question(root: Path, size: str) -> None:
    sk.open(root).index.build(engine="local")
    lake = sk.open(root)
    check(lake)
    assert use(lake.scan("id = 1")).covered == FILES
    assert use(lake.scan("id = 1", index=False)) is None
    assert use(lake.scan("id = 1", skipping=False)) is None


def test_statistics_are_the_same(root: Path) -> None:
    without = sk.open(root).statistics()
    sk.open(root).index.build(engine="local")
    found = sk.open(root).statistics()
    for name in ("rows", "files", "bytes", "columns"):
        assert getattr(found, name) == getattr(without, name), name
    assert sk.open(root).statistics(["id"]).rows == 100 * FILES


def test_why(root: Path, size: str) -> None:
    """What is said of a row is right and names the unit, whoever the evidence comes from."""
    sk.open(root).index.build(engine="local")
    lake = sk.open(root)
    for row, keeps in ((23, True), (90, False)):
        answers = [
            lake.scan("id = 123", index=index).plan().why("f1.parquet", row=row) for index in (True, False)
        ]
        for why in answers:
            first, last = why.rows
            assert first <= row < last
            assert (first <= 23 < last) == keeps
        assert answers[0].rows == answers[1].rows
        assert str(answers[0])
    assert lake.scan("id = 123").plan().why("f4.parquet", row=5).rows is not None


def test_explain(root: Path, size: str) -> None:
    sk.open(root).index.build(engine="local")
    scan = sk.open(root).scan("id = 123", ["text"])
    for format in ("text", "json", "html"):
        assert "index" in scan.explain(format=format)
        assert scan.explain(analyze=True, format=format)


def test_columns_that_the_index_does_not_hold(root: Path, size: str) -> None:
    """Footers tell of them; what the index knows is used as well."""
    sk.open(root).index.build(["id"], engine="local")
    lake = sk.open(root)
    check(lake)
    for where, rows in [
        ("text = 'w07'", 15),
        ("text = 'w07' and id < 100", 3),
        ("text = 'w07' or id = 0", 16),
    ]:
        scan = lake.scan(where)
        wanted = [r for r in WHOLE.to_pylist() if r["text"] == "w07"]
        wanted = [r for r in wanted if "id <" not in where or r["id"] < 100]
        assert scan.count() == len(wanted) + ("or" in where)
        assert scan.verify().ok
        assert use(scan).covered == FILES
        del rows


def test_an_index_without_any_column_asked_for(root: Path) -> None:
    sk.open(root).index.build(["st"], pages=False, blooms=False, engine="local")
    check(sk.open(root))


@pytest.mark.parametrize("how", ["before", "after", "far", "outside"])
def test_pickled_lakes_and_plans(root: Path, tmp_path: Path, how: str) -> None:
    options: dict[str, Any] = {"index_root": tmp_path / "elsewhere"} if how == "outside" else {}
    lake = sk.open("lake", store=LocalStore(tmp_path)) if how == "far" else sk.open(root, **options)
    lake.index.build(engine="local")
    if how != "after":
        lake = sk.open("lake", store=LocalStore(tmp_path)) if how == "far" else sk.open(root, **options)
    other = pickle.loads(pickle.dumps(lake))
    assert use(other.scan("id = 123")).covered == FILES
    check(other)
    plan = pickle.loads(pickle.dumps(lake.scan("id = 123").plan()))
    assert sk.execute(plan).to_arrow().equals(WHOLE.slice(123, 1))
    scan = pickle.loads(pickle.dumps(lake.scan("id = 123", ["text"])))
    assert scan.to_arrow().num_rows == 1
    assert other.version == lake.version


def test_a_lake_sees_its_own_build_at_once_and_others_after_a_refresh(root: Path) -> None:
    mine, other = sk.open(root), sk.open(root)
    for lake in (mine, other):
        assert use(lake.scan("id = 123")) is None
    mine.index.build(engine="local")
    assert use(mine.scan("id = 123")).covered == FILES
    assert use(other.scan("id = 123")) is None, "pinned"
    other.refresh()
    assert use(other.scan("id = 123")).covered == FILES
    write(root, 2, "f9.parquet")
    assert other.scan("id = 205").count() == 1, "pinned"
    mine.index.refresh(engine="local")
    assert mine.scan("id = 205").count() == 2
    assert use(mine.scan("id = 205")).covered == FILES + 1
    other.refresh()
    assert use(other.scan("id = 205")).version == 2
    assert other.scan("id = 205").count() == 2


def test_drop_leaves_the_lake_alone(root: Path, tmp_path: Path) -> None:
    (root / "_SUCCESS").touch()
    (root / ".hidden").write_text("mine")
    before = {p: p.read_bytes() for p in root.rglob("*") if p.is_file()}
    lake = sk.open(root)
    lake.index.build(engine="local")
    lake.index.drop()
    assert use(lake.scan("id = 123")) is None
    check(lake)
    assert {p: p.read_bytes() for p in root.rglob("*") if p.is_file()} == before
    lake.index.drop()
    lake.index.build(engine="local")
    assert use(lake.scan("id = 123")).covered == FILES


def test_drop_leaves_what_a_build_is_writing(root: Path, tmp_path: Path) -> None:
    """A file without its name yet may be a running build's; only one that is old is certainly nobody's."""
    folder = tmp_path / "index"
    lake = sk.open(root, index_root=folder)
    lake.index.build(engine="local")
    fresh, old = (folder / f".{digit * 32}.tmp" for digit in "ab")
    for path in (fresh, old):
        path.write_bytes(b"half")
    os.utime(old, (0, 0))
    lake.index.drop()
    assert [*folder.iterdir()] == [fresh]


@pytest.mark.parametrize("where", [".", "..", "_idx", "sub/_deep"])
def test_drop_deletes_nothing_but_the_index(root: Path, where: str) -> None:
    """Wherever the index is, and whatever lies beside it."""
    place = (root / where).resolve()
    place.mkdir(parents=True, exist_ok=True)
    for name in ("notes.txt", "manifest-x.json", "segment-1.skip"):
        (place / name if where != "." else place / f"_{name}").write_text("mine")
    before = {p: p.read_bytes() for p in root.parent.rglob("*") if p.is_file()}
    try:
        lake = sk.open(root, index_root=place)
        lake.index.build(engine="local")
    except SkipstoneError:
        assert where in (".", "..")  # refused, which is fine too
    else:
        check(sk.open(root, index_root=place))
        lake.index.drop()
    assert {p: p.read_bytes() for p in root.parent.rglob("*") if p.is_file()} == before


def test_an_index_in_a_visible_folder_of_the_lake(root: Path) -> None:
    """Refused, or no part of the lake."""
    try:
        lake = sk.open(root, index_root=root / "visible")
        lake.index.build(engine="local")
    except SkipstoneError:
        pass
    else:
        again = sk.open(root, index_root=root / "visible")
        assert len(again.files) == FILES
        check(again)


def test_hive_partitions(tmp_path: Path, size: str) -> None:
    """Directories' values stand, also where files hold a column of that name; NULL is a value."""
    for number, day in enumerate(["2026-01-01", "2026-01-02", "__HIVE_DEFAULT_PARTITION__"]):
        for kind in ("a", "b%20c"):
            folder = tmp_path / f"day={day}" / f"kind={kind}"
            folder.mkdir(parents=True)
            stored = table(number).append_column("kind", pa.array(["stored"] * 100))
            pq.write_table(stored, folder / "f.parquet")
    sk.open(tmp_path).index.build(engine="local")
    lake = sk.open(tmp_path)
    assert use(lake.scan("id = 5")).covered == 6
    for index in (True, False):
        for where, rows in [
            ("kind = 'stored'", 0),
            ("kind = 'b c'", 300),
            ("day is null and id = 205", 2),
            ("day = date '2026-01-02' and kind = 'a' and id = 105", 1),
            ("day is null or id = 105", 202),
            ("not (day = date '2026-01-01') and id < 150", 100),
            ("kind = 'a' and (id = 5 or day is null)", 101),
        ]:
            scan = lake.scan(where, index=index)
            assert scan.count() == rows, where
            assert scan.verify().ok, where


def test_evolved_files_between_segments(tmp_path: Path, size: str) -> None:
    """A column that came later and one that was widened, in segments of before and after."""
    pq.write_table(pa.table({"id": pa.array([1, 2, 3], pa.int32())}), tmp_path / "a.parquet")
    lake = sk.open(tmp_path)
    lake.index.build(engine="local")
    later = pa.table({"id": pa.array([2**40, 5], pa.int64()), "name": ["x", None]})
    pq.write_table(later, tmp_path / "b.parquet")
    for refreshed in (False, True):
        lake = sk.open(tmp_path)
        if refreshed:
            lake.index.refresh(engine="local")
        assert use(lake.scan("id = 2")).covered == (2 if refreshed else 1)
        for where, ids in [
            ("id = 2", [2]),
            ("id > 3", [2**40, 5]),
            (f"id = {2**40}", [2**40]),
            ("name is null", [1, 2, 3, 5]),
            ("name = 'x'", [2**40]),
            ("name is null and id < 3", [1, 2]),
        ]:
            scan = lake.scan(where)
            assert scan.to_arrow()["id"].to_pylist() == ids, where
            assert scan.verify().ok


def test_a_narrower_schema_than_the_index_knows(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": pa.array([1, 2, 3], pa.int32()), "n": [1, 2, 3]}), tmp_path / "a.parquet")
    wide = pa.schema([("id", pa.int64()), ("n", pa.int64())])
    sk.open(tmp_path, schema=wide).index.build(engine="local")
    lake = sk.open(tmp_path)
    assert lake.scan("id = 2").to_arrow()["id"].to_pylist() == [2]
    assert lake.scan("n = 2").to_arrow()["id"].to_pylist() == [2]


def test_a_lake_of_one_file(root: Path, tmp_path: Path) -> None:
    """It has an index of its own elsewhere, and doesn't spoil its directory's."""
    sk.open(root).index.build(engine="local")
    one = root / "f1.parquet"
    assert use(sk.open(one).scan("id = 123")).covered == 1
    for some in (one, f"{root}/f[12].parquet"):
        with pytest.raises(UsageError, match="can't be built for some files of a directory"):
            sk.open(some).index.build(engine="local")
    lake = sk.open(one, index_root=tmp_path / "own")
    lake.index.build(engine="local")
    again = sk.open(one, index_root=tmp_path / "own")
    assert use(again.scan("id = 123")).covered == 1
    assert again.scan("id = 123").count() == 1
    assert use(sk.open(root).scan("id = 123")).covered == FILES
    check(sk.open(root))


def test_a_glob_has_the_same_index(root: Path) -> None:
    sk.open(root).index.build(engine="local")
    some = sk.open(f"{root}/f[12].parquet")
    assert use(some.scan("id = 123")).covered == 2
    assert some.scan("id = 123").count() == 1
    assert some.scan("id = 3").count() == 0


def test_an_index_in_memory(root: Path) -> None:
    """Any store will do for the lake and its index."""
    store = MemoryStore()
    import obstore

    for path in root.glob("*.parquet"):
        obstore.put(store, f"lake/{path.name}", path.read_bytes())
    sk.open("lake", store=store).index.build(engine="local")
    lake = sk.open("lake", store=store)
    assert use(lake.scan("id = 123")).covered == FILES
    check(lake)
    lake.index.drop()
    assert use(sk.open("lake", store=store).scan("id = 123")) is None


def test_an_empty_lake_and_empty_files(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64())])
    lake = sk.open(tmp_path, schema=schema)
    report = lake.index.build(engine="local")
    assert report.indexed == 0
    assert lake.scan("id = 1").count() == 0
    pq.write_table(schema.empty_table(), tmp_path / "a.parquet")
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "b.parquet")
    lake = sk.open(tmp_path)
    lake.index.build(engine="local")
    again = sk.open(tmp_path)
    assert again.scan("id = 1").count() == 1
    assert again.scan(None).count() == 2
    assert use(again.scan("id = 1")).covered == 2


def test_names_with_dots_and_odd_paths(tmp_path: Path) -> None:
    folder = tmp_path / "a b=é%" / "x"
    folder.mkdir(parents=True)
    made = pa.table({"a.b": [1, 2, 3], "a": pa.array([{"b": 7}, {"b": 8}, {"b": None}])})
    pq.write_table(made, folder / "f\udcff.parquet".encode("utf-8", "replace").decode())
    sk.open(tmp_path).index.build(engine="local")
    lake = sk.open(tmp_path)
    assert lake.scan(sk.col("a").field("b") == 8 if hasattr(sk.col("a"), "field") else "a.b = 8").count() in (
        0,
        1,
    )
    assert use(lake.scan(None)).covered == 1
    assert lake.scan(None).count() == 3
