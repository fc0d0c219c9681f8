"""Aggregates that a segment keeps: those of the rows, in the lake's type, else unknown."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from skipstone.aggregate.states.answers import averages, counts, extremes, sums, variances
from skipstone.aggregate.states.blocks import Blocks, read_blocks
from skipstone.aggregate.states.sketches import CPC, KLL, merge_cpc, merge_kll
from skipstone.aggregate.states.state import ALL_FACETS
from skipstone.core.ir.nodes import ColumnRef
from skipstone.index import container
from skipstone.index.container import Bytes, Container, LocalFile, RemoteFile
from skipstone.index.draft import Draft
from skipstone.index.levels import UNKNOWN
from skipstone.index.record import record_files
from skipstone.index.segment import Segment
from skipstone.index.spec import Spec
from skipstone.store.cache import Cache

COLUMNS = {
    "i": [pa.int32(), pa.int64(), pa.int64()],
    "d": [pa.decimal128(9, 2), pa.decimal128(9, 2), pa.decimal128(11, 4)],
    "w": [pa.decimal128(30, 2)] * 3,
    "x": [pa.float32(), pa.float64(), pa.float64()],
}


def values(name: str, number: int, rows: range) -> list[Any]:
    plain: list[Any] = [None if n % 7 == 3 else (n * 7919 % 1009 - 500) for n in rows]
    if name == "i":
        return plain
    if name == "x":
        odd = {5: float("nan"), 6: -0.0, 8: float("inf")} if number == 1 else {}
        return [odd.get(n % 100, None if v is None else v / 4) for n, v in zip(rows, plain, strict=True)]
    return [None if v is None else Decimal(v) / 100 for v in plain]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files of other types; the last has neither page index nor ``w``."""
    root = tmp_path_factory.mktemp("sums")
    for number in range(3):
        rows = range(number * 100, number * 100 + 100)
        made = {
            name: pa.array(values(name, number, rows), types[number])
            for name, types in COLUMNS.items()
            if not (name == "w" and number == 2)
        }
        pq.write_table(
            pa.table(made),
            root / f"f{number}.parquet",
            row_group_size=[100, 40, 60][number],
            write_page_index=number < 2,
            max_rows_per_page=10,
            write_batch_size=10,
        )
    return root


@pytest.fixture(scope="module", params=["mapped", "fetched"])
def segment(root: Path, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Segment:
    lake = sk.open(root)
    paths = tuple((name,) for name in COLUMNS)
    columns = tuple(((name,), lake.schema.field(name).type) for name in COLUMNS)
    spec = Spec(columns, values=paths, sums=paths, sketches=paths[:3])
    whole = Draft.concat([record_files(lake.access, [entry], spec) for entry in lake.entries])
    parts, tail = whole.write("spec", own_blooms=True)
    data = b"".join(parts)
    place = tmp_path_factory.mktemp("segment") / "segment"
    place.write_bytes(data)
    fetched = RemoteFile("segment", lambda ranges: [data[r.start : r.stop] for r in ranges])
    source: Bytes = LocalFile(str(place)) if request.param == "mapped" else fetched
    return Segment(Container.open("segment", source, len(data), tail, Cache(1 << 22)))


def ref(root: Path, name: str) -> ColumnRef:
    return ColumnRef((name,), sk.open(root).schema.field(name).type)


def rows_of(root: Path, name: str) -> pa.ChunkedArray:
    lake = sk.open(root)
    type = lake.schema.field(name).type
    parts = []
    for entry in lake.entries:
        table = pq.read_table(root / entry.key)
        has = name in table.column_names
        parts.append(table.column(name).cast(type) if has else pa.chunked_array([pa.nulls(len(table), type)]))
    return pa.chunked_array([chunk for part in parts for chunk in part.chunks], type)


def answers(blocks: Blocks) -> list[Any]:
    columns = (
        counts(blocks),
        sums(blocks),
        averages(blocks),
        variances(blocks, 1, root=True),
        extremes(blocks, maximum=False),
        extremes(blocks, maximum=True),
    )
    return list(zip(*(map(str, column) for column in columns), strict=True))


@pytest.mark.parametrize("name", COLUMNS)
def test_kept_aggregates_are_those_of_the_rows(root: Path, segment: Segment, name: str) -> None:
    column, rows = ref(root, name), rows_of(root, name)
    firsts = np.array([0, 100, 140, 180, 200, 260])
    wanted = answers(read_blocks(column.type, rows, firsts, ALL_FACETS))
    for units in (np.arange(6), np.array([4, 1])):
        found = segment.blocks("group", column, units)
        assert found is not None
        assert (found.type, len(found)) == (column.type, len(units))
        known = found.has_facets(ALL_FACETS)
        assert known.tolist() == [name != "w" or unit < 4 for unit in units]
        assert [row for row, sure in zip(answers(found), known, strict=True) if sure] == [
            wanted[unit] for unit, sure in zip(units, known, strict=True) if sure
        ]


@pytest.mark.parametrize("name", COLUMNS)
def test_kept_aggregates_of_pages(root: Path, segment: Segment, name: str) -> None:
    column, rows = ref(root, name), rows_of(root, name)
    for group, (first, last) in enumerate([(0, 100), (100, 140), (140, 180), (180, 200), (200, 260)]):
        span = segment.page_span(group, (name,))
        places = segment.page_offsets(group, (name,))
        if name == "w" and group > 3:
            assert span is None
            continue
        assert span is not None
        assert places is not None
        found = segment.blocks("page", column, np.arange(*span))
        assert found is not None
        assert found.has_facets(ALL_FACETS).all()
        own = rows.slice(first, last - first)
        assert answers(found) == answers(read_blocks(column.type, own, places.first_rows, ALL_FACETS))
    assert segment.page_span(0, ("nowhere",)) is None


def test_counts(root: Path, segment: Segment) -> None:
    x, w = rows_of(root, "x"), ref(root, "w")
    nulls = [x.slice(a, b - a).null_count for a, b in ((0, 100), (100, 140), (140, 180))]
    groups = np.arange(3)
    assert segment.nulls("group", ref(root, "x"), groups).tolist() == nulls
    assert segment.nulls("file", ref(root, "x"), np.array([0])).tolist() == nulls[:1]
    assert segment.nans("group", ref(root, "x"), groups).tolist() == [0, 1, 0]
    assert segment.nans("group", ref(root, "i"), groups).tolist() == [0, 0, 0]
    span = segment.page_span(0, ("x",))
    assert span is not None
    assert segment.nulls("page", ref(root, "x"), np.arange(*span)).sum() == nulls[0]
    assert segment.nulls("group", w, np.array([4])).tolist() == [UNKNOWN]
    assert segment.nulls("group", ColumnRef(("no",), pa.int8()), groups).tolist() == [UNKNOWN] * 3


def test_no_aggregates(root: Path, segment: Segment) -> None:
    groups = np.arange(2)
    assert segment.blocks("group", ColumnRef(("nowhere",), pa.int64()), groups) is None
    scaled = ColumnRef(("d",), pa.decimal128(18, 6))
    assert segment.blocks("group", scaled, groups) is None
    assert segment.blocks("group", ColumnRef(("i",), pa.string()), groups) is None
    assert segment.blocks("file", ref(root, "i"), groups) is None


def test_sketches(root: Path, segment: Segment) -> None:
    found = segment.sketches(KLL, ref(root, "i"), np.array([1, 3]))
    assert found is not None
    assert merge_kll([blob for blob in found if blob]).count == 60 - sum(
        n % 7 == 3 for n in (*range(100, 140), *range(180, 200))
    )
    assert segment.sketches(KLL, ref(root, "x"), np.array([0])) is None
    assert segment.sketches("other", ref(root, "i"), np.array([0])) is None
    # Files of another scale count the same values.
    decimals = segment.sketches(CPC, ref(root, "d"), np.arange(6))
    assert decimals is not None
    wide = segment.sketches(CPC, ref(root, "w"), np.array([4, 0]))
    assert wide is not None
    assert (wide[0], wide[1] is None) == (None, False)
    distinct = len({v for v in rows_of(root, "d").to_pylist() if v is not None})
    assert abs(merge_cpc([blob for blob in decimals if blob]).estimate - distinct) < 0.05 * distinct
    assert segment.sketches(CPC, ColumnRef(("d",), pa.decimal128(18, 6)), np.arange(6)) is None


def test_a_segment_of_another_format_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(pa.table({"a": [1, 2, 3]}), tmp_path / "f.parquet")
    monkeypatch.setattr(container, "FORMAT", container.FORMAT - 1)
    sk.open(tmp_path).index.build(engine="local", sums=True)
    assert sk.open(tmp_path).index.coverage is not None
    monkeypatch.undo()
    lake = sk.open(tmp_path)
    assert lake.scan("a > 1").count() == 2
    coverage = lake.index.coverage
    assert coverage is None or coverage.covered == 0
    assert lake.index.build(engine="local", sums=True).indexed == 1
