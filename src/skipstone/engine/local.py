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
                result, weight = _first_result(waiting)
                yield result
                del result
                load -= weight
        finally:
            _cancel(waiting)


def gather(work: Callable[[T], R], items: Sequence[T], *, threads: int) -> list[R]:
    """``work`` on each item, side by side, all results at once; the first failure is raised."""
    if threads <= 1 or len(items) <= 1:
        return [work(item) for item in items]
    with ThreadPoolExecutor(min(threads, len(items)), thread_name_prefix="skipstone") as pool:
        waiting = deque((pool.submit(work, item), 0) for item in items)
        try:
            return [_first_result(waiting)[0] for _ in items]
        finally:
            _cancel(waiting)


# A failure holds the frames it went through, and a future holds its failure. A frame that held the future as
# well would close a circle, and all that was decoded would stay until the next full collection.


def _first_result(waiting: deque[tuple[Future[R], int]]) -> tuple[R, int]:
    future, weight = waiting.popleft()
    try:
        return future.result(), weight
    finally:
        del future


def _cancel(waiting: deque[tuple[Future[R], int]]) -> None:
    while waiting:
        waiting.popleft()[0].cancel()
