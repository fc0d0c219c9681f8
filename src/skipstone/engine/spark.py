"""Spark, classic or by Spark Connect: ``mapInArrow`` with a Spark task for each task, retried by Spark."""

from __future__ import annotations

import base64
import os
import pickle
import re
import shutil
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from skipstone.errors import JobError, SkipstoneError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")

# How often progress is looked up, in seconds.
_POLL = 0.2
# How much of a traceback is told.
_LINES = 8


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
        job: _Job = _ConnectJob(self._beside) if _is_connect(self.session) else _ClassicJob(self.session)
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
    return JobError(f"the work failed on Spark: {_reason(text)}", hint=hint)


def _reason(text: str) -> str:
    """The last lines of the traceback in a text, which Java's follows; else the text's first line."""
    _, found, traceback = text.rpartition("Traceback (most recent call last):\n")
    if not found:
        return text.strip().partition("\n")[0] or "no reason is given"
    lines = re.split(r"\n\s*\n|\n\tat ", traceback, maxsplit=1)[0].rstrip().splitlines()
    return "\n".join(["..." if len(lines) > _LINES else "", *lines[-_LINES:]])


# ---------------------------------------------------------------- sessions


def open_spark(
    master: str | None = None, remote: str | None = None, conf: Mapping[str, str] | None = None
) -> SparkEngine:
    """An engine on the session that is running, or on one that is started for it."""
    _require_pyspark()
    running = _running()
    session = spark_session(master, remote, conf)
    return SparkEngine(session, owned=session is not running)


def spark_session(
    master: str | None = None, remote: str | None = None, conf: Mapping[str, str] | None = None
) -> SparkSession:
    """The session that is running, if it is what is asked for, or a new one.

    Without a ``master`` Spark takes the one it was submitted to or configured for, else ``local[*]``.
    """
    if master is not None and remote is not None:
        raise UsageError("there is both a master and a remote", hint="give one of them")
    _require_pyspark()
    running = _running()
    if running is None:
        return _start(master, remote, dict(conf or {}))
    asked = {**({"spark.master": master} if master is not None else {}), **(conf or {})}
    other = [key for key, value in asked.items() if running.conf.get(key, None) != value]
    if remote is not None or other:
        what = "remote" if remote is not None else ", ".join(other)
        hint = "stop it first, or give the session itself as the engine"
        raise UsageError(f"a Spark session is running already, with another {what}", hint=hint)
    return running


def _start(master: str | None, remote: str | None, conf: dict[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    remote = remote or os.environ.get("SPARK_REMOTE")
    here = remote is None or remote.startswith("local")
    if here:
        _require_java()
    # A server that runs elsewhere has its own; it would warn of settings that it can't take.
    settings = {**(_STARTED if here else {}), "spark.sql.session.timeZone": "UTC", **conf}
    # Executors have to run the Python of the driver.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("skipstone")
    for key, value in settings.items():
        builder = builder.config(key, value)
    if remote is not None:
        builder = builder.remote(remote)
    elif master is not None:
        builder = builder.master(master)
    try:
        with warnings.catch_warnings():
            if here:
                # A Connect server of this process has had all settings, and can't take some a second time.
                warnings.filterwarnings("ignore", ".*CANNOT_MODIFY_")
            return builder.getOrCreate()
    except Exception as error:
        hint = _JAVA if "JAVA_GATEWAY" in str(error) else 'engine="local" needs no Spark'
        raise JobError(f"Spark can't be started: {_reason(str(error))}", hint=hint) from error


_STARTED = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
_JAVA = 'Spark needs Java 17 or newer, from the system\'s packages; engine="local" needs neither'


def _running() -> SparkSession | None:
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None


def _is_connect(session: SparkSession) -> bool:
    return any(kind.__module__.startswith("pyspark.sql.connect.") for kind in type(session).__mro__)


def _require_pyspark() -> None:
    try:
        import pyspark  # noqa: F401
    except ImportError as error:
        hint = "pip install 'skipstone[spark]', or use engine=\"local\""
        raise UsageError("PySpark is not installed", hint=hint) from error


def _require_java() -> None:
    home = os.environ.get("JAVA_HOME")
    found = (Path(home) / "bin" / "java").exists() if home else shutil.which("java") is not None
    # Under spark-submit Java is running already.
    if not found and "PYSPARK_GATEWAY_PORT" not in os.environ:
        where = f"in JAVA_HOME ({home})" if home else "on this machine"
        raise UsageError(f"Spark needs Java, and there is none {where}", hint=_JAVA)
