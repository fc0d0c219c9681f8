"""What a question costs: no footer is opened, and the index takes a few requests for any number of files."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from skipstone.index.container import COMMON, Container, RemoteFile
from skipstone.store.cache import Cache
from skipstone.store.store import open_store
from tests.faults._store import Request, WatchedStore

ROWS = 4000


def table(number: int) -> pa.Table:
    ids = np.arange(number * ROWS, (number + 1) * ROWS)
    rng = np.random.default_rng(number)
    return pa.table(
        {
            "id": ids,
            "key": ids * 7919 % 1_000_003,
            "x": rng.random(ROWS),
            "text": [f"payload {n} {n * 31 % 977}" for n in ids.tolist()],
        }
    )


def write(root: Path, files: int) -> Path:
    root.mkdir(parents=True)
    for number in range(files):
        pq.write_table(
            table(number),
            root / f"f{number:03d}.parquet",
            row_group_size=1000,
            max_rows_per_page=100,
            write_batch_size=100,
            write_page_index=True,
            use_dictionary=False,
            compression="none",
        )
    return root


@dataclass
class Home:
    """A lake and its index, on disk or on S3, whose requests are watched."""

    uri: str
    options: dict[str, str] | None
    sizes: dict[str, int]
    ends: dict[str, int]
    """Where the data of each file ends and its indexes and footer begin."""

    def open(self) -> tuple[sk.Lake, WatchedStore]:
        store, _ = open_store(self.uri, storage_options=self.options)
        watched = WatchedStore(store, local=store.local)
        return sk.Lake(watched, ""), watched

    def data(self, store: WatchedStore) -> list[Request]:
        return [r for r in store.requests if r.key in self.sizes]

    def index(self, store: WatchedStore) -> list[Request]:
        return [r for r in store.requests if r.key not in self.sizes]

    def touched_metadata(self, store: WatchedStore) -> list[Request]:
        """Requests that touch anything behind the data of a file."""
        return [r for r in self.data(store) if any(s.stop > self.ends[r.key] for s in r.ranges)]


def data_end(path: Path) -> int:
    footer = pq.read_metadata(path)
    groups = [footer.row_group(n) for n in range(footer.num_row_groups)]
    chunks = [group.column(n) for group in groups for n in range(footer.num_columns)]
    return max(c.data_page_offset + c.total_compressed_size for c in chunks)


def upload(root: Path, options: dict[str, str], name: str) -> str:
    bucket = obstore.store.S3Store("bucket", config=options)
    for path in root.rglob("*"):
        if path.is_file():
            obstore.put(bucket, f"{name}/{path.relative_to(root)}", path.read_bytes())
    return f"s3://bucket/{name}/"


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory, s3: dict[str, str]) -> dict[tuple[str, int], Home]:
    """Lakes of 5 and of 40 files, on disk and on S3, each with an index."""
    found = {}
    for files in (5, 40):
        root = write(tmp_path_factory.mktemp("requests") / "lake", files)
        paths = list(root.glob("*.parquet"))
        sizes = {p.name: p.stat().st_size for p in paths}
        ends = {p.name: data_end(p) for p in paths}
        uri = upload(root, s3, f"lake-{files}")
        for where, store, options in (("disk", str(root), None), ("s3", uri, s3)):
            sk.open(store, storage_options=options).index.build(["id", "key"], blooms=["key"], engine="local")
            found[where, files] = Home(store, options, sizes, ends)
    return found


@pytest.mark.sampled(3)
@pytest.mark.parametrize("files", [5, 40])
@pytest.mark.parametrize("where", ["disk", "s3"])
@pytest.mark.parametrize(
    ("ask", "rows"),
    [
        ("id = 9123", 1),
        (f"key = {9123 * 7919 % 1_000_003}", 1),
        ("id between 9990 and 10010", 21),
        ("id in (5, 19999)", 2),
        ("key = 1000004", 0),
    ],
)
def test_no_footer_is_opened(homes: Any, where: str, files: int, ask: str, rows: int) -> None:
    """And of data files nothing but pages of the wanted columns is asked for."""
    home: Home = homes[where, files]
    lake, store = home.open()
    scan = lake.scan(ask, columns=["id", "text"])
    plan = scan.plan()
    assert not home.data(store), "planning needs the index alone"
    assert scan.to_arrow().num_rows == rows
    assert home.touched_metadata(store) == []
    touched = home.data(store)
    assert {r.key for r in touched} == {Path(task.path).name for task in plan.tasks}
    # A bloom filter may be wrong now and then, about a page.
    assert len({r.key for r in touched}) <= rows + ("key" in ask) * files // 2
    # A page of ids has 800 bytes, one of texts some 2,500: whole chunks would be ten times that.
    assert sum(r.bytes for r in touched) <= max(rows, 1) * 2 * 6_000 + ("key" in ask) * files * 2_000
    index = lake.scan(ask).trace().index
    assert index is not None
    assert index.covered == files


@pytest.mark.parametrize("where", ["disk", "s3"])
def test_of_a_long_list_only_keys_between_bounds_are_looked_up(homes: Any, where: str) -> None:
    home: Home = homes[where, 40]
    lake, store = home.open()
    keys = [n * 7919 % 1_000_003 for n in (9_123, *range(200_000, 200_005))]
    join = ("key", [*keys, *range(2_000_000, 2_006_000, 2)])
    scan = lake.scan(columns=["id"], semi_join=join)
    plan = scan.plan()
    assert home.data(store) == []
    # The filters of a few other pages seem to have one of five keys.
    assert 100 <= plan.rows <= 2_000
    assert lake.scan(semi_join=join, bloom_filter=False).plan().rows > 100_000
    assert scan.to_arrow()["id"].to_pylist() == [9_123]


def test_without_the_index_footers_are_opened(homes: Any) -> None:
    """What the tests above would miss if they could not see it."""
    home: Home = homes["disk", 5]
    lake, store = home.open()
    assert lake.scan("id = 9123", index=False).count() == 1
    assert {r.key for r in home.touched_metadata(store)} == {*home.sizes}


@pytest.mark.parametrize("where", ["s3"])
def test_the_index_costs_the_same_for_any_number_of_files(homes: Any, where: str) -> None:
    """First question, the same again, another one."""
    costs: dict[int, list[int]] = {}
    for files in (5, 40):
        home: Home = homes[where, files]
        lake, store = home.open()
        spent = []
        for ask in ("id = 9123", "id = 9123", "id = 17", "id = 12345 and key > 5"):
            before = lake.index.access.io()
            store.requests.clear()
            assert lake.scan(ask, columns=["id"]).to_arrow().num_rows <= 1
            io = lake.index.access.io() - before
            spent.append(io.requests)
        costs[files] = spent
        assert spent[0] <= 20, spent
        assert spent[1] == 0, "a plan is kept"
    first, second = costs.values()
    assert first == second, "one segment in either"
    for spent in costs.values():
        assert spent[2] == 0, costs
        assert spent[3] <= 4, costs


def test_requests_for_data_are_page_ranges(homes: Any) -> None:
    """On S3 a point takes one request per column's page, or one for both where they lie together."""
    home: Home = homes["s3", 40]
    lake, store = home.open()
    assert lake.scan("id = 70123", columns=["id"]).to_arrow()["id"].to_pylist() == [70123]
    ranges = [s for r in home.data(store) for s in r.ranges]
    assert len(ranges) == 1
    assert ranges[0].length < 2_000
    lake, store = home.open()
    assert lake.scan("id = 70123", columns=["id", "text"]).to_arrow().num_rows == 1
    assert len([s for r in home.data(store) for s in r.ranges]) <= 3
    before = lake.access.io()
    lake.scan("id = 70124", columns=["id", "text"]).to_arrow()
    assert (lake.access.io() - before).requests <= 2


def test_a_count_that_metadata_proves_reads_nothing(homes: Any) -> None:
    home: Home = homes["s3", 40]
    lake, store = home.open()
    assert lake.scan("id < 8000").count() == 8000
    assert lake.scan(None).count() == 40 * ROWS
    assert not home.data(store)


# -- wide tables -------------------------------------------------------------------------------

WIDE = 1000


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory, s3: dict[str, str]) -> tuple[Home, Path]:
    root = tmp_path_factory.mktemp("wide") / "lake"
    root.mkdir()
    for number in range(2):
        ids = np.arange(number * 50, number * 50 + 50)
        columns = {f"c{n:04d}": ids + n for n in range(WIDE)}
        pq.write_table(
            pa.table(columns), root / f"f{number}.parquet", row_group_size=25, write_page_index=True
        )
    paths = list(root.glob("*.parquet"))
    uri = upload(root, s3, "wide")
    sk.open(uri, storage_options=s3).index.build(
        [f"c{n:04d}" for n in range(0, WIDE, 2)], values=False, engine="local"
    )
    home = Home(uri, s3, {p.name: p.stat().st_size for p in paths}, {p.name: data_end(p) for p in paths})
    return home, root


def test_a_wide_table_loads_what_it_uses(wide: tuple[Home, Path], s3: dict[str, str]) -> None:
    """One column asked about, one wanted: of the index come its directory and the arrays of these two."""
    home, _ = wide
    lake, store = home.open()
    assert lake.scan("c0500 = 547", columns=["c0731"]).to_arrow().to_pydict() == {"c0731": [778]}
    assert home.touched_metadata(store) == []
    bucket = obstore.store.S3Store("bucket", config=s3)
    fetched: Counter[str] = Counter()
    bodies: dict[str, int] = {}
    for request in home.index(store):
        if not request.key.startswith("segment-"):
            continue
        body = bytes(obstore.get(bucket, f".skipstone/wide/{request.key}").bytes())
        bodies[request.key] = len(body)
        source = RemoteFile(request.key, lambda ranges, body=body: [body[r.start : r.stop] for r in ranges])
        box = Container.open_alone(request.key, source, len(body), Cache(1))
        paths = json.loads(box.head["segment"])["paths"]
        stores = {key: box.span(key) for key in box.arrays()}
        for span in request.ranges:
            if span.start >= len(body) - box.tail - 64:
                fetched["directory"] += span.length
                continue
            owner = [k for k, e in stores.items() if e.start <= span.start and span.stop <= e.stop]
            owner = [k for k in owner if stores[k].length]
            assert owner, f"{span} is no part of one array"
            name = "common" if owner[0][0] == COMMON else paths[owner[0][0]][0]
            fetched[name] += span.length
    assert {*fetched} <= {"directory", "common", "c0500", "c0731"}, fetched
    assert fetched["c0500"] + fetched["c0731"] < 5_000
    whole = sum(bodies.values())
    assert sum(fetched.values()) < whole / 2, (fetched, whole)


def test_a_wide_table_costs_no_more_the_second_time(wide: tuple[Home, Path]) -> None:
    home, _ = wide
    lake, _store = home.open()
    lake.scan("c0500 = 547", columns=["c0731"]).to_arrow()
    before = lake.index.access.io()
    lake.scan("c0500 = 510", columns=["c0731"]).to_arrow()
    after = lake.index.access.io() - before
    assert after.requests <= 8
    assert after.bytes < 200_000
