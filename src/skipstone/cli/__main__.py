"""``python -m skipstone.cli``."""

from __future__ import annotations

from skipstone.cli.start import run

if __name__ == "__main__":
    run()
