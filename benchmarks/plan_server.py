"""``python -m benchmarks.plan_server``: sustained planning by ``skipstone serve``, and its memory.

The server is a process of its own; clients are threads of this process, each with one connection that stays
open and a question at a time. Every request asks for another key or range, except *again*, which repeats one
request. Lake and table have the same rows in 1,000 files of 1,000 rows, with an index and bloom filters on
the scattered column ``key``. Answers are checked: files kept, of all connections and contenders.

*CPU ms* is what the server spends per request. Beside it: the same plan in this process, and pyiceberg's own
plan of the table, which has no bloom filters of files and returns all files for a scattered key.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

import skipstone as sk
from benchmarks.lakes import DATA

FILES, QUICK_FILES, ROWS = 1_000, 100, 1_000
CONNECTIONS = (1, 4, 16)
SECONDS, QUICK_SECONDS = 1.0, 0.2
WARM, SUSTAINED, STEP = 2_000, 10_000, 2_500
IN_PROCESS = 30
TABLE = "bench.events"
PLAN = "/v1/namespaces/bench/tables/events/plan"
_TICKS = os.sysconf("SC_CLK_TCK")


# -- data --------------------------------------------------------------------------------------


def key_of(row: int) -> str:
    """The key of a row: scattered, so that only bloom filters tell files apart."""
    return hashlib.md5(b"%d" % row).hexdigest()


def _rows(number: int) -> pa.Table:
    ids = np.arange(number * ROWS, (number + 1) * ROWS)
    return pa.table({"id": ids, "key": [*map(key_of, ids.tolist())], "amount": ids % 997 / 7.0})


@dataclass(frozen=True, slots=True)
class Served:
    """A directory, and a warehouse with a table of the same rows."""

    folder: Path
    files: int

    @property
    def lake(self) -> Path:
        """The directory."""
        return self.folder / "lake"

    @property
    def warehouse(self) -> Path:
        """The warehouse."""
        return self.folder / "warehouse"

    @property
    def rows(self) -> int:
        """Rows of either."""
        return self.files * ROWS


def served(files: int, data: Path, console: Console) -> Served:
    """The lake and the table, made if they are not there."""
    found = Served(data / f"plan-server-{files}", files)
    # Metadata of tables has absolute paths, so nothing is renamed.
    if not (found.folder / "done").exists():
        console.print(f"making {found.folder.name} …", style="dim")
        found.lake.mkdir(parents=True, exist_ok=True)
        table = sk.catalog(found.warehouse).create_table(TABLE, _rows(0).schema)
        folder = Path(table.table.location().removeprefix("file://")) / "data"
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / f"{number:06}.parquet" for number in range(files)]
        for number, path in enumerate(paths):
            pq.write_table(_rows(number), path)
            os.link(path, found.lake / path.name)
        table.table.add_files([*map(str, paths)])
        for lake in (sk.open(str(found.lake)), sk.catalog(found.warehouse).open(TABLE)):
            lake.index.build(blooms=["key"], engine="local")
        (found.folder / "done").touch()
    return found


# -- the server --------------------------------------------------------------------------------


class Server:
    """``skipstone serve`` in a process."""

    def __init__(self, served: Served) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        options = [
            "--catalog",
            str(served.warehouse),
            "--lake",
            f"events={served.lake}",
            "--port",
            str(self.port),
        ]
        command = [sys.executable, "-m", "skipstone.cli", "serve", *options, "--rate", "1000000"]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def connect(self) -> http.client.HTTPConnection:
        """A connection that stays open; waits until the server is ready."""
        while True:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            try:
                connection.connect()
            except ConnectionRefusedError:
                if self._process.poll() is not None:
                    raise RuntimeError("server has stopped") from None
                time.sleep(0.02)
                continue
            assert connection.sock is not None
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection

    def cpu(self) -> float:
        """Seconds of CPU time that the process has spent."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def memory(self) -> float:
        """Resident memory in MB."""
        pages = Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE") / 1e6

    def stop(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.wait()


@contextmanager
def serving(served: Served) -> Iterator[Server]:
    """A server that is ready."""
    server = Server(served)
    try:
        server.connect().close()
        yield server
    finally:
        server.stop()


# -- questions ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of question: a request by its number, and how many files its answer has."""

    name: str
    path: str
    body: Callable[[int], Mapping[str, Any]]
    files: range
    where: Callable[[int], str] | None
    """The same as a condition, for plans in this process."""
    on_table: bool = False

    def ask(self, connection: http.client.HTTPConnection, number: int) -> None:
        """Send a request and check its answer."""
        connection.request("POST", self.path, json.dumps(self.body(number)))
        answer = connection.getresponse()
        body = answer.read()
        if (
            answer.status != 200
            or body.count(b'"file-path"' if self.on_table else b'"path"') not in self.files
        ):
            raise AssertionError(f"{self.name}: {answer.status} {body[:500]!r}")


def _and(*parts: Mapping[str, Any]) -> Mapping[str, Any]:
    left, right = parts
    return {"type": "and", "left": left, "right": right}


def _leaf(type: str, term: str, value: Any) -> Mapping[str, Any]:
    return {"type": type, "term": term, "value": value}


def _filter(type: str, term: str, value: Any) -> Mapping[str, Any]:
    return {"filter": _leaf(type, term, value)}


def kinds(served: Served) -> list[Kind]:
    """All kinds; a range has a tenth of the files."""
    rows, width = served.rows, served.rows // 10

    def at(number: int) -> int:
        return number * 7_919 % rows

    def start(number: int) -> int:
        # Ranges begin with a file.
        return number * 7_919 % (served.files - width // ROWS) * ROWS

    def point(number: int) -> str:
        return f"id = {at(number)}"

    def bloom(number: int) -> str:
        return f"key = '{key_of(at(number))}'"

    def span(number: int) -> str:
        return f"id >= {start(number)} and id < {start(number) + width}"

    def ours(where: Callable[[int], str]) -> Callable[[int], Mapping[str, Any]]:
        return lambda number: {"lake": "events", "where": where(number)}

    def in_range(number: int) -> Mapping[str, Any]:
        low, high = _leaf("gt-eq", "id", start(number)), _leaf("lt", "id", start(number) + width)
        return {"filter": _and(low, high)}

    def domain(number: int) -> Mapping[str, Any]:
        return {"lake": "events", "domain": {"columns": [{"name": "id", "values": [at(number)]}]}}

    one, some, every = (range(count, count + 1) for count in (1, width // ROWS, served.files))
    # Bloom filters return a file by mistake now and then.
    few = range(1, 4 + served.files // 50)
    return [
        Kind("JSON plan, point", "/api/plan", ours(point), one, point),
        Kind("JSON plan, range of a tenth", "/api/plan", ours(span), some, span),
        Kind("JSON plan, bloom", "/api/plan", ours(bloom), few, bloom),
        Kind("files to query, point", "/api/files-to-query", domain, one, None),
        Kind("REST plan, point", PLAN, lambda n: _filter("eq", "id", at(n)), one, point, True),
        Kind("REST plan, range of a tenth", PLAN, in_range, some, span, True),
        Kind("REST plan, bloom", PLAN, lambda n: _filter("eq", "key", key_of(at(n))), few, bloom, True),
        Kind(
            "REST plan, point, again", PLAN, lambda _: _filter("eq", "id", 7), one, lambda _: point(0), True
        ),
        Kind("REST plan, all files", PLAN, lambda _: {}, every, None, True),
    ]


# -- measuring ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Load:
    """Figures of one kind of question with some connections."""

    kind: str
    connections: int
    requests: int
    p50_ms: float
    p99_ms: float
    per_second: float
    cpu_ms: float


def load(server: Server, kind: Kind, connections: int, seconds: float, first: int) -> Load:
    """Ask on all connections until the time is over."""
    times: list[list[float]] = [[] for _ in range(connections)]
    failures: list[BaseException] = []
    opened = [server.connect() for _ in range(connections)]
    for connection in opened:
        kind.ask(connection, first)
    cpu, began = server.cpu(), time.perf_counter()

    def run(worker: int) -> None:
        number, now = first + worker + 1, began
        try:
            while now < began + seconds:
                kind.ask(opened[worker], number)
                then, now = now, time.perf_counter()
                times[worker].append(now - then)
                number += connections
        except BaseException as error:  # noqa: BLE001  (raised by the thread that waits)
            failures.append(error)

    threads = [threading.Thread(target=run, args=(worker,)) for worker in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took, spent = time.perf_counter() - began, server.cpu() - cpu
    for connection in opened:
        connection.close()
    if failures:
        raise failures[0]
    every = np.sort(np.concatenate([*map(np.array, times)])) * 1e3
    p50, p99 = (float(np.quantile(every, share)) for share in (0.5, 0.99))
    return Load(kind.name, connections, len(every), p50, p99, len(every) / took, spent / len(every) * 1e3)


def _median_ms(run: Callable[[int], int], files: range) -> float:
    times = []
    for number in range(IN_PROCESS + 1):
        began = time.perf_counter()
        found = run(number)
        times.append((time.perf_counter() - began) * 1e3)
        assert found in files, (found, files)
    # The first opens what the others have.
    return statistics.median(times[1:])


def in_process(served: Served, kind: Kind) -> tuple[float | None, float | None]:
    """Median ms of our plan and of pyiceberg's, in this process."""
    if kind.where is None:
        return None, None
    where = kind.where
    if not kind.on_table:
        lake = sk.open(str(served.lake))
        return _median_ms(lambda n: len(lake.scan(where(n)).plan().tasks), kind.files), None
    table = sk.catalog(served.warehouse).open(TABLE)
    mine = _median_ms(lambda n: len(table.scan(where(n)).plan().tasks), kind.files)
    # Its metadata has no bloom filters.
    all_files = range(served.files, served.files + 1) if "key" in where(0) else kind.files
    return mine, _median_ms(lambda n: len([*table.table.scan(row_filter=where(n)).plan_files()]), all_files)


def sustain(server: Server, asked: Sequence[Kind], count: int, first: int) -> float:
    """Ask a number of mixed questions on one connection, and return the memory after them."""
    connection = server.connect()
    for number in range(first, first + count):
        asked[number % len(asked)].ask(connection, number)
    connection.close()
    return server.memory()


# -- the run -----------------------------------------------------------------------------------


def _draw_loads(
    console: Console, loads: Sequence[Load], alone: Mapping[str, tuple[float | None, float | None]]
) -> None:
    table = Table(title="Planning by the server", title_justify="left")
    for name in (
        "question",
        "connections",
        "p50 ms",
        "p99 ms",
        "per second",
        "CPU ms",
        "in process",
        "pyiceberg",
    ):
        table.add_column(name, justify="left" if name == "question" else "right")
    for one in loads:
        row = [f"{one.connections}", f"{one.p50_ms:.2f}", f"{one.p99_ms:.2f}", f"{one.per_second:,.0f}"]
        peers = alone[one.kind] if one.connections == CONNECTIONS[0] else (None, None)
        row += [f"{one.cpu_ms:.2f}", *("" if ms is None else f"{ms:.2f}" for ms in peers)]
        table.add_row(one.kind if one.connections == CONNECTIONS[0] else "", *row)
    console.print(table)


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.plan_server", description=str(__doc__).splitlines()[0]
    )
    options.add_argument("--quick", action="store_true", help="fewer files, less time")
    options.add_argument("--seconds", type=float, metavar="S", help=f"of each measurement ({SECONDS:g})")
    options.add_argument(
        "--requests", type=int, default=SUSTAINED, metavar="N", help="for memory (%(default)s)"
    )
    options.add_argument("--only", default="", metavar="TEXT", help="kinds of questions whose names have it")
    options.add_argument("--data", type=Path, default=DATA, metavar="DIR", help="where data is kept")
    options.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE")
    given = options.parse_args(argv)
    console = Console(width=None if sys.stdout.isatty() else 132)
    seconds = given.seconds or (QUICK_SECONDS if given.quick else SECONDS)
    data = served(QUICK_FILES if given.quick else FILES, given.data, console)
    every = kinds(data)
    chosen = [kind for kind in every if given.only in kind.name]
    alone = {kind.name: in_process(data, kind) for kind in chosen}
    loads = []
    with serving(data) as server:
        for kind in chosen:
            for number, connections in enumerate(CONNECTIONS):
                loads.append(load(server, kind, connections, seconds, 100_003 * (number + 1)))
    _draw_loads(console, loads, alone)
    with serving(data) as server:
        memory = [sustain(server, every, WARM, 0)]
        steps = range(WARM, WARM + given.requests, STEP)
        memory += [sustain(server, every, STEP, first) for first in steps]
    sizes = ", ".join(f"{one:.1f}" for one in memory)
    console.print(f"Memory of the server after {WARM:,} requests and each {STEP:,} more, in MB: {sizes}")
    if given.json is not None:
        document = {
            "loads": [{name: getattr(one, name) for name in Load.__slots__} for one in loads],
            "in_process": alone,
            "memory_mb": memory,
        }
        given.json.write_text(json.dumps(cast("Any", document), indent=2) + "\n")


if __name__ == "__main__":
    main()
