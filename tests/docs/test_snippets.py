"""What README and docs show runs as written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.docs import ROOT, blocks, namespace, run_page, run_python, write_events, write_table

SPARK_PAGES = {"docs/cli.md", "docs/ingest.md", "docs/spark.md"}
"""Run in the session of tests/spark."""
WITHOUT_SNIPPETS = {"docs/architecture.md", "docs/benchmarks.md", "docs/soundness.md"}
PAGES = {
    "README.md": 3,
    "docs/index.md": 1,
    "docs/start.md": 5,
    "docs/lakes.md": 2,
    "docs/predicates.md": 1,
    "docs/pruning.md": 2,
    "docs/aggregates.md": 7,
    "docs/indexes.md": 4,
    "docs/iceberg.md": 2,
}
OWN_LAKE = {"README.md", "docs/start.md"}
"""Pages that write the lake they query."""


def test_every_page_is_run() -> None:
    pages = {"README.md", *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))}
    assert pages == PAGES.keys() | SPARK_PAGES | WITHOUT_SNIPPETS
    for page in WITHOUT_SNIPPETS:
        assert not [language for _, language, _ in blocks(page) if language in ("python", "console")]


@pytest.mark.parametrize("page", PAGES)
def test_snippets_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    if page not in OWN_LAKE:
        write_events(tmp_path)
        names = namespace(tmp_path)
    if page == "docs/iceberg.md":
        write_table()
    assert run_page(page, names) == PAGES[page]


def test_readme_shows_what_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (_, language, code), (_, _, shown), *_ = blocks("README.md")
    assert language == "python"
    run_python(code, "README.md", {})
    assert _masked(capsys.readouterr().out) == _masked(shown)


def _masked(text: str) -> str:
    """Without what differs from run to run: the path of the lake, its version, times."""
    text = re.sub(r"^\S*events  ", "events  ", text, flags=re.MULTILINE)
    text = re.sub(r"version \w+", "version", text)
    return re.sub(r" *[\d.]+ (ms|µs|s)\b", " time", text)
