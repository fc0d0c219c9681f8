"""The two routes from a plan to an engine of this process, and the choice between them.

*slices*: Skipstone reads page slices and passes Arrow batches. *reader*: the engine's own reader reads the
kept files. Polars has each query planned, so the choice is made there. DuckDB and DataFusion bind a name to
one kind of table, so the choice is made when the lake is registered, from the plan of its condition.

An engine's own reader must see what Skipstone sees: every kept file has the lake's columns, and the engine
gives them the types that it gives to the lake's. It prunes by bounds of its own, which leave NaN out,
so columns of floating point are guarded, or the reader is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, get_args

import pyarrow as pa

from skipstone.report.trace import EngineUse
from skipstone.scan import handover
from skipstone.scan.parts import weights
from skipstone.scan.plan import ScanPlan
from skipstone.typing import EngineName, EngineRoute

ENGINES: Final = {"duckdb": "DuckDB", "datafusion": "DataFusion", "polars": "Polars"}

# Bytes that an engine's reader decodes while page slices bring one byte to the engine, roughly.
_READER_FASTER: Final = 2.0
# Bytes that it decodes in the time that a scan of few pages takes anyway, or in which DuckDB starts another
# query, whose rows a dataset passes on.
_SMALL: Final = 4 * 1024 * 1024
_UNITS: Final = "row groups"
_PATTERNS: Final = frozenset("*?[]{}\\")


def choose(
    plan: ScanPlan, engine: EngineName, route: EngineRoute, own_obstacle: Callable[[], str | None]
) -> EngineUse:
    """Choose the route of a plan; the engine's own obstacle is looked for if there is no other."""
    name = ENGINES[engine]
    handover.check_route(route, get_args(EngineRoute))
    if not plan.tasks:
        return EngineUse(engine, "slices", handover.NOTHING, 0, 0)
    sizes, _ = weights(plan)
    amount, total = float(sizes.sum()), float((sizes * _extents(plan)).sum())
    start = _SMALL if engine == "duckdb" else -_SMALL
    most = handover.keeps_most(amount, total + start, _READER_FASTER)
    considered = route == "reader" or (route == "auto" and most)
    obstacle = (files_obstacle(plan, name) or own_obstacle()) if considered else None
    if route == "reader" and obstacle is not None:
        raise handover.refuse_reader(name, obstacle)
    if route == "reader" or (route == "auto" and obstacle is None and most and plan.limit is None):
        why = handover.REQUESTED if route == "reader" else handover.reader_reason(amount, total, _UNITS)
        return EngineUse(engine, "reader", why, len(plan.tasks), int(amount))
    if route == "slices":
        why = handover.REQUESTED
    elif plan.limit is not None:
        why = "only the first rows are read"
    elif obstacle is not None and most:
        why = handover.no_reader(name, obstacle)
    elif handover.keeps_most(amount, total, _READER_FASTER):
        why = handover.small_reason(plan, amount, f"a second query in {name}")
    else:
        why = handover.slices_reason(amount, total, _UNITS)
    return EngineUse(engine, "slices", why, len(plan.tasks), int(amount))


def _extents(plan: ScanPlan) -> list[float]:
    """Rows of the row groups that a task touches, which an engine reads, over those that the task keeps."""
    extents = []
    for task, layout in zip(plan.tasks, plan.files.layouts([one.entry for one in plan.tasks]), strict=True):
        if task.rows.is_full:
            extents.append(1.0)
            continue
        starts = layout.row_group_starts
        touched = task.rows.counts(starts, starts + layout.row_group_rows) > 0
        extents.append(float(layout.row_group_rows[touched].sum()) / max(len(task.rows), 1))
    return extents


def files_obstacle(plan: ScanPlan, engine: str) -> str | None:
    """Why the kept files can't be read by another engine as they are; None if they can."""
    common = handover.reader_obstacle(plan, engine)
    if common is not None:
        return common
    outside = {*plan.schemas.partition}
    tested = () if plan.predicate is None else plan.predicate.columns()
    for path in (*plan.projection.paths, *tested):
        if path[0] in outside:
            return f"values of {path[0]} are in the names of directories"
    if any(_PATTERNS.intersection(task.path) for task in plan.tasks):
        return f"{engine} would read a file name as a glob pattern"
    layouts = plan.files.layouts([task.entry for task in plan.tasks])
    if len({id(layout.schema_group) for layout in layouts}) > 1:
        return "files have different schemas"
    if {*layouts[0].query_schema.names} - outside != {*plan.schemas.read.names} - outside:
        return "files lack columns of the lake, or have others"
    return None


def file_schema(plan: ScanPlan) -> pa.Schema:
    """The lake's columns that are in its files."""
    return pa.schema([field for field in plan.schemas.read if field.name not in plan.schemas.partition])


def float_columns(schema: pa.Schema) -> tuple[list[str], str | None]:
    """Columns of floating point, and one with such values inside, which can't be guarded."""
    flat = [field.name for field in schema if pa.types.is_floating(field.type)]
    return flat, next((field.name for field in schema if _has_floats_inside(field.type)), None)


def _has_floats_inside(type: pa.DataType) -> bool:
    inner = [type.field(at).type for at in range(type.num_fields)]
    return any(pa.types.is_floating(one) or _has_floats_inside(one) for one in inner)


def type_obstacle(engine: str, own: dict[str, str], wanted: dict[str, str]) -> str | None:
    """Why the engine would read other types than Skipstone gives it; None if they are equal."""
    for name, type in wanted.items():
        if own.get(name) != type:
            return (
                f"{engine} reads {own.get(name, 'nothing')} from column {name}, which is {type} in the lake"
            )
    return None
