"""A file that changes between planning and reading is noticed, on disk and on S3."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pytest

import skipstone as sk
from skipstone.errors import ReadError
from tests.faults._files import FILES, ROWS, fault_table, write_file

VICTIM = "part-1.parquet"
ALL = pa.concat_tables([fault_table(n) for n in range(FILES)])
SWITCHES = ({}, {"route": "slice"}, {"materialise": "late"}, {"materialise": "one-pass"}, {"threads": 2})


class Disk:
    """A lake on disk that can be changed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.path = str(root / VICTIM)

    def open(self) -> Any:
        return sk.open(self.root)

    def get(self) -> bytes:
        return (self.root / VICTIM).read_bytes()

    def put(self, data: bytes) -> None:
        before = (self.root / VICTIM).stat()
        (self.root / VICTIM).write_bytes(data)
        # A clock that ticks slowly must not hide the change.
        os.utime(self.root / VICTIM, ns=(before.st_atime_ns, before.st_mtime_ns + 10_000_000))

    def delete(self) -> None:
        (self.root / VICTIM).unlink()


class Bucket:
    """The same on S3."""

    def __init__(self, root: Path, options: dict[str, str], name: str) -> None:
        self.options, self.name = options, name
        self.store = obstore.store.S3Store("bucket", config=options)
        self.path = f"s3://bucket/{name}/{VICTIM}"
        for file in root.iterdir():
            obstore.put(self.store, f"{name}/{file.name}", file.read_bytes())

    def open(self) -> Any:
        return sk.open(f"s3://bucket/{self.name}/", storage_options=self.options)

    def get(self) -> bytes:
        return bytes(obstore.get(self.store, f"{self.name}/{VICTIM}").bytes())

    def put(self, data: bytes) -> None:
        obstore.put(self.store, f"{self.name}/{VICTIM}", data)

    def delete(self) -> None:
        obstore.delete(self.store, f"{self.name}/{VICTIM}")


Home = Disk | Bucket


@pytest.fixture(params=["disk", "s3"])
def home(request: pytest.FixtureRequest, own_lake: Path) -> Iterator[Home]:
    if request.param == "disk":
        yield Disk(own_lake)
    else:
        yield Bucket(own_lake, request.getfixturevalue("s3"), own_lake.name)


def replaced(home: Home, own_lake: Path) -> None:
    other = own_lake / "other"
    write_file(other, 7)
    home.put(other.read_bytes() + b"")
    other.unlink()


def rewritten(home: Home, own_lake: Path) -> None:
    data = bytearray(home.get())
    data[40] ^= 1
    home.put(bytes(data))


CHANGES: dict[str, Callable[[Home, Path], None]] = {
    "deleted": lambda home, _: home.delete(),
    "replaced": replaced,
    "truncated": lambda home, _: home.put(home.get()[:-1000]),
    "emptied": lambda home, _: home.put(b""),
    "grown": lambda home, _: home.put(home.get() + b"more"),
    "rewritten in the same size": rewritten,
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize(
    ("home", "switches"),
    [*(("disk", switches) for switches in SWITCHES), ("s3", {}), ("s3", {"materialise": "late"})],
    indirect=["home"],
    ids=str,
)
def test_between_plan_and_execution(
    home: Home, own_lake: Path, change: Callable[[Home, Path], None], switches: dict[str, Any]
) -> None:
    lake = home.open()
    plan = lake.scan("x < 50", **switches).plan()
    copy = pickle.loads(pickle.dumps(sk.with_credentials(plan)))
    other = lake.scan(f"id < {ROWS} and x < 50", **switches).plan()
    change(home, own_lake)
    for stale in (plan, copy):
        with pytest.raises(ReadError) as caught:
            sk.execute(stale).to_arrow()
        assert caught.value.path == home.path
        assert caught.value.hint
    # A plan without that file doesn't care.
    mask = [n < ROWS and n * 37 % 101 < 50 for n in range(FILES * ROWS)]
    assert sk.execute(other).to_arrow().equals(ALL.filter(pa.array(mask)))


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_between_opening_and_planning(
    home: Home, own_lake: Path, change: Callable[[Home, Path], None]
) -> None:
    lake = home.open()
    version = lake.version
    change(home, own_lake)
    with pytest.raises(ReadError) as caught:
        lake.scan("x < 50").to_arrow()
    assert caught.value.path == home.path
    lake.refresh()
    assert lake.version != version


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_while_batches_are_being_read(
    home: Home, own_lake: Path, change: Callable[[Home, Path], None]
) -> None:
    """Rows that came before are the file's own; then the error, never an early end."""
    reader = home.open().scan("x < 50", threads=1, memory=100_000, batch_rows=50).to_reader()
    rows = [reader.read_next_batch()]
    change(home, own_lake)
    with pytest.raises(ReadError) as caught:
        rows.extend(reader)
    assert caught.value.path == home.path
    got = pa.Table.from_batches(rows)
    mask = [n * 37 % 101 < 50 for n in range(FILES * ROWS)]
    assert got.equals(ALL.filter(pa.array(mask)).slice(0, got.num_rows))
    assert 0 < got.num_rows < sum(mask[: 2 * ROWS])


def test_a_refreshed_lake_reads_the_new_file(home: Home, own_lake: Path) -> None:
    lake = home.open()
    assert lake.scan().count() == FILES * ROWS
    before = lake.version
    replaced(home, own_lake)
    lake.refresh()
    assert lake.version != before
    found = lake.scan(f"id >= {7 * ROWS}", columns=["id"]).to_arrow()
    assert found["id"].to_pylist() == list(range(7 * ROWS, 8 * ROWS))
    home.delete()
    lake.refresh()
    assert len(lake.files) == FILES - 1
    assert lake.scan().count() == (FILES - 1) * ROWS


def test_a_new_file_is_no_part_of_a_pinned_lake(home: Home, own_lake: Path) -> None:
    lake = home.open()
    assert lake.scan().count() == FILES * ROWS
    write_file(own_lake / "part-9.parquet", 9)
    if isinstance(home, Bucket):
        obstore.put(home.store, f"{home.name}/part-9.parquet", (own_lake / "part-9.parquet").read_bytes())
    assert lake.scan().count() == FILES * ROWS
    lake.refresh()
    assert lake.scan().count() == (FILES + 1) * ROWS
