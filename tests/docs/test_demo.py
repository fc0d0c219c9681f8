"""The part of ``make demo`` that needs no Spark runs, on a smaller lake; it checks its own answers."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


def test_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    spec = importlib.util.spec_from_file_location("demo", DEMO)
    assert spec is not None
    assert spec.loader is not None
    demo = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(demo)
    monkeypatch.setattr(demo, "ROWS", 200_000)
    demo.local(tmp_path / "events")
    printed = capsys.readouterr().out
    assert printed.count("the same rows as in a full scan ✓") == 8
    assert "the exact sum of all these rows, rounded once ✓" in printed
