"""Parts of several files decoded as one give the rows, types and errors that each gives alone."""

from __future__ import annotations

import io
import random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone.core.rows import RowSet
from skipstone.errors import CorruptFileError
from skipstone.parquet.slice import (
    RowGroupPages,
    SlicePart,
    decode_part,
    decode_together,
    part_steps,
    plan_leaves,
)
from skipstone.parquet.slice.steps import Need
from skipstone.store.source import ByteRange, drive
from tests.property._slices import Lake, random_rows

ROWS = 600


def flat(seed: int) -> pa.Table:
    rng = random.Random(seed)
    some = [None if rng.random() < 0.2 else rng.randrange(10**9) for _ in range(ROWS)]
    return pa.table(
        {
            "id": pa.array(range(seed * ROWS, (seed + 1) * ROWS)),
            "n": pa.array(some, pa.int32()),
            "text": pa.array([None if n is None else f"{n:x}" * (n % 3) for n in some]),
            "kind": pa.array([f"kind {rng.randrange(4)}" for _ in range(ROWS)]).dictionary_encode(),
            "at": pa.array(some, pa.timestamp("us", "UTC")),
            "f": pa.array([None if n is None else n / 7 for n in some]),
            "b": pa.array([None if n is None else n % 2 == 0 for n in some]),
        }
    )


def lake(table: pa.Table, name: str, **options: Any) -> Lake:
    sink = io.BytesIO()
    options = {"max_rows_per_page": 100, "write_batch_size": 50, "row_group_size": 300, **options}
    pq.write_table(table, sink, write_page_index=True, **options)
    return Lake(sink.getvalue(), name)


def part(
    file: Lake,
    group: int,
    rows: RowSet,
    fields: list[int] | None = None,
    asked: list[ByteRange] | None = None,
) -> SlicePart:
    wanted = list(range(len(file.metadata.arrow_schema))) if fields is None else fields
    pages = RowGroupPages.of(file.metadata, group, wanted, None, file.indexes(group))

    def fill(need: Need) -> None:
        for span, view in zip(need.ranges, need.views, strict=True):
            view[:] = file.data[span.start : span.stop]
        if asked is not None:
            asked.extend(need.ranges)

    found = drive(part_steps(pages, rows, plan_leaves(pages.chunks, rows)), fill)
    assert isinstance(found, SlicePart)
    return found


def alone(parts: list[SlicePart]) -> pa.Table:
    return pa.concat_tables([decode_part(one, checksums=False) for one in parts])


def some_rows(rng: random.Random) -> RowSet:
    """Rows of a row group that leave at least one of its pages out."""
    first = rng.randrange(0, 150)
    rows = random_rows(rng, 300) & RowSet.from_ranges(300, [(first, first + rng.randrange(1, 100))])
    return rows if len(rows) else RowSet.from_positions(300, [first])


@pytest.mark.parametrize("codec", ["none", "snappy", "zstd"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_the_same_rows_and_types(codec: str, version: str) -> None:
    files = [
        lake(flat(seed), f"{seed}.parquet", compression=codec, data_page_version=version) for seed in range(4)
    ]
    for seed in range(60):
        rng = random.Random(seed)
        count = rng.randrange(2, 8)
        fields = rng.sample(range(7), rng.randrange(1, 8))
        chosen = [(rng.choice(files), rng.randrange(2), some_rows(rng)) for _ in range(count)]
        parts = [part(*one, fields) for one in chosen]
        found = decode_together(parts, checksums=False)
        assert found is not None
        assert found.schema == alone(parts).schema
        assert found.equals(alone(parts))
        assert len(found) == sum(len(rows) for _, _, rows in chosen)


def test_codecs_differ_from_file_to_file() -> None:
    files = [lake(flat(1), f"{codec}.parquet", compression=codec) for codec in ("zstd", "none", "snappy")]
    parts = [part(file, 1, RowSet.from_ranges(300, [(120, 130), (150, 160)])) for file in files]
    found = decode_together(parts, checksums=False)
    assert found is not None
    assert found.equals(alone(parts))


def test_rows_at_the_beginning_of_a_page_leave_the_next_file_in_step() -> None:
    file = lake(flat(0), "a.parquet")
    parts = [part(file, 0, RowSet.from_ranges(300, [(at, at + 1)])) for at in (0, 100, 200)]
    found = decode_together(parts, checksums=False)
    assert found is not None
    assert found["id"].to_pylist() == [0, 100, 200]


def test_what_is_not_alike_is_left_to_each() -> None:
    rows = RowSet.from_ranges(300, [(10, 20)])
    file = lake(flat(0), "a.parquet")
    other = lake(flat(0).append_column("more", pa.nulls(ROWS, pa.int8())), "b.parquet")
    assert decode_together([part(file, 0, rows), part(other, 0, rows)], checksums=False) is None
    nested = pa.table({"s": [{"x": n, "y": str(n)} for n in range(ROWS)], "l": [[n] for n in range(ROWS)]})
    for field in (0, 1):
        parts = [part(lake(nested, "c.parquet"), 0, rows, [field]) for _ in range(2)]
        assert decode_together(parts, checksums=False) is None
    # Pages of one column that begin at other rows than those of another.
    wide = pa.table({"n": range(ROWS), "long": ["x" * 500] * ROWS})
    uneven = lake(wide, "d.parquet", data_page_size=4_000, use_dictionary=False, max_rows_per_page=150)
    assert decode_together([part(uneven, 0, rows), part(uneven, 1, rows)], checksums=False) is None
    # Whole chunks, whose pages nobody has looked at.
    assert decode_together([part(file, 0, RowSet.all(300))] * 2, checksums=False) is None


def test_the_guilty_file_is_named() -> None:
    rows = RowSet.from_ranges(300, [(110, 120)])
    good = lake(flat(0), "good.parquet", compression="zstd", use_dictionary=False)
    bad = lake(flat(1), "bad.parquet", compression="zstd", use_dictionary=False)
    index = bad.indexes(0)[2]
    assert index is not None
    end = int(index.offsets[1] + index.sizes[1])
    bad.data = bad.data[: end - 20] + b"\xff" * 20 + bad.data[end:]
    parts = [part(good, 0, rows), part(bad, 0, rows)]
    assert decode_together(parts, checksums=False) is None
    assert len(decode_part(parts[0], checksums=False)) == 10
    with pytest.raises(CorruptFileError, match=r"bad\.parquet, row group 0, column text: "):
        decode_part(parts[1], checksums=False)


def test_checksums_are_verified() -> None:
    numbers = pa.table({"n": pa.array(range(ROWS))})
    options = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    file = lake(numbers, "n.parquet", **options)
    index = file.indexes(0)[0]
    assert index is not None
    at = int(index.offsets[1] + index.sizes[1]) - 8
    file.data = file.data[:at] + bytes([file.data[at] ^ 1]) + file.data[at + 1 :]
    parts = [part(file, 0, RowSet.from_ranges(300, [span])) for span in ((0, 10), (190, 200))]
    flipped = decode_together(parts, checksums=False)
    assert flipped is not None
    assert flipped["n"].to_pylist() == [*range(10), *range(190, 199), 198]
    assert decode_together(parts, checksums=True) is None
    with pytest.raises(CorruptFileError, match="row group 0, column n"):
        decode_part(parts[1], checksums=True)


def test_ranges_are_those_of_the_wanted_pages() -> None:
    file = lake(flat(0), "a.parquet", use_dictionary=False)
    asked: list[ByteRange] = []
    part(file, 0, RowSet.from_positions(300, [150]), [0, 2], asked)
    pages = [file.indexes(0)[leaf] for leaf in (0, 2)]
    assert [(r.start, r.length) for r in asked] == [
        (int(page.offsets[1]), int(page.sizes[1])) for page in pages if page is not None
    ]
