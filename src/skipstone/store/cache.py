"""A bounded cache in memory, shared by threads."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import CancelledError, Future
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Cache(Generic[K, V]):
    """Keeps what was used last, up to ``max_weight`` in all.

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
        self._kept: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._making: dict[K, list[Future[V]]] = {}
        """By key that somebody makes, those who wait for it."""
        # Counts clears: what was begun before one must not be kept after it.
        self._age = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: K) -> V | None:
        """The value, or None if it isn't kept."""
        with self._lock:
            entry = self._look(key)
        return entry[0] if entry is not None else None

    def get_all(self, keys: Iterable[K]) -> list[V | None]:
        """The values of many keys, None for each that isn't kept."""
        with self._lock:
            entries = map(self._look, keys)
            return [entry[0] if entry is not None else None for entry in entries]

    def put(self, key: K, value: V, weight: int) -> None:
        """Keep a value; one heavier than the whole cache is not kept."""
        with self._lock:
            self._keep(key, value, weight)

    def put_all(self, items: Iterable[tuple[K, V, int]]) -> None:
        """Keep many values, each with its weight."""
        with self._lock:
            for item in items:
                self._keep(*item)

    def get_or_make(self, key: K, make: Callable[[], tuple[V, int]]) -> V:
        """The value, made with its weight if it isn't kept; threads that ask meanwhile wait for it.

        A failure is raised to all who waited and is not kept. ``make`` must not ask for its own key.
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
                # Who made it was interrupted, which is nobody else's failure.
                if not made.cancelled():
                    raise
            finally:
                # A failure holds this frame, and the future the failure: together they would stay until
                # the next collection, and with them all that the frames below have decoded.
                del made

    def clear(self) -> None:
        """Forget every value; the counters go on."""
        with self._lock:
            self._kept.clear()
            self._making.clear()
            self.weight = 0
            self._age += 1

    def _make(self, key: K, make: Callable[[], tuple[V, int]], waiting: list[Future[V]], age: int) -> V:
        try:
            value, weight = make()
        except BaseException as error:
            self._made(key, waiting)
            for other in waiting:
                if isinstance(error, Exception):
                    other.set_exception(error)
                else:
                    other.cancel()
            waiting.clear()  # as above
            raise
        with self._lock:
            if age == self._age:
                self._keep(key, value, weight)
        self._made(key, waiting)
        for other in waiting:
            other.set_result(value)
        return value

    def _made(self, key: K, waiting: list[Future[V]]) -> None:
        with self._lock:
            # Nobody joins the list any more.
            if self._making.get(key) is waiting:
                del self._making[key]

    def _look(self, key: K) -> tuple[V, int] | None:
        entry = self._kept.get(key)
        if entry is None:
            self.misses += 1
        else:
            self.hits += 1
            self._kept.move_to_end(key)
        return entry

    def _keep(self, key: K, value: V, weight: int) -> None:
        old = self._kept.pop(key, None)
        if old is not None:
            self.weight -= old[1]
        if weight > self.max_weight:
            return
        self._kept[key] = (value, weight)
        self.weight += weight
        while self.weight > self.max_weight:
            _, (_, lightened) = self._kept.popitem(last=False)
            self.weight -= lightened
