"""``skipstone doctor``: what is installed, configured and permitted."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from skipstone.cli.options import Format, FormatOption, Opening, grouped
from skipstone.cli.output import Exit, guarded, show


@grouped
def doctor(
    lake: Annotated[
        str | None,
        typer.Argument(metavar="LAKE", help="Lake to check as well: access, index and write permission."),
    ] = None,
    format: FormatOption = Format.TEXT,
    *,
    opening: Opening,
) -> None:
    """Check Python, Java, extras, credentials and a lake, and say how to fix what is missing.

    Exits with code 1 if something that the lake needs is missing. Values of credentials are never printed.
    """
    with guarded():
        from skipstone.inspection.doctor import diagnose

        if lake is None:
            diagnosis = diagnose()
        else:
            # Commands that fix something name the lake as it was named here.
            named = shlex.join((lake, *opening.arguments()))
            diagnosis = diagnose(named, lambda: opening.open(lake))
        show(diagnosis, format)
        if not diagnosis.ok:
            raise typer.Exit(int(Exit.UNEXPECTED))
