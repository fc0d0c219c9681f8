"""A consumer that stops, or is slow, holds everything else back: no requests, no threads, no memory."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from skipstone.errors import SkipstoneError
from tests.faults._store import Fails, WatchedStore, open_watched

FILES, ROWS = 24, 2_000
BYTES = ROWS * 8 * 2
"""Of one file, decoded."""


@pytest.fixture(scope="module")
def wide_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("wide")
    for number in range(FILES):
        ids = range(number * ROWS, (number + 1) * ROWS)
        # The pad keeps the other columns out of the file's tail, which comes with the footer.
        pad = [f"{n:0100d}" for n in ids]
        table = pa.table({"id": pa.array(ids), "x": pa.array([n * 3 for n in ids]), "pad": pad})
        path = root / f"part-{number:02d}.parquet"
        pq.write_table(table, path, use_dictionary=False, compression="none")
    return root


def threads() -> set[threading.Thread]:
    """All but the store's own pool, which every reader of the process shares."""
    return {t for t in threading.enumerate() if not t.name.startswith("skipstone-store")}


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = threads()
    yield
    gc.collect()
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and threads() - before:
        time.sleep(0.01)
    assert not threads() - before


def data_requests(store: WatchedStore) -> int:
    """Requests for data: footers are read by their tail, which ends where the file does."""
    sizes = {listed.key: listed.size for listed in store.list()}
    return sum(any(r.stop < sizes[q.key] - 8 for r in q.ranges) for q in store.requests)


def scan_of(store: WatchedStore, **switches: Any) -> Any:
    return open_watched(store).scan("x >= 0", columns=["id", "x"], batch_rows=ROWS, **switches)


SWITCHES = ({"threads": 1}, {"threads": 2}, {"threads": 2, "memory": 2 * BYTES}, {})


def settled(store: WatchedStore) -> int:
    """How many requests there are once those under way have ended."""
    count = -1
    while count != len(store.requests):
        count = len(store.requests)
        time.sleep(0.05)
    return count


@pytest.mark.sampled(5)
@pytest.mark.parametrize("switches", SWITCHES, ids=str)
@pytest.mark.parametrize("how", ["close", "break", "forget"])
def test_a_consumer_that_stops(wide_lake: Path, switches: dict[str, Any], how: str) -> None:
    store = WatchedStore.at(wide_lake)
    reader = scan_of(store, **switches).to_reader()
    store.delay = lambda: time.sleep(0.005)
    if how == "break":
        for _ in reader:
            break
    else:
        reader.read_next_batch()
    if how == "close":
        reader.close()
    del reader
    gc.collect()
    after = settled(store)
    time.sleep(0.1)
    assert len(store.requests) == after
    assert 1 <= data_requests(store) < FILES


@pytest.mark.parametrize("switches", SWITCHES, ids=str)
def test_an_event_loop_that_is_cancelled(wide_lake: Path, switches: dict[str, Any]) -> None:
    store = WatchedStore.at(wide_lake)
    scan = scan_of(store, **switches)
    seen = []

    async def consume() -> None:
        async for batch in scan.to_batches_async():
            seen.append(batch.num_rows)
            store.delay = lambda: time.sleep(0.02)
            await asyncio.sleep(0)

    async def main() -> int:
        task = asyncio.create_task(consume())
        while not seen:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return len(store.requests)

    stopped = asyncio.run(main())
    assert settled(store) <= stopped + 8  # what was under way: two threads, each with a few requests
    assert len(seen) >= 1
    assert data_requests(store) < FILES


def test_an_event_loop_that_breaks_out(wide_lake: Path) -> None:
    store = WatchedStore.at(wide_lake)
    scan = scan_of(store, threads=2)

    async def main() -> None:
        batches = scan.to_batches_async()
        async for batch in batches:
            assert batch.num_rows
            break
        await batches.aclose()

    asyncio.run(main())
    after = settled(store)
    time.sleep(0.1)
    assert len(store.requests) == after
    assert 1 <= data_requests(store) < FILES


def test_the_event_loop_goes_on_turning(wide_lake: Path) -> None:
    store = WatchedStore.at(wide_lake)
    scan = scan_of(store, threads=2)
    store.delay = lambda: time.sleep(0.02)
    pauses = []

    async def turn() -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.001)
            pauses.append(time.monotonic() - began)

    async def main() -> int:
        turning = asyncio.create_task(turn())
        rows = sum([batch.num_rows async for batch in scan.to_batches_async()])
        turning.cancel()
        return rows

    assert asyncio.run(main()) == FILES * ROWS
    # Were reads made in the loop, each of 48 requests would stop it for 20 ms.
    assert len(pauses) > 40


@pytest.mark.parametrize(
    ("switches", "most"),
    [
        ({"threads": 1}, 1),
        ({"threads": 2}, 4),
        ({"threads": 2, "memory": 2 * BYTES}, 1),
        ({"threads": 8, "memory": 6 * BYTES}, 3),
    ],
    ids=str,
)
def test_a_slow_consumer_holds_reads_back(wide_lake: Path, switches: dict[str, Any], most: int) -> None:
    """However long it takes, only so many files have been read ahead of it."""
    store = WatchedStore.at(wide_lake)
    reader = scan_of(store, **switches).to_reader()
    rows, ahead = 0, []
    for number, batch in enumerate(reader):
        rows += batch.num_rows
        if number < 4:
            waiting = settled(store)
            time.sleep(0.1)
            assert len(store.requests) == waiting
        ahead.append(data_requests(store) - rows // ROWS)
    assert rows == FILES * ROWS
    assert 0 <= max(ahead) <= most, ahead


def test_nothing_is_read_before_it_is_asked_for(wide_lake: Path) -> None:
    store = WatchedStore.at(wide_lake)
    lake = open_watched(store)
    assert store.requests == []
    scan = lake.scan("x >= 0")
    scan.to_reader()
    settled(store)
    assert data_requests(store) <= 5


def even(values: pa.Array) -> pa.Array:
    return pa.array([value % 2 == 0 for value in values.to_pylist()])


def test_a_limit_stops_reading(wide_lake: Path) -> None:
    store = WatchedStore.at(wide_lake)
    found = open_watched(store).scan(sk.udf(even, ["x"]), columns=["x"], limit=5, threads=1).to_arrow()
    assert found.num_rows == 5
    assert all(x % 2 == 0 for x in found["x"].to_pylist())
    assert 1 <= data_requests(store) <= 3


@pytest.mark.parametrize("threads", [1, 2])
def test_a_failure_in_the_middle_ends_the_work(wide_lake: Path, threads: int) -> None:
    calm = WatchedStore.at(wide_lake)
    assert scan_of(calm, threads=threads).to_arrow().num_rows == FILES * ROWS
    store = WatchedStore.at(wide_lake, Fails(len(calm.requests) - FILES // 2))
    with pytest.raises(SkipstoneError, match=r"part-\d\d"):
        scan_of(store, threads=threads).to_arrow()
    after = settled(store)
    assert after < len(calm.requests)
