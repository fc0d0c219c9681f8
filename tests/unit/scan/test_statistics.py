"""What a lake says it holds: contains every value, and what it calls exact is."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from skipstone.errors import UnknownColumnError, UsageError
from tests.property._lakes import full_scan, random_lake
from tests.property._oracle import plain
from tests.property._patch import BINARY, Struct, patch_footer, patch_statistics
from tests.support.samples import sample

LAKES = sample("statistics")


def write(root: Path, tables: dict[str, pa.Table], **settings: Any) -> sk.Lake:
    for name, table in tables.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, root / name, **settings)
    return sk.open(root)


# -- one fact at a time ------------------------------------------------------------------------


def test_a_lake_of_two_files(tmp_path: Path) -> None:
    lake = write(
        tmp_path,
        {
            "day=2026-01-01/a.parquet": pa.table({"id": [3, 1, None], "name": ["b", "a", "c"]}),
            "day=2026-01-02/b.parquet": pa.table({"id": [9, 7], "name": ["x", None]}),
        },
    )
    found = lake.statistics()
    assert (found.rows, found.file_count, found.bytes) == (5, 2, sum(f.size for f in lake.files))
    ids = found["id"]
    assert (ids.lower, ids.upper) == (pa.scalar(1), pa.scalar(9))
    assert (ids.lower_exact, ids.upper_exact, ids.null_count, ids.null_count_exact) == (True, True, 1, True)
    assert (ids.may_nan, ids.distinct, ids.type) == (False, None, pa.int64())
    assert ids.compressed_bytes > 0
    day = found["day"]
    assert str(day.lower) == "2026-01-01"
    assert str(day.upper) == "2026-01-02"
    assert (day.lower_exact, day.null_count, day.compressed_bytes) == (True, 0, 0)
    rows = found.files.to_pylist()
    assert [row["rows"] for row in rows] == [3, 2]
    assert [row["path"] for row in rows] == [f.path for f in lake.files]
    assert [row["bytes"] for row in rows] == [f.size for f in lake.files]
    assert [row["id"]["lower"] for row in rows] == [1, 7]
    assert [row["name"]["null_count"] for row in rows] == [0, 1]


def test_a_file_without_statistics_leaves_bounds_unknown(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": pa.array([5], pa.int32())}), tmp_path / "a.parquet", write_statistics=False)
    pq.write_table(pa.table({"a": [7]}), tmp_path / "b.parquet")
    found = sk.open(tmp_path).statistics()
    a = found["a"]
    # Not even the limits of the narrower type, which are bounds but no statistics.
    assert (a.lower, a.upper, a.lower_exact, a.null_count) == (None, None, False, None)
    assert a.may_value
    second = found.files["a"][1].as_py()
    assert (second["lower"], second["upper"], second["null_count"]) == (7, 7, 0)
    assert "?" in str(found)


def test_a_missing_column_is_all_null(tmp_path: Path) -> None:
    lake = write(
        tmp_path, {"a.parquet": pa.table({"a": [1, 2]}), "b.parquet": pa.table({"a": [3], "b": ["x"]})}
    )
    b = lake.statistics(["b"])["b"]
    assert (b.null_count, b.lower, b.upper) == (2, pa.scalar("x"), pa.scalar("x"))
    first = lake.statistics(["b"]).files["b"][0].as_py()
    assert (first["null_count"], first["may_value"], first["lower"]) == (2, False, None)


def test_nan_stays_out_of_bounds_and_zeros_are_no_values(tmp_path: Path) -> None:
    lake = write(tmp_path, {"a.parquet": pa.table({"f": [1.0, math.nan, 2.0], "z": [0.0, 0.0, 1.0]})})
    found = lake.statistics()
    f, z = found["f"], found["z"]
    assert (f.lower, f.upper, f.may_nan) == (pa.scalar(1.0), pa.scalar(2.0), True)
    assert str(z.lower) == "-0.0"
    assert (z.lower_exact, z.upper_exact) == (False, True)


def test_bounds_cut_short_are_not_exact_and_stay_text(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"t": ["aé", "z" * 9]}), path)

    def cut(stats: Struct) -> None:  # in the middle of a character below, beyond any above
        stats[5], stats[6] = [BINARY, b"zz\xff"], [BINARY, b"a\xc3"]
        stats.pop(7, None)
        stats.pop(8, None)

    patch_statistics(path, cut)
    t = sk.open(path).statistics()["t"]
    assert (t.lower, t.upper) == (pa.scalar("a"), pa.scalar("z{"))
    assert (t.lower_exact, t.upper_exact) == (False, False)
    assert "≥ a" in str(sk.open(path).statistics())


def test_an_upper_bound_that_no_text_reaches_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"t": ["a", "\U0010ffff\U0010ffff"]}), path)
    patch_statistics(path, lambda stats: stats.update({5: [BINARY, b"\xf4\x8f\xbf\xbf\xff"]}))
    t = sk.open(path).statistics()["t"]
    assert (t.upper, t.upper_exact) == (None, False)


def test_counts_of_writers_that_miscount_are_unknown(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": [1, None, 3]}), path)
    assert sk.open(path).statistics()["a"].null_count == 1

    def by_polars(footer: Struct) -> None:
        footer[6] = [BINARY, b"Polars version 1.0.0"]

    patch_footer(path, by_polars)
    a = sk.open(path).statistics()["a"]
    assert (a.null_count, a.null_count_exact, a.lower) == (None, False, pa.scalar(1))


def test_struct_fields_by_dotted_names(tmp_path: Path) -> None:
    lake = write(tmp_path, {"a.parquet": pa.table({"s": [{"x": 1}, None, {"x": None}], "d.t": [1, 2, 3]})})
    found = lake.statistics(["s.x", "d.t"])
    assert [column.name for column in found.columns] == ["s.x", "d.t"]
    assert (found["s.x"].null_count, found["s.x"].upper) == (2, pa.scalar(1))
    assert lake.statistics()["s"].lower is None


def test_columns_named_like_those_of_files(tmp_path: Path) -> None:
    lake = write(tmp_path, {"a.parquet": pa.table({"rows": [7], "bytes": [b"x"]})})
    files = lake.statistics().files
    assert files.column_names == ["path", "rows", "bytes", "rows", "bytes"]
    assert (files.column(1)[0].as_py(), files.column(3)[0].as_py()["upper"]) == (1, 7)


def test_wrong_names(tmp_path: Path) -> None:
    lake = write(tmp_path, {"a.parquet": pa.table({"user_id": [1]})})
    with pytest.raises(UnknownColumnError, match="did you mean user_id"):
        lake.statistics(["user_ids"])
    with pytest.raises(UsageError, match="list of column names"):
        lake.statistics({"user_id"})
    with pytest.raises(UnknownColumnError, match="use one of: user_id"):
        lake.statistics()["x"]


def test_an_empty_lake(tmp_path: Path) -> None:
    lake = sk.open(tmp_path, schema=pa.schema({"a": pa.int64(), "t": pa.string()}))
    found = lake.statistics()
    assert (found.rows, found.bytes, found.file_count) == (0, 0, 0)
    assert (found["t"].lower, found["t"].null_count, found["t"].may_value) == (None, 0, False)
    assert found.files.column_names == ["path", "rows", "bytes", "a", "t"]


def test_drawn_and_as_json(tmp_path: Path) -> None:
    lake = write(
        tmp_path, {"a.parquet": pa.table({"id": [1000, 2000], "f": [0.5, math.inf], "b": [b"\0", b"\xff"]})}
    )
    found = lake.statistics()
    size = lake.files[0].size
    lines = str(found).splitlines()
    assert lines[0] == f"{tmp_path}  2 rows, 1 file, {size} B"
    assert lines[1].split() == ["column", "type", "min", "max", "nulls", "size"]
    assert lines[2].split()[:5] == ["id", "int64", "1,000", "2,000", "0"]
    data = json.loads(json.dumps(found.to_json()))
    assert data["columns"][0]["lower"] == 1000
    assert data["columns"][1]["upper"] == "inf"
    assert data["columns"][2]["upper"] == "0xff"
    assert repr(found) == str(found)


# -- random lakes ------------------------------------------------------------------------------


def sort_key(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def check(
    facts: dict[str, Any], lower: Any, upper: Any, column: pa.ChunkedArray, words: str
) -> tuple[int, int]:
    """Facts about one column against its rows; how many bounds were known, and exact."""
    items = plain(column).items
    nans = [v for v in items if isinstance(v, float) and math.isnan(v)]
    values = [v for v in items if v is not None and not (isinstance(v, float) and math.isnan(v))]
    nulls = sum(v is None for v in items)
    assert facts["null_count"] in (None, nulls), words
    assert facts["may_nan"] or not nans, words
    assert facts["may_value"] or not values, words
    known = exact = 0
    ordered = not pa.types.is_nested(column.type) and not pa.types.is_null(column.type)
    for scalar, is_exact, end, inside in (
        (lower, facts["lower_exact"], min, lambda bound, v: bound <= v),
        (upper, facts["upper_exact"], max, lambda bound, v: bound >= v),
    ):
        if not scalar.is_valid:
            assert not is_exact, words
            continue
        assert ordered, words
        bound = sort_key(plain(pa.array([scalar], scalar.type)).items[0])
        known += 1
        assert all(inside(bound, sort_key(v)) for v in values), f"{words}: {end.__name__} {bound!r}"
        if is_exact:
            exact += 1
            assert values, words
            assert bound == end(map(sort_key, values)), f"{words}: {end.__name__} {bound!r}"
    return known, exact


def test_random_lakes(tmp_path: Path) -> None:
    known = exact = counted = possible = 0
    for number in range(LAKES):
        root = tmp_path / str(number)
        made = random_lake(f"statistics:{number}", root)
        lake = sk.open(root, schema=made.schema if made.explicit else None)
        found = lake.statistics()
        tables = full_scan(made, lake.schema.remove_metadata())
        assert found.rows == sum(t.num_rows for t in tables)
        assert found.files["rows"].to_pylist() == [t.num_rows for t in tables]
        whole = pa.concat_tables(tables)
        for column in found.columns:
            place = whole.column_names.index(column.name)
            bits = column.to_json() | {"null_count": column.null_count}
            ends = [pa.scalar(None) if end is None else end for end in (column.lower, column.upper)]
            words = f"lake {number} ({made.words}), column {column.name} {column.type}"
            check(bits, *ends, whole.column(place), words)
            for row, table in zip(found.files[column.name], tables, strict=True):
                mine = {name: row[name].as_py() for name in row if name not in ("lower", "upper")}
                a, b = check(mine, row["lower"], row["upper"], table.column(place), words)
                known, exact, possible = known + a, exact + b, possible + 2
                counted += mine["null_count"] is not None
        shutil.rmtree(root)
    # Footers do tell most of it; a test of nothing but unknowns would pass too.
    assert possible > 15 * LAKES
    assert 0.5 * possible < known < possible
    assert 0.35 * possible < exact < known
    assert 0.6 * possible / 2 < counted < possible / 2
