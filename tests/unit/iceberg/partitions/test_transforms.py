"""Partition values as evidence: every value lies within the facts of its own partition, whoever wrote it."""

from __future__ import annotations

import datetime as dt
import math
import random
import struct
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    UnknownTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyiceberg.utils.decimal import decimal_to_bytes

import skipstone as sk
from skipstone.core.domain.keys import Kind, key_space, unscaled, wide_key
from skipstone.core.evidence import ColumnFacts, Evidence
from skipstone.core.ir import compile_predicate
from skipstone.core.judge import Verdict, judge
from skipstone.errors import TypeMismatchError
from skipstone.iceberg.partitions.evidence import (
    Buckets,
    bucket_cleared,
    source_facts,
    summary_facts,
    summary_value,
)

MICROS, NANOS = 86_400 * 10**6, 86_400 * 10**9
PERIODS = [YearTransform(), MonthTransform(), DayTransform(), HourTransform()]


def integers(bits, rng):
    top = 2 ** (bits - 1)
    edges = [-top, -top + 1, top - 1, top - 2, -11, -10, -9, -1, 0, 1, 9, 10, 11]
    return edges + [rng.randrange(-top, top) for _ in range(60)] + [rng.randrange(-99, 99) for _ in range(60)]


def times(per_day, rng):
    """Around midnights, months' ends and years' ends on both sides of 1970, and far away."""
    days = [0, 1, -1, 31, -31, 365, -365, 364, -366, 11_016, -25_567] + [
        rng.randrange(-60_000, 60_000) for _ in range(60)
    ]
    found = [day * per_day + step for day in days for step in (0, 1, -1)]
    return found + [rng.randrange(-60_000 * per_day, 60_000 * per_day) for _ in range(60)]


def texts(rng):
    letters = ["a", "b", "\x7f", "é", "\ud7ff", "\ue000", "\uffff", "\U0001f600", "\U0010ffff", "\x00"]
    return ["", "a", "ab", "abc", "\U0010ffff" * 5] + [
        "".join(rng.choices(letters, k=rng.randrange(7))) for _ in range(150)
    ]


def binaries(rng, length=None):
    pick = [0, 1, 0x61, 0x7F, 0x80, 0xFE, 0xFF]
    return [bytes(rng.choices(pick, k=length or rng.randrange(7))) for _ in range(100)] + (
        [b"", b"\xff" * 6, b"\xff"] if length is None else []
    )


def decimals(precision, scale, rng):
    top = 10**precision - 1
    whole = [-top, top, -1, 0, 1, 128, -128, -129, 32_768, -32_768] + [
        rng.randrange(-top, top) for _ in range(60)
    ]
    return [Decimal((0 if w >= 0 else 1, tuple(map(int, str(abs(w)))), -scale)) for w in whole]


def floats(rng):
    return [-math.inf, -1.5, -0.0, 0.0, 5e-324, math.inf] + [rng.gauss(0, 1e10) for _ in range(50)]


RNG = random.Random(6)
COLUMNS = {
    "bool": (BooleanType(), pa.bool_(), [True, False]),
    "int": (IntegerType(), pa.int32(), integers(32, RNG)),
    "long": (LongType(), pa.int64(), integers(64, RNG)),
    "float": (FloatType(), pa.float32(), [float(np.float32(v)) for v in floats(RNG)]),
    "double": (DoubleType(), pa.float64(), floats(RNG)),
    "decimal": (DecimalType(9, 2), pa.decimal128(9, 2), decimals(9, 2, RNG)),
    "wide decimal": (DecimalType(38, 10), pa.decimal128(38, 10), decimals(38, 10, RNG)),
    "date": (DateType(), pa.date32(), [*times(1, RNG)]),
    "time": (TimeType(), pa.time64("us"), [0, 1, MICROS - 1, *(RNG.randrange(MICROS) for _ in range(20))]),
    "timestamp": (TimestampType(), pa.timestamp("us"), times(MICROS, RNG)),
    "timestamptz": (TimestamptzType(), pa.timestamp("us", "UTC"), times(MICROS, RNG)),
    "nanos": (TimestampNanoType(), pa.timestamp("ns"), [-(2**63), 2**63 - 1, *times(NANOS, RNG)]),
    "string": (StringType(), pa.string(), texts(RNG)),
    "binary": (BinaryType(), pa.binary(), binaries(RNG)),
    "fixed": (FixedType(5), pa.binary(5), binaries(RNG, 5)),
    "uuid": (UUIDType(), pa.uuid(), binaries(RNG, 16)),
}
TRANSFORMS = [
    IdentityTransform(), *PERIODS, BucketTransform(1), BucketTransform(7), BucketTransform(2**31 - 1),
    *(TruncateTransform(width) for width in (1, 2, 3, 7, 10, 1024)),
]  # fmt: skip
PAIRS = [
    pytest.param(name, transform, id=f"{name}-{transform}")
    for name, (source, _, _) in COLUMNS.items()
    for transform in TRANSFORMS
    if transform.can_transform(source)
]


def key_of(type, value):
    if isinstance(value, Decimal):
        whole = unscaled(value, type.scale)
        return wide_key(whole, key_space(type).width) if key_space(type).kind is Kind.BYTES else whole
    return value.encode() if isinstance(value, str) else value


def assert_within(facts: ColumnFacts, type, values):
    lower = facts.lower.to_pylist() if isinstance(facts.lower, pa.Array) else facts.lower.tolist()
    upper = facts.upper.to_pylist() if isinstance(facts.upper, pa.Array) else facts.upper.tolist()
    for unit, value in enumerate(values):
        key = key_of(type, value)
        assert facts.may_value[unit], value
        assert lower[unit] is None or lower[unit] <= key, (value, lower[unit])
        assert upper[unit] is None or key <= upper[unit], (value, upper[unit])
        if facts.lower_exact[unit]:
            assert lower[unit] == upper[unit] == key


@pytest.mark.parametrize(("name", "transform"), PAIRS)
def test_a_value_lies_within_the_facts_of_its_partition(name, transform):
    source, type, values = COLUMNS[name]
    apply = transform.transform(source)
    facts = source_facts(transform, [apply(v) for v in values], type)
    assert facts is not None
    assert facts.type == type
    assert_within(facts, type, values)
    assert not facts.may_null.any()
    assert not facts.may_nan.any()


@pytest.mark.parametrize(("name", "transform"), PAIRS)
def test_a_value_lies_within_the_range_of_its_manifest(name, transform):
    source, type, values = COLUMNS[name]
    apply = transform.transform(source)
    rng = random.Random(str(transform))
    groups = [rng.sample(values, min(len(values), 1 + n % 9)) for n in range(60)]
    if isinstance(transform, TruncateTransform) and name in ("int", "long"):
        top = 2**31 if name == "int" else 2**63
        # As Java's arithmetic wraps.
        wrap = lambda p: (p + top) % (2 * top) - top  # noqa: E731
    else:
        wrap = lambda p: p  # noqa: E731
    made = [[wrap(apply(v)) for v in group] for group in groups]
    kind = LongType() if str(transform).startswith(("bucket", "year", "month", "day", "hour")) else source
    ends = [
        [summary_value(transform, type, stored(kind, end(numbers))) for numbers in made] for end in (min, max)
    ]
    facts = summary_facts(transform, *ends, [False] * 60, [False] * 60, type)
    assert facts is not None
    for place in range(max(map(len, groups))):
        chosen = [n for n, group in enumerate(groups) if place < len(group)]
        assert_within(facts.take(np.array(chosen)), type, [groups[n][place] for n in chosen])


def stored(source, value):
    # A truncated decimal may have a digit more than its type, which pyiceberg would refuse.
    return decimal_to_bytes(value) if isinstance(value, Decimal) else to_bytes(source, value)


@pytest.mark.parametrize("width", [3, 7, 10, 1000])
@pytest.mark.parametrize(("type", "bits"), [(pa.int32(), 32), (pa.int64(), 64), (pa.int64(), 32)])
def test_truncation_that_wraps_around_the_type(type, bits, width):
    top = 2 ** (bits - 1)
    values = [-top, -top + 1, -top + width, top - 1, top - width]
    wrapped = [(v - v % width + top) % (2 * top) - top for v in values]
    facts = source_facts(TruncateTransform(width), wrapped, type)
    assert_within(facts, type, values)


@pytest.mark.parametrize(
    ("name", "transform"),
    [(n, t) for n in ("date", "timestamp", "nanos") for t in PERIODS if t.can_transform(COLUMNS[n][0])],
    ids=str,
)
def test_early_writers_rounded_toward_zero(name, transform):
    _, type, values = COLUMNS[name]
    values = [v for v in values if -(10**18) < v < 0] + [-1]
    per_day = {"date": 1, "timestamp": MICROS, "nanos": NANOS}[name]
    if isinstance(transform, (DayTransform, HourTransform)):
        step = per_day if isinstance(transform, DayTransform) else per_day // 24
        rounded = [-(-v // step) for v in values]
    else:
        rounded = [-whole_between(v / per_day, transform) for v in values]
    assert_within(source_facts(transform, rounded, type), type, values)


def whole_between(days, transform):
    """Whole months or years from a time before 1970 up to it, as Java's ``ChronoUnit.between`` counts."""
    day = dt.date(1970, 1, 1) + dt.timedelta(days=math.ceil(days))
    months = (1970 - day.year) * 12 + 1 - day.month - (day.day > 1)
    return months // 12 if isinstance(transform, YearTransform) else months


def test_periods_are_tight():
    facts = source_facts(MonthTransform(), [0, 1, 600, -1], pa.date32())
    first = lambda y, m: (dt.date(y, m, 1) - dt.date(1970, 1, 1)).days  # noqa: E731
    # A month up to 1970-01 may also hold rows of the month before it.
    assert facts.lower.tolist() == [first(1969, 12), first(1970, 2), first(2020, 1), first(1969, 11)]
    assert facts.upper.tolist() == [first(1970, 2) - 1, first(1970, 3) - 1, first(2020, 2) - 1, -1]
    facts = source_facts(HourTransform(), [0, 1], pa.timestamp("us"))
    assert facts.lower.tolist() == [-3600 * 10**6, 3600 * 10**6]
    assert facts.upper.tolist() == [3600 * 10**6 - 1, 2 * 3600 * 10**6 - 1]
    assert not facts.lower_exact.any()


@pytest.mark.parametrize(
    ("name", "transform"),
    [(n, t) for n in ("date", "timestamp", "nanos") for t in PERIODS if t.can_transform(COLUMNS[n][0])],
    ids=str,
)
def test_periods_at_the_ends_of_the_type(name, transform):
    type = COLUMNS[name][1]
    space = key_space(type)
    ends = np.array([space.low, space.high])
    per_day = {"date": 1, "timestamp": MICROS, "nanos": NANOS}[name]
    if isinstance(transform, HourTransform):
        own = ends // (per_day // 24)
    else:
        days = (ends // per_day).astype("datetime64[D]")
        own = days.astype(
            {"year": "datetime64[Y]", "month": "datetime64[M]"}.get(str(transform), "datetime64[D]")
        )
    own = [int(p) for p in own.astype(np.int64)]
    if max(map(abs, own)) > 2**31:
        with pytest.raises(TypeMismatchError, match="not a partition value"):
            source_facts(transform, own, type)
        return
    assert_within(source_facts(transform, own, type), type, ends.tolist())


def test_truncation_is_tight():
    facts = source_facts(TruncateTransform(10), [0, -10, 2**31 - 8], pa.int32())
    assert facts.lower.tolist() == [0, -10, 2**31 - 8]
    assert facts.upper.tolist() == [9, -1, 2**31 - 1]
    facts = source_facts(TruncateTransform(2), ["a", "ab", "\U0010ffff" * 2, "abc"], pa.string())
    assert facts.lower.to_pylist()[:2] == [b"a", b"ab"]
    assert facts.upper.to_pylist()[:2] == [b"a", b"ab\xff"]
    assert facts.lower_exact.tolist() == [True, False, False, False]
    # What can't be a truncation says nothing.
    assert facts.upper.to_pylist()[3] is None
    facts = source_facts(TruncateTransform(1), [b"a", b"\xff"], pa.binary())
    assert facts.upper.to_pylist() == [b"b", None]
    facts = source_facts(TruncateTransform(50), [Decimal("1.00")], pa.decimal128(9, 2))
    assert (facts.lower.tolist(), facts.upper.tolist()) == ([100], [149])


@pytest.mark.parametrize(("name", "transform"), PAIRS)
def test_a_null_partition_holds_nulls_only(name, transform):
    source, type, values = COLUMNS[name]
    facts = source_facts(transform, [None, transform.transform(source)(values[0]), None], type)
    assert facts.may_null.tolist() == [True, False, True]
    assert facts.may_value.tolist() == [False, True, False]


def test_identity_of_floats():
    facts = source_facts(IdentityTransform(), [math.nan, 0.0, -0.0, 1.5, None], pa.float64())
    assert facts.may_nan.tolist() == [True, False, False, False, False]
    assert facts.may_value.tolist() == [False, True, True, True, False]
    assert facts.may_null.tolist() == [False] * 4 + [True]
    assert [math.copysign(1, v) for v in facts.lower[1:3]] == [-1, -1]
    assert [math.copysign(1, v) for v in facts.upper[1:3]] == [1, 1]
    assert facts.lower_exact.tolist() == [False, False, False, True, False]


def test_what_says_nothing():
    for transform in (VoidTransform(), UnknownTransform("zorder")):
        assert source_facts(transform, [None, None], pa.int32()) is None
        assert summary_facts(transform, [None], [None], [True], [None], pa.int32()) is None
    assert source_facts(IdentityTransform(), [None], pa.null()) is None


@pytest.mark.parametrize(
    ("transform", "type"),
    [
        (BucketTransform(4), pa.float64()),
        (BucketTransform(4), pa.bool_()),
        (DayTransform(), pa.string()),
        (HourTransform(), pa.date32()),
        (TruncateTransform(4), pa.float32()),
        (TruncateTransform(4), pa.timestamp("us")),
    ],
    ids=str,
)
def test_a_transform_that_can_not_be_is_an_error(transform, type):
    with pytest.raises(TypeMismatchError, match="does not apply"):
        source_facts(transform, [1], type)


@pytest.mark.parametrize(
    ("transform", "value", "type"),
    [
        (IdentityTransform(), "1", pa.int32()),
        (IdentityTransform(), True, pa.int32()),
        (IdentityTransform(), 1, pa.bool_()),
        (IdentityTransform(), 1, pa.float64()),
        (IdentityTransform(), Decimal("1.005"), pa.decimal128(9, 2)),
        (DayTransform(), 1.5, pa.date32()),
        (DayTransform(), 2**40, pa.timestamp("us")),
        (BucketTransform(4), "3", pa.int32()),
        (TruncateTransform(4), b"a", pa.string()),
    ],
)
def test_a_value_of_another_type_is_an_error(transform, value, type):
    with pytest.raises(TypeMismatchError, match="is not a partition value"):
        source_facts(transform, [value], type)


# -- manifests -----------------------------------------------------------------------------------


def test_absent_bounds_say_nothing():
    facts = summary_facts(IdentityTransform(), [None, 5], [None, 5], [True, False], [None, None], pa.int64())
    assert facts.may_value.tolist() == [True, True]
    assert facts.may_null.tolist() == [True, False]
    assert facts.lower.tolist() == [-(2**63), 5]
    assert facts.upper.tolist() == [2**63 - 1, 5]
    assert not facts.lower_exact.any()


def test_crossed_and_nan_bounds_say_nothing():
    facts = summary_facts(
        IdentityTransform(), [5.0, math.nan], [1.0, 2.0], [False] * 2, [False, None], pa.float64()
    )
    assert facts.lower.tolist() == [-math.inf, -math.inf]
    assert facts.upper.tolist() == [math.inf, 2.0]
    assert facts.may_nan.tolist() == [False, True]
    texts = summary_facts(IdentityTransform(), ["b", "a"], ["a", "b"], [False] * 2, [None] * 2, pa.string())
    assert texts.lower.to_pylist() == [None, b"a"]
    assert texts.upper.to_pylist() == [None, b"b"]


def test_the_order_of_uuids_is_not_trusted():
    low, high = b"\x00" * 16, b"\x80" * 16
    facts = summary_facts(
        IdentityTransform(), [low, low], [high, low], [False] * 2, [None] * 2, pa.binary(16)
    )
    assert facts.lower.to_pylist() == [None, low]
    assert facts.upper.to_pylist() == [None, low]


def test_bounds_of_summaries_are_read_with_promotion():
    identity = IdentityTransform()
    assert summary_value(identity, pa.int64(), struct.pack("<i", -5)) == -5
    assert summary_value(identity, pa.float64(), struct.pack("<f", 1.5)) == 1.5
    assert summary_value(identity, pa.decimal128(20, 2), b"\xff\x80") == Decimal("-1.28")
    assert summary_value(identity, pa.date32(), struct.pack("<i", 3)) == 3
    assert summary_value(identity, pa.bool_(), b"\x01") is True
    assert summary_value(DayTransform(), pa.timestamp("us"), struct.pack("<i", 3)) == 3
    assert summary_value(identity, pa.string(), "é".encode()) == "é"
    assert summary_value(identity, pa.string(), None) is None
    # Days are no microseconds; and what can't be read is not known.
    assert summary_value(identity, pa.timestamp("us"), struct.pack("<i", 3)) is None
    assert summary_value(identity, pa.string(), b"\xff") is None
    assert summary_value(BucketTransform(4), pa.string(), b"\x01") is None


# -- buckets ---------------------------------------------------------------------------------------


def literal(type, value):
    if pa.types.is_temporal(type):
        return pa.scalar(value, pa.int32() if type.bit_width == 32 else pa.int64()).cast(type)
    return pa.scalar(value, type)


@pytest.mark.parametrize("name", [n for n in COLUMNS if n not in ("bool", "float", "double")])
def test_buckets_clear_only_units_without_the_values(name):
    source, type, values = COLUMNS[name]
    rng = random.Random(name)
    cleared_units = 0
    schema = pa.schema([("c", type)])
    for count in (1, 3, 16, 1000):
        transform = BucketTransform(count)
        apply = transform.transform(source)
        for _ in range(8):
            asked = rng.sample(values, rng.randint(1, 3))
            among = sk.col("c").isin(pa.array([literal(type, v) for v in asked], type))
            node = compile_predicate(among, schema).node
            numbers = [apply(v) for v in asked] + [rng.randrange(count) for _ in range(5)]
            spread = [rng.randrange(3) for _ in numbers]
            buckets = Buckets.of(
                transform,
                [max(0, n - s) for n, s in zip(numbers, spread, strict=True)],
                [min(count - 1, n + s) for n, s in zip(numbers, spread, strict=True)],
            )
            cleared = bucket_cleared(node, {("c",): [buckets]})
            for mask in cleared.values():
                assert not mask[: len(asked)].any()
                cleared_units += int(mask.sum())
    assert cleared_units > 20


def test_buckets_prove_nothing_about_ranges_nulls_and_functions():
    schema = pa.schema([("i", pa.int64()), ("s", pa.string()), ("ts", pa.timestamp("us"))])
    every = {(n,): [Buckets.of(BucketTransform(8), list(range(8)), list(range(8)))] for n in schema.names}
    asked = ["i > 5", "i <=> NULL", "i IS NULL", "i = 5 OR i IS NULL", "i <> 5", "i + 1 = 5"]
    asked += ["s LIKE 'a%'", "s = '\U0001f600'", "cast(ts AS date) = date'2020-01-01'"]
    for text in asked:
        assert bucket_cleared(compile_predicate(sk.parse(text), schema).node, every) == {}, text
    node = compile_predicate(sk.parse("i = 5 AND s = 'x'"), schema).node
    cleared = bucket_cleared(node, every)
    assert sorted(int(mask.sum()) for mask in cleared.values()) == [7, 7]
    verdicts = judge(node, Evidence(np.full(8, -1), {}), cleared).verdicts()
    five = BucketTransform(8).transform(LongType())(5)
    x = BucketTransform(8).transform(StringType())("x")
    assert [n for n in range(8) if verdicts[n] != Verdict.NONE] == ([five] if five == x else [])


def test_impossible_buckets_are_every_bucket():
    buckets = Buckets.of(BucketTransform(4), [None, -1, 3, 2], [None, 2, 9, 1])
    assert buckets.lower.tolist() == [0, 0, 0, 0]
    assert buckets.upper.tolist() == [3, 3, 3, 3]


def test_two_bucketings_of_one_column_clear_together():
    node = compile_predicate(sk.parse("i = 5"), pa.schema([("i", pa.int64())])).node
    four, eight = (BucketTransform(n).transform(LongType())(5) for n in (4, 8))
    buckets = [
        Buckets.of(BucketTransform(4), [four, four, four ^ 1], [four, four, four ^ 1]),
        Buckets.of(BucketTransform(8), [eight, eight ^ 1, eight], [eight, eight ^ 1, eight]),
    ]
    (mask,) = bucket_cleared(node, {("i",): buckets}).values()
    assert mask.tolist() == [False, True, True]


def test_known_hashes_of_the_specification():
    # Appendix B of the Iceberg specification.
    cases = [
        (pa.int32(), 34, 2017239379),
        (pa.int64(), 34, 2017239379),
        (pa.decimal128(9, 2), Decimal("14.20"), -500754589),
        (pa.date32(), 17_486, -653330422),
        (pa.timestamp("us"), 1_510_871_468_000_000, -2047944441),
        (pa.timestamp("ns"), 1_510_871_468_000_000_000, -2047944441),
        (pa.string(), "iceberg", 1210000089),
        (pa.binary(), b"\x00\x01\x02\x03", -188683207),
    ]
    for type, value, hashed in cases:
        node = compile_predicate(sk.col("c") == sk.lit(literal(type, value)), pa.schema([("c", type)])).node
        transform = BucketTransform(10**6)
        number = (hashed & 0x7FFFFFFF) % 10**6
        (mask,) = bucket_cleared(
            node, {("c",): [Buckets.of(transform, [number, number + 1], [number, number + 1])]}
        ).values()
        assert mask.tolist() == [False, True], type
