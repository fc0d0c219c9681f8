"""The memory of a server that plans for a long time."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_memory_does_not_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """10,000 questions of all kinds, none of which was asked before, need no more memory than 2,000.

    The server opens its lakes again every ten seconds: before their memory was freed, 10,000 questions took
    100 MB.
    """
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks import plan_server
    from rich.console import Console

    served = plan_server.served(200, tmp_path, Console(quiet=True))
    kinds = plan_server.kinds(served)
    with plan_server.serving(served) as server:
        warm = plan_server.sustain(server, kinds, 2_000, 0)
        sizes = [plan_server.sustain(server, kinds, 2_500, first) for first in range(2_000, 12_000, 2_500)]
    assert 50 < warm
    assert max(sizes) < warm + 25, (warm, sizes)
