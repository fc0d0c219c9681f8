"""Times in sessions of several zones, and conditions of other zones than the session's."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import skipstone as sk
from skipstone.errors import UsageError
from skipstone.spark import routes
from tests.spark._questions import DAY, STAMP, WHOLE, Questions
from tests.spark._read_lakes import STAMPS
from tests.spark._reads import FORCED, SOURCES, Oracle, World, native, world, zone

pytestmark = pytest.mark.spark

ZONES = ("UTC", "America/New_York", "Asia/Kolkata")
KINDS = {"utc": STAMP, "ntz": STAMP, "day": DAY, "rid": WHOLE, "st.t": STAMP}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("times")
    hours = [STAMPS[0] + n * 3_600_000_000 * 7 for n in range(-40, 80)]
    hours += [1_583_650_800_000_000 + n * 1_800_000_000 for n in range(40)]
    for number, values in enumerate((STAMPS, hours)):
        stamps = pa.array([*values, None], pa.int64())
        table = pa.table(
            {
                "rid": pa.array(range(number * 1000, number * 1000 + len(stamps)), pa.int64()),
                "utc": stamps.view(pa.timestamp("us", "UTC")),
                "ntz": stamps.view(pa.timestamp("us")),
                "day": pa.array([v // 86_400_000_000 for v in values] + [None], pa.int32()).view(pa.date32()),
                "word": pa.array([f"2020-01-{n % 20 + 1:02d}" for n in range(len(stamps))]),
            }
        )
        inner = pa.StructArray.from_arrays([table["utc"].combine_chunks()], names=["t"])
        pq.write_table(table.append_column("st", inner), root / f"{number}.parquet", row_group_size=50)
    return root


@pytest.mark.parametrize(
    ("name", "count"), [(ZONES[1], 4), *(pytest.param(name, 11, marks=pytest.mark.slow) for name in ZONES)]
)
def test_the_session_and_the_condition_in_one_zone(
    spark: SparkSession, lake: Path, name: str, count: int
) -> None:
    texts = Questions(f"zones {name}", KINDS).some(count)
    with zone(spark, name):
        made = world(spark, lake, texts, zone=name)
        made.check([None, *texts], FORCED)
        made.check(texts[:1], SOURCES)


@pytest.mark.parametrize(
    ("mine", "sessions"),
    [("Asia/Kolkata", "UTC"), pytest.param("UTC", "America/New_York", marks=pytest.mark.slow)],
)
def test_a_condition_of_another_zone(spark: SparkSession, lake: Path, mine: str, sessions: str) -> None:
    kinds = {column: kind for column, kind in KINDS.items() if column != "rid"}
    texts = Questions(f"other {mine}", kinds).some(9)
    texts += [
        "utc >= DATE '2020-01-04'",
        "day < TIMESTAMP '2020-01-03 12:00:00'",
        "word = TIMESTAMP '2020-01-03 00:00:00'",
    ]
    with zone(spark, mine):
        oracle = Oracle(native(spark, lake), texts)
    with zone(spark, sessions):
        # The types are the same; what the condition means is not the session's business.
        World(spark, str(lake), oracle, mine).check(texts, FORCED)


def test_the_reader_is_not_for_other_zones(
    spark: SparkSession, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "_DRIVER_BYTES", 0)
    opened = sk.open(lake)
    text = "utc >= '1960-01-01'"
    assert '"route": "reader"' in opened.scan(text).explain(format="json", session=spark)
    other = opened.scan(sk.parse(text, tz="Asia/Kolkata"))
    assert '"route": "slices"' in other.explain(format="json", session=spark)
    with pytest.raises(UsageError, match="time zone is Asia/Kolkata, the session's is UTC"):
        other.to_spark(spark, route="reader")


def test_settings_that_change_what_texts_mean(spark: SparkSession, tmp_path: Path) -> None:
    numbers = range(40)
    pq.write_table(
        pa.table({"i": numbers, "s": [f"a\\{n}" for n in numbers], "t": [str(n) for n in numbers]}),
        tmp_path / "f.parquet",
    )
    texts = ["i = '7'", r"s = 'a\\7'", r"s like 'a\\\\1%'", "t = 7", "i in ('7', '8')"]
    plain = Oracle(native(spark, tmp_path), texts)
    assert all(plain.rows(text) for text in texts)
    # Skipstone's conditions mean what they mean in a session of Spark's own settings.
    made = World(spark, str(tmp_path), plain)
    for name, value in (("ansi.enabled", "false"), ("parser.escapedStringLiterals", "true")):
        spark.conf.set(f"spark.sql.{name}", value)
        try:
            made.check(texts, FORCED)
        finally:
            spark.conf.unset(f"spark.sql.{name}")
    assert 0 < made.taken["reader"] < 2 * len(texts)
