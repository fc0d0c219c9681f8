"""Parquet files of several writers, changed byte by byte or field by field, and what is asked of them.

As a program it asks a range of mutants within bounds of memory and time, and says which one it is at: from
its last line the test that started it learns what a crash was about.

    python -m tests.faults._mutants SEED FIRST COUNT FOLDER
"""

from __future__ import annotations

import copy
import functools
import io
import json
import random
import resource
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

import skipstone as sk
from tests.property._patch import BINARY, FALSE, LIST, STRUCT, TRUE, Struct, _Reader, encode

ROWS = 240
MEMORY = 1 << 30
SECONDS = 20
PREDICATES = (
    "id = 17",
    "id >= 200",
    "text = 'word 3' or x > 50",
    "x is null",
    "st.a < 3 and id between 40 and 90",
    "text in ('word 1', 'none') and not flag",
    "day >= date '2026-01-20'",
)


# -- sound files -------------------------------------------------------------------------------


@functools.cache
def table() -> pa.Table:
    """Few rows of many types, some of them NULL."""
    some = range(ROWS)
    return pa.table(
        {
            "id": pa.array(some, pa.int64()),
            "x": pa.array([None if n % 11 == 0 else float("nan") if n % 13 == 0 else n / 3 for n in some]),
            "text": pa.array([None if n % 7 == 0 else f"word {n % 9}" for n in some]),
            "day": pa.array([20_450 + n // 4 for n in some], pa.int32()).cast(pa.date32()),
            "flag": pa.array([n % 3 == 0 for n in some]),
            "list": pa.array([None if n % 10 == 9 else [*range(n % 4)] for n in some], pa.list_(pa.int32())),
            "st": pa.array(
                [None if n % 8 == 7 else {"a": n % 5, "b": ["b"] * (n % 3)} for n in some],
                pa.struct([("a", pa.int16()), ("b", pa.list_(pa.string()))]),
            ),
            "ids": pa.ListArray.from_arrays(
                pa.array(range(ROWS + 1), pa.int32()),
                pa.array([n.to_bytes(16, "big") for n in some], pa.uuid()),
            ),
        }
    )


def _arrow(**options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table(), sink, row_group_size=100, **options)
    return sink.getvalue()


def _plain(data: bytes) -> bytes:
    """The same file by a writer that says no more than it must."""

    def bare(footer: Struct) -> None:
        for number in (5, 6, 7):
            footer.pop(number, None)
        for group in footer[4][1][1]:
            for number in (*range(4, 8),):
                group.pop(number, None)
            for chunk in group[1][1][1]:
                for number in (10, 11, 12, 13, 14, 15, 16):
                    dictionary = chunk[3][1].pop(number, None)
                    if number == 11 and dictionary:
                        # Without its own field the dictionary page is where the chunk begins.
                        chunk[3][1][9] = dictionary

    return with_footer(data, bare)


@functools.cache
def sound() -> dict[str, bytes]:
    """Files by writer; what they have in common is the table."""
    paged = {"write_page_index": True, "max_rows_per_page": 25, "write_batch_size": 25}
    blooms = {"bloom_filter_options": {"id": {"ndv": 100}, "text": {"ndv": 20}}}
    made = {
        "v1": _arrow(compression="none", **paged),
        "v2": _arrow(compression="zstd", data_page_version="2.0", write_page_checksum=True, **paged),
        "blooms": _arrow(compression="snappy", use_dictionary=["text"], **paged, **blooms),
        "gzip": _arrow(compression="gzip", data_page_version="2.0"),
        "coded": _arrow(
            compression="lz4",
            use_dictionary=False,
            column_encoding={"id": "DELTA_BINARY_PACKED", "x": "BYTE_STREAM_SPLIT"},
            **paged,
        ),
    }
    made["bare"] = _plain(made["v1"])
    sink = io.BytesIO()
    frame = pl.from_arrow(table().drop_columns("ids"))
    assert isinstance(frame, pl.DataFrame)
    frame.write_parquet(sink, row_group_size=100, data_page_size=400)
    made["polars"] = sink.getvalue()
    return made


def with_duckdb(folder: Path) -> dict[str, bytes]:
    """The same, with a file of DuckDB, which writes to a path only."""
    path = folder / "duck.parquet"
    rows = table().drop_columns("ids")
    con = duckdb.connect()
    con.register("rows", rows)
    con.sql("select * from rows").write_parquet(str(path), row_group_size=2048)
    con.close()
    return {**sound(), "duckdb": path.read_bytes()}


# -- bytes -------------------------------------------------------------------------------------


def mutate(rng: random.Random, data: bytes) -> bytes:
    """Flip, cut, drop, repeat or splice a few bytes."""
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 5, 20])):
        at = rng.randrange(len(out) or 1)
        match rng.randrange(6):
            case 0:
                out[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                out[at : at + 1] = bytes([(out[at] if out else 0) ^ (1 << rng.randrange(8))])
            case 2 if rng.random() < 0.3:
                del out[at:]
            case 3:
                del out[at : at + rng.randrange(1, 9)]
            case 4:
                start = rng.randrange(len(data))
                out[at:at] = data[start : start + rng.randrange(1, 40)]
            case _:
                out[at : at + 1] = rng.choice(
                    [b"\xff" * 9 + b"\x01", b"\xff\xff\xff\xff\x0f", b"\x1c\x1c", b"\x00"]
                )
    return bytes(out)


def _flip(rng: random.Random, data: bytes) -> bytes:
    """A few bytes in place, so that everything else is where it was."""
    out = bytearray(data)
    start = footer_start(data)
    low, high = rng.choice([(4, start), (4, start), (start, len(data) - 8), (0, len(data))])
    for _ in range(rng.choice([1, 1, 2, 6])):
        out[rng.randrange(low, high)] = rng.choice([0, 0xFF, rng.randrange(256)])
    return bytes(out)


def _cut(rng: random.Random, data: bytes) -> bytes:
    """The file up to some byte, or with a hole, its footer kept or not."""
    start = footer_start(data)
    at = rng.randrange(4, start)
    if rng.random() < 0.3:
        return data[:at]
    return data[:at] + data[min(at + rng.choice([1, 8, 300, ROWS]), start) :]


def _splice(rng: random.Random, data: bytes) -> bytes:
    """One part of the file over another."""
    out = bytearray(data)
    size = rng.choice([4, 30, 200])
    here, there = rng.randrange(4, len(data) - 8), rng.randrange(4, len(data) - 8)
    out[here : here + size] = data[there : there + size]
    return bytes(out[: len(data) - 8]) + data[-8:]


# -- fields ------------------------------------------------------------------------------------


def footer_start(data: bytes) -> int:
    """Where the footer begins."""
    return len(data) - 8 - int.from_bytes(data[-8:-4], "little")


def with_footer(data: bytes, change: Callable[[Struct], None], extra: bytes = b"") -> bytes:
    """The file with another footer, and with more bytes before it."""
    start = footer_start(data)
    footer = _Reader(data, start).struct()
    change(footer)
    new = encode(footer)
    return data[:start] + extra + new + len(new).to_bytes(4, "little") + b"PAR1"


@dataclass(frozen=True)
class _Node:
    """A field of a struct or an element of a list, and how to set it."""

    kind: int
    value: Any
    put: Callable[[int, Any], None]
    drop: Callable[[], None]


def _nodes(fields: Struct) -> Iterator[_Node]:
    for number, entry in list(fields.items()):

        def put(kind: int, value: Any, number: int = number) -> None:
            fields[number] = [kind, value]

        yield _Node(entry[0], entry[1], put, functools.partial(fields.pop, number))
        yield from _below(*entry)


def _below(kind: int, value: Any) -> Iterator[_Node]:
    if kind == STRUCT:
        yield from _nodes(value)
    elif kind == LIST:
        item, items = value
        for place, one in enumerate(items):

            def put(_: int, new: Any, place: int = place, items: list[Any] = items) -> None:
                items[place] = new

            yield _Node(item, one, put, functools.partial(items.__delitem__, place))
            yield from _below(item, one)


def change_field(rng: random.Random, fields: Struct) -> None:
    """One field or element gone, or with another value."""
    nodes = list(_nodes(fields))
    if not nodes:
        return
    # As often a struct's own field as something deep inside.
    node = rng.choice(nodes[: rng.choice([3, 12, len(nodes)])] if rng.random() < 0.5 else nodes)
    what, kind, value = rng.random(), node.kind, node.value
    if what < 0.25:
        node.drop()
    elif kind == LIST:
        item, items = value
        changed = rng.choice([[], items * 2, items[1:], items[:-1], items[::-1], items * 50])
        node.put(kind, (item, copy.deepcopy(changed)))
    elif kind in (4, 5, 6):
        near = [value - 1, value + 1, value * 2, -value, value ^ 1 << rng.randrange(20)]
        far = [0, 1, -1, 7, 127, 2**15, 2**31 - 1, -(2**31), 10**7]
        if kind == 6:
            far += [2**31, 2**40, 2**62, 2**63 - 1, -(2**63)]
        new = rng.choice(near + far)
        node.put(kind, max(min(new, 2 ** (63 if kind == 6 else 31) - 1), -(2 ** (63 if kind == 6 else 31))))
    elif kind == BINARY:
        node.put(kind, rng.choice([b"", value[:-1], value + b"\xff", rng.randbytes(8), value * 3]))
    elif kind in (TRUE, FALSE):
        node.put(kind, not value)
    elif kind == STRUCT:
        node.put(kind, rng.choice([{}, {15: [5, 1]}]))
    else:
        node.drop()


def _chunk(rng: random.Random, data: bytes, needs: int | None = None) -> tuple[int, int] | None:
    """Row group and column of a chunk, of those that have a field of ColumnChunk."""
    footer = _Reader(data, footer_start(data)).struct()
    found = [
        (g, c)
        for g, group in enumerate(footer[4][1][1])
        for c, chunk in enumerate(group[1][1][1])
        if needs is None or needs in (chunk if needs < 10 else chunk[3][1])
    ]
    return rng.choice(found) if found else None


def _footer_field(rng: random.Random, data: bytes) -> bytes:
    times = rng.choice([1, 1, 1, 2, 4])
    return with_footer(data, lambda footer: [change_field(rng, footer) for _ in range(times)] and None)


def _chunk_field(rng: random.Random, data: bytes) -> bytes:
    """A field of one chunk, or the row counts of all that should agree."""
    where = _chunk(rng, data)
    assert where is not None

    def change(footer: Struct) -> None:
        group = footer[4][1][1][where[0]]
        if rng.random() < 0.25:
            rows = max(group[3][1] + rng.choice([-1, 1, 50, 10_000, 10**6]), 0)
            footer[3][1] += rows - group[3][1]
            group[3][1] = rows
            for chunk in group[1][1][1]:
                chunk[3][1][5][1] = rows
        else:
            change_field(rng, group[1][1][1][where[1]][3][1])

    return with_footer(data, change)


def _elsewhere(rng: random.Random, data: bytes, offset: int, length: int) -> bytes:
    """A field of the column index (6, 7) or offset index (4, 5) of a chunk, written to another place."""
    where = _chunk(rng, data, offset)
    if where is None:
        return _flip(rng, data)
    footer = _Reader(data, footer_start(data)).struct()
    start = footer[4][1][1][where[0]][1][1][1][where[1]][offset][1]
    index = _Reader(data, start).struct()
    change_field(rng, index)
    new = encode(index)

    def change(footer: Struct) -> None:
        chunk = footer[4][1][1][where[0]][1][1][1][where[1]]
        chunk[offset][1], chunk[length][1] = footer_start(data), len(new)

    return with_footer(data, change, new)


def _bloom_field(rng: random.Random, data: bytes) -> bytes:
    where = _chunk(rng, data, 14)
    if where is None:
        return _flip(rng, data)
    footer = _Reader(data, footer_start(data)).struct()
    meta = footer[4][1][1][where[0]][1][1][1][where[1]][3][1]
    reader = _Reader(data, meta[14][1])
    header = reader.struct()
    size = header[1][1]
    change_field(rng, header)
    new = encode(header) + data[reader.at : reader.at + size]

    def change(footer: Struct) -> None:
        meta = footer[4][1][1][where[0]][1][1][1][where[1]][3][1]
        meta[14][1] = footer_start(data)
        if 15 in meta:
            meta[15][1] = len(new)

    return with_footer(data, change, new)


def _page_field(rng: random.Random, data: bytes) -> bytes:
    """A field of one page's header: in place if it takes as many bytes, else the chunk goes elsewhere."""
    where = _chunk(rng, data)
    assert where is not None
    footer = _Reader(data, footer_start(data)).struct()
    meta = footer[4][1][1][where[0]][1][1][1][where[1]][3][1]
    first = meta[9][1]
    if 11 in meta and 0 < meta[11][1] < first:
        first = meta[11][1]
    places, at = [], first
    while at < first + meta[7][1]:
        reader = _Reader(data, at)
        head = reader.struct()
        places.append((at, reader.at, head))
        at = reader.at + head[3][1]
    begin, end, head = rng.choice(places)
    for _ in range(rng.choice([1, 1, 2])):
        change_field(rng, head)
    new = encode(head)
    if len(new) == end - begin:
        return data[:begin] + new + data[end:]
    moved = footer_start(data) - first

    def change(footer: Struct) -> None:
        meta = footer[4][1][1][where[0]][1][1][1][where[1]][3][1]
        for number in (9, 11):
            if number in meta:
                meta[number][1] += moved + (len(new) - (end - begin)) * (meta[number][1] > begin)
        meta[7][1] += len(new) - (end - begin)

    return with_footer(data, change, data[first:begin] + new + data[end : first + meta[7][1]])


_offset_index_field = functools.partial(_elsewhere, offset=4, length=5)
_column_index_field = functools.partial(_elsewhere, offset=6, length=7)

MUTATIONS: dict[str, Callable[[random.Random, bytes], bytes]] = {
    "bytes": mutate,
    "flip": _flip,
    "cut": _cut,
    "splice": _splice,
    "footer": _footer_field,
    "chunk": _chunk_field,
    "page": _page_field,
    "column index": _column_index_field,
    "offset index": _offset_index_field,
    "bloom": _bloom_field,
}
_WEIGHTS = (2, 3, 1, 1, 4, 4, 5, 2, 2, 1)


def mutant(seed: str, files: dict[str, bytes]) -> tuple[str, bytes]:
    """The mutant of a seed: what it is, and its bytes."""
    rng = random.Random(seed)
    writer = rng.choice(list(files))
    (how,) = rng.choices(list(MUTATIONS), _WEIGHTS)
    return f"{writer}, {how}", MUTATIONS[how](rng, files[writer])


# -- questions ---------------------------------------------------------------------------------


def same(left: pa.Table, right: pa.Table) -> bool:
    """Whether two tables have the same rows, NaN being itself."""
    if left.column_names != right.column_names or len(left) != len(right):
        return False
    return all(
        mine.equals(other) or repr(mine.to_pylist()) == repr(other.to_pylist())
        for mine, other in zip(left.columns, right.columns, strict=True)
    )


def expected_rows(path: Path) -> pa.Table | None:
    """What pyarrow reads, row group by row group; None if it refuses one.

    All at once it lets the rows that a row group has too many run into the next.
    """
    try:
        with pq.ParquetFile(path) as file:
            groups = [file.read_row_group(n, use_threads=False) for n in range(file.num_row_groups)]
            return pa.concat_tables([*groups, pa.Table.from_batches([], file.schema_arrow)])
    except (pa.ArrowException, OSError, ValueError, MemoryError):
        return None


def ask(seed: str, path: Path, count: Counter[str], *, everything: bool = False) -> None:
    """Ask a file for its rows, and some of the other questions; any foreign error goes on to the caller."""
    rng = random.Random(f"{seed}:ask")

    def attempt(what: str, question: Callable[[], Any]) -> Any:
        try:
            found = question()
        except sk.SkipstoneError:
            count[f"{what} refused"] += 1
            return None
        count[what] += 1
        return found

    lake = attempt("open", lambda: sk.open(path))
    if lake is None:
        return
    # So little memory that row groups are read a few rows at a time, or all there is.
    read: dict[str, Any] = {"memory": rng.choice([20_000, 2**27]), "batch_rows": rng.choice([16, 65_536])}
    read["route"] = rng.choice(["auto", "auto", "slice", "pyarrow"])
    limit = rng.choice([1, 7, 130])
    expected = expected_rows(path)
    for what, rows in (("scan", None), ("limit", limit)):
        found = attempt(what, lambda rows=rows: lake.scan(limit=rows, skipping=False, **read).to_arrow())
        if found is not None:
            assert len(found) == lake.scan(limit=rows).count(), "rows are not as many as the footer says"
        if found is not None and expected is not None:
            assert same(found, expected.slice(0, rows)), "rows differ from those that pyarrow reads"
            count["compared"] += 1
    where = rng.choice(PREDICATES)
    measures = (sk.count(), sk.sum("id"), sk.min("x"), sk.max("text"))
    late = rng.choice(["auto", "late"])

    def indexed() -> pa.Table:
        lake = sk.open(path.parent)
        lake.index.build(engine="local")
        return sk.open(path.parent).scan(where, **read).to_arrow()

    questions: dict[str, Callable[[], Any]] = {
        "prune": lambda: sk.prune(path, where),
        "filter": lambda: lake.scan(where, materialise=late, **read).to_arrow(),
        "limited filter": lambda: lake.scan(where, limit=limit, checksums=True, **read).to_arrow(),
        "count": lambda: lake.scan(where, **read).count(),
        "aggregate": lambda: lake.scan(rng.choice([None, where])).aggregate(*measures).to_arrow(),
        "nothing": lambda: lake.scan("id < -1", **read).to_arrow(),
        "order": lambda: lake.scan(order_by=["x"], limit=limit, **read).to_arrow(),
        "statistics": lambda: lake.statistics(["id", "text"]),
        "index": indexed,
        "verify": lambda: lake.scan(where).verify(),
    }
    for what in questions if everything else rng.sample(sorted(questions), 3):
        attempt(what, questions[what])


def main(seed: str, first: int, cases: int, folder: Path) -> None:
    """Ask ``cases`` mutants, each within bounds; the last line tells what was counted."""
    files = with_duckdb(folder)
    for name, data in files.items():
        # Once unbounded, which loads all code, and shows that the questions have answers.
        path = folder / name / "x.parquet"
        path.parent.mkdir()
        path.write_bytes(data)
        warm: Counter[str] = Counter()
        ask("sound", path, warm, everything=True)
        assert warm["compared"] == 2, (name, warm)
        assert not any(what.endswith("refused") for what in warm), (name, warm)
    limit_memory()
    count: Counter[str] = Counter()
    for number in range(first, first + cases):
        what, data = mutant(f"{seed}:{number}", files)
        # Before anything is asked: a crash leaves no time for it.
        print(json.dumps({"case": number, "what": what}), flush=True)
        home = folder / f"{number}"
        home.mkdir()
        path = home / "x.parquet"
        path.write_bytes(data)
        # Time of the processor, not of the clock: a busy machine makes no mutant slow.
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        ask(f"{seed}:{number}", path, count)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert grown * 1024 < MEMORY // 2, f"{grown} kB of memory"
        count["cases"] += 1
        shutil.rmtree(home)
    print(json.dumps({"done": count}), flush=True)


def limit_memory() -> None:
    """No more than so much beyond what is mapped by now."""
    status = Path("/proc/self/status").read_text()
    mapped = next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmSize"))
    resource.setrlimit(resource.RLIMIT_AS, (mapped + 2 * MEMORY, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
