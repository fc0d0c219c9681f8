"""``skipstone count``: how many rows match."""

from __future__ import annotations

import time

from skipstone.cli.options import (
    AnyWhereOption,
    BloomOption,
    ChecksumsOption,
    DialectOption,
    Format,
    FormatOption,
    IndexOption,
    IndexRootOption,
    LakeArgument,
    PageIndexOption,
    SkippingOption,
    StorageOption,
    ThreadsOption,
    ZoneOption,
    open_scan,
    read_where,
    storage_options,
)
from skipstone.cli.output import emit, guarded, print_json
from skipstone.cli.progress import progress


def count(
    lake: LakeArgument,
    where: AnyWhereOption = None,
    dialect: DialectOption = "spark",
    tz: ZoneOption = "UTC",
    skipping: SkippingOption = True,
    page_index: PageIndexOption = True,
    bloom: BloomOption = True,
    index: IndexOption = True,
    index_root: IndexRootOption = None,
    checksums: ChecksumsOption = False,
    threads: ThreadsOption = None,
    format: FormatOption = Format.TEXT,
    storage_option: StorageOption = None,
) -> None:
    """Count the rows that match; those that metadata proves are not read."""
    storage = storage_options(storage_option)
    began = time.perf_counter()
    with guarded():
        scan = open_scan(
            lake,
            read_where(where, dialect, tz),
            storage=storage,
            index_root=index_root,
            index=index,
            skipping=skipping,
            page_index=page_index,
            bloom_filter=bloom,
            checksums=checksums,
            threads=threads,
        )
        with progress("counting", scan.lake):
            plan = scan.plan()
            found = scan.count()
        if format is Format.TEXT:
            emit(str(found))
            return
        io = scan.lake.io
        print_json(
            {
                "count": found,
                "from_metadata": sum(len(task.proven) for task in plan.tasks),
                "tested": sum(len(task.rows) - len(task.proven) for task in plan.tasks),
                "files": len(scan.lake.entries),
                "requests": io.requests,
                "bytes": io.bytes,
                "seconds": round(time.perf_counter() - began, 6),
            }
        )
