"""What an open segment says of a file is what the file itself says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from skipstone.core.ir.nodes import ColumnRef
from skipstone.index.segment import Segment
from skipstone.parquet.evidence import row_group_facts
from skipstone.parquet.pageindex import page_index_ranges, parse_page_index


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("segment")
    for number in range(4):
        ids = range(number * 100, number * 100 + 100)
        table = pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "x": pa.array([float(n % 17) for n in ids]),
                "text": [f"w{n % 10}" for n in ids],
                "st": pa.array([{"a": n, "b": None} for n in ids]),
                "items": pa.array([[n] * (n % 3) for n in ids], pa.list_(pa.int64())),
            }
        )
        pq.write_table(
            table,
            root / f"f{number}.parquet",
            row_group_size=[100, 40, 25, 100][number],
            write_page_index=number != 2,
            max_rows_per_page=10,
            write_batch_size=10,
            compression="zstd" if number % 2 else "none",
            bloom_filter_options={"id": {"ndv": 100, "fpp": 0.01}} if number == 1 else None,
        )
    sk.open(root).index.build(engine="local")
    return root


def metadata(root: Path) -> list[tuple[Any, Any]]:
    """Of each file, what its footer says and what the index says."""
    lake = sk.open(root)
    coverage = lake.index.coverage
    assert coverage is not None
    assert coverage.covered == 4
    return [(lake.access.footer(entry), coverage.metadata(n)) for n, entry in enumerate(lake.entries)]


def test_layouts_are_those_of_the_footers(root: Path) -> None:
    for footer, recorded in metadata(root):
        assert recorded is not footer
        assert recorded.row_group_count == footer.row_group_count
        assert recorded.row_group_rows.tolist() == footer.row_group_rows.tolist()
        assert recorded.num_rows == footer.num_rows
        assert recorded.arrow_schema.equals(footer.arrow_schema, check_metadata=True)
        assert recorded.query_schema.equals(footer.query_schema)
        assert [leaf.path for leaf in recorded.leaves] == [leaf.path for leaf in footer.leaves]
        assert (recorded.size, recorded.version, recorded.path) == (footer.size, footer.version, footer.path)
        for group in range(footer.row_group_count):
            assert tuple(recorded.group_sizes(group)) == tuple(footer.group_sizes(group))
            for leaf in footer.leaves:
                assert recorded.chunk_range(group, leaf.index) == footer.chunk_range(group, leaf.index)
                ours, theirs = recorded.chunks(leaf.index)[group], footer.chunks(leaf.index)[group]
                for name in ("codec", "num_values", "data_page_offset", "dictionary_page_offset", "type"):
                    assert getattr(ours, name) == getattr(theirs, name), name
                assert page_index_ranges(recorded, group, leaf.index) == page_index_ranges(
                    footer, group, leaf.index
                )


def test_facts_are_those_of_the_footers(root: Path) -> None:
    refs = [
        ColumnRef(("id",), pa.int64()),
        ColumnRef(("text",), pa.string()),
        ColumnRef(("x",), pa.float64()),
    ]
    refs += [ColumnRef(("st", "a"), pa.int64()), ColumnRef(("gone",), pa.int64())]
    for footer, recorded in metadata(root):
        for ref in refs:
            theirs, ours = row_group_facts(footer, ref), recorded.recorded_facts(ref)
            for name in ("may_value", "may_null", "may_nan", "lower_exact", "upper_exact"):
                assert getattr(ours, name).tolist() == getattr(theirs, name).tolist(), (ref.path, name)
            for name in ("lower", "upper"):
                pair = [getattr(f, name) for f in (ours, theirs)]
                assert (
                    pair[0].tolist() == pair[1].tolist()
                    if not isinstance(pair[0], pa.Array)
                    else pair[0].equals(pair[1])
                )


def test_places_of_pages_are_those_of_the_page_index(root: Path) -> None:
    lake = sk.open(root)
    for number, (footer, recorded) in enumerate(metadata(root)):
        for group in range(footer.row_group_count):
            for leaf in footer.leaves:
                places = recorded.page_offsets(group, leaf.index)
                _bounds, where = page_index_ranges(footer, group, leaf.index)
                assert (places is None) == (where is None) == (number == 2)
                if where is None:
                    continue
                (body,) = lake.access.read(lake.entries[number], [where])
                index = parse_page_index(None, body, footer, group, leaf.index)
                for name in ("first_rows", "offsets", "sizes"):
                    assert getattr(places, name).tolist() == getattr(index, name).tolist()


def test_types_of_another_lake_schema(root: Path) -> None:
    """Facts are widened where that is without loss, and unknown where it isn't."""
    coverage = sk.open(root).index.coverage
    assert coverage is not None
    segment: Segment = coverage.segments[0]
    assert segment.has("group", ColumnRef(("id",), pa.int64()))
    assert not segment.has("group", ColumnRef(("id",), pa.int32()))
    assert not segment.has("group", ColumnRef(("id",), pa.string()))
    assert not segment.has("group", ColumnRef(("nowhere",), pa.int64()))
    for type in (pa.int32(), pa.string()):
        facts = segment.facts("group", ColumnRef(("id",), type))
        assert facts.type == type
        assert len(facts) == segment.groups
        assert facts.may_value.all()
        assert facts.may_null.all()
    for level, count in (("block", 1), ("file", len(segment)), ("group", segment.groups)):
        assert len(segment.facts(level, ColumnRef(("nowhere",), pa.int64()))) == count
        assert len(segment.facts(level, ColumnRef(("nowhere",), pa.int64()), np.array([0]))) == 1


def test_a_recorded_file_stays_where_its_index_is(root: Path) -> None:
    import pickle

    _, recorded = metadata(root)[0]
    with pytest.raises(TypeError, match="recorded"):
        pickle.dumps(recorded)
