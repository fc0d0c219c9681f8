"""``skipstone verify``: whether skipping changes an answer, which it never may."""

from __future__ import annotations

import typer

from skipstone.cli.options import (
    AnyWhereOption,
    BloomOption,
    ChecksumsOption,
    ColumnsOption,
    DialectOption,
    Format,
    FormatOption,
    IndexOption,
    IndexRootOption,
    LakeArgument,
    LimitOption,
    OrderOption,
    PageIndexOption,
    StorageOption,
    ThreadsOption,
    ZoneOption,
    open_scan,
    read_where,
    storage_options,
)
from skipstone.cli.output import Exit, emit, guarded, print_json, screen
from skipstone.cli.progress import progress


def verify(
    lake: LakeArgument,
    where: AnyWhereOption = None,
    columns: ColumnsOption = None,
    order_by: OrderOption = None,
    limit: LimitOption = None,
    dialect: DialectOption = "spark",
    tz: ZoneOption = "UTC",
    page_index: PageIndexOption = True,
    bloom: BloomOption = True,
    index: IndexOption = True,
    index_root: IndexRootOption = None,
    checksums: ChecksumsOption = False,
    threads: ThreadsOption = None,
    format: FormatOption = Format.TEXT,
    storage_option: StorageOption = None,
) -> None:
    """Run a query with skipping and without, and report every difference."""
    storage = storage_options(storage_option)
    with guarded():
        scan = open_scan(
            lake,
            read_where(where, dialect, tz),
            columns=columns,
            order_by=order_by,
            limit=limit,
            storage=storage,
            index_root=index_root,
            index=index,
            page_index=page_index,
            bloom_filter=bloom,
            checksums=checksums,
            threads=threads,
        )
        with progress("verifying", scan.lake):
            found = scan.verify()
        if format is Format.JSON:
            print_json(found.to_json())
        else:
            from skipstone.explain.verify import draw_verification

            on = screen()
            emit(draw_verification(found, width=on.width, color=on.color))
        if not found.ok:
            raise typer.Exit(int(Exit.DIFFERENT))
