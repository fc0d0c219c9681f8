"""Files that Spark wrote, and Spark as an oracle: its full scan agrees with ours and with what is kept."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from skipstone.errors import NotExpressibleError
from skipstone.predicate import tree
from tests.property._check import Case, Tally, check
from tests.property._layouts import FAMILIES, Layout, random_table
from tests.property._oracle import CantEvaluate, Oracle, read
from tests.property._predicates import Predicates

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FILES = 8
PER_FILE = 25
SPARK_TYPES = (
    *("i8", "i16", "i32", "i64", "f32", "f64", "flag", "text", "blob", "day"),
    *("ts_us", "ts_us_tz", "dec4", "dec9", "dec18", "dec20", "dec38"),
)


@dataclass(frozen=True)
class Written:
    """A file by Spark, and its rows."""

    layout: Layout
    table: pa.Table


@pytest.fixture(scope="module")
def written(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> list[Written]:
    """A batch of random tables written by Spark with tiny pages and row groups."""
    folder = tmp_path_factory.mktemp("spark-files")
    found = []
    for number in range(FILES):
        rng = random.Random(f"spark:{number}")
        families = [f for f in FAMILIES if f.name in SPARK_TYPES]
        made = random_table(rng, families, rows=rng.choice([60, 250, 400]))
        made.nested[:] = [path for path in made.nested if path != ("nothing",)]
        table = made.table.drop_columns([n for n in ("nothing",) if n in made.table.column_names])
        table = table.append_column("_n", pa.array(range(table.num_rows)))
        source = folder / f"in-{number}.parquet"
        pq.write_table(table, source)
        options: dict[str, Any] = {
            "parquet.block.size": rng.choice([500, 3000]),
            "parquet.page.size": rng.choice([64, 300]),
            "parquet.page.row.count.limit": rng.choice([5, 13, 50]),
            "parquet.page.size.row.check.min": 1,
            "parquet.block.size.row.check.min": rng.choice([10, 40]),
            "parquet.block.size.row.check.max": 60,
            "parquet.enable.dictionary": rng.choice(["true", "false"]),
            "parquet.writer.version": rng.choice(["PARQUET_1_0", "PARQUET_2_0"]),
            "parquet.columnindex.truncate.length": rng.choice([2, 64]),
            "parquet.statistics.truncate.length": rng.choice([2, 1000]),
            "compression": rng.choice(["snappy", "zstd", "none"]),
        }
        for name in made.table.column_names:
            if rng.random() < 0.5:
                options[f"parquet.bloom.filter.enabled#{name}"] = "true"
                options[f"parquet.bloom.filter.expected.ndv#{name}"] = "100"
        out = folder / f"out-{number}"
        writer = spark.read.parquet(str(source)).coalesce(1).write
        for name, value in options.items():
            writer = writer.option(name, str(value))
        writer.parquet(str(out))
        (file,) = list(out.glob("part-*.parquet"))
        layout = Layout(file, f"spark {options}", made)
        found.append(Written(layout, read(file)))
    return found


def test_pruning_agrees_with_a_full_scan(written: list[Written]) -> None:
    tally = Tally()
    for number, file in enumerate(written):
        oracle = Oracle(file.table)
        metadata = sk.read_metadata(str(file.layout.path))
        tally.counts["row groups"] += metadata.row_group_count
        for case in range(PER_FILE):
            seed = f"spark:{number}:{case}"
            predicate = Predicates(random.Random(seed), file.layout.made).tree()
            check(Case(seed, file.layout, metadata, predicate), oracle, tally, random.Random(seed))
    print(f"\nspark: {tally}")
    count = tally.counts
    assert count["cases"] > 0.7 * FILES * PER_FILE
    assert count["row groups"] > 2 * FILES
    for what in ("with a dropped row", "with a proven row", "dropped by pages"):
        assert 0 < count[what] < count["cases"], str(tally)


def test_spark_agrees_with_the_oracle(spark: SparkSession, written: list[Written]) -> None:
    from pyspark.errors import PySparkException
    from pyspark.sql import functions

    count: Counter[str] = Counter()
    for number, file in enumerate(written[:4]):
        oracle = Oracle(file.table)
        order = oracle.column(("_n",)).items
        frame = spark.read.parquet(str(file.layout.path)).cache()  # in memory: nothing is pruned
        frame.count()
        asked: list[tuple[tree.Predicate, Any, list[bool | None]]] = []
        for case in range(40):
            predicate = Predicates(random.Random(f"spark-oracle:{number}:{case}"), file.layout.made).tree()
            if not _one_zone(predicate):
                count["another zone or opaque"] += 1
                continue
            try:
                truth = oracle.answer(predicate)
                condition = functions.expr(predicate.to_sql("spark"))
                frame.select(condition)
            except (CantEvaluate, NotExpressibleError):
                count["not expressible"] += 1
                continue
            except PySparkException:
                count["refused by Spark"] += 1
                continue
            asked.append((predicate, condition, truth))
        columns = [condition.alias(f"p{n}") for n, (_, condition, _) in enumerate(asked)]
        answers = {row["_n"]: row for row in frame.select("_n", *columns).collect()}
        for n, (predicate, _, truth) in enumerate(asked):
            for row, key in enumerate(order):
                assert answers[key][f"p{n}"] is truth[row], (
                    f"spark-oracle:{number}: {predicate}\nas {predicate.to_sql('spark')}\nrow {row} "
                    f"{ {path: oracle.column(path).items[row] for path in predicate.columns()} }: "
                    f"we say {truth[row]}, Spark {answers[key][f'p{n}']}"
                )
            count["agree"] += 1
        frame.unpersist()
    print(f"\n{dict(count)}")
    assert count["agree"] >= 50, dict(count)


def _one_zone(predicate: tree.Predicate) -> bool:
    """Whether it is said in the session's zone, and without a function of ours."""
    for node in predicate.walk():
        if isinstance(node, tree.Opaque):
            return False
        if isinstance(node, (tree.Literal, tree.Cast, tree.Call)) and node.zone != "UTC":
            return False
    return True
