"""Drafts joined, taken apart, written and read again say the same of every file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import skipstone as sk
from skipstone.aggregate.states.answers import sums, variances
from skipstone.aggregate.states.state import ALL_FACETS
from skipstone.index.container import Container, LocalFile, RemoteFile
from skipstone.index.draft import ColumnDraft, Draft, ranges
from skipstone.index.levels import LevelBounds
from skipstone.index.record import record_files
from skipstone.index.segment import Segment
from skipstone.index.spec import Spec
from skipstone.store.cache import Cache

TYPES = {"id": pa.int64(), "text": pa.string(), "x": pa.float64(), "dec": pa.decimal128(30, 2)}


def _table(rows: int, start: int, names: list[str]) -> pa.Table:
    ids = range(start, start + rows)
    columns: dict[str, Any] = {
        "id": pa.array([None if n % 7 == 0 else n for n in ids], pa.int64()),
        "text": pa.array([f"w{n % 13}" * (n % 4) for n in ids]),
        "x": pa.array([float("nan") if n % 5 == 0 else n / 2 for n in ids]),
        "dec": pa.array([None if n % 3 else n for n in ids], pa.int64()).cast(TYPES["dec"]),
        "items": pa.array([[n, n + 1] for n in ids], pa.list_(pa.int64())),
    }
    return pa.table({name: columns[name] for name in names})


FILES: list[tuple[pa.Table, dict[str, Any]]] = [
    (_table(40, 0, ["id", "text", "x", "dec", "items"]), {"row_group_size": 15, "write_page_index": True}),
    (_table(30, 100, ["id", "x"]), {"row_group_size": 30}),
    (_table(0, 0, ["id", "text", "x", "dec"]), {}),
    (_table(25, 200, ["text", "id", "dec"]), {"row_group_size": 5, "use_dictionary": False}),
    (
        _table(60, 300, ["id", "text", "x", "items"]),
        {
            "row_group_size": 20,
            "write_page_index": True,
            "max_rows_per_page": 4,
            "write_batch_size": 4,
            "bloom_filter_options": {"text": {"ndv": 20, "fpp": 0.1}},
        },
    ),
    (_table(9, 400, ["items"]), {}),
]
PATHS = tuple((name,) for name in TYPES)
COLUMNS = tuple(((name,), type) for name, type in TYPES.items())
SPECS = {
    "footers": Spec(COLUMNS),
    "no pages": Spec(COLUMNS, pages=False, own_blooms=False),
    "all": Spec(
        COLUMNS, blooms=PATHS[:2], values=PATHS, sums=(("id",), ("x",)), sketches=(("id",), ("text",))
    ),
}


@pytest.fixture(scope="module", params=SPECS)
def drafts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Draft]:
    root = tmp_path_factory.mktemp("drafts")
    for number, (table, options) in enumerate(FILES):
        pq.write_table(table, root / f"f{number}.parquet", **options)
    lake = sk.open(root)
    return [record_files(lake.access, [entry], SPECS[request.param]) for entry in lake.entries]


def told(draft: Draft) -> dict[str, Any]:
    """One file's part of a draft after the other, as plain data; no file's depends on its neighbours."""
    files = [_file(draft.take(np.array([n]))) for n in range(len(draft))]
    return {"keys": draft.keys, "files": files}


def _file(draft: Draft) -> dict[str, Any]:
    columns = {}
    for path, column in draft.columns.items():
        pages = column.pages
        if pages is not None and not pages.counts.any():
            pages = None
        plain: dict[str, Any] = {
            "groups": None if column.groups is None else _level(column.groups),
            "origins": None if column.origins is None else column.origins.tolist(),
            "pages": None
            if pages is None
            else [getattr(pages, n).tolist() for n in ("counts", "first_rows", "offsets", "sizes")],
            "blooms": [
                {size: (s.units.tolist(), s.bits.tolist()) for size, s in sorted(stacks.items())}
                for stacks in (column.blooms, column.page_blooms)
            ],
        }
        kept = {level: _plain(column, level, 0) for level in column.sums}
        plain["sums"] = {level: sums for level, sums in kept.items() if any(sums)}
        if pages is not None and pages.level is not None:
            plain["deep"] = _level(pages.level)
        columns[path] = plain
    return {
        "marks": draft.marks.tolist(),
        "versions": draft.versions,
        "shell": draft.schemas[int(draft.schema_numbers[0])],
        "rows": draft.group_rows.tolist(),
        "sizes": (draft.sizes.tolist(), draft.group_sizes.tolist()),
        "counts": (draft.counts.tolist(), draft.chunk_counts.tolist()),
        "chunks": draft.chunks.tolist(),
        "columns": {
            path: c for path, c in columns.items() if c["groups"] is not None or c["pages"] is not None
        },
    }


def _level(level: LevelBounds) -> list[Any]:
    facts = level.facts
    bounds = [
        b.to_pylist() if isinstance(b, pa.Array) else [repr(v) for v in b.tolist()]
        for b in (facts.lower, facts.upper)
    ]
    flags = [
        getattr(facts, n).tolist() for n in ("lower_exact", "upper_exact", "may_value", "may_null", "may_nan")
    ]
    return [
        str(facts.type),
        bounds,
        flags,
        level.nulls.tolist(),
        level.nans.tolist(),
        level.distinct.tolist(),
    ]


def _plain(column: ColumnDraft, level: str, units: int) -> list[Any]:
    """Per unit, whether its sums are known, and what they are."""
    blocks = column.sums.get(level)
    if blocks is None:
        return [None] * units
    found = zip(sums(blocks).to_pylist(), variances(blocks, 0, root=False).to_pylist(), strict=True)
    return [
        str(told) if known else None for told, known in zip(found, blocks.has_facets(ALL_FACETS), strict=True)
    ]


def reopened(draft: Draft, folder: Path) -> Iterator[Segment]:
    parts, tail = draft.write("spec", own_blooms=True)
    data = b"".join(parts)
    (folder / "segment").write_bytes(data)
    sources: list[Any] = [
        LocalFile(str(folder / "segment")),
        RemoteFile("segment", lambda ranges: [data[r.start : r.stop] for r in ranges]),
    ]
    for source in sources:
        yield Segment(Container.open("segment", source, len(data), tail, Cache(1 << 22)))


@settings(max_examples=15)
@given(data=st.data())
def test_a_segment_says_what_was_written(
    drafts: list[Draft], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    chosen = data.draw(st.permutations(range(len(drafts))))[: data.draw(st.integers(1, len(drafts)))]
    whole = Draft.concat([drafts[n] for n in chosen])
    wanted = told(whole)
    # Joined, a file may have columns that only its neighbours have: unknown, which says nothing.
    for found, number in zip(wanted["files"], chosen, strict=True):
        own = _file(drafts[number])
        assert {k: v for k, v in found.items() if k != "columns"} == {
            k: v for k, v in own.items() if k != "columns"
        }
        for path, column in own["columns"].items():
            assert {k: found["columns"][path].get(k) for k in column if k != "deep"} == {
                k: v for k, v in column.items() if k != "deep"
            }
            if "deep" in column:
                assert found["columns"][path]["deep"] == column["deep"]
    for segment in reopened(whole, tmp_path_factory.getbasetemp()):
        assert len(segment) == len(whole)
        assert segment.groups == len(whole.group_rows)
        again = segment.draft()
        assert told(again) == wanted
        # And once more, in another order, as a merge does it.
        order = np.array(data.draw(st.permutations(range(len(whole)))), dtype=np.int64)
        order = order[: data.draw(st.integers(1, len(order)))]
        taken = again.take(order)
        assert told(taken)["files"] == [wanted["files"][n] for n in order.tolist()]
        for merged in reopened(taken, tmp_path_factory.getbasetemp()):
            assert told(merged.draft()) == told(taken)


def test_joining_is_associative(drafts: list[Draft]) -> None:
    left = Draft.concat([Draft.concat(drafts[:2]), Draft.concat(drafts[2:])])
    right = Draft.concat([drafts[0], Draft.concat(drafts[1:5]), drafts[5]])
    assert told(left) == told(right) == told(Draft.concat(drafts))


@pytest.mark.parametrize("path", [("id",), ("x",)])
def test_sums_and_sketches_follow_their_files(drafts: list[Draft], path: tuple[str, ...]) -> None:
    """Also where some files have none."""
    columns = [draft.columns.get(path, ColumnDraft()) for draft in drafts]
    whole = Draft.concat(drafts)
    for order in (np.arange(len(whole)), np.arange(len(whole))[::-1]):
        column = whole.take(order).columns[path]
        for level in ("group", "page"):
            counts = [c.units(level, len(d.group_rows)) for c, d in zip(columns, drafts, strict=True)]
            each = [_plain(c, level, count) for c, count in zip(columns, counts, strict=True)]
            wanted = [unit for n in order.tolist() for unit in each[n]]
            assert _plain(column, level, len(wanted)) == wanted
            assert not column.sums or any(wanted)
        for kind, blobs in column.sketches.items():
            groups = [len(draft.group_rows) for draft in drafts]
            mine = [c.sketches.get(kind, [b""] * n) for c, n in zip(columns, groups, strict=True)]
            assert blobs == [blob for n in order.tolist() for blob in mine[n]]


@given(st.lists(st.integers(0, 4), min_size=1, max_size=8), st.data())
def test_ranges(counts: list[int], data: st.DataObject) -> None:
    lengths = np.array(counts, dtype=np.int64)
    firsts = np.cumsum(lengths) - lengths
    chosen = data.draw(st.lists(st.integers(0, len(counts) - 1), max_size=6))
    found = ranges(firsts, lengths, np.array(chosen, dtype=np.int64))
    assert found.tolist() == [n for c in chosen for n in range(firsts[c], firsts[c] + counts[c])]
