from __future__ import annotations

import threading
import time

import pytest

from skipstone.engine.jobs import gather, stream


def run(work, items, threads=2, budget=100, weigh=lambda _: 1):
    return stream(work, items, threads=threads, weigh=weigh, budget=budget)


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_results_come_in_the_items_order(threads):
    def work(n: int) -> int:
        time.sleep(0.002 * (n % 3))
        return n * n

    assert list(run(work, range(50), threads)) == [n * n for n in range(50)]


@pytest.mark.parametrize("threads", [1, 4])
def test_items_are_drawn_only_as_results_are_consumed(threads):
    drawn = []

    def items():
        for n in range(1000):
            drawn.append(n)
            yield n

    results = run(lambda n: n, items(), threads)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    time.sleep(0.05)
    assert len(drawn) <= 3 + threads + 3
    results.close()
    assert len(drawn) <= 3 + threads + 3


def test_no_more_weight_is_under_way_than_the_budget():
    load, peak, lock = 0, 0, threading.Lock()

    def work(n: int) -> int:
        nonlocal load, peak
        with lock:
            load += n
            peak = max(peak, load)
        time.sleep(0.002)
        with lock:
            load -= n
        return n

    weights = [5, 1, 4, 3, 3, 2, 9, 1, 1, 5] * 3
    assert list(run(work, weights, threads=4, budget=10, weigh=lambda n: n)) == weights
    assert 5 < peak <= 10


def test_an_item_heavier_than_the_budget_runs_alone():
    assert list(run(lambda n: n, [500, 1, 500], threads=4, budget=10, weigh=lambda n: n)) == [500, 1, 500]


def test_a_failure_is_raised_at_its_place_and_ends_the_stream():
    def work(n: int) -> int:
        if n == 3:
            raise ValueError("three")
        return n

    results = run(work, range(100))
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="three"):
        next(results)
    assert list(results) == []


def test_closing_leaves_no_thread_behind():
    before = threading.active_count()
    results = run(lambda n: time.sleep(0.01) or n, range(100), threads=4)
    next(results)
    assert threading.active_count() > before
    results.close()
    assert threading.active_count() == before


@pytest.mark.parametrize("threads", [1, 4])
def test_gather_gives_all_results_or_the_first_failure(threads):
    assert gather(lambda n: n + 1, list(range(20)), threads=threads) == list(range(1, 21))
    assert gather(lambda n: n, [], threads=threads) == []
    with pytest.raises(ZeroDivisionError):
        gather(lambda n: 1 // n, [1, 0, 2], threads=threads)
