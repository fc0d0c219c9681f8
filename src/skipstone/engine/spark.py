"""The Spark engine, classic or Connect: ``mapInArrow`` with one Spark task per task, retried by Spark."""

from __future__ import annotations

import base64
import logging
import os
import pickle
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from skipstone.engine.jobs import STOP, check_stop
from skipstone.engine.session import (
    is_connect,
    memory_hint,
    parallelism_of,
    reason,
    require_pyspark,
    running_session,
    spark_session,
)
from skipstone.engine.stopping import JobStop
from skipstone.errors import JobError, SkipstoneError
from skipstone.store.options import dump_with_credentials

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

T = TypeVar("T")
R = TypeVar("R")

# Seconds between progress updates.
_POLL = 0.2
# Seconds to wait for tasks of cancelled jobs: Spark kills a Python worker after two.
_SETTLE = 10.0


class SparkEngine:
    """An engine on a Spark session, which ``close`` stops if it is ``owned``."""

    def __init__(self, session: SparkSession, *, owned: bool) -> None:
        self.session = session
        self.owned = owned
        self._lock = threading.Lock()
        self._jobs: Any = None

    @property
    def name(self) -> str:
        """Name for messages."""
        return "spark"

    @property
    def parallelism(self) -> int:
        """Cores of the executors; an estimate for Spark Connect."""
        return parallelism_of(self.session)

    def map(
        self, work: Callable[[T], R], tasks: Sequence[T], *, on_done: Callable[[int], None] | None = None
    ) -> list[R]:
        """Call ``work`` on each task, on the executors.

        Skipstone's own errors are raised again here, any other error becomes a JobError. Functions that
        executors can't import, such as lambdas, are sent by value.
        """
        if not tasks:
            return []
        from pyspark import cloudpickle

        payloads = [dump_with_credentials(task, cloudpickle.dumps) for task in tasks]
        session = self._jobs_session() if is_connect(self.session) else self.session
        progress = None if on_done is None else _MonotoneCount(on_done, len(tasks))
        attempt = _attempt(dump_with_credentials(work, cloudpickle.dumps))
        outcome = _follow(session, lambda: _run(session, _batches(attempt), payloads), progress)
        results = _result_of(outcome)
        if progress is not None:
            progress(len(tasks))
        return [pickle.loads(result) for result in results]  # noqa: S301

    def follow(self, run: Callable[[], R], on_progress: Callable[[int, int], None] | None = None) -> R:
        """Call ``run``, which starts Spark jobs, and report their progress; an interrupt cancels them."""
        return _result_of(_follow(self.session, run, on_progress))

    def close(self) -> None:
        """Stop the session if it was started for this engine."""
        if self._jobs is not None:
            # Stopping this session would stop a server started by this process.
            with suppress(Exception):
                self._jobs.client.release_session()
            self._jobs.client.close()
            self._jobs = None
        if self.owned:
            self.session.stop()

    def _jobs_session(self) -> Any:
        """Return a Connect session for jobs, so that settings don't leak and warm workers are reused."""
        with self._lock:
            if self._jobs is None:
                jobs: Any = self.session.newSession()
                # A local relation has this many partitions, or one per row.
                jobs.conf.set("spark.sql.leafNodeDefaultParallelism", str(2**31 - 1))
                self._jobs = jobs
            return self._jobs

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# ---------------------------------------------------------------- jobs


class _Watch(Protocol):
    """Reports the progress of the jobs that one thread starts, and cancels them."""

    def within(self) -> AbstractContextManager[None]:
        """Return a context for that thread."""

    def progress(self) -> tuple[int, int]:
        """Tasks done, and tasks scheduled so far."""

    def cancel(self) -> None:
        """Cancel running jobs."""

    def settle(self) -> None:
        """Wait a while for tasks of cancelled jobs, which could still make files."""


class _ClassicWatch:
    """Watches the jobs of one group."""

    def __init__(self, session: SparkSession) -> None:
        self._context = session.sparkContext
        self._group = f"skipstone-{os.urandom(8).hex()}"

    @contextmanager
    def within(self) -> Iterator[None]:
        self._context.setJobGroup(self._group, "skipstone")
        yield

    def _stages(self) -> list[Any]:
        tracker = self._context.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._group)]
        numbers = {stage for job in jobs if job is not None for stage in job.stageIds}
        return [stage for number in numbers if (stage := tracker.getStageInfo(number)) is not None]

    def progress(self) -> tuple[int, int]:
        stages = self._stages()
        return sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)

    def cancel(self) -> None:
        self._context.cancelJobGroup(self._group)

    def settle(self) -> None:
        until = time.monotonic() + _SETTLE
        with suppress(Exception):
            while self._running() and time.monotonic() < until:
                time.sleep(_POLL)

    def _running(self) -> int:
        """Number of running tasks."""
        return sum(stage.numActiveTasks for stage in self._stages())


class _ConnectWatch:
    """Watches the operations of one tag."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._tag = f"skipstone-{os.urandom(8).hex()}"
        self._thread = 0
        self._progress = (0, 0)

    @contextmanager
    def within(self) -> Iterator[None]:
        self._thread = threading.get_ident()
        self._session.addTag(self._tag)
        self._session.registerProgressHandler(self._on_progress)
        try:
            yield
        finally:
            self._session.removeProgressHandler(self._on_progress)
            self._session.removeTag(self._tag)

    def progress(self) -> tuple[int, int]:
        return self._progress

    def cancel(self) -> None:
        self._session.interruptTag(self._tag)

    def settle(self) -> None:
        """Return at once: the server does not say which tasks run."""

    def _on_progress(self, stages: Iterable[Any] | None, **_: object) -> None:
        # A session calls all handlers for all of its jobs, each in the thread that waits for the job.
        if threading.get_ident() == self._thread:
            current = list(stages or ())
            self._progress = sum(s.num_completed_tasks for s in current), sum(s.num_tasks for s in current)


def _watch(session: Any) -> _Watch:
    return _ConnectWatch(session) if is_connect(session) else _ClassicWatch(session)


_THREAD = "skipstone-spark"


def _quiet_errors() -> None:
    """Keep PySpark from printing the Java stack of errors that are raised again here."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).addFilter(_is_of_others)


def _is_of_others(record: logging.LogRecord) -> bool:
    return not str(record.threadName).startswith(_THREAD)


def _follow(session: Any, run: Callable[[], R], on_progress: Callable[[int, int], None] | None) -> Future[R]:
    """Run and report progress; an error in ``on_progress`` or an interrupt cancels the jobs."""
    watch = _watch(session)
    last = (0, 0)
    stop = STOP.get()
    if isinstance(stop, JobStop):
        stop.install()

    def work() -> R:
        _quiet_errors()
        with watch.within():
            return run()

    with ThreadPoolExecutor(1, thread_name_prefix=_THREAD) as pool:
        outcome = pool.submit(work)
        try:
            while wait([outcome], _POLL).not_done:
                check_stop()
                # A session that is being stopped has no progress; the job reports its own error.
                with suppress(Exception):
                    now = watch.progress() if on_progress is not None else last
                if on_progress is not None and now != last:
                    on_progress(*(last := now))
            check_stop()
        except BaseException:
            # Again and again, because the thread can be between two jobs.
            while wait([outcome], _POLL).not_done:
                with suppress(Exception):
                    watch.cancel()
            watch.settle()
            raise
    return outcome


class _MonotoneCount:
    """Reports a count when it has grown, up to a limit: Spark counts retried tasks again."""

    def __init__(self, report: Callable[[int], None], most: int) -> None:
        self._report, self._most, self._last = report, most, 0

    def __call__(self, done: int, _total: int = 0) -> None:
        if min(done, self._most) > self._last:
            self._last = min(done, self._most)
            self._report(self._last)


def _result_of(outcome: Future[R]) -> R:
    """Return the result, or raise the error that the work raised."""
    failure = outcome.exception()
    if failure is None:
        return outcome.result()
    if isinstance(failure, SkipstoneError):
        raise failure
    error = _failure(failure)
    raise error from (failure if isinstance(error, JobError) else None)


# ---------------------------------------------------------------- frames of payloads

_SCHEMA = "number long, payload binary"
_ACTIVE = threading.Lock()
_Batches = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]


def _run(session: SparkSession, batches: _Batches, payloads: Sequence[bytes]) -> list[bytes]:
    table = _one_each(session, payloads).mapInArrow(batches, _SCHEMA).toArrow()
    results: list[bytes] = table.sort_by("number")["payload"].to_pylist()
    return results


def _one_each(session: Any, payloads: Sequence[bytes]) -> DataFrame:
    """Return a data frame of numbers and payloads, one partition per row."""
    if is_connect(session):
        import pyarrow as pa

        rows = pa.table({"number": range(len(payloads)), "payload": pa.array(payloads, pa.binary())})
        frame: DataFrame = session.createDataFrame(rows)
        return frame
    # An RDD has the requested number of partitions.
    rows = session.sparkContext.parallelize(enumerate(payloads), len(payloads))
    kind: Any = type(session)
    with _ACTIVE:
        # Creating a data frame makes its session the active one of all threads.
        active = kind._activeSession
        try:
            classic: DataFrame = session.createDataFrame(rows, _SCHEMA, verifySchema=False)
            return classic
        finally:
            kind._activeSession = active


def payload_frame(session: SparkSession, payloads: Sequence[bytes]) -> DataFrame:
    """Return a data frame of numbers and payloads in the user's session, one task per payload."""
    import pyarrow as pa

    rows = pa.table(
        {"number": pa.array(range(len(payloads)), pa.int32()), "payload": pa.array(payloads, pa.binary())}
    )
    frame = session.createDataFrame(rows)
    # A local relation has one partition per row, up to the session's parallelism.
    if len(payloads) > parallelism_of(session):
        frame = frame.repartitionById(len(payloads), frame["number"])
    return frame


# ---------------------------------------------------------------- on the executors


def _attempt(work: bytes) -> Callable[[bytes], bytes]:
    """Wrap pickled ``work`` as a function of bytes; Skipstone's own errors are encoded in the message.

    The message is all that Spark returns of an error. Returning the error as a result would avoid Spark's
    retries, but it would be reported only after all other tasks.
    """

    def attempt(payload: bytes) -> bytes:
        from pyspark import cloudpickle

        with _errors_in_messages():
            result = pickle.loads(work)(pickle.loads(payload))  # noqa: S301
        dumped: bytes = cloudpickle.dumps(result)  # type: ignore[no-untyped-call]
        return dumped

    return attempt


def map_batches(frame: DataFrame, work: _Batches, schema: str | StructType) -> DataFrame:
    """``mapInArrow`` for columns of any name, whose SkipstoneErrors are raised again on the driver."""
    names = frame.columns
    odd = any(sign in name for name in names for sign in ".`")
    if odd:
        # PySpark would take a dot for a nested field.
        frame = frame.toDF(*(f"c{at}" for at in range(len(names))))

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with _errors_in_messages():
            yield from work((batch.rename_columns(names) for batch in batches) if odd else batches)

    return frame.mapInArrow(run, schema)


@contextmanager
def _errors_in_messages() -> Iterator[None]:
    from pyspark import cloudpickle

    try:
        yield
    except SkipstoneError as error:
        body = base64.b64encode(cloudpickle.dumps(error)).decode()  # type: ignore[no-untyped-call]
        raise _RemoteError(f"{_MARK}{body}; {error}") from error


def _batches(attempt: Callable[[bytes], bytes]) -> _Batches:
    """Return a function from batches of payloads to batches of results."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            results = [attempt(payload) for payload in batch.column("payload").to_pylist()]
            yield pa.record_batch(
                {"number": batch.column("number"), "payload": pa.array(results, pa.binary())}
            )

    return run


class _RemoteError(Exception):
    """An error with a pickled one in its message."""


# ---------------------------------------------------------------- failures

_MARK = "skipstone error "
_MARKED = re.compile(_MARK + "([A-Za-z0-9+/=]+);")


def _failure(error: BaseException) -> SkipstoneError:
    """Return the error that the work raised, or a JobError with its traceback."""
    text = str(error)
    marked = _MARKED.search(text)
    if marked is not None:
        original: SkipstoneError = pickle.loads(base64.b64decode(marked[1]))  # noqa: S301
        return original
    return spark_error(text)


_FILE = re.compile(r"reading file (?:file://(?=/))?(\S+?)\.(?=\s|$)")
_COLUMN = re.compile(r"column:? \[(?:\[)?([^\]]+)\]")
# Spark's conditions and states, sentences that repeat the file or the task, and classes of Java.
_NOISE = re.compile(
    r"^\[[A-Z0-9_.]+\] |\s*SQLSTATE: \w+;?|Encountered error while reading file \S+\s*"
    r"|File \S+ does not exist\s*|Job aborted due to stage failure: .*?\(TID \d+\) \([^)]*\): "
    r"|\s*If necessary set .*|column: \[.*|(?:can ?not read class )?\b(?:[a-z0-9_]+\.){2,}[A-Z][\w$]*(?:: )?"
)
_ADVICE = re.compile(r"\s*((?:Use|Correct) [^.]*)\.(?= |$)")
_HINTS = (
    ("No module named 'skipstone", "install skipstone on the executors, for the Python in PYSPARK_PYTHON"),
    ("No space left on device", "free disk space, or set spark.local.dir to a directory on a larger disk"),
    ("Answer from Java side is empty", "Spark's process has ended: start a new session, with more memory"),
    ("FAILED_READ_FILE.FILE_NOT_EXIST", "create the data frame again, so that it lists the files again"),
    ("FAILED_READ_FILE.NO_HINT", "check that the file is complete and of the format that it is read as"),
)


def spark_error(text: str) -> JobError:
    """Return the cause in an error message of Spark, with the file, the column and the next step.

    >>> error = spark_error("[CAST_OVERFLOW] The value 3L cannot be cast due to an overflow. Use `try_cast` "
    ...                     "to tolerate overflow and return NULL instead. SQLSTATE: 22003")
    >>> error.message, error.hint[:14]
    ('Spark job failed: The value 3L cannot be cast due to an overflow', 'use `try_cast`')
    """
    causes = reason(text)
    file, column, advice = (pattern.search(causes) for pattern in (_FILE, _COLUMN, _ADVICE))
    hint = next((hint for sign, hint in _HINTS if sign in text), memory_hint(text))
    if hint is None and advice is not None:
        hint = advice[1][0].lower() + advice[1][1:]
    if "Traceback" not in text:
        lines = [_NOISE.sub("", _ADVICE.sub("", line)).strip() for line in causes.splitlines()]
        # An outer cause often ends with the inner one.
        new = [line for at, line in enumerate(lines) if not any(line in other for other in lines[:at])]
        causes = "; ".join(line.rstrip(".") for line in new if line) or "file can't be read"
    return JobError(
        f"Spark job failed: {causes}", path=file and file[1], column=column and column[1], hint=hint
    )


# ---------------------------------------------------------------- opening


def open_spark(
    master: str | None = None, remote: str | None = None, conf: Mapping[str, str] | None = None
) -> SparkEngine:
    """Open an engine on the running session, or on a new one."""
    require_pyspark()
    running = running_session()
    session = spark_session(master, remote, conf)
    return SparkEngine(session, owned=session is not running)
