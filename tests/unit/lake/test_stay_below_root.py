"""Lakes from others: with ``stay_below_root`` no link leads a reader out of the directory."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from skipstone.errors import ReadError
from skipstone.store.store import open_store


def write(path: Path, *values: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"a": pa.array(values, pa.int64())}), path)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    write(tmp_path / "lake" / "one" / "f.parquet", 1, 2)
    write(tmp_path / "lake" / "g.parquet", 3)
    write(tmp_path / "other" / "h.parquet", 4)
    return tmp_path / "lake"


LINKS: dict[str, Callable[[Path], Path]] = {
    "h.parquet": lambda other: other / "h.parquet",
    "one/h.parquet": lambda _: Path("../../other/h.parquet"),
    "two": lambda other: other,
    "one/deep": lambda _: Path("../../other"),
    "_hidden": lambda other: other,
    "lost": lambda other: other / "gone",
    "up": lambda other: other.parent,
}


@pytest.mark.parametrize("link", LINKS)
def test_links_out_of_a_lake(lake: Path, link: str) -> None:
    target = LINKS[link](lake.parent / "other")
    (lake / link).symlink_to(target)
    for name in (lake, f"{lake}/**/*.parquet"):
        with pytest.raises(ReadError, match=f"{lake}/{link}: a link leads out of {lake} .*stay_below_root"):
            sk.open(name, stay_below_root=True)
    if link not in ("lost", "up"):
        assert sk.open(lake).scan().count() == (3 if link == "_hidden" else 4)
    # A file that is named is no more trusted than one that is listed.
    if link.endswith(".parquet"):
        with pytest.raises(ReadError, match="a link leads out of"):
            sk.open(lake / link, stay_below_root=True).scan().count()


def test_links_within_a_lake(lake: Path, tmp_path: Path) -> None:
    (lake / "again.parquet").symlink_to("g.parquet")
    (lake / "two").symlink_to(lake / "one")
    (tmp_path / "way").symlink_to(lake)
    for root in (lake, tmp_path / "way"):
        opened = sk.open(root, stay_below_root=True)
        assert opened.scan().count() == 6
        assert sorted(opened.scan().to_arrow()["a"].to_pylist()) == [1, 1, 2, 2, 3, 3]


def test_a_link_that_comes_later(lake: Path) -> None:
    """A file that became a link since it was listed is not the one that was listed."""
    opened = sk.open(lake, stay_below_root=True)
    plan = opened.scan().plan()
    (lake / "g.parquet").unlink()
    (lake / "g.parquet").symlink_to(lake.parent / "other" / "h.parquet")
    for again in (plan, pickle.loads(pickle.dumps(plan))):
        with pytest.raises(ReadError):
            sk.execute(again).to_arrow()
    with pytest.raises(ReadError, match="a link leads out of"):
        opened.refresh()


def test_an_index_that_is_a_link(lake: Path, tmp_path: Path) -> None:
    index = lake / "_skipstone"
    index.mkdir()  # as older versions had it
    sk.open(lake).index.build(engine="local")
    index.rename(tmp_path / "index")
    index.symlink_to(tmp_path / "index")
    with pytest.raises(ReadError, match=f"{index}: a link leads out of"):
        sk.open(lake, stay_below_root=True)
    store, _ = open_store(lake, stay_below_root=True)
    for read in (lambda: store.list_prefix(index.name), lambda: store.child(index.name)):
        with pytest.raises(ReadError, match="a link leads out of"):
            read()
    # The user's own index may be anywhere.
    index.unlink()
    opened = sk.open(lake, index_root=tmp_path / "index", stay_below_root=True)
    assert opened.scan("a = 3").count() == 1
    assert opened.index.coverage is not None
