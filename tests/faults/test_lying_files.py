"""Files that say one thing and hold another: every route counts rows, and no claim is paid for in memory."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import io
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.store import MemoryStore

import skipstone as sk
from skipstone.core.rows import RowSet
from skipstone.errors import CorruptFileError
from skipstone.parquet.metadata import parse_footer, read_footer
from skipstone.parquet.pageindex import BadPageIndex, page_index_ranges, parse_page_index
from skipstone.parquet.structs import RowGroup
from skipstone.scan.projection import Projection
from skipstone.scan.reader import FileReader
from skipstone.store.source import open_source
from tests.faults._mutants import footer_start, with_footer
from tests.property._patch import LIST, Struct, _Reader, _varint, encode

STREAMED = {"memory": 100, "batch_rows": 16}
SWITCHES: tuple[dict[str, Any], ...] = (
    {},
    STREAMED,
    {"route": "slice"},
    {"route": "slice", **STREAMED},
    {"route": "pyarrow"},
    {"materialise": "late"},
    {"materialise": "one-pass", "threads": 2},
)


def written(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def claiming(data: bytes, *rows: int) -> bytes:
    """A file whose row groups claim to have so many rows, in every place where they say it."""

    def change(footer: Struct) -> None:
        footer[3][1] = sum(rows)
        for group, count in zip(footer[4][1][1], rows, strict=True):
            group[3][1] = count
            for chunk in group[1][1][1]:
                chunk[3][1][5][1] = count

    return with_footer(data, change)


def with_short_column(whole: int, short: int) -> bytes:
    """A row group whose second column lacks some of the rows that it claims."""
    one, two = written(pa.table({"c0": range(whole)})), written(pa.table({"c1": range(short)}))
    other = _Reader(two, footer_start(two)).struct()
    chunk = other[4][1][1][0][1][1][1][0]
    for number in (9, 11):
        chunk[3][1][number][1] += footer_start(one) - 4
    chunk[3][1][5][1] = whole

    def change(footer: Struct) -> None:
        footer[4][1][1][0][1][1][1].append(chunk)
        footer[2][1][1].append(other[2][1][1][1])
        footer[2][1][1][0][5][1] = 2
        del footer[5], footer[7]

    return with_footer(one, change, two[4 : footer_start(two)])


def opened(data: bytes, folder: Path, kind: str) -> sk.Lake:
    if kind == "local":
        (folder / "x.parquet").write_bytes(data)
        return sk.open(folder / "x.parquet")
    store = MemoryStore()
    store.put("lake/x.parquet", data)
    return sk.open("lake/x.parquet", store=store)


async def _last(batches: Any) -> None:
    async for _ in batches:
        pass


QUESTIONS: dict[str, Callable[..., Any]] = {
    "rows": lambda lake, **how: lake.scan(**how).to_arrow(),
    "batches": lambda lake, **how: list(lake.scan(**how).to_reader()),
    "async": lambda lake, **how: asyncio.run(_last(lake.scan(**how).to_batches_async())),
    "filter": lambda lake, **how: lake.scan("c0 % 2 = 0 and c1 >= 0", **how).to_arrow(),
    "count": lambda lake, **how: lake.scan("c1 % 2 = 0", **how).count(),
    "aggregate": lambda lake, **how: lake.scan(**how).aggregate(sk.count(), sk.sum("c1")).to_arrow(),
    "grouped": lambda lake, **how: lake.scan(**how).aggregate(sk.count(), group_by=["c1"]).to_arrow(),
    "order": lambda lake, **how: lake.scan(order_by=["c1"], **how).to_arrow(),
    "verify": lambda lake, **how: lake.scan(**how).verify(),
}


@pytest.mark.parametrize("kind", ["local", "memory"])
@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("lie", ["all claim more", "one column is shorter"])
def test_rows_that_a_row_group_lacks(tmp_path: Path, lie: str, question: str, kind: str) -> None:
    both = pa.table({"c0": range(80), "c1": range(80)})
    data = claiming(written(both), 96) if lie == "all claim more" else with_short_column(96, 80)
    lake = opened(data, tmp_path, kind)
    if lie == "all claim more":
        assert lake.scan(limit=80).to_arrow().equals(both)
    for switches in SWITCHES if question != "verify" else ({},):
        with pytest.raises(CorruptFileError, match=r"80 rows decoded, expected 96") as caught:
            QUESTIONS[question](lake, **switches)
        assert caught.value.path is not None
        assert caught.value.path.endswith("x.parquet")
        assert caught.value.unit == "row group 0"
        expected = {None, "c0", "c1"} if lie == "all claim more" else {None, "c1"}
        assert caught.value.column in expected, switches


def test_a_surplus_does_not_make_up_for_a_lack(tmp_path: Path) -> None:
    # Small row groups are read together where files are many.
    good = written(pa.table({"c0": range(200)}), row_group_size=100)
    for number in range(5):
        (tmp_path / f"{number}.parquet").write_bytes(good)
    assert sk.open(tmp_path).scan(threads=1).to_arrow().num_rows == 1_000
    (tmp_path / "3.parquet").write_bytes(claiming(good, 110, 90))
    with pytest.raises(CorruptFileError, match="100 rows decoded, expected 110") as caught:
        sk.open(tmp_path).scan(threads=1).to_arrow()
    assert (caught.value.unit, caught.value.column) == ("row group 0", "c0")


@pytest.mark.parametrize("route", ["auto", "slice", "pyarrow"])
def test_rows_are_counted_before_some_are_chosen(tmp_path: Path, route: Any) -> None:
    """As many rows are wanted as there are, but others."""
    lake = opened(claiming(written(pa.table({"c0": range(100)})), 200), tmp_path, "local")
    reader = FileReader.open(lake.access, lake.scan().plan().tasks[0].entry, {}, route, False)
    wanted = Projection.of(lake.schema, [("c0",)])
    assert reader.read(0, RowSet.from_ranges(200, [(90, 100)]), wanted)["c0"].to_pylist() == [*range(90, 100)]
    with pytest.raises(CorruptFileError, match="100 rows"):
        reader.read(0, RowSet.from_ranges(200, [(100, 200)]), wanted)


def test_large_row_groups_are_read_a_few_rows_at_a_time(tmp_path: Path) -> None:
    table = pa.table({"c0": range(1_000), "c1": [n % 7 for n in range(1_000)]})
    for kind in ("local", "memory"):
        lake = opened(written(table), tmp_path, kind)
        assert lake.scan(limit=130, **STREAMED).to_arrow().equals(table.slice(0, 130))
        assert lake.scan("c1 = 3", **STREAMED).count() == 143
        found = lake.scan("c1 = 3", route="slice", **STREAMED).to_arrow()
        assert found["c0"].to_pylist() == [*range(3, 1_000, 7)]
        batches = list(lake.scan(**STREAMED).to_reader())
        assert max(map(len, batches)) == 16


# -- memory ------------------------------------------------------------------------------------


def test_a_page_of_nulls_is_no_bomb(tmp_path: Path) -> None:
    """400 million NULLs in one page, which are a few bytes; whoever wants five rows decodes no more."""
    data = written(
        pa.table({"i": pa.array([None] * 100, pa.int64())}), use_dictionary=False, compression="none"
    )
    rows = 400_000_000
    footer = _Reader(data, footer_start(data)).struct()
    meta = footer[4][1][1][0][1][1][1][0][3][1]
    head = _Reader(data, meta[9][1]).struct()
    levels = _varint(rows << 1) + b"\0"
    body = len(levels).to_bytes(4, "little") + levels
    head[5][1][1][1], head[2][1], head[3][1] = rows, len(body), len(body)
    page = encode(head) + body

    def change(footer: Struct) -> None:
        meta = footer[4][1][1][0][1][1][1][0][3][1]
        meta[9][1], meta[7][1] = footer_start(data), len(page)
        del meta[12]

    path = tmp_path / "x.parquet"
    path.write_bytes(claiming(with_footer(data, change, page), rows))
    assert path.stat().st_size < 1_000
    asked = """
import sys
import skipstone as sk
from obstore.store import MemoryStore
from tests.faults._mutants import limit_memory
path = sys.argv[1]
store = MemoryStore()
store.put("lake/x.parquet", open(path, "rb").read())
limit_memory()
for lake in (sk.open(path), sk.open("lake/x.parquet", store=store)):
    for route in ("auto", "slice", "pyarrow"):
        scan = lake.scan(limit=5, route=route)
        assert scan.to_arrow().to_pydict() == {"i": [None] * 5}
        assert lake.scan("i is null", limit=5, route=route).to_arrow().num_rows == 5
        assert next(lake.scan(route=route).to_reader()).num_rows == 65_536
folder = sk.open(path.rpartition("/")[0])
folder.index.build(engine="local")
assert folder.scan("i is null", limit=5).to_arrow().num_rows == 5
"""
    done = subprocess.run(
        [sys.executable, "-c", asked, str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2_000:]


def peak(work: Callable[[], Any]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _many(count: int, each: bytes) -> tuple[int, bytes]:
    """A list of structs that are given as bytes."""
    return LIST, b"\xfc" + _varint(count) + each * count


def _forged(number: int, kind: int, value: bytes) -> bytes:
    """A footer of one column and no row group, with another field."""
    footer = _Reader(data := written(pa.table({"i": [1]})), footer_start(data)).struct()
    head = encode({1: footer[1], 2: footer[2], 3: [6, 0]})[:-1]
    return head + bytes([kind, *_varint(number << 1)]) + value + b"\0"


COUNT = 1 << 20


@pytest.mark.parametrize(
    ("number", "value"),
    [
        pytest.param(4, _many(COUNT, b"\0"), id="empty row groups"),
        pytest.param(4, _many(COUNT >> 2, b"\x26\0\0"), id="row groups without columns"),
        pytest.param(4, _many(COUNT >> 8, b"\x19\xfc\x80\x02" + bytes(257)), id="empty column chunks"),
        pytest.param(2, _many(COUNT, b"\0"), id="empty schema elements"),
        pytest.param(5, _many(COUNT, b"\0"), id="empty key-value pairs"),
        pytest.param(7, _many(COUNT, b"\0"), id="empty column orders"),
    ],
)
def test_a_footer_takes_memory_by_its_size(number: int, value: tuple[int, bytes]) -> None:
    footer = _forged(number, *value)

    def parse() -> None:
        with pytest.raises(CorruptFileError):
            parse_footer(footer, "f", None)

    # What a sound footer takes; an empty struct would take 90 times its byte.
    assert peak(parse) < 40 * len(footer)


def test_a_sound_long_footer_passes() -> None:
    """Structures are counted in long footers only; two of one schema are still alike."""
    names = [f"column {n}" for n in range(300)]
    data = written(pa.table({name: [1, 2, 3, 4] for name in names}), row_group_size=1)
    one, two = (read_footer(open_source(data)) for _ in range(2))
    assert one.footer_size > 64 * 1024
    assert one.row_group_count == 4
    assert one.schema_group is two.schema_group
    assert [leaf.name for leaf in one.leaves] == names


def paged() -> bytes:
    table = pa.table({"i": range(1_000), "j": range(1_000)})
    return written(table, write_page_index=True, max_rows_per_page=100, write_batch_size=100)


def test_a_bad_page_index_takes_little_memory() -> None:
    data = paged()
    metadata = read_footer(open_source(data))
    columns, offsets = page_index_ranges(metadata, 0, 0)
    assert columns is not None
    assert offsets is not None
    bomb = b"\x19" + _many(COUNT, b"\0")[1] + b"\0"

    def parse() -> None:
        with pytest.raises(BadPageIndex):
            parse_page_index(None, bomb, metadata, 0, 0)
        with pytest.raises(BadPageIndex):
            parse_page_index(bomb, data[offsets.start : offsets.stop], metadata, 0, 0)

    assert peak(parse) < 3 * len(bomb)


def test_a_bad_page_index_is_read_once(tmp_path: Path) -> None:
    data = paged()
    bomb = b"\x19" + _many(COUNT, b"\0")[1] + b"\0"

    def change(footer: Struct) -> None:
        chunk = footer[4][1][1][0][1][1][1][0]
        chunk[4][1], chunk[5][1] = footer_start(data), len(bomb)

    lake = opened(with_footer(data, change, bomb), tmp_path, "local")
    spent, notes = [], []
    for n in range(3):
        before = lake.access.io()
        plan = lake.scan(f"i = {500 + n}").plan()
        spent.append((lake.access.io() - before).bytes)
        notes.append([note.reason for note in plan.trace.notes])
        assert sk.execute(plan).to_arrow()["i"].to_pylist() == [500 + n]
    assert spent[0] > len(bomb)
    assert spent[1:] == [0, 0]
    assert notes[0] == notes[1] == notes[2]
    assert any("page index ignored" in note for note in notes[0])


# -- required fields ---------------------------------------------------------------------------

_FIELDS = {1: "type", 4: "codec", 5: "num_values", 7: "total_compressed_size", 9: "data_page_offset"}


@pytest.mark.parametrize("number", _FIELDS)
def test_a_chunk_without_a_required_field(tmp_path: Path, number: int) -> None:
    data = written(pa.table({"i": range(10), "s": ["a"] * 10}))
    broken = with_footer(data, lambda footer: footer[4][1][1][0][1][1][1][1][3][1].pop(number) and None)
    (tmp_path / "x.parquet").write_bytes(broken)
    asks: list[Callable[[], Any]] = [
        lambda: sk.prune(tmp_path / "x.parquet", "i = 5"),
        lambda: sk.open(tmp_path).scan(columns=["i"]).to_arrow(),
        lambda: sk.open(tmp_path).scan().count(),
        lambda: sk.open(tmp_path).scan().aggregate(sk.sum("i")).to_arrow(),
        lambda: sk.open(tmp_path).index.build(engine="local"),
    ]
    for ask in asks:
        with pytest.raises(sk.SkipstoneError, match=f"lacks the required field {_FIELDS[number]}"):
            ask()


# -- failures ----------------------------------------------------------------------------------


def _decoded() -> int:
    """Structures of footers that somebody still holds."""
    return sum(isinstance(one, RowGroup) for one in gc.get_objects())


@pytest.fixture
def frozen() -> Iterator[None]:
    """Sets aside what there is, so that collecting and counting concern what is new."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("frozen")
@pytest.mark.parametrize("kind", ["local", "memory"])
def test_a_failed_read_keeps_nothing(tmp_path: Path, kind: str) -> None:
    """Without the collector's help: what failed may hold much, and a collection may be far away."""
    good = written(pa.table({"c0": range(300), "c1": range(300)}), row_group_size=100)
    asks: list[Callable[[sk.Lake], Any]] = [
        lambda lake: lake.scan().count(),
        lambda lake: lake.scan("c0 = 5").to_arrow(),
        lambda lake: lake.scan("c0 % 2 = 1", threads=2, **STREAMED).to_arrow(),
        lambda lake: lake.scan("c0 % 2 = 1", threads=2).to_arrow(),
        lambda lake: lake.scan(order_by=["c0"], threads=2).to_arrow(),
        lambda lake: lake.scan().aggregate(sk.sum("c0")).to_arrow(),
    ]
    # A footer that is refused once it is decoded: nothing of it stays.
    lake = opened(with_footer(good, lambda footer: footer[4][1][1][2].pop(3) and None), tmp_path, kind)
    for ask in asks:
        assert _kept(ask, lake, _decoded) <= 0
    if kind == "local":
        assert _kept(lambda _: sk.prune(tmp_path / "x.parquet", "c0 = 5"), lake, _decoded) <= 0
    # Rows that are refused once others have been read: no buffer of theirs stays.
    lake = opened(claiming(good, 100, 110, 100), tmp_path, kind)
    for ask in asks[2:]:
        assert _kept(ask, lake, pa.total_allocated_bytes) <= 0


def _kept(ask: Callable[[sk.Lake], Any], lake: sk.Lake, size: Callable[[], int]) -> int:
    """What a failure leaves behind, at the second time: the first may load or remember something."""
    for _ in range(2):
        gc.collect()
        gc.disable()
        try:
            before = size()
            with contextlib.suppress(sk.SkipstoneError):
                ask(lake)
                pytest.fail("no error")
            # Threads of pyarrow's own may still be letting go; what is in a circle would stay for good.
            for _ in range(500):
                kept = size() - before
                if kept <= 0:
                    break
                time.sleep(0.01)
        finally:
            gc.enable()
    return kept
