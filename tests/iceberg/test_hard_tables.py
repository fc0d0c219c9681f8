"""Tables that are easy to read wrongly, one trap each; the random chains meet them all, sooner or later."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import skipstone as sk
from skipstone.errors import CorruptFileError
from tests.iceberg._maker import Maker
from tests.property._lakes import ROW_ID

RID = (ROW_ID, "long")


def rids(maker: Maker, where: str | None = None, **more: Any) -> list[int]:
    """The rows of a scan, which without a predicate are the oracle's."""
    table = sk.open(maker.metadata_location)
    found = sorted(table.scan(where, columns=[ROW_ID], **more).to_arrow().column(ROW_ID).to_pylist())
    assert table.scan(where, **more).count() == len(found)
    if where is None and not more:
        assert found == sorted(row[ROW_ID] for row in maker.rows())
    return found


def files_kept(maker: Maker, where: str) -> int:
    return len(sk.open(maker.metadata_location).scan(where).plan().tasks)


def test_equality_deletes_outlive_the_column_they_compare(tmp_path: Path) -> None:
    for number, path in enumerate(["a", "st.a"]):
        maker = Maker(tmp_path / str(number), [RID, ("a", "int"), ("st", {"a": "int", "b": "int"})])
        maker.append([{ROW_ID: n, "a": n, "st": {"a": n, "b": n}} for n in range(5)])
        maker.delete_equal([maker.field(path).id], [(2,), (None,)])
        assert rids(maker) == [0, 1, 3, 4]
        maker.evolve_schema(drop=[path])
        assert rids(maker) == [0, 1, 3, 4]
        maker.evolve_schema(add={path: "int"})  # another column, whatever its name
        maker.append([{ROW_ID: 5, "a": 2, "st": {"a": 2, "b": 2}}])
        assert rids(maker) == [0, 1, 3, 4, 5]
        maker.evolve_schema(drop=["st"])
        assert rids(maker) == [0, 1, 3, 4, 5]


def test_equality_compares_null_nan_and_zeros_as_iceberg_does(tmp_path: Path) -> None:
    maker = Maker(tmp_path, [RID, ("x", "float")])
    values = [None, math.nan, 0.0, -0.0, 1.5, math.inf]
    maker.append([{ROW_ID: n, "x": v} for n, v in enumerate(values)])
    maker.evolve_schema(widen={"x": "double"})
    for gone, value in enumerate(values[:-1]):
        maker.delete_equal([maker.field("x").id], [(value,)])
        assert rids(maker) == [*range(gone + 1, 6)]


def test_equality_deletes_see_values_that_only_the_partition_has(tmp_path: Path) -> None:
    maker = Maker(tmp_path, [RID, ("p", "string"), ("k", "int")], [("p", "identity")])
    maker.append([{ROW_ID: n, "p": "ab"[n % 2], "k": n} for n in range(6)], leave_out=True)
    maker.evolve_schema(rename={"p": "q"}, add={"late": "int"})
    maker.evolve_spec([("k", "bucket[2]")])
    maker.delete_equal([maker.field("q").id, maker.field("late").id], [("a", None)])
    assert rids(maker) == [1, 3, 5]
    assert rids(maker, "q = 'b' and late is null") == [1, 3, 5]
    assert files_kept(maker, "q = 'b'") == 1


def test_names_that_change_places(tmp_path: Path) -> None:
    maker = Maker(tmp_path, [RID, ("a", "int"), ("b", "int")], [("a", "identity")])
    maker.append([{ROW_ID: n, "a": n, "b": 10 + n} for n in range(4)])
    maker.evolve_schema(rename={"a": "b", "b": "a"})
    maker.append([{ROW_ID: 4 + n, "a": 10 + n, "b": n} for n in range(4)])
    assert rids(maker, "b = 1") == [1, 5]
    assert files_kept(maker, "b = 1") == 2
    assert rids(maker, "a = 11 and b = 1") == [1, 5]
    assert rids(maker, "a = 1") == []
    first = next(iter(maker.snapshots))
    assert rids(maker, "a = 1", snapshot=first) == [1]


def test_a_name_used_again_is_another_column(tmp_path: Path) -> None:
    maker = Maker(tmp_path, [RID, ("a", "int")])
    maker.append([{ROW_ID: 0, "a": 7}])
    maker.evolve_schema(drop=["a"])
    maker.evolve_schema(add={"a": "string"})
    maker.append([{ROW_ID: 1, "a": "7"}])
    assert rids(maker, "a is null") == [0]
    assert rids(maker, "a = '7'") == [1]


def test_old_writers_round_times_before_1970_up(tmp_path: Path) -> None:
    maker = Maker(tmp_path, [RID, ("ts", "timestamp")], [("ts", "day")])
    moments = [dt.datetime(1969, 12, 31, 23), dt.datetime(1969, 12, 31), dt.datetime(1970, 1, 1, 5)]
    maker.append([{ROW_ID: n, "ts": ts} for n, ts in enumerate(moments)], metrics="none", old_times=True)
    assert {one.file.partition for one in maker.live()} == {(0,), (-1,)}
    assert rids(maker, "ts < '1970-01-01'") == [0, 1]
    assert rids(maker, "ts >= '1970-01-01'") == [2]
    assert files_kept(maker, "ts >= '1970-01-02'") == 0


@pytest.mark.parametrize(("type", "least"), [("int", -(2**31)), ("long", -(2**63))])
def test_truncating_the_least_integer_gives_a_large_one(tmp_path: Path, type: str, least: int) -> None:
    maker = Maker(tmp_path, [RID, ("a", type)], [("a", "truncate[10]")])
    maker.append([{ROW_ID: 0, "a": least}, {ROW_ID: 1, "a": 5}], metrics="none")
    assert max(one.file.partition[0] for one in maker.live()) > 2**30
    assert rids(maker, "a < 0") == [0]
    assert rids(maker, f"a = {least}") == [0]


def test_a_spec_of_void_fields_divides_nothing(tmp_path: Path) -> None:
    """A table of version 1 keeps dropped partition fields as void: a delete under such a spec is global."""
    maker = Maker(tmp_path, [RID, ("p", "int")], [("p", "identity")], format_version=1)
    maker.append([{ROW_ID: n, "p": n % 3} for n in range(6)])
    maker.evolve_spec([])
    (field,) = maker.specs[maker.default_spec].fields
    assert field.transform == "void"
    maker.append([{ROW_ID: 6 + n, "p": n % 3} for n in range(6)])
    maker.upgrade(2)
    maker.delete_equal([maker.field("p").id], [(1,)], partitions=[(maker.default_spec, (None,))])
    assert rids(maker) == [0, 2, 3, 5, 6, 8, 9, 11]
    assert rids(maker, "p <= 1") == [0, 3, 6, 9]
    maker.delete_positions(maker.places()[:2], scope="partition")
    assert len(rids(maker)) == 6


def test_data_older_than_its_commit_is_deleted_by_what_came_between(tmp_path: Path) -> None:
    maker = Maker(tmp_path, [RID, ("k", "int")])
    maker.append([{ROW_ID: 0, "k": 1}])
    maker.delete_equal([maker.field("k").id], [(1,)])
    maker.append([{ROW_ID: 1, "k": 1}])
    maker.append([{ROW_ID: 2, "k": 1}], sequence=1)  # a compaction that began before the delete
    assert rids(maker) == [1]


def test_initial_defaults_count_as_values(tmp_path: Path) -> None:
    maker = Maker(tmp_path, [RID, ("st", {"a": "int"})], format_version=3)
    maker.append([{ROW_ID: 0, "st": {"a": 1}}, {ROW_ID: 1}])
    maker.evolve_schema(add={"x": "int", "st.y": "string"}, defaults={"x": 5, "st.y": "é"})
    maker.append([{ROW_ID: 2, "x": None, "st": {"a": 1, "y": None}}, {ROW_ID: 3, "x": 6}])
    assert rids(maker, "x = 5") == [0, 1]
    assert rids(maker, "x is null") == [2]
    assert files_kept(maker, "x = 5") == 1
    assert rids(maker, "st.y = 'é'") == [0]
    assert rids(maker, "st.y is null") == [1, 2, 3]
    maker.delete_equal([maker.field("x").id], [(5,)])
    assert rids(maker) == [2, 3]


def test_a_rolled_back_table_is_what_it_was(tmp_path: Path) -> None:
    maker = Maker(tmp_path, [RID])
    first = maker.append([{ROW_ID: 0}])
    second = maker.append([{ROW_ID: 1}])
    maker.rollback(first.id)
    third = maker.append([{ROW_ID: 2}])
    assert rids(maker) == [0, 2]
    assert rids(maker, snapshot=second.id) == [0, 1]

    def when(time: int) -> dt.datetime:
        return dt.datetime.fromtimestamp(time / 1000, dt.UTC)

    assert rids(maker, snapshot=when(second.time)) == [0, 1]
    assert rids(maker, snapshot=when(third.time) - dt.timedelta(seconds=1)) == [0]


def test_plans_join_though_only_one_needs_a_column_that_is_gone(tmp_path: Path) -> None:
    m = Maker(tmp_path / "t", [("rid", "long"), ("x", "int")])
    m.append([{"rid": n, "x": n} for n in range(3)])
    m.delete_equal([m.field("x").id], [(1,)])
    m.evolve_schema(drop=["x"])
    m.append([{"rid": n} for n in range(10, 13)])
    table = sk.open(m.metadata_location)
    a, b = table.scan("rid >= 10").plan(), table.scan("rid < 10").plan()
    for plan in (a | b, b | a):
        assert sorted(sk.execute(plan, columns=["rid"]).to_arrow()["rid"].to_pylist()) == [0, 2, 10, 11, 12]
    with pytest.raises(sk.ParseError, match="'#2' is neither a column"):
        sk.execute(b, columns=["#2"])


def test_a_file_that_claims_no_rows_is_not_taken_for_empty(tmp_path: Path) -> None:
    maker = Maker(tmp_path, [RID, ("k", "int")])
    maker.append([{ROW_ID: n, "k": n} for n in range(3)])
    maker.commit("append", [maker.empty_file()])
    assert rids(maker) == rids(maker, "k >= 0") == [0, 1, 2]
    (file,) = maker.files_of([{ROW_ID: n, "k": n} for n in range(3, 6)], files=1, metrics="full")
    maker.commit("append", [replace(file, records=0)])
    table = sk.open(maker.metadata_location)
    for where in (None, "k = 4", "k is not null"):
        with pytest.raises(CorruptFileError, match="file has 3 rows, but the table recorded 0"):
            table.scan(where).to_arrow()
        with pytest.raises(CorruptFileError, match="file has 3 rows, but the table recorded 0"):
            table.scan(where).count()
    assert file.path in table.plan_files("k = 4").paths


def test_equality_deletes_that_claim_no_rows_are_applied(tmp_path: Path) -> None:
    maker = Maker(tmp_path, [RID, ("k", "int")])
    maker.append([{ROW_ID: n, "k": n} for n in range(3)])
    (file,) = maker.equality_files([maker.field("k").id], [(1,)])
    maker.commit("delete", [replace(file, records=0)])
    found = sk.open(maker.metadata_location).scan().to_arrow().column(ROW_ID)
    assert sorted(found.to_pylist()) == [0, 2]
