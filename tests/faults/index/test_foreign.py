"""An index of another format or of another lake, or none at all, is told and left alone."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from xxhash import xxh3_64_hexdigest

import skipstone as sk
from skipstone.errors import SkipstoneError
from skipstone.index.container import FORMAT
from tests.faults.index._indexes import (
    FILES,
    build,
    check_all,
    copied,
    manifests,
    open_beside,
)
from tests.support.stores import own_files


def reformatted(path: Path, number: int) -> None:
    """The file under another format number, with checksums that are right."""
    data = path.read_bytes()
    if path.suffix == ".skip":
        assert struct.unpack_from("<I", data, len(data) - 48)[0] == FORMAT
        path.write_bytes(data[:-48] + struct.pack("<I", number) + data[-44:])
    else:
        path.write_bytes(re.sub(rb"format \d+", f"format {number}".encode(), data, count=1))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("number", [0, FORMAT + 1, 77])
@pytest.mark.parametrize("kind", ["segment", "manifest"])
def test_another_format(root: Path, tmp_path: Path, table: pa.Table, kind: str, number: int) -> None:
    folder = copied(root, tmp_path / "i")
    for path in folder.glob(f"{kind}-*"):
        reformatted(path, number)
    lake, _ = open_beside(root, folder, near=True)
    used = check_all(lake, table)
    assert used.covered == 0
    assert all(f"has format {number}" in problem for problem in used.problems)
    assert used.problems
    report = build(sk.open(root, index_root=folder))
    assert (report.indexed, report.already_indexed, report.adopted) == (FILES, 0, 0) or kind == "manifest"
    assert check_all(sk.open(root, index_root=folder), table).problems == ()


def forged(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """A manifest that says something else, with its checksum right."""
    head, _, body = path.read_text().partition("\n")
    told = json.loads(body)
    change(told)
    body = json.dumps(told, indent=1, sort_keys=True)
    head = re.sub(r"check [0-9a-f]+", f"check {xxh3_64_hexdigest(body.encode())}", head)
    path.write_text(f"{head}\n{body}\n")


FORGERIES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no segments": lambda told: told.pop("segments"),
    "segments are a number": lambda told: told.update(segments=5),
    "another number": lambda told: told.update(number=7),
    "another key": lambda told: told.update(colour="blue"),
    "a tail of nothing": lambda told: [s.update(tail=0) for s in told["segments"]],
    "a long tail": lambda told: [s.update(tail=10**9) for s in told["segments"]],
    "a negative tail": lambda told: [s.update(tail=-5) for s in told["segments"]],
    "a text for a size": lambda told: [s.update(size="7") for s in told["segments"]],
    "a name outside": lambda told: [s.update(name="../part-0.parquet") for s in told["segments"]],
    "a key missing": lambda told: [s.pop("size") for s in told["segments"]],
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("change", FORGERIES.values(), ids=FORGERIES)
def test_a_manifest_that_makes_no_sense(
    root: Path, tmp_path: Path, table: pa.Table, change: Callable[[dict[str, Any]], Any]
) -> None:
    for near in (True, False):
        folder = copied(root, tmp_path / "i")
        forged(manifests(folder)[0], change)
        lake, _ = open_beside(root, folder, near=near)
        used = check_all(lake, table)
        assert used.covered == 0
        assert used.problems


def test_the_index_of_another_lake(root: Path, own: Path, table: pa.Table) -> None:
    """Same names, same sizes even: the files are others, so no entry is used."""
    other = copied(root, own_files(own))
    used = check_all(sk.open(own), table)
    assert used.covered == 0
    report = sk.open(own).index.refresh(engine="local")
    assert (report.indexed, report.already_indexed, report.dropped) == (FILES, 0, FILES)
    assert check_all(sk.open(own), table).covered == FILES
    assert other.exists()


def test_an_index_of_other_rows_under_the_same_names(tmp_path: Path) -> None:
    """An index that would drop the right rows if it were believed."""
    for name, first in (("a", 0), ("b", 1000)):
        (tmp_path / name).mkdir()
        for n in range(3):
            start = first + 10 * n
            table = pa.table({"id": pa.array(range(start, start + 10), pa.int64())})
            pq.write_table(table, tmp_path / name / f"f{n}.parquet")
        sk.open(tmp_path / name).index.build(engine="local")
    shutil.rmtree(own_files(tmp_path / "b"))
    shutil.copytree(own_files(tmp_path / "a"), own_files(tmp_path / "b"))
    lake = sk.open(tmp_path / "b")
    assert lake.scan("id = 1005").to_arrow()["id"].to_pylist() == [1005]
    assert lake.scan("id = 5").count() == 0
    assert lake.scan("id = 5").trace().index.covered == 0


def garbage(folder: Path, rng: random.Random) -> None:
    """Files of every name an index has, and of others."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"manifest-{n:012d}.json" for n in (0, 1, 2, 900)]
    names += [f"segment-{rng.randbytes(16).hex()}.skip" for _ in range(5)]
    names += [
        "manifest-1.json",
        "manifest-00000000000x.json",
        "segment-1.skip",
        "readme.txt",
        ".x.tmp",
        "é.json",
    ]
    for name in names:
        (folder / name).write_bytes(rng.randbytes(rng.choice([0, 1, 64, 2000])))
    (folder / "sub").mkdir(exist_ok=True)
    (folder / "sub" / "manifest-000000000950.json").write_bytes(b"{}")
    (folder / f"segment-{rng.randbytes(16).hex()}.skip").mkdir()
    (folder / f"segment-{rng.randbytes(16).hex()}.skip").symlink_to("nowhere")


def test_a_folder_full_of_garbage(own: Path, table: pa.Table) -> None:
    """No row is lost; a build makes a good index in spite of it, and is found the next time."""
    rng = random.Random(8)
    shutil.rmtree(own_files(own))
    garbage(own_files(own), rng)
    used = check_all(sk.open(own), table)
    assert used.covered == 0
    assert used.problems
    build(sk.open(own))
    used = check_all(sk.open(own), table)
    assert used.covered == FILES
    assert used.problems == ()
    (own_files(own) / "readme.txt").exists()


def test_garbage_in_the_place_of_the_highest_number(own: Path, table: pa.Table) -> None:
    """No number is the last: an index can be built after any of them."""
    (own_files(own) / "manifest-999999999999.json").write_bytes(b"what")
    used = check_all(sk.open(own), table)
    assert used.problems
    build(sk.open(own))
    assert check_all(sk.open(own), table).covered == FILES
    build(sk.open(own), rebuild=True)
    assert check_all(sk.open(own), table).covered == FILES


def test_a_file_where_the_folder_should_be(own: Path, table: pa.Table) -> None:
    shutil.rmtree(own_files(own))
    own_files(own).write_bytes(b"no folder")
    check_all(sk.open(own), table)
    with pytest.raises(SkipstoneError):
        build(sk.open(own))


@pytest.mark.parametrize("where", ["inside", "outside"])
def test_a_folder_that_may_not_be_read(
    own: Path, tmp_path: Path, table: pa.Table, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = own_files(own)
    if where == "outside":
        folder = tmp_path / "index"
        own_files(own).rename(folder)
    scandir = os.scandir

    def refused(path: Any = ".") -> Any:
        if os.fspath(path) == str(folder):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refused)
    lake = sk.open(own, index_root=folder if where == "outside" else None)
    used = check_all(lake, table)
    assert used.covered == 0
    assert "denied" in str(used.problems).lower()


def test_files_that_may_not_be_read(own: Path, table: pa.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the index, none; the lake's are read as ever."""
    for path in own_files(own).iterdir():
        path.unlink()
        path.symlink_to(own / "nowhere" / path.name)
    used = check_all(sk.open(own), table)
    assert used.covered == 0
    assert used.problems
