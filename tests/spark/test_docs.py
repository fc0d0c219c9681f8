"""The snippets of the pages that use Spark run as written, in the session of the other tests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.docs import namespace, run_page, spark_frames, write_bucket, write_events, write_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

# Pages, and the least number of snippets that run.
PAGES = {"docs/cli.md": 15, "docs/ingest.md": 5, "docs/s3.md": 5, "docs/spark.md": 4}


@pytest.mark.parametrize("page", PAGES)
def test_snippets_run(
    page: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, s3: dict[str, str]
) -> None:
    monkeypatch.chdir(tmp_path)
    # What is given as Spark's runs on Spark, the rest needn't.
    monkeypatch.setenv("SKIPSTONE_ENGINE", "local")
    write_events(tmp_path)
    names = namespace(tmp_path)
    if page == "docs/ingest.md":
        names |= spark_frames(spark, tmp_path)
    if page == "docs/cli.md":
        write_table()
    if page == "docs/s3.md":
        for name, value in write_bucket(tmp_path, s3["aws_endpoint"]).items():
            monkeypatch.setenv(name, value)
        names.update(spark=spark, endpoint={"endpoint": s3["aws_endpoint"], "allow_http": "true"})
    try:
        assert run_page(page, names) >= PAGES[page]
    finally:
        for query in spark.streams.active:
            query.stop()
        spark.catalog.dropTempView("events")
