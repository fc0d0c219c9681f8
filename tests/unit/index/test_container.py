"""The file of a segment: arrays come back, mapped or fetched, whole or in part; a flipped bit is seen."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skipstone.errors import ReadError
from skipstone.index import container as module
from skipstone.index.container import COMMON, BadIndex, Container, ContainerWriter, LocalFile, RemoteFile
from skipstone.store.cache import Cache
from skipstone.store.source import ByteRange

DTYPES = ("<i8", "<u8", "<f8", "|u1", "<u4", "<i4", "|b1")


class Remote:
    """Bytes that are fetched, with an account."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.asked: list[ByteRange] = []

    def read(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        self.asked += ranges
        return [self.data[r.start : r.stop] for r in ranges]


def written(arrays: dict[tuple[int, str], Any], head: dict[str, Any] | None = None) -> tuple[bytes, int]:
    writer = ContainerWriter()
    for (column, name), array in arrays.items():
        writer.add(column, name, array)
    parts, tail = writer.parts(head or {})
    return b"".join(parts), tail


def opened(data: bytes, tail: int, path: Path | None, cache: int = 1 << 20) -> tuple[Container, Remote]:
    remote = Remote(data)
    if path is None:
        source: Any = RemoteFile("name", remote.read)
    else:
        path.write_bytes(data)
        source = LocalFile(str(path))
    return Container.open("name", source, len(data), tail, Cache(cache)), remote


def arrays(sizes: Sequence[int]) -> dict[tuple[int, str], Any]:
    """Arrays of every type and of these lengths, under shared and unshared names."""
    rng = np.random.default_rng(5)
    found = {}
    for number, size in enumerate(sizes):
        dtype = np.dtype(DTYPES[number % len(DTYPES)])
        raw = rng.integers(0, 2 if dtype.kind == "b" else 200, size).astype(dtype)
        found[(COMMON if number % 3 == 0 else number % 4, f"a/{number}")] = raw
    return found


SIZES = [0, 1, 7, 8, 9, 8191, 8192, 8193, 65535, 65536, 65537, 200_000, 0, 3]


@pytest.fixture(params=["mapped", "fetched", "fetched without a cache"])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Container, dict[tuple[int, str], Any]]:
    given = arrays(SIZES)
    data, tail = written(given, {"colour": "blue", "n": 3})
    path = tmp_path / "c" if request.param == "mapped" else None
    box, _ = opened(data, tail, path, 0 if "without" in request.param else 1 << 24)
    return box, given


def test_everything_comes_back(made: tuple[Container, dict[tuple[int, str], Any]]) -> None:
    box, given = made
    assert box.name == "name"
    assert box.head == {"colour": "blue", "n": 3}
    assert {*box.arrays()} == {*given}
    assert (9, "nothing") not in box
    for key, array in given.items():
        assert key in box
        assert box.size(key) == array.nbytes
        assert box.count(key) == len(array)
        found = box.whole(key)
        assert found.dtype == array.dtype
        assert np.array_equal(found, array)
        assert np.array_equal(box.whole(key), array), "the second time"


@pytest.mark.parametrize("whole", [0, 1 << 30], ids=["by sheets", "whole"])
@settings(max_examples=60)
@given(data=st.data())
def test_slices_and_takes_are_those_of_the_arrays(
    tmp_path_factory: pytest.TempPathFactory, whole: int, data: st.DataObject
) -> None:
    given = arrays(SIZES)
    body, tail = written(given)
    path = tmp_path_factory.getbasetemp() / "slices"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_WHOLE", whole)
        boxes = [
            opened(body, tail, where, data.draw(st.sampled_from([0, 1 << 24])))[0] for where in (path, None)
        ]
        keys = data.draw(st.lists(st.sampled_from([*given]), min_size=1, max_size=4))
        wanted = []
        for key in keys:
            edge = st.integers(0, len(given[key]))
            near = st.sampled_from([n for n in (0, 8191, 8192, 8193, 65536) if n <= len(given[key])])
            start, stop = sorted((data.draw(edge | near), data.draw(edge | near)))
            wanted.append((key, start, stop))
        for box in boxes:
            found = box.slices(wanted)
            for (key, start, stop), array in zip(wanted, found, strict=True):
                assert array.dtype == given[key].dtype
                assert np.array_equal(array, given[key][start:stop]), (key, start, stop)
            for key in keys:
                rows = data.draw(st.lists(st.integers(0, max(len(given[key]) - 1, 0)), max_size=5))
                rows = rows if len(given[key]) else []
                chosen = np.array(rows, dtype=np.int64)
                assert np.array_equal(box.take(key, chosen), given[key][chosen])


def test_nothing_is_fetched_that_is_not_asked_for() -> None:
    given = {
        (0, "long"): np.arange(1_000_000),
        (0, "short"): np.arange(10),
        (1, "long"): np.arange(1_000_000),
    }
    data, tail = written(given)
    box, remote = opened(data, tail, None)
    assert [r.length for r in remote.asked] == [tail]
    assert tail < 10_000
    remote.asked.clear()
    box.whole((0, "short"))
    assert sum(r.length for r in remote.asked) == 80
    remote.asked.clear()
    box.slices([((1, "long"), 8190, 8195)])
    assert sum(r.length for r in remote.asked) == 2 * 65536, "the two sheets"
    remote.asked.clear()
    box.load([(0, "short")])
    assert not remote.asked, "kept"


def test_an_empty_container(tmp_path: Path) -> None:
    data, tail = written({})
    for path in (tmp_path / "c", None):
        box, _ = opened(data, tail, path)
        assert [*box.arrays()] == []


def test_opened_alone(tmp_path: Path) -> None:
    """By its size alone, as an interrupted job leaves it."""
    given = arrays(SIZES)
    data, tail = written(given)
    (tmp_path / "c").write_bytes(data)
    for source in (LocalFile(str(tmp_path / "c")), RemoteFile("c", Remote(data).read)):
        box = Container.open_alone("c", source, len(data), Cache(1 << 20))
        assert box.tail == tail
        assert np.array_equal(box.whole((COMMON, "a/9")), given[COMMON, "a/9"])


@settings(max_examples=150)
@given(st.data())
def test_a_flipped_bit_anywhere_is_seen_or_not_read(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    given = arrays([0, 5, 9000, 70_000, 3])
    body, tail = written(given, {"x": 1})
    position = data.draw(st.integers(0, len(body) - 1) | st.integers(len(body) - tail, len(body) - 1))
    flipped = bytearray(body)
    flipped[position] ^= 1 << data.draw(st.integers(0, 7))
    path = tmp_path_factory.getbasetemp() / "flipped"
    for where in (path, None):
        try:
            box, _ = opened(bytes(flipped), tail, where)
        except BadIndex:
            continue
        # The four bytes that nobody reads, between the format and the lengths, are all that may differ.
        assert position < len(body) - tail or position in range(len(body) - 44, len(body) - 40)
        for key, array in given.items():
            rows = np.arange(len(array))
            for ask in (partial(box.whole, key), partial(box.take, key, rows)):
                try:
                    found = ask()
                except BadIndex:
                    continue
                assert np.array_equal(found, array)


@pytest.mark.parametrize("cut", [0, 1, 55, 56, 57, 100, -1, -56])
def test_cut_short(tmp_path: Path, cut: int) -> None:
    data, tail = written(arrays(SIZES))
    short = data[:cut]
    (tmp_path / "c").write_bytes(short)
    for source in (LocalFile(str(tmp_path / "c")), RemoteFile("c", Remote(short).read)):
        with pytest.raises(BadIndex):
            Container.open("c", source, len(data), tail, Cache(1))
        with pytest.raises(BadIndex):
            Container.open("c", source, len(short), tail, Cache(1))
        with pytest.raises(BadIndex):
            Container.open_alone("c", source, len(short), Cache(1))


def test_another_format_or_no_segment(tmp_path: Path) -> None:
    data, tail = written(arrays([3]))
    other = data[:-48] + struct.pack("<I", 9) + data[-44:]
    with pytest.raises(BadIndex, match="has format 9"):
        opened(other, tail, tmp_path / "c")
    with pytest.raises(BadIndex):
        opened(bytes(len(data)), tail, tmp_path / "d")
    with pytest.raises(BadIndex):
        Container.open("c", LocalFile(str(tmp_path / "gone")), 5, 5, Cache(1))


def test_a_failed_fetch_is_a_bad_index() -> None:
    data, tail = written({(0, "a"): np.arange(3)})
    remote = Remote(data)
    box = Container.open("box", RemoteFile("box", remote.read), len(data), tail, Cache(1))

    def fail(ranges: Sequence[ByteRange]) -> list[bytes]:
        raise ReadError("gone", path="x")

    box.bytes = RemoteFile("box", fail)
    with pytest.raises(BadIndex, match="gone") as caught:
        box.whole((0, "a"))
    assert caught.value.name == "box"
