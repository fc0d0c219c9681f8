"""What a power cut would leave of local files: bytes that were synced, under names in synced directories."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

import skipstone as sk
from skipstone.iceberg.writing.commit import append
from skipstone.iceberg.writing.target import Target
from skipstone.lake.append import Append, staged_as
from skipstone.parquet.write.files import write_files
from skipstone.parquet.write.layout import PageLayout
from skipstone.parquet.write.profile import profile
from skipstone.store.store import open_root
from tests.faults._kills import SCHEMA, rows


class Disk:
    """Remembers of each file its size, and of each directory its names, as of the last time it was synced."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.sizes: dict[int, int] = {}
        self.names: dict[int, frozenset[str]] = {}
        monkeypatch.setattr(os, "fsync", self._synced)
        monkeypatch.setattr(os, "fdatasync", self._synced)

    def _synced(self, descriptor: int) -> None:
        found = os.fstat(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path.is_dir():
            self.names[found.st_ino] = frozenset(entry.name for entry in path.iterdir())
        else:
            self.sizes[found.st_ino] = found.st_size

    def lost(self) -> list[str]:
        """The files and directories below the root that would not be there again, or not be whole."""
        found = []
        for path in sorted(self.root.rglob("*")):
            named = path.name in self.names.get(path.parent.stat().st_ino, ())
            whole = path.is_dir() or self.sizes.get(path.stat().st_ino) == path.stat().st_size
            # A database looks after itself.
            if not (named and whole) and not path.name.startswith("catalog.db"):
                found.append(str(path.relative_to(self.root)))
        return found


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(tmp_path, monkeypatch)


def test_files_of_a_place(disk: Disk, tmp_path: Path) -> None:
    store = open_root(tmp_path / "new" / "lake")
    for exclusive in (False, True):
        store.write(f"a/b{exclusive}/x", [b"12", b"34"], exclusive=exclusive)
        assert disk.lost() == []
        store.move(f"a/b{exclusive}/x", f"c/d{exclusive}/y")
        assert disk.lost() == []
    store.write("c/dTrue/y", [b"other"])
    assert disk.lost() == []
    # The check is one: what is written past the store would be lost.
    (tmp_path / "new" / "lake" / "z").write_text("lost")
    assert disk.lost() == ["new/lake/z"]


def test_an_append_to_a_directory_and_its_index(disk: Disk, tmp_path: Path) -> None:
    store, layout, table = open_root(tmp_path / "lake"), PageLayout(partition_by=("p",)), rows(0, 20)
    with Append.begin(store) as job:
        found = write_files(table.to_batches(), job.stage, job.job, "0", layout, profile(table, layout))
        assert {staged_as(one.key) for one in found} == {entry.key for entry in job.stage.list()}
        assert disk.lost() == []
        job.publish([one.key for one in found])
    assert disk.lost() == []
    lake = sk.open(tmp_path / "lake")
    lake.index.build(engine="local")
    assert lake.scan().count() == 20
    assert disk.lost() == []


def test_a_commit_to_an_embedded_catalog(disk: Disk, tmp_path: Path) -> None:
    made = sk.catalog(tmp_path / "deep" / "warehouse").create_table("db.t", SCHEMA, partition_by=["p"])
    assert disk.lost() == []
    made.table.append(rows(0, 20))
    assert disk.lost() == []
    table, layout, new = made.table, PageLayout(), rows(20, 40)
    target = Target.of(table)
    found = write_files(new.to_batches(), target.store, "ab", "0", layout, profile(new, layout), shape=target)
    assert disk.lost() == []
    append(table, target, [target.new_file(one) for one in found])
    made.refresh()
    made.index.build(engine="local")
    assert made.scan().count() == 40
    assert disk.lost() == []
    # pyiceberg's own way to write a file is the same, but for that.
    with pytest.raises(FileExistsError, match="already exists"):
        table.io.new_output(table.metadata_location).create()
    output = table.io.new_output(f"{made.uri}/metadata/x")
    with output.create() as stream:
        stream.write(b"123")
        assert not output.to_input_file().open().closed
    assert (len(output), output.exists()) == (3, True)
    assert pa.BufferReader(output.to_input_file().open().read()).read() == b"123"
    assert disk.lost() == []


def test_an_acknowledged_row_of_a_tail(disk: Disk, tmp_path: Path) -> None:
    table = sk.catalog(tmp_path / "warehouse").create_table("db.t", SCHEMA, key=["id"])

    def lost() -> list[str]:
        # A lock is empty, and made again; an older mark claims less.
        return [name for name in disk.lost() if not name.endswith(("/lock", "/synced"))]

    with table.writer(sync="every", flush_seconds=None) as writer:
        assert lost() == []
        for number in range(3):
            writer.upsert(rows(number, number + 2))
            assert lost() == []
        writer.delete(keys=0)
        assert lost() == []
        writer.flush()
        assert lost() == []
        writer.upsert(rows(9, 10))
    assert lost() == []
    unsafe = table.writer(sync="off", flush_seconds=None)
    unsafe.upsert(rows(10, 11))
    (name,) = lost()
    assert name.endswith(".wal")
    unsafe.close(flush=False)
    assert lost() == []


def test_a_sync_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every sync of an upsert in turn, of files and of directories; the table keeps its rows."""
    table = sk.catalog(tmp_path / "warehouse").create_table("db.t", SCHEMA, key=["id"])
    table.upsert(rows(0, 5))
    sync, left = os.fsync, 0

    def broken(descriptor: int) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(5, "Input/output error")
        sync(descriptor)

    for failing in range(100):
        left = failing
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", broken)
            try:
                table.upsert(rows(3, 6), compare=False)
                break
            except sk.SkipstoneError:
                pass
        assert table.refresh().scan().count() == 5
    assert failing > 4
    assert table.scan().count() == 6
