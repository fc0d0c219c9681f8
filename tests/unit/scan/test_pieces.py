from __future__ import annotations

import skipstone as sk
from skipstone.core.rows import RowSet
from skipstone.scan.parts import Growth, Piece, bundled, merge_whole

ALL = RowSet.all(10)


def piece(task: int, group: int, rows: RowSet = ALL, *, proven: bool = True, weight: int = 10) -> Piece:
    return Piece(task, group, rows, proven, weight)


def merged(*pieces: Piece, memory: int = 1_000) -> list[tuple[int, int, int]]:
    return [(p.task, p.group, p.more) for p in merge_whole(pieces, memory)]


def test_whole_row_groups_in_a_row_are_one_piece():
    assert merged(piece(0, 0), piece(0, 1), piece(0, 2), piece(1, 0)) == [(0, 0, 2), (1, 0, 0)]


def test_what_keeps_them_apart():
    some = RowSet.from_ranges(10, [(0, 5)])
    assert merged(piece(0, 0), piece(0, 2)) == [(0, 0, 0), (0, 2, 0)]
    assert merged(piece(0, 0), piece(0, 1, some)) == [(0, 0, 0), (0, 1, 0)]
    assert merged(piece(0, 0, proven=False), piece(0, 1)) == [(0, 0, 0), (0, 1, 0)]
    assert merged(piece(0, 0), piece(0, 1), piece(0, 2), memory=80) == [(0, 0, 1), (0, 2, 0)]
    assert merged() == []


def test_they_are_read_as_one(lake):
    run = lake.scan(threads=1).execute()
    table = run.to_arrow()
    assert (run.trace.run.pieces, table.num_rows) == (4, 40_000)
    apart = lake.scan(threads=2).execute()
    assert apart.to_arrow().equals(table)
    assert apart.trace.run.pieces == 16
    assert sk.execute(lake.scan(threads=1).plan(), columns=["part"]).to_arrow().num_rows == 40_000


def test_pieces_grow():
    growth = Growth(10)
    rows = RowSet.from_ranges(1_000, [(0, 30), (500, 800)])
    parts = list(growth.split(rows, 1_000))
    assert [len(part) for part in parts] == [10, 40, 160, 120]
    assert [len(part) for part in growth.split(RowSet.all(1_000), 1_000)] == [1_000]
    whole = parts[0] | parts[1] | parts[2] | parts[3]
    assert whole == rows
    assert [len(part) for part in Growth(10).split(rows, 100)] == [10, 40, 100, 100, 80]


def bundles(*pieces: Piece, memory: int = 1_000) -> list[list[tuple[int, int]]]:
    return [[(p.task, p.group) for p in bundle] for bundle in bundled(pieces, memory)]


def test_small_pieces_are_read_together():
    some = RowSet.from_ranges(10, [(0, 5)])
    assert bundles(piece(0, 0, some), piece(0, 3), piece(7, 1)) == [[(0, 0), (0, 3), (7, 1)]]
    assert bundles() == []


def test_what_is_not_read_together():
    large = RowSet.all(20_000)
    assert bundles(piece(0, 0), piece(1, 0, proven=False), piece(2, 0)) == [[(0, 0)], [(1, 0)], [(2, 0)]]
    assert bundles(piece(0, 0, large), piece(1, 0, large), piece(2, 0)) == [[(0, 0)], [(1, 0), (2, 0)]]
    assert bundles(piece(0, 0), piece(1, 0), piece(2, 0), memory=80) == [[(0, 0), (1, 0)], [(2, 0)]]
    assert bundles(piece(0, 0), piece(1, 0), memory=0) == [[(0, 0)], [(1, 0)]]
    whole = Piece(0, 0, ALL, True, 10, more=2)
    assert [len(bundle) for bundle in bundled([piece(0, 9), whole, piece(1, 0)], 1_000)] == [1, 1, 1]
