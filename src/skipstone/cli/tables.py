"""``skipstone tables`` and ``skipstone snapshots``: the Iceberg tables of a catalog, and a table's states."""

from __future__ import annotations

from typing import Annotated

import typer

from skipstone.cli.options import Format, FormatOption, SourceOptions, grouped
from skipstone.cli.output import guarded, show


@grouped
def tables(
    namespace: Annotated[
        str | None, typer.Argument(metavar="NAMESPACE", help="Only tables of this namespace.")
    ] = None,
    format: FormatOption = Format.TEXT,
    *,
    source: SourceOptions,
) -> None:
    """List the Iceberg tables of a catalog by name."""
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
            help="An Iceberg table: its name, such as db.events, and --catalog, or its metadata file.",
        ),
    ],
    format: FormatOption = Format.TEXT,
    *,
    source: SourceOptions,
) -> None:
    """List the snapshots of an Iceberg table, each of which --snapshot takes by id, name or time."""
    with guarded():
        from skipstone.inspection.snapshots import list_snapshots

        show(list_snapshots(source.open_table(table)), format)
