"""Objects in a notebook: one element with its own style, which runs and fetches nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from skipstone.report.html import ROOT
from tests.unit.report.test_html import TAGS, Reader

EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> sk.Lake:
    root = tmp_path_factory.mktemp("notebook") / "lake"
    for day in (1, 2):
        folder = root / f"day=2026-01-0{day}"
        folder.mkdir(parents=True)
        rows = {"id": list(range(day * 100, day * 100 + 50)), "name": [EVIL, "", None, "b", "c"] * 10}
        pq.write_table(pa.table(rows), folder / "f.parquet", row_group_size=10, write_page_index=True)
    opened = sk.open(root)
    opened.index.build(engine="local")
    return opened


SHOWN: dict[str, tuple[Callable[[sk.Lake], Any], str]] = {
    "lake": (lambda lake: lake, "partition"),
    "index": (lambda lake: lake.index, "2 of 2 indexed"),
    "status": (lambda lake: lake.index.status(), "2 of 2 indexed"),
    "build": (lambda lake: lake.index.refresh(engine="local"), "nothing to do: 2 files already indexed"),
    "advice": (lambda lake: lake.index.advise(["id = 103"]), "1 query; "),
    "statistics": (lambda lake: lake.statistics(), "100 rows, 2 files"),
    "scan": (lambda lake: lake.scan(f'name = "{EVIL}"'), "may match"),
    "plan": (lambda lake: lake.scan("id = 103").plan(), "kept 1 of 2 (50 %)"),
    "why": (lambda lake: lake.scan("id = 103").plan().why("day=2026-01-02/f.parquet"), "dropped"),
    "verification": (lambda lake: lake.scan("id = 103").verify(), "no difference"),
    "prune": (
        lambda lake: sk.prune(f"{lake.uri}/day=2026-01-01/f.parquet", "id = 103"),
        "kept 1 of 5 (20 %)",
    ),
    "answer": (
        lambda lake: lake.scan().aggregate(sk.count(), sk.max("id")),
        "answered from metadata",
    ),
    "groups": (lambda lake: lake.scan().aggregate(sk.count(), group_by=["name"]), "''"),
}


@pytest.mark.parametrize("name", SHOWN)
def test_html_of_a_notebook(lake: sk.Lake, name: str) -> None:
    make, said = SHOWN[name]
    html = make(lake)._repr_html_()
    assert html.startswith(f'<div class="{ROOT}"><style>')
    assert html.endswith("</div>")
    read = Reader(html)
    assert set(read.tags) <= TAGS
    assert not re.search(r"<(script|link|img|iframe)|url\(|@import", html)
    assert said in read.text


def test_values_stay_text(lake: sk.Lake) -> None:
    for shown in (lake.scan().aggregate(sk.count(), group_by=["name"]), lake.scan(f'name = "{EVIL}"')):
        html = shown._repr_html_()
        assert "<script" not in html
        assert EVIL in Reader(html).text


def test_a_scan_shows_its_first_rows_and_its_plan(lake: sk.Lake) -> None:
    read = Reader(lake.scan("id between 103 and 129", columns=["id", "day"])._repr_html_())
    # Rows that are proven to match come first.
    assert {"id", "int64", "110", "119", "kept 1 of 2 (50 %), 50 rows"} <= set(read.texts)
    assert "120" not in read.texts
    assert "first 10 rows of up to 30 rows" in read.texts
    assert "3 rows" in Reader(lake.scan("id between 103 and 105")._repr_html_()).texts
    assert "first 10 rows of 100 rows" in Reader(lake.scan()._repr_html_()).texts
    assert "4 rows" in Reader(lake.scan(limit=4)._repr_html_()).texts
    assert "0 rows" in Reader(lake.scan(limit=0)._repr_html_()).texts
    ordered = Reader(lake.scan(order_by="id desc", columns="id")._repr_html_()).texts
    assert [text for text in ordered if text.isdigit() and int(text) > 100][:2] == ["249", "248"]


@pytest.mark.parametrize(
    ("where", "columns", "said"),
    [
        ("nmae = 'b'", None, "UnknownColumnError: column nmae"),
        ("id = 103", ["x"], "UnknownColumnError: column x"),
        ("id =", None, "ParseError: "),
    ],
)
def test_an_error_is_shown(lake: sk.Lake, where: str, columns: list[str] | None, said: str) -> None:
    scan = lake.scan(where, columns)
    read = Reader(scan._repr_html_())
    assert read.texts[0] == repr(scan)
    assert said in read.text


def test_a_lost_file_is_shown_as_an_error(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "f.parquet")
    scan = sk.open(tmp_path).scan("id = 1")
    (tmp_path / "f.parquet").unlink()
    assert "MissingFileError: " in Reader(scan._repr_html_()).text


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("long")
    pq.write_table(pa.table({"n": [1, 2, 3, 5] * 150_000}), root / "f.parquet", row_group_size=50_000)
    return root


def test_showing_reads_little_even_if_no_row_matches(long: Path) -> None:
    lake = sk.open(long)
    opened = sk.open(long)
    assert opened.scan("n = 4").count() == 0
    read = Reader(lake.scan("n = 4")._repr_html_())
    assert "0 rows in the first 250,000 rows of up to 600,000 rows" in read.texts
    assert 0 < lake.io.requests < 0.6 * opened.io.requests
    # The first ten rows of an order can be anywhere.
    read = Reader(sk.open(long).scan("n <> 4", order_by="n")._repr_html_())
    assert "600,000 rows to order: call scan.head()" in read.texts


def test_batches_len_and_truth(lake: sk.Lake, long: Path) -> None:
    scan = lake.scan("id < 120")
    assert sum(batch.num_rows for batch in scan) == scan.count() == 20
    with pytest.raises(TypeError, match=r"use scan\.count\(\)"):
        len(lake.scan("name = 'b'"))
    assert (len(lake.scan()), len(lake.scan(limit=7)), len(lake.scan("id < 0")), len(lake)) == (
        100,
        7,
        0,
        100,
    )
    # No rows, but still a scan.
    assert lake.scan("id < 0")
    unknown = sk.open(long)
    assert unknown
    with pytest.raises(TypeError, match=r"use lake\.scan\(\)\.count\(\)"):
        len(unknown)
    # list() asks for the length first, which reads nothing.
    once, listed = sk.open(lake.uri), sk.open(lake.uri)
    where = "name = 'b'"
    rows = once.scan(where).to_arrow().num_rows
    assert sum(map(len, list(listed.scan(where)))) == rows == 20
    assert listed.io == once.io


def test_head(lake: sk.Lake) -> None:
    assert lake.head(3)["id"].to_pylist() == [100, 101, 102]
    assert lake.scan(limit=2).head().num_rows == 2
    assert lake.scan("id > 120", order_by="id desc").head(2)["id"].to_pylist() == [249, 248]
    assert lake.scan("id < 0").head().num_rows == lake.head(0).num_rows == 0
    with pytest.raises(sk.UsageError, match="non-negative integer, got -1"):
        lake.head(-1)


def test_explain_takes_a_format_alone(lake: sk.Lake) -> None:
    for explained in (lake.scan("id = 103"), lake.scan().aggregate(sk.count())):
        assert explained.explain("html").startswith("<!DOCTYPE html>")
        assert explained.explain("html") == explained.explain(format="html")
        assert explained.explain("json").startswith("{")
        assert explained.explain()._repr_html_().startswith(f'<div class="{ROOT}">')  # type: ignore[attr-defined]
        with pytest.raises(sk.UsageError, match="unknown format 'pdf'"):
            explained.explain("pdf")  # type: ignore[arg-type]
        with pytest.raises(sk.UsageError, match="analyze=1 is not a boolean"):
            explained.explain(1)  # type: ignore[arg-type]


def test_one_column_needs_no_list(lake: sk.Lake) -> None:
    assert lake.scan(columns="id").to_arrow().column_names == ["id"]
    assert sk.execute(lake.scan().plan(), columns="id").schema.names == ["id"]
    assert [column.name for column in lake.statistics("id").columns] == ["id"]
    handle = sk.ColumnHandle("id", pa.int64())
    domain = sk.ColumnDomain.of({handle: sk.Domain.values(pa.int64(), [103])})
    assert len(lake.files_to_query("id", domain)) == 1
    opened = sk.open(lake.uri, index_root=f"{lake.uri}-index")
    opened.index.build(columns="id", blooms="id", engine="local")
    assert opened.index.status().options.columns == ("id",)


def test_a_scan_is_an_arrow_stream_for_other_libraries(lake: sk.Lake) -> None:
    scan = lake.scan("id < 103")
    assert pl.DataFrame(scan).height == pa.table(scan).num_rows == 3
    assert duckdb.sql("select count(*) from scan").fetchall() == [(3,)]


def documented() -> dict[str, set[str]]:
    """The members that the API reference lists, by class."""
    found: dict[str, set[str]] = {}
    for page in (Path(__file__).parents[3] / "docs" / "api").glob("*.md"):
        for name, members in re.findall(r"::: skipstone\.(\w+)\n((?:    .*\n)*)", page.read_text()):
            found[name] = set(re.findall(r"        - (\w+)", members))
    return found


def test_dir_lists_what_the_reference_documents(lake: sk.Lake, tmp_path: Path) -> None:
    catalog = sk.catalog(tmp_path / "warehouse")
    table = catalog.create_table("db.t", pa.schema({"id": pa.int64()}))
    scan = lake.scan("id = 103")
    shown = [lake, scan, scan.plan(), scan.execute(), scan.aggregate(sk.count()), lake.index, catalog]
    members = documented()
    for one in shown:
        assert set(dir(one)) == members[type(one).__name__]
    assert set(dir(table)) == members["Table"] | members["Lake"]
    assert "to_json" in dir(scan.trace())
    assert not [name for name in dir(lake.index.status()) if name.startswith(("_", "json_", "view"))]


def test_refresh_returns_the_lake(lake: sk.Lake) -> None:
    assert lake.refresh() is lake


def test_a_table(tmp_path: Path) -> None:
    catalog = sk.catalog(tmp_path / "warehouse")
    data = pa.table({"id": [1, 2, 3]})
    catalog.create_table("db.t", data.schema, partition_by=["bucket(1, id)"]).table.append(data)
    opened = sk.open("db.t", catalog=catalog)
    read = Reader(opened._repr_html_())
    assert read.texts[0] == "db.t"
    assert f"{opened.snapshot}, 20" in read.text
    assert {"id", "int64", "data files", "1", "rows", "3"} <= set(read.texts)
    assert {"partitioned by", "bucket(1, id)"} <= set(read.texts)
    assert len(opened) == 3
    snapshots = opened.snapshots()
    assert isinstance(snapshots, tuple)
    read = Reader(snapshots._repr_html_())  # type: ignore[attr-defined]
    assert {f"* {opened.snapshot}", "append", "+3", "main"} <= set(read.texts)
    assert str(snapshots).splitlines()[-1] == "* marks the current snapshot"
    empty = catalog.create_table("db.empty", data.schema)
    assert len(empty) == 0
    assert "none yet" in Reader(empty._repr_html_()).texts
