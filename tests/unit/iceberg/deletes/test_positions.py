from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import CorruptFileError, FileError, SchemaError
from skipstone.iceberg.deletes.files import read_positions
from skipstone.iceberg.deletes.match import PATH_ID, POS_ID, DeleteFile
from skipstone.store.cache import Cache
from skipstone.store.source import BufferSource, Source, open_source


def schema(names: Sequence[str] = ("file_path", "pos"), ids: bool = True, text: Any = None) -> pa.Schema:
    def mark(number: int) -> dict[str, str] | None:
        return {"PARQUET:field_id": str(number)} if ids else None

    return pa.schema(
        [
            pa.field(names[0], text or pa.string(), metadata=mark(PATH_ID)),
            pa.field(names[1], pa.int64(), metadata=mark(POS_ID)),
        ]
    )


def written(pairs: Sequence[tuple[Any, Any]], form: pa.Schema | None = None, **options: Any) -> bytes:
    form = form or schema()
    sink = pa.BufferOutputStream()
    table = pa.table([[path for path, _ in pairs], [pos for _, pos in pairs]], schema=form)
    pq.write_table(table, sink, **options)
    return sink.getvalue().to_pybytes()


def need(name: str, paths: Sequence[str], format: str = "PARQUET") -> tuple[DeleteFile, tuple[str, ...]]:
    return DeleteFile(name, 0, format, 0, 1), tuple(paths)


class Shelf:
    """Files in memory, and the sources that were opened of them."""

    def __init__(self, **files: bytes) -> None:
        self.files = files
        self.opened: list[BufferSource] = []

    def __call__(self, file: DeleteFile) -> Source:
        self.opened.append(BufferSource(self.files[file.path], file.path))
        return self.opened[-1]

    @property
    def bytes(self) -> int:
        return sum(source.counter.bytes for source in self.opened)


def lists(found: dict[str, Any]) -> dict[str, list[int]]:
    return {path: positions.tolist() for path, positions in found.items()}


@pytest.mark.parametrize(
    "form",
    [
        schema(),
        schema(ids=False),
        schema(("p", "q")),
        schema(text=pa.large_string()),
        schema(text=pa.binary()),
        schema(text=pa.dictionary(pa.int32(), pa.string())),
    ],
    ids=["ids", "names", "other names", "large", "no string", "dictionary"],
)
@pytest.mark.parametrize("statistics", [True, False])
def test_columns_are_found_by_id_or_by_name(form: pa.Schema, statistics: bool) -> None:
    pairs: list[tuple[Any, int]] = [("a", 3), ("a", 7), ("b", 0), ("c", 5)]
    if pa.types.is_binary(form.field(0).type):
        pairs = [(path.encode(), pos) for path, pos in pairs]
    shelf = Shelf(f=written(pairs, form, write_statistics=statistics))
    assert lists(read_positions([need("f", ["a", "c", "x"])], shelf)) == {"a": [3, 7], "c": [5]}
    assert lists(read_positions([need("f", ["b"])], shelf)) == {"b": [0]}
    assert read_positions([need("f", ["x"])], shelf) == {}
    assert read_positions([need("f", [])], shelf) == {}


def test_cached_positions_are_not_read_again() -> None:
    shelf = Shelf(f=written([("a", 3), ("a", 7), ("b", 0), ("c", 5)]))
    cache: Cache[Any, Any] = Cache(10_000)
    for paths, expected, opened in (
        (["a", "x"], {"a": [3, 7]}, 1),
        (["a", "x"], {"a": [3, 7]}, 1),
        (["a", "b"], {"a": [3, 7], "b": [0]}, 2),
        (["x", "b"], {"b": [0]}, 2),
    ):
        assert lists(read_positions([need("f", paths)], shelf, cache=cache)) == expected
        assert len(shelf.opened) == opened


def test_other_columns_are_ignored() -> None:
    form = schema()
    row = pa.field("row", pa.struct([pa.field("id", pa.int64())]))
    table = pa.table([["a", "b"], [1, 2], [{"id": 1}, None]], schema=pa.schema([*form, row]))
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    shelf = Shelf(f=sink.getvalue().to_pybytes())
    assert lists(read_positions([need("f", ["a", "b"])], shelf)) == {"a": [1], "b": [2]}


def test_only_pages_that_can_name_a_wanted_path_are_read() -> None:
    rng = np.random.default_rng(1)
    pairs = [
        (f"s3://bucket/data/{file:04d}.parquet", pos)
        for file in range(200)
        for pos in np.sort(rng.choice(10**6, 1_000, replace=False)).tolist()
    ]
    options = {"row_group_size": 50_000, "write_page_index": True, "max_rows_per_page": 2_000}
    shelf = Shelf(f=written(pairs, **options, compression="none", use_dictionary=["file_path"]))
    wanted = ["s3://bucket/data/0077.parquet"]
    found = read_positions([need("f", wanted)], shelf)
    assert lists(found) == {wanted[0]: [pos for path, pos in pairs if path == wanted[0]]}
    assert 8_000 < shelf.bytes < 120_000 < len(shelf.files["f"]) / 10


def test_one_path_in_all_rows_costs_only_the_positions() -> None:
    path = "s3://bucket/" + "x" * 60
    values = np.sort(np.random.default_rng(2).choice(2**40, 50_000, replace=False)).tolist()
    data = written([(path, pos) for pos in values], use_dictionary=False, compression="none")
    shelf = Shelf(f=data)
    assert read_positions([need("f", [path])], shelf)[path].tolist() == values
    assert 400_000 < shelf.bytes < 520_000 < len(data) / 5


def test_many_paths_and_several_files_are_joined() -> None:
    pairs = [(f"p{file:05d}", pos) for file in range(3_000) for pos in (file, file + 1)]
    more = [(f"p{file:05d}", file + 1) for file in range(0, 3_000, 2)] + [("p00001", 0)]
    shelf = Shelf(f=written(pairs, row_group_size=500), g=written(more[::-1]))
    wanted = [f"p{file:05d}" for file in range(100, 2_500)]
    found = lists(read_positions([need("f", wanted), need("g", ["p00001", *wanted])], shelf, threads=2))
    assert found == {"p00001": [0], **{f"p{file:05d}": [file, file + 1] for file in range(100, 2_500)}}


@given(
    st.lists(st.tuples(st.sampled_from(["", "a", "aa", "ab", "ü", "\U0001f600"]), st.integers(0, 30))),
    st.sets(st.sampled_from(["", "a", "aa", "ab", "b", "ü", "\U0001f600"]), min_size=1),
    st.booleans(),
    st.integers(1, 8),
)
def test_the_answer_is_that_of_a_loop(
    pairs: list[tuple[str, int]], wanted: set[str], ordered: bool, size: int
) -> None:
    pairs = sorted(pairs) if ordered else pairs
    options = {"row_group_size": size, "write_page_index": True, "max_rows_per_page": 2}
    shelf = Shelf(f=written(pairs, **options))
    expected = {
        path: sorted({pos for name, pos in pairs if name == path})
        for path in wanted
        if any(name == path for name, _ in pairs)
    }
    assert lists(read_positions([need("f", sorted(wanted))], shelf)) == expected


def test_formats_that_are_not_read_are_named() -> None:
    for format in ("AVRO", "ORC"):
        with pytest.raises(FileError, match=rf"f: delete file format is {format}, but only Parquet"):
            read_positions([need("f", ["a"], format)], Shelf())


@pytest.mark.parametrize(
    ("pairs", "reason"),
    [
        ([("a", -1)], "column pos: position -1 is negative"),
        ([("a", None)], "column pos: position delete has no"),
        ([(None, 1), ("a", 2)], "column file_path: position delete has no"),
    ],
)
def test_rows_that_make_no_sense_are_refused(pairs: list[tuple[Any, Any]], reason: str) -> None:
    with pytest.raises(CorruptFileError, match=f"f, row group 0, {reason}"):
        read_positions([need("f", ["a", "b"])], Shelf(f=written(pairs, write_statistics=False)))


@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize("pos", ["2", True, 2.0])
def test_positions_that_are_no_integers_are_refused(pos: Any, statistics: bool) -> None:
    form = schema()
    form = form.set(1, form.field(1).with_type(pa.scalar(pos).type))
    shelf = Shelf(f=written([("a", pos)], form, write_statistics=statistics))
    with pytest.raises(SchemaError, match="f, row group 0, column pos: column of a position delete file is"):
        read_positions([need("f", ["a"])], shelf)


def test_positions_may_be_narrow() -> None:
    form = schema()
    form = form.set(1, form.field(1).with_type(pa.int32()))
    assert lists(read_positions([need("f", ["a"])], Shelf(f=written([("a", 2)], form)))) == {"a": [2]}


def test_a_file_without_the_columns_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1]}), tmp_path / "f")
    with pytest.raises(CorruptFileError, match=f"no column with field id {PATH_ID}"):
        read_positions([need("f", ["a"])], lambda file: open_source(tmp_path / file.path))
