"""Ctrl-C in jobs: a request that tasks look at between batches.

A KeyboardInterrupt at any instruction could come between a file and the record that it exists, while threads
go on making files. So a job turns SIGINT into a request: its tasks end at their next batch, the threads are
joined, and only then leftovers are deleted and KeyboardInterrupt is raised, with what is known of the
outcome.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from skipstone.engine.jobs import STOP, Stop, check_stop

_PATIENCE: Final = 3
"""The number of the SIGINT that interrupts at once, should a job not look at the request."""


class JobStop(Stop):
    """The stop of a job, which Ctrl-C requests."""

    __slots__ = ("_signals", "outcome")

    def __init__(self) -> None:
        super().__init__()
        self.outcome = ""
        """What is known of the outcome if the job is interrupted now."""
        self._signals = 0

    def install(self) -> None:
        """Handle SIGINT, unless a handler of the caller does; starting Spark replaces this handler."""
        if _is_default(signal.getsignal(signal.SIGINT)):
            signal.signal(signal.SIGINT, self._on_signal)

    def _on_signal(self, *_: object) -> None:
        self.requested = True
        self._signals += 1
        if self._signals >= _PATIENCE:
            raise KeyboardInterrupt


def _is_default(handler: Any) -> bool:
    return handler is signal.default_int_handler or str(getattr(handler, "__module__", "")).startswith(
        "pyspark."
    )


@contextmanager
def stoppable(outcome: str = "nothing was changed") -> Iterator[JobStop]:
    """Run a job of the main thread that Ctrl-C ends where its tasks look at the request.

    Inside another job, or on another thread, it changes nothing.
    """
    if threading.current_thread() is not threading.main_thread() or STOP.get() is not None:
        yield JobStop()
        return
    job = JobStop()
    job.outcome = outcome
    before = signal.getsignal(signal.SIGINT)
    job.install()
    token = STOP.set(job)
    try:
        yield job
        # A request after the last look at it.
        check_stop()
    except KeyboardInterrupt as error:
        # An interrupt during the commit itself has a note, which says more.
        if not error.args and not getattr(error, "__notes__", None):
            error.args = (job.outcome,)
        raise
    finally:
        STOP.reset(token)
        if getattr(signal.getsignal(signal.SIGINT), "__self__", None) is job:
            signal.signal(signal.SIGINT, before)
