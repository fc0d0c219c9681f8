"""Dates and times that Python's own types can't represent, as literals beside columns of every kind."""

from __future__ import annotations

import contextlib
import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from skipstone.errors import SkipstoneError, TypeMismatchError

FAR = 2_932_897
"""Days to the first of January of the year 10000."""
LAST = 2**63 - 1
EXTREMES = [
    *(pa.scalar(days, pa.date32()) for days in (FAR, 2**31 - 1, -(2**31), -719_163)),
    pa.scalar(FAR * 86_400_000, pa.date64()),
    pa.scalar(FAR * 86_400, pa.timestamp("s")),
    pa.scalar(LAST, pa.timestamp("us")),
    pa.scalar(-LAST - 1, pa.timestamp("ns")),
    pa.scalar(LAST, pa.timestamp("ns", "Europe/Berlin")),
    pa.scalar(-LAST - 1, pa.timestamp("ms", "UTC")),
    pa.scalar(LAST, pa.duration("s")),
]
COLUMNS = {
    "day": pa.array([0, FAR, None], pa.date32()),
    "time": pa.array([0, FAR * 86_400 * 10**6, None], pa.timestamp("us")),
    "instant": pa.array([0, LAST, None], pa.timestamp("ns", "UTC")),
    "clock": pa.array([0, 1, None], pa.time64("us")),
    "span": pa.array([0, LAST, None], pa.duration("us")),
    "text": pa.array(["2020-01-01", "2021-01-01", None]),
    "bytes": pa.array([b"a", b"b", None]),
    "truth": pa.array([True, False, None]),
    "number": pa.array([1, 2, None]),
    "fraction": pa.array([1.0, 2.0, None]),
}


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> list[sk.Lake]:
    """The same rows without an index and with one."""
    folders = [tmp_path_factory.mktemp(name) for name in ("plain", "indexed")]
    for folder in folders:
        pq.write_table(pa.table(COLUMNS), folder / "a.parquet", row_group_size=1)
    sk.open(folders[1]).index.build(engine="local")
    return [sk.open(folder) for folder in folders]


def forms(column: sk.Column, value: pa.Scalar) -> list[Any]:
    return [
        lambda: column == value,
        lambda: column.isin([value]),
        lambda: ~column.isin([value, None]),
        lambda: column.between(value, value),
        lambda: column.isin([value, dt.date(2020, 1, 1)]),
        lambda: column.isin(pa.array([value, value], value.type)),
    ]


@pytest.mark.parametrize("name", COLUMNS)
def test_an_extreme_literal_has_an_answer_or_an_error_of_ours(lakes: list[sk.Lake], name: str) -> None:
    answers = 0
    for value in EXTREMES:
        for form in forms(sk.col(name), value):
            with contextlib.suppress(SkipstoneError):
                predicate = form()
                wanted = lakes[0].scan(predicate, skipping=False).count()
                assert [lake.scan(predicate).count() for lake in lakes] == [wanted] * 2, predicate
                for write in (
                    predicate.to_sql,
                    predicate.to_arrow,
                    predicate.to_polars,
                    predicate.to_iceberg,
                ):
                    with contextlib.suppress(SkipstoneError):
                        write()
                answers += 1
    assert (answers > 0) == (name in ("day", "time", "instant", "span", "text"))


def test_far_dates_are_found(lakes: list[sk.Lake]) -> None:
    far, other = (pa.scalar(days, pa.date32()) for days in (FAR, 2**31 - 1))
    for lake in lakes:
        for values in ([far], [far, None], [far, other], pa.array([far, None])):
            assert lake.scan(sk.col("day").isin(values)).count() == 1
            assert lake.scan(sk.col("time").isin(values)).count() == 1
        assert lake.scan(sk.col("text") < far).count() == 2


def test_a_list_of_several_types_with_a_far_date(tmp_path: Path) -> None:
    with pytest.raises(TypeMismatchError, match="IN list mixes types: date value out of range"):
        sk.col("day").isin([pa.scalar(FAR, pa.date32()), dt.date(2020, 1, 1)])
