"""A bounded in-memory cache, safe for threads."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import CancelledError, Future
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Cache(Generic[K, V]):
    """Least-recently-used cache, bounded by the total weight of its values.

    >>> cache: Cache[str, str] = Cache(max_weight=3)
    >>> cache.get_or_make("a", lambda: ("made", 2))
    'made'
    >>> cache.put("b", "heavy", 2)
    >>> cache.get("a") is None, cache.get("b"), cache.weight
    (True, 'heavy', 2)
    """

    def __init__(self, max_weight: int) -> None:
        self.max_weight = max_weight
        self.weight = 0
        self.hits = 0
        self.misses = 0
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._making: dict[K, list[Future[V]]] = {}
        """Threads that wait for a value another thread is making, by key."""
        # Counts clears: a value begun before one must not be cached after it.
        self._age = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        """The cached value, or None."""
        with self._lock:
            entry = self._look(key)
        return entry[0] if entry is not None else None

    def get_all(self, keys: Iterable[K]) -> list[V | None]:
        """The cached values of many keys, None for each that is missing."""
        with self._lock:
            entries = map(self._look, keys)
            return [entry[0] if entry is not None else None for entry in entries]

    def put(self, key: K, value: V, weight: int) -> None:
        """Cache a value, unless it is heavier than the entire cache."""
        with self._lock:
            self._store(key, value, weight)

    def put_all(self, items: Iterable[tuple[K, V, int]]) -> None:
        """Cache many values, each with its weight."""
        with self._lock:
            for item in items:
                self._store(*item)

    def get_or_make(self, key: K, make: Callable[[], tuple[V, int]]) -> V:
        """The cached value, or the one that ``make`` returns with its weight; other threads wait for it.

        A failure is raised in every waiting thread and is not cached. ``make`` must not request its own key.
        """
        while True:
            with self._lock:
                entry = self._look(key)
                if entry is not None:
                    return entry[0]
                waiting = self._making.get(key)
                mine = waiting is None
                if waiting is None:
                    waiting = self._making[key] = []
                else:
                    made: Future[V] = Future()
                    waiting.append(made)
                age = self._age
            if mine:
                return self._make(key, make, waiting, age)
            try:
                return made.result()
            except CancelledError:
                # The making thread was interrupted, which is not a failure of this one.
                if not made.cancelled():
                    raise
            finally:
                # A failure references this frame, and the future the failure: the cycle would keep all that
                # inner frames have decoded alive until the next garbage collection.
                del made

    def clear(self) -> None:
        """Drop every value; the counters continue."""
        with self._lock:
            self._entries.clear()
            self._making.clear()
            self.weight = 0
            self._age += 1

    def _make(self, key: K, make: Callable[[], tuple[V, int]], waiting: list[Future[V]], age: int) -> V:
        try:
            value, weight = make()
        except BaseException as error:
            with self._lock:
                if self._making.get(key) is waiting:
                    del self._making[key]
            for other in waiting:
                if isinstance(error, Exception):
                    other.set_exception(error)
                else:
                    other.cancel()
            waiting.clear()  # as above
            raise
        with self._lock:
            if age == self._age:
                self._store(key, value, weight)
            # Nobody joins the list after this.
            if self._making.get(key) is waiting:
                del self._making[key]
        for other in waiting:
            other.set_result(value)
        return value

    def _look(self, key: K) -> tuple[V, int] | None:
        entry = self._entries.get(key)
        if entry is None:
            self.misses += 1
        else:
            self.hits += 1
            self._entries.move_to_end(key)
        return entry

    def _store(self, key: K, value: V, weight: int) -> None:
        old = self._entries.pop(key, None)
        if old is not None:
            self.weight -= old[1]
        if weight > self.max_weight:
            return
        self._entries[key] = (value, weight)
        self.weight += weight
        while self.weight > self.max_weight:
            _, (_, evicted) = self._entries.popitem(last=False)
            self.weight -= evicted
