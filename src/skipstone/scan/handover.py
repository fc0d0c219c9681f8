"""The choice between page slices and another engine's own reader of the kept files.

An engine's own reader decodes faster than Skipstone can pass rows to it, so it suits plans that keep most of
the bytes. It knows neither a table's column mapping nor its deletes, nor the settings of an object store.
"""

from __future__ import annotations

from collections.abc import Sequence

from skipstone.errors import UsageError
from skipstone.lake.files import Files
from skipstone.parquet.evidence import misleads_readers
from skipstone.report.units import plural, size
from skipstone.scan.plan import ScanPlan

REQUESTED = "requested"
NOTHING = "nothing is left to read"


def is_table(files: Files) -> bool:
    """Whether the files belong to a table: only tables map columns by field id."""
    return files.naming is not None


def reader_obstacle(plan: ScanPlan, engine: str) -> str | None:
    """Why no engine's own reader can run the plan; None if it may."""
    if is_table(plan.files):
        return "a table's columns are mapped by field id, and its files may have deleted rows"
    if not plan.files.store.local:
        return f"the files are in an object store, for which {engine} needs its own settings"
    if plan.projection.computed is not None and not plan.projection.computed.plain:
        return "columns are computed by Skipstone"
    layouts = {id(one.schema_group): one for one in plan.files.layouts([task.entry for task in plan.tasks])}
    if any(map(misleads_readers, layouts.values())):
        return "statistics of an old writer are wrong, and the engine would believe them"
    return None


def refuse_reader(engine: str, obstacle: str) -> UsageError:
    """The error of a route that was requested and can't be taken."""
    return UsageError(no_reader(engine, obstacle), hint='use route="slices"')


def check_route(route: str, routes: Sequence[str]) -> None:
    """Refuse an unknown route."""
    if route not in routes:
        raise UsageError(f"unknown route {route!r}", hint=f"use one of {', '.join(routes)}")


def keeps_most(amount: float, total: float, faster: float) -> bool:
    """Whether a reader that is so many times as fast should read all bytes of the kept files."""
    return amount * faster >= total


def reader_reason(amount: float, total: float, units: str = "files") -> str:
    """Why the engine's own reader is chosen."""
    return f"{_percent(amount, total)} of the kept {units}' bytes would be read anyway"


def slices_reason(amount: float, total: float, units: str = "files") -> str:
    """Why page slices are chosen, unless the engine's own reader can't run the scan."""
    return f"{_percent(amount, total)} of the kept {units}' bytes are in pages that may match"


def no_reader(engine: str, obstacle: str) -> str:
    """Why page slices are chosen though most bytes are read."""
    return f"{engine}'s own reader can't run this scan: {obstacle}"


def small_reason(plan: ScanPlan, amount: float, than: str) -> str:
    """Why a few bytes are read without further ado."""
    if not plan.tasks:
        return NOTHING
    return f"reading {size(int(amount))} from {plural(len(plan.tasks), 'file')} is faster than {than}"


def _percent(amount: float, total: float) -> str:
    return f"{100 * amount / total:.0f} %" if total else "none"
