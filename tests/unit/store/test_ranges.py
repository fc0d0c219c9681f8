import random

import pytest

from skipstone.store.source import ByteRange, coalesce


def test_near_ranges_share_a_request_and_far_ones_do_not() -> None:
    wanted = [ByteRange(100, 110), ByteRange(0, 10), ByteRange(14, 20)]
    plan = coalesce(wanted, gap=4)
    assert plan.requests == (ByteRange(0, 20), ByteRange(100, 110))
    assert plan.owners == (1, 0, 0)
    assert coalesce(wanted, gap=3).requests == (ByteRange(0, 10), ByteRange(14, 20), ByteRange(100, 110))


def test_nothing_wanted_is_nothing_asked() -> None:
    assert coalesce([], gap=10).requests == ()
    assert coalesce([], gap=10).split([]) == []


def test_touching_ranges_merge_without_any_gap() -> None:
    assert coalesce([ByteRange(0, 5), ByteRange(5, 9)], gap=0).requests == (ByteRange(0, 9),)


@pytest.mark.parametrize("seed", range(40))
def test_every_range_gets_its_own_bytes_back(seed: int) -> None:
    rng = random.Random(seed)
    data = rng.randbytes(2_000)
    wanted = []
    for _ in range(rng.randrange(1, 15)):
        start = rng.randrange(2_000)
        wanted.append(ByteRange(start, rng.randrange(start, min(start + 200, 2_000) + 1)))
    gap = rng.choice([0, 1, 50, 1_000])
    plan = coalesce(wanted, gap)
    bodies = [data[request.start : request.stop] for request in plan.requests]
    assert plan.split(bodies) == [data[want.start : want.stop] for want in wanted]
    for before, after in zip(plan.requests, plan.requests[1:], strict=False):
        assert after.start - before.stop > gap
