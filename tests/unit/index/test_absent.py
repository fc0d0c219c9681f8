"""Filters of row groups and pages: only pages of row groups that are left are asked, and no row is lost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from skipstone.index.container import Container, RemoteFile
from skipstone.index.segment import Segment
from skipstone.parquet.bloom import hash_values
from skipstone.store.cache import Cache

ROWS, PAGE = 1_000, 100


@pytest.fixture(params=[2, 9])
def lake(tmp_path: Path, request: pytest.FixtureRequest) -> sk.Lake:
    """Few files, whose pages are asked at once, and more of them, whose row groups are asked first."""
    for number in range(request.param):
        rng = np.random.default_rng(number)
        keys = rng.permutation(ROWS) * 100 + number
        pq.write_table(
            pa.table({"key": keys, "text": [f"row {key}" for key in keys]}),
            tmp_path / f"{number}.parquet",
            write_page_index=True,
            max_rows_per_page=PAGE,
            write_batch_size=PAGE,
            use_dictionary=False,
            bloom_filter_options={"key": {"ndv": ROWS, "fpp": 0.001}},
        )
    opened = sk.open(tmp_path)
    opened.index.build(blooms=["key", "text"], engine="local")
    return sk.open(tmp_path)


@pytest.mark.parametrize("column", ["key", "text"])
def test_a_present_value_is_found_in_its_page(lake: sk.Lake, column: str) -> None:
    for key in (0, 101, 50_000, 99_901):
        where = f"key = {key}" if column == "key" else f"text = 'row {key}'"
        scan = lake.scan(where)
        assert scan.to_arrow().equals(lake.scan(where, skipping=False).to_arrow())
        assert scan.count() == 1
        # A filter may be wrong about a page now and then, never about all of them.
        assert PAGE <= scan.plan().rows <= 3 * PAGE


def test_an_absent_value_is_nowhere(lake: sk.Lake) -> None:
    kept = [lake.scan(f"key = {key}").plan().rows for key in range(50_050, 52_050, 100)]
    assert sum(kept) <= 2 * PAGE
    assert kept.count(0) >= 18


def test_pages_are_judged_alike_alone_and_among_others(lake: sk.Lake) -> None:
    coverage = lake.index.coverage
    assert coverage is not None
    compared = 0
    for segment in coverage.segments:
        every = np.arange(segment.groups)
        for key in (0, 101, 50_000, 99_901):
            hashes = hash_values([key.to_bytes(8, "little")])
            whole = segment.absent(("key",), hashes, every)
            assert whole is not None
            for group in np.flatnonzero(~whole.groups).tolist():
                alone = segment.absent(("key",), hashes, np.array([group]))
                assert alone is not None
                assert not alone.groups[0]
                first, last = segment.page_span(group, ("key",)) or (0, 0)
                mine = whole.pages[(whole.pages >= first) & (whole.pages < last)]
                assert alone.pages.tolist() == mine.tolist()
                given = segment.absent(("key",), hashes, np.array([group]), np.arange(first, last))
                assert given is not None
                assert given.pages.tolist() == mine.tolist()
                compared += 1
    assert compared >= 4


def test_filters_of_many_row_groups_are_asked_beside_those_of_their_pages(tmp_path: Path) -> None:
    """A hundredth of all filters pass a value by chance; both of a page and of its row group seldom do."""
    keys = np.random.default_rng(1).permutation(8 * ROWS) * 2
    pq.write_table(
        pa.table({"key": keys}),
        tmp_path / "a.parquet",
        row_group_size=ROWS,
        write_page_index=True,
        max_rows_per_page=PAGE,
        write_batch_size=PAGE,
        use_dictionary=False,
        bloom_filter_options={"key": {"ndv": ROWS, "fpp": 0.01}},
    )
    sk.open(tmp_path).index.build(blooms=["key"], engine="local")
    coverage = sk.open(tmp_path).index.coverage
    assert coverage is not None
    (segment,) = coverage.segments
    hashes = hash_values([(777).to_bytes(8, "little")])
    pages = np.arange(8 * ROWS // PAGE)
    found = segment.absent(("key",), hashes, np.repeat(np.arange(8), ROWS // PAGE), pages)
    assert found is not None
    assert found.groups.sum() >= 6 * ROWS // PAGE
    # Pages of row groups that are ruled out are not looked up.
    left = pages[~found.groups]
    assert set(found.pages.tolist()) <= set(left.tolist())
    assert len(left) - len(found.pages) <= 2


def test_pairs_of_pages_and_values_near_and_far(tmp_path: Path) -> None:
    """From far away, only the parts of the filters that have the blocks are fetched."""
    pages = 1_100
    keys = np.random.default_rng(1).permutation(pages * PAGE)
    path = tmp_path / "a.parquet"
    options = {"max_rows_per_page": PAGE, "write_batch_size": PAGE, "use_dictionary": False}
    pq.write_table(pa.table({"key": keys}), path, row_group_size=pages * 10, **options)
    sk.open(tmp_path).index.build(blooms=["key"], engine="local")
    coverage = sk.open(tmp_path).index.coverage
    assert coverage is not None
    (near,) = coverage.segments
    fetched: list[int] = []

    def read(ranges):
        fetched.extend(r.length for r in ranges)
        return [body[r.start : r.stop] for r in ranges]

    body = Path(near.container.bytes.path).read_bytes()
    far = Segment(Container.open_alone("far", RemoteFile("far", read), len(body), Cache(1 << 20)))
    units = np.arange(pages)
    for some, most in ((units, len(body)), (units[[3, 700]], 200_000)):
        for shift, absent in ((0, 0), (pages * PAGE, len(some))):  # a value of each page, or of none
            # Two values of each page but the first, of which the first is always absent.
            owners = np.repeat(np.arange(1, len(some)), 2)
            values = np.stack([np.full(len(some), -1), keys[some * PAGE + 7] + shift], axis=1)[1:].ravel()
            hashes = hash_values(int(value).to_bytes(8, "little", signed=True) for value in values)
            fetched.clear()
            found = [one.absent_pairs(("key",), "page", some, owners, hashes) for one in (near, far)]
            assert found[0] is not None
            assert found[1] is not None
            assert found[0].tolist() == found[1].tolist()
            assert not found[0][0]
            assert absent * 0.8 - 1 <= found[0].sum() <= max(absent - 1, 0)
            assert 0 < sum(fetched) <= most
    assert near.absent_pairs(("key",), "group", units[:1], units[:1], hashes[:1]) is None
    assert near.absent_pairs(("none",), "page", units[:1], units[:1], hashes[:1]) is None
