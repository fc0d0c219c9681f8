"""Large sets of byte strings: the same sets as lists of spans, and searches that lose no key."""

from __future__ import annotations

import pickle
import random

import numpy as np
import pyarrow as pa
import pytest

from skipstone.core.domain import Domain
from skipstone.core.domain.keys import key_space
from skipstone.core.domain.points import MANY, BytePoints, points_of
from skipstone.core.domain.spans import ByteSpans
from skipstone.core.evidence import ColumnFacts
from skipstone.core.judge import meets, meets_bytes

SPACE = key_space(pa.binary())
STEM = b"https://example.org/"
POOLS = {
    "short": [b"%d" % n for n in range(200)],
    "stem": [STEM + b"%d" % n for n in range(200)],
    "odd": [b"", b"\0", b"a", b"a\0", b"a\0\0", b"ab", b"b", b"\xfe", b"\xff", b"\xff\xff"],
    "long": [b"same" * n + tail for n in range(12) for tail in (b"", b"\0", b"x", b"y")],
}
KINDS = [(pool, seed) for pool in POOLS for seed in range(6)]


def chosen(pool: str, seed: int) -> tuple[list[bytes], list[bytes], BytePoints]:
    """Keys, values to compare them with, and the set."""
    rng = random.Random(f"{pool}:{seed}")
    keys = rng.choices(POOLS[pool], k=rng.choice([1, 5, 40]))
    values = [*rng.sample(POOLS[pool], 9), b"", STEM, STEM[:-3] + b"~", b"\xff" * 40]
    return keys, values, BytePoints(SPACE, pa.array(keys, pa.large_binary()))


@pytest.mark.parametrize(("pool", "seed"), KINDS)
def test_points_are_the_set_of_spans(pool: str, seed: int) -> None:
    keys, values, points = chosen(pool, seed)
    spans = ByteSpans.of_points(SPACE, keys)
    assert points == spans
    assert points.points() == sorted({*keys})
    assert len(points) == len({*keys})
    assert pickle.loads(pickle.dumps(points)) == spans
    assert points.complement() == spans.complement()
    assert [points.contains(value) for value in values] == [value in keys for value in values]
    assert points.mask(pa.array([*values, None], pa.large_binary())).tolist() == [
        *(value in keys for value in values),
        False,
    ]
    others = ByteSpans.of(SPACE, [(min(values[:2]), max(values[:2])), (b"b", None)])
    more = BytePoints(SPACE, pa.array(values, pa.large_binary()))
    for other in (others, more, others.complement()):
        plain = ByteSpans(SPACE, other.lows, other.highs)
        assert points.intersect(other) == other.intersect(points) == spans.intersect(plain)
        assert points.union(other) == spans.union(plain)


@pytest.mark.parametrize(("pool", "seed"), KINDS)
def test_units_with_a_key_are_kept(pool: str, seed: int) -> None:
    keys, values, points = chosen(pool, seed)
    pairs = [(low, high) for low in (None, *values) for high in (None, *values)]
    pairs = [(a, b) for a, b in pairs if a is None or b is None or a <= b]
    lows, highs = (pa.array(ends, pa.large_binary()) for ends in zip(*pairs, strict=True))
    yes = np.ones(len(pairs), dtype=bool)
    facts = ColumnFacts(pa.binary(), lows, highs, yes, yes, yes, yes, ~yes)
    wanted = [any((a is None or a <= key) and (b is None or key <= b) for key in keys) for a, b in pairs]
    kept = meets_bytes(facts, points)
    assert not [pair for pair, key, hit in zip(pairs, wanted, kept, strict=True) if key and not hit]
    if pool in ("short", "stem"):  # their first bytes tell them apart
        assert kept.tolist() == wanted
    exact = meets(facts, Domain.of_spans(pa.binary(), ByteSpans.of_points(SPACE, keys)))
    assert exact.tolist() == wanted


def test_few_distinct_values_are_a_list() -> None:
    many = pa.array([b"a", b"b"] * MANY)
    assert type(points_of(pa.binary(), many)) is ByteSpans
    large = pa.array([f"{n}" for n in range(2 * MANY)])
    for type_ in (pa.string(), pa.large_string(), pa.string_view()):
        points = points_of(type_, large.cast(type_))
        assert isinstance(points, BytePoints)
        assert len(points) == 2 * MANY
    few = points.intersect(ByteSpans.of(SPACE, [(b"1", b"11")]))
    assert type(few) is ByteSpans
    assert {*few.points()} == {f"{n}".encode() for n in range(2 * MANY) if "1" <= f"{n}" < "11"}
