"""``skipstone count``: how many rows match."""

from __future__ import annotations

import time

from skipstone.cli.engine import Cluster, EngineName, EngineOption, engine_arguments, job_guarded
from skipstone.cli.groups import grouped
from skipstone.cli.options import (
    AnyWhereOption,
    DialectOption,
    Format,
    FormatOption,
    LakeArgument,
    Reading,
    SkippingOption,
    ZoneOption,
    open_scan,
    read_where,
)
from skipstone.cli.output import emit, print_json
from skipstone.cli.progress import progress


@grouped
def count(
    lake: LakeArgument,
    where: AnyWhereOption = None,
    dialect: DialectOption = "spark",
    tz: ZoneOption = "UTC",
    skipping: SkippingOption = True,
    format: FormatOption = Format.TEXT,
    engine: EngineOption = EngineName.LOCAL,
    *,
    cluster: Cluster,
    reading: Reading,
) -> None:
    """Count the rows that match; those that metadata proves are not read."""
    work = engine_arguments(engine, cluster, reading.threads)
    if engine is EngineName.LOCAL:
        # A scan counts on its own threads, and with its own bounds of memory.
        work = {}
    began = time.perf_counter()
    with job_guarded():
        scan = open_scan(
            lake,
            read_where(where, dialect, tz),
            reading,
            skipping=skipping,
        )
        with progress("counting", scan.lake):
            plan = scan.plan()
            found = scan.count(**work)
        if format is Format.TEXT:
            emit(str(found))
            return
        io = scan.lake.io
        print_json(
            {
                "count": found,
                "from_metadata": sum(len(task.proven) for task in plan.tasks),
                "tested": sum(len(task.rows) - len(task.proven) for task in plan.tasks),
                "engine": str(engine),
                "files": len(scan.lake.entries),
                "requests": io.requests,
                "bytes": io.bytes,
                "seconds": round(time.perf_counter() - began, 6),
            }
        )
