"""Progress bars on standard error, on a terminal only, for work that takes a while."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

    from skipstone.scan.lake import Lake

# Seconds before a bar is shown.
_PATIENCE = 0.5
_NO_PARTS: Mapping[str, str] = MappingProxyType({})

Advance = Callable[[int], None]


@contextmanager
def progress(
    what: str,
    lake: Lake,
    *,
    rows: int | None = None,
    to_read: Callable[[], int] | None = None,
    shown: bool = True,
) -> Iterator[Advance]:
    """Show the progress of work by rows, or else by bytes, if either total is available."""
    if not (shown and sys.stderr.isatty()):
        yield lambda _: None
        return
    bar = _Bar(what, lake, rows, to_read() if rows is None and to_read is not None else None)
    with _late(bar.shown):
        yield bar.advance


@contextmanager
def steps(phase: str, parts: Mapping[str, str] = _NO_PARTS) -> Iterator[Steps | None]:
    """Show how many parts of each phase are done; ``parts`` has their nouns. None without a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    bar = Steps(phase, parts)
    with _late(bar.shown):
        yield bar


@contextmanager
def _late(shown: Progress) -> Iterator[None]:
    """Show a bar after a delay, until the work is done."""
    lock = threading.Lock()
    over = False

    def start() -> None:
        with lock:
            if not over:
                shown.start()

    timer = threading.Timer(_PATIENCE, start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        with lock:
            over = True
            shown.stop()


class Steps:
    """A bar of work in phases and batches."""

    def __init__(self, phase: str, parts: Mapping[str, str]) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self.shown = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[said]}"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self.shown.add_task(phase, total=None, said="")
        self._parts = parts
        self._batch = ""

    def begin(self, phase: str) -> None:
        """Begin a phase of unknown length."""
        self.shown.update(self._task, description=f"{self._batch}{phase}", completed=0, said="")
        # To update() None means that the total stays.
        self.shown.tasks[0].total = None

    def batch(self, number: int, batches: int, phase: str) -> None:
        """Begin the next batch with this phase."""
        self._batch = f"batch {number + 1:,} of {batches:,}, " if batches > 1 else ""
        self.begin(phase)

    def update(self, phase: str, done: int, total: int) -> None:
        """Report that parts of a phase are done."""
        from skipstone.report.units import count, plural

        said = f"{count(done)} of {plural(total, self._parts[phase])}"
        described = f"{self._batch}{phase}"
        self.shown.update(self._task, description=described, completed=done, total=total, said=said)


class _Bar:
    """A bar of rows or bytes."""

    def __init__(self, what: str, lake: Lake, rows: int | None, nbytes: int | None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
        from rich.text import Text

        from skipstone.report.units import cost, count, plural, size

        bar, before = self, lake.io

        class Done(ProgressColumn):
            """Rows returned, and the reads for them."""

            def render(self, task: Task) -> Text:
                if rows is not None:
                    said = f"{count(bar.rows)} of {plural(rows, 'row')}, "
                else:
                    said = f"{plural(bar.rows, 'row')}, " if bar.rows else ""
                io = lake.io - before
                of = f"{size(io.bytes)} of {size(nbytes)}" if nbytes else cost(io.requests, io.bytes)
                # Every refresh comes here, so the bar also moves between batches.
                task.completed = bar.rows if rows is not None else min(io.bytes, nbytes or 0)
                return Text(f"{said}read {of}")

        self.rows = 0
        self.shown = Progress(
            TextColumn("{task.description}"),
            Done(),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self.shown.add_task(what, total=rows if rows is not None else nbytes or None)

    def advance(self, rows: int) -> None:
        self.rows += rows
