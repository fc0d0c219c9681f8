"""What first users ran into: each was a lost row, a crash or a message that helped nobody."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from skipstone.errors import PredicateError, ReadError, TypeMismatchError, UnknownColumnError, UsageError

NAN = float("nan")


@pytest.fixture
def floats(tmp_path: Path) -> Path:
    path = tmp_path / "n.parquet"
    pq.write_table(pa.table({"f": [1.0, NAN, 2.0]}), path, row_group_size=1)
    return path


def test_nan_written_as_text(floats: Path) -> None:
    assert 1 in sk.prune(floats, "f = 'NaN'").rows
    assert 1 in sk.prune(floats, "f IN ('nan', '7')").rows
    assert 1 in sk.prune(floats, sk.col("f").eq_null_safe("nan")).rows
    assert 1 not in sk.prune(floats, "f <> 'nan'").proven
    assert list(sk.prune(floats, "f = 'NaN'").rows) == [0, 1, 2]  # no NaN count: any unit may hold one


@pytest.mark.parametrize("legacy", [{"use_deprecated_int96_timestamps": True}, {"version": "1.0"}])
def test_int96_and_converted_timestamps_are_instants(tmp_path: Path, legacy: dict[str, object]) -> None:
    path = tmp_path / "t.parquet"
    start = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    times = pa.array([start + dt.timedelta(minutes=30 * i) for i in range(8)], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"ts": times}), path, row_group_size=1, **legacy)
    one = sk.parse("ts = '2020-01-01 01:00:00'", tz="Europe/Paris")
    assert 0 in sk.prune(path, one, dictionary=True).rows
    west = "ts <= '2020-01-01 00:00:00-05:00'"
    assert sk.prune(path, west, dictionary=True).rows.is_full
    late = sk.parse("ts >= '2020-01-01 04:30:00'", tz="Europe/Paris")
    assert 7 in sk.prune(path, late, dictionary=True).rows


def test_opaque_leaves_beside_others(tmp_path: Path) -> None:
    import polars as pl

    path = tmp_path / "o.parquet"
    pq.write_table(pa.table({"price": [0.5, 1.5], "name": ["u1", "u2"]}), path, row_group_size=1)
    assert len(sk.prune(path, (pl.col("price") > 0.1) & (pl.col("price") < 1)).rows) == 1
    regex = (pc.field("price") < 1) & pc.match_substring_regex(pc.field("name"), "u1")
    assert len(sk.prune(path, regex).rows) == 1
    predicate = sk.predicate(pl.col("price").sin() > 0)
    assert predicate == predicate
    assert predicate == sk.predicate(pl.col("price").sin() > 0)
    assert hash(predicate) == hash(sk.predicate(pl.col("price").sin() > 0))


def test_stale_metadata_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.parquet"
    pq.write_table(pa.table({"a": range(1000)}), path)
    metadata = sk.read_metadata(path)
    other = path.with_name("other.parquet")
    pq.write_table(pa.table({"a": range(1000, 3000)}), other)
    other.replace(path)
    for source in (path, path.read_bytes()):
        with pytest.raises(ReadError, match="changed since it was listed or its metadata was read"):
            sk.prune(source, "a = 1500", metadata=metadata)


@pytest.mark.parametrize("text", ["i + 1 < 0", "i - 1 > 0", "-i < 0", "0 - i < 0"])
def test_int32_arithmetic_may_wrap(tmp_path: Path, text: str) -> None:
    path = tmp_path / "i.parquet"
    edge = 2**31 - 1 if "+" in text else -(2**31)
    pq.write_table(pa.table({"i": pa.array([edge], pa.int32())}), path)
    assert len(sk.prune(path, text).rows) == 1
    assert sk.prune(path, f"NOT ({text})").proven.is_empty


@pytest.mark.parametrize("text", ["f = 0.1", "f = 16777217", "f IN (0.1, 16777217)", "f <= 0.1", "f = '0.1'"])
def test_both_readings_of_a_literal_beside_a_narrow_float(tmp_path: Path, text: str) -> None:
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({"f": pa.array([0.1, 16777216.0], pa.float32())}), path, row_group_size=1)
    rounded = 1 if "16777217" in text and "IN" not in text else 0
    assert rounded in sk.prune(path, text).rows
    assert rounded not in sk.prune(path, f"NOT ({text})").proven


def test_deep_nesting_is_an_error_of_ours(floats: Path) -> None:
    deep: sk.Predicate = sk.col("f") == 1
    for step in range(3000):
        deep = (deep | (sk.col("f") == step)) & (sk.col("f") > -step)
    with pytest.raises(PredicateError, match="nested too deeply"):
        sk.prune(floats, deep)
    flat = sk.col("f") == 0
    for step in range(2000):
        flat = flat | (sk.col("f") == step)
    assert sk.prune(floats, flat).rows.is_full


@pytest.mark.parametrize(
    "value", [["f = 1"], [5], [("f", "=", 3)], [[("f", "=", 3)], [("f", "=", 4)]], [], 5]
)
def test_lists_that_are_no_filters(value: object) -> None:
    with pytest.raises(PredicateError, match="can't be converted to a predicate"):
        sk.predicate(value)


def test_calls_that_make_no_sense(floats: Path) -> None:
    with pytest.raises(UsageError, match="PruneOptions as options="):
        sk.Pruner("f = 1", sk.PruneOptions())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="unexpected keyword argument 'dictionari'"):
        sk.prune(floats, "f = 1", dictionari=True)  # type: ignore[call-arg]
    with pytest.raises(UsageError, match="can't read a file from list"):
        sk.prune([floats], "f = 1")
    with pytest.raises(PredicateError, match="isin needs a list"):
        sk.col("f").isin(5)  # type: ignore[arg-type]
    with pytest.raises(TypeMismatchError, match="can't be used as a literal"):
        sk.col("f") == "\ud800"  # noqa: B015
    with pytest.raises(UnknownColumnError, match=r"n\.parquet, column g: unknown column \(the schema has f"):
        sk.prune(floats, "g = 1 or ff = 2")


def test_presence_of_a_column_of_another_type_or_a_double_name(tmp_path: Path) -> None:
    path = tmp_path / "p.parquet"
    pq.write_table(pa.table({"s": ["abc", "5"]}), path)
    numbers = pa.schema([("s", pa.int32())])
    assert sk.Pruner("s IS NULL", numbers).prune(path).rows.is_full  # a lenient reader makes 'abc' NULL
    twice = pa.Table.from_arrays([pa.array([1, 2]), pa.array([None, 2])], ["a", "a"])
    pq.write_table(twice, path)
    assert sk.Pruner("a IS NULL", pa.schema([("a", pa.int64())])).prune(path).rows.is_full


@pytest.mark.parametrize(
    ("created_by", "exact"),
    [
        ("Polars", False),
        ("Polars (python) version 2.0.9", False),
        ("Polars (python) version 2.1.0", True),
        ("DuckDB", False),
        ("DuckDB version v0.9.2 (build x)", False),
        ("DuckDB version v0.10.0 (build x)", True),
        ("Arrow2 - Native Rust", False),
        ("", False),
        ("an unknown writer", False),
        ("ClickHouse v25.5.2.1-stable", True),
        ("parquet-cpp-arrow version 26.0.0", True),
    ],
)
def test_null_counts_that_can_be_too_high(tmp_path: Path, created_by: str, exact: bool) -> None:
    path = tmp_path / "n.parquet"
    pq.write_table(pa.table({"none": pa.nulls(9, pa.int64()), "some": [1, None, 3] * 3}), path)
    data, own = path.read_bytes(), pq.read_metadata(path).created_by.encode()
    assert data.count(own) == 1
    path.write_bytes(data.replace(own, created_by.encode().ljust(len(own))))
    assert len(sk.prune(path, "none IS NOT NULL").rows) == (0 if exact else 9)
    assert sk.prune(path, "none IS NULL").proven.is_full is exact
    answer = sk.open(path).scan().aggregate("count(none)", "count(some)")
    assert answer.to_pylist() == [{"count(none)": 0, "count(some)": 6}]
    assert answer.trace.rows_read == (0 if exact else 9)
    statistics = sk.open(path).statistics()
    counts = [statistics[name].null_count for name in ("none", "some")]
    assert counts == ([9, 3] if exact else [None, None])


def test_a_value_the_files_type_cannot_hold_has_no_hash(tmp_path):
    path = tmp_path / "f.parquet"
    table = pa.table({"f": pa.array([0.0, 1.0], pa.float32())})
    pq.write_table(table, path, bloom_filter_options={"f": {"ndv": 4, "fpp": 0.05}})
    wide = pa.schema({"f": pa.float64()})
    for where, kept in ((sk.col("f") == 0.1, 2), (sk.col("f").isin([]), 0), (sk.col("f") == 1.0, 2)):
        assert len(sk.prune(path, where, wide).rows) == kept
