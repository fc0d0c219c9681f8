"""``skipstone upsert``, ``delete``, ``merge``, ``get`` and ``changes``: rows of keyed tables."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skipstone.cli.options import (
    ColumnsOption,
    ForceOption,
    Format,
    FormatOption,
    OutputOption,
    SourceOptions,
    confirm,
    grouped,
    key_values,
    named_columns,
    named_format,
)
from skipstone.cli.output import check_output, emit, guarded, open_output, refuse_terminal, show
from skipstone.cli.query import RowFormat
from skipstone.errors import MissingFileError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from skipstone.scan.table import Table

_TableName = Annotated[
    str, typer.Argument(metavar="TABLE", help="Keyed table, as a name such as db.events with --catalog.")
]
_Files = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="Rows: a file, a directory or a quoted glob of Parquet, CSV, JSON or ORC files.",
    ),
]
_Token = Annotated[
    str | None,
    typer.Option(
        "--token", metavar="NAME", help="Idempotency token: if a snapshot has it already, nothing is done."
    ),
]
_Keys = Annotated[
    list[str],
    typer.Argument(metavar="KEY...", help="Keys; values of several key columns are separated by commas."),
]
_RowFormat = Annotated[
    RowFormat | None,
    typer.Option("--format", help="Output format. Default: by the extension of --output, else table."),
]


class Unmatched(enum.StrEnum):
    """What happens to rows of a source whose key is not in the table."""

    INSERT = "insert"
    IGNORE = "ignore"


@grouped
def upsert(
    table: _TableName,
    source: _Files,
    token: _Token = None,
    compare: Annotated[
        bool,
        typer.Option("--compare/--no-compare", help="Write only rows that differ from those in the table."),
    ] = True,
    format: FormatOption = Format.TEXT,
    *,
    catalog: SourceOptions,
) -> None:
    """Insert rows of a keyed table, or replace those with the same key."""
    with guarded():
        opened = catalog.open_table(table)
        show(opened.upsert(_rows(source, opened, catalog), compare=compare, token=token), format)


@grouped
def delete(
    table: _TableName,
    where: Annotated[
        str | None, typer.Option("--where", "-w", metavar="SQL", help="Delete the rows that match.")
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(
            "--key", metavar="KEY", help="Delete the row of this key; repeatable. Separate columns by commas."
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask for confirmation.")] = False,
    token: _Token = None,
    format: FormatOption = Format.TEXT,
    *,
    catalog: SourceOptions,
) -> None:
    """Delete rows of a keyed table by a condition or by key."""
    if (where is None) == (not key):
        raise typer.BadParameter("use one of --where and --key", param_hint="--where")
    with guarded():
        opened = catalog.open_table(table)
        if where is not None and not yes:
            count = opened.scan(where).count()
            if not confirm(f"Delete {count:,} rows of {opened.name}?"):
                emit("nothing was deleted")
                return
        keys = None if where is not None else _parse_keys(key or [], opened)
        show(opened.delete(where, keys=keys, token=token), format)


@grouped
def merge(
    table: _TableName,
    source: _Files,
    when_matched: Annotated[
        list[str] | None,
        typer.Option(
            "--when-matched",
            metavar="[CONDITION:]ACTION",
            help="update, delete or ignore, with a condition on source.a and target.a before a colon; "
            "repeatable, the first that is TRUE applies. Default: update.",
        ),
    ] = None,
    when_not_matched: Annotated[
        Unmatched, typer.Option("--when-not-matched", help="What happens to rows with a new key.")
    ] = Unmatched.INSERT,
    token: _Token = None,
    format: FormatOption = Format.TEXT,
    *,
    catalog: SourceOptions,
) -> None:
    """Merge rows of a source into a keyed table."""
    with guarded():
        opened = catalog.open_table(table)
        parts = [text.rpartition(":") for text in when_matched or ["update"]]
        clauses = [(condition.strip() or None, action.strip()) for condition, _, action in parts]
        report = opened.merge(
            _rows(source, opened, catalog),
            when_matched=clauses,  # type: ignore[arg-type]
            when_not_matched=when_not_matched.value,
            token=token,
        )
        show(report, format)


@grouped
def get(
    table: _TableName,
    key: _Keys,
    columns: ColumnsOption = None,
    format: _RowFormat = None,
    output: OutputOption = None,
    force: ForceOption = False,
    *,
    catalog: SourceOptions,
) -> None:
    """Print rows of a keyed table by key."""
    check_output(output, force=force)
    with guarded():
        opened = catalog.open_table(table)
        rows = opened.get_many(_parse_keys(key, opened), named_columns(columns, "--columns"))
        _write(rows, format, output, force=force)


@grouped
def changes(
    table: _TableName,
    start: Annotated[
        str | None,
        typer.Option("--from", metavar="ID|NAME|TIME", help="Earlier snapshot. Default: the empty table."),
    ] = None,
    end: Annotated[
        str | None,
        typer.Option("--to", metavar="ID|NAME|TIME", help="Later snapshot. Default: the current one."),
    ] = None,
    format: _RowFormat = None,
    output: OutputOption = None,
    force: ForceOption = False,
    *,
    catalog: SourceOptions,
) -> None:
    """Print the rows that differ between two snapshots, with a column _change."""
    check_output(output, force=force)
    with guarded():
        found = catalog.open_table(table).changes(start, end)
        if output is None and format in (None, RowFormat.TABLE):
            show(found, Format.TEXT)
        else:
            _write(found.to_arrow(), format, output, force=force)


def _write(rows: pa.Table, format: RowFormat | None, output: Path | None, *, force: bool) -> None:
    """Write rows to standard output or to a file."""
    format = format or named_format(output, RowFormat, RowFormat.TABLE)
    if format in (RowFormat.PARQUET, RowFormat.ARROW):
        refuse_terminal(format, output)
    if format is RowFormat.TABLE:
        from skipstone.cli.output import drawn, write_text
        from skipstone.report.units import plural
        from skipstone.scan.row_view import rows_tree

        tree = rows_tree(rows, (), plural(len(rows), "row"), "")
        write_text(drawn(tree, color=output is None), output, force=force)
        return
    from skipstone.scan.formats import row_writer

    with open_output(output, force=force) as out:
        writer = row_writer(format, rows.schema, out)
        for batch in rows.combine_chunks().to_batches():
            writer.write(batch)
        writer.finish()


def _rows(source: str, table: Table, options: SourceOptions) -> pa.Table:
    """Read files, with the table's types for text formats."""
    import pyarrow as pa

    from skipstone.store.store import matches, open_store
    from skipstone.write.readers import FORMATS, format_of, open_files

    store, pattern = open_store(source, storage_options=key_values(options.storage_option) or None)
    entries = [one for one in store.list_prefix("") if matches(pattern, one.key) and format_of(one.key)]
    formats = {str(format_of(one.key)): one.key for one in entries}
    if not entries:
        hint = f"name files by their format: {', '.join(FORMATS)}"
        raise MissingFileError("no files of a supported format", path=source, hint=hint)
    if len(formats) > 1:
        hint = "pass a glob that matches files of one format"
        names = ", ".join(f"{format} ({key})" for format, key in sorted(formats.items()))
        raise UsageError(f"source has files of several formats: {names}", path=source, hint=hint)
    files = open_files(store, next(iter(formats)), entries, lake=table)
    return pa.Table.from_batches(files.batches(), files.schema)


def _parse_keys(texts: list[str], table: Table) -> list[tuple[str, ...]]:
    """Keys given as text, one value per key column."""
    from skipstone.table.keys import Keys

    count = len(Keys.of(table).names)
    # Only keys of several columns are divided, so that a string key can contain commas.
    return [tuple(text.split(",", count - 1)) for text in texts]
