"""``skipstone tables`` and ``skipstone snapshots``: tables of a catalog, and snapshots of a table."""

from __future__ import annotations

from typing import Annotated

import typer

from skipstone.cli.options import Format, FormatOption, SourceOptions, grouped
from skipstone.cli.output import guarded, show


@grouped
def tables(
    namespace: Annotated[
        str | None, typer.Argument(metavar="NAMESPACE", help="List only tables of this namespace.")
    ] = None,
    format: FormatOption = Format.TEXT,
    *,
    source: SourceOptions,
) -> None:
    """List the Iceberg tables of a catalog."""
    with guarded():
        from skipstone.inspection.snapshots import TableList

        catalog = source.open_catalog()
        names = tuple(catalog.tables(namespace))
        show(TableList(catalog.iceberg.name, namespace, names), format)


@grouped
def snapshots(
    table: Annotated[
        str,
        typer.Argument(
            metavar="TABLE",
            help="Iceberg table: a name such as db.events with --catalog, or its metadata file.",
        ),
    ],
    format: FormatOption = Format.TEXT,
    *,
    source: SourceOptions,
) -> None:
    """List the snapshots of an Iceberg table; pass an id, name or time of one to --snapshot."""
    with guarded():
        from skipstone.inspection.snapshots import list_snapshots

        show(list_snapshots(source.open_table(table)), format)
