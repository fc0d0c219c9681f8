import threading
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from skipstone.store.cache import Cache


def kept(cache: Cache[str, int]) -> str:
    return "".join(key for key in "abcdef" if key in cache._entries)


def test_what_was_used_longest_ago_goes_first() -> None:
    cache: Cache[str, int] = Cache(max_weight=3)
    for key in "abc":
        cache.put(key, 1, 1)
    assert cache.get("a") == 1
    cache.put("d", 1, 1)
    assert kept(cache) == "acd"
    cache.put("e", 1, 2)
    assert (kept(cache), cache.weight, len(cache)) == ("de", 3, 2)


def test_a_value_that_is_put_again_weighs_once() -> None:
    cache: Cache[str, int] = Cache(max_weight=10)
    cache.put("a", 1, 4)
    cache.put("a", 2, 7)
    assert (cache.get("a"), cache.weight, len(cache)) == (2, 7, 1)


def test_what_is_heavier_than_the_cache_is_not_kept_and_drives_nothing_out() -> None:
    cache: Cache[str, int] = Cache(max_weight=5)
    cache.put("a", 1, 5)
    assert cache.get_or_make("b", lambda: (2, 6)) == 2
    assert (kept(cache), cache.weight) == ("a", 5)
    cache.put("a", 3, 6)
    assert (cache.get("a"), cache.weight) == (None, 0)


def test_hits_and_misses() -> None:
    cache: Cache[str, int] = Cache(max_weight=5)
    assert cache.get("a") is None
    assert [cache.get_or_make("a", lambda: (7, 1)) for _ in range(3)] == [7, 7, 7]
    assert (cache.hits, cache.misses) == (2, 2)
    cache.clear()
    assert (len(cache), cache.weight, cache.get("a")) == (0, 0, None)
    assert (cache.hits, cache.misses) == (2, 3)


def test_a_failure_is_not_kept() -> None:
    cache: Cache[str, int] = Cache(max_weight=5)

    def fail() -> tuple[int, int]:
        raise KeyError("once")

    for _ in range(2):
        with pytest.raises(KeyError, match="once"):
            cache.get_or_make("a", fail)
    assert cache.get_or_make("a", lambda: (1, 1)) == 1


@pytest.mark.parametrize("fails", [False, True])
def test_threads_that_ask_for_one_key_share_one_make(fails: bool) -> None:
    cache: Cache[str, int] = Cache(max_weight=5)
    calls = []
    begun, go = threading.Event(), threading.Event()

    def make() -> tuple[int, int]:
        calls.append(1)
        begun.set()
        assert go.wait(120)
        if fails:
            raise ValueError("no")
        return 42, 1

    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(cache.get_or_make, "a", make)
        assert begun.wait(120)
        others = [pool.submit(cache.get_or_make, "a", make) for _ in range(7)]
        # Another key doesn't wait.
        assert cache.get_or_make("b", lambda: (1, 1)) == 1
        while cache.misses < 9:
            pass
        go.set()
        for future in (first, *others):
            if fails:
                assert isinstance(future.exception(10), ValueError)
            else:
                assert future.result(10) == 42
    assert len(calls) == 1
    assert cache.get("a") == (None if fails else 42)


def test_what_was_begun_before_a_clear_is_not_kept() -> None:
    cache: Cache[str, int] = Cache(max_weight=5)

    def make() -> tuple[int, int]:
        cache.clear()
        return 1, 1

    assert cache.get_or_make("a", make) == 1
    assert (len(cache), cache.weight) == (0, 0)


def test_many_threads_leave_the_weight_right() -> None:
    cache: Cache[int, int] = Cache(max_weight=50)

    def work(seed: int) -> None:
        random = Random(seed)
        for _ in range(2_000):
            key = random.randrange(40)
            assert cache.get_or_make(key, lambda key=key: (key * 2, key % 7)) == key * 2
            cache.put(key, key * 2, random.randrange(9))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert cache.weight == sum(weight for _, weight in cache._entries.values()) <= 50
    assert cache.hits + cache.misses == 8_000


def test_an_interrupt_is_not_passed_on_to_who_waits() -> None:
    cache: Cache[str, int] = Cache(max_weight=5)
    begun, go = threading.Event(), threading.Event()

    def interrupted() -> tuple[int, int]:
        begun.set()
        assert go.wait(120)
        raise KeyboardInterrupt

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(cache.get_or_make, "a", interrupted)
        assert begun.wait(120)
        second = pool.submit(cache.get_or_make, "a", lambda: (5, 1))
        while cache.misses < 2:
            pass
        go.set()
        assert isinstance(first.exception(10), KeyboardInterrupt)
        assert second.result(10) == 5
