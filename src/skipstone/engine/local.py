"""Threads of this process."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

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
    """``work`` on each item, side by side, results in the items' order.

    Items are drawn only as results are consumed: what is under way or waiting to be consumed weighs no
    more than ``budget`` together (one item always may), so a slow consumer holds the work back. Closing
    the iterator starts nothing more and waits for what is running.
    """
    if threads <= 1:
        yield from map(work, items)
        return
    queue = iter(items)
    first = list(islice(queue, 2))
    if len(first) <= 1:
        # One item is done sooner than threads are started.
        yield from map(work, first)
        return
    queue = chain(first, queue)
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
                future, weight = waiting.popleft()
                result = future.result()
                yield result
                del result, future
                load -= weight
        finally:
            for future, _ in waiting:
                future.cancel()


def gather(work: Callable[[T], R], items: Sequence[T], *, threads: int) -> list[R]:
    """``work`` on each item, side by side, all results at once; the first failure is raised."""
    if threads <= 1 or len(items) <= 1:
        return [work(item) for item in items]
    with ThreadPoolExecutor(min(threads, len(items)), thread_name_prefix="skipstone") as pool:
        futures = [pool.submit(work, item) for item in items]
        try:
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()
