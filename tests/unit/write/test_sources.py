"""Which files of a source are new, and what is refused before Spark is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from skipstone.errors import ReadError, UsageError
from skipstone.lake.append import Append
from skipstone.store.store import ListedFile, Store, open_root
from skipstone.write.sources import Sources, find_sources


def fill(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name * 10)
    return root


def keys(found: Sources) -> list[str]:
    return [entry.key for entry in found.new]


def take(lake: Store, found: Sources) -> None:
    with Append.begin(lake) as append:
        append.publish([], sources=found.journal_sources(found.new))


@pytest.fixture
def lake(tmp_path: Path) -> Store:
    return open_root(tmp_path / "lake")


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("a.csv", "csv"),
        ("a.TSV.gz", "csv"),
        ("a.b.json", "json"),
        ("x.jsonl.zst", "json"),
        ("x.ndjson", "json"),
        ("a.snappy.parquet", "parquet"),
        ("day=1/a.orc", "orc"),
    ],
)
def test_names_tell_the_format(tmp_path: Path, lake: Store, name: str, format: str) -> None:
    found = find_sources(fill(tmp_path / "in", name), lake)
    assert (found.format, keys(found), found.already_ingested, found.changed) == (format, [name], 0, ())


def test_hidden_and_empty_files_don_t_count(tmp_path: Path, lake: Store) -> None:
    root = fill(tmp_path / "in", "a.csv", "_SUCCESS", ".a.csv.crc", "_tmp/b.csv", ".x/c.csv", "p=1/d.csv")
    (root / "empty.csv").touch()
    assert keys(find_sources(root, lake)) == ["a.csv", "p=1/d.csv"]


def test_several_formats_are_refused_unless_one_is_named(tmp_path: Path, lake: Store) -> None:
    root = fill(tmp_path / "in", "a.csv", "b.parquet", "c.log")
    with pytest.raises(
        UsageError,
        match=r"several formats: csv \(a.csv\), parquet \(b.parquet\), unknown \(c.log\)",
    ):
        find_sources(root, lake)
    # What is named for another format is left out; what is named for none is what the caller says.
    assert keys(find_sources(root, lake, "csv")) == ["a.csv", "c.log"]
    with pytest.raises(UsageError, match="unknown format 'xml'"):
        find_sources(root, lake, "xml")


def test_what_can_t_be_a_source(tmp_path: Path, lake: Store) -> None:
    with pytest.raises(UsageError, match="file format is unknown"):
        find_sources(fill(tmp_path / "odd", "a.txt"), lake)
    (tmp_path / "none").mkdir()
    with pytest.raises(UsageError, match="source has no files"):
        find_sources(tmp_path / "none", lake)
    with pytest.raises(ReadError, match="nowhere"):
        find_sources(tmp_path / "nowhere", lake)


def test_a_source_and_a_lake_lie_apart(tmp_path: Path) -> None:
    root = fill(tmp_path / "in", "a.parquet", "lake/b.parquet")
    for inside in (root, root / "lake", root / "lake" / "deeper"):
        with pytest.raises(UsageError, match="lake is inside its own source"):
            find_sources(root, open_root(inside))
    with pytest.raises(UsageError, match="lake is inside its own source"):
        find_sources(f"{root}/**/*.parquet", open_root(root / "lake"))
    with pytest.raises(UsageError, match="source is inside the lake"):
        find_sources(root / "lake", open_root(root))
    (tmp_path / "link").symlink_to(root)
    with pytest.raises(UsageError, match="lake is inside its own source"):
        find_sources(tmp_path / "link", open_root(root / "lake"))
    # One file, or a pattern that leaves the lake out, is no danger; nor is a name that only begins alike.
    assert keys(find_sources(root / "a.parquet", open_root(root / "lake"))) == ["a.parquet"]
    assert keys(find_sources(f"{root}/*.parquet", open_root(root / "lake"))) == ["a.parquet"]
    assert keys(find_sources(root / "lake", open_root(root / "lake2"))) == ["b.parquet"]


def test_known_and_changed_files(tmp_path: Path, lake: Store) -> None:
    root = fill(tmp_path / "in", "a.csv", "b.csv")
    take(lake, find_sources(root, lake))
    fill(root, "c.csv")
    (root / "b.csv").write_text("other")
    found = find_sources(root, lake)
    assert (keys(found), found.already_ingested, found.changed) == (["c.csv"], 1, (f"{root}/b.csv",))


def test_a_file_by_another_way_is_the_same(
    tmp_path: Path, lake: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = fill(tmp_path / "in", "a.csv", "b.csv")
    take(lake, find_sources(root, lake))
    (tmp_path / "link").symlink_to(root)
    monkeypatch.chdir(tmp_path)
    for way in ("in", "./in/", tmp_path / "link", f"{root}/../in", f"{root}/*.csv", f"file://{root}"):
        assert (keys(find_sources(way, lake)), find_sources(way, lake).already_ingested) == ([], 2), way


def test_batches() -> None:
    sizes = {"a.csv": 5, "b.tsv": 1, "c.csv": 5, "d.csv": 1, "e.csv": 100, "f.csv": 3, "g.tsv.gz": 2}
    new = tuple(ListedFile(key, size, None) for key, size in sizes.items())
    found = Sources(open_root("."), "csv", new, 0, ())
    assert [[entry.key for entry in batch] for batch in found.batches(10)] == [
        ["a.csv", "b.tsv"],
        ["c.csv", "d.csv"],
        ["e.csv"],
        ["f.csv", "g.tsv.gz"],
    ]
    assert [len(batch) for batch in found.batches(10**9)] == [7]
    assert Sources(open_root("."), "csv", (), 0, ()).batches(10) == []
    # Files of a batch have the same partition columns.
    names = ("a.csv", "day=1/a.csv", "day=1/hour=2/a.csv", "day=2/b.csv", "hour=1/c.csv", "x/b.csv")
    mixed = Sources(open_root("."), "csv", tuple(ListedFile(name, 5, None) for name in names), 0, ())
    assert [[entry.key for entry in batch] for batch in mixed.batches(1000)] == [
        ["a.csv", "x/b.csv"],
        ["day=1/a.csv", "day=2/b.csv"],
        ["day=1/hour=2/a.csv"],
        ["hour=1/c.csv"],
    ]
    with pytest.raises(UsageError, match="batch_bytes must be positive, got 0"):
        found.batches(0)


def test_files_that_change_while_they_are_read(tmp_path: Path, lake: Store) -> None:
    root = fill(tmp_path / "in", "a.csv", "b.csv")
    found = find_sources(root, lake)
    found.check_same(found.new)
    fill(root, "later.csv")
    found.check_same(found.new)
    with (root / "b.csv").open("a") as file:
        file.write("more")
    with pytest.raises(ReadError, match=r"b\.csv: file changed during the ingest \(run the ingest again"):
        found.check_same(found.new)
    (root / "a.csv").unlink()
    with pytest.raises(ReadError, match=r"a\.csv: file no longer exists"):
        found.check_same(found.new)
    (root / "b.csv").replace(root / "a.csv")
    with pytest.raises(ReadError, match=r"a\.csv: file changed"):
        found.check_same(found.new)
