"""A bar on standard error while something takes long; on a terminal only, and gone when it is done."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skipstone.lake.directory import DirectoryLake

# Work that is done before anyone looks needs no bar.
_PATIENCE = 0.5

Advance = Callable[[int], None]


@contextmanager
def progress(
    what: str,
    lake: DirectoryLake,
    *,
    rows: int | None = None,
    to_read: Callable[[], int] | None = None,
    shown: bool = True,
) -> Iterator[Advance]:
    """Tell how far the work is, by rows or else by bytes, as far as either is known beforehand."""
    if not (shown and sys.stderr.isatty()):
        yield lambda _: None
        return
    bar = _Bar(what, lake, rows, to_read() if rows is None and to_read is not None else None)
    timer = threading.Timer(_PATIENCE, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield bar.advance
    finally:
        timer.cancel()
        bar.stop()


class _Bar:
    """A rich progress bar that may be started and stopped from different threads, in any order."""

    def __init__(self, what: str, lake: DirectoryLake, rows: int | None, nbytes: int | None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
        from rich.text import Text

        from skipstone.explain.units import count, plural, size
        from skipstone.explain.words import cost

        bar, before = self, lake.io

        class Done(ProgressColumn):
            """Rows that came out, and what was read for them."""

            def render(self, task: Task) -> Text:
                if rows is not None:
                    said = f"{count(bar.rows)} of {plural(rows, 'row')}, "
                else:
                    said = f"{plural(bar.rows, 'row')}, " if bar.rows else ""
                io = lake.io - before
                of = f"{size(io.bytes)} of {size(nbytes)}" if nbytes else cost(io.requests, io.bytes)
                # Here every refresh passes by, so the bar moves between batches as well.
                task.completed = bar.rows if rows is not None else min(io.bytes, nbytes or 0)
                return Text(f"{said}read {of}")

        self.rows = 0
        self._shown = Progress(
            TextColumn("{task.description}"),
            Done(),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._shown.add_task(what, total=rows if rows is not None else nbytes or None)
        self._lock = threading.Lock()
        self._over = False

    def start(self) -> None:
        with self._lock:
            if not self._over:
                self._shown.start()

    def advance(self, rows: int) -> None:
        self.rows += rows

    def stop(self) -> None:
        with self._lock:
            self._over = True
            self._shown.stop()
