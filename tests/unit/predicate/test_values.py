"""Values of IN lists and literals keep their type and every digit."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from skipstone.errors import TypeMismatchError

DAY, TIME = dt.date(2026, 1, 2), dt.datetime(2026, 1, 1, 10)


@pytest.mark.parametrize("values", [[DAY, TIME], [TIME, DAY], [None, DAY, TIME]])
def test_dates_and_times_do_not_mix(values: list[object]) -> None:
    with pytest.raises(TypeMismatchError, match="IN list mixes date, datetime"):
        sk.col("ts").isin(values)


@pytest.mark.parametrize("negated", ["", "not "])
def test_dates_and_times_in_sql(tmp_path: Path, negated: str) -> None:
    hours = [dt.datetime(2026, 1, 1) + dt.timedelta(hours=n) for n in range(48)]
    pq.write_table(pa.table({"ts": pa.array(hours, pa.timestamp("us"))}), tmp_path / "0.parquet")
    lake = sk.open(tmp_path)
    for items in (
        "DATE '2026-01-02', TIMESTAMP '2026-01-01 10:00:00'",
        "TIMESTAMP '2026-01-01 10:00:00', DATE '2026-01-02'",
    ):
        rows = lake.scan(f"ts {negated}in ({items})").to_arrow()["ts"].to_pylist()
        assert rows == [hour for hour in hours if (hour in (TIME, dt.datetime(2026, 1, 2))) != bool(negated)]


def test_pandas_timestamps_keep_nanoseconds(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"t": pa.array([0, 1, 1_000, 1_500, 2_000], pa.timestamp("ns"))}), tmp_path / "0.parquet"
    )
    lake, t, at = sk.open(tmp_path), sk.col("t"), pd.Timestamp
    cases = {
        t == at(1): [1],
        t > at(1): [1_000, 1_500, 2_000],
        t <= at(1_500): [0, 1, 1_000, 1_500],
        t.isin([at(0), at(1)]): [0, 1],
        t.isin([pa.scalar(1, pa.timestamp("ns")), pa.scalar(1_500, pa.timestamp("ns"))]): [1, 1_500],
        t.between(at(1), at(1_500)): [1, 1_000, 1_500],
        t == np.datetime64(1, "ns"): [1],
    }
    for predicate, expected in cases.items():
        assert lake.scan(predicate).to_arrow()["t"].cast(pa.int64()).to_pylist() == expected, predicate


def test_zones_of_pandas_timestamps() -> None:
    literal = sk.lit(pd.Timestamp(1, tz="Europe/Paris"))
    assert literal.scalar.type == pa.timestamp("ns", "Europe/Paris")  # type: ignore[attr-defined]


def test_missing_values_of_pandas_are_null() -> None:
    day = pd.Timestamp("2026-01-02")
    for values in ([day, pd.NaT], pd.Series([day, None]), [day, pd.NA]):
        assert sk.col("ts").isin(values).values.null_count == 1  # type: ignore[attr-defined]
    assert sk.col("n").isin(pd.Series([1, None], dtype="Int64")).values.equals(pa.array([1, None]))  # type: ignore[attr-defined]
    assert str(sk.col("n") == pd.NA) == str(sk.col("n") == pd.NaT) == "n = NULL"


def test_strings_that_are_not_unicode() -> None:
    with pytest.raises(TypeMismatchError, match="IN list contains a string that is not valid Unicode"):
        sk.col("s").isin(["\ud800"])
