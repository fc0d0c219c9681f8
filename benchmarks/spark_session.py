"""A Spark session to time things in, and what its jobs have taken."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

import skipstone as sk
from benchmarks.peers import THREADS

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

MASTER = f"local[{THREADS}]"
_PATIENCE_MS = 60_000
_VECTORED = "parquet.hadoop.vectored.io.enabled"


@contextlib.contextmanager
def spark_session(data: Path) -> Iterator[SparkSession]:
    """The session that is running, or one of as many threads as everyone has; its files go under ``data``."""
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    data.mkdir(parents=True, exist_ok=True)
    folder = tempfile.mkdtemp(prefix="spark-", dir=data)
    conf = {"spark.local.dir": folder, "spark.sql.warehouse.dir": f"{folder}/warehouse"}
    session = sk.spark(MASTER, conf=conf)
    try:
        yield session
    finally:
        with warnings.catch_warnings():
            # Py4J leaves sockets to the garbage collector when the gateway goes.
            warnings.simplefilter("ignore", ResourceWarning)
            session.stop()
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Spent:
    """What some jobs have taken."""

    jobs: int
    jobs_ms: float
    """From the submission of each to its end."""
    tasks_ms: float
    """Executors' run time, summed over tasks that run side by side."""
    bytes: int


class Meter:
    """Tells what the session's jobs have taken since it was asked last."""

    def __init__(self, session: SparkSession) -> None:
        self._context: Any = session.sparkContext._jsc.sc()
        self._conf = session.conf
        self._last = -1
        self.spent()

    def spent(self) -> Spent:
        """Of all jobs that have ended; Spark keeps the last thousand."""
        # What listeners have not heard of yet is not in the store.
        self._context.listenerBus().waitUntilEmpty(_PATIENCE_MS)
        store = self._context.statusStore()
        listed = store.jobsList(None)
        new = [job for n in range(listed.size()) if (job := listed.apply(n)).jobId() > self._last]
        self._last = max([self._last, *(job.jobId() for job in new)])
        wall = tasks = bytes_ = 0
        for job in new:
            wall += job.completionTime().get().getTime() - job.submissionTime().get().getTime()
            for n in range(job.stageIds().size()):
                # A stage that was skipped may be forgotten already.
                with contextlib.suppress(Py4JJavaError):
                    stage = store.lastStageAttempt(job.stageIds().apply(n))
                    tasks += stage.executorRunTime()
                    bytes_ += stage.inputBytes()
        return Spent(len(new), wall, tasks, bytes_)

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        """A while in which Spark's Parquet reader counts all its bytes, as it does without vectored reads."""
        self.spent()
        self._conf.set(_VECTORED, "false")
        try:
            yield
        finally:
            self._conf.unset(_VECTORED)
