"""A slice asks for the chosen pages, for a dictionary page that one of them needs, and for nothing else."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone.core.rows import RowSet
from skipstone.errors import CorruptFileError, UsageError
from skipstone.parquet import compact as c
from skipstone.parquet.slice import pages as planning
from skipstone.parquet.slice import slice_ranges, slice_steps
from skipstone.store.source import ByteRange
from tests.property._patch import Struct, chunks, patch_footer
from tests.property._slices import Lake

ROWS = 1_000


def written(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    settings = {"write_page_index": True, "max_rows_per_page": 100, "compression": "none", **options}
    pq.write_table(table, sink, **settings)
    return sink.getvalue()


def lake(table: pa.Table, **options: Any) -> Lake:
    return Lake(written(table, **options))


def page(lake: Lake, leaf: int, first: int, last: int | None = None) -> ByteRange:
    index = lake.indexes(0)[leaf]
    assert index is not None
    end = first if last is None else last
    return ByteRange(int(index.offsets[first]), int(index.offsets[end] + index.sizes[end]))


NUMBERS = pa.table({"id": pa.array(range(ROWS), pa.int64()), "n": pa.array([i % 5 for i in range(ROWS)])})


def test_one_page_per_column() -> None:
    file = lake(NUMBERS, use_dictionary=False)
    table, rounds = file.slice(0, [0, 1], RowSet.from_positions(ROWS, [250]))
    assert rounds == [[page(file, 0, 2), page(file, 1, 2)]]
    assert table.to_pydict() == {"id": [250], "n": [0]}


def test_neighbouring_pages_are_one_range_and_others_are_apart() -> None:
    file = lake(NUMBERS, use_dictionary=False)
    rows = RowSet.from_ranges(ROWS, [(150, 350), (420, 421), (999, 1000)])
    table, rounds = file.slice(0, [0], rows)
    assert rounds == [[page(file, 0, 1, 4), page(file, 0, 9)]]
    assert table["id"].to_pylist() == list(rows)


def test_all_pages_are_the_chunk() -> None:
    file = lake(NUMBERS, use_dictionary=True)
    for rows in (RowSet.all(ROWS), RowSet.from_positions(ROWS, range(0, ROWS, 90))):
        table, rounds = file.slice(0, [0], rows)
        assert rounds == [[file.metadata.chunk_range(0, 0)]]
        assert table["id"].to_pylist() == list(rows)


def test_no_page_index_is_the_chunk() -> None:
    file = lake(NUMBERS)
    one = RowSet.from_positions(ROWS, [3])
    for indexes in ({}, {0: None}):
        table, rounds = file.slice(0, [0], one, indexes)
        assert rounds == [[file.metadata.chunk_range(0, 0)]]
        assert table["id"].to_pylist() == [3]


def test_dictionary_pages_where_all_pages_need_one() -> None:
    file = lake(NUMBERS, use_dictionary=["n"])
    table, rounds = file.slice(0, [1, 0], RowSet.from_positions(ROWS, [777]))
    chunk = file.metadata.chunk_range(0, 1)
    dictionary = ByteRange(chunk.start, page(file, 1, 0).start)
    assert rounds == [[dictionary, page(file, 1, 7), page(file, 0, 7)]]
    assert table.to_pydict() == {"n": [2], "id": [777]}


def fallen_back(limit: int = 400) -> Lake:
    """Dictionary pages first, plain ones once the dictionary is full."""
    values = pa.table({"v": pa.array([f"value {i}" for i in range(ROWS)])})
    return lake(values, dictionary_pagesize_limit=limit, write_batch_size=10, use_dictionary=True)


def test_a_small_dictionary_that_may_be_needed_comes_at_once_but_is_left_out_of_the_file() -> None:
    file = fallen_back()
    index = file.indexes(0)[0]
    assert index is not None
    last = len(index) - 1
    dictionary = ByteRange(file.metadata.chunk_range(0, 0).start, int(index.offsets[0]))
    table, rounds = file.slice(0, [0], RowSet.from_positions(ROWS, [999]))
    assert rounds == [[dictionary, page(file, 0, last)]]
    assert table["v"].to_pylist() == ["value 999"]
    # Garbage in its place is never looked at.
    body = file.data[: dictionary.start] + b"\xff" * dictionary.length + file.data[dictionary.stop :]
    table, _ = Lake(body).slice(0, [0], RowSet.from_positions(ROWS, [999]))
    assert table["v"].to_pylist() == ["value 999"]


def test_a_large_dictionary_that_may_be_needed_waits_for_the_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "SMALL_DICTIONARY", 8)
    file = fallen_back()
    index = file.indexes(0)[0]
    assert index is not None
    dictionary = ByteRange(file.metadata.chunk_range(0, 0).start, int(index.offsets[0]))
    table, rounds = file.slice(0, [0], RowSet.from_positions(ROWS, [999]))
    assert rounds == [[page(file, 0, len(index) - 1)]]
    assert table["v"].to_pylist() == ["value 999"]
    table, rounds = file.slice(0, [0], RowSet.from_positions(ROWS, [3]))
    assert rounds == [[page(file, 0, 0)], [dictionary]]
    assert table["v"].to_pylist() == ["value 3"]


def patched(tmp_path: Path, data: bytes, change: Any) -> Lake:
    path = tmp_path / "patched.parquet"
    path.write_bytes(data)
    return Lake(patch_footer(path, change).read_bytes())


def without_stats(footer: Struct) -> None:
    for chunk in chunks(footer):
        del chunk[13]


def test_without_encoding_statistics_the_encodings_speak(tmp_path: Path) -> None:
    plain = patched(tmp_path, written(NUMBERS, use_dictionary=False), without_stats)
    assert plain.slice(0, [0], RowSet.from_positions(ROWS, [0]))[1] == [[page(plain, 0, 0)]]
    # version 1.0 marks both kinds of pages PLAIN_DICTIONARY.
    old = patched(tmp_path, written(NUMBERS, use_dictionary=True, version="1.0"), without_stats)
    table, rounds = old.slice(0, [1], RowSet.from_positions(ROWS, [501]))
    assert len(rounds) == 1
    assert len(rounds[0]) == 2
    assert table["n"].to_pylist() == [1]


def no_place(footer: Struct) -> None:
    """The writer says that the dictionary page is a data page, as some do."""
    for chunk in chunks(footer):
        chunk[9][1] = chunk[11][1]
        del chunk[11]


def zero_place(footer: Struct) -> None:
    for chunk in chunks(footer):
        chunk[9][1] = chunk[11][1]
        chunk[11][1] = 0


@pytest.mark.parametrize("change", [no_place, zero_place])
def test_a_dictionary_page_nobody_mentions(tmp_path: Path, change: Any) -> None:
    file = patched(tmp_path, written(NUMBERS, use_dictionary=True), change)
    rows = RowSet.from_positions(ROWS, [501])
    for indexes in (None, {}):
        table, rounds = file.slice(0, [1], rows, indexes)
        assert len(rounds) == 1
        assert table["n"].to_pylist() == [1]


def shifted(file: Lake, **changes: Any) -> Any:
    index = file.indexes(0)[1]
    assert index is not None
    return replace(index, **changes)


def test_an_index_whose_first_page_is_the_dictionary_page() -> None:
    file = lake(NUMBERS, use_dictionary=True)
    index = file.indexes(0)[1]
    assert index is not None
    start = file.metadata.chunk_range(0, 1).start
    offsets, sizes = index.offsets.copy(), index.sizes.copy()
    sizes[0] += offsets[0] - start
    offsets[0] = start
    odd = {1: shifted(file, offsets=offsets, sizes=sizes)}
    for row in (3, 501):
        table, rounds = file.slice(0, [1], RowSet.from_positions(ROWS, [row]), odd)
        assert rounds[1] == [file.metadata.chunk_range(0, 1)]
        assert table["n"].to_pylist() == [row % 5]


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_an_index_that_disagrees_with_the_headers(version: str) -> None:
    file = lake(NUMBERS, use_dictionary=False, data_page_version=version)
    index = file.indexes(0)[1]
    assert index is not None
    firsts = index.first_rows.copy()
    firsts[3] += 1
    with pytest.raises(CorruptFileError, match=r"column n: page 3 has 100 rows.*page_index=False"):
        file.slice(0, [1], RowSet.from_positions(ROWS, [305]), {1: shifted(file, first_rows=firsts)})
    sizes = index.sizes.copy()
    sizes[3] -= 1
    with pytest.raises(CorruptFileError, match=r"its page index records.*page_index=False"):
        file.slice(0, [1], RowSet.from_positions(ROWS, [305]), {1: shifted(file, sizes=sizes)})
    offsets = index.offsets.copy()
    offsets[3] += 1
    with pytest.raises(CorruptFileError, match=r"row group 0, column n.*page_index=False"):
        file.slice(0, [1], RowSet.from_positions(ROWS, [305]), {1: shifted(file, offsets=offsets)})


def test_pages_that_are_not_side_by_side() -> None:
    file = lake(NUMBERS, use_dictionary=False)
    index = file.indexes(0)[0]
    assert index is not None
    gap = 7
    split = int(index.offsets[5])
    moved = ByteRange(split, file.metadata.chunk_range(0, 0).stop)
    data = file.data[:split] + b"?" * gap + file.data[split : moved.stop]
    offsets = index.offsets.copy()
    offsets[5:] += gap
    odd = {0: replace(index, offsets=offsets)}
    spans = slice_ranges(file.metadata, 0, [0], RowSet.from_ranges(ROWS, [(450, 550)]), odd)
    assert spans == [page(file, 0, 4), ByteRange(split + gap, page(file, 0, 5).stop + gap)]
    steps = slice_steps(file.metadata, 0, [0], RowSet.from_ranges(ROWS, [(450, 550)]), odd)
    next(steps)
    with pytest.raises(StopIteration) as end:
        steps.send([data[span.start : span.stop] for span in spans])
    assert end.value.value["id"].to_pylist() == list(range(450, 550))


def test_pages_without_rows() -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    file = lake(NUMBERS.select(["id"]).cast(schema), use_dictionary=False, write_statistics=False)
    index = file.indexes(0)[0]
    assert index is not None
    head = c.structure([(number, c.I32, c.integer(value)) for number, value in enumerate((0, 0, 3, 3), 1)])
    empty = c.structure(
        [(1, c.I32, c.integer(0)), (2, c.I32, c.integer(0)), (3, c.I32, c.integer(0)), (5, c.STRUCT, head)]
    )
    # Between the pages of rows 300 and 400 stand two without rows.
    at, size = int(index.offsets[4]), len(empty)
    data = file.data[:at] + empty + empty + file.data[at:]
    odd = replace(
        index,
        first_rows=np.concatenate((index.first_rows[:4], [400, 400], index.first_rows[4:])),
        offsets=np.concatenate((index.offsets[:4], [at, at + size], index.offsets[4:] + 2 * size)),
        sizes=np.concatenate((index.sizes[:4], [size, size], index.sizes[4:])),
    )
    ends = np.append(odd.offsets, odd.offsets[-1] + odd.sizes[-1])
    chosen = ((399, 400, 3, 4), (400, 401, 6, 7), (350, 450, 3, 7), (400, 501, 6, 8), (0, ROWS, 0, 12))
    for start, stop, first, last in chosen:
        rows = RowSet.from_ranges(ROWS, [(start, stop)])
        steps = slice_steps(file.metadata, 0, [0], rows, {0: odd})
        (span,) = next(steps)
        assert span == ByteRange(int(ends[first]), int(ends[last]))
        with pytest.raises(StopIteration) as end:
            steps.send([data[span.start : span.stop]])
        assert end.value.value["id"].to_pylist() == list(range(start, stop))


def test_many_slices_of_one_footer_at_once() -> None:
    file = lake(NUMBERS, use_dictionary=["n"])

    def read(row: int) -> list[Any]:
        return file.slice(0, [1, 0], RowSet.from_positions(ROWS, [row]))[0].to_pylist()

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(read, range(0, ROWS, 9)))
    assert found == [[{"n": row % 5, "id": row}] for row in range(0, ROWS, 9)]


def test_leaves_of_a_struct_each_have_their_pages() -> None:
    table = pa.table({"s": pa.array([{"x": i, "y": "long text " * (i % 9)} for i in range(ROWS)])})
    file = lake(table, use_dictionary=False, max_rows_per_page=ROWS, data_page_size=900, write_batch_size=10)
    x, y = (file.indexes(0)[leaf] for leaf in (0, 1))
    assert x is not None
    assert y is not None
    assert len(y) > len(x) > 1
    rows = RowSet.from_ranges(ROWS, [(500, 503)])
    found, rounds = file.slice(0, [0], rows)
    assert found.equals(table.slice(500, 3))
    assert sum(span.length for span in rounds[0]) == sum(
        int(index.sizes[index.first_rows.searchsorted(500, "right") - 1]) for index in (x, y)
    )
    pruned, rounds = file.slice(0, [0], rows, leaves=[1])
    assert len(rounds[0]) == 1
    assert pruned["s"].to_pylist() == [{"y": "long text " * (i % 9)} for i in (500, 501, 502)]


def test_no_fields_and_double_fields() -> None:
    file = lake(NUMBERS)
    table, rounds = file.slice(0, [], RowSet.from_ranges(ROWS, [(5, 9)]))
    assert rounds == []
    assert (table.num_rows, table.num_columns) == (4, 0)
    table, rounds = file.slice(0, [1, 0, 1], RowSet.from_positions(ROWS, [7]))
    assert [column.to_pylist() for column in table.columns] == [[2], [7], [2]]
    assert table.column_names == ["n", "id", "n"]


def test_rows_of_another_row_group() -> None:
    file = lake(NUMBERS)
    with pytest.raises(UsageError, match="rows of 999"):
        file.slice(0, [0], RowSet.all(999))
    with pytest.raises(UsageError, match="no rows"):
        file.slice(0, [0], RowSet.none(ROWS))
