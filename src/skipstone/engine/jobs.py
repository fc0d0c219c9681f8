"""Engines map a function over tasks: on threads of this process, or on a Spark cluster.

To add an engine, write a class with the members of ``Engine`` and add its name to ``open_engine``.
``choose_engine`` decides what ``engine="auto"`` means.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from itertools import chain, islice
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar, cast

from skipstone.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from skipstone.typing import EngineLike


T = TypeVar("T")
R = TypeVar("R")
ENGINES: Final = ("auto", "spark", "local")
VARIABLE: Final = "SKIPSTONE_ENGINE"
"""The environment variable that decides for jobs whose engine is ``"auto"``."""
_MOMENT: Final = 0.2
_HINT: Final = 'use "auto", "spark", "local" or a Spark session'

EngineOptions: TypeAlias = tuple[str | None, str | None, Mapping[str, str] | None, int | None]
"""Master, remote and settings of a Spark session to start, and threads of the local engine."""
NO_OPTIONS: EngineOptions = (None, None, None, None)
SMALL_BYTES: Final = 64_000_000
"""With ``engine="auto"``, inputs below this size run on local threads: starting a JVM would take longer."""
_OPTION_NAMES = ("master", "remote", "conf", "threads")


class Engine(Protocol):
    """Runs tasks in parallel; ``engine=`` of jobs accepts any object with these members.

    Examples:
        >>> import skipstone as sk
        >>> class Here:
        ...     name, parallelism = "here", 1
        ...     def map(self, work, tasks, *, on_done=None): return [work(task) for task in tasks]
        ...     def close(self): pass
        >>> sk.open("events").scan("country = 'DE'").count(engine=Here())
        250
    """

    @property
    def name(self) -> str:
        """The name of the engine in reports."""

    @property
    def parallelism(self) -> int:
        """The approximate number of tasks that run at the same time."""

    def map(
        self, work: Callable[[T], R], tasks: Sequence[T], *, on_done: Callable[[int], None] | None = None
    ) -> list[R]:
        """Run ``work`` on each task and return the results in order; raise the first failure.

        A task can run more than once, so ``work`` must be idempotent.

        Args:
            work: A function that can be pickled.
            tasks: Its arguments.
            on_done: Called from time to time, and from any thread, with the number of finished tasks.
        """

    def close(self) -> None:
        """Release the resources of the engine."""


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """Threads of this process; by default one per available core."""

    threads: int | None = None

    def __post_init__(self) -> None:
        if self.threads is not None and self.threads < 1:
            raise UsageError(f"threads must be at least 1, got {self.threads}")

    @property
    def name(self) -> str:
        """Name for messages."""
        return "local"

    @property
    def parallelism(self) -> int:
        """Number of threads."""
        return self.threads or _cores()

    def map(
        self, work: Callable[[T], R], tasks: Sequence[T], *, on_done: Callable[[int], None] | None = None
    ) -> list[R]:
        """Call ``work`` on each task; after an error or Ctrl-C no task starts, and running ones are awaited.

        They end when they next look whether to stop.
        """
        threads = min(self.parallelism, len(tasks))
        if threads == 0:
            return []
        stop = Stop(STOP.get())
        run = carried(work, stop)
        ended: SimpleQueue[Future[R]] = SimpleQueue()
        with ThreadPoolExecutor(threads, thread_name_prefix="skipstone-job") as pool:
            futures: list[Future[R]] = []
            try:
                for task in tasks:
                    futures.append(pool.submit(run, task))
                    futures[-1].add_done_callback(ended.put)
                for done in range(1, len(tasks) + 1):
                    _next(ended).result()
                    check_stop()
                    if on_done is not None:
                        on_done(done)
            except BaseException:
                stop.requested = True
                raise
            finally:
                for future in futures:
                    future.cancel()
        return [future.result() for future in futures]

    def close(self) -> None:
        """Do nothing: threads end with each call."""


def _next(ended: SimpleQueue[Future[R]]) -> Future[R]:
    """Wait for a task to end; a signal that arrives just before the wait is seen after a moment."""
    while True:
        with suppress(Empty):
            return ended.get(timeout=_MOMENT)


def check_engine(
    engine: EngineLike | None,
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, str] | None = None,
    threads: int | None = None,
) -> None:
    """Refuse an unknown engine, and options without an engine, before an engine is needed."""
    options = _named((master, remote, conf, threads))
    if engine is None and options:
        hint = 'add engine="spark" or engine="local"'
        if options == ["threads"]:
            hint = 'use lake.scan(threads=...), or add engine="local"'
        raise UsageError(f"{', '.join(options)} without an engine", hint=hint)
    if engine == "local":
        LocalEngine(threads)
    if isinstance(engine, str) and engine not in ENGINES:
        raise UsageError(f"unknown engine {engine!r}", hint=did_you_mean(engine, ENGINES, _HINT))


@dataclass(frozen=True, slots=True)
class EngineUse:
    """The engine that ran a job, why, and for small jobs about how long the other one would take.

    Examples:
        >>> import skipstone as sk
        >>> report = sk.open("events", index_root="other").index.build(engine="local")
        >>> report.engine.name, report.engine.reason
        ('local', 'requested')
    """

    name: str
    reason: str
    """``"requested"``, the environment variable, what is installed, or what is missing."""
    other: str = ""
    other_seconds: float | None = None
    """Estimated seconds on the other engine; None if the job was large."""

    def compared(self, *, bytes: float = 0.0, files: int = 0) -> EngineUse:
        """Add an estimate for the other engine, for a job that orders ``bytes`` or indexes ``files``."""
        other = {"local": "spark", "spark": "local"}.get(self.name, "")
        if not other or bytes > _SMALL_BYTES or files > _SMALL_FILES:
            return self
        seconds = _LOCAL_SECONDS + bytes / _BYTES_PER_SECOND + files / _FILES_PER_SECOND
        if other == "spark":
            from skipstone.engine.session import running_session

            seconds += _JOB_SECONDS + (_START_SECONDS if running_session() is None else 0.0)
        return replace(self, other=other, other_seconds=seconds)

    def __str__(self) -> str:
        where = {"local": "local threads", "spark": "Spark"}
        ran = f"ran on {where.get(self.name, self.name)} ({self.reason})"
        if self.other_seconds is None:
            return ran
        return f"{ran}; {where[self.other]} would take about {max(round(self.other_seconds), 1)} s"


# Rough: of one core each, on a machine of 2026. Reports say "about".
_SMALL_BYTES, _SMALL_FILES = 1 << 30, 10_000
_BYTES_PER_SECOND, _FILES_PER_SECOND = 60e6, 1_000.0
_LOCAL_SECONDS, _JOB_SECONDS, _START_SECONDS = 0.1, 2.0, 5.0


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """The engine of a job and the reason for it."""

    engine: EngineLike
    reason: str
    by_size: bool = False
    """Whether local threads run the job instead if its input is small."""
    options: EngineOptions = NO_OPTIONS

    def for_input(self, size: float) -> EngineChoice:
        """Return the choice for an input of ``size`` bytes."""
        return _SMALL_INPUT if self.by_size and size < SMALL_BYTES else self

    def open(self) -> AbstractContextManager[Engine]:
        """Open the engine for a ``with`` block, which closes it unless the caller has opened it."""
        master, remote, conf, threads = self.options
        opened = open_engine(self.engine, master=master, remote=remote, conf=conf, threads=threads)
        return nullcontext(opened) if opened is self.engine else closing(opened)


_SMALL_INPUT: Final = EngineChoice(
    LocalEngine(), f"input is below {SMALL_BYTES // 1_000_000} MB; use engine spark to run it on Spark"
)


def choose_engine(
    engine: EngineLike,
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, str] | None = None,
    threads: int | None = None,
) -> EngineChoice:
    """Resolve ``"auto"``, up to the size of the input, and return the engine with the reason for it.

    Options decide that only one engine has, then the environment variable, then a running session, then what
    is installed: Spark with PySpark and Java, local threads without. A small input needs no new session.
    """
    given = (master, remote, conf, threads)
    check_engine(engine)
    if engine != "auto":
        return EngineChoice(engine, "requested", options=given)
    options = _named(given)
    if options == ["threads"]:
        return EngineChoice("local", "threads is set", options=given)
    if options:
        return EngineChoice("spark", f"{options[0]} is set", options=given)
    wanted = os.environ.get(VARIABLE, "auto")
    if wanted not in ENGINES:
        hint = did_you_mean(wanted, ENGINES, "use auto, spark or local")
        raise UsageError(f"unknown engine {wanted!r} in {VARIABLE}", hint=hint)
    if wanted != "auto":
        return EngineChoice(cast("EngineLike", wanted), f"{VARIABLE}={wanted}")
    from skipstone.engine.session import missing_for_spark, running_session

    if running_session() is not None:
        return EngineChoice("spark", "a Spark session is running")
    missing = missing_for_spark()
    if missing:
        return EngineChoice("local", missing)
    return EngineChoice("spark", "PySpark and Java are installed", by_size=True)


def open_engine(
    engine: EngineLike,
    *,
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, str] | None = None,
    threads: int | None = None,
) -> Engine:
    """Open an engine by its name, or for a Spark session; an engine is returned as it is.

    ``master``, ``remote`` (a Spark Connect URL) and ``conf`` apply to a new Spark session, ``threads`` to the
    local engine.
    """
    check_engine(engine)
    options = _named((master, remote, conf, threads))
    if engine == "local":
        _refuse(options, ("threads",), 'engine="local"', 'use engine="spark"')
        return LocalEngine(threads)
    if engine == "spark":
        _refuse(options, ("master", "remote", "conf"), 'engine="spark"', 'use engine="local"')
        from skipstone.engine.spark import open_spark

        return open_spark(master, remote, conf)
    _refuse(options, (), "a running engine", "omit it")
    return _running(engine)


def _running(engine: Any) -> Engine:
    if any(kind.__module__.startswith("pyspark.") for kind in type(engine).__mro__):
        from skipstone.engine.spark import SparkEngine

        return SparkEngine(engine, owned=False)
    if callable(getattr(engine, "map", None)) and hasattr(engine, "name"):
        running: Engine = engine
        return running
    raise UsageError(f"{type(engine).__name__} is not an engine", hint=_HINT)


def _named(options: EngineOptions) -> list[str]:
    return [name for name, value in zip(_OPTION_NAMES, options, strict=True) if value is not None]


def _refuse(options: Sequence[str], accepted: Sequence[str], what: str, hint: str) -> None:
    for name in options:
        if name not in accepted:
            raise UsageError(f"{name}= does not apply to {what}", hint=hint)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# -- stopping ----------------------------------------------------------------------------------


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, raised where a job can stop; the message says what is known of its outcome."""


class Stop:
    """Whether tasks should end: those of a job, or those of one call within it."""

    __slots__ = ("_above", "requested")

    def __init__(self, above: Stop | None = None) -> None:
        self.requested = False
        self._above = above

    @property
    def is_set(self) -> bool:
        """Whether this or the job that it is part of should end."""
        return self.requested or (self._above is not None and self._above.is_set)


STOP: ContextVar[Stop | None] = ContextVar("stop", default=None)
"""The stop of this thread's job; None outside a job."""


def check_stop() -> None:
    """Raise if this thread's job should end."""
    stop = STOP.get()
    if stop is not None and stop.is_set:
        raise Interrupted


def checked(items: Iterable[T]) -> Iterator[T]:
    """Yield items while the job goes on."""
    for item in items:
        check_stop()
        yield item
    check_stop()


def carried(work: Callable[[T], R], stop: Stop | None = None) -> Callable[[T], R]:
    """A function for other threads that belongs to this thread's job, or to a part of it."""
    own = stop or STOP.get()
    if own is None:
        return work

    def run(item: T) -> R:
        token = STOP.set(own)
        try:
            check_stop()
            return work(item)
        finally:
            STOP.reset(token)

    return run


# -- threads -----------------------------------------------------------------------------------

# Enough to keep every thread busy while one result is being consumed.
_AHEAD = 2


def stream(
    work: Callable[[T], R],
    items: Iterable[T],
    *,
    threads: int,
    weigh: Callable[[T], int],
    budget: int,
) -> Iterator[R]:
    """Call ``work`` on items in parallel, and yield results in the order of the items.

    Items are drawn only as results are consumed: running and finished items together weigh at most
    ``budget`` (a single item may exceed it), so a slow consumer slows the work down. Closing the iterator
    starts nothing more and waits for running items.
    """
    if threads <= 1:
        yield from map(work, items)
        return
    queue = iter(items)
    first = list(islice(queue, 2))
    if len(first) <= 1:
        # One item takes less time than starting threads.
        yield from map(work, first)
        return
    queue = chain(first, queue)
    work = carried(work)
    waiting: deque[tuple[Future[R], int]] = deque()
    held: list[T] = []
    load = 0
    with ThreadPoolExecutor(threads, thread_name_prefix="skipstone") as pool:
        try:
            while True:
                while len(waiting) < threads + _AHEAD:
                    held = held or list(islice(queue, 1))
                    if not held or (waiting and load + weigh(held[0]) > budget):
                        break
                    item = held.pop()
                    waiting.append((pool.submit(work, item), weigh(item)))
                    load += weigh(item)
                if not waiting:
                    return
                result, weight = _first_result(waiting)
                yield result
                del result
                load -= weight
        finally:
            _cancel(waiting)


def gather(work: Callable[[T], R], items: Sequence[T], *, threads: int) -> list[R]:
    """Call ``work`` on items in parallel and return all results; the first error is raised."""
    if threads <= 1 or len(items) <= 1:
        return [work(item) for item in items]
    work = carried(work)
    with ThreadPoolExecutor(min(threads, len(items)), thread_name_prefix="skipstone") as pool:
        waiting = deque((pool.submit(work, item), 0) for item in items)
        try:
            return [_first_result(waiting)[0] for _ in items]
        finally:
            _cancel(waiting)


# An exception references the frames it passed through, and a future references its exception. A frame that
# referenced the future too would close a cycle, and decoded data would stay until the next full collection.


def _first_result(waiting: deque[tuple[Future[R], int]]) -> tuple[R, int]:
    future, weight = waiting.popleft()
    try:
        return future.result(), weight
    finally:
        del future


def _cancel(waiting: deque[tuple[Future[R], int]]) -> None:
    while waiting:
        waiting.popleft()[0].cancel()
