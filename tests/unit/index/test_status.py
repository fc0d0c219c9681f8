"""What ``lake.index.status()`` finds out, and how little it reads for it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from tests.support.stores import own_files

FILES = 6


def write(path: Path, number: int, *, page_index: bool = True) -> None:
    rows = np.arange(400) + 400 * number
    place = pa.array([{"x": int(row)} for row in rows])
    table = pa.table(
        {"id": rows, "price": rows / 4, "name": pa.array([f"n{r}" for r in rows]), "place": place}
    )
    pq.write_table(
        table,
        path,
        row_group_size=100,
        max_rows_per_page=25,
        write_batch_size=25,
        write_page_index=page_index,
        bloom_filter_options={"id": {"ndv": 100, "fpp": 0.01}},
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "lake"
    root.mkdir()
    for number in range(FILES):
        write(root / f"{number}.parquet", number, page_index=number % 2 == 0)
    return root


def test_there_is_none(root: Path) -> None:
    found = sk.open(root).index.status()
    assert (found.exists, found.version, found.files, found.covered, found.unknown) == (
        False,
        0,
        FILES,
        0,
        FILES,
    )
    assert (found.segments, found.columns, found.sizes.total, found.problems) == ((), (), 0, ())
    assert found.location == str(own_files(root))
    assert not own_files(root).exists()


def test_a_whole_one(root: Path) -> None:
    lake = sk.open(root)
    report = lake.index.build(engine="local")
    found = lake.index.status()
    assert (found.version, found.files, found.covered, found.stale) == (report.version, FILES, FILES, 0)
    assert (found.problems, found.next_step, found.unknown_such_as) == ((), "", ())
    assert [column.name for column in found.columns] == ["id", "price", "name", "place.x"]
    assert found["id"].type == pa.int64()
    assert (found["id"].origins.page_index, found["id"].origins.footer) == (3, 3)
    assert found.options.columns == ("id", "price", "name", "place.x")
    assert (found.options.pages, found.options.own_blooms, found.options.values) == (True, True, ())
    assert found.data_bytes == sum(file.stat().st_size for file in root.glob("*.parquet"))
    assert 0 <= found.taken - found.written < 600


def test_every_byte_is_accounted_for(root: Path) -> None:
    lake = sk.open(root)
    lake.index.build(["id", "price", "name"], ["name"], engine="local", sums=True, sketches=True)
    found = lake.index.status()
    segments = list(own_files(root).glob("segment-*"))
    named = {segment.name for segment in found.segments}
    assert found.sizes.total == sum(file.stat().st_size for file in segments if file.name in named)
    assert found.sizes.other == 0
    levels = ("blocks", "files", "row_groups", "pages", "blooms", "sums", "sketches", "offsets", "names")
    assert all(getattr(found.sizes, level) > 0 for level in levels)
    for level in levels[:-2]:
        parts = sum(getattr(column.sizes, level) for column in found.columns)
        assert parts == getattr(found.sizes, level)
    assert found["name"].sizes.blooms > 0
    assert found["price"].sizes.blooms == 0
    assert (found.options.blooms, found.options.sums) == (("name",), ("id", "price"))
    # The price of files without a page index was read, and so was that of the others, for NaN.
    assert found["price"].origins.values == FILES
    old = sum(file.stat().st_size for file in segments if file.name not in named)
    assert found.old_bytes == old


def test_files_that_are_gone_changed_and_new(root: Path) -> None:
    sk.open(root).index.build(engine="local")
    (root / "0.parquet").unlink()
    write(root / "1.parquet", 9)
    write(root / "new.parquet", 10)
    found = sk.open(root).index.status()
    assert (found.files, found.covered, found.unknown, found.stale) == (FILES, FILES - 2, 2, 2)
    assert set(found.stale_such_as) == {"0.parquet (deleted)", "1.parquet (changed)"}
    assert set(found.unknown_such_as) == {"1.parquet", "new.parquet"}
    assert sum(segment.stale for segment in found.segments) == 2
    assert found["id"].origins.page_index + found["id"].origins.footer == FILES - 2
    lake = sk.open(root)
    lake.index.refresh(engine="local")
    found = lake.index.status()
    assert (found.covered, found.unknown) == (FILES, 0)


def test_a_few_examples_of_many(root: Path) -> None:
    sk.open(root).index.build(engine="local")
    for file in root.glob("*.parquet"):
        os.utime(file, (1, 1))
    found = sk.open(root).index.status()
    assert (found.covered, found.stale, found.unknown) == (0, FILES, FILES)
    assert (len(found.stale_such_as), len(found.unknown_such_as)) == (3, 3)


def test_a_copied_lake_is_unknown(root: Path, tmp_path: Path) -> None:
    sk.open(root).index.build(engine="local")
    shutil.copytree(root, tmp_path / "copy")
    shutil.copytree(own_files(root), own_files(tmp_path / "copy"))
    found = sk.open(tmp_path / "copy").index.status()
    assert (found.exists, found.covered, found.stale) == (True, 0, FILES)


def test_damaged_parts_are_told(root: Path) -> None:
    sk.open(root).index.build(engine="local")
    manifest = max(own_files(root).glob("manifest-*"))
    whole = manifest.read_bytes()
    manifest.write_bytes(whole[:-9])
    found = sk.open(root).index.status()
    assert (found.exists, found.version, found.problems) == (True, 0, ("manifest is damaged",))
    manifest.write_bytes(whole)
    for file in own_files(root).glob("segment-*"):
        file.write_bytes(file.read_bytes()[:-1])
    found = sk.open(root).index.status()
    assert (found.version, found.covered, found.stale) == (1, 0, 0)
    assert len(found.problems) >= 1
    assert "bytes instead of" in found.problems[0]


def test_damage_to_what_only_the_status_reads(root: Path) -> None:
    sk.open(root).index.build(engine="local")
    lake = sk.open(root)
    coverage = lake.index.coverage
    assert coverage is not None
    container = coverage.segments[0].container
    path = Path(lake.index.store.path(container.name))
    body = bytearray(path.read_bytes())
    body[container.span((0, "origin")).start] ^= 1
    path.write_bytes(body)
    found = lake.index.status()
    assert found.problems == (f"{container.name}: segment is damaged: checksum mismatch",)
    assert found.covered == FILES
    assert coverage.problems == []


def test_another_place(root: Path, tmp_path: Path) -> None:
    lake = sk.open(root, index_root=tmp_path / "elsewhere")
    lake.index.build(engine="local", pages=False, blooms=False)
    (tmp_path / "elsewhere" / "mine.txt").write_text("not of the index")
    found = lake.index.status()
    assert (found.location, found.covered) == (str(tmp_path / "elsewhere"), FILES)
    assert (found.sizes.pages, found.sizes.blooms) == (0, 0)
    named = {segment.name for segment in found.segments}
    parts = [path for path in (tmp_path / "elsewhere").glob("segment-*") if path.name not in named]
    assert found.old_bytes == sum(path.stat().st_size for path in parts) > 0
    assert (found.options.pages, found.options.own_blooms) == (False, False)
    assert sk.open(root).index.status().exists is False


def test_it_is_cheap(s3: dict[str, str], root: Path) -> None:
    """Directories, marks and origins, however many columns there are."""
    from obstore.store import S3Store

    store = S3Store("bucket", prefix="status", config=s3, client_options={"allow_http": True})  # type: ignore[arg-type]
    for file in root.glob("*.parquet"):
        store.put(file.name, file.read_bytes())
    url = "s3://bucket/status"
    sk.open(url, storage_options=s3).index.build(["id", "name"], ["name"], engine="local", sketches=True)
    lake = sk.open(url, storage_options=s3)
    found = lake.index.status()
    assert (found.covered, found["id"].sizes.total > 0) == (FILES, True)
    # The directory, marks, and the origins of all columns together; or a small segment whole.
    assert len(found.segments) <= lake.io.requests <= 3 * len(found.segments)
    assert found.sizes.metadata < lake.io.bytes <= found.sizes.total
