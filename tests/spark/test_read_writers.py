"""Files of every writer come into Spark by every way as Spark's own reader has them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark._questions import Kind, Questions
from tests.spark._read_lakes import WRITERS
from tests.spark._reads import FORCED, ROUTES, SOURCES, world, zone

pytestmark = pytest.mark.spark

Lakes = dict[str, tuple[Path, dict[str, Kind]]]


@pytest.fixture(scope="module")
def lakes(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lakes:
    found = {}
    for name, write in WRITERS.items():
        root = tmp_path_factory.mktemp(name.replace(" ", "-"))
        found[name] = root, write(spark, root)
    return found


@pytest.mark.parametrize(
    "writer",
    ["duckdb", *(pytest.param(name, marks=pytest.mark.slow) for name in ("pyarrow", "spark", "polars"))],
)
def test_some_questions(spark: SparkSession, lakes: Lakes, writer: str) -> None:
    root, columns = lakes[writer]
    texts = Questions(f"some {writer}", columns).some(6)
    asked = world(spark, root, texts, recursiveFileLookup="true")
    asked.check([None, *texts], ROUTES if writer == "pyarrow" else FORCED)
    asked.check(texts[:1], SOURCES[:1])
    assert asked.taken["reader"] >= 3
    assert asked.taken["slices"] == 7


@pytest.mark.slow
@pytest.mark.parametrize("zone_name", ["UTC", "America/New_York", "Asia/Kolkata"])
@pytest.mark.parametrize("writer", WRITERS)
def test_many_questions(spark: SparkSession, lakes: Lakes, writer: str, zone_name: str) -> None:
    root, columns = lakes[writer]
    questions = Questions(f"many {writer} {zone_name}", columns)
    with zone(spark, zone_name):
        texts = questions.some(60)
        asked = world(spark, root, texts, zone=zone_name, recursiveFileLookup="true")
        asked.check(texts, ROUTES)
        for _ in range(5):
            names = questions.rng.sample(asked.oracle.names, 4)
            asked.check(questions.rng.sample(texts, 10), ROUTES, names)
        asked.check(texts[:12], SOURCES)
        asked.check(texts[12:16], SOURCES, ["rid", "text"])
