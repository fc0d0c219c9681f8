"""Reports in a notebook, whose own rules for tables are stronger than most: drawn by the browser."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from tests.serve._browser import chromium

# JupyterLab's rules for tables of HTML results, as of version 4.
JUPYTER = """
.jp-RenderedHTMLCommon table { border-collapse: collapse; table-layout: fixed; margin-left: auto; }
.jp-RenderedHTMLCommon td, .jp-RenderedHTMLCommon th, .jp-RenderedHTMLCommon tr {
  vertical-align: middle; padding: .5em; line-height: normal; white-space: normal; max-width: none;
}
.jp-RenderedHTMLCommon:not(.jp-RenderedMarkdown) td,
.jp-RenderedHTMLCommon:not(.jp-RenderedMarkdown) th,
.jp-RenderedHTMLCommon:not(.jp-RenderedMarkdown) tr { text-align: right; }
.jp-RenderedHTMLCommon tbody tr:nth-child(even) { background: #f5f5f5; }
"""
MEASURE = """() => {
  const cells = [...document.querySelectorAll('.skst td, .skst th')];
  const looks = cells.map(cell => [cell, getComputedStyle(cell)]);
  return {
    cells: cells.length,
    right: looks.filter(([, look]) => look.textAlign == 'right').map(([cell]) => cell.innerText),
    over: looks.filter(([, look]) => look.overflowX != 'hidden').map(([cell]) => cell)
      .filter(cell => cell.scrollWidth > cell.clientWidth + 1).map(cell => cell.innerText),
    indents: looks.filter(([cell]) => /^ +at$/.test(cell.textContent)).map(([, look]) => look.whiteSpace),
  };
}"""


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("look")
    rows = pa.table(
        {"id": [1, 2], "kind_of_event": ["a rather long kind of event"] * 2, "city": ["L" * 60] * 2}
    )
    table = sk.catalog(root / "warehouse").create_table(
        "db.t", rows.schema, partition_by=["city", "kind_of_event"]
    )
    for _ in range(2):
        sk.ingest(rows, table.refresh().table, engine="local")
    pq.write_table(pa.table({"id": [1, 2], "s": [{"at": 1}, {"at": 2}]}), root / "f.parquet")
    lake = sk.open(root / "f.parquet")
    table.refresh()
    shown = [table.plan_compaction(min_input_files=2), lake, table.snapshots(), lake.scan("id > 1")]
    return "".join(f'<div class="jp-RenderedHTMLCommon">{one._repr_html_()}</div>' for one in shown)


def test_cells_are_aligned_and_wrap(reports: str, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(f"<!DOCTYPE html><meta charset=utf-8><style>{JUPYTER}</style><body>{reports}")
    with chromium() as browser:
        for width in (1_000, 420):
            tab = browser.new_page(viewport={"width": width, "height": 800})
            tab.goto(page.as_uri())
            found = tab.evaluate(MEASURE)
            assert found["over"] == []
            # Numbers stay on the right; all else is on the left.
            numbers = {
                "group",
                "files",
                "size",
                "new files",
                "snapshot",
                "rows",
                "live rows",
                "id",
                "int64",
                "–",
            }
            assert {
                cell for cell in found["right"] if not cell[:1].isdigit() and cell[:1] not in "*+"
            } <= numbers
            assert "why" not in found["right"]
            assert found["cells"] > 40
            assert found["indents"] == ["pre-wrap"]
