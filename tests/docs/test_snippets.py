"""What README and docs show runs as written."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

import pytest

from scripts.first_hour import masked
from skipstone.cli.demo import COMMANDS
from skipstone.store.options import canonical_options
from tests.support.docs import (
    ROOT,
    blocks,
    namespace,
    run_page,
    write_bucket,
    write_events,
    write_table,
)

SPARK_PAGES = {"docs/cli.md", "docs/ingest.md", "docs/s3.md", "docs/spark.md"}
"""Run in the session of tests/spark."""
REMOTE_PAGES = {"docs/azure.md", "docs/gcs.md"}
"""Their stores can't be reached; the storage options are checked."""
WITHOUT_SNIPPETS = {f"docs/{name}.md" for name in ("architecture", "benchmarks", "serve", "soundness")}
"""The commands of docs/serve.md run until they are interrupted: tests/serve runs them."""
PAGES = {
    "README.md": 9,
    "docs/index.md": 1,
    "docs/start.md": 5,
    "docs/lakes.md": 4,
    "docs/predicates.md": 2,
    "docs/pruning.md": 2,
    "docs/aggregates.md": 8,
    "docs/indexes.md": 4,
    "docs/compaction.md": 12,
    "docs/iceberg.md": 2,
    "docs/engines.md": 7,
    "docs/maintenance.md": 6,
    "docs/keyed-tables.md": 6,
    "docs/troubleshooting.md": 1,
}
OWN_LAKE = "docs/start.md"
"""The page that writes the lake it queries."""


def test_every_page_is_run() -> None:
    pages = {"README.md", *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))}
    assert pages == PAGES.keys() | SPARK_PAGES | REMOTE_PAGES | WITHOUT_SNIPPETS | {"docs/minio.md"}
    for page in WITHOUT_SNIPPETS:
        assert not [language for _, language, _ in blocks(page) if language in ("python", "console")]


@pytest.mark.parametrize("page", [page for page in PAGES if page != "README.md"])
def test_snippets_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    if page != OWN_LAKE:
        write_events(tmp_path)
        names = namespace(tmp_path)
    if page in ("docs/compaction.md", "docs/iceberg.md", "docs/maintenance.md"):
        write_table()
    assert run_page(page, names) == PAGES[page]


def test_snippets_on_s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, s3: dict[str, str]) -> None:
    monkeypatch.chdir(tmp_path)
    write_events(tmp_path)
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in write_bucket(tmp_path, s3["aws_endpoint"]).items():
        monkeypatch.setenv(name, value)
    assert run_page("docs/minio.md", {}, s3["aws_endpoint"]) == 5


@pytest.mark.parametrize("page", sorted(REMOTE_PAGES))
def test_snippets_of_remote_stores(page: str) -> None:
    checked = 0
    for line, language, text in blocks(page):
        uri = (re.search(r"\b(?:gs|az|abfss)://[^\s\"]*", text) or ["az://c"])[0]
        if language == "python":
            passed = [
                {name.value: None for name in node.keys if isinstance(name, ast.Constant)}
                for node in ast.walk(ast.parse(text, f"{page}:{line}"))
                if isinstance(node, ast.Dict)
            ]
        else:
            passed = [dict.fromkeys(re.findall(r"--storage-option (\w+)=", text))]
        for options in passed:
            canonical_options(options, uri)
            checked += bool(options)
    assert checked >= 3


def test_readme_shows_what_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_page("README.md", {}) == PAGES["README.md"]
    (shown,) = (text for _, language, text in blocks("README.md") if not language)
    assert masked(capsys.readouterr().out) == masked(shown)
    commands = [text for _, language, text in blocks("README.md") if "skipstone query" in text]
    assert commands == ["".join(f"$ {command.format(demo='demo')}\n" for command in COMMANDS)]
