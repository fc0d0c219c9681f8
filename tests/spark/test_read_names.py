"""Names of columns and of directories that other parsers stumble over."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.spark._questions import TEXT, WHOLE, Questions
from tests.spark._reads import FORCED, SOURCES, quote, world

pytestmark = pytest.mark.spark

NAMES = (
    "a.b",
    "with space",
    "back`tick",
    "it's",
    'double "quote"',
    "Upper",
    "ünï",
    "select",
    "a,b",
    "%41",
    "x-y",
    "1",
)
FOLDERS = ("with space", "a=b", "[ab]", "{x,y}", "%41", "ünï")
MORE_FOLDERS = ("100%", "a#b", "st*r", "wh?t", "back\\slash")


@pytest.mark.parametrize("count", [0, pytest.param(11, marks=pytest.mark.slow)])
def test_columns(spark: SparkSession, tmp_path: Path, count: int) -> None:
    columns = {name: pa.array([None, *range(n, n + 19)], pa.int32()) for n, name in enumerate(NAMES)}
    inner = pa.array([{"x.y": n, "Z z": str(n)} for n in range(20)])
    pq.write_table(
        pa.table({**columns, "st": inner, "a": pa.array([{"b": n} for n in range(20)])}),
        tmp_path / "f.parquet",
    )
    kinds = {quote(name): WHOLE for name in NAMES} | {"st.`x.y`": WHOLE, "st.`Z z`": TEXT, "a.b": WHOLE}
    texts = Questions("names", kinds).some(count) + [f"{name} = 5" for name in kinds]
    made = world(spark, tmp_path, texts)
    made.check([None, *texts], FORCED)
    made.check(texts[-3:], FORCED, ["it's", "a,b", "a.b"])
    made.check([f"{quote(name)} = 5" for name in NAMES[:1]], SOURCES, ["back`tick", "a,b", "with space"])
    assert made.taken["reader"] >= 15


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "name", [*FOLDERS, *(pytest.param(name, marks=pytest.mark.slow) for name in MORE_FOLDERS)]
)
def test_directories(spark: SparkSession, tmp_path: Path, name: str) -> None:
    root = tmp_path / name / "lake"
    (root / name).mkdir(parents=True)
    for number, folder in enumerate((root, root / name)):
        numbers = range(100 * number, 100 * number + 50)
        pq.write_table(
            pa.table({"rid": numbers, "v": [n % 9 for n in numbers]}), folder / f"{name} part.parquet"
        )
    # Beside it is what a glob would match as well.
    for other in ("a", "star", "what", "x", "A"):
        if not (tmp_path / other).exists():
            (tmp_path / other / "lake").mkdir(parents=True)
            pq.write_table(pa.table({"rid": [-1], "v": [3]}), tmp_path / other / "lake" / "o.parquet")
    made = world(spark, root, ["v = 3", "rid between 40 and 110"], recursiveFileLookup="true")
    if "=" in name:  # a partition, which Spark doesn't look for when told to look everywhere
        made = world(spark, root / name, ["v = 3", "rid between 40 and 110"])
    made.check(["rid between 40 and 110"], FORCED)
    made.check(["v = 3"], SOURCES[-1:])


def test_names_that_differ_in_case(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": range(20), "A": range(20, 40), "b": range(20)}), tmp_path / "f.parquet")
    import skipstone as sk
    from skipstone.errors import UsageError

    scan = sk.open(tmp_path).scan("a = 3 or A = 27")
    for route in ("driver", "slices", "auto"):
        assert scan.to_spark(spark, route=route).toArrow().to_pydict() == {
            "a": [3, 7],
            "A": [23, 27],
            "b": [3, 7],
        }
    with pytest.raises(UsageError, match="ambiguous in a case-insensitive session"):
        scan.to_spark(spark, route="reader")
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        found = scan.to_spark(spark, route="reader").toArrow().sort_by("a").to_pydict()
        assert found == {"a": [3, 7], "A": [23, 27], "b": [3, 7]}
    finally:
        spark.conf.set("spark.sql.caseSensitive", "false")
