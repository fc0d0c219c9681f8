"""Figures are true: what is read is part of what there is, and every report shows the same numbers."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import skipstone as sk
from skipstone.cli.main import app
from skipstone.report.units import size

ROWS = 3_000


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, sk.Lake]:
    """Small pages and dictionaries; no page index; whole row groups only; an index; few bytes."""
    root, chance = tmp_path_factory.mktemp("figures"), random.Random(18)
    layouts: dict[str, dict[str, Any]] = {
        "pages": {"data_page_size": 512, "write_page_index": True, "row_group_size": 1_000},
        "bare": {"row_group_size": 700},
        "whole": {"use_dictionary": False, "write_page_index": True},
        "indexed": {"data_page_size": 512, "write_page_index": True, "row_group_size": 1_000},
    }
    for name, layout in layouts.items():
        for day in (1, 2, 3):
            folder = root / name / f"day=2026-01-0{day}"
            folder.mkdir(parents=True)
            data = {
                "id": [day * ROWS + n for n in range(ROWS)],
                "word": [f"word {chance.randrange(40)}" for _ in range(ROWS)],
                "x": [chance.random() for _ in range(ROWS)],
            }
            pq.write_table(pa.table(data), folder / "f.parquet", **layout)
    (root / "tiny").mkdir()
    pq.write_table(pa.table({"id": [1], "word": ["a"], "x": [0.5]}), root / "tiny" / "f.parquet")
    sk.open(root / "indexed").index.build(engine="local")
    return {name: sk.open(root / name) for name in (*layouts, "tiny")}


QUESTIONS: list[dict[str, Any]] = [
    {},
    {"where": "id = 4000"},
    {"where": "id between 5900 and 6100", "columns": "id"},
    {"where": "word = 'word 7' and x > 0.5"},
    {"where": "x < 0", "columns": ["word"]},
    {"where": "id < 0"},
    {"where": "word = 'word 3'", "limit": 5, "columns": ["id", "x"]},
    {"where": "id > 3500", "order_by": "x desc", "limit": 20},
    {"order_by": "word", "columns": ["id"]},
    {"where": "id % 500 = 3", "materialise": "late", "route": "slice"},
    {"where": "id % 500 = 3 and id < 7000", "materialise": "one-pass", "batch_rows": 64},
    {"where": "id > 4100", "route": "pyarrow", "columns": ["x"]},
    {"where": "id > 4100", "skipping": False},
    {"columns": []},
    {"where": "id > 4100", "columns": ["id", "x * 2 AS double"]},
    {"columns": "upper(word) AS word", "limit": 3},
]


def explained(scan: sk.Scan) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(scan.explain(analyze=True, format="json"))
    return found


def check(trace: dict[str, Any]) -> None:
    """Parts are at most as large as what they are parts of."""
    reads, run = trace["reads"], trace["run"]
    assert 0 <= reads["bytes"] <= reads["bytes_total"] <= trace["file_bytes"]
    assert 0 <= run["bytes"] <= reads["bytes_total"]
    assert run["bytes"] == sum(phase["bytes"] for phase in run["phases"]) <= run["bytes_transferred"]
    assert run["rows"] <= trace["rows_kept"] <= trace["rows_total"]
    assert trace["rows_proven"] <= trace["rows_kept"]
    rows = [level["rows"] for level in trace["levels"] if level["rows"] is not None]
    assert rows == sorted(rows, reverse=True)
    for level in trace["levels"]:
        assert level["kept"] + sum(drop["units"] for drop in level["drops"]) == level["units"]
        assert level["proven"] <= level["kept"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: str(question) or "all")
def test_parts_are_parts(lakes: dict[str, sk.Lake], question: dict[str, Any]) -> None:
    for lake in lakes.values():
        check(explained(lake.scan(**question)))
        check(explained(sk.open(lake.uri).scan(**question)))


def test_parts_of_a_table_are_parts(tmp_path_factory: pytest.TempPathFactory) -> None:
    catalog = sk.catalog(tmp_path_factory.mktemp("warehouse"))
    rows = pa.table({"id": range(3 * ROWS), "word": [f"word {n % 40}" for n in range(3 * ROWS)]})
    table = catalog.create_table("db.t", rows.schema, partition_by=["bucket(4, id)"])
    for start in range(0, 3 * ROWS, ROWS):
        table.table.append(rows.slice(start, ROWS))
    opened = catalog.open("db.t")
    for question in ({}, {"where": "id between 4000 and 4100"}, {"where": "word = 'word 7'", "limit": 3}):
        check(explained(opened.scan(**question)))  # type: ignore[arg-type]


def test_verify_and_explain_mean_the_same(lakes: dict[str, sk.Lake]) -> None:
    for lake in lakes.values():
        for question in QUESTIONS[:6]:
            scan = lake.scan(**question)
            found, trace = scan.verify(), explained(scan)
            assert found.ok
            assert found.bytes_with == trace["run"]["bytes"]
            if trace["tasks"]:
                # Extrapolated from the files that were kept.
                assert trace["reads"]["bytes_total"] == pytest.approx(found.bytes_without, rel=0.05)


def figures(text: str) -> Iterator[tuple[str, str]]:
    return iter(re.findall(r"([\d.]+ k?B) of ([\d.]+ k?B)", text))


@pytest.mark.parametrize("where", ["id = 4000", "id >= 3500", "word = 'word 7'", "x < 0", "id > 0"])
def test_the_query_footer_the_tree_and_json_agree(lakes: dict[str, sk.Lake], where: str) -> None:
    def run(*arguments: str) -> str:
        done = CliRunner().invoke(app, [*arguments, "--limit", "30"])
        assert done.exit_code == 0, done.output
        return done.stdout

    for lake in lakes.values():
        trace = json.loads(run("explain", lake.uri, where, "--analyze", "--format", "json"))
        tree = run("explain", lake.uri, where, "--analyze")
        footer = run("query", lake.uri, where)
        read = size(trace["run"]["bytes"])
        if not trace["reads"]["bytes_total"]:
            assert not list(figures(tree))
            assert "read 0 B · " in footer
            continue
        pair = (read, size(trace["reads"]["bytes_total"]))
        assert list(figures(tree)) == [pair]
        assert f", {read}\n" in tree
        assert list(figures(footer)) == [pair]


def test_aggregates_count_the_same_bytes(lakes: dict[str, sk.Lake]) -> None:
    lake = sk.open(lakes["pages"].uri)
    answer = lake.scan("word = 'word 7'").aggregate(sk.sum("x"))
    answer.to_arrow()
    run = answer.trace.run
    assert run is not None
    stored = {column.name: column.compressed_bytes or 0 for column in lake.statistics().columns}
    assert 0 < run.bytes <= stored["word"] + stored["x"]
    assert run.bytes == sum(phase.bytes for phase in run.phases) <= run.bytes_transferred
