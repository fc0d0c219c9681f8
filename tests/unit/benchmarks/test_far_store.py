import pickle
import time
from pathlib import Path

import pytest

from benchmarks.far_store import LatencySource, SlowStore
from skipstone.store.local import LocalSource
from skipstone.store.source import ByteRange
from skipstone.store.store import open_store

FAR = [ByteRange(start * 2_000_000, start * 2_000_000 + 10) for start in range(5)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "f.parquet"
    path.write_bytes(b"0123456789" * 1_000_000)
    return path


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    naps: list[float] = []
    monkeypatch.setattr(time, "sleep", naps.append)
    return naps


def test_each_round_of_requests_waits_once(file: Path, slept: list[float]) -> None:
    source = LatencySource(LocalSource(str(file)), 0.5, parallel=2)
    assert source.read_ranges(FAR) == [b"0123456789"] * 5
    assert slept == [1.5]
    assert (source.counter.requests, source.counter.bytes) == (5, 50)


def test_near_ranges_share_a_request_as_in_a_far_store(file: Path, slept: list[float]) -> None:
    source = LatencySource(LocalSource(str(file)), 0.5)
    assert source.read_ranges([ByteRange(0, 1), ByteRange(500_000, 500_002)]) == [b"0", b"01"]
    assert slept == [0.5]
    assert (source.gap, source.counter.requests, source.counter.bytes) == (1024 * 1024, 1, 500_002)
    assert source.read_ranges([]) == []
    assert slept == [0.5, 0]


def test_bytes_take_time_too(file: Path, slept: list[float]) -> None:
    source = LatencySource(LocalSource(str(file)), 0.5, bytes_per_second=1_000)
    assert source.tail(100)[1] == 10_000_000
    assert source.size() == 10_000_000
    assert slept == [0.6]


def test_a_slow_place(file: Path, slept: list[float]) -> None:
    below, _ = open_store(file.parent)
    store = pickle.loads(pickle.dumps(SlowStore(below, 0.25)))
    (listed,) = store.list()
    assert slept == [0.25]
    source = store.open(listed.key, version=listed.version)
    assert (source.size(), source.version()) == (10_000_000, listed.version)
    assert source.tail(2) == (b"89", 10_000_000)
    assert slept == [0.25, 0.25]
    assert (store.uri, store.local, store.path("x")) == (below.uri, False, below.path("x"))
