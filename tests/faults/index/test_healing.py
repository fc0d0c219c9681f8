"""A refresh mends what is damaged, and damage is not merged into what is good."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pyarrow as pa
import pytest

import skipstone as sk
from skipstone.errors import SkipstoneError
from tests.faults.index._indexes import (
    FILES,
    QUESTIONS,
    build,
    check,
    check_all,
    fault_table,
    manifests,
    open_beside,
    regions,
    segments,
    write_file,
)
from tests.support.stores import own_files


def test_refresh_heals(own: Path, table: pa.Table) -> None:
    """Damaged segments are made anew by the next build or refresh."""
    for path in segments(own_files(own)):
        data = bytearray(path.read_bytes())
        data[-100] ^= 1
        path.write_bytes(data)
    lake = sk.open(own)
    assert check_all(lake, table).covered == 0
    report = lake.index.refresh(engine="local")
    assert report.indexed == FILES
    assert check_all(lake, table).problems == ()
    assert check_all(sk.open(own), table).covered == FILES


def test_refresh_with_a_damaged_manifest(own: Path, table: pa.Table) -> None:
    """It can't know what was asked for: an error of ours that says what to do, or a good index."""
    manifests(own_files(own))[0].write_bytes(b"damage")
    lake = sk.open(own)
    with contextlib.suppress(SkipstoneError):
        lake.index.refresh(engine="local")
    check_all(lake, table)
    report = build(sk.open(own))
    assert report.adopted + report.indexed + report.already_indexed == FILES
    assert check_all(sk.open(own), table).covered == FILES


def test_damage_deep_in_a_segment_is_healed_by_a_rebuild(own: Path, table: pa.Table) -> None:
    for path in segments(own_files(own)):
        data = bytearray(path.read_bytes())
        for span in regions(path)["group/flags"]:
            data[span.start] ^= 1
        path.write_bytes(data)
    lake = sk.open(own)
    assert check_all(lake, table).problems
    build(lake, rebuild=True)
    assert check_all(lake, table).problems == ()
    assert check_all(sk.open(own), table).covered == FILES


def test_damaged_segments_are_not_merged_into_good_ones(
    own: Path, table: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    import skipstone.index.build as build_module

    for path in segments(own_files(own)):
        data = bytearray(path.read_bytes())
        for span in regions(path).get("page/lower", regions(path)["group/lower"])[:1]:
            data[span.start] ^= 0x40
        path.write_bytes(data)
    monkeypatch.setattr(build_module, "MANY_SEGMENTS", 1)
    write_file(own / "part-8.parquet", 8)
    lake = sk.open(own)
    lake.index.refresh(engine="local")
    more = pa.concat_tables([table, fault_table(8)])
    for question in QUESTIONS[:-1]:
        check(sk.open(own), more, question)


def test_the_lake_can_be_read_while_an_index_breaks_under_it(own: Path, table: pa.Table) -> None:
    """Damage that comes between two questions, on an index that is fetched."""
    lake, _ = open_beside(own, own_files(own), near=False)
    check(lake, table, QUESTIONS[0])
    for path in segments(own_files(own)):
        path.write_bytes(b"\0" * path.stat().st_size)
    for question in QUESTIONS:
        check(lake, table, question)
