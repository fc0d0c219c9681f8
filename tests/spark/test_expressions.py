"""Random expressions over nested and odd values: Skipstone's rows beside Spark's."""

from __future__ import annotations

import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import skipstone as sk
from skipstone.core.filter import RowValues
from skipstone.errors import NotExpressibleError, PredicateError
from skipstone.predicate.sql.read import SqlReader
from skipstone.predicate.sql.types import syntax
from tests.property._expressions import Expressions, random_rows
from tests.spark._reads import zone
from tests.support.samples import sample

pytestmark = pytest.mark.spark

AT_ONCE = 40


def plain(column: pa.ChunkedArray) -> list[Any]:
    """Values that compare across engines: times as numbers, one zero and one NaN."""
    type = column.type
    if pa.types.is_timestamp(type) or pa.types.is_date(type):
        return list(column.cast(pa.int32() if pa.types.is_date32(type) else pa.int64()).to_pylist())
    return [_plain(value) for value in column.to_pylist()]


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def of_spark(spark: SparkSession, path: str, texts: list[str]) -> list[list[Any] | None]:
    """Values of each expression by Spark; None if it fails on a row."""
    try:
        frame = spark.read.parquet(path).selectExpr(
            "rid", *[f"{text} AS e{n}" for n, text in enumerate(texts)]
        )
        table = frame.toArrow().sort_by("rid")
    except PySparkException:
        if len(texts) == 1:
            return [None]
        half = len(texts) // 2
        return of_spark(spark, path, texts[:half]) + of_spark(spark, path, texts[half:])
    return [plain(table.column(f"e{number}")) for number in range(len(texts))]


@pytest.mark.parametrize("tz", ["UTC", "Europe/Paris"])
def test_expressions_agree_with_spark(spark: SparkSession, tmp_path: Path, tz: str) -> None:
    rows = random_rows(random.Random("rows of expressions"), 80)
    path = str(tmp_path / "rows.parquet")
    pq.write_table(rows, path)
    count: Counter[str] = Counter()
    with zone(spark, tz):
        for first in range(0, sample("expressions"), AT_ONCE):
            numbers = range(first, first + AT_ONCE)
            texts = [Expressions(random.Random(f"expression:{tz}:{number}")).any() for number in numbers]
            for number, text, wanted in zip(numbers, texts, of_spark(spark, path, texts), strict=True):
                try:
                    value = SqlReader("spark", tz).value(syntax(text, "spark"))
                    got = plain(RowValues({"v": value}, rows.schema).compute(rows)["v"])
                except NotExpressibleError:
                    count["refused"] += 1
                    continue
                except PredicateError as error:
                    if wanted is not None:
                        pytest.fail(f"{number}: {text}\n  {error}\n  Spark: {wanted}")
                    count["failed"] += 1
                    continue
                assert wanted is not None, f"{number}: {text}: Spark fails"
                wrong = [row for row, (a, b) in enumerate(zip(got, wanted, strict=True)) if a != b]
                if wrong:
                    row = rows.slice(wrong[0], 1).to_pylist()[0]
                    both = f"{got[wrong[0]]!r}, Spark {wanted[wrong[0]]!r}"
                    pytest.fail(f"{number}: {text}\n  {both}\n  {len(wrong)} rows, such as {row}")
                count["agreed"] += 1
    print(f"\n{dict(count)}")
    assert count["agreed"] > 0.8 * sum(count.values())


_INEXACT = "exp expm1 ln log10 log1p log2 sin cos tan asin acos atan sinh cosh tanh cbrt"


def test_functions_of_doubles_agree_with_spark_to_the_last_digits(
    spark: SparkSession, tmp_path: Path
) -> None:
    numbers = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -7.25, 1e-300, 1e300, math.nan, math.inf, -math.inf, None]
    rows = pa.table({"rid": range(len(numbers)), "x": numbers, "y": [*numbers[3:], *numbers[:3]]})
    path = str(tmp_path / "rows.parquet")
    pq.write_table(rows, path)
    texts = [f"{name}(x)" for name in _INEXACT.split()]
    texts += ["power(x, y)", "power(x, 2)", "atan2(x, y)", "log(2, x)", "log(x, y)", "log(x)"]
    for text, wanted in zip(texts, of_spark(spark, path, texts), strict=True):
        value = SqlReader("spark", "UTC").value(syntax(text, "spark"))
        got = plain(RowValues({"v": value}, rows.schema).compute(rows)["v"])
        assert wanted is not None, text
        for row, (a, b) in enumerate(zip(got, wanted, strict=True)):
            close = isinstance(a, float) and isinstance(b, float) and math.isclose(a, b, rel_tol=1e-13)
            assert a == b or close, (text, numbers[row], a, b)


def test_reserved_words_are_columns_as_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    words = ["when", "then", "from", "select", "where", "values", "union", "using", "distinct", "cross"]
    words += ["any", "between", "like", "not", "case"]
    path = str(tmp_path / "rows.parquet")
    pq.write_table(pa.table({word: [1, 2, 3, at] for at, word in enumerate(words)}), path)
    frame = spark.read.parquet(path)
    for at, word in enumerate(words):
        text = f"{word} = 1 OR {word} > 2" if word == "not" else f"{word} = 1 OR {word} IN (3, {at})"
        assert sk.open(path).scan(text).count() == frame.where(text).count(), text
