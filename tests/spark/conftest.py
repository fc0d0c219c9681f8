"""One local Spark session for every Spark test."""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A JVM that lives for minutes: to compile well or to verify Spark's classes takes longer than it saves.
JAVA = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
PYTHON = """#!/bin/sh
if [ "$2" = pyspark.daemon ]; then set -- {1} {2} "$3"; fi
exec {0} "$@"
"""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    scratch = tmp_path_factory.mktemp("spark")
    python = scratch / "python"
    daemon = Path(__file__).with_name("_daemon.py")
    # A socket's path is short.
    socket = tempfile.mktemp(prefix="skipstone-", suffix=".sock")
    python.write_text(PYTHON.format(sys.executable, daemon, socket))
    python.chmod(0o755)
    os.environ["PYSPARK_PYTHON"] = str(python)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    session = (
        SparkSession.builder.master("local[2]")
        .appName("skipstone-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        # For few rows to compile Java takes longer than to interpret.
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.local.dir", str(scratch / "local"))
        .config("spark.driver.extraJavaOptions", JAVA)
        .config("spark.connect.grpc.binding.address", "127.0.0.1")
        .config("spark.connect.grpc.binding.port", "0")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    with warnings.catch_warnings():
        # Py4J leaves sockets to the garbage collector when the gateway goes.
        warnings.simplefilter("ignore", ResourceWarning)
        session.stop()
    Path(socket).unlink(missing_ok=True)
