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
from skipstone.store.options import dump_with_credentials

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

        payloads = [dump_with_credentials(task, cloudpickle.dumps) for task in tasks]
        session = self._beside() if is_connect(self.session) else self.session
        told = None if on_done is None else _Growing(on_done, len(tasks))
        attempt = _attempt(dump_with_credentials(work, cloudpickle.dumps))
        outcome = _followed(session, lambda: _run(session, _batches(attempt), payloads), told)
        results = _settled(outcome)
        if told is not None:
            told(len(tasks))
        return [pickle.loads(result) for result in results]  # noqa: S301

    def follow(self, run: Callable[[], R], on_progress: Callable[[int, int], None] | None = None) -> R:
        """What ``run`` gives, which starts Spark jobs of its own; cancelled if it is interrupted."""
        return _settled(_followed(self.session, run, on_progress))

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


class _Watch(Protocol):
    """What tells of the jobs that one thread starts, and stops them."""

    def within(self) -> AbstractContextManager[None]:
        """To be entered by that thread."""

    def progress(self) -> tuple[int, int]:
        """How many tasks are done, of how many that are known by now."""

    def cancel(self) -> None:
        """Stop what is running."""


class _ClassicWatch:
    """Jobs of one group."""

    def __init__(self, session: SparkSession) -> None:
        self._context = session.sparkContext
        self._group = f"skipstone-{os.urandom(8).hex()}"

    @contextmanager
    def within(self) -> Iterator[None]:
        self._context.setJobGroup(self._group, "skipstone")
        yield

    def progress(self) -> tuple[int, int]:
        tracker = self._context.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._group)]
        numbers = {stage for job in jobs if job is not None for stage in job.stageIds}
        stages = [stage for number in numbers if (stage := tracker.getStageInfo(number)) is not None]
        return sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)

    def cancel(self) -> None:
        self._context.cancelJobGroup(self._group)


class _ConnectWatch:
    """Operations of one tag."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._tag = f"skipstone-{os.urandom(8).hex()}"
        self._thread = 0
        self._told = (0, 0)

    @contextmanager
    def within(self) -> Iterator[None]:
        self._thread = threading.get_ident()
        self._session.addTag(self._tag)
        self._session.registerProgressHandler(self._tell)
        try:
            yield
        finally:
            self._session.removeProgressHandler(self._tell)
            self._session.removeTag(self._tag)

    def progress(self) -> tuple[int, int]:
        return self._told

    def cancel(self) -> None:
        self._session.interruptTag(self._tag)

    def _tell(self, stages: Iterable[Any] | None, **_: object) -> None:
        # All jobs of a session are told to all handlers, each in the thread that waits for it.
        if threading.get_ident() == self._thread:
            known = list(stages or ())
            self._told = sum(s.num_completed_tasks for s in known), sum(s.num_tasks for s in known)


def _watch(session: Any) -> _Watch:
    return _ConnectWatch(session) if is_connect(session) else _ClassicWatch(session)


def _followed(
    session: Any, run: Callable[[], R], on_progress: Callable[[int, int], None] | None
) -> Future[R]:
    """What came of ``run``, its progress told until then; cancelled if that, or the user, interrupts."""
    watch = _watch(session)
    told = (0, 0)

    def work() -> R:
        with watch.within():
            return run()

    with ThreadPoolExecutor(1, thread_name_prefix="skipstone-spark") as pool:
        outcome = pool.submit(work)
        try:
            while wait([outcome], _POLL).not_done:
                # A session that is just being stopped can't tell; the job itself says why it fails.
                with suppress(Exception):
                    now = watch.progress() if on_progress is not None else told
                if on_progress is not None and now != told:
                    on_progress(*(told := now))
        except BaseException:
            with suppress(Exception):
                watch.cancel()
            raise
    return outcome


class _Growing:
    """Tells a number on when it has grown, up to a limit: tasks that are tried again are counted again."""

    def __init__(self, tell: Callable[[int], None], most: int) -> None:
        self._tell, self._most, self._told = tell, most, 0

    def __call__(self, done: int, _total: int = 0) -> None:
        if min(done, self._most) > self._told:
            self._told = min(done, self._most)
            self._tell(self._told)


def _settled(outcome: Future[R]) -> R:
    """The result, or the error that the work raised, as far as it can be told."""
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
    """A data frame of numbers and payloads, each row in a partition of its own."""
    if is_connect(session):
        import pyarrow as pa

        rows = pa.table({"number": range(len(payloads)), "payload": pa.array(payloads, pa.binary())})
        return session.createDataFrame(rows)
    # An RDD has as many partitions as it is asked for.
    rows = session.sparkContext.parallelize(enumerate(payloads), len(payloads))
    kind: Any = type(session)
    with _ACTIVE:
        # Whoever makes a data frame becomes the active session of all threads.
        active = kind._activeSession
        try:
            return session.createDataFrame(rows, _SCHEMA, verifySchema=False)
        finally:
            kind._activeSession = active


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


def _attempt(work: bytes) -> Callable[[bytes], bytes]:
    """Pickled ``work``, from bytes to bytes; a failure of Skipstone's own is written into the error's text.

    That is all that Spark hands back of an error. To give it back as a result would spare Spark's
    retries, but then all other tasks would be worked on before it is told.
    """

    def attempt(payload: bytes) -> bytes:
        from pyspark import cloudpickle

        try:
            result = pickle.loads(work)(pickle.loads(payload))  # noqa: S301
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
