"""Column domains as JSON and back."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pyarrow as pa
import pytest

import skipstone as sk
from skipstone.errors import NotExpressibleError, PredicateError

UTC = pa.timestamp("us", "UTC")
NOON = datetime.datetime(2026, 1, 1, 12)


def values(type: pa.DataType, *items: Any) -> sk.Domain:
    return sk.Domain.values(type, [*items])


DOMAINS = [
    values(pa.int32(), 1, 2, None),
    values(pa.bool_(), True),
    sk.Domain.of(pa.float32(), sk.Range.greater_than(pa.float32(), 0.5), nans=True, nulls=True),
    values(pa.float64(), float("inf"), 0.1, float("nan")),
    sk.Domain.of(pa.string(), sk.Range.between(pa.string(), "a", "bé"), sk.Range.at_least(pa.string(), "x")),
    values(pa.large_string(), "", "1"),
    values(pa.date32(), NOON.date()),
    sk.Domain.of(UTC, sk.Range.less_than(UTC, NOON.replace(tzinfo=datetime.UTC))),
    values(pa.timestamp("ns"), NOON),
    values(pa.time64("us"), NOON.time()),
    values(pa.time32("s"), NOON.time()),
    values(pa.duration("ms"), datetime.timedelta(seconds=3)),
    values(pa.decimal128(30, 2), decimal.Decimal("1.20")),
    sk.Domain.of(pa.decimal128(9, 2), sk.Range.at_most(pa.decimal128(9, 2), decimal.Decimal("-1.20"))),
    values(pa.binary(), b"ab\xff"),
    values(pa.uuid(), b"0123456789abcdef"),
    sk.Domain.not_null(pa.int64()),
    sk.Domain.only_null(pa.int64()),
    sk.Domain.only_nan(pa.float64()),
]


@pytest.mark.parametrize("domain", DOMAINS, ids=repr)
def test_there_and_back(domain: sk.Domain) -> None:
    one = sk.ColumnDomain.of({sk.ColumnHandle("c", domain.type): domain})
    assert sk.ColumnDomain.from_json(one.to_json(), pa.schema({"c": domain.type})) == one


def test_several_columns() -> None:
    inner = pa.struct({"city": pa.string()})
    schema = pa.schema({"id": pa.int64(), "address": inner})
    city = sk.ColumnHandle("address", pa.string(), ("city",))
    both = sk.ColumnDomain.of(
        {sk.ColumnHandle("id", pa.int64()): values(pa.int64(), 1), city: values(pa.string(), "Oslo")}
    )
    assert '"name": ["address", "city"]' in both.to_json()
    assert sk.ColumnDomain.from_json(both.to_json(), schema) == both
    for special in (sk.ColumnDomain.none(), sk.ColumnDomain.all()):
        assert sk.ColumnDomain.from_json(special.to_json(), schema) == special
    # A column that is listed twice has to be in both domains.
    twice = '{"columns": [{"name": "id", "values": [1, 2]}, {"name": "id", "values": [2, 3]}]}'
    assert str(sk.ColumnDomain.from_json(twice, schema)) == "id in [2]"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[]", "neither none nor a list"),
        ('{"columns": {}}', "neither none nor a list"),
        ('{"columns": [1]}', "not an object"),
        ('{"columns": [{"name": "id", "value": 1}]}', "unknown members: value"),
        ('{"columns": [{"name": 1}]}', "not a string"),
        ('{"columns": [{"name": "x"}]}', "unknown column"),
        ('{"columns": [{"name": ["id", "x"]}]}', "unknown column"),
        ('{"columns": [{"name": "id", "values": 1}]}', "are lists"),
        ('{"columns": [{"name": "id", "nulls": 1}]}', "true or false"),
        ('{"columns": [{"name": "id", "values": ["1"]}]}', "does not fit type int64"),
        ('{"columns": [{"name": "id", "values": [1.5]}]}', "does not fit type int64"),
        ('{"columns": [{"name": "id", "values": [true]}]}', "does not fit type int64"),
        ('{"columns": [{"name": "id", "values": [null]}]}', "does not fit type int64"),
        ('{"columns": [{"name": "id", "values": [9223372036854775808]}]}', "does not fit type int64"),
        ('{"columns": [{"name": "s", "values": [1]}]}', "does not fit type string"),
        ('{"columns": [{"name": "d", "values": ["x"]}]}', "does not fit type date32"),
        ('{"columns": [{"name": "d", "values": [1]}]}', "does not fit type date32"),
        ('{"columns": [{"name": "id", "ranges": [{"from": 1}]}]}', "unknown members: from"),
        ('{"columns": [{"name": "l", "values": [[1]]}]}', "does not fit type list"),
    ],
)
def test_what_is_not_a_domain(text: str, message: str) -> None:
    schema = pa.schema({"id": pa.int64(), "s": pa.string(), "d": pa.date32(), "l": pa.list_(pa.int64())})
    with pytest.raises(PredicateError, match=message):
        sk.ColumnDomain.from_json(text, schema)


def test_a_prefix_that_ends_between_strings() -> None:
    schema = pa.schema({"s": pa.string()})
    prefix = sk.parse("s LIKE 'a\x7f%'").to_domain(schema).to_column_domain()
    with pytest.raises(NotExpressibleError, match="not text"):
        prefix.to_json()
