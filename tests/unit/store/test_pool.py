import os
import threading
import time
from typing import Any

import obstore
import pytest
from obstore.store import MemoryStore

from skipstone.errors import ReadError
from skipstone.store import objects
from skipstone.store.objects import PARALLEL, ObjectSource, map_parallel
from skipstone.store.source import ByteRange


def test_a_range_is_cut_into_parts() -> None:
    assert ByteRange(3, 10).cut(4) == [ByteRange(3, 7), ByteRange(7, 10)]
    assert ByteRange(0, 8).cut(4) == [ByteRange(0, 4), ByteRange(4, 8)]


def test_work_runs_side_by_side_in_order_and_bounded() -> None:
    running = 0
    most = 0
    lock = threading.Lock()

    def work(item: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.005)
        with lock:
            running -= 1
        return -item

    assert map_parallel(work, range(100)) == [-item for item in range(100)]
    assert 2 <= most <= PARALLEL
    assert map_parallel(work, []) == []


def test_many_calls_share_one_pool() -> None:
    before = threading.active_count()
    for _ in range(20):
        map_parallel(lambda item: item, range(10))
    assert threading.active_count() - before <= PARALLEL


# Newer Pythons warn of what is tested here.
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_makes_a_pool_of_its_own() -> None:
    assert map_parallel(abs, [-1, 2]) == [1, 2]
    child = os.fork()
    if not child:
        os._exit(0 if map_parallel(abs, [-3, 4]) == [3, 4] else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> ObjectSource:
    monkeypatch.setattr(objects, "LARGE", 1_000)
    monkeypatch.setattr(objects, "PART", 400)
    store: Any = MemoryStore()
    obstore.put(store, "f", bytes(range(250)) * 40)
    return ObjectSource(store, "f", gap=0)


WANTED = [ByteRange(5_000, 6_000), ByteRange(0, 1_001), ByteRange(7_000, 7_001)]


def test_large_ranges_are_read_in_parts(source: ObjectSource) -> None:
    data = bytes(range(250)) * 40
    expected = [data[wanted.start : wanted.stop] for wanted in WANTED]
    assert source.read_ranges(WANTED) == expected
    assert (source.counter.requests, source.counter.bytes) == (5, 2_002)


def test_every_part_asks_for_the_same_version(source: ObjectSource, monkeypatch: pytest.MonkeyPatch) -> None:
    get = obstore.get
    asked = []

    def seen(store: Any, key: str, *, options: Any) -> Any:
        asked.append(options.get("if_match"))
        return get(store, key, options=options)

    monkeypatch.setattr(obstore, "get", seen)
    source.size()
    source.read_ranges(WANTED)
    assert asked == ['"0"'] * 5
    obstore.put(source._client, "f", bytes(10_000))
    with pytest.raises(ReadError, match="file changed"):
        source.read_ranges(WANTED)


def test_threads_share_a_source(source: ObjectSource) -> None:
    data = bytes(range(250)) * 40
    found: list[list[bytes]] = []
    threads = [threading.Thread(target=lambda: found.append(source.read_ranges(WANTED))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[data[wanted.start : wanted.stop] for wanted in WANTED]] * 8
    assert source.counter.requests == 8 * 5
