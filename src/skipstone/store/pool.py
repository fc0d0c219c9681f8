"""Requests side by side: one bounded pool of threads for all sources of a process."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

# Enough to hide the latency of a far store, few enough not to be throttled by it.
PARALLEL = 32


class _Shared:
    """The pool, made when it is first needed."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew: a forked child has the pool but none of its threads, and may have a held lock."""
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    def get(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(PARALLEL, thread_name_prefix="skipstone-store")
            return self._pool


_shared = _Shared()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_shared.forget)


def side_by_side(work: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """What ``work`` gives for each item, in order; it must not come here itself, or all threads may wait."""
    todo = list(items)
    if len(todo) < 2:
        return [work(item) for item in todo]
    # The first failure cancels what has not begun.
    return list(_shared.get().map(work, todo))


async def side_by_side_async(work: Callable[[T], Awaitable[R]], items: Iterable[T]) -> list[R]:
    """``side_by_side`` on the event loop; the first failure cancels the rest."""
    gate = asyncio.Semaphore(PARALLEL)

    async def one(item: T) -> R:
        async with gate:
            return await work(item)

    todo = list(items)
    if len(todo) < 2:
        return [await work(item) for item in todo]
    tasks = [asyncio.ensure_future(one(item)) for item in todo]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
