"""The console script. It imports the app late, so that its settings also apply while modules are loaded."""

from __future__ import annotations

import gc

_YOUNG_OBJECTS = 50_000
"""New objects between two collections. Those of the start stay, so that collections find no garbage."""


def run() -> None:
    """Run the command of this process."""
    gc.set_threshold(_YOUNG_OBJECTS, 20, 100)
    from skipstone.cli.main import run as run_app

    run_app()
