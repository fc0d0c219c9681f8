"""A stale, partial or missing index costs time, never rows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from skipstone.errors import ReadError
from tests.faults.index._indexes import (
    FILES,
    QUESTIONS,
    check,
    check_all,
    copied,
    manifests,
    open_beside,
    segments,
    write_file,
)


@pytest.mark.parametrize("near", [True, False], ids=["mapped", "fetched"])
def test_missing_segments(root: Path, tmp_path: Path, table: pa.Table, near: bool, size: str) -> None:
    folder = copied(root, tmp_path / "i")
    gone = segments(folder)[0]
    gone.unlink()
    lake, _ = open_beside(root, folder, near=near)
    used = check_all(lake, table)
    assert lake.scan("id > 30 and x < 50").verify().ok
    assert 0 <= used.covered < FILES
    assert used.problems == (f"{gone.name}: segment is missing",)
    report = sk.open(root, index_root=folder).index.refresh(engine="local")
    assert report.indexed == FILES - used.covered
    whole = sk.open(root, index_root=folder)
    assert check_all(whole, table).covered == FILES
    assert whole.scan("id > 30 and x < 50").verify().ok


@pytest.mark.sampled(5)
@pytest.mark.parametrize("near", [True, False], ids=["mapped", "fetched"])
@pytest.mark.parametrize("asked", [True, False], ids=["after a query", "before any"])
@pytest.mark.parametrize("what", ["segments", "manifest", "everything"])
def test_deleted_while_the_lake_is_open(
    root: Path, tmp_path: Path, table: pa.Table, near: bool, asked: bool, what: str, size: str
) -> None:
    folder = copied(root, tmp_path / "i")
    lake, _ = open_beside(root, folder, near=near)
    if asked:
        check(lake, table, QUESTIONS[0])
    if what != "manifest":
        [path.unlink() for path in segments(folder)]
    if what != "segments":
        [path.unlink() for path in manifests(folder)]
    used = check_all(lake, table)
    if not asked and what == "segments":
        assert used.problems


TRUNCATED = """
import os, pathlib, sys
import skipstone as sk

root, folder = map(pathlib.Path, sys.argv[1:])
good = {path: path.read_bytes() for path in folder.glob("segment-*")}

def cut():
    for path in good:
        os.truncate(path, length)

def planned(lake):
    plan = lake.scan("id between 350 and 460").plan()
    cut()
    return len(sk.execute(plan).to_arrow())

def explained(lake):
    asked = lake.scan("id between 350 and 460").aggregate(sk.count(), sk.sum("id"))
    asked.explain()
    cut()
    return list(asked.to_arrow().to_pylist()[0].values())[0]

def scanned(lake):
    return lake.scan("id between 350 and 460").count()

def of_status(lake):
    str(lake.index.status())
    return scanned(lake)

sequences = {
    "listed, cut, scan": lambda lake: (lake.index.coverage, cut(), scanned(lake)),
    "listed, cut, schema": lambda lake: (lake.index.coverage, cut(), len(lake.schema), scanned(lake)),
    "plan, cut, execute": lambda lake: (planned(lake),),
    "scan, cut, status": lambda lake: (scanned(lake), cut(), of_status(lake)),
    "aggregate, cut, answer": lambda lake: (explained(lake),),
    "scan, cut, scan": lambda lake: (lake.scan("id = 5").count(), cut(), scanned(lake)),
    "cut, refresh, scan": lambda lake: (cut(), lake.index.refresh(engine="local"), scanned(lake)),
}
for length in (0, 100, 10_000):
    for name, sequence in sequences.items():
        print(length, name, flush=True)
        assert sequence(sk.open(root, index_root=folder))[-1] == 111, (length, name)
        for path, data in good.items():
            path.write_bytes(data)
print("done")
"""


def test_truncated_while_it_is_in_use(root: Path, tmp_path: Path) -> None:
    """Segments cut short in place, at any time; in a process of its own, which a bus error would end."""
    folder = copied(root, tmp_path / "i")
    arguments = [sys.executable, "-c", TRUNCATED, str(root), str(folder)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run(arguments, capture_output=True, text=True, check=False, env=environment)
    assert ran.returncode == 0, (ran.stdout[-60:], ran.stderr[-2000:])
    assert ran.stdout.endswith("done\n")


@pytest.mark.parametrize("index", [True, False])
def test_a_file_deleted_after_the_listing(own: Path, index: bool) -> None:
    """The index knows it still: who needs its rows gets the error of a file that is gone."""
    lake = sk.open(own)
    (own / "part-1.parquet").unlink()
    with pytest.raises(ReadError, match="no longer exists") as caught:
        lake.scan("id = 417", index=index).to_arrow()
    assert caught.value.path == str(own / "part-1.parquet")
    if index:
        assert lake.scan("id = 5").count() == 1
    lake.refresh()
    assert lake.scan("id = 417").count() == 0
    assert lake.scan("id = 417").trace().index.problems == ()


def test_files_replaced_added_deleted_since(own: Path, table: pa.Table) -> None:
    """Entries of files that changed are not used; those of the others are."""
    path = own / "part-2.parquet"
    before = path.stat()
    data = path.read_bytes()
    write_file(own / "part-9.parquet", 2)
    (own / "part-9.parquet").replace(path)  # the same bytes in another file
    assert path.read_bytes() == data
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert check_all(sk.open(own), table).covered == FILES - 1, "another inode"
    os.utime(own / "part-0.parquet", ns=(0, before.st_mtime_ns + 1_000_000_000))
    assert check_all(sk.open(own), table).covered == FILES - 2, "another time"
    (own / "part-4.parquet").unlink()
    write_file(own / "part-7.parquet", 4)
    lake = sk.open(own)
    assert check_all(lake, table).covered == FILES - 3
    report = lake.index.refresh(engine="local")
    assert (report.indexed, report.already_indexed) == (3, FILES - 3)
    assert check_all(lake, table).covered == FILES
    assert check_all(sk.open(own), table).covered == FILES


def test_rows_replaced_in_a_file_of_the_same_size(tmp_path: Path) -> None:
    """An entry that still fits by name and size would drop the right rows."""
    for number in range(3):
        ids = pa.array(range(100 * number, 100 * number + 100), pa.int64())
        pq.write_table(pa.table({"id": ids}), tmp_path / f"f{number}.parquet", compression="none")
    sk.open(tmp_path).index.build(engine="local")
    victim = tmp_path / "f1.parquet"
    size = victim.stat().st_size
    ids = pa.array(range(70_000, 70_100), pa.int64())
    pq.write_table(pa.table({"id": ids}), tmp_path / "new", compression="none")
    (tmp_path / "new").replace(victim)
    assert victim.stat().st_size == size
    lake = sk.open(tmp_path)
    assert lake.scan("id = 70007").count() == 1
    assert lake.scan("id = 107").count() == 0
    assert lake.scan("id = 70007").trace().index.covered == 2
