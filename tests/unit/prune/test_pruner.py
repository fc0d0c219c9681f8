"""Pruner and prune: every way in, every switch, and metadata that can't be trusted."""

from __future__ import annotations

import asyncio
import io
import pickle
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from skipstone.errors import CorruptFileError, NotParquetError, ReadError, UnknownColumnError
from skipstone.parquet import compact as c
from skipstone.parquet.bloom import BloomFilter, parse_bloom
from skipstone.parquet.bloom import bloom_range as place_of_bloom
from skipstone.parquet.pageindex import page_index_ranges
from skipstone.report.trace import Cause

ROWS, GROUP, PAGE = 10_000, 1_000, 100


@pytest.fixture(scope="module")
def table() -> pa.Table:
    n = np.arange(ROWS)
    rng = np.random.default_rng(1)
    return pa.table(
        {
            "id": n,
            "spread": rng.permutation(ROWS) * 3,
            "text": pa.array([f"t{i // 7:05d}" for i in n]),
            "f": pa.array(np.where(n % 997 == 0, np.nan, n / 10)),
            "maybe": pa.array([None if 3000 <= i < 5000 else int(i) for i in n], pa.int64()),
            "cat": pa.array([f"c{i % 5 + 10 * (i // GROUP)}" for i in n]).dictionary_encode(),
        }
    )


@pytest.fixture(scope="module")
def path(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("prune") / "t.parquet"
    pq.write_table(
        table,
        target,
        row_group_size=GROUP,
        max_rows_per_page=PAGE,
        write_page_index=True,
        bloom_filter_options={"spread": {"ndv": GROUP}, "text": {"ndv": GROUP}},
    )
    return target


def test_point_on_a_sorted_column(path: Path) -> None:
    result = sk.prune(path, "id = 4242")
    assert result.row_groups == [4]
    assert result.rows.ranges() == [(4200, 4300)]
    assert result.row_selection() == [("skip", 200), ("select", 100), ("skip", 700)]
    assert result.from_selection(result.row_selection()) == result.rows
    assert list(result.to_bitmap()) == list(range(4200, 4300))
    levels = [(level.name, level.units, level.kept) for level in result.trace.levels]
    assert levels == [("row groups", 10, 1), ("pages", 10, 1)]
    assert result.trace.requests >= 1
    assert 0 < result.trace.bytes <= path.stat().st_size


def test_proven_rows_need_no_filter(path: Path) -> None:
    result = sk.prune(path, "id >= 2500 and id < 4100")
    assert result.rows.ranges() == [(2500, 4100)]
    assert result.proven == result.rows
    assert result.verdicts.tolist() == [0, 0, 1, 2, 1, 0, 0, 0, 0, 0]


def test_bloom_drops_what_bounds_cannot(path: Path) -> None:
    absent = sk.prune(path, "spread = 14002")
    assert absent.rows.is_empty
    level = absent.trace.level("bloom filters")
    assert level is not None
    assert [drop.cause for drop in level.drops] == [Cause.BLOOM]
    without = sk.prune(path, "spread = 14002", bloom_filter=False)
    assert without.trace.level("bloom filters") is None
    assert len(without.row_groups) == 10


def test_blooms_are_not_loaded_where_they_cannot_help(path: Path) -> None:
    result = sk.prune(path, "spread = 14002 or id < 100")
    level = result.trace.level("bloom filters")
    assert level is not None
    assert result.row_groups == [0]
    hopeless = sk.prune(path, "spread = 14002 or f > 0")  # every group may hold f > 0
    assert hopeless.trace.level("bloom filters") is None


def test_dictionary_evidence_is_optional(path: Path) -> None:
    assert len(sk.prune(path, "cat = 'c31' and id >= 0", page_index=False).row_groups) >= 1
    with_dictionary = sk.prune(path, "cat = 'c95'", dictionary=True, page_index=False)
    assert with_dictionary.rows.is_empty
    assert len(sk.prune(path, "cat = 'c1x'", dictionary=False, page_index=False).row_groups) == 1
    assert sk.prune(path, "cat = 'c1x'", dictionary=True, page_index=False).row_groups == []


def test_nulls_and_nan(path: Path) -> None:
    assert sk.prune(path, "maybe is null").rows.ranges() == [(3000, 5000)]
    assert sk.prune(path, "maybe is null").proven.ranges() == [(3000, 5000)]
    assert sk.prune(path, "maybe is not null").proven == ~sk.prune(path, "maybe is null").rows
    drops = sk.prune(path, "maybe > 0").trace.levels[0].drops
    assert [(drop.cause, drop.units) for drop in drops] == [(Cause.NULLS, 2)]
    # NaN is above every number and footers leave it out of the bounds: nothing can be dropped.
    assert sk.prune(path, "f > 5000").rows.is_full
    assert len(sk.prune(path, "f < 100").row_groups) == 1


@pytest.mark.parametrize(
    "text",
    [
        "id = 4242",
        "spread = 14002",
        "maybe is null",
        "text like 't0010%'",
        "id in (5, 5555) or f < 3",
        "id < 0",
    ],
)
def test_async_answers_the_same(path: Path, text: str) -> None:
    pruner = sk.Pruner(text)
    blocking = pruner.prune(path)
    awaited = asyncio.run(pruner.prune_async(path))
    assert awaited.rows == blocking.rows
    assert awaited.trace == blocking.trace


def test_every_kind_of_source(path: Path, table: pa.Table) -> None:
    wanted = sk.prune(path, "id = 4242").rows
    data = path.read_bytes()
    sources = [str(path), path.as_uri(), data, pa.py_buffer(data), io.BytesIO(data), pa.OSFile(str(path))]
    for source in sources:
        assert sk.prune(source, "id = 4242").rows == wanted
    with path.open("rb") as file:
        assert sk.prune(file, "id = 4242").rows == wanted


def test_metadata_in_hand(path: Path) -> None:
    footer_only = sk.prune(pq.read_metadata(path), "id = 4242")
    assert footer_only.row_groups == [4]
    assert len(footer_only.rows) == GROUP
    assert any("only the footer is available" in note.reason for note in footer_only.trace.notes)
    metadata = sk.read_metadata(path)
    assert sk.prune(metadata, "id = 4242").rows == footer_only.rows
    both = sk.prune(path, "id = 4242", metadata=metadata)
    assert both.rows.ranges() == [(4200, 4300)]
    assert pickle.loads(pickle.dumps(metadata)).num_rows == ROWS


def test_emit_roaring(path: Path) -> None:
    assert sk.prune(path, "id < 5").bitmap is None
    bitmap = sk.prune(path, "id < 5", emit_roaring=True).bitmap
    assert bitmap is not None
    assert len(bitmap) == PAGE


class Remote:
    """A provider that answers from a copy of the file's own filters, and counts its batches."""

    def __init__(self, path: Path) -> None:
        self.data = path.read_bytes()
        self.metadata = sk.read_metadata(path)
        self.batches: list[int] = []

    def load(self, requests: Sequence[sk.BloomRequest]) -> list[BloomFilter | None]:
        self.batches.append(len(requests))
        answers: list[BloomFilter | None] = []
        for request in requests:
            place = place_of_bloom(self.metadata, request.row_group, request.leaf)
            answers.append(None if place is None else parse_bloom(self.data[place.start : place.stop]))
        return answers

    async def load_async(self, requests: Sequence[sk.BloomRequest]) -> list[BloomFilter | None]:
        return self.load(requests)


def test_bloom_provider_gets_one_batch(path: Path) -> None:
    remote = Remote(path)
    pruner = sk.Pruner("spread = 14002", options=sk.PruneOptions(bloom_provider=remote))
    assert isinstance(remote, sk.BloomProvider)
    assert pruner.prune(path).rows.is_empty
    assert asyncio.run(pruner.prune_async(path)).rows.is_empty
    assert remote.batches == [10, 10]
    assert pruner.prune(sk.read_metadata(path)).rows.is_empty


def test_schema_of_the_caller(path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("added_later", pa.string())])
    pruner = sk.Pruner("id = 1 and added_later is null", schema)
    assert pruner.prune(path).rows.ranges() == [(0, 100)]
    assert sk.Pruner("added_later = 'x'", schema).prune(path).rows.is_empty
    with pytest.raises(UnknownColumnError):
        sk.Pruner("nope = 1", schema)


def test_narrower_file_types_are_read_in_the_files_own_unit(tmp_path: Path) -> None:
    target = tmp_path / "narrow.parquet"
    times = pa.array([0, 1000, 2000, 3000], pa.timestamp("ms"))
    table = pa.table(
        {
            "i": pa.array([1, 2, 3, 4], pa.int16()),
            "t": times,
            "f": pa.array([0.5, 1.5, 2.5, 3.5], pa.float32()),
        }
    )
    pq.write_table(table, target, row_group_size=1)
    schema = pa.schema([("i", pa.int64()), ("t", pa.timestamp("ns")), ("f", pa.float64())])
    assert sk.Pruner("i = 3", schema).prune(target).row_groups == [2]
    assert sk.Pruner("t > '1970-01-01 00:00:01.5'", schema).prune(target).row_groups == [2, 3]
    assert sk.Pruner("f < 1.0D", schema).prune(target).row_groups == [0]
    text = pa.schema([("i", pa.string())])
    assert sk.Pruner("i = '3'", text).prune(target).row_groups == [0, 1, 2, 3]


def test_unsupported_parts_never_raise(path: Path) -> None:
    result = sk.prune(path, "sin(f) > 0 and id = 4242")
    assert result.rows.ranges() == [(4200, 4300)]
    assert [d.part for d in result.compiled.unsupported] == ["sin(f) > 0"]
    assert "sin(f) > 0" in str(result)


def test_a_corrupt_page_index_is_ignored_and_noted(path: Path, tmp_path: Path) -> None:
    metadata = sk.read_metadata(path)
    column_index, offset_index = page_index_ranges(metadata, 4, 0)
    assert column_index is not None
    assert offset_index is not None
    for place in (column_index, offset_index):
        data = bytearray(path.read_bytes())
        data[place.start : place.stop] = b"\xff" * (place.stop - place.start)
        broken = tmp_path / "broken.parquet"
        broken.write_bytes(data)
        result = sk.prune(broken, "id = 4242")
        assert result.rows.ranges() == [(4000, 5000)]
        (note,) = result.trace.notes
        assert note.unit == "row group 4, column id"
        assert "page index ignored" in note.reason


def test_a_corrupt_bloom_is_ignored_and_noted(path: Path, tmp_path: Path) -> None:
    metadata = sk.read_metadata(path)
    leaf = [x.path for x in metadata.leaves].index(("spread",))
    place = place_of_bloom(metadata, 4, leaf)
    assert place is not None
    data = bytearray(path.read_bytes())
    data[place.start : place.start + 8] = b"\xff" * 8
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(data)
    result = sk.prune(broken, "spread = 14002", page_index=False)
    assert result.row_groups == [4]
    assert any("bloom filter ignored" in note.reason for note in result.trace.notes)


@pytest.mark.parametrize("times", [0.5, 2])
def test_a_bloom_of_another_size_than_the_footer_says_is_ignored(
    path: Path, tmp_path: Path, times: float
) -> None:
    """Its bits are in other places, so it would deny nearly every value."""
    metadata, lake = sk.read_metadata(path), tmp_path / "lake"
    lake.mkdir()
    leaf = [x.path for x in metadata.leaves].index(("spread",))
    places = [place_of_bloom(metadata, group, leaf) for group in range(metadata.row_group_count)]
    data = bytearray(path.read_bytes())
    size, changed = (c.varint(2 * round(2**10 * factor)) for factor in (1, times))
    for place in places:
        assert place is not None
        head = bytes(data[place.start : place.start + 3])
        assert head == b"\x15" + size
        data[place.start : place.start + 3] = head.replace(size, changed)
    broken = lake / "broken.parquet"
    broken.write_bytes(data)
    values = [14002, *pq.read_table(path).column("spread").to_pylist()[:-1:500]]
    some = "spread in ({})".format(", ".join(map(str, values)))
    plain = sk.open(lake)
    for where, rows in (*((f"spread = {value}", 1) for value in values[1:]), (some, len(values) - 1)):
        result = sk.prune(broken, where, page_index=False)
        assert len(result.row_groups) == metadata.row_group_count, where
        reasons = {note.reason for note in result.trace.notes}
        assert reasons == {"bloom filter ignored: filter length differs from the footer's"}
        assert plain.scan(where).count() == rows
    plain.index.build(engine="local")
    indexed = sk.open(lake)
    assert [indexed.scan(f"spread = {value}").count() for value in values] == [0] + [1] * (len(values) - 1)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda data: b"", NotParquetError),
        (lambda data: b"hello world, I am text", NotParquetError),
        (lambda data: data[:-1], NotParquetError),
        (lambda data: data[:-8] + (2**31 - 1).to_bytes(4, "little") + b"PAR1", CorruptFileError),
        (lambda data: data[:-8] + bytes(4) + b"PAR1", CorruptFileError),
        (lambda data: data[: len(data) // 2] + data[-8:], (CorruptFileError, NotParquetError)),
    ],
)
def test_bad_files_are_refused_by_name(
    path: Path, tmp_path: Path, change: object, error: type[Exception]
) -> None:
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(change(path.read_bytes()))  # type: ignore[operator]
    with pytest.raises(error, match=r"broken\.parquet"):
        sk.prune(broken, "id = 1")


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match=r"nope\.parquet"):
        sk.prune(tmp_path / "nope.parquet", "id = 1")
    with pytest.raises(ReadError):
        sk.prune(tmp_path, "id = 1")


def test_an_empty_table(tmp_path: Path) -> None:
    target = tmp_path / "empty.parquet"
    pq.write_table(pa.table({"id": pa.array([], pa.int64())}), target)
    result = sk.prune(target, "id = 1")
    assert result.rows.is_empty
    assert result.row_groups == []
    assert result.row_selection() == []


def test_no_predicate_keeps_everything(path: Path) -> None:
    result = sk.prune(path, None)
    assert result.rows.is_full
    assert result.proven.is_full
    assert sk.prune(path, False).rows.is_empty
