"""``skipstone expire``, ``orphans`` and ``manifests``: maintenance of Iceberg tables."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skipstone.cli.options import (
    Format,
    FormatOption,
    SourceOptions,
    confirm,
    grouped,
    job_guarded,
    parse,
    read_size,
)
from skipstone.cli.output import emit, show
from skipstone.cli.progress import steps

if TYPE_CHECKING:
    from skipstone.report import Reported

TableArgument = Annotated[
    str, typer.Argument(metavar="TABLE", help="Name of the Iceberg table, such as db.events, with --catalog.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", "-n", help="Only show what would be done.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask for confirmation.")]


class Mismatch(enum.StrEnum):
    """What to do about files named in another way."""

    ERROR = "error"
    IGNORE = "ignore"


@grouped
def expire(
    table: TableArgument,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than",
            metavar="TIME|AGE",
            help="Expire snapshots before this time (UTC unless it has a zone), or of at least this age, "
            "such as 7d. Default: the table's properties, else 5d.",
        ),
    ] = None,
    retain_last: Annotated[
        int | None,
        typer.Option("--retain-last", min=1, metavar="N", help="Snapshots to keep on each branch."),
    ] = None,
    snapshot: Annotated[
        list[int] | None,
        typer.Option("--snapshot", metavar="ID", help="Expire this snapshot, whatever its age; repeatable."),
    ] = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    format: FormatOption = Format.TEXT,
    *,
    source: SourceOptions,
) -> None:
    """Remove old snapshots of a table, and delete the files that only they need."""
    with job_guarded():
        opened = source.open_table(table)

        def run(dry: bool) -> Reported:
            return opened.expire(
                older_than=older_than, retain_last=retain_last, snapshot_ids=snapshot or (), dry_run=dry
            )

        _run("expiring", run, dry_run=dry_run, yes=yes, format=format, ask=_ask_to_expire)


def _ask_to_expire(plan: Any) -> str:
    from skipstone.report.units import plural

    if not plan.snapshots and not plan.refs:
        return ""
    files = f"delete {plural(len(plan.files), 'file')}"
    return f"Expire {plural(len(plan.snapshots), 'snapshot')} of {plan.table} and {files}?"


@grouped
def orphans(
    table: TableArgument,
    older_than: Annotated[
        str,
        typer.Option("--older-than", metavar="TIME|AGE", help="Only files older than this time or age."),
    ] = "3d",
    location: Annotated[
        str | None,
        typer.Option("--location", metavar="URI", help="Look only below this directory of the table."),
    ] = None,
    prefix_mismatch: Annotated[
        Mismatch,
        typer.Option(
            "--prefix-mismatch",
            help="If the metadata names files with another scheme or authority: delete nothing (error), or "
            "leave only these alone (ignore).",
        ),
    ] = Mismatch.ERROR,
    allow_recent: Annotated[
        bool,
        typer.Option(
            "--allow-recent", help="Accept an age of less than a day; safe only while nothing writes."
        ),
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Delete even though other tables of the catalog can't be compared; safe only if none has "
            "files in the location.",
        ),
    ] = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    format: FormatOption = Format.TEXT,
    *,
    source: SourceOptions,
) -> None:
    """Delete files in the location of a table that nothing in its metadata refers to."""
    with job_guarded():
        opened = source.open_table(table)

        def run(dry: bool) -> Reported:
            return opened.remove_orphans(
                older_than=older_than,
                location=location,
                prefix_mismatch=prefix_mismatch.value,
                allow_recent=allow_recent,
                force=force,
                dry_run=dry,
            )

        def ask(plan: Any) -> str:
            if plan.unchecked and not force:
                from skipstone.compact.orphans import unchecked_error

                raise unchecked_error(plan.table, plan.unchecked)
            return _ask_to_delete(plan)

        _run("deleting orphans", run, dry_run=dry_run, yes=yes, format=format, ask=ask)


def _ask_to_delete(plan: Any) -> str:
    from skipstone.report.units import plural, size

    files = f"{plural(plan.count, 'file')}, {size(plan.bytes)}"
    return f"Delete {files}, below {plan.location}?" if plan.count else ""


@grouped
def manifests(
    table: TableArgument,
    where: Annotated[
        str | None,
        typer.Option("--where", "-w", metavar="SQL", help="Only manifests of partitions that can match."),
    ] = None,
    spec: Annotated[
        int | None, typer.Option("--spec", metavar="ID", help="Only manifests of this partition spec.")
    ] = None,
    target_size: Annotated[
        str | None,
        typer.Option(
            "--target-size",
            metavar="SIZE",
            help="Size of new manifests, such as 8MiB. Default: the table's property, else 8MiB.",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Accept a target below 1 MiB, and more than 10,000 new files.")
    ] = False,
    every: Annotated[
        bool, typer.Option("--all", help="Rewrite manifests that are neither small nor spread out too.")
    ] = False,
    dry_run: DryRunOption = False,
    format: FormatOption = Format.TEXT,
    *,
    source: SourceOptions,
) -> None:
    """Combine small manifests of a table and sort their entries by partition; deletes nothing."""
    size = None if target_size is None else read_size(target_size, "--target-size")
    with job_guarded():
        opened = source.open_table(table)
        condition = None if where is None else parse(where, "spark", "UTC")
        with steps("examining manifests" if dry_run else "rewriting manifests"):
            report = opened.rewrite_manifests(
                condition,
                spec_id=spec,
                target_size_bytes=size,
                rewrite_all=every,
                force=force,
                dry_run=dry_run,
            )
        show(report, format)


def _run(
    phase: str,
    job: Callable[[bool], Reported],
    *,
    dry_run: bool,
    yes: bool,
    format: Format,
    ask: Callable[[Any], str],
) -> None:
    """Show what would be done; or do it, after a question about it unless it is answered by --yes."""

    def run(dry: bool) -> Reported:
        with steps("listing files and snapshots" if dry else phase):
            return job(dry)

    if dry_run or yes:
        show(run(dry_run), format)
        return
    plan = run(True)
    question = ask(plan)
    if not question:
        show(dataclasses.replace(plan, dry_run=False), format)  # type: ignore[type-var]
    elif confirm(question):
        show(run(False), format)
    else:
        emit("nothing was deleted")
