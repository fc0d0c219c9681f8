"""The inspection of a table as text."""

from __future__ import annotations

from collections.abc import Sequence

from skipstone.cli.inspect_text import Lines, section
from skipstone.cli.snapshots import when
from skipstone.cli.table_inspection import ColumnField, TableInspection
from skipstone.cli.tables import Cell, Heading, number, table, text
from skipstone.report.lines import clean
from skipstone.report.tree import facts
from skipstone.report.units import bar, count, percent, plural, size

_MISSING = "–"
_KINDS = {"positions": "position deletes", "equality": "equality deletes", "vectors": "deletion vectors"}
_CONTENTS = {"data": "data files", "deletes": "delete files"}
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_LEAST_BAR, _MOST_BAR, _BESIDE_BAR = 10, 40, 52


def draw_table(found: TableInspection, width: int) -> Lines:
    """The lines of every part, an empty one after each."""
    yield from section(clean(found.table), _facts(found, width))
    yield from section("columns", _columns(found.columns, width))
    yield from section("partitioning", _specs(found, width))
    if found.deletes:
        yield from section("deletes", _deletes(found, width))
    if found.sizes is not None:
        yield from section("sizes of data files", _sizes(found, width))


def _facts(found: TableInspection, width: int) -> Lines:
    pairs = [
        ("location", found.location),
        ("uuid", found.uuid),
        ("format", f"Iceberg version {found.format_version}"),
        *_snapshot(found),
        ("rows", _rows(found)),
        ("size", f"{size(found.bytes)} in {plural(found.files, 'data file')}"),
        ("schema", _schema(found)),
        ("sorted by", ", ".join(found.sort_order) or "nothing"),
        ("manifests", _manifests(found)),
        ("metadata read", f"{plural(found.requests, 'request')}, {size(found.bytes_read)}"),
    ]
    yield from facts(pairs, "", width)


def _snapshot(found: TableInspection) -> list[tuple[str, str]]:
    taken = found.taken
    if taken is None:
        return [("snapshot", "none yet")]
    which = "the current one" if found.snapshot_is_current else "not the current one"
    names = f" ({', '.join(found.names)})" if found.names else ""
    made = f" by {taken.operation}" if taken.operation else ""
    return [
        ("snapshot", f"{taken.id}{names}, {which} of {count(found.snapshots)}"),
        ("committed", f"{when(taken.at)} UTC{made}"),
    ]


def _rows(found: TableInspection) -> str:
    said = count(found.rows)
    return f"{said}, less those that are deleted" if found.files_with_deletes else said


def _schema(found: TableInspection) -> str:
    which = "" if found.schema_is_current else ", not the current one"
    return f"{found.schema_id}{which}: {plural(len(found.columns), 'field')}"


def _manifests(found: TableInspection) -> str:
    told = [
        f"{count(one.manifests)} of {_CONTENTS[one.content]}, {size(one.bytes)}"
        for one in found.manifests
        if one.manifests
    ]
    return "; ".join(told) or "none"


def _columns(columns: Sequence[ColumnField], width: int) -> Lines:
    headings = [number("id"), text("column"), text("type"), Heading("null")]
    parts: list[list[Cell]] = [
        [str(one.id) for one in columns],
        [one.name for one in columns],
        [one.type for one in columns],
        ["key" if one.key else "no" if one.required else "yes" for one in columns],
    ]
    more = (
        (text("in older files"), [one.initial_default for one in columns]),
        (text("default"), [one.write_default for one in columns]),
        (Heading("about", flexible=True, spare=1), [one.doc for one in columns]),
    )
    for heading, values in more:
        # Few tables have any of these.
        if any(value is not None for value in values):
            headings.append(heading)
            parts.append([value or "" for value in values])
    yield from table(headings, list(zip(*parts, strict=True)), width)


def _specs(found: TableInspection, width: int) -> Lines:
    headings = (
        number("spec"),
        text("partitioned by", least=16),
        number("files"),
        number("rows"),
        number("size"),
        Heading("share", right=True, spare=1),
        number("partitions"),
    )
    rows: list[Sequence[Cell]] = [
        (
            (f"* {spec.id}", "kept") if spec.default else str(spec.id),
            ", ".join(spec.fields) or "unpartitioned",
            count(spec.files),
            count(spec.rows),
            size(spec.bytes),
            percent(spec.bytes, found.bytes),
            count(spec.partitions),
        )
        for spec in found.specs
    ]
    yield from table(headings, rows, width)
    if len(rows) > 1:
        yield [("* is what new files are written under", "dim")]


def _deletes(found: TableInspection, width: int) -> Lines:
    headings = (Heading("kind"), number("files"), number("rows"), number("size"), text("data files touched"))
    rows: list[Sequence[Cell]] = [
        (
            _KINDS[kind.kind],
            count(kind.files),
            count(kind.rows),
            size(kind.bytes),
            _touched(kind.data_files, found.files),
        )
        for kind in found.deletes
    ]
    if len(rows) > 1:
        total = [
            sum(values) for values in zip(*((k.files, k.rows, k.bytes) for k in found.deletes), strict=True)
        ]
        touched = _touched(found.files_with_deletes, found.files)
        rows.append(("all", count(total[0]), count(total[1]), size(total[2]), touched))
    yield from table(headings, rows, width)


def _touched(files: int, of: int) -> str:
    return f"{count(files)} of {count(of)} ({percent(files, of)})"


def _sizes(found: TableInspection, width: int) -> Lines:
    sizes = found.sizes
    assert sizes is not None
    headings = (number("from"), number("to"), Heading(""), number("files"), number("share"), number("size"))
    cells = max(min(width - _BESIDE_BAR, _MOST_BAR), _LEAST_BAR)
    most = max(one.files for one in sizes.classes)
    rows: list[Sequence[Cell]] = [
        (
            _binary(one.low),
            _binary(one.high),
            (bar(one.files, most, cells)[0], "kept"),
            count(one.files),
            percent(one.files, found.files),
            size(one.bytes),
        )
        for one in sizes.classes
    ]
    yield from table(headings, rows, width)
    said = f"smallest {size(sizes.smallest)}, median {size(sizes.median)}, largest {size(sizes.largest)}"
    yield [(said, "dim")]


def _binary(power: int) -> str:
    """A power of two in the unit that leaves the smallest number."""
    unit = max(power.bit_length() - 1, 0) // 10
    return f"{power >> (10 * unit)} {_BINARY[unit]}"
