"""The multi-spec partition filter: verdicts per spec, failing open, counts, and brute force."""

from __future__ import annotations

import math
import random
import struct
from decimal import Decimal
from itertools import groupby

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.partitioning import PartitionField, PartitionSpec
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
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
)
from pyiceberg.utils.decimal import decimal_to_bytes

import skipstone as sk
from skipstone.core.evidence import Evidence
from skipstone.core.filter import RowFilter
from skipstone.core.ir import compile_predicate
from skipstone.core.ir.nodes import ColumnRef
from skipstone.core.judge import Verdict, judge
from skipstone.errors import SchemaError, UnknownColumnError
from skipstone.iceberg.manifests.lists import PartitionSummary
from skipstone.iceberg.partitions import filter as partition_filter
from skipstone.iceberg.partitions.filter import FilterStats, PartitionFilter
from skipstone.iceberg.partitions.values import PartitionKey
from tests.support.samples import sample

SOURCES = {
    1: ("id", LongType(), pa.int64()),
    2: ("ts", TimestampType(), pa.timestamp("us")),
    3: ("s", StringType(), pa.string()),
    4: ("f", DoubleType(), pa.float64()),
    5: ("d", DateType(), pa.date32()),
    6: ("n", DecimalType(9, 2), pa.decimal128(9, 2)),
}
SCHEMA = pa.schema([(name, type) for name, _, type in SOURCES.values()])
COLUMNS = {number: ColumnRef((name,), type) for number, (name, _, type) in SOURCES.items()}
IDS = {name: number for number, (name, _, _) in SOURCES.items()}
NONE, SOME, ALL = Verdict.NONE, Verdict.SOME, Verdict.ALL


def spec(spec_id, **fields):
    made = [
        PartitionField(IDS.get(name.split("_")[0], 99), 1000 + at, transform, f"{name}_{at}")
        for at, (name, transform) in enumerate(fields.items())
    ]
    return PartitionSpec(*made, spec_id=spec_id)


def filtering(text, *specs, columns=COLUMNS, **options):
    node = None if text is None else compile_predicate(sk.parse(text), SCHEMA).node
    return PartitionFilter(node, {s.spec_id: s for s in specs}, columns, **options)


def keys(spec_id, *partitions):
    return [PartitionKey(spec_id, p if isinstance(p, tuple) else (p,)) for p in partitions]


BY_DAY = spec(0, ts=DayTransform())
BY_ID = spec(1, id=IdentityTransform())
BY_BUCKET = spec(2, id=BucketTransform(8))
PLAIN = spec(3)
BY_VOID = spec(4, s=VoidTransform())
BY_TEXT = spec(5, s=TruncateTransform(2))
DAYS = "ts >= '2020-01-02' AND ts < '2020-01-04'"  # days 18263 and 18264


# -- the seed's table 4.2 --------------------------------------------------------------------------


def test_multi_spec_single_spec_table():
    judged = filtering(DAYS, BY_DAY).judge(keys(0, 18262, 18263, 18264, 18265, None))
    # Whole days inside the range are proven to match wholly.
    assert judged.verdicts.tolist() == [NONE, ALL, ALL, NONE, NONE]
    assert judged.kept.tolist() == [False, True, True, False, False]
    assert not judged.fail_open.any()
    assert filtering("ts >= '2020-01-02 12:00:00'", BY_DAY).judge(keys(0, 18263)).verdicts.tolist() == [SOME]


def test_multi_spec_evolved_table():
    mine = filtering("id = 5", BY_DAY, BY_ID, BY_BUCKET, PLAIN, BY_VOID)
    bucket = BucketTransform(8).transform(LongType())(5)
    asked = [
        *keys(0, 18262),
        *keys(1, 5, 6, None),
        *keys(2, bucket, bucket ^ 1, None),
        PartitionKey(3, None),
        PartitionKey(4, None),
    ]
    verdicts = mine.judge(asked).verdicts.tolist()
    assert verdicts == [SOME, ALL, NONE, NONE, SOME, NONE, NONE, SOME, SOME]
    # Days, no fields and void fields say nothing about id.
    assert mine.stats() == FilterStats(unconstrained_specs=3)
    # The order of keys and specs is the caller's.
    assert mine.judge(asked[::-1]).verdicts.tolist() == verdicts[::-1]


def test_multi_spec_unevaluable_spec_fail_open():
    # A day of a text is impossible: the metadata contradicts itself.
    broken = spec(7, s=DayTransform(), id=IdentityTransform())
    mine = filtering("s = 'x' AND id = 5", broken, BY_ID)
    judged = mine.judge([*keys(7, (1, 5), (2, 6)), *keys(1, 5, 6)])
    assert judged.verdicts.tolist() == [SOME, SOME, SOME, NONE]
    assert judged.fail_open.tolist() == [True, True, False, False]
    assert mine.stats() == FilterStats(unevaluable_specs=1, fail_open_partitions=2)
    assert mine.evaluations == 2
    (warning,) = mine.warnings
    assert (warning.code, warning.spec_id, warning.count) == ("unevaluable-spec", 7, 1)
    assert "day does not apply to string" in warning.message
    # A predicate that leaves that column alone is evaluated all the same.
    other = filtering("id = 5", broken)
    assert other.judge(keys(7, (1, 5), (1, 6))).verdicts.tolist() == [ALL, NONE]
    assert other.stats() == FilterStats()


def test_multi_spec_eval_error_fail_open():
    mine = filtering("id = 5", BY_ID)
    judged = mine.judge(keys(1, 5, "five", 6, 5.0, *range(100, 200)))
    assert judged.verdicts.tolist() == [ALL, SOME, NONE, SOME] + [NONE] * 100
    assert judged.fail_open.tolist() == [False, True, False, True] + [False] * 100
    assert mine.stats() == FilterStats(eval_errors=2, fail_open_partitions=2)
    (warning,) = mine.warnings
    assert (warning.code, warning.spec_id, warning.count) == ("evaluation-error", 1, 2)
    assert "spec 1 ('five')" in warning.message
    # The kept ones are known not to be constants, and the planner gets no facts about them.
    facts = mine.facts(keys(1, 5, "five"))[("id",)]
    assert (facts.lower[0], facts.upper[0]) == (5, 5)
    assert facts.may_null.tolist() == [False, True]
    assert not mine.cleared(keys(1, 5, "five"))


def test_multi_spec_memoization(monkeypatch):
    calls = []
    real = partition_filter.evaluate

    def counted(projection, partitions):
        calls.extend(partitions)
        return real(projection, partitions)

    monkeypatch.setattr(partition_filter, "evaluate", counted)
    mine = filtering("id = 5", BY_ID)
    for _ in range(3):
        mine.judge(keys(1, 5, 6, 5, 6, 7))
        assert mine.judge(keys(1, 5, 6)).kept.tolist() == [True, False]
    mine.judge(keys(1, 7, 8))
    assert sorted(calls) == [(5,), (6,), (7,), (8,)]
    assert mine.evaluations == 4
    # NaN is one key, however it was made.
    floats = filtering("isnan(f)", spec(0, f=IdentityTransform()))
    assert floats.judge(keys(0, math.nan, float("nan"), 1.0)).verdicts.tolist() == [ALL, ALL, NONE]
    assert floats.evaluations == 2


def test_multi_spec_stats_counting(monkeypatch):
    real_project, real_evaluate = partition_filter.project_spec, partition_filter.evaluate

    def project(node, spec, columns):
        if spec.spec_id == 5:
            raise RuntimeError("injected")
        return real_project(node, spec, columns)

    def evaluated(projection, partitions):
        if any(p in ((6,), (None,)) for p in partitions):
            raise ZeroDivisionError
        return real_evaluate(projection, partitions)

    monkeypatch.setattr(partition_filter, "project_spec", project)
    monkeypatch.setattr(partition_filter, "evaluate", evaluated)
    mine = filtering("id = 5", BY_DAY, BY_ID, BY_TEXT, PLAIN)
    assert mine.stats() == FilterStats(unevaluable_specs=1, unconstrained_specs=2)
    files = [*keys(1, 5, 6, 6, 7, 8, None), *keys(5, "aa", "bb", "aa"), *keys(0, 1, 2), PartitionKey(3, None)]
    judged = mine.judge(files)
    assert judged.verdicts.tolist() == [ALL, SOME, SOME, NONE, NONE, SOME] + [SOME] * 6
    assert mine.stats() == FilterStats(1, 2, 4, 0, 2)
    # Only candidates count as files, each by itself.
    candidates = [key for key, kept in zip(files, judged.kept, strict=True) if kept][1:]
    assert mine.stats(candidates) == FilterStats(1, 2, 4, 6, 2)
    assert mine.stats([files[0]]).fail_open_files == 0
    assert mine.evaluations == 5 + 2 + 1
    assert {(w.code, w.spec_id, w.count, w.message) for w in mine.warnings} == {
        ("unevaluable-spec", 5, 1, "injected"),
        ("evaluation-error", 1, 2, "spec 1 (6): ZeroDivisionError"),
    }


def test_multi_spec_unknown_spec_hard_error():
    for mine in (filtering("id = 5", BY_ID, BY_DAY), filtering(None, BY_ID, BY_DAY)):
        with pytest.raises(SchemaError, match=r"no partition spec 9; its specs are 0, 1 \("):
            mine.judge([PartitionKey(9, (1,))])
        with pytest.raises(SchemaError, match="partition spec 9"):
            mine.manifests(9, [])
        # Nothing is judged before the error.
        with pytest.raises(SchemaError, match="partition spec 9"):
            mine.judge([*keys(1, 5), *keys(9, 5)])
        assert mine.evaluations == 0


def test_binding_is_a_hard_error():
    with pytest.raises(UnknownColumnError):
        filtering("nobody = 5", BY_ID)


# -- the seed's table 4.3, as far as the filter goes ---------------------------------------------


EVOLVED = [*keys(0, 18262, 18263, None), *keys(1, 5, 6), *keys(2, 3), PartitionKey(3, None)]
SPECS = (BY_DAY, BY_ID, BY_BUCKET, PLAIN)


def test_plan_evolved_table_no_filter():
    mine = filtering(None, *SPECS)
    assert mine.judge(EVOLVED).verdicts.tolist() == [ALL] * len(EVOLVED)
    assert mine.stats(EVOLVED) == FilterStats()
    assert mine.manifests(1, [[PartitionSummary(False, None, None, None)]]).tolist() == [ALL]
    assert mine.facts(EVOLVED) == {}
    both = filtering("id = 5 AND ts IS NOT NULL", *SPECS)
    assert set(both.facts(EVOLVED)) == {("ts",), ("id",)}


def test_plan_evolved_table_with_filter():
    mine = filtering(DAYS, *SPECS)
    assert mine.judge(EVOLVED).verdicts.tolist() == [NONE, ALL, NONE, SOME, SOME, SOME, SOME]
    assert mine.stats(EVOLVED) == FilterStats(unconstrained_specs=3)


def test_plan_evolved_table_fail_open_stats(monkeypatch):
    def project(*_):
        raise ValueError("injected")

    monkeypatch.setattr(partition_filter, "project_spec", project)
    mine = filtering(DAYS, *SPECS)
    assert mine.judge(EVOLVED).verdicts.tolist() == [SOME] * len(EVOLVED)
    assert mine.stats([EVOLVED[0], EVOLVED[0], EVOLVED[6]]) == FilterStats(4, 0, len(EVOLVED), 3, 0)
    assert mine.evaluations == 0
    assert mine.manifests(1, [[]]).tolist() == [SOME]
    assert mine.facts(EVOLVED) == {}


def test_plan_deterministic_group_ids():
    files = [
        (key, sequence, f"{name}.parquet")
        for key in [*keys(1, 9, 10, None, math.nan, "9"), *keys(0, -1), PartitionKey(3, None)]
        for sequence, name in [(1, "b"), (1, "a"), (0, "z")]
    ]
    expected = None
    for seed in range(10):
        shuffled = random.Random(seed).sample(files, len(files))
        ordered = sorted(shuffled, key=lambda file: (file[0].sort_key(), *file[1:]))
        grouped = [
            (str(key), [file[1:] for file in members]) for key, members in groupby(ordered, lambda f: f[0])
        ]
        expected = expected or grouped
        assert grouped == expected
    assert [name for name, _ in expected] == [
        "spec 0 (-1)", "spec 1 (NULL)", "spec 1 (9)", "spec 1 (10)", "spec 1 (nan)", "spec 1 ('9')",
        "spec 3 (unpartitioned)",
    ]  # fmt: skip
    assert expected[0][1] == [(0, "z.parquet"), (1, "a.parquet"), (1, "b.parquet")]


# -- strictness, unknown transforms, dropped columns -----------------------------------------------


def test_strict_is_an_error_instead_of_failing_open():
    mine = filtering("id = 5", BY_ID, strict=True)
    assert mine.judge(keys(1, 5, 6)).verdicts.tolist() == [ALL, NONE]
    with pytest.raises(SchemaError, match=r"spec 1 \('x'\): partition can't be judged: 'x' is not a"):
        mine.judge(keys(1, 7, "x"))
    # A spec that can't be evaluated but has no files hurts nobody.
    broken = filtering("s = 'x'", spec(0, s=DayTransform()), BY_TEXT, strict=True)
    assert broken.judge(keys(5, "x")).kept.all()
    with pytest.raises(SchemaError, match=r"spec 0 \(1\): partition can't be judged: day does not"):
        broken.judge(keys(0, 1))


def test_unknown_transforms_fail_open():
    unknown = spec(0, id=UnknownTransform("zorder"))
    mine = filtering("id = 5", unknown)
    assert mine.judge(keys(0, "x", None)).verdicts.tolist() == [SOME, SOME]
    assert mine.stats(keys(0, "x", "x")) == FilterStats(1, 0, 2, 2, 0)
    assert "'id_0' has an unknown transform" in mine.warnings[0].message
    # With another field that says something the unknown one is left aside.
    both = filtering("id = 5", spec(0, id=UnknownTransform("zorder"), id_again=IdentityTransform()))
    assert both.judge(keys(0, ("x", 5), ("x", 6))).verdicts.tolist() == [ALL, NONE]
    assert both.stats() == FilterStats()
    assert [w.code for w in both.warnings] == ["unknown-transform"]
    # If the predicate does not ask about its column, there is nothing it could have said.
    aside = filtering("s = 'x'", unknown)
    assert aside.judge(keys(0, "x")).verdicts.tolist() == [SOME]
    assert aside.stats() == FilterStats(unconstrained_specs=1)


def test_fields_of_dropped_columns_say_nothing():
    dropped = spec(0, gone=IdentityTransform(), id=IdentityTransform())
    mine = filtering("id = 5", dropped)
    assert mine.judge(keys(0, ("x", 5), (7, 6))).verdicts.tolist() == [ALL, NONE]
    assert set(mine.facts(keys(0, ("x", 5)))) == {("id",)}
    only = filtering("id = 5", spec(1, gone=BucketTransform(4)))
    assert only.judge(keys(1, 3)).verdicts.tolist() == [SOME]
    assert only.stats() == FilterStats(unconstrained_specs=1)


def test_a_broken_value_of_a_column_outside_the_predicate_is_harmless():
    mine = filtering("id = 5", spec(0, id=IdentityTransform(), s=IdentityTransform()))
    assert mine.judge(keys(0, (5, 12), (6, 12))).verdicts.tolist() == [ALL, NONE]
    facts = mine.facts(keys(0, (5, 12)))
    assert facts[("id",)].lower.tolist() == [5]
    assert set(facts) == {("id",)}


def test_predicates_decided_without_columns():
    never = filtering("1 = 2", BY_ID, PLAIN)
    assert never.judge([*keys(1, 5), PartitionKey(3, None)]).verdicts.tolist() == [NONE, NONE]
    assert never.stats() == FilterStats()
    opaque = PartitionFilter(
        compile_predicate(sk.udf(lambda x: x, ["id"]), SCHEMA).node, {1: BY_ID, 3: PLAIN}, COLUMNS
    )
    assert opaque.judge(keys(1, 5)).verdicts.tolist() == [SOME]
    assert opaque.stats() == FilterStats(unconstrained_specs=2)


def test_warnings_are_bounded():
    many = [spec(number, s=DayTransform()) for number in range(500)]
    mine = filtering("s = 'x'", *many)
    assert mine.stats().unevaluable_specs == 500
    assert len(mine.warnings) == 21
    assert mine.warnings[-1].spec_id is None
    assert sum(w.count for w in mine.warnings) == 500


def test_blame_names_the_conjunct_that_dropped_a_key():
    both = spec(0, id=IdentityTransform(), s=IdentityTransform())
    judged = filtering("id = 5 AND s = 'x'", both).judge(keys(0, (5, "x"), (6, "x"), (5, "y"), (6, "y")))
    assert judged.judgement.blame().tolist() == [-1, 0, 1, 0]
    assert [str(node) for node, _ in judged.judgement.parts] == ["id = 5", "s = 'x'"]


def test_nested_sources():
    schema = pa.schema([("a", pa.struct([("b", pa.int32())]))])
    node = compile_predicate(sk.parse("a.b > 3"), schema).node
    by_field = PartitionSpec(PartitionField(12, 1000, IdentityTransform(), "a.b"), spec_id=0)
    mine = PartitionFilter(node, {0: by_field}, {12: ColumnRef(("a", "b"), pa.int32())})
    assert mine.judge(keys(0, 3, 4, None)).verdicts.tolist() == [NONE, ALL, NONE]


# -- manifests -------------------------------------------------------------------------------------


def long_summary(low, high, nulls=False):
    pack = lambda v: None if v is None else struct.pack("<q", v)  # noqa: E731
    return [PartitionSummary(nulls, None, pack(low), pack(high))]


def test_manifests_are_pruned_by_their_spec():
    mine = filtering("id BETWEEN 5 AND 9", BY_ID, BY_BUCKET, BY_DAY)
    ranges = [(0, 4), (4, 5), (5, 9), (9, 12), (10, 12), (None, None)]
    verdicts = mine.manifests(1, [long_summary(*r) for r in ranges]).tolist()
    assert verdicts == [NONE, SOME, ALL, SOME, NONE, SOME]
    assert mine.manifests(1, [long_summary(5, 9, nulls=True)]).tolist() == [SOME]
    # A manifest list of an early writer has no summaries.
    assert mine.manifests(1, [[], long_summary(0, 4)]).tolist() == [SOME, NONE]
    assert mine.manifests(1, [[]]).tolist() == [SOME]
    assert mine.manifests(1, []).tolist() == []
    assert mine.warnings == ()
    assert mine.manifests(0, [long_summary(0, 1)]).tolist() == [SOME]
    point = filtering("id = 5", BY_BUCKET)
    bucket = BucketTransform(8).transform(LongType())(5)
    pack = lambda low, high: [PartitionSummary(False, None, struct.pack("<i", low), struct.pack("<i", high))]  # noqa: E731
    asked = [pack(0, 7), pack(bucket, bucket), pack((bucket + 1) % 8, (bucket + 1) % 8)]
    assert point.manifests(2, asked).tolist() == [SOME, SOME, NONE]


def test_a_fault_in_summaries_opens_the_manifests(monkeypatch):
    def fault(*_):
        raise ValueError("injected")

    monkeypatch.setattr(partition_filter, "evaluate_summaries", fault)
    mine = filtering("id = 5", BY_ID)
    assert mine.manifests(1, [long_summary(0, 1), long_summary(8, 9)]).tolist() == [SOME, SOME]
    assert mine.stats() == FilterStats()
    assert [(w.code, w.count) for w in mine.warnings] == [("manifest-summary", 2)]


# -- brute force -----------------------------------------------------------------------------------

FIELDS = [
    *((name, IdentityTransform()) for name in IDS),
    *((name, t) for name in ("id", "s", "n") for t in (TruncateTransform(2), TruncateTransform(3))),
    *((name, BucketTransform(n)) for name in ("id", "ts", "s", "d", "n") for n in (2, 5)),
    *((name, t) for name in ("ts", "d") for t in (YearTransform(), MonthTransform(), DayTransform())),
    ("ts", HourTransform()),
    ("id", VoidTransform()),
    ("s", UnknownTransform("nobody knows")),
]
DAY = 86_400 * 10**6
VALUES = {
    "id": [None, -(2**63), -7, -1, 0, 1, 2, 5, 2**63 - 1],
    "ts": [None, -DAY * 400, -DAY - 1, -1, 0, 1, DAY, 18_263 * DAY, 18_263 * DAY + 5, 18_300 * DAY],
    "s": [None, "", "a", "ab", "abc", "abd", "ac", "b", "é\U0010ffff", "\U0001f600"],
    "f": [None, math.nan, -math.inf, -0.0, 0.0, 1.5, math.inf],
    "d": [None, -400, -1, 0, 1, 30, 31, 18_263, 18_300],
    "n": [None, *(Decimal(v) for v in ("-1.28", "-0.01", "0.00", "0.02", "0.03", "1.00", "9999999.99"))],
}
ASKED = [
    "id = 5", "id <> 5", "id > 0", "id <= -1", "id IN (0, 5, 7)", "id IS NULL", "id <=> NULL",
    "id BETWEEN 1 AND 3", "id + 0 = 1", "ts >= '2020-01-02'", "ts < '1970-01-01'", "ts IS NOT NULL",
    "cast(ts AS date) = date'2020-01-02'", "ts = timestamp'2020-01-02'", "s = 'ab'", "s LIKE 'ab%'",
    "s < 'ac'", "s >= 'b'", "s IN ('abc', 'b')", "s IS NULL", "s = '\U0001f600'", "substring(s, 1, 1) = 'a'",
    "f > 1.0", "f = 0.0", "f < 2", "isnan(f)", "f <> 1.5", "f <=> cast('NaN' AS double)",
    "d = date'2020-01-02'", "d < date'1970-01-01'", "d >= date'1970-01-31'", "n = 0.02", "n < 0",
    "n IN (1.00, 0.03)", "n > 0.025",
]  # fmt: skip


def random_predicate(rng, depth=2):
    if depth == 0 or rng.random() < 0.35:
        return rng.choice(ASKED)
    kind = rng.choice(["AND", "OR", "NOT", "IS"])
    if kind == "NOT":
        return f"NOT ({random_predicate(rng, depth - 1)})"
    if kind == "IS":
        return f"({random_predicate(rng, depth - 1)}) IS {rng.choice(['TRUE', 'NOT TRUE', 'FALSE'])}"
    return f"({random_predicate(rng, depth - 1)}) {kind} ({random_predicate(rng, depth - 1)})"


def column(name, values):
    type = SCHEMA.field(name).type
    if pa.types.is_temporal(type):
        return pa.array(values, pa.int32() if type.bit_width == 32 else pa.int64()).cast(type)
    return pa.array(values, type)


def partition_of(made, row):
    return tuple(_value(name, transform, row[name]) for name, transform in made)


def _value(name, transform, value):
    if isinstance(transform, UnknownTransform):
        return "?"
    found = transform.transform(SOURCES[IDS[name]][1])(value)
    if isinstance(transform, TruncateTransform) and name == "id" and found is not None:
        # As Java's arithmetic wraps.
        return (found + 2**63) % 2**64 - 2**63
    return found


def summary_of(name, transform, values):
    source = SOURCES[IDS[name]][1]
    plain = [v for v in values if v is not None and v == v]
    kind = source if isinstance(transform, (IdentityTransform, TruncateTransform)) else IntegerType()
    if isinstance(transform, UnknownTransform):
        kind = StringType()

    def stored(value):
        return decimal_to_bytes(value) if isinstance(value, Decimal) else to_bytes(kind, value)

    low, high = (stored(min(plain)), stored(max(plain))) if plain else (None, None)
    return PartitionSummary(None in values, any(v != v for v in values if v is not None), low, high)


class Case:
    """A table of a few specs, its rows by partition key, and a predicate."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.text = random_predicate(self.rng)
        self.made = {
            n: self.rng.sample(FIELDS, self.rng.randint(0, 3)) for n in range(self.rng.randint(1, 3))
        }
        self.specs = {
            spec_id: PartitionSpec(
                *(PartitionField(IDS[n], 1000 + at, t, f"p{at}") for at, (n, t) in enumerate(made)),
                spec_id=spec_id,
            )
            for spec_id, made in self.made.items()
        }
        self.groups = {}
        for spec_id, made in self.made.items():
            for _ in range(25):
                row = {name: self.rng.choice(values) for name, values in VALUES.items()}
                key = PartitionKey.of(self.specs[spec_id], partition_of(made, row))
                self.groups.setdefault(key, []).append(row)
        predicate = sk.parse(self.text)
        self.node = compile_predicate(predicate, SCHEMA).node
        self.filter = PartitionFilter(self.node, self.specs, COLUMNS)
        self._rowwise = RowFilter(predicate, SCHEMA)

    def check(self, verdict, rows, about):
        true = self._rowwise.mask(pa.table([column(n, [r[n] for r in rows]) for n in VALUES], SCHEMA))
        assert verdict != NONE or not true.any(), (self.text, about)
        assert verdict != ALL or true.all(), (self.text, about)

    def manifest(self, spec_id):
        """Some partitions of a spec in one manifest: the summary of its fields, and its rows."""
        mine = [key for key in self.groups if key.spec_id == spec_id]
        rows = [row for key in self.rng.sample(mine, min(len(mine), 4)) for row in self.groups[key]]
        made = self.made[spec_id]
        values = [partition_of(made, row) for row in rows]
        return [summary_of(n, t, [p[at] for p in values]) for at, (n, t) in enumerate(made)], rows

    def stats(self):
        """What the filter should count, from the words of its documentation."""
        asked = {ref.name for ref in self.node.refs()}
        silent = (VoidTransform, UnknownTransform)
        unevaluable, unconstrained = set(), set()
        for spec_id, made in self.made.items():
            mine = [t for name, t in made if name in asked]
            if not any(not isinstance(t, silent) for t in mine):
                unknown = any(isinstance(t, UnknownTransform) for t in mine)
                (unevaluable if unknown else unconstrained).add(spec_id)
        kept = sum(key.spec_id in unevaluable for key in self.groups)
        open_ended = judge(self.node, Evidence(np.full(1, -1), {})).verdicts()[0] == SOME
        return FilterStats(len(unevaluable), 0, kept, 2 * kept, len(unconstrained) if open_ended else 0)


def test_no_partition_with_a_match_is_dropped():
    cases = sample("partition filters")
    counts = {NONE: 0, SOME: 0, ALL: 0}
    pruned = 0
    for seed in range(cases):
        case = Case(seed)
        mine, every = case.filter, list(case.groups)
        judged = mine.judge(every)
        evidence = Evidence(np.full(len(every), -1), mine.facts(every))
        # The planner's evidence proves what the filter's own does.
        again = judge(case.node, evidence, mine.cleared(every)).verdicts()
        assert np.array_equal(again[~judged.fail_open], judged.verdicts[~judged.fail_open])
        for key, verdict in zip(every, judged.verdicts.tolist(), strict=True):
            counts[verdict] += 1
            case.check(verdict, case.groups[key], (seed, key))
        for spec_id in case.specs:
            summary, rows = case.manifest(spec_id)
            (verdict,) = mine.manifests(spec_id, [summary])
            pruned += verdict == NONE
            case.check(verdict, rows, (seed, summary))
        assert mine.stats(every * 2) == case.stats(), (seed, case.text)
        assert {w.code for w in mine.warnings} <= {"unevaluable-spec", "unknown-transform"}
    assert min(counts.values()) > cases, counts
    assert pruned > cases // 20
