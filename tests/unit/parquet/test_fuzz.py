"""Broken metadata ends in a Skipstone error or a plain answer: never a crash, a hang or a hoard."""

import random
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from skipstone.errors import SkipstoneError
from skipstone.parquet.bloom import BadBloom, bloom_length, bloom_range, parse_bloom
from skipstone.parquet.dictionary import (
    BadDictionary,
    decode_dictionary,
    dictionary_complete,
    dictionary_range,
)
from skipstone.parquet.metadata import ParquetMetadata, parse_footer, read_footer
from skipstone.parquet.pageindex import BadPageIndex, page_index_ranges, parse_page_index
from skipstone.store.source import ByteRange, open_source
from tests.faults._mutants import mutate

ALLOWED = (SkipstoneError, BadPageIndex, BadBloom, BadDictionary)
SEED = 20_261_115


@pytest.fixture(scope="module")
def good(
    table: pa.Table, write: Any, indexed: bytes, tmp_path_factory: pytest.TempPathFactory
) -> list[bytes]:
    few = table.select(["id", "name", "tags", "score"]).slice(0, 300)
    duck = tmp_path_factory.mktemp("fuzz") / "duck.parquet"
    duckdb.sql("select i, 'n' || (i % 10) s from range(3000) r(i)").write_parquet(str(duck))
    blooms = {"bloom_filter_options": {"id": {"ndv": 100}}, "write_page_index": True, "max_rows_per_page": 50}
    return [indexed, write(few, row_group_size=100, **blooms), duck.read_bytes()]


@pytest.fixture(autouse=True)
def bounds() -> Iterator[None]:
    """All cases of a test together take a bounded time and little memory."""
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.thread_time()
    yield
    assert time.thread_time() - started < 30
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 300_000


def attempt(work: Any, seed: str) -> bool:
    try:
        work()
    except ALLOWED:
        return False
    except BaseException as error:
        error.add_note(f"fuzz seed {seed}")
        raise
    return True


def touch_everything(metadata: ParquetMetadata, data: bytes) -> None:
    """Ask for all that the rooms above ask for, each on its own, so that one refusal hides no other."""
    for leaf in metadata.leaves[:6]:
        attempt(lambda leaf=leaf: metadata.chunks(leaf.index), "inside")
        for group in range(min(metadata.row_group_count, 2)):
            attempt(lambda g=group, leaf=leaf: read_index(metadata, data, g, leaf.index), "inside")
            attempt(lambda g=group, leaf=leaf: read_bloom(metadata, data, g, leaf.index), "inside")
            attempt(lambda g=group, leaf=leaf: read_dictionary(metadata, data, g, leaf.index), "inside")
    attempt(lambda: metadata.arrow_schema, "inside")


def cut(data: bytes, span: ByteRange | None) -> bytes | None:
    return None if span is None else data[span.start : span.stop]


def read_index(metadata: ParquetMetadata, data: bytes, group: int, leaf: int) -> None:
    columns, offsets = page_index_ranges(metadata, group, leaf)
    if offsets is not None:
        parse_page_index(cut(data, columns), cut(data, offsets) or b"", metadata, group, leaf)


def read_bloom(metadata: ParquetMetadata, data: bytes, group: int, leaf: int) -> None:
    if (span := bloom_range(metadata, group, leaf)) is not None:
        bloom_length(cut(data, span) or b"")
        parse_bloom(cut(data, span) or b"")


def read_dictionary(metadata: ParquetMetadata, data: bytes, group: int, leaf: int) -> None:
    dictionary_complete(metadata, group, leaf)
    if (span := dictionary_range(metadata, group, leaf)) is not None:
        decode_dictionary(cut(data, span) or b"", metadata.chunks(leaf)[group], metadata.leaves[leaf])


def test_footers(good: list[bytes]) -> None:
    passed = 0
    for case in range(1_200):
        seed = f"{SEED}-footer-{case}"
        rng = random.Random(seed)
        data = rng.choice(good)
        footer = mutate(rng, read_footer(open_source(data)).footer)

        def work(footer: bytes = footer, data: bytes = data) -> None:
            touch_everything(parse_footer(footer, "f", len(data)), data)

        passed += attempt(work, seed)
    assert 50 < passed < 1_150


def test_whole_files(good: list[bytes]) -> None:
    for case in range(300):
        seed = f"{SEED}-file-{case}"
        rng = random.Random(seed)
        data = rng.choice(good)
        # Only the end, where the metadata is.
        broken = data[:-400] + mutate(rng, data[-400:])
        attempt(lambda broken=broken: touch_everything(read_footer(open_source(broken)), broken), seed)


@pytest.mark.parametrize("part", ["page index", "bloom", "dictionary"])
def test_what_lies_outside_the_footer(good: list[bytes], part: str) -> None:
    data = good[1]
    metadata = read_footer(open_source(data))
    column = metadata.chunks(0)[0]
    columns, offsets = page_index_ranges(metadata, 0, 0)
    place = {
        "page index": ByteRange(columns.start, offsets.stop) if columns and offsets else None,
        "bloom": bloom_range(metadata, 0, 0),
        "dictionary": dictionary_range(metadata, 0, 0),
    }[part]
    assert place is not None
    whole = data[place.start : place.stop]
    refused = 0
    for case in range(400):
        seed = f"{SEED}-{part}-{case}"
        rng = random.Random(seed)
        if part == "page index":
            raw_columns, raw_offsets = (
                mutate(rng, cut(data, columns) or b""),
                mutate(rng, cut(data, offsets) or b""),
            )

            def work(c: bytes = raw_columns, o: bytes = raw_offsets) -> None:
                parse_page_index(c, o, metadata, 0, 0)

        elif part == "bloom":

            def work(raw: bytes = mutate(rng, whole)) -> None:  # type: ignore[misc]
                parse_bloom(raw)

        else:

            def work(raw: bytes = mutate(rng, whole)) -> None:  # type: ignore[misc]
                decode_dictionary(raw, column, metadata.leaves[0])

        refused += not attempt(work, seed)
    assert refused > 10


def test_random_bytes() -> None:
    rng = random.Random(SEED)
    for _ in range(500):
        data = b"PAR1" + rng.randbytes(rng.randrange(300))
        framed = data + (len(data) - 4).to_bytes(4, "little") + b"PAR1"
        assert not attempt(lambda framed=framed: read_footer(open_source(framed)), "random")


def test_the_corpus_cut_short(corpus: Path) -> None:
    for path in sorted((corpus / "data").glob("*.parquet")):
        data = path.read_bytes()
        metadata = read_footer(open_source(data))
        for share in (0.1, 0.5, 0.9, 0.99):
            footer = metadata.footer[: int(metadata.footer_size * share)]
            attempt(lambda footer=footer, size=metadata.size: parse_footer(footer, "f", size), str(path))
