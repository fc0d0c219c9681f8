"""A stale, partial, damaged, foreign or missing index costs time, never rows, and the trace says why."""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from xxhash import xxh3_64_hexdigest

import skipstone as sk
import skipstone.index.coverage as coverage_module
import skipstone.index.draft as draft_module
from skipstone.errors import ReadError, SkipstoneError
from skipstone.index.container import Container, Mapped
from skipstone.store.cache import Cache
from skipstone.store.place import open_root
from tests.faults import _files
from tests.faults._place import Fails, Fault, Request, Truncates, WatchedPlace

FILES = 5
FLIPS = int(os.environ.get("SKIPSTONE_CASES", 900)) // 6
FOLDER = "_skipstone"
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
    return lake.index.build(COLUMNS, blooms=["id", "text"], engine="local", **choice)


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
    Question(None, lambda t: t),
]


@contextlib.contextmanager
def patience(seconds: int = 20) -> Iterator[None]:
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


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake nobody changes, with an index in it that nobody changes either."""
    root = tmp_path_factory.mktemp("indexed")
    for number in range(FILES):
        write_file(root / f"part-{number}.parquet", number)
    build(sk.open(root))
    return root


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return pa.concat_tables([fault_table(n) for n in range(FILES)])


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A lake and an index to be changed."""
    root = tmp_path / "lake"
    root.mkdir()
    for number in range(FILES):
        write_file(root / f"part-{number}.parquet", number)
    build(sk.open(root))
    return root


@pytest.fixture(params=["small", "large"])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Planned as a small lake is, and as a large one."""
    if request.param == "large":
        monkeypatch.setattr(coverage_module, "_SMALL", 0)
        monkeypatch.setattr(coverage_module, "_FEW", 0)
        monkeypatch.setattr(coverage_module, "_SHARE", 1)
    return str(request.param)


def copied(root: Path, folder: Path) -> Path:
    """A copy of the index, which still fits the lake."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(root / FOLDER, folder)
    return folder


def open_beside(root: Path, folder: Path, *, near: bool) -> tuple[Any, WatchedPlace]:
    """The lake with that index, mapped or fetched; requests to the lake's files are written down."""
    place = WatchedPlace.at(root, local=near)
    index = open_root(folder)
    return sk.Lake(place, "", index_root=index if near else WatchedPlace(index)), place


def footers_opened(place: WatchedPlace, root: Path) -> set[str]:
    """Files whose last bytes were asked for."""
    ends = {path.name: path.stat().st_size for path in root.glob("*.parquet")}
    return {r.key for r in place.requests if r.key in ends and any(s.stop == ends[r.key] for s in r.ranges)}


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("segment-*.skip"))


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
    for question in QUESTIONS[::3]:
        used = check(lake, table, question)
    with patience():
        assert lake.scan("id between 350 and 460").count() == 111
        ordered = lake.scan("id > 100", ["id"], order_by=["id desc"], limit=3).to_arrow()
        assert ordered.to_pydict() == {"id": [1999, 1998, 1997]}
        assert lake.scan(None, ["id"], limit=401).to_arrow()["id"].to_pylist() == list(range(401))
        assert lake.scan("id > 30 and x < 50").verify().ok
        assert lake.statistics(["id"]).rows == table.num_rows
    return used


# -- a good index ------------------------------------------------------------------------------


@pytest.mark.parametrize("near", [True, False], ids=["mapped", "fetched"])
def test_nothing_wrong(root: Path, tmp_path: Path, table: pa.Table, near: bool, size: str) -> None:
    """The feature is there: a fresh index means that no footer is opened."""
    lake, place = open_beside(root, copied(root, tmp_path / "i"), near=near)
    for question in QUESTIONS:
        if "st.b" not in str(question.where):
            used = check(lake, table, question)
            assert used.covered == FILES
            assert used.problems == ()
    assert not footers_opened(place, root)


# -- flipped bytes -----------------------------------------------------------------------------


def regions(path: Path) -> dict[str, list[range]]:
    """The parts of a segment: by array, the directory, what is between."""
    size = path.stat().st_size
    box = Container.open_alone(path.name, Mapped(str(path)), size, Cache(1))
    found: dict[str, list[range]] = {}
    for key in box.arrays():
        entry = box._entries[key]
        found.setdefault(f"{key[1]}", []).append(range(entry.start, entry.start + entry.size))
    found["directory"] = [range(size - box.tail, size)]
    found["all"] = [range(size)]
    return found


@pytest.mark.parametrize("near", [True, False], ids=["mapped", "fetched"])
def test_flipped_bytes_of_segments(
    root: Path, tmp_path: Path, table: pa.Table, near: bool, size: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any byte of any array: the same rows, and no footer is opened without a reason in the trace."""
    rng = random.Random(f"{near} {size}")
    folder = copied(root, tmp_path / "i")
    if size == "large":
        monkeypatch.setattr(draft_module, "BLOCK", 2)
        lake = sk.open(root, index_root=folder)
        build(lake, rebuild=True)
    every = {path: regions(path) for path in segments(folder)}
    names = sorted({name for found in every.values() for name in found})
    told: Counter[str] = Counter()
    for case in range(max(FLIPS // 5, len(names))):
        path = rng.choice(list(every))
        name = names[case % len(names)]
        spans = [span for span in every[path].get(name, every[path]["all"]) if len(span)]
        if not spans:
            continue
        position = rng.choice(rng.choice(spans))
        data = bytearray(path.read_bytes())
        good = bytes(data)
        data[position] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        lake, place = open_beside(root, folder, near=near)
        for question in rng.sample(QUESTIONS, 2):
            used = check(lake, table, question)
            note = f"{name} of {path.name}, byte {position}, {question.where}"
            opened = footers_opened(place, root) if "st.b" not in str(question.where) else set()
            place.requests.clear()
            # What is noticed when rows are read comes after the trace of the plan.
            problems = used.problems or lake.scan("id = 1").trace().index.problems
            assert bool(opened) <= bool(problems), note
            told[name] += bool(problems)
            told["problems"] += bool(problems)
        if name == "directory":
            assert used.problems, f"{path.name}, byte {position}"
            assert used.covered < FILES
        path.write_bytes(good)
    assert told["directory"]
    assert told["marks"]
    assert told["problems"] > 20


@pytest.mark.parametrize("near", [True, False], ids=["mapped", "fetched"])
def test_flipped_bytes_of_the_manifest(root: Path, tmp_path: Path, table: pa.Table, near: bool) -> None:
    rng = random.Random(f"manifest {near}")
    folder = copied(root, tmp_path / "i")
    (path,) = manifests(folder)
    good = path.read_bytes()
    for position in rng.sample(range(len(good)), min(FLIPS // 6, len(good))):
        data = bytearray(good)
        data[position] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        lake, _ = open_beside(root, folder, near=near)
        used = check(lake, table, rng.choice(QUESTIONS))
        assert used.covered == 0, position
        assert used.problems, position


@pytest.mark.parametrize("near", [True, False], ids=["mapped", "fetched"])
def test_truncated_files(root: Path, tmp_path: Path, table: pa.Table, near: bool) -> None:
    folder = copied(root, tmp_path / "i")
    rng = random.Random(f"cut {near}")
    for path in [*segments(folder), *manifests(folder)]:
        good = path.read_bytes()
        for cut in (0, 1, 63, 64, rng.randrange(len(good)), len(good) - 60, len(good) - 2):
            path.write_bytes(good[:cut])
            lake, _ = open_beside(root, folder, near=near)
            used = check(lake, table, rng.choice(QUESTIONS))
            assert used.covered < FILES
            assert used.problems
        path.write_bytes(good + b"more")
        lake, _ = open_beside(root, folder, near=near)
        used = check(lake, table, rng.choice(QUESTIONS))
        assert used.covered < FILES
        assert used.problems
        path.write_bytes(good)
    lake, _ = open_beside(root, folder, near=near)
    assert check_all(lake, table).problems == ()


# -- other formats, other lakes, garbage -------------------------------------------------------


def reformatted(path: Path, number: int) -> None:
    """The file under another format number, with checksums that are right."""
    data = path.read_bytes()
    if path.suffix == ".skip":
        assert struct.unpack_from("<I", data, len(data) - 48)[0] == 1
        path.write_bytes(data[:-48] + struct.pack("<I", number) + data[-44:])
    else:
        path.write_bytes(re.sub(rb"format \d+", f"format {number}".encode(), data, count=1))


@pytest.mark.parametrize("number", [0, 2, 77])
@pytest.mark.parametrize("kind", ["segment", "manifest"])
def test_another_format(root: Path, tmp_path: Path, table: pa.Table, kind: str, number: int) -> None:
    folder = copied(root, tmp_path / "i")
    for path in segments(folder) if kind == "segment" else manifests(folder):
        reformatted(path, number)
    lake, _ = open_beside(root, folder, near=True)
    used = check_all(lake, table)
    assert used.covered == 0
    assert all(f"format is {number}" in problem for problem in used.problems)
    assert used.problems
    report = build(sk.open(root, index_root=folder))
    assert (report.indexed, report.kept, report.adopted) == (FILES, 0, 0) or kind == "manifest"
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
    other = copied(root, own / FOLDER)
    used = check_all(sk.open(own), table)
    assert used.covered == 0
    report = sk.open(own).index.refresh(engine="local")
    assert (report.indexed, report.kept, report.dropped) == (FILES, 0, FILES)
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
    shutil.rmtree(tmp_path / "b" / FOLDER)
    shutil.copytree(tmp_path / "a" / FOLDER, tmp_path / "b" / FOLDER)
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
    shutil.rmtree(own / FOLDER)
    garbage(own / FOLDER, rng)
    used = check_all(sk.open(own), table)
    assert used.covered == 0
    assert used.problems
    build(sk.open(own))
    used = check_all(sk.open(own), table)
    assert used.covered == FILES
    assert used.problems == ()
    (own / FOLDER / "readme.txt").exists()


def test_garbage_in_the_place_of_the_highest_number(own: Path, table: pa.Table) -> None:
    """No number is the last: an index can be built after any of them."""
    (own / FOLDER / "manifest-999999999999.json").write_bytes(b"what")
    used = check_all(sk.open(own), table)
    assert used.problems
    build(sk.open(own))
    assert check_all(sk.open(own), table).covered == FILES
    build(sk.open(own), rebuild=True)
    assert check_all(sk.open(own), table).covered == FILES


def test_a_file_where_the_folder_should_be(own: Path, table: pa.Table) -> None:
    shutil.rmtree(own / FOLDER)
    (own / FOLDER).write_bytes(b"no folder")
    check_all(sk.open(own), table)
    with pytest.raises(SkipstoneError):
        build(sk.open(own))


@pytest.mark.parametrize("where", ["inside", "outside"])
def test_a_folder_that_may_not_be_read(
    own: Path, tmp_path: Path, table: pa.Table, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = own / FOLDER
    if where == "outside":
        folder = tmp_path / "index"
        (own / FOLDER).rename(folder)
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
    for path in (own / FOLDER).iterdir():
        path.unlink()
        path.symlink_to(own / "nowhere" / path.name)
    used = check_all(sk.open(own), table)
    assert used.covered == 0
    assert used.problems


# -- missing and stale -------------------------------------------------------------------------


@pytest.mark.parametrize("near", [True, False], ids=["mapped", "fetched"])
def test_missing_segments(root: Path, tmp_path: Path, table: pa.Table, near: bool, size: str) -> None:
    folder = copied(root, tmp_path / "i")
    gone = segments(folder)[0]
    gone.unlink()
    lake, _ = open_beside(root, folder, near=near)
    used = check_all(lake, table)
    assert 0 <= used.covered < FILES
    assert used.problems == (f"{gone.name}: it is missing",)
    report = sk.open(root, index_root=folder).index.refresh(engine="local")
    assert report.indexed == FILES - used.covered
    assert check_all(sk.open(root, index_root=folder), table).covered == FILES


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


def test_truncated_while_it_is_mapped(own: Path, table: pa.Table) -> None:
    """A segment cut short in place; in a process of its own, which a bus error would end."""
    code = f"""
import os, glob, skipstone as sk
lake = sk.open({str(own)!r})
assert lake.scan("id = 417").count() == 1
for path in glob.glob({str(own)!r} + "/_skipstone/segment-*"):
    os.truncate(path, 100)
assert lake.scan("id between 350 and 460").count() == 111
assert lake.scan("text = 'word 007'").count() == {table.filter(pc.equal(table["text"], "word 007")).num_rows}
print(lake.scan("id < 5").trace().index.problems)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "segment-" in ran.stdout


@pytest.mark.parametrize("index", [True, False])
def test_a_file_deleted_after_the_listing(own: Path, index: bool) -> None:
    """The index knows it still: who needs its rows gets the error of a file that is gone."""
    lake = sk.open(own)
    (own / "part-1.parquet").unlink()
    with pytest.raises(ReadError, match="no more") as caught:
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
    assert (report.indexed, report.kept) == (3, FILES - 3)
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


# -- damage and building -----------------------------------------------------------------------


def test_refresh_heals(own: Path, table: pa.Table) -> None:
    """Damaged segments are made anew by the next build or refresh."""
    for path in segments(own / FOLDER):
        data = bytearray(path.read_bytes())
        data[-100] ^= 1
        path.write_bytes(data)
    lake = sk.open(own)
    assert check_all(lake, table).covered == 0
    report = lake.index.refresh(engine="local")
    assert report.indexed == FILES
    assert check_all(lake, table).problems == ()
    assert check_all(sk.open(own), table).covered == FILES


def test_refresh_with_a_damaged_manifest(own: Path, table: pa.Table) -> None:
    """It can't know what was asked for: an error of ours that says what to do, or a good index."""
    manifests(own / FOLDER)[0].write_bytes(b"damage")
    lake = sk.open(own)
    with contextlib.suppress(SkipstoneError):
        lake.index.refresh(engine="local")
    check_all(lake, table)
    report = build(sk.open(own))
    assert report.adopted + report.indexed + report.kept == FILES
    assert check_all(sk.open(own), table).covered == FILES


def test_damage_deep_in_a_segment_is_healed_by_a_rebuild(own: Path, table: pa.Table) -> None:
    for path in segments(own / FOLDER):
        data = bytearray(path.read_bytes())
        for span in regions(path)["group/flags"]:
            data[span.start] ^= 1
        path.write_bytes(data)
    lake = sk.open(own)
    assert check_all(lake, table).problems
    build(lake, rebuild=True)
    assert check_all(lake, table).problems == ()
    assert check_all(sk.open(own), table).covered == FILES


def test_damaged_segments_are_not_merged_into_good_ones(
    own: Path, table: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    import skipstone.index.build as build_module

    for path in segments(own / FOLDER):
        data = bytearray(path.read_bytes())
        for span in regions(path).get("page/lower", regions(path)["group/lower"])[:1]:
            data[span.start] ^= 0x40
        path.write_bytes(data)
    monkeypatch.setattr(build_module, "MANY_SEGMENTS", 1)
    write_file(own / "part-8.parquet", 8)
    lake = sk.open(own)
    lake.index.refresh(engine="local")
    more = pa.concat_tables([table, fault_table(8)])
    for question in QUESTIONS[:-1]:
        check(sk.open(own), more, question)


def test_the_lake_can_be_read_while_an_index_breaks_under_it(own: Path, table: pa.Table) -> None:
    """Damage that comes between two questions, on an index that is fetched."""
    lake, _ = open_beside(own, own / FOLDER, near=False)
    check(lake, table, QUESTIONS[0])
    for path in segments(own / FOLDER):
        path.write_bytes(b"\0" * path.stat().st_size)
    for question in QUESTIONS:
        check(lake, table, question)


# -- requests that fail, and several threads ---------------------------------------------------


@pytest.mark.parametrize("kind", ["refused", "out of reach", "short", "flipped"])
def test_any_request_to_the_index_may_fail(root: Path, table: pa.Table, kind: str, size: str) -> None:
    """On a store, at every request in turn: the rows are right, and what was not had is told."""
    struck = 0
    for number in range(200):
        fault: Any
        if kind == "short":
            fault = Truncates(number, times=math.inf)
        elif kind == "flipped":
            fault = Garbles(number)
        else:
            fault = Fails(number, math.inf if kind == "out of reach" else 1, transient=kind == "out of reach")
        index = WatchedPlace(open_root(root / FOLDER), fault)
        retry = sk.RetryPolicy(attempts=2, first_delay=0.0)
        lake = sk.Lake(WatchedPlace.at(root), "", index_root=index, retry=retry)
        for question in (QUESTIONS[0], QUESTIONS[4]):
            used = check(lake, table, question)
        if not fault.struck:
            assert used.problems == ()
            break
        struck += 1
        problems = used.problems or lake.scan("id = 3").trace().index.problems
        # Asked for again, it may have come after all.
        assert problems or (used.covered == FILES and kind != "out of reach"), number
    assert struck >= 2


@dataclass
class Garbles(Fault):
    """The answer to one request has a byte that is wrong."""

    number: int
    struck: list[Request] = field(default_factory=list)

    def after(self, request: Request, bodies: list[bytes]) -> list[bytes]:
        if request.number != self.number:
            return bodies
        self.struck.append(request)
        return [body[:-1] + bytes([body[-1] ^ 4]) if body else body for body in bodies]


@pytest.mark.parametrize("near", [True, False], ids=["mapped", "fetched"])
def test_threads_that_meet_damage_at_once(
    root: Path, tmp_path: Path, table: pa.Table, near: bool, size: str
) -> None:
    folder = copied(root, tmp_path / "i")
    for path in segments(folder):
        data = bytearray(path.read_bytes())
        for name in ("group/lower", "chunks", "page/lower"):
            for span in regions(path).get(name, [])[:1]:
                if len(span):
                    data[span.start] ^= 1
        path.write_bytes(data)
    lake, _ = open_beside(root, folder, near=near)
    wanted = {q.where: q.wanted(table).num_rows for q in QUESTIONS}
    with patience(60), ThreadPoolExecutor(8) as pool:
        asks = [q.where for q in QUESTIONS] * 6
        found = list(pool.map(lambda where: len(lake.scan(where).to_arrow()), asks))
    assert found == [wanted[where] for where in asks]
    assert lake.scan("id = 3").trace().index.problems


def test_building_under_threads_that_read(own: Path, table: pa.Table) -> None:
    """One lake object, asked by some threads while another builds, refreshes and drops its index."""
    lake = sk.open(own)
    stop = threading.Event()
    failures: list[BaseException] = []

    def read() -> None:
        rng = random.Random(threading.get_ident())
        while not stop.is_set():
            question = rng.choice(QUESTIONS)
            try:
                assert lake.scan(question.where).count() == question.wanted(table).num_rows
            except BaseException as error:
                failures.append(error)
                return

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        with patience(120):
            for turn in range(4):
                build(lake, rebuild=turn % 2 == 0)
                lake.index.refresh(engine="local")
                lake.index.drop()
                lake.refresh()
            build(lake)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures, failures[:2]
    assert check_all(lake, table).covered == FILES
