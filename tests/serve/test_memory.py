"""The memory of a server that plans for a long time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import plan_server


@pytest.mark.slow
def test_memory_does_not_grow(tmp_path: Path) -> None:
    """10,000 questions of all kinds need no more memory than 2,000.

    The server opens its lakes again every ten seconds. Before it freed the old ones, it grew by 100 MB.
    """
    served = plan_server.served(200, tmp_path, Console(quiet=True))
    kinds = plan_server.kinds(served)
    with plan_server.serving(served) as server:
        warm = plan_server.sustain(server, kinds, 2_000, 0)
        sizes = [plan_server.sustain(server, kinds, 2_500, first) for first in range(2_000, 12_000, 2_500)]
    assert warm > 50
    assert max(sizes) < warm + 25, (warm, sizes)


@pytest.mark.slow
def test_the_benchmark_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Answers are checked by the benchmark itself; no clock is looked at."""
    options = ["--quick", "--seconds", "0.02", "--requests", "0", "--data", str(tmp_path)]
    plan_server.main([*options, "--json", str(tmp_path / "found.json")])
    found = json.loads((tmp_path / "found.json").read_text())
    assert len(found["loads"]) == 27
    assert {one["connections"] for one in found["loads"]} == {1, 4, 16}
    assert all(one["requests"] > 0 for one in found["loads"])
    assert len(found["memory_mb"]) == 1
    assert "REST plan, bloom" in capsys.readouterr().out
