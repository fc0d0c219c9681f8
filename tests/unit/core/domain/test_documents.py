"""Column domains as JSON and back."""

from __future__ import annotations

import datetime
import decimal
import json
import random
from typing import Any

import pyarrow as pa
import pytest

import skipstone as sk
from skipstone.core.filter import RowFilter
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


# Values of each type, as numbers of its unit where it has one.
VALUES: dict[pa.DataType, list[Any]] = {
    pa.int8(): [-128, -1, 0, 5, 6, 127],
    pa.int64(): [-(2**63), 0, 7, 2**63 - 1],
    pa.uint64(): [0, 1, 2**63, 2**64 - 1],
    pa.float16(): [0.0, -0.0, 1.5, 65504.0, float("inf")],
    pa.float32(): [0.1, 3.4e38, -1.5, 1e-45, float("-inf")],
    pa.float64(): [5e-324, 0.1, 1e308, float("inf"), -0.0],
    pa.bool_(): [True, False],
    pa.string(): ["", "a", "a\0", "é", "\U0001f600", "it's", '"q"\n'],
    pa.large_string(): ["x", "y"],
    pa.binary(): [b"", b"\0", b"\xff\xff", b"ab"],
    pa.binary(3): [b"abc", b"\0\0\0", b"\xff\xff\xff"],
    pa.uuid(): [b"0" * 16, b"\xff" * 16],
    pa.date32(): [-800_000, -719_162, 0, 20_000, 2_932_896, 3_000_000],
    pa.date64(): [0, 86_400_000 * 20_000],
    pa.timestamp("s"): [0, -1, 253_402_300_800, -62_135_596_801],
    pa.timestamp("ms"): [0, 1, -1],
    pa.timestamp("ns"): [1, -1, 10**18 + 1, 2**63 - 1, -(2**63) + 9],
    pa.timestamp("ns", "UTC"): [1, 10**18 + 7],
    pa.timestamp("us", "Europe/Berlin"): [1, 10**15 + 1, -(10**17)],
    pa.time32("s"): [0, 86_399],
    pa.time64("ns"): [1, 86_399_999_999_999],
    pa.duration("ns"): [-5, 1, 2**62],
    pa.decimal128(9, 2): [decimal.Decimal("1.25"), decimal.Decimal("-9999999.99"), decimal.Decimal(0)],
    pa.decimal128(38, 0): [decimal.Decimal(10**37), decimal.Decimal(-(10**37))],
    pa.decimal256(60, 5): [decimal.Decimal(10**50), decimal.Decimal("0.00001")],
}


def array_of(type: pa.DataType) -> pa.Array:
    storage = type.storage_type if isinstance(type, pa.BaseExtensionType) else type
    if pa.types.is_temporal(storage):
        return pa.array(VALUES[type], pa.int32() if storage.bit_width == 32 else pa.int64()).view(storage)
    return pa.array(VALUES[type], storage)


def random_domain(rng: random.Random, type: pa.DataType, array: pa.Array) -> sk.Domain:
    """A union of values and ranges, or the complement of one."""
    domain = sk.Domain.none(type)
    for _ in range(rng.randrange(4)):
        some = array.take(pa.array([rng.randrange(len(array)) for _ in range(2)]))
        if rng.random() < 0.4:
            domain |= sk.Domain.values(type, some)
            continue
        low = sk.Marker.of(type, some[0], rng.choice([sk.Bound.EXACTLY, sk.Bound.ABOVE]))
        high = sk.Marker.of(type, some[1], rng.choice([sk.Bound.EXACTLY, sk.Bound.BELOW]))
        ends = rng.choice([(low, high), (low, sk.Marker.upper_end(type)), (sk.Marker.lower_end(type), high)])
        domain |= sk.Domain.of(type, sk.Range(*ends))
    for more in (sk.Domain.only_null(type), sk.Domain.only_nan(type)):
        domain = domain | more if rng.random() < 0.3 else domain
    return domain.complement() if rng.random() < 0.3 else domain


@pytest.mark.parametrize("type", VALUES, ids=str)
def test_random_domains_there_and_back(type: pa.DataType) -> None:
    rng, array = random.Random(str(type)), array_of(type)
    schema = pa.schema({"c": type, "s": pa.struct({"c": pa.struct({"d": type})})})
    seen = set()
    for _ in range(25):
        domain = random_domain(rng, type, array)
        column = rng.choice([sk.ColumnHandle("c", type), sk.ColumnHandle("s", type, ("c", "d"))])
        one = sk.ColumnDomain.of({column: domain})
        text = one.to_json()
        json.loads(text, parse_constant=pytest.fail)  # no Infinity and no NaN, which are not JSON
        assert sk.ColumnDomain.from_json(text, schema) == one, text
        seen.add(text)
        if isinstance(type, pa.BaseExtensionType):
            continue
        # As a condition it is TRUE for the same values.
        wanted = [domain.contains(value) if value.is_valid else domain.nulls for value in array]
        condition = sk.predicate(sk.ColumnDomain.of({sk.ColumnHandle("c", type): domain}))
        assert RowFilter(condition, schema).mask(pa.table({"c": array})).tolist() == wanted, str(domain)
    assert len(seen) > 8


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
        ('{"columns": [{"name": "d", "values": ["x"]}]}', "does not fit type date"),
        ('{"columns": [{"name": "d", "values": [1]}]}', "does not fit type date"),
        ('{"columns": [{"name": "d", "values": ["2026"]}]}', "does not fit type date"),
        ('{"columns": [{"name": "d", "values": ["now"]}]}', "does not fit type date"),
        ('{"columns": [{"name": "d", "values": ["2026-02-30"]}]}', "does not fit type date"),
        ('{"columns": [{"name": "d", "values": ["2026-01-01 12:00:00"]}]}', "does not fit type date"),
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
