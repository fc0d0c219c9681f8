"""Partition keys: equality, hash and order by type and value, and whose spec decides."""

from __future__ import annotations

import math
import pickle
import random
from decimal import Decimal

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform, VoidTransform

from skipstone.errors import SchemaError, UsageError
from skipstone.iceberg.partitions.values import PartitionKey, is_unpartitioned


def spec(*transforms, spec_id=7):
    fields = [PartitionField(n + 1, 1000 + n, t, f"p{n}") for n, t in enumerate(transforms)]
    return PartitionSpec(*fields, spec_id=spec_id)


VALUES = [
    None, False, True, -(2**63), 0, 1, 9, 10, 2**63 - 1, -math.inf, -0.0, 0.0, 1.0, math.inf, math.nan,
    Decimal("1.00"), Decimal("9.50"), Decimal("10.00"), "", "10", "9", "None", "a", "￿", "\U0001f600",
    b"", b"\x00", b"a", b"\xff",
]  # fmt: skip


def test_partition_key_from_partitioned_spec():
    key = PartitionKey.of(spec(IdentityTransform(), VoidTransform()), ["a", None])
    assert (key.spec_id, key.partition) == (7, ("a", None))


def test_partition_key_from_unpartitioned_spec():
    assert PartitionKey.of(spec(), []) == PartitionKey(7, None)
    # Void fields are what is left of dropped ones: nothing is divided by them.
    assert PartitionKey.of(spec(VoidTransform(), VoidTransform()), [None, None]) == PartitionKey(7, None)
    assert is_unpartitioned(spec(VoidTransform()))
    assert not is_unpartitioned(spec(VoidTransform(), IdentityTransform()))


def test_unpartitioned_is_decided_by_the_own_spec():
    old, new = spec(spec_id=0), spec(IdentityTransform(), spec_id=1)
    assert PartitionKey.of(old, []).partition is None
    assert PartitionKey.of(new, [None]).partition == (None,)


def test_partition_key_hash_equality():
    for a in VALUES:
        for b in VALUES:
            same = PartitionKey(1, (a,)) == PartitionKey(1, (b,))
            assert same is (a is b), (a, b)
    assert PartitionKey(1, (float("nan"),)) == PartitionKey(1, (-math.nan,))
    assert hash(PartitionKey(1, (float("nan"), "x"))) == hash(PartitionKey(1, (math.nan, "x")))
    assert PartitionKey(1, ("a",)) != PartitionKey(2, ("a",))
    assert PartitionKey(1, None) != PartitionKey(1, ())
    assert PartitionKey(1, (Decimal("1.0"),)) == PartitionKey(1, (Decimal("1.00"),))
    assert len({PartitionKey(1, (v,)) for v in [*VALUES, *VALUES]}) == len(VALUES)
    assert PartitionKey(1, ("a",)) != (1, ("a",))


def test_partition_key_sort_key_stable():
    # VALUES is written in the order that the keys have.
    keys = [PartitionKey(1, None), *(PartitionKey(1, (v,)) for v in VALUES), PartitionKey(2, None)]
    for seed in range(5):
        shuffled = random.Random(seed).sample(keys, len(keys))
        assert sorted(shuffled, key=PartitionKey.sort_key) == keys


@pytest.mark.parametrize(
    ("a", "b"), [((None,), ("None",)), (("a, b", "c"), ("a", "b, c")), ((9,), (10,)), ((-1,), (0,))]
)
def test_what_a_debug_string_confuses_stays_apart(a, b):
    first, second = PartitionKey(0, a), PartitionKey(0, b)
    assert first != second
    assert (first.sort_key() < second.sort_key()) is (a != ("a, b", "c"))


def test_keys_survive_pickling():
    for value in VALUES:
        key = PartitionKey(3, (value, "x"))
        again = pickle.loads(pickle.dumps(key))
        assert again == key
        assert hash(again) == hash(key)
        assert again.sort_key() == key.sort_key()


def test_a_value_of_a_foreign_type_is_refused():
    with pytest.raises(UsageError, match="internal form"):
        PartitionKey(0, (object(),))


def test_values_must_fit_the_spec():
    with pytest.raises(
        SchemaError, match="partition spec 7: file has 1 partition values, but the spec has 2 fields"
    ):
        PartitionKey.of(spec(IdentityTransform(), IdentityTransform()), ["a"])


def test_a_key_names_itself():
    assert str(PartitionKey(2, (None, "a", 3))) == "spec 2 (NULL, 'a', 3)"
    assert str(PartitionKey(2, None)) == "spec 2 (unpartitioned)"
