"""The parts of ``make first-hour``, which itself takes minutes and installs packages."""

from __future__ import annotations

import textwrap
import tomllib
from pathlib import Path

import pytest

from scripts import first_hour
from scripts.first_hour import CALLS, STAGES, TASKS, Snippet, Step, Task, judged, perform, snippets
from tests.support.docs import ROOT, blocks

BLOCKS = [
    (3, "python", "print(1)\n"),
    (7, "", "1\n"),
    (20, "python", "x = 2\n"),
    (40, "", "of something else\n"),
    (50, "console", "$ pip install .\n$ A_B=1 skipstone count lake  # rows\n3\n\n$ skipstone schema lake\n"),
]


def test_snippets_and_what_they_show() -> None:
    assert [*snippets("p.md", BLOCKS)] == [
        Snippet("p.md:3", "print(1)\n", "1\n", console=False),
        Snippet("p.md:20", "x = 2\n", None, console=False),
        Snippet("p.md:50", "A_B=1 skipstone count lake  # rows", "3\n\n", console=True),
        Snippet("p.md:50", "skipstone schema lake", None, console=True),
    ]


@pytest.mark.parametrize(
    ("shown", "printed", "error", "outcome"),
    [
        (None, "anything", "", "ok"),
        ("events  x\nin 3.1 ms", "/tmp/1/events  x\nin 12 ms\n", "", "ok"),
        ("2 rows", "3 rows", "", "differs"),
        (None, "", "UsageError: needs pyiceberg (pip install 'skipstone[iceberg]')", "needs [iceberg]"),
        (None, "", "UsageError: needs PySpark (pip install 'skipstone[spark]')", "failed"),
        (None, "", "ModuleNotFoundError: pyiceberg", "failed"),
    ],
)
def test_outcomes(shown: str | None, printed: str, error: str, outcome: str) -> None:
    assert judged(shown, printed, error, ["spark"])[0] == outcome


def test_a_difference_is_shown() -> None:
    assert judged("a\n2 rows\n", "a\n3 rows\n", "", [])[1].splitlines()[-2:] == ["-2 rows", "+3 rows"]


def test_the_table() -> None:
    steps = [
        Step("p.md:1", "a", 1.25, "ok"),
        Step("p.md:9", "b", 1, "needs [spark]"),
        Step("q.md:1", "c", 0, "failed"),
    ]
    assert first_hour.table({"base": steps}).splitlines() == [
        "stage  page  steps  seconds  outcome",
        "base   p.md  2      2.2      1 ok, 1 needs [spark]",
        "base   q.md  1      0.0      1 failed",
    ]
    assert [step.good for step in steps] == [True, True, False]


def test_every_page_and_extra_is_played() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    users = extras.keys() - {"all", "bench", "dev", "server"}
    assert CALLS.keys() == users == {stage.extra for stage in STAGES if stage.extra}
    # Their stores can't be reached, and a server does not end by itself.
    elsewhere = {"docs/azure.md", "docs/gcs.md", "docs/s3.md", "docs/serve.md"}
    pages = {"README.md", *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))} - elsewhere
    with_snippets = {page for page in pages if [*snippets(page, [*blocks(page)])]}
    assert with_snippets == {page for stage in STAGES for page in stage.pages}


def test_tasks_are_timed(tmp_path: Path) -> None:
    tasks = [
        Task("reads", "assert open('x').read() == '1'", most=60, prepare="open('x', 'w').write('1')"),
        Task("fails", "raise SystemExit('no such thing')", most=60),
        Task("waits", "import time; time.sleep(0.2)", most=0.1),
        Task("needs another extra", "", most=60, extra="spark"),
    ]
    steps = [*perform(tasks, ["iceberg"], tmp_path)]
    assert [(step.code, step.outcome, step.good) for step in steps] == [
        ("reads", "ok", True),
        ("fails", "failed", False),
        ("waits", "slow", False),
    ]
    assert "no such thing" in steps[1].detail
    assert steps[2].detail.endswith("at most 0.1 s on an idle machine")
    for task in TASKS:
        compile(textwrap.dedent(task.code), task.name, "exec")
        compile(textwrap.dedent(task.prepare), task.name, "exec")


def test_an_unknown_stage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        first_hour.main(["--stages", "base,nope"])
    assert "unknown stage nope" in capsys.readouterr().err
