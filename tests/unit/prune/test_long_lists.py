"""Lists of many keys: each row group and page is asked for the few keys between its bounds, by its filter."""

from __future__ import annotations

import decimal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from skipstone.core.domain.domain import Domain
from skipstone.core.domain.points import points_of
from skipstone.core.evidence import ColumnFacts
from skipstone.core.ir.nodes import ColumnRef, Leaf
from skipstone.parquet.bloom import hash_values
from skipstone.prune.blooms import bloom_probes, hashes_by_unit
from skipstone.store.store import open_store
from tests.faults._store import WatchedStore

GROUPS, ROWS, PAGE, STEP = 20, 500, 100, 8
SPAN, APART = ROWS * STEP, 20_000
HITS, CROWDED = {7: 0, 9: 250, 11: ROWS - 1, 13: 0, 15: ROWS - 1}, 3
"""The row groups and rows with one of the keys, and the row group with too many keys between its bounds."""

FOUND = [group * ROWS + row for group, row in HITS.items()]

TYPES = {
    "i64": pa.int64(),
    "i32": pa.int32(),
    "u32": pa.uint32(),
    "f64": pa.float64(),
    "text": pa.string(),
    "blob": pa.binary(9),
    "price": pa.decimal128(30, 2),
}


def column(name: str, numbers: np.ndarray) -> pa.Array:
    type, plain = TYPES[name], numbers.tolist()
    if name == "text":
        return pa.array([f"user-{n:09d}" for n in plain])
    if name == "blob":
        return pa.array([b"%09d" % n for n in plain], type)
    if name == "price":
        return pa.array([decimal.Decimal(n).scaleb(-2) for n in plain], type)
    return pa.array(numbers).cast(type)


def keys(name: str) -> pa.Array:
    """100,000 keys: most in the gaps, 12 of no row between the bounds of each row group, some of rows."""
    gaps = np.arange(GROUPS)[:, None] * APART + SPAN + np.arange(0, 15_000, 3)
    absent = np.arange(GROUPS)[:, None] * APART + 2 + STEP * np.arange(7, ROWS, 42)
    crowd = CROWDED * APART + STEP * np.arange(ROWS)[:, None] + [1, 3, 5]
    present = np.array([[group * APART + STEP * row] for group, row in HITS.items()]) + np.zeros(4, int)
    # Keys beside those of rows: adjacent integers are one span, at the ends of a row group partly outside it.
    present[:3] += np.arange(-1, 3)
    found = np.unique(np.concatenate([gaps.ravel(), absent.ravel(), crowd.ravel(), present.ravel()]))
    assert len(found) >= 100_000
    return column(name, found)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("long lists")
    numbers = (np.arange(GROUPS)[:, None] * APART + STEP * np.arange(ROWS)).ravel()
    pq.write_table(
        pa.table({"row": np.arange(len(numbers)), **{name: column(name, numbers) for name in TYPES}}),
        root / "a.parquet",
        row_group_size=ROWS,
        max_rows_per_page=PAGE,
        write_batch_size=PAGE,
        write_page_index=True,
        use_dictionary=False,
        bloom_filter_options={name: {"ndv": ROWS, "fpp": 0.0001} for name in TYPES},
    )
    return root


def groups(plan: sk.ScanPlan) -> list[int]:
    """The row groups with rows to read."""
    return sorted({row // ROWS for task in plan.tasks for row in task.rows})


@pytest.mark.parametrize("name", TYPES)
def test_filters_of_the_file_drop_row_groups(lake: Path, name: str) -> None:
    store, _ = open_store(str(lake))
    watched = WatchedStore(store, local=store.local)
    opened = sk.Lake(watched, "")
    join = (name, keys(name))
    without = opened.scan(semi_join=join, bloom_filter=False).plan()
    assert groups(without) == [*range(GROUPS)]
    before = sum(len(request.ranges) for request in watched.requests)
    scan = opened.scan(columns=["row"], semi_join=join, page_index=False)
    assert groups(scan.plan()) == [CROWDED, *HITS]
    # One filter of each row group but the crowded one.
    assert sum(len(request.ranges) for request in watched.requests) - before == GROUPS - 1
    assert scan.to_arrow()["row"].to_pylist() == FOUND
    where = scan.plan().predicate
    for most, kept in ((11, [*range(GROUPS)]), (12, [CROWDED, *HITS])):
        assert sk.prune(lake / "a.parquet", where, max_bloom_keys=most).row_groups == kept


@pytest.mark.parametrize("name", TYPES)
def test_filters_of_the_index_drop_pages(lake: Path, tmp_path: Path, name: str) -> None:
    built = sk.open(lake, index_root=tmp_path)
    built.index.build([name], blooms=[name], engine="local", threads=1)
    opened = sk.open(lake, index_root=tmp_path)
    scan = opened.scan(columns=["row"], semi_join=(name, keys(name)))
    plan = scan.plan()
    # No page of the crowded row group has too many keys, but a filter may be wrong about one of 300.
    assert len(FOUND) * PAGE <= plan.rows <= (len(FOUND) + 1) * PAGE
    assert scan.to_arrow()["row"].to_pylist() == FOUND
    level = plan.trace.level("bloom filters")
    assert level is not None
    assert (level.units, level.kept) == (GROUPS, 1 + len(HITS))


def test_without_bounds_all_keys_count(lake: Path, tmp_path: Path) -> None:
    table = pq.read_table(lake / "a.parquet", columns=["i64"])
    blooms = {"i64": {"ndv": ROWS, "fpp": 0.0001}}
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, row_group_size=ROWS, write_statistics=False, bloom_filter_options=blooms)
    opened = sk.open(tmp_path)
    assert opened.scan(semi_join=("i64", keys("i64"))).plan().rows == GROUPS * ROWS
    assert groups(opened.scan(semi_join=("i64", keys("i64")[:50])).plan()) == []
    assert opened.scan(semi_join=("i64", keys("i64"))).count() == len(FOUND)


def test_units_with_the_fewest_keys_come_first(lake: Path) -> None:
    """All look-ups together are limited, for any number of keys and units."""
    spans = points_of(pa.int64(), pa.array(np.arange(0, 3_000_000, 3)))
    leaf = Leaf(ColumnRef(("i64",), pa.int64()), Domain.of_spans(pa.int64(), spans))
    (probe,) = bloom_probes(leaf, sk.read_metadata(lake / "a.parquet"), 1_000)
    sizes = np.arange(400) * 3  # keys of each unit
    lower = np.arange(400) * 6_000 + 1
    facts = replace(
        ColumnFacts.unknown(pa.int64(), 400), lower=lower, upper=lower + 3 * sizes, may_value=sizes != 6
    )
    owners, hashes = hashes_by_unit(probe, facts, 1_000)
    counts = np.unique(owners, return_counts=True)[1]
    assert counts.tolist() == [size for size in sizes.tolist() if 0 < size <= 1_000 and size != 6]
    assert hashes[:3].tolist() == hash_values(n.to_bytes(8, "little") for n in (6_003, 6_006, 6_009)).tolist()
    many = [np.concatenate([part] * 5) for part in (facts.lower, facts.upper)]
    facts = replace(ColumnFacts.unknown(pa.int64(), 2_000), lower=many[0], upper=many[1])
    owners, hashes = hashes_by_unit(probe, facts, 1_000)
    counts = np.unique(owners, return_counts=True)[1]
    assert 199_000 < len(owners) == len(hashes) <= 200_000
    assert counts.max() < 600
