"""Literals of all types: the server and a client alone return the same rows, and files are pruned."""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.expressions import (
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    NotEqualTo,
    NotIn,
)

import skipstone as sk
from skipstone.serve.access import Refusal
from skipstone.serve.filters import Filter
from tests.serve._server import serving

DAY = datetime.date(2026, 1, 1)
NOON = datetime.datetime(2026, 1, 1, 12)
SCHEMA = pa.schema(
    {
        "i": pa.int32(),
        "f": pa.float32(),
        "g": pa.float64(),
        "o": pa.bool_(),
        "d": pa.date32(),
        "t": pa.timestamp("us"),
        "z": pa.timestamp("us", "UTC"),
        "c": pa.time64("us"),
        "x": pa.decimal128(20, 2),
        "u": pa.uuid(),
        "b": pa.binary(),
        "s": pa.struct({"a": pa.int64()}),
    }
)
HOUR = datetime.timedelta(hours=1)


def rows(number: int) -> pa.Table:
    values = [
        number,
        number + 0.1,
        number + 0.1,
        number % 2 == 0,
        DAY + datetime.timedelta(number),
        NOON + number * HOUR,
        (NOON + number * HOUR).replace(tzinfo=datetime.UTC),
        datetime.time(number),
        decimal.Decimal(number) + decimal.Decimal("0.25"),
        uuid.UUID(int=number).bytes,
        bytes([number]),
        {"a": number},
    ]
    columns = []
    for field, value in zip(SCHEMA, values, strict=True):
        storage = pa.binary(16) if field.type == pa.uuid() else field.type
        array = pa.array([value, None], storage)
        columns.append(pa.ExtensionArray.from_storage(pa.uuid(), array) if field.type == pa.uuid() else array)
    return pa.table(columns, SCHEMA)


@pytest.fixture(scope="module")
def catalogs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Catalog, Catalog]]:
    warehouse = tmp_path_factory.mktemp("literals") / "warehouse"
    table = sk.catalog(f"{warehouse}/").create_table("db.t", SCHEMA)
    for number in range(4):
        table.table.append(rows(number))
    with serving(warehouse) as running:
        planned = load_catalog("planned", type="rest", uri=running.uri)
        alone = load_catalog("alone", type="rest", uri=running.uri, **{"scan-planning-mode": "client"})
        yield planned, alone


# A filter, the files that the server plans, and the rows.
CASES: list[tuple[BooleanExpression, int, int]] = [
    (EqualTo("i", 2), 1, 1),
    (NotEqualTo("i", 2), 4, 3),
    (NotIn("i", {1, 2}), 4, 6),
    (EqualTo("g", 2.1), 1, 1),
    (EqualTo("o", True), 2, 2),
    (LessThan("d", DAY + datetime.timedelta(2)), 2, 2),
    (GreaterThanOrEqual("t", NOON + 3 * HOUR), 1, 1),
    (LessThan("z", NOON.replace(tzinfo=datetime.UTC) + HOUR), 1, 1),
    (EqualTo("c", datetime.time(3)), 1, 1),
    (GreaterThan("x", decimal.Decimal("1.25")), 2, 2),
    (EqualTo("b", b"\x02"), 1, 1),
    (EqualTo("s.a", 1), 1, 1),
]


@pytest.mark.parametrize(("filter", "files", "matches"), CASES, ids=[str(one[0]) for one in CASES])
def test_literals(
    catalogs: tuple[Catalog, Catalog], filter: BooleanExpression, files: int, matches: int
) -> None:
    mine, others = (catalog.load_table("db.t").scan(row_filter=filter) for catalog in catalogs)
    assert len([*mine.plan_files()]) == files
    assert mine.to_arrow().num_rows == others.to_arrow().num_rows == matches
    assert mine.count() == matches


def test_literals_between_floats(catalogs: tuple[Catalog, Catalog]) -> None:
    """Clients that round 2.1 to the column's type and clients that don't both get their files."""
    table = catalogs[0].load_table("db.t")
    for filter, files, matches in ((EqualTo("f", 2.1), 1, 1), (In("f", {0.1, 1.1}), 2, 2)):
        scan = table.scan(row_filter=filter)
        assert len([*scan.plan_files()]) == files
        assert scan.to_arrow().num_rows == matches
    both = Filter.of(EqualTo("f", 2.1), [table.schema()])
    assert both.certain is None
    assert both.where is not None
    home = sk.open("db.t", catalog=table.catalog)
    assert home.scan(both.where).to_arrow()["i"].to_pylist() == [2]


def test_uuids(catalogs: tuple[Catalog, Catalog]) -> None:
    """pyiceberg plans with them, but can't compare them in rows."""
    table = catalogs[0].load_table("db.t")
    tasks = [*table.scan(row_filter=EqualTo("u", uuid.UUID(int=3))).plan_files()]
    assert len(tasks) == 1


def test_literals_that_clients_read_differently_keep_everything(catalogs: tuple[Catalog, Catalog]) -> None:
    schema = catalogs[0].load_table("db.t").schema()
    for filter in (LessThan("i", 5.5), GreaterThan("i", 2**40)):
        assert Filter.of(filter, [schema]) == Filter(None, None)
    some = Filter.of(EqualTo("o", True) & LessThan("i", 5.5), [schema])
    assert str(some.where) == "o = TRUE"
    assert some.certain is None
    for filter in (EqualTo("g", 10**400), EqualTo("f", 10**400), EqualTo("f", "1,5")):
        with pytest.raises(Refusal, match="is not a value of"):
            Filter.of(filter, [schema])
    with pytest.raises(Refusal, match="literal 'x' of the filter is not a value of d, which is date"):
        Filter.of(EqualTo("d", "x"), [schema])


def test_names_that_mean_different_columns_keep_everything(catalogs: tuple[Catalog, Catalog]) -> None:
    table = catalogs[0].load_table("db.t")
    schema, other = table.schema(), table.schema().select("d", "i")
    assert Filter.of(EqualTo("i", 2), [schema, other]).where is not None
    # Only one of the schemas has it.
    assert Filter.of(EqualTo("g", 2.0), [schema, other]) == Filter(None, None)
    assert Filter.of(EqualTo("I", 2), [schema], case_sensitive=False).where is not None
    with pytest.raises(Refusal, match="unknown column: I"):
        Filter.of(EqualTo("I", 2), [schema])
