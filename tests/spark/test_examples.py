"""Examples of docstrings that run on Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.examples import ON_SPARK, examples, modules, run, write_lake

pytestmark = pytest.mark.spark


def test_examples_run(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_lake(tmp_path)
    monkeypatch.chdir(tmp_path)
    tests = [test for module in modules() for test in examples(module, spark=True)]
    assert {test.name.rpartition(".")[2] for test in tests} == ON_SPARK
    for test in tests:
        run(test)
