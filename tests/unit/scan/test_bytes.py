"""What a scan reads, to the byte: counted by the lake, watched range by range, and proved with garbage."""

from __future__ import annotations

import functools
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from tests.faults._store import WatchedStore, data_end, open_watched
from tests.property._patch import Page, data_pages, dictionary_pages

ROWS, GROUP, PAGE = 200_000, 100_000, 4_000
TAIL = 64 * 1024
"""Read at first from the end of a file of unknown footer size."""


@functools.cache
def table(first: int = 0) -> pa.Table:
    """Sorted ids, random numbers and texts, and a column of fewer values for a dictionary."""
    rng = np.random.default_rng(first)
    ids = np.arange(first, first + ROWS)
    return pa.table(
        {
            "id": ids,
            "x": rng.random(ROWS),
            "payload": pa.array([f"{n:x}" for n in rng.integers(2**62, 2**63, ROWS)]),
            "few": pa.array([f"kind {n % 5000:040d}" for n in ids]),
        }
    )


def write(path: Path, first: int = 0) -> None:
    pq.write_table(
        table(first),
        path,
        row_group_size=GROUP,
        max_rows_per_page=PAGE,
        write_page_index=True,
        use_dictionary=["few"],
        compression="none",
    )


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files nobody changes."""
    root = tmp_path_factory.mktemp("bytes")
    for number in range(2):
        write(root / f"part-{number}.parquet", number * ROWS)
    return root


@pytest.fixture
def own(kept: Path, tmp_path: Path) -> Path:
    """A copy to be spoilt."""
    for file in kept.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


def spoil(path: Path, spans: list[tuple[int, int]]) -> int:
    """Garbage in place: same inode, size and modification time; how many bytes."""
    before = path.stat()
    with path.open("r+b") as file:
        for start, stop in spans:
            file.seek(start)
            file.write(b"\xa5" * (stop - start))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_size, after.st_mtime_ns, after.st_ino) == (
        before.st_size,
        before.st_mtime_ns,
        before.st_ino,
    )
    return sum(stop - start for start, stop in spans)


def holding(pages: list[Page], row: int) -> Page:
    """The page with a row."""
    (found,) = [page for page in pages if page.first_row <= row <= page.last_row]
    return found


def needed(path: Path, row: int, columns: list[str]) -> tuple[int, int]:
    """Bytes of the pages (and dictionaries) with one row, and of the metadata that tells of them."""
    pages, dictionaries = data_pages(path), dictionary_pages(path)
    data = 0
    for name in columns:
        page = holding(pages[name], row)
        data += page.stop - page.start
        if name in dictionaries:
            start, stop = dictionaries[name][row // GROUP]
            data += stop - start
    return data, max(TAIL, path.stat().st_size - data_end(path))


@pytest.mark.parametrize("materialise", ["auto", "late", "one-pass"])
@pytest.mark.parametrize("row", [0, 123_456, ROWS - 1])
def test_a_point_look_up_reads_its_pages(kept: Path, row: int, materialise: str) -> None:
    columns = ["id", "payload", "few"]
    lake = sk.open(kept / "part-0.parquet")
    found = lake.scan(f"id = {row}", columns=columns, materialise=materialise).to_arrow()
    assert found.equals(table().slice(row, 1).select(columns))
    data, metadata = needed(kept / "part-0.parquet", row, columns)
    assert data < lake.io.bytes <= 1.2 * (data + metadata)
    assert 2 <= lake.io.requests <= 8
    assert lake.io.bytes < 0.1 * (kept / "part-0.parquet").stat().st_size

    # Again: footer and page index are known by now.
    before = lake.io
    again = lake.scan(f"id = {row}", columns=columns, materialise=materialise).to_arrow()
    assert again.equals(found)
    assert data <= lake.io.bytes - before.bytes <= 1.2 * data


def test_repeated_queries_read_no_footer_again(kept: Path) -> None:
    store = WatchedStore.at(kept)
    lake = open_watched(store)
    assert lake.scan("id = 77", columns=["id", "x"]).to_arrow().num_rows == 1
    first = len(store.requests)
    for row in (78, 50_000, 150_000, ROWS + 5):
        assert lake.scan(f"id = {row}", columns=["id", "x"]).to_arrow()["id"].to_pylist() == [row]
    ends = {file.name: data_end(file) for file in kept.iterdir()}
    sizes = {file.name: file.stat().st_size for file in kept.iterdir()}
    later = store.requests[first:]
    footers = [q for q in later for r in q.ranges if r.stop == sizes[q.key]]
    indexes = [q for q in later for r in q.ranges if r.start >= ends[q.key]]
    assert later
    assert footers == []
    assert len(indexes) <= 4  # at most those of row groups not met before
    again = len(store.requests)
    assert lake.scan("id = 50001", columns=["id", "x"]).to_arrow().num_rows == 1
    assert all(r.stop <= ends[q.key] for q in store.requests[again:] for r in q.ranges)
    assert len(store.requests) > again


@pytest.mark.parametrize("switches", [{}, {"materialise": "late"}, {"route": "slice"}, {"page_index": False}])
def test_a_pruned_file_is_never_touched(own: Path, switches: dict[str, object]) -> None:
    spoilt = own / "part-1.parquet"
    spoil(spoilt, [(4, data_end(spoilt))])
    lake = sk.open(own)
    found = lake.scan("id between 1000 and 1010", **switches).to_arrow()
    assert found.equals(table().slice(1000, 11))
    store = WatchedStore.at(own)
    assert open_watched(store).scan("id between 1000 and 1010").to_arrow().equals(found)
    assert all(r.start >= data_end(spoilt) - TAIL for r in store.ranges(spoilt.name))
    assert any(r.start < data_end(spoilt) - TAIL for r in store.ranges("part-0.parquet"))
    with pytest.raises(sk.SkipstoneError, match="part-1"):  # it is garbage indeed
        lake.scan(f"id = {ROWS + 5}").to_arrow()


@pytest.mark.parametrize("switches", [{}, {"materialise": "late"}, {"route": "slice"}])
def test_pages_without_matches_are_never_fetched(own: Path, switches: dict[str, object]) -> None:
    """A predicate on unsorted data matches few rows: payload is read only where they are."""
    path = own / "part-0.parquet"
    rows = pc.filter(table()["id"], pc.greater(table()["x"], 0.99998)).to_pylist()
    assert 2 <= len(rows) <= 10
    spans = [
        (page.start, page.stop)
        for name in ("payload", "id")
        for page in data_pages(path)[name]
        if not any(page.first_row <= row <= page.last_row for row in rows)
    ]
    assert spoil(path, spans) > 0.3 * path.stat().st_size
    found = sk.open(path).scan("x > 0.99998", columns=["id", "payload"], **switches).to_arrow()
    assert found.equals(table().take(rows).select(["id", "payload"]))


def test_columns_nobody_asked_for_are_never_fetched(own: Path) -> None:
    path = own / "part-0.parquet"
    pages = data_pages(path)
    spoil(path, [(page.start, page.stop) for name in ("payload", "few") for page in pages[name]])
    for switches in ({}, {"route": "slice"}, {"route": "pyarrow"}, {"materialise": "late"}):
        found = sk.open(path).scan("x < 0.5", columns=["id"], **switches).to_arrow()
        assert found.equals(table().filter(pc.less(table()["x"], 0.5)).select(["id"]))


def test_other_pages_of_a_point_look_up_are_never_fetched(own: Path) -> None:
    path = own / "part-0.parquet"
    row = 123_456
    spans = [
        (page.start, page.stop)
        for pages in data_pages(path).values()
        for page in pages
        if page is not holding(pages, row)
    ]
    assert spoil(path, spans) > 0.9 * data_end(path)
    found = sk.open(path).scan(f"id = {row}").to_arrow()
    assert found.equals(table().slice(row, 1))


def test_a_count_of_proven_units_reads_no_data(own: Path) -> None:
    for file in own.iterdir():
        spoil(file, [(4, data_end(file))])
    store = WatchedStore.at(own)
    lake = open_watched(store)
    assert lake.scan().count() == 2 * ROWS
    assert lake.scan(f"id >= {GROUP}").count() == 2 * ROWS - GROUP  # whole row groups
    assert lake.scan(f"id < {3 * PAGE}").count() == 3 * PAGE  # whole pages
    assert lake.scan("id < 0").count() == 0
    assert lake.scan("id is not null").count() == 2 * ROWS
    assert lake.scan(limit=3).count() == 3
    assert store.requests
    near = sum(file.stat().st_size - data_end(file) + TAIL for file in own.iterdir())
    assert 0 < lake.io.bytes <= near
    assert all(r.start >= data_end(own / q.key) - TAIL for q in store.requests for r in q.ranges)


def test_a_count_reads_only_what_is_not_proven(own: Path) -> None:
    path = own / "part-0.parquet"
    pages = data_pages(path)
    edge = 3 * PAGE + 5
    spans = [(p.start, p.stop) for ps in pages.values() for p in ps if p is not holding(pages["id"], edge)]
    spoil(path, spans)
    lake = sk.open(path)
    assert lake.scan(f"id < {edge}").count() == edge
    page = holding(pages["id"], edge)
    metadata = max(TAIL, path.stat().st_size - data_end(path))
    assert page.stop - page.start < lake.io.bytes <= 1.2 * (page.stop - page.start + metadata)


def test_without_skipping_everything_is_read(kept: Path) -> None:
    """The other end of the scale: the same question with skipping off."""
    lake = sk.open(kept / "part-0.parquet")
    found = lake.scan("id = 5", columns=["id"], skipping=False).to_arrow()
    assert found["id"].to_pylist() == [5]
    wanted = sum(page.stop - page.start for page in data_pages(kept / "part-0.parquet")["id"])
    assert lake.io.bytes >= wanted


def test_planning_reads_no_data(kept: Path) -> None:
    store = WatchedStore.at(kept)
    lake = open_watched(store)
    plan = lake.scan("id between 5000 and 5001 and x < -1").plan()
    assert store.requests
    assert all(r.start >= data_end(kept / q.key) - TAIL for q in store.requests for r in q.ranges)
    before = len(store.requests)
    assert sk.execute(plan).to_arrow().num_rows == 0
    assert len(store.requests) == before  # x is above 0: nothing is left to read
