"""Storage that is far away: every request takes 20 ms.

pyarrow reads through a file system written here. A read that gives bytes is one request (a GET), asking about
a single file is one (a HEAD); listing takes as long and opening takes nothing, as the listing told the size.
Neither is counted. pyarrow keeps its defaults: column chunks are fetched ahead and coalesced, several
files at a time; but reads of the same file wait for each other, as a Python file allows no better. Skipstone
reads through its own simulated store, which coalesces as for an object store.
"""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import fs

from benchmarks.answers import answer_of
from benchmarks.harness import OURS, Case, CaseResult, Contender, Role, Target, Work
from benchmarks.lakes import Events, Lake
from benchmarks.peers import DATASET, INDEXED, ask_dataset, our_scan
from benchmarks.queries import Query, event_queries

ASKED = ("point, event_id", "point, bloom, user_id", "absent, event_id", "range, 1,000 rows")
REQUESTS_SHARE = 1 / 3


# -- a file system that waits and counts -------------------------------------------------------


@dataclass(slots=True)
class Traffic:
    """What was requested so far, by any thread; ``seconds`` is what each request takes."""

    seconds: float = 0.0
    requests: int = 0
    bytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def request(self, transferred: int) -> None:
        """Take note of a request and wait for it."""
        with self._lock:
            self.requests += 1
            self.bytes += transferred
        time.sleep(self.seconds)


class _FarFile(io.FileIO):
    def __init__(self, path: str, traffic: Traffic) -> None:
        super().__init__(path)
        self.traffic = traffic

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(-1 if size is None else size)
        if data:
            self.traffic.request(len(data))
        return data

    def __del__(self) -> None:
        self.close()  # pyarrow drops files without closing them


class _FarFiles(fs.FileSystemHandler):
    """Local files, read only; pyarrow's datasets ask for nothing else."""

    def __init__(self, traffic: Traffic) -> None:
        self.local = fs.LocalFileSystem()
        self.traffic = traffic

    def get_type_name(self) -> str:
        return "far"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[fs.FileInfo]:
        for _ in paths:
            self.traffic.request(0)
        return self.local.get_file_info(paths)

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        time.sleep(self.traffic.seconds)
        return self.local.get_file_info(selector)

    def open_input_file(self, path: str) -> pa.PythonFile:
        return pa.PythonFile(_FarFile(path, self.traffic), mode="r")

    def open_input_stream(self, path: str) -> pa.PythonFile:
        return self.open_input_file(path)

    def _refuse(self, *_arguments: Any, **_options: Any) -> Any:
        raise NotImplementedError("read only")

    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = delete_file = _refuse
    move = copy_file = open_output_stream = open_append_stream = _refuse


def far_dataset(lake: Lake, seconds: float = 0.0) -> tuple[ds.Dataset, Traffic]:
    """The lake as a pyarrow dataset, and what reading it takes."""
    traffic = Traffic(seconds)
    files = fs.PyFileSystem(_FarFiles(traffic))
    return ds.dataset(str(lake.folder), filesystem=files, format="parquet", schema=lake.schema), traffic


def open_slow(folder: Path, seconds: float, index: Path | None = None) -> Any:
    """The lake as Skipstone has it from a simulated store, its index in another one."""
    import skipstone as sk
    from benchmarks.far_store import SlowStore
    from skipstone.store.local import LocalStore

    root = None if index is None else SlowStore(LocalStore(str(index)), seconds)
    return sk.Lake(SlowStore(LocalStore(str(folder)), seconds), "", index_root=root)


# -- the cases ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Far:
    """A lake opened on slow storage, and what tells its traffic so far."""

    opened: Any
    traffic: Callable[[], Any]

    @property
    def spent(self) -> tuple[int, int]:
        """Bytes and requests so far."""
        now = self.traffic()
        return now.bytes, now.requests


def latency_cases(
    lake: Lake, events: Events, seconds: float, *, only: str = "", index: Path | None = None, peers_only: bool
) -> Iterator[Case]:
    """Look-ups on a lake that nobody has seen yet, and on one that was asked the like for another value."""
    others = {query.name: query for query in event_queries(events, 1)}
    for query in event_queries(events):
        if query.name in ASKED and only in query.name:
            for before in (None, others[query.name]):
                yield _case(lake, query, before, seconds, index, peers_only=peers_only)


def _case(
    lake: Lake, query: Query, before: Query | None, seconds: float, index: Path | None, *, peers_only: bool
) -> Case:
    def open_ours(root: Path | None = None) -> Far:
        opened = open_slow(lake.folder, seconds, root)
        return Far(opened, lambda: opened.io)

    def open_dataset() -> Far:
        dataset, traffic = far_dataset(lake, seconds)
        return Far(dataset, lambda: traffic)

    def ask_ours(far: Far, asked: Query) -> pa.Table:
        return our_scan(far.opened, asked).to_arrow()

    def ask_theirs(far: Far, asked: Query) -> pa.Table:
        return ask_dataset(far.opened, asked)

    def contender(name: str, role: Role, open_: Any, ask: Any) -> Contender:
        def opened() -> Far | None:
            if before is None:
                return None
            far: Far = open_()
            ask(far, before)
            return far

        def run(far: Far | None) -> tuple[pa.Table, Work]:
            start = (0, 0) if far is None else far.spent
            far = far or open_()
            table = ask(far, query)
            spent = (now - then for now, then in zip(far.spent, start, strict=True))
            return table, Work(len(table), *spent)

        answer = answer_of(query, lake.schema)
        return Contender(
            name, run, role, opened, answer=lambda found: answer(found[0]), work=lambda found: found[1]
        )

    contenders = [contender(DATASET, Role.PEER, open_dataset, ask_theirs)]
    targets = []
    if not peers_only:
        contenders.insert(0, contender(OURS, Role.OURS, open_ours, ask_ours))
        if index is not None:
            indexed = contender(INDEXED, Role.OURS, lambda: open_ours(index), ask_ours)
            contenders.insert(1, indexed)
        if query.name.startswith("point"):
            targets.append(Target("≤ 1/3 of pyarrow.dataset's requests", REQUESTS_SHARE, requests_share))
    kind = "cold" if before is None else "warm"
    return Case(f"{kind} {query.name}, {lake.name}, {seconds * 1e3:g} ms a request", contenders, targets)


def requests_share(found: CaseResult) -> float:
    """Our requests against pyarrow.dataset's."""
    ours, theirs = (found.contenders[name].work.requests for name in (OURS, DATASET))
    assert ours, "a row can't be had without a request"
    assert theirs
    return ours / theirs
