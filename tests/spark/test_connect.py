"""Spark Connect, in short: the long test of it starts a server of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.test_cluster_engine import run
from tests.spark.test_read_cluster import COMMON

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

CONNECT_SMOKE = (
    COMMON
    + """
if __name__ == "__main__":
    write()
    session = sk.spark(remote=REMOTE)
    TEXTS = TEXTS[:1]
    found = {"kind": type(session).__module__, **same(session)}
    session.stop()
    print(json.dumps(found))
"""
)


def test_spark_connect_in_short(spark: SparkSession, tmp_path: Path) -> None:
    """A client without a Java virtual machine: the server is in that of the other tests."""
    context = spark.sparkContext
    service = getattr(context._jvm.org.apache.spark.sql.connect.service, "SparkConnectService$")
    server = getattr(service, "MODULE$")
    server.start(context._jsc.sc())
    found = run(f"REMOTE = 'sc://127.0.0.1:{server.localPort()}'\n{CONNECT_SMOKE}", tmp_path)
    assert found["kind"].startswith("pyspark.sql.connect")
    assert found["wrong"] == []
    assert found["asked"] == 6
