"""The parts of a slice one by one: footers, cuts, merges, and files that can't be taken apart."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone.core.rows import RowSet
from skipstone.parquet import compact as c
from skipstone.parquet.slice.columns import Cut, UnevenLeaves, cut_for, merge
from skipstone.parquet.slice.projection import leaf_count, projection_of, shape_of
from skipstone.parquet.structs import FileMetaData, KeyValue
from skipstone.parquet.wire import decode
from tests.property._patch import patch_footer
from tests.property._slices import Lake


def lake(table: pa.Table, **options: Any) -> Lake:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return Lake(sink.getvalue())


# -- footers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 3, 14, 15, 40])
def test_what_is_written_can_be_decoded(size: int) -> None:
    pairs = [
        c.structure([(1, c.BINARY, c.binary(b"k%d" % i)), (2, c.BINARY, c.binary(b"v" * i * 20))])
        for i in range(size)
    ]
    fields = [(1, c.I32, c.integer(2)), (3, c.I64, c.integer(2**40)), (5, c.LIST, c.listing(c.STRUCT, pairs))]
    footer = decode(FileMetaData, c.structure(fields), "footer")
    assert (footer.version, footer.num_rows) == (2, 2**40)
    assert [(p.key, p.value) for p in footer.key_value_metadata or []] == [
        (b"k%d" % i, b"v" * i * 20) for i in range(size)
    ]
    assert decode(KeyValue, c.structure([]), "pair").key is None


def test_shapes() -> None:
    table = pa.table(
        {
            "a": [1],
            "s": [{"x": 1, "y": {"z": [1]}}],
            "m": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int8())),
            "v": pa.array([[{"x": 1, "y": 2}]], pa.list_(pa.struct({"x": pa.int8(), "y": pa.int8()}), 1)),
        }
    )
    file = lake(table)
    shape = shape_of(file.metadata)
    assert shape is not None
    assert [list(field.leaves) for field in shape.fields] == [[0], [1, 2], [3, 4], [5, 6]]
    assert [field.mergeable for field in shape.fields] == [True, True, True, False]
    assert shape.owners == (0, 1, 1, 2, 2, 3, 3)
    assert [leaf_count(field.type) for field in table.schema] == [1, 2, 2, 2]


def test_projections_are_made_once() -> None:
    file = lake(pa.table({"a": [1], "b": [2]}))
    first = projection_of(file.metadata, [1], None)
    assert first is projection_of(file.metadata, [1], None)
    assert first is not projection_of(file.metadata, [0, 1], None)
    assert b"ARROW:schema" in first.tail  # type: ignore[union-attr]


@pytest.mark.parametrize("names", [["b"], ["a", "b", "c"]])
def test_a_stored_schema_that_does_not_fit_keeps_all_fields(tmp_path: Path, names: list[str]) -> None:
    stored = base64.b64encode(pa.schema([(name, pa.large_string()) for name in names]).serialize())
    path = tmp_path / "odd.parquet"
    pq.write_table(pa.table({"a": [1, 2, 3], "b": ["x", "y", "z"]}), path)

    def change(footer: Any) -> None:
        footer[5][1][1][0][2][1] = stored

    file = Lake(patch_footer(path, change).read_bytes())
    found, rounds = file.slice(0, [1], RowSet.from_positions(3, [2]), {})
    assert rounds == [[file.metadata.chunk_range(0, 1)]]
    assert found.equals(pq.read_table(path, columns=["b"]).slice(2))


def test_a_file_that_cannot_be_taken_apart_is_read_through_its_own_footer() -> None:
    table = pa.table(
        {"a": range(50), "s": [{"x": i, "y": [str(i)] * (i % 3)} for i in range(50)], "b": range(50)}
    )
    file = lake(table, row_group_size=20)
    file.metadata.schema_group.memo["slice shape"] = None
    rows = RowSet.from_positions(20, [3, 4, 11])
    found, rounds = file.slice(1, [2, 1], rows)
    assert rounds == [[file.metadata.chunk_range(1, leaf) for leaf in range(4)]]
    assert found.equals(table.slice(20, 20).take([3, 4, 11]).select(["b", "s"]))
    assert file.slice(1, [0], rows)[0].schema.metadata is None


# -- cutting -----------------------------------------------------------------------------------


COLUMNS = {
    "integers": pa.array([None if n % 9 == 0 else n for n in range(1_000)]),
    "strings": pa.array([f"text {n % 50}" for n in range(1_000)]),
    "booleans": pa.array([n % 3 == 0 for n in range(1_000)]),
    "views": pa.array([f"a longer text {n}" for n in range(1_000)], pa.string_view()),
    "lists": pa.array([[n] * (n % 4) for n in range(1_000)]),
    "structs": pa.array([None if n % 7 == 0 else {"x": n} for n in range(1_000)]),
    "lists of views": pa.array([[str(n)] for n in range(1_000)], pa.list_(pa.string_view())),
    "uuids": pa.array([bytes([n % 256] * 16) for n in range(1_000)], pa.uuid()),
    "dictionaries": pa.array([f"d{n % 5}" for n in range(1_000)]).dictionary_encode(),
}


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)
@pytest.mark.parametrize("gap", [7, 50, 333])
def test_all_but_a_few_rows(column: pa.Array, gap: int) -> None:
    # Short runs are taken, long ones are filtered by a mask; and both chunk by chunk.
    rows = RowSet.from_positions(1_000, [n for n in range(1_000) if n % gap])
    wanted = [value for n, value in enumerate(column.to_pylist()) if n % gap]
    for chunks in ([column], [column[:300], column[300:301], column[301:]]):
        kept = cut_for(rows, None).apply(pa.chunked_array(chunks))
        assert (kept.type, kept.to_pylist()) == (column.type, wanted)
    window = cut_for(rows, None).window(100, 400).apply(pa.chunked_array([column[100:400]]))
    assert window.to_pylist() == [column[n].as_py() for n in range(100, 400) if n % gap]


def cut(*pairs: tuple[int, int]) -> Cut:
    starts, stops = (np.array(side, dtype=np.int64) for side in zip(*pairs, strict=True))
    return Cut(starts, stops, int((stops - starts).sum()))


@pytest.mark.parametrize(
    "type",
    [
        pa.int32(),
        pa.string(),
        pa.string_view(),
        pa.list_(pa.string_view()),
        pa.dictionary(pa.int8(), pa.string()),
    ],
)
@pytest.mark.parametrize("pairs", [[(0, 30)], [(4, 5)], [(0, 3), (9, 12), (29, 30)], [(9, 11)]])
def test_cuts(type: pa.DataType, pairs: list[tuple[int, int]]) -> None:
    text = [None if i % 4 == 0 else str(i) for i in range(30)]
    values: list[Any] = [[v] for v in text] if pa.types.is_list(type) else text
    if type == pa.int32():
        values = list(range(30))
    whole = pa.array(values, type)
    for column in (pa.chunked_array([whole]), pa.chunked_array([whole[:10], whole[10:10], whole[10:]])):
        found = cut(*pairs).apply(column)
        assert found.to_pylist() == [value for start, stop in pairs for value in values[start:stop]]
        assert found.type == type


def test_long_pieces_are_not_copied() -> None:
    whole = pa.array(np.arange(100_000))
    found = cut((10, 20_000), (50_000, 90_000)).apply(pa.chunked_array([whole]))
    assert [chunk.buffers()[1].address for chunk in found.chunks] == [whole.buffers()[1].address] * 2
    one = cut((10, 20)).apply_all(pa.table({"a": whole}))
    assert one["a"].chunk(0).buffers()[1].address == whole.buffers()[1].address


# -- merging -----------------------------------------------------------------------------------


def chain(values: list[Any], type: pa.DataType) -> pa.Array:
    # With something before it, so that offsets are not zero.
    return pa.concat_arrays([pa.array(values[:1], type), pa.array(values, type)])[1:]


def test_merged_lists_of_structs() -> None:
    def of(name: str, type: pa.DataType) -> pa.DataType:
        return pa.list_(pa.struct([pa.field(name, type)]))

    full = pa.list_(pa.struct([("x", pa.int8()), ("y", pa.list_(pa.int8()))]))
    rows = [[{"x": 1, "y": [1, 2]}, None], None, [], [{"x": None, "y": None}]]
    xs = [[{"x": 1}, None], None, [], [{"x": None}]]
    ys = [[{"y": [1, 2]}, None], None, [], [{"y": None}]]
    left, right = chain(xs, of("x", pa.int8())), chain(ys, of("y", pa.list_(pa.int8())))
    merged = merge(full, [left, right])
    merged.validate(full=True)
    assert merged.to_pylist() == rows
    assert merged.type == full


def test_merged_maps() -> None:
    type = pa.map_(pa.string(), pa.int8())
    keys = chain(
        [[{"key": "a"}, {"key": "b"}], None, []], pa.list_(pa.struct([pa.field("key", pa.string(), False)]))
    )
    items = chain([[{"value": 1}, {"value": None}], None, []], pa.list_(pa.struct([("value", pa.int8())])))
    merged = merge(type, [keys, items])
    merged.validate(full=True)
    assert merged.to_pylist() == [[("a", 1), ("b", None)], None, []]


@pytest.mark.parametrize(
    ("xs", "ys", "why"),
    [
        ([{"x": 1}, None], [{"y": 1}, {"y": 2}], "nulls in different rows"),
        ([{"x": 1}], [{"y": 1}, {"y": 2}], r"\[1, 2\] values"),
    ],
)
def test_leaves_that_do_not_fit(xs: list[Any], ys: list[Any], why: str) -> None:
    full = pa.struct([("x", pa.int8()), ("y", pa.int8())])
    with pytest.raises(UnevenLeaves, match=why):
        merge(
            full, [pa.array(xs, pa.struct([("x", pa.int8())])), pa.array(ys, pa.struct([("y", pa.int8())]))]
        )


def test_lists_that_do_not_fit() -> None:
    full = pa.list_(pa.struct([("x", pa.int8()), ("y", pa.int8())]))
    xs = pa.array([[{"x": 1}, {"x": 2}], []], pa.list_(pa.struct([("x", pa.int8())])))
    ys = pa.array([[{"y": 1}], [{"y": 2}]], pa.list_(pa.struct([("y", pa.int8())])))
    with pytest.raises(UnevenLeaves, match="lists of different lengths"):
        merge(full, [xs, ys])
