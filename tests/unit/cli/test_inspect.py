"""``skipstone inspect``."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone.report.lines import width_of

Run = Callable[..., Any]


def sections(text: str) -> dict[str, str]:
    """The tables by title; the first one is the file's own."""
    parts = [part.split("\n", 1) for part in text.strip("\n").split("\n\n")]
    return {("file" if number == 0 else part[0]): part[1] for number, part in enumerate(parts)}


def dedent(text: str) -> str:
    return textwrap.dedent(text).strip("\n")


def test_text(run: Run, events: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    done = run("inspect", events, "--columns", "id,mixed,device", "--columns", "name,ratio,place.tags")
    assert done.exit_code == 0
    assert done.stdout.startswith(f"{events}\nrows           400 in 4 row groups of up to 100\n")
    found = sections(done.stdout)
    assert list(found) == ["file", "columns", "values", "clustering"]
    assert "compression    zstd, " in found["file"]
    assert "written by     parquet-cpp-arrow" in found["file"]
    rows = {line.split()[0]: line.split() for line in found["columns"].splitlines()}
    assert rows["id"][1:5] == ["int64", "yes", "int64", "dict"]
    assert rows["device"][-4:] == ["bounds,", "pages,", "bloom,", "dict"]
    assert rows["place.tags.list.element"][-4:] == ["bounds", "ignored,", "pages,", "dict"]
    assert found["values"] == dedent("""
        column                   min     max     nulls      NaN
        id                       0       399         0        –
        mixed                    0       399         0        –
        device                   0       399000      0        –
        name                     'n001'  'n399'     40        –
        ratio                    0.25    99.75       0  unknown
        place.tags.list.element  –       –           0        –
        """)
    assert found["clustering"] == dedent("""
        column                   row groups      = reads  pages            = reads  overlap
        id                       sorted       1.0 (25 %)  sorted       1.0 (6.2 %)  ▁▁▁▁▁▁▁▁▁▁▁▁
        mixed                    random      4.0 (100 %)  overlapping  11.0 (69 %)  ▄▅▅▆▇▇▇▇▆▅▅▄
        device                   random      4.0 (100 %)  overlapping  10.9 (68 %)  ▄▅▅▆▇▇▇▇▆▅▅▄
        name                     sorted       1.0 (25 %)  sorted       1.0 (6.2 %)  ▁▁▁▁▁▁▁▁▁▁▁▁
        ratio                    sorted       1.0 (25 %)  sorted       1.0 (6.2 %)  ▁▁▁▁▁▁▁▁▁▁▁▁
        place.tags.list.element  –                        –
        = reads: average number of units that `column = value` reads
        overlap: the share of units that covers each part of the column's range
        """)


def test_row_groups_and_pages(run: Run, events: Path) -> None:
    done = run("inspect", events, "--columns", "at", "--row-groups", "--pages", "name")
    found = sections(done.stdout)
    rows = [line.split() for line in found["row groups"].splitlines()]
    assert rows[0] == ["#", "first", "row", "rows", "size", "at"]
    assert rows[4][:3] == ["3", "300", "100"]
    assert rows[4][5:] == ["2026-01-01", "00:05:00Z", "to", "2026-01-01", "00:06:39Z"]
    pages = [line.split() for line in found["pages"].splitlines()]
    assert len(pages) == 17
    assert pages[1][:3] == ["0", "0", "25"]
    # A page index doesn't say whether its bounds of text are whole.
    assert pages[1][-5:] == ["≥", "'n001'", "≤", "'n024'", "3"]


def test_json(run: Run, events: Path) -> None:
    done = run("inspect", events, "--format", "json", "--row-groups", "--pages", "id")
    assert done.exit_code == 0
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert found["rows"] == 400
    assert found["row_group_count"] == 4
    assert found["column_count"] == len(found["columns"]) == 9
    assert found["bytes"] == events.stat().st_size
    assert found["codecs"] == ["zstd"]
    assert 0 < found["data_bytes"] < found["bytes"]
    assert found["data_bytes"] == sum(column["bytes"] for column in found["columns"])
    first = found["columns"][0]
    assert first["name"] == "id"
    assert (first["physical_type"], first["logical_type"]) == ("INT64", None)
    assert (first["min"], first["max"]) == ("0", "399")
    assert (first["min_exact"], first["max_exact"]) == (True, True)
    assert first["null_count"] == 0
    assert first["nan_count"] is None
    assert first["row_groups_with"]["bounds"] == 4
    assert first["row_groups_with"]["bloom_filter"] == 0
    assert first["clustering"]["row_groups"]["layout"] == "sorted"
    assert first["clustering"]["row_groups"]["kept_by_equality"] == 0.25
    assert first["clustering"]["pages"]["units"] == 16
    assert found["columns"][3]["row_groups_with"]["bloom_filter"] == 4
    assert found["row_groups"][1]["first_row"] == 100
    assert found["row_groups"][1]["columns"]["id"]["min"] == "100"
    assert [page["first_row"] for page in found["pages"]] == list(range(0, 400, 25))
    assert found["pages"][5]["min"] == "125"
    assert found["read"]["requests"] == 1


@pytest.mark.parametrize("width", [80, 120, 160])
def test_tables_fit_the_screen(run: Run, events: Path, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.chdir(events.parent)
    done = run("inspect", "events.parquet", "--row-groups", "--pages", "name")
    assert done.exit_code == 0
    assert max(map(width_of, done.stdout.splitlines())) <= width
    assert "\x1b" not in done.stdout
    # Markup in a name is text.
    assert "[bold]odd[/bold]" in done.stdout
    columns = sections(done.stdout)["columns"]
    assert ("stored as" in columns.splitlines()[0]) is (width > 80)
    assert ("no room for" in columns) is (width == 80)


def test_files_without_anything(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "empty.parquet"
    pq.write_table(pa.table({"a": pa.array([], pa.int64())}), path)
    for form in ("text", "json"):
        assert run("inspect", path, "--row-groups", "--pages", "a", "--format", form).exit_code == 0
    pq.write_table(pa.table({"a": [1, 2]}), path, write_statistics=False)
    done = run("inspect", path, "--pages", "a")
    assert done.exit_code == 0
    assert "column a: no readable page index" in done.stdout
    assert "unknown" in sections(done.stdout)["values"]
    assert sections(done.stdout)["clustering"].splitlines()[1].split()[:2] == ["a", "single"]
