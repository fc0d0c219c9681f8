"""``skipstone compact``: rewrite small and deleted-from files of an Iceberg table."""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skipstone.cli.options import (
    ClusterOptions,
    ConditionOptions,
    Format,
    FormatOption,
    JobEngine,
    JobEngineOption,
    JobThreadsOption,
    SourceOptions,
    engine_arguments,
    grouped,
    job_guarded,
    named_columns,
    read_size,
)
from skipstone.cli.output import Exit, check_output, emit, print_json, show, write_text
from skipstone.cli.progress import steps
from skipstone.cli.upkeep import TableArgument
from skipstone.errors import CorruptFileError, ReadError, UsageError

if TYPE_CHECKING:
    from skipstone import CompactionPlan, Table
    from skipstone.predicate import Predicate

_layout = partial(typer.Option, rich_help_panel="New files")
_choosing = partial(typer.Option, rich_help_panel="Which files")
_running = partial(typer.Option, rich_help_panel="Running")


class StrategyName(enum.StrEnum):
    """What happens to the order of rows."""

    BINPACK = "binpack"
    SORT = "sort"
    ZORDER = "zorder"
    HILBERT = "hilbert"


class GroupOrder(enum.StrEnum):
    """Orders of groups."""

    NONE = "none"
    BYTES_ASC = "bytes-asc"
    BYTES_DESC = "bytes-desc"
    FILES_ASC = "files-asc"
    FILES_DESC = "files-desc"


@dataclass(frozen=True, slots=True)
class PlanningOptions:
    """Which files to rewrite, and into what: Iceberg's names and defaults."""

    strategy: Annotated[
        StrategyName,
        _layout("--strategy", help="Keep the order of rows (binpack), or order each group by --sort-by."),
    ] = StrategyName.BINPACK
    sort_by: Annotated[
        list[str] | None,
        _layout("--sort-by", metavar="A,B", help="Columns to order by. Default of sort: the table's order."),
    ] = None
    target_spec_id: Annotated[
        int | None,
        _layout("--target-spec-id", metavar="ID", help="Move files of other partition specs to this one."),
    ] = None
    target_file_size_bytes: Annotated[
        str | None,
        _layout(
            "--target-file-size-bytes",
            metavar="SIZE",
            help="Size of new files. Default: the table's write.target-file-size-bytes, or 512MiB.",
        ),
    ] = None
    min_file_size_bytes: Annotated[
        str | None,
        _choosing(
            "--min-file-size-bytes",
            metavar="SIZE",
            help="Rewrite smaller files. Default: 75 % of the target.",
        ),
    ] = None
    max_file_size_bytes: Annotated[
        str | None,
        _choosing(
            "--max-file-size-bytes",
            metavar="SIZE",
            help="Rewrite larger files. Default: 180 % of the target.",
        ),
    ] = None
    min_input_files: Annotated[
        int | None,
        _choosing(
            "--min-input-files",
            metavar="N",
            help="Skip groups with fewer files that are below the target size. Default: 5.",
        ),
    ] = None
    max_file_group_size_bytes: Annotated[
        str | None,
        _choosing("--max-file-group-size-bytes", metavar="SIZE", help="Largest group. Default: 100GiB."),
    ] = None
    rewrite_all: Annotated[bool, _choosing("--rewrite-all", help="Rewrite all files.")] = False
    delete_file_threshold: Annotated[
        int | None,
        _choosing(
            "--delete-file-threshold",
            metavar="N",
            help="Rewrite files to which at least N delete files apply. Default: never for their number.",
        ),
    ] = None
    delete_ratio_threshold: Annotated[
        float | None,
        _choosing(
            "--delete-ratio-threshold",
            metavar="SHARE",
            help="Rewrite files of which at least this share is deleted. Default: 0.3.",
        ),
    ] = None
    since: Annotated[
        str | None,
        _choosing(
            "--since",
            metavar="ID|NAME|TIME",
            help="Only files added after this snapshot: an id, a tag, a branch, or a time.",
        ),
    ] = None
    strict: Annotated[
        bool, _choosing("--strict", help="Fail if CONDITION can't be applied to a partition.")
    ] = False
    rewrite_job_order: Annotated[
        GroupOrder | None,
        _running("--rewrite-job-order", help="Order of the groups. Default: by partition."),
    ] = None
    max_concurrent_file_group_rewrites: Annotated[
        int | None,
        _running(
            "--max-concurrent-file-group-rewrites",
            metavar="N",
            help="Groups to rewrite at the same time. Default: 5.",
        ),
    ] = None
    partial_progress_enabled: Annotated[
        bool,
        _running(
            "--partial-progress.enabled",
            "--partial-progress-enabled",
            help="Commit in several snapshots; groups that fail don't stop the others.",
        ),
    ] = False
    partial_progress_max_commits: Annotated[
        int | None,
        _running(
            "--partial-progress.max-commits",
            "--partial-progress-max-commits",
            metavar="N",
            help="Number of these snapshots. Default: 10.",
        ),
    ] = None
    use_starting_sequence_number: Annotated[
        bool,
        _running(
            "--use-starting-sequence-number/--no-use-starting-sequence-number",
            help="Let concurrent equality deletes apply to the new files.",
        ),
    ] = True
    remove_dangling_deletes: Annotated[
        bool,
        _running(
            "--remove-dangling-deletes/--no-remove-dangling-deletes",
            help="Drop delete files that apply to no file any more.",
        ),
    ] = True

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of ``table.plan_compaction``."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        for name, value in values.items():
            if name.endswith("_bytes") and value is not None:
                values[name] = read_size(value, f"--{name.replace('_', '-')}")
            elif isinstance(value, enum.StrEnum):
                values[name] = str(value)
        return {**values, "sort_by": named_columns(self.sort_by, "--sort-by") or ()}

    def used(self) -> list[str]:
        """Return the options that differ from their defaults."""
        names = [one.name for one in fields(self) if getattr(self, one.name) != one.default]
        return [f"--{name.replace('_', '-')}" for name in names]


@dataclass(frozen=True, slots=True)
class PlanFiles:
    """The plan as a file, and how much of it is shown."""

    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan; read and write no data file.")
    ] = False
    files: Annotated[
        bool, typer.Option("--files", help="With --dry-run: list every file, and why it is rewritten.")
    ] = False
    plan: Annotated[
        Path | None,
        typer.Option("--plan", metavar="FILE", help="Run the plan that --save-plan wrote."),
    ] = None
    save_plan: Annotated[
        Path | None,
        typer.Option("--save-plan", metavar="FILE", help="Write the plan to FILE, as JSON."),
    ] = None
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Overwrite the FILE of --save-plan; accept a target below 1 MiB, and more than 10,000 new "
            "files.",
        ),
    ] = False

    def check(self, planning: PlanningOptions, condition: ConditionOptions) -> None:
        """Reject options that contradict each other."""
        if self.files and not self.dry_run:
            raise typer.BadParameter("needs --dry-run", param_hint="--files")
        if self.plan is not None:
            used = [*planning.used(), *(["CONDITION"] if condition.sql or condition.where else [])]
            if self.save_plan is not None:
                used.append("--save-plan")
            if used:
                raise typer.BadParameter("conflicts with --plan, which has its own", param_hint=used[0])
        if self.save_plan is not None:
            _check_target(self.save_plan, force=self.force)

    def of(self, table: Table, where: Predicate | None, options: dict[str, Any]) -> CompactionPlan:
        """Make the plan, and save it."""
        plan = table.plan_compaction(where, force=self.force, **options)
        if self.save_plan is not None:
            text = json.dumps(plan.to_json(), indent=2)
            write_text(text, self.save_plan, force=self.force)
        return plan


def read_plan(path: Path) -> CompactionPlan:
    """Read a plan from a file."""
    import skipstone as sk

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        hint = "pass the file that --save-plan wrote"
        raise ReadError(f"plan can't be read: {reason}", path=str(path), hint=hint) from None
    try:
        return sk.CompactionPlan.from_json(text)
    except (CorruptFileError, UsageError) as error:
        error.path = str(path)
        raise


def _check_target(path: Path, *, force: bool) -> None:
    try:
        check_output(path, force=force)
    except typer.BadParameter as error:
        raise typer.BadParameter(error.message, param_hint="--save-plan") from None


@grouped
def compact(
    table: TableArgument,
    format: FormatOption = Format.TEXT,
    engine: JobEngineOption = JobEngine.AUTO,
    threads: JobThreadsOption = None,
    memory: Annotated[
        str | None,
        _running(
            "--memory",
            metavar="SIZE",
            help="Rows to hold while they are sorted; the rest is spilled. Default: a quarter of the memory.",
        ),
    ] = None,
    checksums: Annotated[
        bool, _running("--checksums", help="Read the new files again, and compare checksums of all columns.")
    ] = False,
    *,
    condition: ConditionOptions,
    planning: PlanningOptions,
    plans: PlanFiles,
    cluster: ClusterOptions,
    source: SourceOptions,
) -> None:
    """Rewrite small files and files with deletes of an Iceberg table; its rows stay the same.

    CONDITION selects partitions. `--dry-run` shows what would be rewritten and why.
    """
    plans.check(planning, condition)
    work = engine_arguments(engine, cluster, threads)
    held = None if memory is None else read_size(memory, "--memory")
    with job_guarded():
        # Mistakes in options are reported before the catalog is opened.
        options, where = planning.arguments(), condition.predicate()
        saved = None if plans.plan is None else read_plan(plans.plan)
        opened = source.open_table(table)
        phases = {"rewriting": "row", "committing": "group", "indexing": "file"}
        with steps("planning", phases) as bar:
            plan = plans.of(opened, where, options) if saved is None else saved
            if not plans.dry_run:
                progress = None if bar is None else bar.update
                report = opened.compact(plan, checksums=checksums, memory=held, progress=progress, **work)
    if not plans.dry_run:
        show(report, format)
        if report.failures:
            raise typer.Exit(int(Exit.OTHER))
    elif format is Format.JSON:
        print_json(plan.to_json())
    elif plans.files:
        from skipstone.compact.plan import PlanListing

        show(PlanListing(plan), format)
    else:
        show(plan, format)
    if plans.dry_run and format is Format.TEXT and plans.save_plan is not None:
        emit(f"plan written to {plans.save_plan}; run it with --plan {plans.save_plan}")
