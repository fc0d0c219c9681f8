"""Objects in a notebook: one element with its own style, which runs and fetches nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


def test_a_scan_reads_no_data(lake: sk.Lake) -> None:
    opened = sk.open(lake.uri)
    html = opened.scan("id = 103")._repr_html_()
    assert "kept 1 of 2 (50 %)" in html
    assert opened.access.io().requests == 0


def test_a_table(tmp_path: Path) -> None:
    catalog = sk.catalog(tmp_path / "warehouse")
    data = pa.table({"id": [1, 2, 3]})
    catalog.create_table("db.t", data.schema).table.append(data)
    opened = sk.open("db.t", catalog=catalog)
    read = Reader(opened._repr_html_())
    assert f"snapshot {opened.snapshot} (data files: 1, rows: 3)" in read.text
    assert {"id", "int64"} <= set(read.texts)
