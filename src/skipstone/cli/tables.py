"""``skipstone tables`` and ``skipstone snapshots``: tables of a catalog, and snapshots of a table."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from skipstone.cli.options import Format, FormatOption, SourceOptions, confirm, grouped, key_values
from skipstone.cli.output import EXIT_CODES, emit, guarded, print_json, show

TableName = Annotated[
    str, typer.Argument(metavar="TABLE", help="Name of the table with its namespace, such as db.events.")
]


class _Tables(TyperGroup):
    """Lists tables unless the first word is a command, so that ``skipstone tables db`` works."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments."""
        other = bool(args) and (args[0] in self.commands or args[0] == "--help")
        return super().parse_args(ctx, args if other else ["list", *args])


@grouped
def list_tables(
    namespace: Annotated[
        str | None, typer.Argument(metavar="NAMESPACE", help="List only tables of this namespace.")
    ] = None,
    format: FormatOption = Format.TEXT,
    *,
    source: SourceOptions,
) -> None:
    """List the tables of a catalog; this is what `skipstone tables` does without a command."""
    with guarded():
        from skipstone.inspection.snapshots import TableList

        catalog = source.open_catalog()
        names = tuple(catalog.tables(namespace))
        show(TableList(catalog.iceberg.name, namespace, names), format)


@grouped
def create(
    table: TableName,
    schema: Annotated[
        str | None,
        typer.Option("--schema", metavar="DDL", help="Columns in Spark's DDL: 'id bigint, ts timestamp'."),
    ] = None,
    like: Annotated[
        str | None,
        typer.Option("--like", metavar="LAKE", help="Take the columns of this lake or file instead."),
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option("--key", metavar="A,B", help="Columns of the key, which no two rows share."),
    ] = None,
    partition_by: Annotated[
        list[str] | None,
        typer.Option(
            "--partition-by",
            metavar="A,B",
            help="Partition columns and transforms: 'day(ts), bucket(16, id)'.",
        ),
    ] = None,
    sort_by: Annotated[
        list[str] | None, typer.Option("--sort-by", metavar="A,B", help="Sort order: 'ts desc, id'.")
    ] = None,
    location: Annotated[
        str | None,
        typer.Option("--location", metavar="URI", help="Directory of the table. Default: in the warehouse."),
    ] = None,
    table_property: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="KEY=VALUE", help="Property of the table; repeatable."),
    ] = None,
    format: FormatOption = Format.TEXT,
    *,
    source: SourceOptions,
) -> None:
    """Create an empty table, and its namespace; `--catalog warehouse/` creates a missing catalog."""
    if (schema is None) == (like is None):
        raise typer.BadParameter("use one of --schema and --like", param_hint="--schema")
    properties = key_values(table_property, "--property")
    with guarded():
        import skipstone as sk
        from skipstone.predicate.sql.ddl import parse_schema

        if schema is not None:
            columns = parse_schema(schema)
        else:
            columns = sk.open(str(like), storage_options=key_values(source.storage_option) or None).schema
        made = source.open_catalog(make=True).create_table(
            table,
            columns,
            key=split_terms(key),
            partition_by=split_terms(partition_by),
            sort_by=split_terms(sort_by),
            location=location,
            properties=properties,
        )
        if format is Format.JSON:
            print_json({"table": made.name, "location": made.uri, "columns": columns.names})
        else:
            emit(f"created {made.name} in {made.uri}")


@grouped
def drop(
    table: TableName,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask for confirmation.")] = False,
    *,
    source: SourceOptions,
) -> None:
    """Remove a table from its catalog; its files are not deleted."""
    with guarded():
        catalog = source.open_catalog()
        opened = catalog.open(table)
        if not yes and not confirm(f"Remove {opened.name} from the catalog? Its files in {opened.uri} stay."):
            emit("nothing was removed")
            return
        catalog.drop_table(table)
        emit(f"removed {opened.name}; its files are still in {opened.uri}")


tables = typer.Typer(
    name="tables",
    cls=_Tables,
    add_completion=False,
    help="List, create and drop the Iceberg tables of a catalog.",
    epilog=EXIT_CODES,
)
tables.command("list", epilog=EXIT_CODES)(list_tables)
tables.command(epilog=EXIT_CODES)(create)
tables.command(epilog=EXIT_CODES)(drop)


def split_terms(parts: list[str] | None) -> list[str]:
    """Split at commas outside parentheses.

    >>> split_terms(["day(ts), bucket(16, id)", "region"])
    ['day(ts)', 'bucket(16, id)', 'region']
    """
    terms = (term.strip() for part in parts or () for term in re.split(r",(?![^(]*\))", part))
    return [term for term in terms if term]


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
