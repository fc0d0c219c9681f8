"""Long work on many tasks: on threads of this process, or on a Spark cluster.

To add an engine, write a class with the members of ``Engine`` and name it in ``open_engine``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from skipstone.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")
_HINT = 'give "spark", "local" or a Spark session'


class Engine(Protocol):
    """Something that works on tasks side by side."""

    @property
    def name(self) -> str:
        """What it is called in messages."""

    @property
    def parallelism(self) -> int:
        """How many tasks it works on side by side, about."""

    def map(
        self, work: Callable[[T], R], tasks: Sequence[T], *, on_done: Callable[[int], None] | None = None
    ) -> list[R]:
        """``work`` on each task, results in the tasks' order; the first failure is raised.

        ``on_done`` is told, now and then and from any thread, how many tasks are finished. A task may be
        worked on more than once, so the work must not mind.
        """

    def close(self) -> None:
        """Let go of what was started for this engine."""


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """Threads of this process; by default as many as it may use cores."""

    threads: int | None = None

    def __post_init__(self) -> None:
        if self.threads is not None and self.threads < 1:
            raise UsageError(f"threads is {self.threads}", hint="give 1 or more")

    @property
    def name(self) -> str:
        """It is the local one."""
        return "local"

    @property
    def parallelism(self) -> int:
        """Its threads."""
        return self.threads or _cores()

    def map(
        self, work: Callable[[T], R], tasks: Sequence[T], *, on_done: Callable[[int], None] | None = None
    ) -> list[R]:
        """``work`` on each task; a failure starts nothing more and waits for what is running."""
        threads = min(self.parallelism, len(tasks))
        if threads == 0:
            return []
        with ThreadPoolExecutor(threads, thread_name_prefix="skipstone-job") as pool:
            futures = [pool.submit(work, task) for task in tasks]
            try:
                for done, future in enumerate(as_completed(futures), 1):
                    future.result()
                    if on_done is not None:
                        on_done(done)
            finally:
                for future in futures:
                    future.cancel()
        return [future.result() for future in futures]

    def close(self) -> None:
        """Its threads live no longer than a call."""


def check_engine(engine: Any, options: Mapping[str, Any]) -> None:
    """Refuse what is no engine before one is needed; None is none."""
    if engine is None and options:
        hint = 'give engine="spark" or "local"'
        if list(options) == ["threads"]:
            hint = 'give it to the scan, lake.scan(threads=...), or engine="local"'
        raise UsageError(f"{', '.join(options)} without an engine", hint=hint)
    if engine == "local":
        LocalEngine(options.get("threads"))
    if isinstance(engine, str) and engine not in ("spark", "local"):
        raise UsageError(f"there is no engine {engine!r}", hint=_HINT)


def open_engine(
    engine: str | Engine | SparkSession = "spark",
    *,
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, str] | None = None,
    threads: int | None = None,
) -> Engine:
    """The engine of a name, "spark" or "local"; of a Spark session; or an engine as it is.

    ``master``, ``remote`` (a Spark Connect URL) and ``conf`` are for a Spark session to be started, and
    ``threads`` for the local engine.
    """
    asked = {"master": master, "remote": remote, "conf": conf, "threads": threads}
    given = [name for name, value in asked.items() if value is not None]
    if engine == "local":
        _refuse(given, ("threads",), 'engine="local"', 'use engine="spark"')
        return LocalEngine(threads)
    if engine == "spark":
        _refuse(given, ("master", "remote", "conf"), 'engine="spark"', 'use engine="local"')
        from skipstone.engine.spark import open_spark

        return open_spark(master, remote, conf)
    check_engine(engine, {})
    _refuse(given, (), "an engine that is running", "leave it out")
    return _running(engine)


def opened(engine: Any, options: Mapping[str, Any]) -> AbstractContextManager[Engine]:
    """The engine that is meant, which is closed unless the caller has opened it."""
    chosen = open_engine(engine, **options)
    return nullcontext(chosen) if chosen is engine else closing(chosen)


def _running(engine: Any) -> Engine:
    if any(kind.__module__.startswith("pyspark.") for kind in type(engine).__mro__):
        from skipstone.engine.spark import SparkEngine

        return SparkEngine(engine, owned=False)
    if callable(getattr(engine, "map", None)) and hasattr(engine, "name"):
        running: Engine = engine
        return running
    raise UsageError(f"{type(engine).__name__} is no engine", hint=_HINT)


def _refuse(given: Sequence[str], taken: Sequence[str], what: str, hint: str) -> None:
    for name in given:
        if name not in taken:
            raise UsageError(f"{name}= makes no sense with {what}", hint=hint)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
