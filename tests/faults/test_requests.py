"""Any request may fail: a query gives exactly the right rows, or an error that says where."""

from __future__ import annotations

import asyncio
import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from skipstone.errors import ReadError, SkipstoneError
from skipstone.store.retry import RetryPolicy
from tests.faults._files import FILES, fault_table
from tests.faults._store import Fails, Fault, Flips, Request, Truncates, WatchedStore, data_end, open_watched
from tests.property._patch import data_pages, dictionary_pages, page_header_size

WHERE = "x < 40 and id between 350 and 700"
COLUMNS = ["id", "text", "st", "items", "pad"]
SWITCHES: dict[str, dict[str, Any]] = {
    "late": {"materialise": "late", "threads": 1},
    "one pass": {"materialise": "one-pass", "threads": 1},
    "near": {"local": True, "route": "slice", "threads": 1},
    "threads": {"threads": 2},
    "unskipped": {"skipping": False, "threads": 1},
}
ATTEMPTS = 3


@functools.cache
def wanted() -> pa.Table:
    """The right rows."""
    table = pa.concat_tables([fault_table(n) for n in range(FILES)])
    ids, x = table["id"], table["x"]
    mask = pc.and_(pc.less(x, 40), pc.and_(pc.greater_equal(ids, 350), pc.less_equal(ids, 700)))
    return table.filter(mask).select(COLUMNS)


def query(root: Path, fault: Fault | None = None, *, local: bool = False, **switches: Any) -> pa.Table:
    return ask(WatchedStore.at(root, fault, local=local), **switches)


def ask(store: WatchedStore, **switches: Any) -> pa.Table:
    lake = open_watched(store, RetryPolicy(attempts=ATTEMPTS, first_delay=0.0))
    return lake.scan(WHERE, columns=COLUMNS, **switches).to_arrow()


def outcome(root: Path, fault: Fault, **switches: Any) -> pa.Table | SkipstoneError:
    """The rows, or the error; any other exception is a defect."""
    try:
        return query(root, fault, **switches)
    except SkipstoneError as error:
        return error


def every(kind: Any, root: Path, switches: dict[str, Any], **more: Any) -> Iterator[tuple[Any, Any]]:
    """The fault at request 0, 1, 2, … with what came of it, until the query ends before the fault."""
    for number in itertools.count():
        fault = kind(number, **more)
        answer = outcome(root, fault, **switches)
        if not fault.struck:
            assert number > FILES, "hardly any request was made"
            assert isinstance(answer, pa.Table)
            assert answer.equals(wanted())
            return
        yield fault, answer


def assert_named(error: SkipstoneError, fault: Any, root: Path) -> None:
    """The error says which file and, if data was being read, which row group and column."""
    struck = [request for request in fault.struck if error.path == str(root / request.key)]
    assert struck, repr(error)
    if all(is_data(request, root) for request in struck):
        assert_placed(error)


def assert_placed(error: SkipstoneError) -> None:
    assert error.unit is not None, repr(error)
    assert "row group" in error.unit, repr(error)
    assert error.column, repr(error)


def is_data(request: Request, root: Path) -> bool:
    """Whether a request is for data pages only: a file's tail, say, also holds its footer."""
    return all(r.stop <= data_end(root / request.key) for r in request.ranges)


def test_nothing_wrong(lake_path: Path) -> None:
    rows = wanted()
    assert 100 < rows.num_rows < 200
    for switches in SWITCHES.values():
        chosen = dict(switches)
        store = WatchedStore.at(lake_path, local=chosen.pop("local", False))
        assert ask(store, **chosen).equals(rows)
        assert FILES < len(store.requests) < 60


@pytest.mark.parametrize("switches", SWITCHES.values(), ids=SWITCHES)
def test_transient_failures_are_healed(lake_path: Path, switches: dict[str, Any]) -> None:
    struck = 0
    for _, answer in every(Fails, lake_path, switches, times=ATTEMPTS - 1, transient=True):
        assert isinstance(answer, pa.Table), repr(answer)
        assert answer.equals(wanted())
        struck += 1
    assert struck > FILES


@pytest.mark.parametrize("switches", SWITCHES.values(), ids=SWITCHES)
@pytest.mark.parametrize(
    "kind",
    [{"times": 1}, {"times": math.inf, "transient": True, "message": "timed out"}],
    ids=["refused", "out"],
)
def test_lasting_failures_name_their_place(
    lake_path: Path, switches: dict[str, Any], kind: dict[str, Any]
) -> None:
    seen = set()
    for fault, answer in every(Fails, lake_path, switches, **kind):
        if fault.times == 1 and isinstance(answer, pa.Table):
            assert answer.equals(wanted())  # somebody asked again
            continue
        assert isinstance(answer, SkipstoneError), f"request {fault.struck} was not needed"
        assert "reset" in str(answer) or "timed out" in str(answer)
        if switches["threads"] == 1:
            assert_named(answer, fault, lake_path)
        seen.add(answer.path)
    assert len(seen) >= 2


@dataclass
class Down(Fault):
    """One file can't be read at all."""

    key: str

    def before(self, request: Request, path: str) -> None:
        if request.key == self.key:
            raise ReadError("permission denied", path=path)


@pytest.mark.parametrize("number", range(FILES))
def test_a_file_that_is_down(lake_path: Path, number: int) -> None:
    """It fails whoever needs it, is not asked in vain again and again, and hurts nobody else."""
    key = f"part-{number}.parquet"
    store = WatchedStore.at(lake_path, Down(key))
    with pytest.raises(ReadError, match="permission denied") as caught:
        ask(store)
    assert caught.value.path == str(lake_path / key)
    assert (
        len([r for r in store.requests if r.key == key]) <= 3
    )  # for the schema, alone and with others, and for the plan


def test_a_schema_is_never_inferred_from_a_part_of_the_lake(tmp_path: Path) -> None:
    """A footer that can't be read for a while: an error or the whole answer, not one with less columns."""
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"id": [3, 4], "extra": ["x", "y"]}), tmp_path / "b.parquet")
    for number, times in itertools.product(range(4), range(1, 5)):
        lake = open_watched(WatchedStore.at(tmp_path, Fails(number, times)))
        try:
            answer = lake.scan().to_arrow()
        except SkipstoneError as error:
            assert "reset" in str(error)  # noqa: PT017
        else:
            assert answer.to_pydict() == {"id": [1, 2, 3, 4], "extra": [None, None, "x", "y"]}


@pytest.mark.parametrize("switches", SWITCHES.values(), ids=SWITCHES)
def test_short_answers_are_noticed(lake_path: Path, switches: dict[str, Any]) -> None:
    for _, answer in every(Truncates, lake_path, switches):
        assert isinstance(answer, pa.Table), repr(answer)  # asked for again
        assert answer.equals(wanted())
    for fault, answer in every(Truncates, lake_path, switches, times=math.inf):
        assert isinstance(answer, ReadError), f"request {fault.struck} was not needed"
        assert "got only" in str(answer)
        if switches["threads"] == 1:
            assert_named(answer, fault, lake_path)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("switches", SWITCHES.values(), ids=SWITCHES)
def test_flipped_bytes_fail_their_checksum(lake_path: Path, switches: dict[str, Any]) -> None:
    key, caught = "part-1.parquet", 0
    for column, position in bodies(lake_path / key):
        fault = Flips(key, position)
        answer = outcome(lake_path, fault, **switches, checksums=True)
        if isinstance(answer, pa.Table):
            # Nobody read the page; the file's tail may hold it unasked.
            assert not any(is_data(request, lake_path) for request in fault.struck), f"{position} of {column}"
            assert answer.equals(wanted())
            continue
        assert answer.path == str(lake_path / key), repr(answer)
        assert_placed(answer)
        caught += 1
    assert caught > 10


def bodies(path: Path) -> list[tuple[str, int]]:
    """A position in the body of every third data page and of every dictionary page."""
    data = path.read_bytes()
    pages = [(name, p.start, p.stop) for name, pages in data_pages(path).items() for p in pages[::3]]
    pages += [(name, *span) for name, spans in dictionary_pages(path).items() for span in spans]
    return [
        (name, (start + page_header_size(data, start) + stop) // 2)
        for name, start, stop in pages
        if stop > start
    ]


def test_any_flipped_byte_of_a_page_header(lake_path: Path) -> None:
    """Checksums don't cover headers: still no wrong row comes out, and no other kind of error."""
    path = lake_path / "part-1.parquet"
    data = path.read_bytes()
    page = data_pages(path)["text"][3]
    for position in range(page.start, page.start + page_header_size(data, page.start)):
        answer = outcome(lake_path, Flips(path.name, position), threads=1, checksums=True)
        if isinstance(answer, pa.Table):
            assert answer.equals(wanted()), f"byte {position - page.start} of the header"
        else:
            assert answer.path == str(path), repr(answer)


def test_faults_in_async_reads(lake_path: Path) -> None:
    async def collect(store: WatchedStore) -> pa.Table:
        lake = open_watched(store, RetryPolicy(attempts=ATTEMPTS, first_delay=0.0))
        scan = lake.scan(WHERE, columns=COLUMNS, threads=2)
        return pa.Table.from_batches([batch async for batch in scan.to_batches_async()])

    calm = WatchedStore.at(lake_path)
    assert asyncio.run(collect(calm)).equals(wanted())
    for number in range(0, len(calm.requests), 3):
        healed = asyncio.run(collect(WatchedStore.at(lake_path, Fails(number, transient=True))))
        assert healed.equals(wanted())
        with pytest.raises(SkipstoneError, match=r"part-\d\.parquet.*reset"):
            asyncio.run(collect(WatchedStore.at(lake_path, Fails(number, times=math.inf))))


def test_a_count_fails_where_its_metadata_does(lake_path: Path) -> None:
    for number in range(FILES + 1):
        lake = open_watched(WatchedStore.at(lake_path, Fails(number, times=math.inf)))
        with pytest.raises(SkipstoneError, match="reset"):
            lake.scan(WHERE).count()
