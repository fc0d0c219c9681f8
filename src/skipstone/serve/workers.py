"""Threads that plan: the work of each caller has its share of them, and ends when nobody waits for it."""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Generic, TypeVar

from skipstone.serve.access import BUSY, Caller, Limits, Refusal
from skipstone.store.source import Stopped, stopping

T = TypeVar("T")


class Work(Future[T], Generic[T]):
    """Work that waits for a thread or runs; cancelled work that runs already ends at its next checkpoint."""

    def __init__(self, caller: str, call: Callable[[], T], deadline: float) -> None:
        super().__init__()
        self.caller, self.deadline = caller, deadline
        self.call: Callable[[], T] | None = call
        self.unwanted = False

    def cancel(self) -> bool:
        """Don't begin, or end early."""
        self.unwanted = True
        return super().cancel()

    def is_over(self) -> bool:
        """Whether nobody waits for the result, or its time is over."""
        return self.unwanted or time.monotonic() > self.deadline

    def run(self) -> Callable[[], None]:
        """Do it; what is returned tells those who wait for the result."""
        call, self.call = self.call, None
        assert call is not None
        try:
            with stopping(self.is_over):
                result = call()
        except Stopped:
            return partial(self.set_exception, CancelledError())
        except BaseException as error:  # noqa: BLE001  (whoever waits for the work gets it)
            return partial(self.set_exception, error)
        return partial(self.set_result, result)


class Workers:
    """Threads, and bounds on the work that waits for them.

    Callers take turns. If there are several, none has more than half of the threads or of the queue.
    """

    def __init__(self, limits: Limits, *, shared: bool = True) -> None:
        self._pool = ThreadPoolExecutor(limits.workers, "skipstone-serve")
        share = 2 if shared else 1
        self._threads, self._most_threads = limits.workers, max(1, limits.workers // share)
        self._queue, self._most_queued = limits.queue, max(1, limits.queue // share)
        self._waiting: OrderedDict[str, deque[Work[Any]]] = OrderedDict()
        """Work by caller; the next turn is that of the first caller."""
        self._running: Counter[str] = Counter()
        self._lock = threading.Lock()

    def submit(self, caller: Caller, call: Callable[[], T], seconds: float) -> Work[T]:
        """Start work or let it wait for its turn; refuse it if too much waits already."""
        work = Work(caller.name, call, time.monotonic() + seconds)
        with self._lock:
            for name, some in self._waiting.items():
                # Work that was cancelled while it waited takes no place.
                self._waiting[name] = deque(one for one in some if not one.done())
            counts = Counter(self._running)
            for name, some in self._waiting.items():
                counts[name] += len(some)
            if counts.total() >= self._queue:
                raise Refusal(503, "ServiceUnavailableException", "server is busy", BUSY)
            if counts[work.caller] >= self._most_queued:
                busy = "caller has too many requests at once"
                raise Refusal(503, "ServiceUnavailableException", busy, BUSY)
            self._waiting.setdefault(work.caller, deque()).append(work)
            self._start()
        return work

    def _start(self) -> None:
        """Give free threads to the callers in turn; the lock is held."""
        while self._running.total() < self._threads:
            work = self._next()
            if work is None:
                return
            self._running[work.caller] += 1
            self._pool.submit(self._run, work)

    def _next(self) -> Work[Any] | None:
        for caller, waiting in [*self._waiting.items()]:
            while waiting and self._running[caller] < self._most_threads:
                work = waiting.popleft()
                if work.set_running_or_notify_cancel():
                    # It is the turn of the others.
                    self._waiting.move_to_end(caller)
                    if not waiting:
                        del self._waiting[caller]
                    return work
            if not waiting:
                del self._waiting[caller]
        return None

    def _run(self, work: Work[Any]) -> None:
        finish = work.run()
        with self._lock:
            self._running[work.caller] -= 1
            self._running += Counter()  # drops callers with nothing left
            self._start()
        finish()

    def close(self) -> None:
        """Start nothing more."""
        self._pool.shutdown(wait=False, cancel_futures=True)
