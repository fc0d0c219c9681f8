"""A lake with an index that can be harmed, and what must hold of it all the same."""

from __future__ import annotations

import contextlib
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import skipstone as sk
from skipstone.index.container import Container, LocalFile
from skipstone.index.manifest import read_manifest
from skipstone.store.cache import Cache
from skipstone.store.store import open_root
from tests.faults import _files
from tests.faults._store import WatchedStore
from tests.support.stores import own_files

FILES = 5

COLUMNS = ["id", "x", "text", "st.a"]


def fault_table(number: int) -> pa.Table:
    """What the other fault tests read, without the column that makes files long."""
    return _files.fault_table(number).drop_columns(["pad"])


def write_file(path: Path, number: int) -> None:
    """Row groups of 100, pages of 20, a page index and a bloom filter of one column."""
    pq.write_table(
        fault_table(number),
        path,
        row_group_size=100,
        max_rows_per_page=20,
        write_batch_size=20,
        write_page_index=True,
        use_dictionary=["text"],
        bloom_filter_options={"text": {"ndv": 50, "fpp": 0.01}},
    )


def build(lake: Any, **choice: Any) -> Any:
    """Build the index, and delete what the sweep would delete a day later: parts that were merged at once."""
    report = lake.index.build(COLUMNS, blooms=["id", "text"], engine="local", **choice)
    folder = Path(lake.index.uri)
    for path in {*filter(Path.is_file, folder.glob("segment-*.skip"))} - {*segments(folder)}:
        path.unlink()
    return report


@dataclass(frozen=True)
class Question:
    """A question and its right rows, as a mask over all rows."""

    where: str | None
    mask: Callable[[pa.Table], Any]

    def wanted(self, table: pa.Table) -> pa.Table:
        return table.filter(self.mask(table)) if self.where is not None else table


def _point(value: int) -> Question:
    return Question(f"id = {value}", lambda t: pc.equal(t["id"], value))


QUESTIONS = [
    _point(417),
    _point(5),
    _point(99_999),
    Question("id between 350 and 460", lambda t: pc.and_(pc.greater(t["id"], 349), pc.less(t["id"], 461))),
    Question("text = 'word 007'", lambda t: pc.equal(t["text"], "word 007")),
    Question("text = 'word 07'", lambda t: pc.equal(t["text"], "word 07")),
    Question("x > 95", lambda t: pc.greater(t["x"], 95.0)),
    Question("st.a = 3", lambda t: pc.equal(pc.struct_field(t["st"], "a"), 3)),
    Question("st.b = 'b'", lambda t: pc.equal(pc.struct_field(t["st"], "b"), "b")),
    Question("id < 30 or id > 1980", lambda t: pc.or_(pc.less(t["id"], 30), pc.greater(t["id"], 1980))),
    Question("id > 30 and x < 50", lambda t: pc.and_(pc.greater(t["id"], 30), pc.less(t["x"], 50.0))),
    Question(None, lambda t: t),
]


@contextlib.contextmanager
def patience(seconds: int = 300) -> Iterator[None]:
    """A loop without end is a failure, not a hanging suite."""

    def late(*_: Any) -> None:
        raise TimeoutError(f"no answer in {seconds} seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def copied(root: Path, folder: Path) -> Path:
    """A copy of the index, which still fits the lake."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(own_files(root), folder)
    return folder


def open_beside(root: Path, folder: Path, *, near: bool) -> tuple[Any, WatchedStore]:
    """The lake with that index, mapped or fetched; requests to the lake's files are written down."""
    store = WatchedStore.at(root, local=near)
    index = open_root(folder)
    return sk.Lake(store, "", index_root=index if near else WatchedStore(index)), store


def segments(folder: Path) -> list[Path]:
    """Those that the newest manifest names."""
    return sorted(folder / note.name for note in read_manifest(open_root(folder)).segments)


def manifests(folder: Path) -> list[Path]:
    return sorted(folder.glob("manifest-*.json"))


def check(lake: Any, table: pa.Table, question: Question) -> Any:
    """The right rows; what the trace says of the index."""
    scan = lake.scan(question.where)
    wanted = question.wanted(table)
    with patience():
        assert scan.to_arrow().equals(wanted), question.where
    return scan.trace().index


def check_all(lake: Any, table: pa.Table) -> Any:
    for question in (*QUESTIONS[::3], QUESTIONS[-2]):
        used = check(lake, table, question)
    with patience():
        assert lake.scan("id between 350 and 460").count() == 111
        ordered = lake.scan("id > 100", ["id"], order_by=["id desc"], limit=3).to_arrow()
        assert ordered.to_pydict() == {"id": [1999, 1998, 1997]}
        assert lake.scan(None, ["id"], limit=401).to_arrow()["id"].to_pylist() == list(range(401))
        assert lake.statistics(["id"]).rows == table.num_rows
    return used


# -- flipped bytes -----------------------------------------------------------------------------


def regions(path: Path) -> dict[str, list[range]]:
    """The parts of a segment: by array, the directory, what is between."""
    size = path.stat().st_size
    box = Container.open_alone(path.name, LocalFile(str(path)), size, Cache(1))
    found: dict[str, list[range]] = {}
    for key in box.arrays():
        span = box.span(key)
        found.setdefault(f"{key[1]}", []).append(range(span.start, span.stop))
    found["directory"] = [range(size - box.tail, size)]
    found["all"] = [range(size)]
    return found
