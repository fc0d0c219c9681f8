"""Spark, classic or by Spark Connect: ``mapInArrow`` with a Spark task for each task, retried by Spark."""

from __future__ import annotations

import base64
import os
import pickle
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from skipstone.engine.session import (
    is_connect,
    parallelism_of,
    reason,
    require_pyspark,
    running_session,
    spark_session,
)
from skipstone.errors import JobError, SkipstoneError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")
R = TypeVar("R")

# How often progress is looked up, in seconds.
_POLL = 0.2


class SparkEngine:
    """A Spark session, which ``close`` stops if it is ``owned``."""

    def __init__(self, session: SparkSession, *, owned: bool) -> None:
        self.session = session
        self.owned = owned
        self._lock = threading.Lock()
        self._aside: Any = None

    @property
    def name(self) -> str:
        """It is Spark."""
        return "spark"

    @property
    def parallelism(self) -> int:
        """The cores of its executors, as far as they can be known."""
        return parallelism_of(self.session)

    def map(
        self, work: Callable[[T], R], tasks: Sequence[T], *, on_done: Callable[[int], None] | None = None
    ) -> list[R]:
        """``work`` on each task, on the executors.

        An error of Skipstone's own arrives as it was raised there, any other as a JobError. What can't be
        imported there, such as a lambda, is sent by value.
        """
        if not tasks:
            return []
        from pyspark import cloudpickle

        payloads = [cloudpickle.dumps(task) for task in tasks]
        job: _Job = _ConnectJob(self._beside) if is_connect(self.session) else _ClassicJob(self.session)
        outcome = _followed(job, _batches(_attempt(work)), payloads, on_done)
        failure = outcome.exception()
        if failure is not None:
            error = _failure(failure)
            raise error from (failure if isinstance(error, JobError) else None)
        return [pickle.loads(result) for result in outcome.result()]  # noqa: S301

    def close(self) -> None:
        """Stop the session if it was started for this engine."""
        if self._aside is not None:
            # To stop it as well would stop a server of this process.
            with suppress(Exception):
                self._aside.client.release_session()
            self._aside.client.close()
            self._aside = None
        if self.owned:
            self.session.stop()

    def _beside(self) -> Any:
        """A Connect session for jobs only: what they set stays there, and so do workers that are warm."""
        with self._lock:
            if self._aside is None:
                aside: Any = self.session.newSession()
                # A local relation has as many partitions as this, or as it has rows.
                aside.conf.set("spark.sql.leafNodeDefaultParallelism", str(2**31 - 1))
                self._aside = aside
            return self._aside

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# ---------------------------------------------------------------- jobs


class _Job(Protocol):
    """One call of ``map``, made and run in a thread that is its own."""

    def frame(self, payloads: Sequence[bytes]) -> AbstractContextManager[Any]:
        """A data frame of numbers and payloads, each row in a partition of its own, to be used within."""

    def finished(self) -> int:
        """How many are done."""

    def cancel(self) -> None:
        """Stop what is running."""


class _ClassicJob:
    """A job whose rows come from an RDD, which has as many partitions as it is asked for."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._context = session.sparkContext
        self._group = f"skipstone-{os.urandom(8).hex()}"

    @contextmanager
    def frame(self, payloads: Sequence[bytes]) -> Iterator[Any]:
        self._context.setJobGroup(self._group, f"skipstone: {len(payloads)} tasks")
        rows = self._context.parallelize(enumerate(payloads), len(payloads))
        kind: Any = type(self._session)
        with _ACTIVE:
            # Whoever makes a data frame becomes the active session of all threads.
            active = kind._activeSession
            try:
                frame = self._session.createDataFrame(rows, _SCHEMA, verifySchema=False)
            finally:
                kind._activeSession = active
        yield frame

    def finished(self) -> int:
        tracker = self._context.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._group)]
        stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
        return sum(stage.numCompletedTasks for stage in stages if stage is not None)

    def cancel(self) -> None:
        self._context.cancelJobGroup(self._group)


class _ConnectJob:
    """A job whose rows are a local relation, for there are no RDDs."""

    def __init__(self, session: Callable[[], Any]) -> None:
        self._session = session
        self._tag = f"skipstone-{os.urandom(8).hex()}"
        self._thread = 0
        self._finished = 0

    @contextmanager
    def frame(self, payloads: Sequence[bytes]) -> Iterator[Any]:
        import pyarrow as pa

        self._thread = threading.get_ident()
        session = self._session()
        session.addTag(self._tag)
        session.registerProgressHandler(self._progress)
        rows = pa.table({"number": range(len(payloads)), "payload": pa.array(payloads, pa.binary())})
        try:
            yield session.createDataFrame(rows)
        finally:
            session.removeProgressHandler(self._progress)

    def finished(self) -> int:
        return self._finished

    def cancel(self) -> None:
        self._session().interruptTag(self._tag)

    def _progress(self, stages: Iterable[Any] | None, **_: object) -> None:
        # All jobs of a session are told to all handlers, each in the thread that waits for it.
        if threading.get_ident() == self._thread:
            self._finished = sum(stage.num_completed_tasks for stage in stages or ())


_SCHEMA = "number long, payload binary"
_ACTIVE = threading.Lock()
_Batches = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]


def _run(job: _Job, batches: _Batches, payloads: Sequence[bytes]) -> list[bytes]:
    with job.frame(payloads) as frame:
        table = frame.mapInArrow(batches, _SCHEMA).toArrow()
    results: list[bytes] = table.sort_by("number")["payload"].to_pylist()
    return results


def _followed(
    job: _Job, batches: _Batches, payloads: Sequence[bytes], on_done: Callable[[int], None] | None
) -> Future[list[bytes]]:
    """A job's outcome, its progress told until then; cancelled if that, or the user, interrupts."""
    told = 0
    with ThreadPoolExecutor(1, thread_name_prefix="skipstone-spark") as pool:
        outcome = pool.submit(_run, job, batches, payloads)
        try:
            while wait([outcome], _POLL).not_done:
                finished = min(_progress(job), len(payloads)) if on_done is not None else 0
                if on_done is not None and finished > told:
                    on_done(told := finished)
            if on_done is not None and told < len(payloads) and outcome.exception() is None:
                on_done(len(payloads))
        except BaseException:
            with suppress(Exception):
                job.cancel()
            raise
    return outcome


def _progress(job: _Job) -> int:
    # A session that is just being stopped can't tell; the job itself says why it fails.
    with suppress(Exception):
        return job.finished()
    return 0


def payload_frame(session: SparkSession, payloads: Sequence[bytes]) -> DataFrame:
    """A data frame of numbers and payloads, for tasks of the user's own session, each of one payload."""
    import pyarrow as pa

    rows = pa.table(
        {"number": pa.array(range(len(payloads)), pa.int32()), "payload": pa.array(payloads, pa.binary())}
    )
    frame = session.createDataFrame(rows)
    # A local relation has a partition for each row, up to the session's parallelism.
    if len(payloads) > parallelism_of(session):
        frame = frame.repartitionById(len(payloads), frame["number"])
    return frame


# ---------------------------------------------------------------- on the executors


def _attempt(work: Callable[[T], R]) -> Callable[[bytes], bytes]:
    """``work`` from bytes to bytes; a failure of Skipstone's own is written into the error's text.

    That is all that Spark hands back of an error. To give it back as a result would spare Spark's
    retries, but then all other tasks would be worked on before it is told.
    """

    def attempt(payload: bytes) -> bytes:
        from pyspark import cloudpickle

        try:
            result = work(pickle.loads(payload))  # noqa: S301
        except SkipstoneError as error:
            body = base64.b64encode(cloudpickle.dumps(error)).decode()
            raise _RemoteError(f"{_MARK}{body}; {error}") from error
        dumped: bytes = cloudpickle.dumps(result)
        return dumped

    return attempt


def _batches(attempt: Callable[[bytes], bytes]) -> _Batches:
    """Batches of numbers and payloads into such of numbers and results."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            results = [attempt(payload) for payload in batch.column("payload").to_pylist()]
            yield pa.record_batch(
                {"number": batch.column("number"), "payload": pa.array(results, pa.binary())}
            )

    return run


class _RemoteError(Exception):
    """An error with another one in its text."""


# ---------------------------------------------------------------- failures

_MARK = "skipstone error "
_MARKED = re.compile(_MARK + "([A-Za-z0-9+/=]+);")


def _failure(error: BaseException) -> SkipstoneError:
    """The error that the work raised, or what can be told of it."""
    text = str(error)
    marked = _MARKED.search(text)
    if marked is not None:
        original: SkipstoneError = pickle.loads(base64.b64decode(marked[1]))  # noqa: S301
        return original
    hint = None
    if "No module named 'skipstone" in text:
        hint = "install skipstone on the executors, for the Python that PYSPARK_PYTHON names"
    return JobError(f"the work failed on Spark: {reason(text)}", hint=hint)


# ---------------------------------------------------------------- opening


def open_spark(
    master: str | None = None, remote: str | None = None, conf: Mapping[str, str] | None = None
) -> SparkEngine:
    """An engine on the session that is running, or on one that is started for it."""
    require_pyspark()
    running = running_session()
    session = spark_session(master, remote, conf)
    return SparkEngine(session, owned=session is not running)
