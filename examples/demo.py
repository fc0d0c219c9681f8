"""Two million events, a few questions: what Skipstone reads to answer them, and proof that it misses nothing.

Run it with ``make demo`` or ``python examples/demo.py``. It writes one file into a temporary directory.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import skipstone as sk
from skipstone.cli.inspect_text import draw
from skipstone.cli.inspection import gather
from skipstone.cli.output import screen
from skipstone.explain import draw_trace
from skipstone.explain.lines import paint
from skipstone.explain.units import count, percent, plural, size
from skipstone.parquet.dictionary import dictionary_range
from skipstone.parquet.pageindex import page_index_ranges, parse_page_index
from skipstone.store.source import open_source

ROWS = 2_000_000
ROWS_PER_GROUP = 100_000
ROWS_PER_PAGE = 5_000
SEED = 20_260_101
COUNTRIES = ["AT", "BR", "CH", "DE", "ES", "FR", "IN", "JP", "NG", "US"]


def events() -> pa.Table:
    """A day and a bit of events: time rises, users come and go, devices are anywhere."""
    rng = np.random.default_rng(SEED)
    row = np.arange(ROWS)
    start = np.datetime64("2026-01-01T00:00:00", "us").astype(np.int64)
    amount = np.round(rng.gamma(2.0, 20.0, ROWS), 2)
    amount[rng.random(ROWS) < 0.001] = np.nan
    # Refunds were only possible in the last tenth of the day.
    refund = pa.array(np.round(amount / 2, 2), mask=(row < ROWS * 9 // 10) | (rng.random(ROWS) < 0.7))
    return pa.table(
        {
            "ts": pa.array(start + row * 50_000 + rng.integers(0, 50_000, ROWS), pa.timestamp("us", "UTC")),
            "user_id": row // 40 + rng.integers(0, 2_000, ROWS),
            "device": pa.array(rng.integers(1, 2**48, ROWS)),
            "country": pa.array(COUNTRIES).take(pa.array(rng.integers(0, len(COUNTRIES), ROWS))),
            "path": pa.array([f"/shop/{k // 100:03d}/{k % 100:02d}" for k in range(2_000)]).take(
                pa.array(row * 1_900 // ROWS + rng.integers(0, 100, ROWS))
            ),
            "amount": amount,
            "refund": refund,
        }
    )


def write(table: pa.Table, path: Path) -> None:
    """Write it as a careful writer would: page index, small pages, a bloom filter where values are random."""
    pq.write_table(
        table,
        path,
        row_group_size=ROWS_PER_GROUP,
        max_rows_per_page=ROWS_PER_PAGE,
        compression="zstd",
        write_page_index=True,
        use_dictionary=["country", "path"],
        bloom_filter_options={"device": {"ndv": ROWS_PER_GROUP, "fpp": 0.01}},
    )


def questions(table: pa.Table) -> list[tuple[str, str]]:
    """What each predicate shows, and the predicate."""
    device = table["device"][1_234_567].as_py()
    return [
        ("Time is sorted: bounds of row groups, then of pages", "ts >= TIMESTAMP '2026-01-02 02:00:00'"),
        (
            "Two columns that agree cut deeper than one",
            "user_id = 31000 AND ts < TIMESTAMP '2026-01-01 16:40:00'",
        ),
        ("A random id: bounds say nothing, bloom filters do", f"device = {device}"),
        ("Text is compared by its bytes: a prefix is a range", "path LIKE '/shop/007/4%'"),
        ("Null counts are evidence too", "refund IS NOT NULL AND amount < 5"),
        ("NaN is larger than every number, so it can't be dropped", "amount > 5000"),
        ("What metadata can't judge is left to the rows", "user_id < 100 AND lower(country) = 'de'"),
    ]


def page_bytes(path: Path, rows: sk.RowSet, metadata: sk.ParquetMetadata) -> int:
    """Bytes of the pages, of every column, that hold one of the rows, with their dictionaries."""
    source = open_source(path)
    total = 0
    for leaf in metadata.leaves:
        for group in range(metadata.row_group_count):
            places = page_index_ranges(metadata, group, leaf.index)
            assert places[0] is not None
            assert places[1] is not None
            column_index, offset_index = source.read_ranges([places[0], places[1]])
            pages = parse_page_index(column_index, offset_index, metadata, group, leaf.index)
            first = pages.first_rows + metadata.row_group_starts[group]
            wanted = rows.counts(first, first + pages.row_counts) > 0
            dictionary = dictionary_range(metadata, group, leaf.index)
            if wanted.any() and dictionary is not None:
                total += dictionary.stop - dictionary.start
            total += int(pages.sizes[wanted].sum())
    return total


def read(path: Path, result: sk.PruneResult) -> pa.Table:
    """Only the kept rows, read with pyarrow: the kept row groups, and of them the kept rows."""
    file = pq.ParquetFile(path)
    if not result.row_groups:
        return file.schema_arrow.empty_table()
    table = file.read_row_groups(result.row_groups)
    mask = np.concatenate([np.full(n, kind == "select") for kind, n in result.row_selection()])
    return table.filter(pa.array(mask))


def main() -> None:
    """Write the file, look at it, ask."""
    on = screen()
    folder = Path(tempfile.mkdtemp(prefix="skipstone-demo-"))
    try:
        began = time.perf_counter()
        path = folder / "events.parquet"
        table = events()
        write(table, path)
        print(f"{count(ROWS)} events written in {time.perf_counter() - began:.1f} s\n")
        found = gather(str(path), storage_options={})
        print("\n".join(paint(line, color=on.color) for line in draw(found, on.width)))
        data = sum(column.bytes for column in found.columns)
        for title, text in questions(table):
            ask(path, table, title, text, data)
        print(f"all answers equal those of a full scan · {time.perf_counter() - began:.1f} s in all")
    finally:
        shutil.rmtree(folder)


def ask(path: Path, table: pa.Table, title: str, text: str, data: int) -> None:
    """Prune, draw why, and prove that the kept rows hold every row that a full scan finds."""
    on = screen()
    predicate = sk.parse(text)
    began = time.perf_counter()
    result = sk.prune(path, predicate)
    took = time.perf_counter() - began
    rule = "─" * max(on.width - len(title) - 4, 2)
    print(paint([("── ", "dim"), (title, "bold"), (f" {rule}", "dim")], color=on.color))
    print(draw_trace(replace(result.trace, path=path.name), width=on.width, color=on.color))

    condition = predicate.to_arrow()
    answer = read(path, result).filter(condition)
    if not same(answer, table.filter(condition)):
        raise SystemExit(f"a row was lost: {text}")
    kept = page_bytes(path, result.rows, result.metadata)
    answers = plural(answer.num_rows, "matching row")
    print(f"pruned in {took * 1000:.1f} ms; {answers}, the same as in a full scan")
    avoided = percent(data - kept, data)
    print(f"pages that hold these rows: {size(kept)} of {size(data)} column data, {avoided} avoided")
    # pyarrow can't be told which pages to read, so the proof above read more than it needed.
    groups = sum(
        result.metadata.chunks(leaf.index)[group].total_compressed_size
        for leaf in result.metadata.leaves
        for group in result.row_groups
    )
    print(f"(pyarrow, which takes row groups only, read {size(groups)})\n")


def same(a: pa.Table, b: pa.Table) -> bool:
    """Whether both tables hold the same rows in the same order, NaN equal to itself."""
    if a.num_rows != b.num_rows:
        return False
    for left, right in zip(a.columns, b.columns, strict=True):
        one, other = left.combine_chunks(), right.combine_chunks()
        if pa.types.is_floating(one.type):
            # Arrow holds NaN unequal to itself; the same bits are the same value here.
            one, other = one.view(pa.int64()), other.view(pa.int64())
        if not one.equals(other):
            return False
    return True


if __name__ == "__main__":
    main()
