"""Domains against plain Python sets: every operation, over small universes of each key space."""

from __future__ import annotations

import decimal
import math
import operator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.core.domain import Bound, Domain, Marker, Range

NAN = math.nan
FLOATS = [-math.inf, -1.5, -5e-324, 0.0, 5e-324, 0.1, 1.0, 2.5, 1.7e308, math.inf]
TEXTS = ["", "\0", "a", "a\0", "aa", "ab", "b", "é", "\uffff", "\U0001f600"]
UNIVERSES: dict[str, tuple[pa.DataType, list[object]]] = {
    "int8": (pa.int8(), [*range(-128, 128, 17), -128, 127]),
    "uint64": (pa.uint64(), [0, 1, 2, 2**63 - 1, 2**63, 2**64 - 1]),
    "float64": (pa.float64(), FLOATS),
    "string": (pa.string(), TEXTS),
    "binary": (pa.binary(), [b"", b"\0", b"a", b"\xff", b"\xff\xff"]),
    "decimal": (pa.decimal128(9, 2), [decimal.Decimal(n) / 4 for n in range(-8, 9)]),
    "wide decimal": (
        pa.decimal128(38, 2),
        [decimal.Decimal(10**30) * n + decimal.Decimal("0.25") for n in (-2, -1, 0, 1, 2)],
    ),
    "bool": (pa.bool_(), [False, True]),
}
names = st.sampled_from(sorted(UNIVERSES))


@st.composite
def ranges(draw: st.DrawFn, type: pa.DataType, values: list[object]) -> Range:
    low, high = draw(st.sampled_from([None, *values])), draw(st.sampled_from([None, *values]))
    low_bound = draw(st.sampled_from([Bound.EXACTLY, Bound.ABOVE]))
    high_bound = draw(st.sampled_from([Bound.EXACTLY, Bound.BELOW]))
    return Range(
        Marker.lower_end(type) if low is None else Marker.of(type, low, low_bound),
        Marker.upper_end(type) if high is None else Marker.of(type, high, high_bound),
    )


@st.composite
def domains(draw: st.DrawFn, name: str) -> Domain:
    type, values = UNIVERSES[name]
    parts = draw(st.lists(ranges(type, values), max_size=4))
    return Domain.of(type, *parts, nulls=draw(st.booleans()), nans=draw(st.booleans()))


def members(domain: Domain, name: str) -> set[object]:
    """The universe's values in the domain, by asking each range with Python's own comparisons."""
    found: set[object] = {"NULL"} if domain.nulls else set()
    if domain.nans:
        found.add("NaN")
    for value in UNIVERSES[name][1]:
        if any(_inside(value, item) for item in domain.ranges):
            found.add(value)
    return found


def _inside(value: object, item: Range) -> bool:
    def compare(marker: Marker, strict: Bound, less: object) -> bool:
        if marker.key is None:
            return True
        test = operator.lt if marker.bound is strict else operator.le
        pair = (marker.value, value) if less == "low" else (value, marker.value)
        return bool(test(*pair))

    return compare(item.low, Bound.ABOVE, "low") and compare(item.high, Bound.BELOW, "high")


@given(st.data(), names)
def test_algebra_is_set_algebra(data: st.DataObject, name: str) -> None:
    a, b = data.draw(domains(name)), data.draw(domains(name))
    universe = members(Domain.all(UNIVERSES[name][0]), name)
    assert members(a | b, name) == members(a, name) | members(b, name)
    assert members(a & b, name) == members(a, name) & members(b, name)
    assert members(~a, name) == universe - members(a, name)
    assert members(a - b, name) == members(a, name) - members(b, name)


@given(st.data(), names)
def test_laws(data: st.DataObject, name: str) -> None:
    a, b = data.draw(domains(name)), data.draw(domains(name))
    assert ~~a == a
    assert hash(~~a) == hash(a)
    assert ~(a | b) == ~a & ~b
    assert (a | ~a).is_all
    assert (a & ~a).is_none
    assert (a | b).contains(a)
    assert a.overlaps(b) == (not (a & b).is_none)
    assert Domain.of(a.type, *a.ranges, nulls=a.nulls, nans=a.nans) == a


@given(st.data(), names)
def test_contains_agrees_with_ranges(data: st.DataObject, name: str) -> None:
    domain = data.draw(domains(name))
    for value in UNIVERSES[name][1]:
        assert domain.contains(value) == (value in members(domain, name))
    assert domain.contains(None) == domain.nulls
    assert domain.contains(NAN) == domain.nans or UNIVERSES[name][0] != pa.float64()


@given(st.data(), names)
def test_values_are_just_those(data: st.DataObject, name: str) -> None:
    type, universe = UNIVERSES[name]
    chosen = data.draw(st.lists(st.sampled_from([None, *universe])))
    domain = Domain.values(type, chosen)
    assert members(domain, name) == {"NULL" if v is None else v for v in chosen}


def test_zeros_are_one_value() -> None:
    assert Domain.values(pa.float32(), [0.0]) == Domain.values(pa.float32(), [-0.0])
    assert Domain.values(pa.float32(), [-0.0]).contains(0.0)


@pytest.mark.parametrize(
    ("domain", "text"),
    [
        (Domain.of(pa.int32(), Range.greater_than(pa.int32(), 34)), "[35, +∞)"),
        (Domain.of(pa.int32(), Range.less_than(pa.int32(), 34), nulls=True), "(-∞, 33] or NULL"),
        (Domain.of(pa.float64(), Range.greater_than(pa.float64(), 5.0), nans=True), "(5.0, +∞) or NaN"),
        (Domain.of(pa.string(), Range.between(pa.string(), "a", "c")), "['a', 'c']"),
        (Domain.none(pa.int8()), "nothing"),
        (Domain.all(pa.float32()), "anything"),
    ],
)
def test_drawing(domain: Domain, text: str) -> None:
    assert str(domain) == text


def test_types_do_not_mix() -> None:
    from skipstone.errors import TypeMismatchError

    with pytest.raises(TypeMismatchError, match="can't be combined"):
        Domain.all(pa.int8()) | Domain.all(pa.int16())
    with pytest.raises(TypeMismatchError, match="different types"):
        Range(Marker.exactly(pa.int8(), 1), Marker.exactly(pa.int16(), 1))
    with pytest.raises(TypeMismatchError, match="not a value of type"):
        Marker.exactly(pa.int8(), 300)
    with pytest.raises(TypeMismatchError, match="NaN can't be in a range"):
        Marker.exactly(pa.float64(), NAN)
