"""``skipstone tables``: the Iceberg tables of a catalog."""

from __future__ import annotations

from typing import Annotated

import typer

from skipstone.cli.groups import grouped
from skipstone.cli.options import Format, FormatOption, Source
from skipstone.cli.output import emit, guarded, print_json


@grouped
def tables(
    namespace: Annotated[
        str | None, typer.Argument(metavar="NAMESPACE", help="Only tables of this namespace.")
    ] = None,
    format: FormatOption = Format.TEXT,
    *,
    source: Source,
) -> None:
    """List the Iceberg tables of a catalog by name."""
    with guarded():
        catalog = source.open_catalog()
        names = catalog.tables(namespace)
        if format is Format.JSON:
            print_json({"catalog": catalog.iceberg.name, "namespace": namespace, "tables": names})
        else:
            from skipstone.report.lines import clean

            emit("\n".join(map(clean, names)) or "there are no tables")
