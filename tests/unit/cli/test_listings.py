"""What listings say of columns: one name for each type, nested fields, units, and instants."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from skipstone.core.plain import type_name
from skipstone.inspection.file import inspect_file
from skipstone.inspection.lake import inspect_lake
from skipstone.inspection.table import inspect_table
from skipstone.report import Printable, tree_of
from skipstone.report.text import to_text

Run = Callable[..., Any]
NOON = datetime(2026, 1, 1, 12)
PLAIN = {
    "id": pa.array([1, 2]),
    "real": pa.array([1.5, 2.5]),
    "single": pa.array([1.5, 2.5], pa.float32()),
    "price": pa.array([None, None], pa.decimal128(10, 2)),
    "ts": pa.array([NOON, NOON], pa.timestamp("us", "UTC")),
    "local": pa.array([NOON, NOON], pa.timestamp("us")),
    "day": pa.array([NOON.date()] * 2),
    "clock": pa.array([NOON.time()] * 2, pa.time64("us")),
    "word": pa.array(["a", "b"], pa.large_string()),
    "code": pa.array([b"ab", b"cd"], pa.binary(2)),
    "flag": pa.array([True, False]),
}
NAMES = {
    "id": "int64",
    "real": "double",
    "single": "float",
    "price": "decimal(10, 2)",
    "ts": "timestamp[us, UTC]",
    "local": "timestamp[us]",
    "day": "date",
    "clock": "time[us]",
    "word": "string",
    "code": "binary[2]",
    "flag": "bool",
}


def words(text: str, names: list[str]) -> dict[str, str]:
    """The type in the second column of the last table that lists a name."""
    lines = [line.split(maxsplit=1) for line in text.splitlines() if len(line.split()) > 1]
    return {name: next(rest for first, rest in lines if first == name) for name in names}


def test_every_listing_and_error_has_the_same_names(run: Run, tmp_path: Path) -> None:
    rows = pa.table(PLAIN)
    folder = tmp_path / "lake"
    folder.mkdir()
    pq.write_table(rows, folder / "f.parquet")
    lake = sk.open(folder)
    lake.index.build(engine="local")
    table = sk.catalog(tmp_path / "warehouse").create_table("db.t", rows.schema)
    sk.ingest(rows, table.table, engine="local")
    listings = {
        "lake": str(lake),
        "table": str(table.refresh()),
        "schema": run("schema", folder).stdout,
        "statistics": str(lake.statistics()),
        "index": str(lake.index.status()).split("options")[-1],
        "advice": str(lake.index.advise()),
        "file": str(inspect_file(str(folder / "f.parquet"), storage_options={})),
        "inspected lake": str(inspect_lake(lake)),
        "layout": str(lake.layout()).replace(" NULL", ""),
    }
    for listing, text in listings.items():
        for name, type in NAMES.items():
            if listing in ("layout", "advice") and f"\n{name} " not in text:
                continue  # a column that can't be ordered or that doesn't help
            assert words(text, [name])[name].startswith(type), (listing, name)
    assert sum(f"\n{name} " in listings["layout"] for name in NAMES) > 8
    inspected = {column.name: column.type for column in inspect_table(table).columns}
    assert inspected == NAMES
    for name in ("ts", "day", "real"):
        with pytest.raises(sk.TypeMismatchError, match=f"a column of type {NAMES[name]}".replace("[", r"\[")):
            lake.scan(f"{name} = TRUE").count()


def test_names_of_types() -> None:
    assert {name: type_name(array.type) for name, array in PLAIN.items()} == NAMES


def test_schemas_show_nested_fields_and_units(run: Run, tmp_path: Path) -> None:
    point = pa.struct({"x": pa.float64(), "at": pa.timestamp("ms")})
    types = {
        "shape": pa.struct({"center": point, "tags": pa.list_(pa.string())}),
        "path": pa.list_(point),
        "named": pa.map_(pa.string(), point),
        "counts": pa.map_(pa.string(), pa.int32()),
        "took": pa.duration("ms"),
    }
    (tmp_path / "day=1").mkdir()
    pq.write_table(pa.schema(types).empty_table(), tmp_path / "day=1/f.parquet")
    expected = textwrap.dedent("""\
        column    type
        shape     struct
          center  struct
            x     double
            at    timestamp[ms]
          tags    list<string>
        path      list<struct>
          x       double
          at      timestamp[ms]
        named     map<string, struct>
          x       double
          at      timestamp[ms]
        counts    map<string, int32>
        took      duration[ms]
        day       int32                partition
    """)
    text = run("schema", tmp_path).stdout
    assert text[text.index("column ") :] == expected
    lake = sk.open(tmp_path)
    assert expected.rstrip() in str(lake)
    # Spaces at the beginning would not be seen in HTML.
    assert "<td>    at</td>" in lake._repr_html_()


def test_a_long_schema_is_shown_whole(run: Run, tmp_path: Path) -> None:
    pq.write_table(pa.schema({f"c{n}": pa.int8() for n in range(60)}).empty_table(), tmp_path / "f.parquet")
    assert run("schema", tmp_path).stdout.splitlines()[-1].split() == ["c59", "int8"]
    assert str(sk.open(tmp_path)).splitlines()[-1] == "… 20 more fields"


def test_durations_are_readable(run: Run, tmp_path: Path) -> None:
    spans = [timedelta(seconds=1), timedelta(days=-1, seconds=-61.5), timedelta(days=400), None]
    pq.write_table(pa.table({"took": pa.array(spans, pa.duration("ms"))}), tmp_path / "f.parquet")
    lines = [line.strip() for line in run("head", tmp_path).stdout.splitlines()[:6]]
    assert lines == ["took", "duration[ms]", "00:00:01", "-1 day -00:01:01.5", "400 days 00:00:00", "NULL"]
    assert run("head", tmp_path, "--format", "csv").stdout.split()[:2] == ["took", "1000"]
    assert "-1 day -00:01:01.5  400 days 00:00:00" in run("describe", tmp_path).stdout
    done = run("inspect", tmp_path / "f.parquet").stdout
    assert "-1 day -00:01:01.5  400 days 00:00:00" in done


def test_spark_timestamps_are_marked_as_instants(run: Run, tmp_path: Path) -> None:
    rows = pa.table({"ts": pa.array([NOON, NOON], pa.timestamp("us")), "n": [1, 2]})
    nested = pa.table({"s": pa.array([{"t": NOON}] * 2, pa.struct({"t": pa.timestamp("us")}))})
    rows = rows.append_column("s", nested["s"])
    options: Any = {"use_deprecated_int96_timestamps": True, "store_schema": False}
    pq.write_table(rows, tmp_path / "f.parquet", **options)
    lake = sk.open(tmp_path)
    assert lake.schema.field("ts").type == pa.timestamp("ns")
    for text in (str(lake), run("schema", tmp_path).stdout, str(inspect_lake(lake))):
        assert "timestamp[ns, UTC]" in text
        assert "timestamp[ns] " not in text
    assert "struct<t: timestamp[ns, UTC]>" in str(lake.statistics())
    assert "timestamp[ns, UTC]  yes   int96" in str(inspect_file(f"{tmp_path}/f.parquet", storage_options={}))
    shown = [line.split("  ")[0].strip() for line in run("head", tmp_path).stdout.splitlines()]
    assert shown[:4] == ["ts", "timestamp[ns, UTC]", "2026-01-01 12:00:00Z", "2026-01-01 12:00:00Z"]
    assert "2026-01-01 12:00:00Z" in str(lake.scan("n > 1"))
    # As before, zones move them, and rows have no zone.
    assert lake.scan(sk.parse("ts = '2026-01-01 13:00:00'", tz="+01:00")).count() == 2
    assert lake.scan().to_arrow().schema.field("ts").type == pa.timestamp("ns")


def test_one_file_and_a_glob_are_named_as_they_were_opened(run: Run, tmp_path: Path) -> None:
    for name in ("f", "g"):
        pq.write_table(pa.table({"id": [1, 2, 3]}), tmp_path / f"{name}.parquet")
    for name in ("f.parquet", "*.parquet", ""):
        opened = sk.open(f"{tmp_path}/{name}")
        path = f"{tmp_path}/{name}".rstrip("/")
        scan, answer = opened.scan("id > 1"), opened.scan("id > 1").aggregate(sk.sum("id"))
        for shown in (
            opened,
            scan,
            scan.explain(),
            answer.explain(),
            scan.verify(),
            scan.plan(),
            scan.trace(),
        ):
            first = to_text(tree_of(shown), 500) if isinstance(shown, Printable) else shown
            assert first.splitlines()[0].split("  ")[0].endswith(path[-20:]), (name, type(shown))
        assert repr(opened).startswith(f"Lake({path!r}, ")
        assert repr(scan) == f"Scan({path}, where='id > 1')"
        assert scan.trace().to_json()["lake"] == path
        done = run("explain", f"{tmp_path}/{name}", "id > 1", "--format", "json")
        assert json.loads(done.stdout)["lake"] == path


def test_partitions_without_a_value_are_null(run: Run, tmp_path: Path) -> None:
    for city in ("Rome", "__HIVE_DEFAULT_PARTITION__"):
        (tmp_path / f"city={city}").mkdir()
        pq.write_table(pa.table({"id": [1]}), tmp_path / f"city={city}/f.parquet")
    text = run("inspect", tmp_path).stdout
    assert "\ncity = NULL " in text
    assert "None" not in text
    found = json.loads(run("inspect", tmp_path, "--format", "json").stdout)
    assert {one["values"]["city"] for one in found["partitions"]} == {"Rome", None}


def test_catalogs_name_their_directory_and_tables(tmp_path: Path) -> None:
    catalog = sk.catalog(tmp_path / "warehouse")
    where = str(tmp_path / "warehouse")
    assert repr(catalog) == f"Catalog({where!r}, 0 tables)"
    for name in ("db.t", "db.u", "logs.v"):
        table = catalog.create_table(name, pa.schema({"id": pa.int64()}))
        assert repr(table) == f"Table({name!r}, no snapshot)"
    assert repr(catalog) == f"Catalog({where!r}, 3 tables)"
    lines = to_text(tree_of(catalog), 500).splitlines()
    assert lines == [f"{where}  3 tables in 2 namespaces", "db.t", "db.u", "logs.v"]
    # Others would have to be asked, and their addresses can have secrets.
    uri = f"sqlite:///{tmp_path}/other.db"
    other = sk.catalog({"name": "prod", "type": "sql", "uri": uri, "warehouse": where})
    assert repr(other) == "Catalog('prod')"
    assert to_text(tree_of(other)) == "prod  no tables"


def test_rows_of_a_file_with_two_columns_of_one_name(tmp_path: Path) -> None:
    two = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], ["a", "a", "b"])
    pq.write_table(two, tmp_path / "f.parquet")
    assert "│  1 row" in str(sk.open(tmp_path).scan(columns=["b + 1 as a"])).splitlines()
