"""Facts of every type go through a container and come back as they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skipstone.core.domain.keys import Kind, key_space
from skipstone.core.evidence import ColumnFacts
from skipstone.index.container import Container, ContainerWriter, LocalFile, RemoteFile
from skipstone.index.levels import (
    COUNTS,
    UNKNOWN,
    LevelBounds,
    LevelReader,
    join_bytes,
    split_bytes,
    write_facts,
    write_level,
)
from skipstone.store.cache import Cache
from tests.support.samples import sample

KEYS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): st.sampled_from([-(2**63), -3, 0, 1, 2**63 - 1]),
    pa.int8(): st.integers(-128, 127),
    pa.uint64(): st.sampled_from([0, 1, 2**63, 2**64 - 1]),
    pa.bool_(): st.integers(0, 1),
    pa.float64(): st.sampled_from([-np.inf, -1.5, -0.0, 0.0, 2.0, np.inf]),
    pa.float32(): st.sampled_from([-np.inf, 0.5, np.inf]),
    pa.float16(): st.sampled_from([-1.5, 0.5]),
    pa.date32(): st.integers(-5, 5),
    pa.timestamp("ns", "UTC"): st.integers(-(2**63), 2**63 - 1),
    pa.time64("us"): st.integers(0, 10),
    pa.decimal128(5, 2): st.integers(-99999, 99999),
    pa.decimal128(30, 2): st.binary(min_size=16, max_size=16) | st.none(),
    pa.decimal256(50, 2): st.binary(min_size=32, max_size=32) | st.none(),
    pa.string(): st.sampled_from([b"", b"a", b"ab", "é漢".encode(), b"\xff\xff"]) | st.none() | st.binary(),
    pa.large_binary(): st.binary() | st.none(),
    pa.binary(3): st.binary(min_size=3, max_size=3) | st.none(),
    pa.dictionary(pa.int32(), pa.string()): st.sampled_from([b"x", None]),
}


@st.composite
def levels(draw: st.DrawFn, type: pa.DataType | None = None, most: int = 12) -> LevelBounds:
    """Any facts that can be written down."""
    type = draw(st.sampled_from([*KEYS])) if type is None else type
    space = key_space(type)
    units = draw(st.integers(0, most))

    def some(element: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(element, min_size=units, max_size=units))

    bounds: list[Any] = []
    for _ in range(2):
        keys = some(KEYS[type])
        as_bytes = space.kind is Kind.BYTES
        bounds.append(pa.array(keys, pa.large_binary()) if as_bytes else np.array(keys, space.dtype))
    flags = [np.array(some(st.booleans()), dtype=bool) for _ in range(5)]
    known = draw(st.booleans())
    counts = [
        np.array(some(st.integers(UNKNOWN, 9) if known else st.just(UNKNOWN)), dtype=np.int64) for _ in COUNTS
    ]
    return LevelBounds(ColumnFacts(type, *bounds, *flags), *counts)


def listed(bounds: Any) -> list[Any]:
    return list(bounds.to_pylist() if isinstance(bounds, pa.Array) else bounds.view(np.int64).tolist())


def assert_same(found: ColumnFacts, wanted: ColumnFacts) -> None:
    assert found.type == wanted.type
    for name in ("lower", "upper"):
        assert listed(getattr(found, name)) == listed(getattr(wanted, name)), name
    for name in ("lower_exact", "upper_exact", "may_value", "may_null", "may_nan"):
        assert getattr(found, name).tolist() == getattr(wanted, name).tolist(), name


def readers(level: LevelBounds, folder: Path) -> list[LevelReader]:
    writer = ContainerWriter()
    writer.add(3, "other", np.arange(4))
    write_level(writer, 7, "deep", level)
    write_facts(writer, 7, "flat", level.facts)
    parts, tail = writer.parts({})
    data = b"".join(parts)
    (folder / "level").write_bytes(data)
    sources: list[Any] = [
        LocalFile(str(folder / "level")),
        RemoteFile("level", lambda ranges: [data[r.start : r.stop] for r in ranges]),
    ]
    boxes = [Container.open("level", source, len(data), tail, Cache(1 << 20)) for source in sources]
    return [LevelReader(box, 7, name, level.facts.type) for box in boxes for name in ("deep", "flat")]


@settings(max_examples=sample("index levels"))
@given(levels(), st.data())
def test_levels_come_back(
    tmp_path_factory: pytest.TempPathFactory, level: LevelBounds, data: st.DataObject
) -> None:
    units = len(level)
    rows = np.array(data.draw(st.lists(st.integers(0, max(units - 1, 0)), max_size=6)), dtype=np.int64)
    rows = rows if units else rows[:0]
    start, stop = sorted((data.draw(st.integers(0, units)), data.draw(st.integers(0, units))))
    for reader in readers(level, tmp_path_factory.getbasetemp()):
        assert reader.exists
        assert_same(reader.whole(), level.facts)
        assert_same(reader.take(rows), level.facts.take(rows))
        assert_same(reader.slice(start, stop), level.facts.take(np.arange(start, stop)))
        again = reader.level_of(units)
        assert_same(again.facts, level.facts)
        if reader.level == "deep":
            for name in COUNTS:
                assert getattr(again, name).tolist() == getattr(level, name).tolist()
    assert not LevelReader(reader.container, 8, "deep", level.facts.type).exists


@given(st.lists(st.binary() | st.none()), st.integers(0, 3), st.integers(0, 3))
def test_byte_strings_are_split_and_joined(values: list[bytes | None], skip: int, cut: int) -> None:
    array = pa.array(values, pa.large_binary())[skip : max(len(values) - cut, 0)]
    offsets, data = split_bytes(array)
    assert offsets[0] == 0
    known = np.asarray(array.is_valid())
    assert join_bytes(offsets, data, known).to_pylist() == array.to_pylist()
    assert join_bytes(offsets, data).to_pylist() == [v or b"" for v in array.to_pylist()]


@given(st.lists(levels(pa.int64()), min_size=1, max_size=4), st.data())
def test_concat_take_and_hull(parts: list[LevelBounds], data: st.DataObject) -> None:
    whole = LevelBounds.concat(parts)
    assert len(whole) == sum(map(len, parts))
    units = data.draw(st.permutations(range(len(whole))))
    taken = whole.take(np.array(units, dtype=np.int64))
    assert taken.nulls.tolist() == [whole.nulls[u] for u in units]
    starts = np.array(sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=5))), dtype=np.int64)
    blocks = whole.hull(starts)
    ends = [*starts.tolist()[1:], len(whole)]
    for block, (start, stop) in enumerate(zip(starts.tolist(), ends, strict=False)):
        for name in ("nulls", "nans"):
            counts = getattr(whole, name)[start:stop].tolist()
            wanted = UNKNOWN if UNKNOWN in counts else sum(counts)
            assert getattr(blocks, name)[block] == wanted, name
        assert blocks.facts.may_null[block] == whole.facts.may_null[start:stop].any()
