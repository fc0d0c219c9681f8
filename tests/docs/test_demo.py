"""The part of ``make demo`` that needs no Spark runs, on a smaller lake; it checks its own answers."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from typer.testing import CliRunner

from skipstone.cli import demo
from skipstone.cli.main import app
from skipstone.errors import UsageError

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


def test_demo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = importlib.util.spec_from_file_location("demo", DEMO)
    assert spec is not None
    assert spec.loader is not None
    tour = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tour)
    tour.local(tmp_path / "events", demo.events(200_000))
    printed = capsys.readouterr().out
    assert printed.count("the same rows as in a full scan ✓") == 8
    assert "the exact sum of all these rows, rounded once ✓" in printed


def test_a_demo_stays_and_is_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    assert demo.prepare(folder, replace=False)
    (folder / "events").mkdir()
    # An unfinished demo is written again, a finished one only on request.
    assert demo.prepare(folder, replace=False)
    assert not (folder / "events").exists()
    (folder / "events").mkdir()
    (folder / "notes.txt").write_text("mine")
    demo.finish(folder)
    assert not demo.prepare(folder, replace=False)
    assert (folder / "events").exists()
    assert demo.prepare(folder, replace=True)
    assert {path.name for path in folder.iterdir()} == {".skipstone-demo", "notes.txt"}
    # The folders of others are left alone.
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "events").mkdir()
    with pytest.raises(UsageError, match="not empty"):
        demo.prepare(tmp_path / "mine", replace=True)
    assert (tmp_path / "mine" / "events").exists()
    (tmp_path / "file").write_text("")
    done = CliRunner().invoke(app, ["demo", str(tmp_path / "file" / "demo")])
    assert (done.exit_code, "demo can't be written: Not a directory" in done.stderr) == (5, True)
